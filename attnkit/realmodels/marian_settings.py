"""Reader of the configuration inside a Marian model: lines of YAML without nesting.

Marian writes every option as `name: value`, a list as lines `  - item` or as `  []`. Only this
part of YAML is read, so that no library has to parse a text from elsewhere.
"""

from __future__ import annotations

import re
from typing import Any

from attnkit.realmodels.base import quote
from attnkit.realmodels.binary_file import damaged
from attnkit.realmodels.configuration import Configuration

FIELD = re.compile(r"([A-Za-z][\w-]*):(?: +(.*))?")
"""A line that begins an option."""

INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
"""Texts without quotation marks that stand for values."""

IGNORED = ("", "---", "...")
"""Lines without an option."""


def parse_settings(file: str, name: str, text: str) -> Configuration:
    """Return the options of a configuration.

    Args:
        file: Name of the model's file in messages.
        name: Name of the configuration in messages.
        text: The configuration.

    Returns:
        The options by name: texts, whole numbers, truth values, None, or lists of these. Fractions
        stay texts, because no option that is read is one.

    Raises:
        Unreadable: If a line is neither an option nor part of one, or an option is there twice.
    """
    lines_of: dict[str, list[str]] = {}
    current: list[str] | None = None
    for i, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip()
        if line in IGNORED or line.startswith("#"):
            continue
        if match := FIELD.fullmatch(line):
            field, value = match.groups()
            if field in lines_of:
                raise damaged(file, f"its {name} has the option {quote(field)} twice")
            lines_of[field] = current = [value] if value else []
        elif current is not None and line[0] in " -":
            current.append(line.strip())
        else:
            raise damaged(file, f"line {i} of its {name} is {quote(line)} and not an option")
    values = {field: _value(lines) for field, lines in lines_of.items()}
    return Configuration(values, f"{file}: {name}")


def _value(lines: list[str]) -> Any:
    """Return the value that the lines of an option stand for."""
    if lines and all(line.startswith("- ") for line in lines):
        return [_scalar(line[2:].strip()) for line in lines]
    text = " ".join(lines)
    if text.startswith("[") and text.endswith("]"):
        items = text[1:-1].strip()
        return [_scalar(item.strip()) for item in items.split(",")] if items else []
    return _scalar(text)


def _scalar(text: str) -> str | int | bool | None:
    """Return the value of a text without spaces around it."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if INTEGER.fullmatch(text):
        return int(text)
    return WORDS.get(text, text)
