"""Parser, argument checks and output files that all commands share; every error is one line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeAlias

from attnkit.foundation.documents import read_file, text_of
from attnkit.foundation.files import check_writable, write_file
from attnkit.foundation.settings import allowed_names, shown

BAD_INPUT = 2
"""Exit code for an argument that cannot be used."""

SCREEN = "-"
"""Value of `--json` for standard output instead of a file."""

_LONGEST_ERROR = 2000
"""Largest number of characters of an error message."""

_LONGEST_PATH = 200
"""Largest number of characters of a path in an error message."""


class BadInput(ValueError):
    """Error of a wrong argument; the message names it, its value and what is allowed."""


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors are one line and suggest known options."""

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


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""Subparsers to which each module adds its commands."""


def add_command(
    commands: Commands, name: str, purpose: str, run: Callable[[argparse.Namespace], int]
) -> Parser:
    """Add a command with its help and the function that runs it; return its parser."""
    parser = commands.add_parser(name, help=purpose)
    parser.set_defaults(parser=parser, command=name, run=run)
    return parser


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
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def say(text: str) -> None:
    """Print a line to standard error at once, so that standard output has results only."""
    print(text, file=sys.stderr, flush=True)


def got_path(option: str, target: str) -> str:
    """Return the beginning of an error about an option's path, such as "--out: got 'x'"."""
    return f"{option}: got {shown(target, quoted=True, most=_LONGEST_PATH)}"


class Outputs:
    """Outputs of a command: checked before the work begins, and saved one by one after it.

    In a `with` block one failure does not stop the other outputs. At its end `BadInput` is raised
    if outputs have failed; the message also names those that were saved.

    Args:
        arguments: Arguments of the command.
        *files: Names of the options whose files are written.
        **folders: Names of the options whose folders are written, with the names of their files.

    Raises:
        BadInput: If a file or folder cannot be written, two options name the same one, or that of
            `--table` lacks the marks. Nothing has been written then.
    """

    def __init__(
        self, arguments: argparse.Namespace, *files: str, **folders: Iterable[str]
    ) -> None:
        self._arguments = arguments
        self._failed: list[str] = []
        self._saved: list[str] = []
        option_of_path: dict[Path, str] = {}
        for name in (*files, *folders):
            target = getattr(arguments, name)
            if target is None or (name == "json" and target == SCREEN):
                continue
            option, path = f"--{name}", Path(target)
            with _problems(option, target, "a folder" if name in folders else "a file"):
                if name in folders:
                    _check_folder(path, folders[name], got_path(option, target))
                else:
                    check_writable(path)
                if name == "table":
                    split_at_marks(path, arguments.command)
            other = option_of_path.setdefault(path.resolve(), option)
            if other != option:
                raise BadInput(f"{got_path(option, target)}, but {other} writes the same file")

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._failed:
            saved = f"; saved: {', '.join(self._saved)}" if self._saved else ""
            raise BadInput("; ".join(self._failed) + saved) from None

    def save(
        self, name: str, content: str | bytes | Callable[[str], object], target: str = ""
    ) -> None:
        """Write one output, unless its option is missing or names the screen.

        Args:
            name: Name of the option.
            content: Content of the file, or a function that writes it, given the target.
            target: Where to write, if that is not the value of the option.
        """
        target = target or getattr(self._arguments, name)
        if target is None or (name == "json" and target == SCREEN):
            return
        try:
            if callable(content):
                content(target)
            else:
                write_file(Path(target), content)
        except BrokenPipeError:  # the reading program has stopped reading
            pass
        except BadInput as error:
            self._failed.append(str(error))
        except (OSError, ValueError) as error:
            reason = f"but it cannot be written ({reason_of(error)})"
            self._failed.append(f"{got_path(f'--{name}', target)}, {reason}")
        else:
            self._saved.append(f"--{name} {target}")

    def save_table(self, table: str, answers: str = "") -> None:
        """Replace the command's text in the file of `--table`, unless the option is missing.

        Args:
            table: The table of the command.
            answers: Text for a file with the marks of answers instead of a table.
        """

        def write(target: str) -> None:
            path, command = Path(target), self._arguments.command
            part, before, after = split_at_marks(path, command)
            begin, end = marks(command, part)
            write_file(path, f"{before}{begin}\n{answers if part else table}\n{end}{after}")

        self.save("table", write)


def _check_folder(folder: Path, files: Iterable[str], got: str) -> None:
    """Check that files can be written into a folder, without writing."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{got}, but it is a file, allowed a folder")
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        for name in files:
            if (folder / name).is_dir():
                raise BadInput(f"{got}, but its {name} is a folder")
            check_writable(folder / name)
    finally:
        if is_new:
            folder.rmdir()


@contextmanager
def _problems(option: str, target: str, allowed: str) -> Iterator[None]:
    """Raise what is wrong with the path of an option as `BadInput`."""
    got = got_path(option, target)
    if not target:
        raise BadInput(f"{got}, allowed {allowed}")
    try:
        if not Path(target).absolute().parent.is_dir():
            raise BadInput(f"{got}, but its folder does not exist")
        yield
    except BadInput:
        raise
    except IsADirectoryError:
        raise BadInput(f"{got}, but it is a folder, allowed {allowed}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{got}, but it cannot be used ({reason_of(error)})") from None


def marks(command: str, part: str = "") -> tuple[str, str]:
    """Return the lines that mark the beginning and the end of a command's table, or answers."""
    name = f"{command} {part}".rstrip()
    return (
        f"<!-- {name} begins: written by python -m attnkit {command} -->",
        f"<!-- {name} ends -->",
    )


def split_at_marks(path: Path, command: str) -> tuple[str, str, str]:
    """Return which part has its marks in a file, "" or "answers", and the texts around them.

    Raises:
        ValueError: If the marks are missing.
        OSError: If the file cannot be read.
    """
    text = text_of(read_file(path))
    for part in ("answers", "") if command == "claims" else ("",):
        begin, end = marks(command, part)
        if text.count(begin) == 1 == text.count(end):
            before, rest = text.split(begin)
            return part, before, rest.split(end)[1]
    raise ValueError(f"{path}: needs one line {begin!r} and one {end!r}")
