"""Marks in text files, between which commands write their tables."""

from __future__ import annotations

from pathlib import Path

from attnkit.foundation.files import write_file


def marks(command: str) -> tuple[str, str]:
    """Return the lines that mark the beginning and the end of a command's table."""
    return (
        f"<!-- {command} begins: written by python -m attnkit {command} -->",
        f"<!-- {command} ends -->",
    )


def split_at_marks(path: Path, command: str) -> tuple[str, str]:
    """Return the text before and the text after the marks of a command.

    Raises:
        ValueError: If the marks are missing.
        OSError: If the file cannot be read.
    """
    text = path.read_text(encoding="utf-8")
    begin, end = marks(command)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{path}: needs one line {begin!r} and one {end!r}")
    before, rest = text.split(begin)
    return before, rest.split(end)[1]


def write_between_marks(path: Path, command: str, body: str) -> None:
    """Replace the text between the marks of a command.

    Raises:
        ValueError: If the marks are missing.
        OSError: If the file cannot be read or written.
    """
    before, after = split_at_marks(path, command)
    begin, end = marks(command)
    write_file(path, f"{before}{begin}\n{body}\n{end}{after}")
