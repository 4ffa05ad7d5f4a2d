"""Measurement of a visitor's own model by the command line, in a process of its own.

Only copies that are not hosted offer it: whoever measures may read every file of the machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.foundation.process import environment_with_package
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.errors import Unreadable

if TYPE_CHECKING:
    from streamlit.runtime.uploaded_file_manager import UploadedFile

MOST_MEGABYTES = 500
"""Size of one uploaded file, at most; larger models are named by their path."""

ENDINGS = ("safetensors", "json", "gguf", "bin", "npz")
"""Endings of files that can be uploaded."""

_ALONE = (".gguf", ".bin", ".npz")
"""Endings of files that are models by themselves."""

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


class ModelMeasurement:
    """One run of `python -m attnkit models`; it ends with this object.

    Args:
        source: A folder, a file, a package or a name on the hub.
        name: Name of the source on the page; the source itself if it is empty.
        every_setting: Whether to measure with folded gains and other positions, too.
        folder: Folder that `keep_upload` made, or None; it is removed with this object.

    Attributes:
        name: Name of the source on the page.
        stopped: Whether the visitor has stopped the measurement.
        uploaded: Whether the model came through the browser.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str = "",
        every_setting: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.name, self._source = name or source, source
        self.stopped, self.uploaded = False, folder is not None
        folder = folder or new_folder()
        self._table, self._portraits = folder / "atlas.parquet", folder / "atlas.safetensors"
        self._messages = folder / "told.txt"
        command = [sys.executable, "-m", "attnkit", "models", "--out", str(self._table)]
        command += ["--portraits", str(self._portraits)]
        command += ["--every-setting"] if every_setting else []
        with self._messages.open("wb") as messages:
            self._process = subprocess.Popen(
                [*command, "--", source],  # a source that begins with a dash is no option
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                start_new_session=True,
                env=environment_with_package(),
            )
        self._finalizer = weakref.finalize(self, _end, self._process, folder)

    @property
    def moving(self) -> bool:
        """Whether the measurement is not finished."""
        return self._process.poll() is None

    @property
    def layers(self) -> tuple[int, int]:
        """Number of measured layers and of all layers; zeros before they are known."""
        progress = re.findall(r"(\d+)/(\d+) \[", self._tail())
        return (int(progress[-1][0]), int(progress[-1][1])) if progress else (0, 0)

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
        """Reason why the measurement failed, in one line; empty if it has not failed."""
        code = self._process.poll()
        if code in (None, 0):
            return ""
        if self.stopped:
            return "Stopped."
        lines = self._lines()
        errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
        return (errors or lines or [f"it ended with exit code {code}"])[-1]

    def stop(self) -> None:
        """Stop the measurement."""
        self.stopped = self.moving
        self.close()

    def close(self) -> None:
        """End the process and remove its files."""
        self._finalizer()

    def atlas(self) -> Atlas:
        """Return the measured models.

        Raises:
            OSError: If the files of the process cannot be read.
            Unreadable: If the measurement failed.
        """
        if self.problem:
            raise Unreadable(self.problem)
        try:
            return Atlas.load(self._table, self._portraits)
        except Unreadable as error:
            raise Unreadable("its numbers were cut short; measure it again") from error

    def notes_on(self, models: Iterable[str]) -> list[str]:
        """Return the notes of the command on models that it has measured, as sentences.

        They are gone once the measurement is closed. Progress bars, which begin with the name of
        the model, too, have no full stop at their end.
        """
        return [
            line.removeprefix(f"{model}: ")
            for model in models
            for line in self._lines()
            if line.startswith(f"{model}: ") and line.endswith(".")
        ]

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


def upload_problem(names: Iterable[str]) -> str:
    """Return why uploaded files are no model, in words; empty if they can be one."""
    endings = sorted(Path(name).suffix for name in names)
    if endings in (*([ending] for ending in _ALONE), [".json", ".safetensors"]):
        return ""
    return (
        "Upload one .gguf, .bin or .npz file, or one .safetensors file and its config.json. For a "
        "model in several files, give the path of its folder instead."
    )


def keep_upload(files: Iterable[UploadedFile], name: str) -> tuple[Path, str]:
    """Store uploaded files in a folder of their own, and return its parent and the source.

    Files are renamed, so that a name from outside never is a path here. A file called "model", as
    those of most models are, gives no name; "upload" is taken instead.

    Args:
        files: The uploaded files.
        name: Name of the model.
    """
    parent = new_folder()
    safe_name = re.sub(r"[^\w.-]+", "-", name).strip(".-")[:80]
    folder = parent / (safe_name if safe_name not in ("", "model") else "upload")
    folder.mkdir()
    source = folder
    for file in files:
        ending = Path(file.name).suffix
        stem = {".json": "config", ".safetensors": "model"}.get(ending, folder.name)
        (folder / (stem + ending)).write_bytes(file.getbuffer())
        if ending in _ALONE:
            source = folder / (stem + ending)
    return parent, str(source)


def under_free_names(atlas: Atlas, taken: Iterable[str]) -> Atlas:
    """Return an atlas in which models whose name is taken have a number: "upload (2)"."""
    taken, names = set(taken), {}
    for model in atlas.table["model"].unique():
        candidates = chain([model], (f"{model} ({number})" for number in count(2)))
        names[model] = next(name for name in candidates if name not in taken)
        taken.add(names[model])
    arrays = {}
    for key, array in atlas.arrays.items():
        model, *rest = key.rsplit("/", 4)
        arrays["/".join((names[model], *rest))] = array
    return Atlas(atlas.table.assign(model=atlas.table["model"].map(names)), arrays)
