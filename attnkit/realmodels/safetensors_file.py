"""Reader of the tensors in one safetensors file, or in several with an index, here or on the hub.

A header says where every tensor's bytes are. Of a model in several files only the headers of those
are read that hold a tensor which is asked for, and then only the bytes of this tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from attnkit.foundation.documents import BadDocument, parse_json
from attnkit.realmodels.base import Array
from attnkit.realmodels.errors import Unreadable, damaged, quote, reading
from attnkit.realmodels.hub import HubFile
from attnkit.realmodels.quantised import QuantisedEntries
from attnkit.realmodels.tensors import TensorEntry, TensorFile

FLOATS: Mapping[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}
"""Types of numbers that are read as they are."""

INDEX = ".safetensors.index.json"
_LONGEST_NAME = 255
"""Bytes of a file's name; file systems refuse longer ones."""

_MAX_INDEX_BYTES = 256 * 2**20
_MAX_HEADER_BYTES = 100_000_000
_FIRST_BYTES = 2**16
"""Bytes of a file on the hub that are fetched first; most headers fit."""

_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8} | {
    f"{kind}{bits}": bits for kind in ("U", "I", "F", "BF") for bits in (16, 32, 64)
}
"""Bits of a number, by its type; others are not compared with the size of a tensor."""


def open_safetensors(
    path: Path | HubFile, quantisation: Mapping[str, Any] | None = None
) -> TensorFile:
    """Read the names of a model's tensors.

    Args:
        path: A .safetensors file, or the .safetensors.index.json of several.
        quantisation: Field of the configuration that describes the quantisation, if there is one.

    Raises:
        Unreadable: If there is no such file, or it is damaged.
    """
    stored: Mapping[str, TensorEntry] = (
        _Sharded(path) if path.name.endswith(INDEX) else _header(path)
    )
    entries = QuantisedEntries(stored, quantisation or {})

    def load(name: str) -> Array:
        entry = stored[name]
        _check_unchanged(entry, name)
        if (rule := entries.rule(name)) is not None:
            return rule.values()
        if entry.type not in FLOATS:
            raise Unreadable(
                f"{entry.path.name}: tensor {quote(name)} is of type {entry.type} (quantised "
                f"numbers are not read); it must be one of {', '.join(FLOATS)}: take the "
                "unquantised model"
            )
        with np.errstate(over="ignore"):
            numbers = entry.read_bytes().view(FLOATS[entry.type])
            return np.asarray(numbers, np.float32).reshape(entry.shape)

    return TensorFile(path.name, entries, load)


def _check_unchanged(entry: TensorEntry, name: str) -> None:
    """Raise Unreadable if the file no longer has the tensor where it was when it was opened."""
    path = entry.path
    if isinstance(path, HubFile):
        return
    with reading(path):
        changed = path.stat().st_mtime_ns
    if changed != entry.changed and _header(path).get(name) != replace(entry, changed=changed):
        raise Unreadable(f"{path.name}: tensor {quote(name)} changed while it was read")


def shards(index: Path | HubFile) -> list[str]:
    """Return the names of the files that an index names.

    Raises:
        Unreadable: If one of them is not there, or cannot be.
    """
    sharded = _Sharded(index)
    tensors = {str(file): name for name, file in sharded.files.items()}
    return sorted(sharded.path_of(name).name for name in tensors.values())


