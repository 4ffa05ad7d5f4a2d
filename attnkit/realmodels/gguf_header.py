"""GGUF's header, versions 2 and 3: what is in the file, and where.

    "GGUF", version u32, tensors u64, keys u64
    per key: name, type u32, value       (a text: length u64, bytes; a list: type u32, length u64)
    per tensor: name, rank u32, dimensions u64 (the last first), type u32, offset u64
    data, aligned; offsets count from here

It is read here and not by the package `gguf`, whose reader makes an array of every word of the
vocabulary, and goes on as long as a damaged file tells it to.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from attnkit.realmodels.base import Unreadable, quote
from attnkit.realmodels.cursor import Cursor, damaged, open_header

Value = int | float | bool | str | tuple[int | float | bool, ...]
"""What a key holds; long texts and lists, and lists of texts, are passed over."""

U32, U64 = struct.Struct("<I"), struct.Struct("<Q")
NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
LONGEST_NAME = 1024
LONGEST_TEXT, LONGEST_LIST = 2**16, 2**12
MOST_ENTRIES = 2**14
MOST_TEXTS = 2**21
"""In all lists together: a tokenizer of a quarter million words has some 800,000."""


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in a GGUF file.

    Attributes:
        shape: a linear layer's is (outputs, inputs).
        kind: how its numbers are written, by its number in the format.
        offset: from the start of the file.
    """

    shape: tuple[int, ...]
    kind: int
    offset: int
    n_bytes: int


