"""Reader of the headers of Marian's two file formats: the place and type of every tensor.

*.bin, which marian-conv writes and Bergamot and Firefox Translations ship; all lengths are u64:

    version, number of tensors
    per tensor: length of its name, type, rank, size in bytes
    names, each with a closing zero; dimensions i32; length of the padding, padding
    data of the tensors, one after the other; each may be followed by bytes without a meaning

*.npz, which Marian's training writes: a zip file of uncompressed arrays of NumPy.

Source: src/common/binary.cpp and src/common/types.h of marian-nmt/marian-dev and, for the other
numbers of the types intgemm8 and intgemm16, of browsermt/marian-dev.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnkit.realmodels.base import Unreadable, quote
from attnkit.realmodels.cursor import Cursor, check_disjoint, damaged, open_header

U64 = struct.Struct("<Q")

VERSION, ENCRYPTED_VERSION = 1, 2

CONFIGURATION = "special:model.yml"
"""Name of the tensor whose bytes are the model's configuration."""

TYPES = {
    0x101: "int8",
    0x102: "int16",
    0x104: "int32",
    0x108: "int64",
    0x201: "uint8",
    0x202: "uint16",
    0x204: "uint32",
    0x208: "uint64",
    0x402: "float16",
    0x404: "float32",
    0x408: "float64",
    0x4101: "intgemm8",  # browsermt's number
    0x4102: "intgemm16",
    0x10001: "intgemm8",  # marian-nmt's number
    0x10002: "intgemm16",
}
"""Number types that do not depend on the processor, by their numbers in *.bin."""

PREPARED_TYPES = {
    0x802: "packed16",
    0x1801: "packed8avx2",
    0x2801: "packed8avx512",
    0x11001: "intgemm8avx2",
    0x12001: "intgemm8avx512",
    0x13001: "intgemm8avx512vnni",
    0x18001: "intgemm8ssse3",
    0x11002: "intgemm16avx2",
    0x12002: "intgemm16avx512",
    0x14002: "intgemm16sse2",
}
"""Number types whose bytes are arranged for one kind of processor, by their numbers in *.bin."""

MULTIPLIER_BYTES = 4
"""Size of the number behind an intgemm tensor by which its weights were multiplied."""

NUMPY_HEADER = re.compile(
    rb"\{'descr': '[<|]([fiu]\d)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \} *\n"
)
"""Header of an array, as Marian and NumPy write it."""

MAX_TENSORS = 2**14
MAX_NAME_BYTES = 1024
MAX_AXES = 8
MAX_SIDE_DIGITS = 18
MAX_NUMPY_HEADER_BYTES = 1024

_LOCAL_HEADER_BYTES = 26
"""Bytes of a zip file's header of one file, before the lengths of its name and extra field."""

_ZIP_FAULTS = (
    zipfile.BadZipFile,
    NotImplementedError,
    ValueError,
    OverflowError,
    EOFError,
    struct.error,
)
"""Exceptions that the library raises for a damaged zip file."""


@dataclass(frozen=True)
class TensorEntry:
    """Place and type of a tensor in a Marian file.

    Attributes:
        shape: Shape; the weight of a linear layer is (inputs, outputs).
        type: Number type, one of the values of `TYPES`.
        offset: First byte, from the start of the file.
        n_bytes: Size in bytes, with the multiplier of an intgemm tensor.
    """

    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int


def dtype_of(type: str) -> np.dtype:
    """Return NumPy's type of the numbers that a tensor of this Marian type stores."""
    return np.dtype(type.replace("intgemm", "int")).newbyteorder("<")


