"""Readers of the tensors in Marian's two file formats.

*.bin, which marian-conv writes and Bergamot and Firefox Translations ship; all lengths are u64:

    version, number of tensors
    per tensor: length of its name, type, rank, size in bytes
    names, each with a closing zero; dimensions i32; length of the padding, padding
    data of the tensors, one after the other; each may be followed by bytes without a meaning

*.npz, which Marian's training writes, is a file of NumPy. Quantised weights, intgemm8 and
intgemm16, are stored transposed, except for embeddings (`Wemb`), and hold round(weight ×
multiplier); the multiplier is behind the numbers.

Source: src/common/binary.cpp, src/common/types.h and
src/tensors/cpu/expression_graph_packable.h of marian-nmt/marian-dev and, for the other numbers of
the types intgemm8 and intgemm16, of browsermt/marian-dev.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from attnkit.realmodels.base import Array
from attnkit.realmodels.errors import Unreadable, damaged, quote, reading
from attnkit.realmodels.tensors import (
    Cursor,
    TensorEntry,
    TensorFile,
    check_n_entries,
    open_header,
)

VERSION, ENCRYPTED_VERSION = 1, 2

CONFIGURATION = "special:model.yml"
"""Name of the tensor whose bytes are the model's configuration."""

TYPES = {
    kind + n_bytes: f"{name}{8 * n_bytes}"
    for kind, name in ((0x100, "int"), (0x200, "uint"), (0x400, "float"))
    for n_bytes in ((2, 4, 8) if name == "float" else (1, 2, 4, 8))
}
TYPES |= {0x4101: "intgemm8", 0x4102: "intgemm16"}  # browsermt's numbers
TYPES |= {0x10001: "intgemm8", 0x10002: "intgemm16"}  # marian-nmt's numbers
"""Number types that do not depend on the processor, by their numbers in *.bin."""

MULTIPLIER_BYTES = 4
"""Size of the number behind an intgemm tensor by which its weights were multiplied."""

TRANSPOSABLE = 16
"""Divisor of both sides of every quantised weight that can be read. Marian's `Transpose10` mixes up
the numbers of weights of other shapes, and Marian's translator refuses such a file."""


def is_marian(path: Path) -> bool:
    """Return whether a file begins like a Marian *.bin, or is a *.npz with a configuration."""
    if path.suffix not in (".bin", ".npz"):
        return False
    try:
        with reading(path):
            if path.suffix == ".npz":
                with zipfile.ZipFile(path) as archive:
                    return f"{CONFIGURATION}.npy" in archive.namelist()
            with path.open("rb") as file:
                start = file.read(8)
    except Unreadable:
        return False
    return start in (struct.pack("<Q", version) for version in (VERSION, ENCRYPTED_VERSION))


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a tensor's shape; Marian stores vectors as matrices of one row."""
    return shape[1:] if len(shape) == 2 and shape[0] == 1 else shape


def read_npz(path: Path) -> TensorFile:
    """Read the names and shapes in a *.npz.

    Raises:
        Unreadable: If it is not a zip file of arrays.
    """
    entries = {}
    with reading(path), zipfile.ZipFile(path) as archive:
        check_n_entries(path.name, len(archive.infolist()), "tensors")
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0
                if version != (1, 0):
                    read = np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
            if member.file_size > path.stat().st_size:
                raise Unreadable(
                    f"{path.name} has {quote(member.filename)} compressed, which Marian never "
                    "writes; load the file with numpy.load and save it with numpy.savez"
                )
            name = member.filename.removesuffix(".npy")
            entries[name] = TensorEntry(_shape(shape), str(dtype), path)
    return TensorFile(path.name, entries, partial(_load_array, path, entries))


def _load_array(path: Path, entries: Mapping[str, TensorEntry], name: str) -> Array:
    shape = entries[name].shape
    with reading(path), np.load(path, allow_pickle=False) as archive:
        return _checked(np.asarray(archive[name]), path.name, name).reshape(shape)


