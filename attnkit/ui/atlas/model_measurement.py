"""Measurement of a visitor's own model by the command line, in a process of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.realmodels.atlas import Atlas
from attnkit.realmodels.errors import Unreadable
from attnkit.ui.atlas.model_process import ModelProcess, new_folder

if TYPE_CHECKING:
    from streamlit.runtime.uploaded_file_manager import UploadedFile

MOST_MEGABYTES = 500
"""Size of one uploaded file, at most; larger models are named by their path."""

ENDINGS = ("safetensors", "json", "gguf", "bin", "npz")
"""Endings of files that can be uploaded."""

_ALONE = (".gguf", ".bin", ".npz")
"""Endings of files that are models by themselves."""


class ModelMeasurement(ModelProcess):
    """One run of `python -m attnkit models`; it ends with this object.

    Args:
        source: A folder, a file, a package or a name on the hub.
        name: Name of the source on the page; the source itself if it is empty.
        every_setting: Whether to measure with folded gains and other positions, too.
        folder: Folder that `keep_upload` made, or None; it is removed with this object.

    Attributes:
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
        table, portraits = "{folder}/atlas.parquet", "{folder}/atlas.safetensors"
        options = ["models", "--out", table, "--portraits", portraits]
        options += ["--every-setting"] if every_setting else []
        super().__init__(options, source, name=name, folder=folder)
        self.uploaded = folder is not None

    @property
    def layers(self) -> tuple[int, int]:
        """Number of measured layers and of all layers; zeros before they are known."""
        progress = re.findall(r"(\d+)/(\d+) \[", self._tail())
        return (int(progress[-1][0]), int(progress[-1][1])) if progress else (0, 0)

    def atlas(self) -> Atlas:
        """Return the measured models.

        Raises:
            OSError: If the files of the process cannot be read.
            Unreadable: If the measurement failed.
        """
        if self.problem:
            raise Unreadable(self.problem)
        try:
            return Atlas.load(self.folder / "atlas.parquet", self.folder / "atlas.safetensors")
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
