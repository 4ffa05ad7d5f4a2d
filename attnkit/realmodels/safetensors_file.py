"""Reader of the tensors in one safetensors file, or in several with an index.

A file is mapped into memory for one read only, so that the memory of one layer is free again before
the next is read. Files may be damaged or hostile: every length, name and number is checked.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16 once it is imported
import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open

from attnkit.realmodels.base import CONVERT, Unreadable, folder_name, listing, quote

FLOATS = ("F64", "F32", "F16", "BF16")
_INDEX = ".safetensors.index.json"
_MAX_HEADER_BYTES = 4_000_000  # enough for about 40,000 tensors
_MAX_INDEX_BYTES = 8_000_000
_MAX_FILES = 1_000
_MAX_NUMBERS = 2**29  # 2 GiB in single precision; no attention matrix is as large
_LENGTH_BYTES = 8


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
            Unreadable: If the tensor is missing, damaged, too large, quantised, or not finite.
        """
        if name not in self.paths:
            raise Unreadable(f"there is no tensor {quote(name)}")
        if self.types[name] not in FLOATS:
            raise Unreadable(
                f"tensor {quote(name)} is of type {self.types[name]} (quantised numbers are not "
                f"read); it must be one of {', '.join(FLOATS)}: take the unquantised model"
            )
        if math.prod(self.shapes[name]) > _MAX_NUMBERS:
            raise Unreadable(
                f"tensor {quote(name)} is of shape {self.shapes[name]}; "
                f"at most {_MAX_NUMBERS:,} numbers are read"
            )
        path = self.paths[name]
        try:
            with safe_open(path, "numpy") as file, np.errstate(over="ignore"):
                values = np.array(file.get_tensor(name), dtype=np.float32)  # a copy, not a view
        except _FAULTS as error:
            raise _unreadable(path, error) from error
        if values.shape != self.shapes[name]:
            raise Unreadable(f"{path.name}: tensor {quote(name)} changed while it was read")
        if not np.isfinite(values).all():
            raise Unreadable(f"tensor {quote(name)} holds numbers that are not finite")
        return values


_FAULTS = (
    SafetensorError,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    OverflowError,
    MemoryError,
    RuntimeError,
)
"""Exceptions that the library raises for a damaged file, depending on where it notices."""


def open_safetensors(path: Path) -> SafetensorsFile:
    """Read the names and shapes of a model's tensors.

    Args:
        path: A .safetensors file, the .safetensors.index.json of several, or a folder with either.

    Raises:
        Unreadable: If there is no such file, or it is damaged.
    """
    try:
        path = _in_folder(path) if path.is_dir() else path
        if not path.is_file():
            raise Unreadable(f"{path.name}: there is no such file")
        files = _sharded(path) if path.name.endswith(_INDEX) else {path: None}
    except Unreadable:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        # A symbolic link to itself, or a name with a zero byte.
        raise _unreadable(path, error) from error
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
    if index.stat().st_size > _MAX_INDEX_BYTES:
        raise Unreadable(f"{index.name}: larger than {_MAX_INDEX_BYTES:,} bytes")
    try:
        data = json.loads(index.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{index.name}: not JSON ({_short(error)})") from error
    weight_map = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise Unreadable(f"{index.name}: weight_map is missing; it must name every tensor's file")
    names_of_file: dict[str, list[str]] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str):
            raise Unreadable(
                f"{index.name}: the file of {quote(name)} is {quote(file)}; "
                "it must be a file's name"
            )
        names_of_file.setdefault(file, []).append(name)
    if len(names_of_file) > _MAX_FILES:
        raise Unreadable(
            f"{index.name}: names {len(names_of_file):,} files; at most {_MAX_FILES:,} are read"
        )
    return {_beside(index, file): names for file, names in names_of_file.items()}


def _beside(index: Path, file: str) -> Path:
    """Return the path of a file that an index names, which must be in the index's folder.

    In the hub's cache, the files of a folder `snapshots/…` are links into the folder `blobs`.
    """
    folder = index.parent.resolve()
    roots = [folder]
    if folder.parent.name == "snapshots":
        roots.append(folder.parent.parent / "blobs")
    path = folder / file
    relative = "\\" not in file and ":" not in file and not Path(file).is_absolute()
    if not relative or ".." in Path(file).parts:
        raise Unreadable(
            f"{index.name}: names the file {quote(file)}; it must lie in the same folder"
        )
    if not any(path.resolve().is_relative_to(root) for root in roots):
        raise Unreadable(f"{index.name}: {quote(file)} is a link out of the folder; copy the file")
    if not path.is_file():
        raise Unreadable(f"{index.name}: the file {quote(file)} is not there; download it too")
    return path


def _header(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Read the shape and type of every tensor in one file."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if length > path.stat().st_size - _LENGTH_BYTES:
                raise Unreadable(
                    f"{path.name}: cut short, or not a safetensors file "
                    f"(its header would be {length:,} bytes long)"
                )
            if length > _MAX_HEADER_BYTES:
                raise Unreadable(
                    f"{path.name}: its header is {length:,} bytes long; "
                    f"at most {_MAX_HEADER_BYTES:,} are read"
                )
            header = file.read(length)
        with safe_open(path, "numpy") as tensors:
            slices = ((name, tensors.get_slice(name)) for name in tensors.keys())  # noqa: SIM118
            types = {name: (tuple(s.get_shape()), str(s.get_dtype())) for name, s in slices}
        json.loads(header, object_pairs_hook=_refuse_duplicates)
    except Unreadable:
        raise
    except (*_FAULTS, RecursionError) as error:
        raise _unreadable(path, error) from error
    return types


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """Raise ValueError if a name occurs twice in an object of the JSON header."""
    if len({name for name, _ in pairs}) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {quote(name)} occurs twice")


def _unreadable(path: Path, error: BaseException) -> Unreadable:
    return Unreadable(f"{path.name}: damaged, or not a safetensors file ({_short(error)})")


def _short(error: BaseException) -> str:
    """Return a library's message on one line, without paths of this machine."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, MemoryError):
        return "too large for this machine's memory"
    message = re.sub(r"[^\s'\"]*[/\\]", "", str(error)[:500])
    return " ".join("".join(c if c.isprintable() else " " for c in message[:160]).split())
