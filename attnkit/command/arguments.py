"""Parser of the command line and checks of single arguments; every error is one line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from attnkit.foundation.settings import allowed_names, shown

BAD_INPUT = 2
"""Exit code for an argument that cannot be used."""

_LONGEST_ERROR = 2000
"""Largest number of characters of an error message."""


class BadInput(ValueError):
    """Error of a wrong argument; the message names it, its value and what is allowed."""


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors are one line and suggest known options."""

    def print_help(self, file: Any = None) -> None:
        """Print the help; raise an error if it cannot be written, which argparse does not."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Print one line to standard error and exit."""
        self.exit(BAD_INPUT, error_line(message))

    def unknown(self, arguments: list[str]) -> NoReturn:
        """Exit with an error that names unknown arguments and suggests the nearest option."""
        options = re.findall(r"--[a-z-]+", self.format_usage())
        first = next((text for text in arguments if text.startswith("-")), arguments[0])
        allowed = allowed_names(options, first.partition("=")[0]) or "no options"
        listed = " ".join(shown(text) for text in arguments[:3])
        self.error(f"unrecognized arguments: {listed}, allowed {allowed}")


def error_line(message: str) -> str:
    """Return an error as one printable line, shortened if it is very long."""
    text = " ".join(message.split())
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    text = text if len(text) <= _LONGEST_ERROR else text[: _LONGEST_ERROR - 3] + "..."
    return f"attnkit: error: {text}\n"


def whole_number(option: str, text: str, low: int, high: int) -> int:
    """Return the value of an option as a number.

    Raises:
        BadInput: If the text is not a whole number from `low` to `high`.
    """
    if not text.isdecimal() or len(text) > len(str(high)) or not low <= int(text) <= high:
        allowed = f"allowed a whole number from {low:,} to {high:,}"
        raise BadInput(f"{option}: got {shown(text, quoted=True)}, {allowed}")
    return int(text)


def known_name(field: str, text: str, known: Iterable[str]) -> str:
    """Return `text` if it is one of the known names.

    Raises:
        BadInput: If it is not. The message suggests the nearest name.
    """
    known = list(known)
    if text not in known:
        raise BadInput(
            f"{field}: got {shown(text, quoted=True)}, allowed {allowed_names(known, text)}"
        )
    return text


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file could not be read or written, without its name."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return "no path has a null character" if "embedded null" in text else text
