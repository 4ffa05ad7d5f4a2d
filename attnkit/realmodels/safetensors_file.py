"""Tensors of a safetensors file, or of several with an index; never more open than one is read.

The file is mapped into memory for one read only, so that what one layer needed does not stay there
while the next is read. Files come from others: every length, name and number is checked.
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
_MOST_HEADER = 4_000_000  # bytes: some 40,000 tensors
_MOST_INDEX = 8_000_000  # bytes
_MOST_FILES = 1_000
_MOST_NUMBERS = 2**29  # 2 GiB in single precision; no attention matrix is as large
_HEADER_LENGTH = 8


@dataclass(frozen=True, eq=False)
class SafetensorsFile:
    """Named tensors of one or several safetensors files, each read when asked for.

    Attributes:
        shapes: of every tensor.
        types: what every tensor's numbers are, say "BF16".
        where: the file that holds it.
    """

    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, str]
    where: Mapping[str, Path]

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """One tensor in single precision; the file is open only meanwhile."""
        if name not in self.where:
            raise Unreadable(f"there is no tensor {quote(name)}")
        if self.types[name] not in FLOATS:
            raise Unreadable(
                f"tensor {quote(name)} is of type {self.types[name]} (quantised numbers are not "
                f"read); it must be one of {', '.join(FLOATS)}: take the unquantised model"
            )
        if math.prod(self.shapes[name]) > _MOST_NUMBERS:
            raise Unreadable(
                f"tensor {quote(name)} is of shape {self.shapes[name]}; "
                f"at most {_MOST_NUMBERS:,} numbers are read"
            )
        path = self.where[name]
        try:
            with safe_open(path, "numpy") as file, np.errstate(over="ignore"):
                out = np.array(file.get_tensor(name), dtype=np.float32)  # never a view of the file
        except _FAULTS as error:
            raise _unreadable(path, error) from error
        if out.shape != self.shapes[name]:
            raise Unreadable(f"{path.name}: tensor {quote(name)} changed while it was read")
        if not np.isfinite(out).all():
            raise Unreadable(f"tensor {quote(name)} holds numbers that are not finite")
        return out


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
"""What the library raises on a damaged file, according to where it notices."""


def open_safetensors(path: Path) -> SafetensorsFile:
    """Read the names and shapes of a model's tensors.

    Args:
        path: a .safetensors file, the .safetensors.index.json of several, or a folder with either.

    Raises:
        Unreadable: if there is none, or it is damaged.
    """
    try:
        path = _in_folder(path) if path.is_dir() else path
        if not path.is_file():
            raise Unreadable(f"{path.name}: there is no such file")
        files = _sharded(path) if path.name.endswith(_INDEX) else {path: None}
    except (
        OSError,
        RuntimeError,
        ValueError,
    ) as error:  # a link to itself, a name with a zero byte
        if isinstance(error, Unreadable):
            raise
        raise _unreadable(path, error) from error
    shapes: dict[str, tuple[int, ...]] = {}
    types: dict[str, str] = {}
    where: dict[str, Path] = {}
    for file, wanted in files.items():
        header = _header(file)
        for name in header if wanted is None else wanted:
            if name not in header:
                raise Unreadable(
                    f"{file.name}: there is no tensor {quote(name)}, which the index says is there"
                )
            shapes[name], types[name] = header[name]
            where[name] = file
    return SafetensorsFile(shapes, types, where)


def _in_folder(folder: Path) -> Path:
    """The model's file in a folder: alone, or the index of several."""
    alone = folder / "model.safetensors"
    if alone.is_file():
        return alone
    for ending in (_INDEX, ".safetensors"):
        found = sorted(p for p in folder.iterdir() if p.name.endswith(ending))
        if len(found) == 1:
            return found[0]
        if found:
            raise Unreadable(
                f"{folder_name(folder)}: which of these is meant? Name one file: "
                + listing(p.name for p in found)
            )
    raise Unreadable(
        f"{folder_name(folder)}: there is no .safetensors file in this folder; {CONVERT}"
    )


def _sharded(index: Path) -> dict[Path, list[str]]:
    """The files that an index names, and the tensors in each."""
    if index.stat().st_size > _MOST_INDEX:
        raise Unreadable(f"{index.name}: larger than {_MOST_INDEX:,} bytes")
    try:
        stored = json.loads(index.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{index.name}: not JSON ({_short(error)})") from error
    weights = stored.get("weight_map") if isinstance(stored, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise Unreadable(f"{index.name}: weight_map is missing; it must name every tensor's file")
    tensors: dict[str, list[str]] = {}
    for name, file in weights.items():
        if not isinstance(file, str):
            raise Unreadable(
                f"{index.name}: the file of {quote(name)} is {quote(file)}; "
                "it must be a file's name"
            )
        tensors.setdefault(file, []).append(name)
    if len(tensors) > _MOST_FILES:
        raise Unreadable(f"{index.name}: names {len(tensors):,} files; at most {_MOST_FILES:,}")
    return {_beside(index, file): names for file, names in tensors.items()}


def _beside(index: Path, file: str) -> Path:
    """A file that an index names, which must lie in the index's folder.

    In the hub's own cache the files of a folder `snapshots/…` are links into `blobs` beside it.
    """
    folder = index.parent.resolve()
    roots = [folder]
    if folder.parent.name == "snapshots":
        roots.append(folder.parent.parent / "blobs")
    path = folder / file
    plain = "\\" not in file and ":" not in file and not Path(file).is_absolute()
    if not plain or ".." in Path(file).parts:
        raise Unreadable(
            f"{index.name}: names the file {quote(file)}; it must lie in the same folder"
        )
    if not any(path.resolve().is_relative_to(root) for root in roots):
        raise Unreadable(f"{index.name}: {quote(file)} is a link out of the folder; copy the file")
    if not path.is_file():
        raise Unreadable(f"{index.name}: the file {quote(file)} is not there; download it too")
    return path


def _header(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape and type of every tensor in one file."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_HEADER_LENGTH), "little")
            if length > path.stat().st_size - _HEADER_LENGTH:
                raise Unreadable(
                    f"{path.name}: cut short, or not a safetensors file "
                    f"(its header would be {length:,} bytes long)"
                )
            if length > _MOST_HEADER:
                raise Unreadable(
                    f"{path.name}: its header is {length:,} bytes long; "
                    f"at most {_MOST_HEADER:,} are read"
                )
            header = file.read(length)
        with safe_open(path, "numpy") as opened:
            slices = ((name, opened.get_slice(name)) for name in opened.keys())  # noqa: SIM118
            out = {name: (tuple(s.get_shape()), str(s.get_dtype())) for name, s in slices}
        json.loads(header, object_pairs_hook=_once)
    except Unreadable:
        raise
    except (*_FAULTS, RecursionError) as error:
        raise _unreadable(path, error) from error
    return out


def _once(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object of a JSON text in which a name stands twice."""
    if len({name for name, _ in pairs}) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {quote(name)} stands there twice")


def _unreadable(path: Path, error: BaseException) -> Unreadable:
    return Unreadable(f"{path.name}: not a whole safetensors file ({_short(error)})")


def _short(error: BaseException) -> str:
    """What a library says, on one line and without a path of this machine."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, MemoryError):
        return "too large for this machine's memory"
    said = re.sub(r"[^\s'\"]*[/\\]", "", str(error)[:500])
    return " ".join("".join(c if c.isprintable() else " " for c in said[:160]).split())