def is_marian(path: Path) -> bool:
    """Return whether a file begins like a Marian *.bin, or is a *.npz with a configuration."""
    if path.suffix not in (".bin", ".npz") or not path.is_file():
        return False
    try:
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                return f"{CONFIGURATION}.npy" in archive.namelist()
        with path.open("rb") as file:
            start = file.read(U64.size)
    except (OSError, *_ZIP_FAULTS):
        return False
    return start in (U64.pack(VERSION), U64.pack(ENCRYPTED_VERSION))


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Read the entries of all tensors in a *.bin or *.npz.

    Raises:
        Unreadable: If it is not a Marian file, is encrypted, has a number type that is not read,
            or contradicts itself.
    """
    with open_header(path) as cursor:
        entries = _read_npz(path, cursor) if path.suffix == ".npz" else _read_bin(cursor)
    check_disjoint(path.name, {name: (e.offset, e.n_bytes) for name, e in entries.items()})
    return entries


def _read_bin(cursor: Cursor) -> dict[str, TensorEntry]:
    """Read the entries of a *.bin."""
    version = cursor.number(U64, "the version")
    if version == ENCRYPTED_VERSION:
        raise Unreadable(
            f"{cursor.name} is an encrypted Marian model; convert it with marian-conv without a key"
        )
    if version != VERSION:
        raise Unreadable(
            f"{cursor.name} has version {version:,} of Marian's format; only version 1 is read"
        )
    n_tensors = cursor.number(U64, "the number of tensors")
    _check_n_tensors(cursor.name, n_tensors)
    headers = [cursor.numbers("Q", 4, f"the header of tensor {i}") for i in range(n_tensors)]
    names = [_read_name(cursor, header[0], f"tensor {i}") for i, header in enumerate(headers)]
    shapes = []
    for name, (_, _, rank, _) in zip(names, headers, strict=True):
        if rank > MAX_AXES:
            raise damaged(
                cursor.name, f"{quote(name)} has rank {rank:,}; allowed are 0 to {MAX_AXES}"
            )
        shapes.append(cursor.numbers("i", rank, f"the shape of {quote(name)}"))
    cursor.skip(cursor.number(U64, "the length of the padding"), "the padding")
    entries: dict[str, TensorEntry] = {}
    for name, shape, (_, number, _, n_bytes) in zip(names, shapes, headers, strict=True):
        if number in PREPARED_TYPES:
            raise Unreadable(
                f"{cursor.name} has {quote(name)} in {PREPARED_TYPES[number]}: its bytes are "
                "arranged for one kind of processor, which is not undone here; convert the *.npz "
                "again with marian-conv --gemm-type intgemm8"
            )
        if number not in TYPES:
            raise Unreadable(
                f"{cursor.name} has {quote(name)} in type {number:,}, which is not known; known "
                "types are " + ", ".join(dict.fromkeys(TYPES.values()))
            )
        needed = _check_size(cursor.name, name, shape, TYPES[number], n_bytes)
        start = cursor.skip(n_bytes, quote(name))
        _add(entries, cursor.name, name, TensorEntry(shape, TYPES[number], start, needed))
    return entries


def _check_n_tensors(file: str, n_tensors: int) -> None:
    if n_tensors > MAX_TENSORS:
        raise damaged(file, f"it claims {n_tensors:,} tensors; allowed are {MAX_TENSORS:,}")


def _read_name(cursor: Cursor, n_bytes: int, what: str) -> str:
    """Read a name and remove its closing zero."""
    if not 1 < n_bytes <= MAX_NAME_BYTES:
        raise damaged(
            cursor.name,
            f"the name of {what} has {n_bytes:,} bytes; allowed are 2 to {MAX_NAME_BYTES:,}",
        )
    start = cursor.skip(n_bytes, f"the name of {what}")
    raw = cursor.data[start : cursor.position]
    if raw.find(b"\0") != n_bytes - 1:
        raise damaged(cursor.name, f"the name of {what} does not end with its first zero")
    try:
        return raw[:-1].decode()
    except UnicodeDecodeError as error:
        raise damaged(cursor.name, f"the name of {what} is not UTF-8") from error


def _check_size(file: str, name: str, shape: tuple[int, ...], type: str, n_bytes: int) -> int:
    """Return the number of bytes that a tensor needs, if it has them."""
    if any(side < 1 for side in shape):
        raise damaged(file, f"{quote(name)} has the shape {shape}; sides must be at least 1")
    needed = dtype_of(type).itemsize * math.prod(shape)
    needed += MULTIPLIER_BYTES if type.startswith("intgemm") else 0
    if n_bytes < needed:
        raise damaged(
            file,
            f"{quote(name)} of shape {shape} in {type} has {n_bytes:,} bytes, but needs {needed:,}",
        )
    return needed


def _add(entries: dict[str, TensorEntry], file: str, name: str, entry: TensorEntry) -> None:
    if name in entries:
        raise damaged(file, f"the tensor {quote(name)} is there twice")
    entries[name] = entry


def _read_npz(path: Path, cursor: Cursor) -> dict[str, TensorEntry]:
    """Read the entries of a *.npz."""
    entries: dict[str, TensorEntry] = {}
    members = _zip_members(path)
    _check_n_tensors(path.name, len(members))
    for member in members:
        name = member.filename.removesuffix(".npy")
        if member.compress_type != zipfile.ZIP_STORED:
            raise Unreadable(
                f"{path.name} has {quote(name)} compressed, which Marian never writes; load the "
                "file with numpy.load and save it with numpy.savez"
            )
        if member.flag_bits & 1 or member.compress_size != member.file_size:
            raise damaged(path.name, f"{quote(name)} is encrypted, or has two different sizes")
        _add(entries, path.name, name, _numpy_entry(cursor, name, member))
    return entries


def _zip_members(path: Path) -> list[zipfile.ZipInfo]:
    """Return what the directory of a zip file says about its files."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except _ZIP_FAULTS as error:
        raise damaged(path.name, "it is not a zip file of arrays, or it is cut short") from error


