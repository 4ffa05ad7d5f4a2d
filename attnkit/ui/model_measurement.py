"""A model of a visitor's own, measured by the command line in a process of its own.

Only on a copy that is not hosted: whoever measures may read every file of the machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

from attnkit.foundation.process import environment_with_package
from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.base import Unreadable

MOST_MEGABYTES = 500
"""Of one uploaded file; larger ones are named by their path."""

ENDINGS = ("safetensors", "json", "gguf")
"""Of files that can be uploaded."""

_ERROR = "attnkit: error: "

_TAIL = 4000
"""Bytes of what the process said last that are looked at."""

_ENDING_SECONDS = 2.0
"""How long a process that was asked to end may take."""


class Uploaded(Protocol):
    """A file that came through the browser."""

    name: str

    def getbuffer(self) -> memoryview:
        """Its content."""


class ModelMeasurement:
    """One run of `python -m attnkit models`; it ends with this object.

    Args:
        source: a folder, a file, a package or a name on the hub.
        told: how it is called on the page.
        every_setting: whether gains are folded and positions turned, too.
        folder: what `keep_upload` made, or None; it goes with this object.

    Attributes:
        uploaded: whether it came through the browser.
    """

    def __init__(
        self,
        source: str,
        *,
        told: str = "",
        every_setting: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.source, self.source_told = source, told or source
        self.stopped, self.uploaded = False, folder is not None
        place = folder or new_folder()
        self._table, self._portraits = place / "atlas.parquet", place / "atlas.safetensors"
        self._told = place / "told.txt"
        command = [sys.executable, "-m", "attnkit", "models", "--out", str(self._table)]
        command += ["--portraits", str(self._portraits)]
        command += ["--every-setting"] if every_setting else []
        with self._told.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, "--", source],  # what begins with a dash is no option either
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                env=environment_with_package(),
            )
        self._finalizer = weakref.finalize(self, _end, self._process, place)

    @property
    def moving(self) -> bool:
        """Whether it still measures."""
        return self._process.poll() is None

    @property
    def layers(self) -> tuple[int, int]:
        """How many layers are measured, of how many; zeros before it knows."""
        found = re.findall(r"(\d+)/(\d+) \[", self._tail())
        return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)

    def problem_of(self, error: Exception) -> str:
        """An error in words that name the source, once."""
        words = str(error)
        names = (self.source_told, Path(self.source_told).name, Path(self.source).name)
        said = any(name and name in words for name in names)
        return words if said else f"{self.source_told}: {words}"

    @property
    def problem(self) -> str:
        """Why it failed, in a line; empty if it has not."""
        code = self._process.poll()
        if code in (None, 0):
            return ""
        if self.stopped:
            return "Stopped."
        lines = [line.strip() for line in re.split(r"[\r\n]+", self._tail()) if line.strip()]
        errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
        return (errors or lines or [f"it ended with exit code {code}"])[-1]

    def stop(self) -> None:
        """End it."""
        self.stopped = self.moving
        self.close()

    def close(self) -> None:
        """End it, and let go of its files."""
        self._finalizer()

    def atlas(self) -> Atlas:
        """What was measured.

        Raises:
            OSError, Unreadable: if it failed.
        """
        if self.problem:
            raise Unreadable(self.problem)
        return Atlas.load(self._table, self._portraits)

    def _tail(self) -> str:
        try:
            with self._told.open("rb") as file:
                file.seek(max(0, self._told.stat().st_size - _TAIL))
                return file.read().decode("utf-8", "replace")
        except OSError:  # it was closed
            return ""


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Ask a process to end, and see to it; then remove its folder."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def new_folder() -> Path:
    """For the files of one model."""
    return Path(tempfile.mkdtemp(prefix="attnkit-"))


def upload_problem(names: Iterable[str]) -> str:
    """Why uploaded files are no model, in words; empty if they can be one."""
    endings = sorted(Path(name).suffix for name in names)
    if endings in ([".gguf"], [".json", ".safetensors"]):
        return ""
    return (
        "Upload one .gguf file, or one .safetensors file and its config.json. Of a model in "
        "several files give the folder’s path instead."
    )


def keep_upload(files: Iterable[Uploaded], name: str) -> tuple[Path, str]:
    """Put uploaded files in a folder called `name`; returns what is around it, and the source.

    Files are renamed, so that a name from elsewhere never is a path here. "model", which files of
    most models are called, is no name.
    """
    kept = new_folder()
    called = re.sub(r"[^\w.-]+", "-", name).strip(".-")[:80]
    place = kept / (called if called not in ("", "model") else "upload")
    place.mkdir()
    source = place
    for file in files:
        ending = Path(file.name).suffix
        target = {".json": "config", ".safetensors": "model"}.get(ending, place.name) + ending
        (place / target).write_bytes(file.getbuffer())
        if ending == ".gguf":
            source = place / target
    return kept, str(source)


def under_free_names(found: Atlas, taken: Iterable[str]) -> Atlas:
    """The same models, each whose name is taken with a number: "upload (2)"."""
    taken, names = set(taken), {}
    for model in found.table["model"].unique():
        names[model] = next(name for name in _numbered(model) if name not in taken)
        taken.add(names[model])
    arrays = {}
    for place, array in found.arrays.items():
        model, *rest = place.rsplit("/", 4)
        arrays["/".join((names[model], *rest))] = array
    return Atlas(found.table.assign(model=found.table["model"].map(names)), arrays)


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} ({n})" for n in count(2))
