"""Commands that read a visitor's own model, in a process of their own.

Only copies that are not hosted offer them: who names a model may read every file of the machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attnkit.foundation.process import environment_with_package

_ERROR = "attnkit: error: "
"""Beginning of a line in which the command reports an error."""

_FILES = (
    (r"; name the one that is meant: .*", "; name the one that is meant"),
    (r": holds .*; allowed are", ": holds no model that is read; allowed are"),
    (r": [^:]* cannot be read; ", ": files of this kind cannot be read; "),
)
"""Parts of messages that list files of the machine, and what the page says instead."""

_PATH = re.compile(r"(?<![\w./])(?:/[^\s/'\"]+)+")
"""A path of the machine in a message."""

_TAIL_BYTES = 4000
"""Bytes at the end of the process's messages that are read."""

_ENDING_SECONDS = 2.0
"""Seconds that a process may take to end before it is killed."""


class ModelProcess:
    """One run of a command of `python -m attnkit` about a model; it ends with this object.

    Args:
        arguments: Name and options of the command; "{folder}" stands for the folder of its files.
        source: A folder, a file, a package or a name on the hub.
        name: Name of the source on the page; the source itself if it is empty.
        folder: Folder for its files, which is removed with this object; None for a new one.
        listens: Whether the command reads its standard input.

    Attributes:
        name: Name of the source on the page.
        stopped: Whether the visitor has stopped it.
        folder: The folder.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        source: str,
        *,
        name: str = "",
        folder: Path | None = None,
        listens: bool = False,
    ) -> None:
        self.name, self._source, self.stopped = name or source, source, False
        self.folder = folder or new_folder()
        self._messages = self.folder / "told.txt"
        options = [argument.replace("{folder}", str(self.folder)) for argument in arguments]
        command = [sys.executable, "-m", "attnkit", *options]
        with self._messages.open("wb") as messages:
            self._process = subprocess.Popen(
                [*command, "--", source],  # a source that begins with a dash is no option
                stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                start_new_session=True,
                # Several threads per product of small matrices are slow beside a training.
                env={"OPENBLAS_NUM_THREADS": "1", **environment_with_package()},
            )
        self._finalizer = weakref.finalize(self, _end, self._process, self.folder)

    @property
    def moving(self) -> bool:
        """Whether the command still runs."""
        return self._process.poll() is None

    def problem_of(self, error: Exception) -> str:
        """Return an error in words that name the source once, and no other file."""
        message = error.strerror or "not readable" if isinstance(error, OSError) else str(error)
        for listing, words in _FILES:
            message = re.sub(listing, words, message)
        message = _PATH.sub(
            lambda path: path[0] if path[0] in self.name else "a file of the server", message
        )
        names = (self.name, Path(self.name).name, Path(self._source).name)
        is_named = any(name and name in message for name in names)
        return message if is_named else f"{self.name}: {message}"

    @property
    def problem(self) -> str:
        """Reason why the command failed, in one line; empty if it has not failed."""
        code = self._process.poll()
        if code in (None, 0):
            return ""
        if self.stopped:
            return "Stopped."
        return self.error_after("") or (self._lines() or [f"it ended with exit code {code}"])[-1]

    def error_after(self, beginning: str) -> str:
        """Return the rest of the last error that begins so; empty if there is none."""
        prefix = _ERROR + beginning
        lines = (line for line in reversed(self._lines()) if line.startswith(prefix))
        return next(lines, "").removeprefix(prefix)

    def stop(self) -> None:
        """Stop the command."""
        self.stopped = self.moving
        self.close()

    def close(self) -> None:
        """End the process and remove its files."""
        self._finalizer()

    def _lines(self) -> list[str]:
        """Return the last lines of the process's messages."""
        return [line.strip() for line in re.split(r"[\r\n]+", self._tail()) if line.strip()]

    def _tail(self) -> str:
        """Return the end of the process's messages; empty once its files are removed."""
        try:
            with self._messages.open("rb") as file:
                file.seek(max(0, self._messages.stat().st_size - _TAIL_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Terminate a process, kill it if it does not end, and remove its folder."""
    if process.stdin is not None:
        with suppress(OSError):  # the process has ended before it read all
            process.stdin.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def new_folder() -> Path:
    """Make a folder for the files of one model."""
    return Path(tempfile.mkdtemp(prefix="attnkit-"))