class _Sharded(Mapping[str, TensorEntry]):
    """Entries of the tensors that an index names; a file's header is read when it is needed."""

    def __init__(self, index: Path | HubFile) -> None:
        data = read_json(index, _MAX_INDEX_BYTES)
        weight_map = data.get("weight_map") if isinstance(data, dict) else None
        if not isinstance(weight_map, dict) or not weight_map:
            raise Unreadable(
                f"{index.name}: weight_map is missing; it must name every tensor's file"
            )
        self._index, self.files = index, weight_map
        self._headers = cache(_header)

    def __getitem__(self, name: str) -> TensorEntry:
        path = self.path_of(name)
        header = self._headers(path)
        if name not in header:
            raise Unreadable(
                f"{path.name}: there is no tensor {quote(name)}, which the index says is there"
            )
        return header[name]

    def path_of(self, name: str) -> Path | HubFile:
        """Return the file of a tensor."""
        file = self.files[name]
        is_name = isinstance(file, str) and file and file.isprintable() and "/" not in file
        is_name = is_name and len(file.encode()) <= _LONGEST_NAME
        path = self._index.with_name(file) if is_name else None
        if path is None or (isinstance(path, Path) and not path.is_file()):
            raise Unreadable(
                f"{self._index.name}: the file of {quote(name)} is {quote(file)}, which is not "
                "there; download it too"
            )
        return path

    def __contains__(self, name: object) -> bool:
        return name in self.files

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def read_json(path: Path | HubFile, most_bytes: int) -> Any:
    """Return the value in a file of JSON.

    Raises:
        Unreadable: If it cannot be read, is larger than `most_bytes`, or is not JSON.
    """
    if isinstance(path, HubFile):
        raw = path.read(0, most_bytes + 1).tobytes()
        if len(raw) > most_bytes:
            raise Unreadable(f"{path.name}: larger than {most_bytes:,} bytes")
        return _json(path, raw, most_bytes)
    with reading(path, most_bytes):
        return _json(path, path.read_bytes(), most_bytes)


def _json(path: Path | HubFile, raw: bytes, most_bytes: int) -> Any:
    try:
        return parse_json(raw, most_bytes)
    except BadDocument as error:
        raise damaged(path.name, str(error)) from error


def _header(path: Path | HubFile) -> dict[str, TensorEntry]:
    """Read shape, type and place of every tensor in one file."""
    changed, size = 0, None
    if isinstance(path, HubFile):
        first = path.read(0, _FIRST_BYTES).tobytes()
    else:
        with reading(path):
            status = path.stat()
            changed, size = status.st_mtime_ns, status.st_size
            first = np.fromfile(path, np.uint8, _FIRST_BYTES).tobytes()
    n = int.from_bytes(first[:8], "little")
    if len(first) < 8 or n > _MAX_HEADER_BYTES or (size is not None and n + 8 > size):
        raise damaged(path.name, f"its header would have {n:,} bytes")
    raw = first[8 : 8 + n]
    if len(raw) < n:
        raw += TensorEntry((), "", path, len(first), n - len(raw), changed).read_bytes().tobytes()
    data = _json(path, raw, _MAX_HEADER_BYTES)
    if not isinstance(data, dict):
        raise damaged(path.name, "its header is no object")
    entries = {
        name: _entry(path, name, fields, 8 + n, changed)
        for name, fields in data.items()
        if name != "__metadata__"
    }
    end = 8 + n
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].n_bytes)):
        if entry.offset != end:
            raise damaged(path.name, f"{quote(name)} does not begin where the tensor before ends")
        end += entry.n_bytes
    if size is not None and size != end:
        raise damaged(path.name, f"it ends at byte {size:,}, but its tensors at byte {end:,}")
    return entries


def _entry(path: Path | HubFile, name: str, fields: Any, start: int, changed: int) -> TensorEntry:
    """Return the entry of a tensor from its fields in the header."""
    fields = fields if isinstance(fields, dict) else {}
    shape, kind, place = (fields.get(key) for key in ("shape", "dtype", "data_offsets"))
    if not _are_counts(shape) or not _are_counts(place, 2) or not isinstance(kind, str):
        raise damaged(path.name, f"{quote(name)} has no shape, type or place in the header")
    begin, end = place
    n_bits = math.prod(shape) * _BITS.get(kind, 0)
    if end < begin or (kind in _BITS and n_bits != 8 * (end - begin)):
        raise damaged(
            path.name,
            f"{quote(name)} of shape {quote(shape)} in {quote(kind)} has {end - begin:,} bytes",
        )
    return TensorEntry(tuple(shape), kind, path, start + begin, end - begin, changed)


def _are_counts(numbers: Any, n: int | None = None) -> bool:
    """Return whether a value is a list of whole numbers that are not negative, `n` if given."""
    is_list = isinstance(numbers, list) and n in (None, len(numbers))
    return is_list and all(type(x) is int and 0 <= x < 2**63 for x in numbers)
