"""Reader of the tensors in one safetensors file, or in several with an index.

A file is mapped into memory for one read only, so that the memory of one layer is free again before
the next is read. The library compares the lengths in a header with the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import ml_dtypes  # noqa: F401  numpy knows bfloat16 once it is imported
import numpy as np
from safetensors import safe_open

from attnkit.foundation.documents import parse_json
from attnkit.realmodels.base import Array
from attnkit.realmodels.errors import Unreadable, quote, reading
from attnkit.realmodels.tensors import TensorEntry, TensorFile

FLOATS = ("F64", "F32", "F16", "BF16")
INDEX = ".safetensors.index.json"
_MAX_INDEX_BYTES = 8_000_000


def open_safetensors(path: Path) -> TensorFile:
    """Read the names and shapes of a model's tensors.

    Args:
        path: A .safetensors file, or the .safetensors.index.json of several.

    Raises:
        Unreadable: If there is no such file, or it is damaged.
    """
    files = _sharded(path) if path.name.endswith(INDEX) else {path: None}
    entries: dict[str, TensorEntry] = {}
    for file, names in files.items():
        header = _header(file)
        for name in header if names is None else names:
            if name not in header:
                raise Unreadable(
                    f"{file.name}: there is no tensor {quote(name)}, which the index says is there"
                )
            entries[name] = header[name]
    return TensorFile(path.name, entries, partial(_load, entries))


def _load(entries: Mapping[str, TensorEntry], name: str) -> Array:
    """Read one tensor in single precision."""
    entry = entries[name]
    if entry.type not in FLOATS:
        raise Unreadable(
            f"{entry.path.name}: tensor {quote(name)} is of type {entry.type} (quantised numbers "
            f"are not read); it must be one of {', '.join(FLOATS)}: take the unquantised model"
        )
    with reading(entry.path), safe_open(entry.path, "numpy") as file, np.errstate(over="ignore"):
        return np.array(file.get_tensor(name), dtype=np.float32)  # a copy, not a view


def _sharded(index: Path) -> dict[Path, list[str]]:
    """Return the files that an index names, and the names of the tensors in each."""
    with reading(index, _MAX_INDEX_BYTES):
        data = parse_json(index.read_bytes(), _MAX_INDEX_BYTES)
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


def _header(path: Path) -> dict[str, TensorEntry]:
    """Read the shape and type of every tensor in one file."""
    with reading(path), safe_open(path, "numpy") as tensors:
        slices = ((name, tensors.get_slice(name)) for name in tensors.keys())  # noqa: SIM118
        return {
            name: TensorEntry(tuple(s.get_shape()), str(s.get_dtype()), path) for name, s in slices
        }
