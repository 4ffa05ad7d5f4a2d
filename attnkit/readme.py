"""Parts of README.md that commands write: each stands between two marks of its own."""

from __future__ import annotations

from pathlib import Path

from attnkit.files import write_file


def marks(name: str) -> tuple[str, str]:
    """The lines around the part that a command writes."""
    return (
        f"<!-- {name} begins: written by python -m attnkit {name} -->",
        f"<!-- {name} ends -->",
    )


def split_readme(path: Path, name: str) -> tuple[str, str]:
    """What stands before and after a command's part.

    Raises:
        ValueError: if the marks are missing. OSError: if it cannot be read.
    """
    text = path.read_text(encoding="utf-8")
    begin, end = marks(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{path}: needs one line {begin!r} and one {end!r}")
    before, rest = text.split(begin)
    return before, rest.split(end)[1]


def write_part(path: Path, name: str, body: str) -> None:
    """Replace what stands between the marks.

    Raises:
        ValueError: if the marks are missing. OSError: if it cannot be read or written.
    """
    before, after = split_readme(path, name)
    begin, end = marks(name)
    write_file(path, f"{before}{begin}\n{body}\n{end}{after}")