def read_header(
    path: Path, blocks: Mapping[int, tuple[int, int]]
) -> tuple[dict[str, Value], dict[str, TensorEntry]]:
    """The keys and the tensors of a GGUF file.

    Args:
        blocks: for every way to write numbers, how many one block holds, and its bytes.

    Raises:
        Unreadable: if it is no GGUF file, of another version, or contradicts itself.
    """
    with open_header(path) as cursor:
        n_tensors, n_keys = _start(cursor)
        metadata = _metadata(cursor, n_keys)
        alignment = metadata.get("general.alignment", 32)
        if not is_whole(alignment) or alignment < 1 or alignment & (alignment - 1):
            raise damaged(path.name, f"its alignment is {alignment!r} and not a power of two")
        tensors = _tensors(cursor, n_tensors, blocks)
        data = -(-cursor.position // alignment) * alignment
        entries = {}
        for name, entry in tensors.items():
            if entry.offset % alignment:
                raise damaged(path.name, f"{quote(name)} is not aligned to {alignment} bytes")
            cursor.position = min(data + entry.offset, len(cursor.data))
            cursor.skip(entry.n_bytes + data + entry.offset - cursor.position, quote(name))
            entries[name] = TensorEntry(entry.shape, entry.kind, data + entry.offset, entry.n_bytes)
    end, before = 0, ""
    for name, entry in sorted(entries.items(), key=lambda item: item[1].offset):
        if entry.offset < end:
            raise damaged(path.name, f"{quote(before)} and {quote(name)} share bytes")
        end, before = entry.offset + entry.n_bytes, name
    return metadata, entries


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a key's value is a whole number, and not just a yes or no."""
    return isinstance(value, int) and not isinstance(value, bool)


def _start(cursor: Cursor) -> tuple[int, int]:
    """How many tensors and keys there are."""
    if cursor.data[:4] != b"GGUF":
        raise Unreadable(f"{cursor.name} is no GGUF file: it does not begin with 'GGUF'")
    cursor.position = 4
    version = cursor.number(U32, "the version")
    if version & 0xFFFF == 0:
        raise Unreadable(
            f"{cursor.name} is a big-endian GGUF file, and only little-endian ones are read; "
            "convert it with gguf-convert-endian, which comes with the package gguf"
        )
    if version not in (2, 3):
        raise Unreadable(
            f"{cursor.name} is of GGUF version {version}, and versions 2 and 3 are read; convert "
            "the model again with a current llama.cpp"
        )
    n_tensors, n_keys = cursor.numbers("Q", 2, "the numbers of tensors and keys")
    if max(n_tensors, n_keys) > MOST_ENTRIES:
        raise damaged(
            cursor.name,
            f"it claims {n_tensors:,} tensors and {n_keys:,} keys, and {MOST_ENTRIES:,} are read",
        )
    return n_tensors, n_keys


def _name(cursor: Cursor, what: str) -> str:
    n = cursor.number(U64, f"the length of {what}'s name")
    if not 0 < n <= LONGEST_NAME:
        raise damaged(
            cursor.name, f"{what} has a name of {n:,} bytes, and 1 to {LONGEST_NAME:,} are read"
        )
    return cursor.text(n, f"the name of {what}")


def _metadata(cursor: Cursor, n_keys: int) -> dict[str, Value]:
    """The header's keys, without those that are passed over."""
    metadata: dict[str, Value] = {}
    seen: set[str] = set()
    texts_left = MOST_TEXTS
    for i in range(n_keys):
        name = _name(cursor, f"key {i}")
        if name in seen:
            raise damaged(cursor.name, f"the key {quote(name)} is there twice")
        seen.add(name)
        what = f"the value of {quote(name)}"
        kind = cursor.number(U32, what)
        listed = kind == LIST
        if listed:
            kind = cursor.number(U32, what)
        n = cursor.number(U64, what) if listed or kind == TEXT else 1
        if kind in NUMBERS and n <= LONGEST_LIST:
            values = cursor.numbers(NUMBERS[kind], n, what)
            metadata[name] = values if listed else values[0]
        elif kind in NUMBERS:
            cursor.skip(n * struct.calcsize("<" + NUMBERS[kind]), what)
        elif kind != TEXT:
            raise damaged(cursor.name, f"{what} is of type {kind}, which is not read there")
        elif listed:
            texts_left -= n
            if texts_left < 0:
                raise damaged(
                    cursor.name, f"{what} has {n:,} texts, and {MOST_TEXTS:,} in all are read"
                )
            _skip_texts(cursor, n, what)
        elif n <= LONGEST_TEXT:
            metadata[name] = cursor.text(n, what)
        else:
            cursor.skip(n, what)
    return metadata


def _skip_texts(cursor: Cursor, n: int, what: str) -> None:
    """Passes over n texts; nothing is made of them."""
    at, end, data = cursor.position, len(cursor.data), cursor.data
    for _ in range(n):
        if at + 8 > end:
            at = end + 8
            break
        at += 8 + U64.unpack_from(data, at)[0]
    cursor.skip(at - cursor.position, what)


def _tensors(
    cursor: Cursor, n_tensors: int, blocks: Mapping[int, tuple[int, int]]
) -> dict[str, TensorEntry]:
    """Every tensor; offsets still count from the start of the data."""
    tensors: dict[str, TensorEntry] = {}
    for i in range(n_tensors):
        name = _name(cursor, f"tensor {i}")
        what = quote(name)
        if name in tensors:
            raise damaged(cursor.name, f"the tensor {what} is there twice")
        rank = cursor.number(U32, f"the rank of {what}")
        if not 1 <= rank <= 4:
            raise damaged(cursor.name, f"{what} has rank {rank:,}, and 1 to 4 exist")
        shape = cursor.numbers("Q", rank, f"the shape of {what}")[::-1]
        kind = cursor.number(U32, f"the type of {what}")
        if kind not in blocks:
            raise Unreadable(
                f"{cursor.name} has {what} in type {kind}, which the package gguf here does not "
                "know; upgrade that package, or convert the model to F16"
            )
        offset = cursor.number(U64, f"the offset of {what}")
        held, size = blocks[kind]
        if 0 in shape or shape[-1] % held:
            raise damaged(
                cursor.name, f"{what} has the shape {shape}, and its rows are blocks of {held}"
            )
        n = 1
        for side in shape:
            n *= side
        tensors[name] = TensorEntry(shape, kind, offset, n // held * size)
    return tensors
