"""Reader of the header of GGUF files, versions 2 and 3: metadata, and the place of every tensor.

    "GGUF", version u32, number of tensors u64, number of keys u64
    per key: name, type u32, value
    per tensor: name, rank u32, dimensions u64 (the last first), type u32, offset u64
    data, aligned; offsets count from here

A name or text is a length u64 and its bytes; a list is a type u32, a length u64 and its items.

`GGUFReader` of the package `gguf` is not used: it makes an array of every word of the vocabulary,
and loops as often as the counts in a damaged file say. A check of the counts before it is called
would not be enough, because they stand between values of variable length all over the header.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard

from attnkit.realmodels.base import Unreadable, quote
from attnkit.realmodels.cursor import Cursor, check_disjoint, damaged, open_header

Value = int | float | bool | str | tuple[int | float | bool, ...]
"""Value of a key; long texts, long lists and lists of texts are skipped."""

U32, U64 = struct.Struct("<I"), struct.Struct("<Q")
NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
"""Codes of `struct` for number types, by the number of the type in the format."""

TEXT, LIST = 8, 9
MAX_NAME_BYTES = 1024
MAX_TEXT_BYTES, MAX_LIST_LENGTH = 2**16, 2**12
MAX_ENTRIES = 2**14
MAX_LISTED_TEXTS = 2**21
"""In all lists together; a tokenizer of 250,000 words has about 800,000."""


@dataclass(frozen=True)
class TensorEntry:
    """Place and type of a tensor in a GGUF file.

    Attributes:
        shape: Shape; a linear layer's weight is (outputs, inputs).
        type: Number that the format gives to the number type.
        offset: First byte, from the start of the file.
        n_bytes: Size in bytes.
    """

    shape: tuple[int, ...]
    type: int
    offset: int
    n_bytes: int


def read_header(
    path: Path, blocks: Mapping[int, tuple[int, int]]
) -> tuple[dict[str, Value], dict[str, TensorEntry]]:
    """Read the metadata and the tensor entries of a GGUF file.

    Args:
        path: The file.
        blocks: By the number of each number type, how many numbers a block holds, and its bytes.

    Returns:
        Values of the keys, and entries of the tensors, both by name.

    Raises:
        Unreadable: If it is not a GGUF file, has another version, or contradicts itself.
    """
    with open_header(path) as cursor:
        n_tensors, n_keys = _read_counts(cursor)
        metadata = _read_metadata(cursor, n_keys)
        alignment = metadata.get("general.alignment", 32)
        if not is_integer(alignment) or alignment < 1 or alignment & (alignment - 1):
            raise damaged(path.name, f"its alignment is {alignment!r} and not a power of two")
        entries = _read_entries(cursor, n_tensors, blocks)
        data_start = -(-cursor.position // alignment) * alignment
        for name, entry in entries.items():
            if entry.offset % alignment:
                raise damaged(path.name, f"{quote(name)} is not aligned to {alignment} bytes")
            start = data_start + entry.offset
            cursor.position = min(start, len(cursor.data))
            cursor.skip(start + entry.n_bytes - cursor.position, quote(name))
            entries[name] = replace(entry, offset=start)
    check_disjoint(path.name, {name: (e.offset, e.n_bytes) for name, e in entries.items()})
    return metadata, entries


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a key's value is an integer and not a truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def _read_counts(cursor: Cursor) -> tuple[int, int]:
    """Check the start of the file and return the numbers of tensors and keys."""
    if cursor.data[:4] != b"GGUF":
        raise Unreadable(f"{cursor.name} is not a GGUF file: it does not begin with 'GGUF'")
    cursor.position = 4
    version = cursor.number(U32, "the version")
    if version & 0xFFFF == 0:
        raise Unreadable(
            f"{cursor.name} is a big-endian GGUF file, but only little-endian ones are read; "
            "convert it with gguf-convert-endian, which comes with the package gguf"
        )
    if version not in (2, 3):
        raise Unreadable(
            f"{cursor.name} has GGUF version {version}, but only versions 2 and 3 are read; "
            "convert the model again with a current llama.cpp"
        )
    n_tensors, n_keys = cursor.numbers("Q", 2, "the numbers of tensors and keys")
    if max(n_tensors, n_keys) > MAX_ENTRIES:
        raise damaged(
            cursor.name,
            f"it claims {n_tensors:,} tensors and {n_keys:,} keys; allowed are {MAX_ENTRIES:,} of "
            "each",
        )
    return n_tensors, n_keys


def _read_name(cursor: Cursor, what: str) -> str:
    n_bytes = cursor.number(U64, f"the length of {what}'s name")
    if not 0 < n_bytes <= MAX_NAME_BYTES:
        raise damaged(
            cursor.name,
            f"{what} has a name of {n_bytes:,} bytes; allowed are 1 to {MAX_NAME_BYTES:,}",
        )
    return cursor.text(n_bytes, f"the name of {what}")


def _read_metadata(cursor: Cursor, n_keys: int) -> dict[str, Value]:
    """Read the keys and return the values of those that are not skipped."""
    metadata: dict[str, Value] = {}
    names: set[str] = set()
    n_texts = 0
    for i in range(n_keys):
        name = _read_name(cursor, f"key {i}")
        if name in names:
            raise damaged(cursor.name, f"the key {quote(name)} is there twice")
        names.add(name)
        what = f"the value of {quote(name)}"
        value_type = cursor.number(U32, what)
        is_list = value_type == LIST
        if is_list:
            value_type = cursor.number(U32, what)
        n = cursor.number(U64, what) if is_list or value_type == TEXT else 1
        if value_type in NUMBERS and n <= MAX_LIST_LENGTH:
            values = cursor.numbers(NUMBERS[value_type], n, what)
            metadata[name] = values if is_list else values[0]
        elif value_type in NUMBERS:
            cursor.skip(n * struct.calcsize("<" + NUMBERS[value_type]), what)
        elif value_type != TEXT:
            raise damaged(cursor.name, f"{what} has type {value_type}, which is not allowed there")
        elif is_list:
            n_texts += n
            if n_texts > MAX_LISTED_TEXTS:
                raise damaged(
                    cursor.name,
                    f"{what} has {n:,} texts; all lists together may have {MAX_LISTED_TEXTS:,}",
                )
            _skip_texts(cursor, n, what)
        elif n <= MAX_TEXT_BYTES:
            metadata[name] = cursor.text(n, what)
        else:
            cursor.skip(n, what)
    return metadata


def _skip_texts(cursor: Cursor, n: int, what: str) -> None:
    """Move the cursor behind `n` texts without reading their bytes."""
    position, end, data = cursor.position, len(cursor.data), cursor.data
    for _ in range(n):
        if position + 8 > end:
            position = end + 8  # so that `skip` refuses the file
            break
        position += 8 + U64.unpack_from(data, position)[0]
    cursor.skip(position - cursor.position, what)


def _read_entries(
    cursor: Cursor, n_tensors: int, blocks: Mapping[int, tuple[int, int]]
) -> dict[str, TensorEntry]:
    """Read the entries of all tensors, with offsets from the start of the data."""
    entries: dict[str, TensorEntry] = {}
    for i in range(n_tensors):
        name = _read_name(cursor, f"tensor {i}")
        what = quote(name)
        if name in entries:
            raise damaged(cursor.name, f"the tensor {what} is there twice")
        rank = cursor.number(U32, f"the rank of {what}")
        if not 1 <= rank <= 4:
            raise damaged(cursor.name, f"{what} has rank {rank:,}; allowed are 1 to 4")
        shape = cursor.numbers("Q", rank, f"the shape of {what}")[::-1]
        number_type = cursor.number(U32, f"the type of {what}")
        if number_type not in blocks:
            raise Unreadable(
                f"{cursor.name} has {what} in type {number_type}, which the installed package gguf "
                "does not know; upgrade that package, or convert the model to F16"
            )
        offset = cursor.number(U64, f"the offset of {what}")
        block_length, block_bytes = blocks[number_type]
        if 0 in shape or shape[-1] % block_length:
            raise damaged(
                cursor.name,
                f"{what} has the shape {shape}, but its rows consist of blocks of {block_length}",
            )
        n_bytes = math.prod(shape) // block_length * block_bytes
        entries[name] = TensorEntry(shape, number_type, offset, n_bytes)
    return entries
