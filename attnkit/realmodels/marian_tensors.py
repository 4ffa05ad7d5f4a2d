"""Readers of the tensors in Marian's two file formats.

*.bin, which marian-conv writes and Bergamot and Firefox Translations ship; all lengths are u64:

    version, number of tensors
    per tensor: length of its name, type, rank, size in bytes
    names, each with a closing zero; dimensions i32; length of the padding, padding
    data of the tensors, one after the other; each may be followed by bytes without a meaning

*.npz, which Marian's training writes, is a file of NumPy.

Source: src/common/binary.cpp and src/common/types.h of marian-nmt/marian-dev and, for the other
numbers of the types intgemm8 and intgemm16, of browsermt/marian-dev.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from attnkit.realmodels.base import Array, Unreadable, quote
from attnkit.realmodels.binary_file import (
    BinaryFile,
    Cursor,
    TensorEntry,
    damaged,
    open_header,
    reading,
)

Load = Callable[[str], Array]
"""Function that reads a tensor by name; the weight of a linear layer is (inputs, outputs)."""

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


def read_npz(path: Path) -> tuple[dict[str, str], Load]:
    """Return the name of every tensor in a *.npz, with an empty type, and what reads a tensor.

    Raises:
        Unreadable: If it is not a zip file of arrays.
    """
    with reading(path), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    return dict.fromkeys(names, ""), partial(_load_array, path)


def _load_array(path: Path, name: str) -> Array:
    with reading(path), np.load(path, allow_pickle=False) as archive:
        size = archive.zip.getinfo(f"{name}.npy").file_size
        if size > path.stat().st_size:
            raise Unreadable(
                f"{path.name} has {quote(name)} compressed, which Marian never writes; load the "
                "file with numpy.load and save it with numpy.savez"
            )
        return np.asarray(archive[name])  # bytes, if it is no array


def read_bin(path: Path) -> tuple[dict[str, str], Load]:
    """Return the number type of every tensor in a *.bin, by name, and what reads a tensor.

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
        shapes = [cursor.shape("i", rank) for _, _, rank, _ in headers]
        cursor.skip(cursor.number("Q"))
        entries = {
            name: _entry(cursor, name, shape, number, n_bytes)
            for name, shape, (_, number, _, n_bytes) in zip(names, shapes, headers, strict=True)
        }
    types = {name: entry.type for name, entry in entries.items()}
    return types, partial(_load_tensor, BinaryFile(path, entries))


def _entry(
    cursor: Cursor, name: str, shape: tuple[int, ...], number: int, n_bytes: int
) -> TensorEntry:
    """Return the entry of a tensor, and skip its data."""
    if number not in TYPES:
        raise Unreadable(
            f"{cursor.name} has {quote(name)} in type {number:#x}, which is not known or for one "
            "kind of processor; convert the *.npz again with marian-conv --gemm-type intgemm8"
        )
    number_type = TYPES[number]
    needed = _dtype(number_type).itemsize * math.prod(shape)
    needed += MULTIPLIER_BYTES if number_type.startswith("intgemm") else 0
    if n_bytes < needed or any(side < 1 for side in shape):
        raise damaged(
            cursor.name,
            f"{quote(name)} of shape {shape} in {number_type} has {n_bytes:,} bytes, but needs "
            f"{needed:,}",
        )
    return TensorEntry(shape, number_type, cursor.skip(n_bytes), needed)


def _dtype(type: str) -> np.dtype:
    """Return NumPy's type of the numbers that a tensor of this Marian type stores."""
    return np.dtype(type.replace("intgemm", "int")).newbyteorder("<")


def _load_tensor(file: BinaryFile, name: str) -> Array:
    """Read a tensor of a *.bin; quantised ones are divided by their multiplier."""
    raw, entry = file.read_bytes(name), file.entries[name]
    if not entry.type.startswith("intgemm"):
        return raw.view(_dtype(entry.type)).reshape(entry.shape)
    multiplier = raw[-MULTIPLIER_BYTES:].view("<f4")
    if not 0 < multiplier < np.inf:
        raise damaged(
            file.path.name,
            f"the multiplier of {quote(name)} is {multiplier[0]:g}; it must be a finite number "
            "above 0",
        )
    values = raw[:-MULTIPLIER_BYTES].view(_dtype(entry.type)).astype(np.float32)
    with np.errstate(all="ignore"):  # the caller finds values that are too large
        values /= multiplier
    is_transposed = "Wemb" not in name
    if is_transposed and any(side % TRANSPOSABLE for side in entry.shape):
        raise Unreadable(
            f"{file.path.name} has {quote(name)} of shape {entry.shape} in {entry.type}; "
            f"marian-conv mixes up such weights unless both sides are multiples of "
            f"{TRANSPOSABLE}; use the *.npz from which this file was made"
        )
    return values.reshape(entry.shape[::-1]).T if is_transposed else values.reshape(entry.shape)