def _numpy_entry(cursor: Cursor, name: str, member: zipfile.ZipInfo) -> TensorEntry:
    """Read the header of one array in a *.npz."""
    what = quote(name)
    cursor.position = 0
    if member.header_offset < 0:
        raise damaged(cursor.name, f"{what} begins before the file")
    cursor.skip(member.header_offset, f"the part before {what}")
    start = cursor.skip(_LOCAL_HEADER_BYTES, f"the header of {what}")
    cursor.skip(sum(cursor.numbers("H", 2, f"the header of {what}")), f"the header of {what}")
    first = cursor.skip(member.file_size, what)
    raw = cursor.data[first : min(cursor.position, first + MAX_NUMPY_HEADER_BYTES)]
    is_file = cursor.data[start : start + 4] == b"PK\x03\x04"
    if not is_file or raw[:8] != b"\x93NUMPY\x01\0":
        raise damaged(cursor.name, f"{what} is not an array of NumPy's format 1.0")
    end = 10 + int.from_bytes(raw[8:10], "little")
    match = NUMPY_HEADER.fullmatch(raw[10:end]) if end <= len(raw) else None
    if match is None:
        raise damaged(cursor.name, f"the header of {what} cannot be read")
    type_code, is_fortran, sides = match.groups()
    shape = _sides(cursor.name, what, sides.decode())
    if is_fortran == b"True" and len(shape) > 1:
        raise Unreadable(
            f"{cursor.name} has {what} stored column by column, which Marian does not read either; "
            "save it with numpy.ascontiguousarray"
        )
    try:
        number_type = np.dtype(type_code.decode()).name
    except TypeError as error:
        raise damaged(cursor.name, f"{what} has a number type that does not exist") from error
    needed = _check_size(cursor.name, name, shape, number_type, member.file_size - end)
    return TensorEntry(shape, number_type, first + end, needed)


def _sides(file: str, what: str, text: str) -> tuple[int, ...]:
    """Return the shape that the header of an array states, such as "3, 5" or "3,"."""
    sides = [side.strip() for side in text.removesuffix(",").split(",")] if text else []
    if len(sides) > MAX_AXES or not all(
        side.isdecimal() and len(side) <= MAX_SIDE_DIGITS for side in sides
    ):
        raise damaged(file, f"{what} has the shape ({quote(text)}), which is not allowed")
    return tuple(map(int, sides))
