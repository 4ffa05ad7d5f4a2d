"""Reading of files and structured texts of unknown origin, within limits of size and depth."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnkit.foundation.language import tr
from attnkit.foundation.settings import shown

MOST_BYTES = 2**23
"""Largest size of a structured text."""

MOST_TOML_BYTES = 2**20
"""Largest size of a text in TOML, which is read much more slowly than one in JSON."""

MOST_LEVELS = 64
"""Largest number of objects and lists within one another."""

_TOML_TEXTS = re.compile(
    r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"'
    r"|'''.*?'''|'[^'\n]*'|#[^\n]*",
    re.DOTALL,
)
"""Texts and comments in TOML."""

_DEEP_KEY = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MOST_LEVELS}}}")
"""Key of too many names, such as "a.b.c…"; tomllib needs memory by the square of their number."""


class BadDocument(ValueError):
    """Error for a file or text that cannot be read; the message says what is wrong and allowed."""


def read_file(path: str | Path, most_bytes: int | None = None) -> bytes:
    """Return the content of a file.

    Args:
        path: The file. A folder, a pipe or a device, which might never end, is not read.
        most_bytes: Largest size; None for any.

    Raises:
        OSError: If the file does not exist or cannot be read.
        BadDocument: If it is not a file, or too large.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise BadDocument(tr("it is a folder, allowed a file"))
        raise BadDocument(tr("it is a pipe or a device, allowed a file"))
    with path.open("rb") as file:
        content = file.read(-1 if most_bytes is None else most_bytes + 1)
    if most_bytes is not None and len(content) > most_bytes:
        raise _too_large(most_bytes)
    return content


def text_of(content: bytes) -> str:
    """Return bytes as text in UTF-8, without the mark that some editors write before it.

    Raises:
        BadDocument: If they are not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = tr("its byte {place:,} is not of a text in UTF-8", place=error.start)
        raise BadDocument(wrong) from None


def parse_json(content: bytes | str, most_bytes: int = MOST_BYTES) -> Any:
    """Return the value of a text in JSON.

    Raises:
        BadDocument: If it is too large, is not JSON, is too deep, or names a key twice.
    """
    return _parse("JSON", _loads_json, content, most_bytes)


def parse_toml(content: bytes | str, most_bytes: int = MOST_TOML_BYTES) -> dict[str, Any]:
    """Return the tables of a text in TOML.

    Raises:
        BadDocument: If it is too large, is not TOML, or is too deep.
    """
    tables: dict[str, Any] = _parse("TOML", _loads_toml, content, most_bytes)
    return tables


def _parse(format: str, loads: Callable[[str], Any], content: bytes | str, most_bytes: int) -> Any:
    if len(content) > most_bytes:
        raise _too_large(most_bytes)
    text = text_of(content) if isinstance(content, bytes) else content
    try:
        value = loads(text)
    except BadDocument:
        raise
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # also a number of thousands of digits
        reason = tr("a number is too long") if "integer string" in str(error) else str(error)
        wrong = tr("it is not {format} ({reason})", format=format, reason=reason)
        raise BadDocument(wrong) from None
    check_depth(value)
    return value


def _loads_json(text: str) -> Any:
    value = json.loads(text, object_pairs_hook=_without_repetition)
    if "\\u" in text:  # half of a pair of surrogates is no character, and cannot be written again
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _loads_toml(text: str) -> dict[str, Any]:
    if _DEEP_KEY.search(_TOML_TEXTS.sub(lambda found: "" if found[0][0] == "#" else "text", text)):
        raise _too_deep()
    return tomllib.loads(text)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        key = shown(twice, quoted=True)
        raise BadDocument(tr("its key {key} stands twice in one object", key=key))
    return values


def check_depth(value: Any) -> None:
    """Check how deep objects and lists lie within one another; a value may hold itself.

    Raises:
        BadDocument: If it is more than `MOST_LEVELS`.
    """
    level, n_levels = [value], 0
    while level := [part for part in level if isinstance(part, dict | list)]:
        n_levels += 1
        if n_levels > MOST_LEVELS:
            raise _too_deep()
        distinct = {id(part): part for part in level}.values()
        level = [
            inner
            for part in distinct
            for inner in (part.values() if isinstance(part, dict) else part)
        ]


def _too_large(most_bytes: int) -> BadDocument:
    return BadDocument(tr("it is too large, allowed at most {most:,} bytes", most=most_bytes))


def _too_deep() -> BadDocument:
    return BadDocument(tr("it is too deep, allowed at most {most} levels", most=MOST_LEVELS))
