"""Reader of the header of GGUF files: that of the package `gguf`, without a vocabulary's texts.

`gguf.GGUFReader` makes two arrays of every text in a list: for 250,000 words and 550,000 merges,
1.3 GB in 17 seconds. The subclass skips texts in lists and reads numbers in lists at once, which
takes 0.1 seconds, and checks counts and lengths before they are used. It overrides private methods,
which is one reason why pyproject.toml limits the version of the package.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGUFValueType

from attnkit.realmodels.errors import Unreadable, damaged, quote, reading
from attnkit.realmodels.hub import HubFile
from attnkit.realmodels.tensors import TensorEntry, check_n_entries

Value = int | float | bool | str | list[int | float | bool]
"""Value of a key."""

MAX_TEXT_BYTES = 2**26
MAX_LISTED_TEXTS = 2**22

_ADVICE = (
    "copy or download it again; if it is whole, upgrade the package gguf, or convert the model "
    "again with a current llama.cpp"
)
_LENGTH = struct.Struct("<Q")
_FIRST_BYTES, _MAX_BYTES = 2**22, 2**28
"""Bytes of a file on the hub that are fetched first, and at most, until its header is whole."""


def read_header(path: Path | HubFile) -> tuple[dict[str, Value], dict[str, TensorEntry]]:
    """Read the metadata and the tensor entries of a GGUF file; of one on the hub, only its start.

    Returns:
        Values of the keys, without the tokenizer and without lists of texts, and entries of the
        tensors, both by name.

    Raises:
        Unreadable: If it is not a GGUF file, has another version, or is damaged.
    """
    if isinstance(path, Path):
        return _parsed(path, path)
    n_bytes = _FIRST_BYTES
    while True:
        start = path.local or path.part(0, n_bytes)
        try:
            return _parsed(start, path)
        except Unreadable:
            if start.stat().st_size < n_bytes or n_bytes > _MAX_BYTES:
                raise
        n_bytes *= 4


def _parsed(start: Path, path: Path | HubFile) -> tuple[dict[str, Value], dict[str, TensorEntry]]:
    """Read the header of a file from the local file with its first bytes."""
    with reading(start, advice=_ADVICE), np.errstate(over="raise"):
        reader = _Reader(start)
        metadata = {
            name: field.contents()
            for name, field in reader.fields.items()
            if field.data and not name.startswith("tokenizer.")
        }
        entries = {name: replace(entry, path=path) for name, entry in reader.entries.items()}
    end, places = 0, sorted(entries.items(), key=lambda item: item[1].offset)
    for name, entry in places:
        if entry.offset < end or not entry.shape or 0 in entry.shape:
            raise damaged(
                path.name, f"{quote(name)} of shape {entry.shape} is empty or shares bytes"
            )
        end = entry.offset + entry.n_bytes
    if isinstance(path, Path) and end > (size := path.stat().st_size):
        raise damaged(path.name, f"it ends at byte {size:,}, but its tensors at byte {end:,}")
    return metadata, entries


class _Reader(gguf.GGUFReader):
    """Reader that skips lists of texts."""

    def _build_fields(self, offs: int, count: int) -> int:
        file = Path(str(self.data.filename)).name
        if self.byte_order == "S":
            raise Unreadable(
                f"{file} is a big-endian GGUF file, but only little-endian ones are read; "
                "convert it with gguf-convert-endian, which comes with the package gguf"
            )
        check_n_entries(file, int(self.fields["GGUF.tensor_count"].parts[0][0]), "tensors")
        check_n_entries(file, int(count), "keys")
        return super()._build_fields(offs, count)

    def _build_tensors(self, start_offs: int, fields: list[gguf.gguf_reader.ReaderField]) -> None:
        """Keep the entries of the tensors; an unknown number type has no size.

        The overridden method would open every tensor, and refuse the file for one unknown type.
        """
        path = Path(str(self.data.filename))
        self.entries: dict[str, TensorEntry] = {}
        for field in fields:
            *_, dims, number, offset = field.parts
            if field.name in self.entries:
                raise ValueError(f"there are two tensors {quote(field.name)}")
            shape = tuple(dims[::-1].tolist())
            try:
                kind = gguf.GGMLQuantizationType(int(number[0]))
                per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            except (ValueError, KeyError):
                name, n_bytes = f"type {int(number[0])}", 0
            else:
                name, n_bytes = kind.name, math.prod(shape) // per_block * block_bytes
                if shape and shape[-1] % per_block:
                    raise ValueError(f"{quote(field.name)} has rows that are no whole blocks")
            place = start_offs + int(offset[0])
            self.entries[field.name] = TensorEntry(shape, name, path, place, n_bytes)

    def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **named: Any) -> Any:
        if offset + int(count) * np.dtype(dtype).itemsize > len(self.data):
            raise ValueError(f"it ends at byte {len(self.data):,}, before its last value does")
        return super()._get(offset, dtype, count, *order, **named)

    def _get_str(self, offset: int) -> Any:
        n_bytes = int(self._get(offset, np.uint64)[0])
        if n_bytes > MAX_TEXT_BYTES:
            raise ValueError(f"a text has {n_bytes:,} bytes; allowed are {MAX_TEXT_BYTES:,}")
        return super()._get_str(offset)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        """Return the size of a value, and its parts, their indices and their types."""
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        item_type = GGUFValueType(int(self._get(orig_offs, np.uint32)[0]))
        n = int(self._get(orig_offs + 4, np.uint64)[0])
        start = orig_offs + 12
        types = [GGUFValueType.ARRAY, item_type]
        if item_type != GGUFValueType.STRING:
            if item_type not in self.gguf_scalar_to_np:
                raise ValueError("a list has lists, which are not read")
            numbers = self._get(start, self.gguf_scalar_to_np[item_type], n)
            return 12 + numbers.nbytes, [numbers], [0], types
        if n > MAX_LISTED_TEXTS:
            raise ValueError(f"a list has {n:,} texts; allowed are {MAX_LISTED_TEXTS:,}")
        end, data = start, self.data.data
        try:
            for _ in range(n):
                end += _LENGTH.size + _LENGTH.unpack_from(data, end)[0]
        except struct.error as error:
            raise ValueError(f"it ends at byte {len(data):,}, within a list of texts") from error
        return end - orig_offs, [], [], types
