"""Files that a command writes: checked before the work begins, and saved one by one after it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from attnkit.command.arguments import BadInput, reason_of
from attnkit.command.marks import split_at_marks
from attnkit.foundation.files import check_writable, write_file
from attnkit.foundation.settings import shown

SCREEN = "-"
"""In place of a file's name: standard output."""

_LONGEST_PATH = 200
"""Characters of a path in an error message."""


def given_as(option: str, target: str) -> str:
    """Return the beginning of an error about a path that was given for an option."""
    return f"{option}: got {shown(target, quoted=True, most=_LONGEST_PATH)}"


def check_files(given: argparse.Namespace, *options: str) -> None:
    """Check before long work that the files of these options could be written after it.

    Nothing is changed and nothing is left behind.

    Raises:
        BadInput: if one cannot be written, or two options name the same file.
    """
    seen: dict[str, str] = {}
    for name in options:
        option, target = f"--{name}", getattr(given, name)
        if target is None or (name == "json" and target == SCREEN):
            continue
        _check(option, target, "a file", check_writable)
        other = seen.setdefault(os.path.realpath(target), option)
        if other != option:
            raise BadInput(f"{given_as(option, target)}, but {other} writes the same file")


def check_folder(option: str, target: str, files: Iterable[str]) -> None:
    """Check before long work that a folder with these files could be written after it.

    Raises:
        BadInput: if it cannot be written.
    """

    def check(folder: Path) -> None:
        made = not folder.exists()
        if made:
            folder.mkdir()
        elif not folder.is_dir():
            raise BadInput(f"{given_as(option, target)}, but it is a file, allowed a folder")
        try:
            for name in files:
                if (folder / name).is_dir():
                    raise BadInput(f"{given_as(option, target)}, but its {name} is a folder")
                check_writable(folder / name)
        finally:
            if made:
                folder.rmdir()

    _check(option, target, "a folder", check)


def check_table(path: str | None, name: str) -> None:
    """Check before long work that the table of a command has a place in a file.

    Raises:
        BadInput: if the file cannot be read or written, or lacks the marks of the table.
    """
    if path is None:
        return

    def check(target: Path) -> None:
        split_at_marks(target, name)
        check_writable(target)

    _check("--table", path, "a file", check)


def _check(option: str, target: str, allowed: str, check: Callable[[Path], None]) -> None:
    if not target:
        raise BadInput(f"{option}: got '', allowed {allowed}")
    path = Path(target)
    try:
        if not path.absolute().parent.is_dir():
            raise BadInput(f"{given_as(option, target)}, but its folder does not exist")
        check(path)
    except BadInput:
        raise
    except IsADirectoryError:
        raise BadInput(
            f"{given_as(option, target)}, but it is a folder, allowed {allowed}"
        ) from None
    except (OSError, ValueError) as error:
        why = f"but it cannot be used ({reason_of(error)})"
        raise BadInput(f"{given_as(option, target)}, {why}") from None


class Saving:
    """Saves results one by one, so that one file that fails costs no other.

    Use it as a context manager: on leaving the block it raises `BadInput` for what failed, and
    names what was saved.
    """

    def __init__(self) -> None:
        self._failed: list[str] = []
        self._saved: list[str] = []

    def __enter__(self) -> Saving:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._failed:
            saved = f"; saved: {', '.join(self._saved)}" if self._saved else ""
            raise BadInput("; ".join(self._failed) + saved) from None

    def attempt(self, option: str, target: str, write: Callable[[], object]) -> None:
        """Write one output; a failure is remembered."""
        try:
            write()
        except BrokenPipeError:  # the program that reads it has all it wants
            pass
        except BadInput as error:
            self._failed.append(str(error))
        except (OSError, ValueError) as error:
            why = f"but it cannot be written ({reason_of(error)})"
            self._failed.append(f"{given_as(option, target)}, {why}")
        else:
            self._saved.append(f"{option} {target}")

    def file(self, option: str, target: str | None, content: str | bytes) -> None:
        """Write one file, unless its option was not given or names the screen."""
        if target is not None and target != SCREEN:
            self.attempt(option, target, lambda: write_file(Path(target), content))