def _checked(values: Array, file: str, name: str) -> Array:
    """Return the values of a weight, or the bytes of the configuration, unchanged."""
    if values.dtype.kind != "f" and name != CONFIGURATION:
        raise Unreadable(f"{file} has {quote(name)} in {values.dtype}, which no weights have")
    return values


def read_bin(path: Path) -> TensorFile:
    """Read the names, shapes and types in a *.bin.

    Raises:
        Unreadable: If it is not such a file, is encrypted, has a number type that is not read, or
            contradicts itself.
    """
    with open_header(path) as cursor:
        version = cursor.number("Q")
        if version == ENCRYPTED_VERSION:
            raise Unreadable(
                f"{path.name} is an encrypted Marian model; convert it with marian-conv without a "
                "key"
            )
        if version != VERSION:
            raise Unreadable(
                f"{path.name} has version {version:,} of Marian's format; only version 1 is read"
            )
        n_tensors = cursor.count("Q", "tensors")
        headers = [[cursor.number("Q") for _ in range(4)] for _ in range(n_tensors)]
        names = [cursor.text(n_bytes) for n_bytes, *_ in headers]
        shapes = [_shape(cursor.shape("i", rank)) for _, _, rank, _ in headers]
        cursor.skip(cursor.number("Q"))
        entries = {
            name: _entry(cursor, name, shape, number, n_bytes)
            for name, shape, (_, number, _, n_bytes) in zip(names, shapes, headers, strict=True)
        }
    return TensorFile(path.name, entries, partial(_load_tensor, entries))


def _entry(
    cursor: Cursor, name: str, shape: tuple[int, ...], number: int, n_bytes: int
) -> TensorEntry:
    """Return the entry of a tensor, and skip its data."""
    if number not in TYPES:
        raise Unreadable(
            f"{cursor.path.name} has {quote(name)} in type {number:#x}, which is not known or for "
            "one kind of processor; convert the *.npz again with marian-conv --gemm-type intgemm8"
        )
    if any(side < 1 for side in shape):
        raise damaged(cursor.path.name, f"{quote(name)} of shape {shape} has no values")
    number_type = TYPES[number]
    needed = _dtype(number_type).itemsize * math.prod(shape)
    needed += MULTIPLIER_BYTES if number_type.startswith("intgemm") else 0
    entry = cursor.entry(name, shape, number_type, min(n_bytes, needed), needed)
    cursor.skip(n_bytes - needed)
    return entry


def _dtype(type: str) -> np.dtype:
    """Return NumPy's type of the numbers that a tensor of this Marian type stores."""
    return np.dtype(type.replace("intgemm", "int")).newbyteorder("<")


def _load_tensor(entries: Mapping[str, TensorEntry], name: str) -> Array:
    """Read a tensor of a *.bin; quantised ones are divided by their multiplier."""
    entry = entries[name]
    raw, file, shape = entry.read_bytes(), entry.path.name, entry.shape
    if not entry.type.startswith("intgemm"):
        return _checked(raw.view(_dtype(entry.type)), file, name).reshape(shape)
    multiplier = raw[-MULTIPLIER_BYTES:].view("<f4")
    if not 0 < multiplier < np.inf:
        raise damaged(
            file,
            f"the multiplier of {quote(name)} is {multiplier[0]:g}; it must be a finite number "
            "above 0",
        )
    values = raw[:-MULTIPLIER_BYTES].view(_dtype(entry.type)).astype(np.float32)
    with np.errstate(all="ignore"):  # the caller finds values that are too large
        values /= multiplier
    is_transposed = "Wemb" not in name
    if is_transposed and any(side % TRANSPOSABLE for side in shape):
        raise Unreadable(
            f"{file} has {quote(name)} of shape {shape} in {entry.type}; marian-conv mixes up such "
            f"weights unless both sides are multiples of {TRANSPOSABLE}; use the *.npz from which "
            "this file was made"
        )
    return values.reshape(shape[::-1]).T if is_transposed else values.reshape(shape)
