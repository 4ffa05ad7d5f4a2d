"""Reader of the tensors in one safetensors file, or in several with an index.

A file is mapped into memory for one read only, so that the memory of one layer is free again before
the next is read. The library compares the lengths in a header with the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes  # noqa: F401  numpy knows bfloat16 once it is imported
import numpy as np
from jaxtyping import Float
from safetensors import safe_open

from attnkit.realmodels.base import CONVERT, Unreadable, folder_name, listing, quote
from attnkit.realmodels.binary_file import reading

FLOATS = ("F64", "F32", "F16", "BF16")
_INDEX = ".safetensors.index.json"
_MAX_INDEX_BYTES = 8_000_000


@dataclass(frozen=True, eq=False)
class SafetensorsFile:
    """Named tensors of one or several safetensors files; it is a `TensorFile`.

    Attributes:
        shapes: Shape of every tensor, by name.
        types: Number type of every tensor, such as "BF16", by name.
        paths: File that holds each tensor, by name.
    """

    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, str]
    paths: Mapping[str, Path]

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """Read one tensor in single precision; the file is open only during this call.

        Raises:
            Unreadable: If the tensor is missing, damaged, quantised, or not finite.
        """
        if name not in self.paths:
            raise Unreadable(f"there is no tensor {quote(name)}")
        if self.types[name] not in FLOATS:
            raise Unreadable(
                f"tensor {quote(name)} is of type {self.types[name]} (quantised numbers are not "
                f"read); it must be one of {', '.join(FLOATS)}: take the unquantised model"
            )
        path = self.paths[name]
        with reading(path), safe_open(path, "numpy") as file, np.errstate(over="ignore"):
            values = np.array(file.get_tensor(name), dtype=np.float32)  # a copy, not a view
        if values.shape != self.shapes[name]:
            raise Unreadable(f"{path.name}: tensor {quote(name)} changed while it was read")
        if not np.isfinite(values).all():
            raise Unreadable(f"tensor {quote(name)} holds numbers that are not finite")
        return values


def open_safetensors(path: Path) -> SafetensorsFile:
    """Read the names and shapes of a model's tensors.

    Args:
        path: A .safetensors file, the .safetensors.index.json of several, or a folder with either.

    Raises:
        Unreadable: If there is no such file, or it is damaged.
    """
    path = _in_folder(path) if path.is_dir() else path
    files = _sharded(path) if path.name.endswith(_INDEX) else {path: None}
    shapes: dict[str, tuple[int, ...]] = {}
    types: dict[str, str] = {}
    paths: dict[str, Path] = {}
    for file, names in files.items():
        header = _header(file)
        for name in header if names is None else names:
            if name not in header:
                raise Unreadable(
                    f"{file.name}: there is no tensor {quote(name)}, which the index says is there"
                )
            shapes[name], types[name] = header[name]
            paths[name] = file
    return SafetensorsFile(shapes, types, paths)


def _in_folder(folder: Path) -> Path:
    """Return the model's file in a folder, or the index of its files."""
    single = folder / "model.safetensors"
    if single.is_file():
        return single
    for ending in (_INDEX, ".safetensors"):
        candidates = sorted(path for path in folder.iterdir() if path.name.endswith(ending))
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise Unreadable(
                f"{folder_name(folder)}: which of these is meant? Name one file: "
                + listing(path.name for path in candidates)
            )
    raise Unreadable(
        f"{folder_name(folder)}: there is no .safetensors file in this folder; {CONVERT}"
    )


def _sharded(index: Path) -> dict[Path, list[str]]:
    """Return the files that an index names, and the names of the tensors in each."""
    with reading(index):
        if index.stat().st_size > _MAX_INDEX_BYTES:
            raise Unreadable(f"{index.name}: larger than {_MAX_INDEX_BYTES:,} bytes")
        data = json.loads(index.read_bytes())
        weight_map = data.get("weight_map") if isinstance(data, dict) else None
        if not isinstance(weight_map, dict) or not weight_map:
            raise Unreadable(
                f"{index.name}: weight_map is missing; it must name every tensor's file"
            )
        names_of_file: dict[Path, list[str]] = {}
        for name, file in weight_map.items():
            if not isinstance(file, str) or not (index.parent / file).is_file():
                raise Unreadable(
                    f"{index.name}: the file of {quote(name)} is {quote(file)}, which is not "
                    "there; download it too"
                )
            names_of_file.setdefault(index.parent / file, []).append(name)
    return names_of_file


def _header(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Read the shape and type of every tensor in one file."""
    with reading(path), safe_open(path, "numpy") as tensors:
        slices = ((name, tensors.get_slice(name)) for name in tensors.keys())  # noqa: SIM118
        return {name: (tuple(s.get_shape()), str(s.get_dtype())) for name, s in slices}
