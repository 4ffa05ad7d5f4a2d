"""Errors about files and models that cannot be read: one line that says what you can do."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

CONVERT = (
    "pickles, such as PyTorch's files, can run any program when they are opened, so they are never "
    "opened; if you trust the file, convert it to safetensors with transformers: "
    "AutoModel.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
)
"""Advice in the error messages about pickles."""

COPY_AGAIN = "copy or download it again"

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80

_MAX_NAMES = 6
"""Number of names that a message lists."""


class Unreadable(ValueError):
    """A file or model that cannot be read; the message is one line and says what you can do."""


def damaged(file: str, reason: str, advice: str = COPY_AGAIN) -> Unreadable:
    """Return the error to raise for a file that contradicts itself."""
    return Unreadable(f"{file} is damaged: {reason}; {advice}")


def quote(value: object) -> str:
    """Return a value from a file for an error message: shortened, on one line."""
    try:
        return _REPR.repr(value)
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return "a huge number"


def listing(names: Iterable[str]) -> str:
    """Return the first few names and the number of the others, for one line of a message."""
    names = list(names)
    others = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return (", ".join(quote(name) for name in names[:_MAX_NAMES]) or "nothing") + others


def choices(value: object, names: Collection[str]) -> str:
    """Return the allowed names for an error message: those like the value first, then the number.

    Args:
        value: The value that is not allowed.
        names: The names that are.
    """
    close = get_close_matches(value, names, len(names), 0.6) if isinstance(value, str) else []
    shown = list(dict.fromkeys([*close, *names]))
    if len(shown) <= _MAX_NAMES:
        return f"one of {', '.join(shown)}"
    first, n = ", ".join(shown[:_MAX_NAMES]), len(shown) - _MAX_NAMES
    return f"one of {first} or {n} others, which are in docs/real_models.md"


def folder_name(folder: Path) -> str:
    """Return a folder's name, even if its path is "." or "/"."""
    return folder.resolve().name or str(folder)


@contextmanager
def reading(path: Path, max_bytes: int | None = None, advice: str = COPY_AGAIN) -> Iterator[None]:
    """Raise Unreadable for whatever a library raises while it reads a file.

    Args:
        path: The file.
        max_bytes: Largest size of the file, if it is read as a whole.
        advice: What to do if the file is damaged, for the message.

    Raises:
        Unreadable: If the path is not a file, or the code in the context raises an error.
    """
    try:
        if not path.is_file():  # opening a pipe would wait for ever
            raise Unreadable(f"{path.name} is not a file; give the path of a model's file")
        if max_bytes is not None and path.stat().st_size > max_bytes:
            raise Unreadable(f"{path.name}: larger than {max_bytes:,} bytes")
        yield
    except Unreadable:
        raise
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise Unreadable(f"{path.name}: cannot be opened ({reason})") from error
    except Exception as error:  # which one depends on the library and on the damage
        raise damaged(path.name, first_line(error), advice) from error


def first_line(error: Exception) -> str:
    """Return a library's message on one line, without paths of this machine."""
    message = re.sub(r"[^\s'\"]*[/\\]", "", str(error)[:500])
    return one_line(message, 160).rstrip(".") or "it cannot be read"


def one_line(text: str, most: int) -> str:
    """Return the beginning of a text from a file or of a name, printable and on one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:most]).split())
