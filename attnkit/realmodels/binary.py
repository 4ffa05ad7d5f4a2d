"""Tensors in the file formats of CTranslate2 and Marian, which no library reads."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Array, AttentionLayer, Kind, Projections, Rope, per_head
from attnkit.realmodels.errors import Unreadable, damaged, listing, quote, reading

MAX_ENTRIES = 2**14
"""Largest number of tensors, keys or aliases of a file."""

_MAX_LAYERS = 2**11


@dataclass(frozen=True)
class Stored:
    """Place, shape and number type of a tensor in a file; `type` is a name of the format."""

    shape: tuple[int, ...]
    type: str
    path: Path
    offset: int = 0
    n_bytes: int = 0

    def read_bytes(self) -> np.ndarray:
        """Read the tensor's bytes; the file is open only during this call."""
        with reading(self.path):
            raw = np.fromfile(self.path, np.uint8, count=self.n_bytes, offset=self.offset)
        if len(raw) != self.n_bytes:
            raise Unreadable(f"{self.path.name} has become shorter since it was opened")
        return raw


@dataclass(frozen=True, eq=False)
class TensorFile:
    """Named tensors of a file, and the settings of its model.

    Attributes:
        name: Name of the file in messages.
        entries: Place of every tensor.
        settings: Values by name.
        load: Function that reads a tensor by name, as numbers of any type.
    """

    name: str
    entries: Mapping[str, Stored]
    settings: Mapping[str, Any]
    load: Callable[[str], Array]

    def read(self, name: str, shape: tuple[int, ...] | None = None) -> Float[Array, "..."]:
        """Read one tensor in single precision.

        Raises:
            Unreadable: If it is missing, damaged or not finite, or has not the shape, if given.
        """
        if name not in self.entries:
            raise Unreadable(
                f"{self.name} has no tensor {quote(name)}; the file holds {listing(self.entries)}"
            )
        if shape is not None and self.entries[name].shape != shape:
            raise damaged(
                self.name, f"{quote(name)} is of shape {self.entries[name].shape}, not {shape}"
            )
        with np.errstate(all="ignore"):
            values = self.load(name).astype(np.float32, copy=False)
            if not np.isfinite(values.sum(dtype=np.float64)):
                raise damaged(self.name, f"{quote(name)} has values that are infinite or NaN")
        return values

    def count(self, name: str, default: int | None = None) -> int:
        """Return a positive whole number of the settings; without a default it must be there."""
        value = self.settings.get(name, default)
        if type(value) is not int or not 1 <= value <= 2**20:
            raise Unreadable(
                f"{self.name}: {name} is {quote(value)}; it must be a whole number from 1 on"
            )
        return value


def split_heads(
    file: TensorFile,
    parts: Mapping[str, Float[Array, "o m"]],
    n_heads: int,
    n_kv_heads: int,
    d_head: int = 0,
) -> dict[str, Float[Array, "h m d"]]:
    """Return the matrices of every head from linear layers, whose rows are outputs.

    Args:
        file: The file, for messages.
        parts: Weights by the roles of their rows, such as "qkv" or "q" and "kv".
        n_heads: Number of query heads.
        n_kv_heads: Number of key and value heads.
        d_head: Width of a head; 0 to divide the rows equally among the heads.
    """  # fmt: skip
    heads = {"q": n_heads, "k": n_kv_heads, "v": n_kv_heads}
    matrices = {}
    for roles, weight in parts.items():
        n = sum(heads[role] for role in roles)
        width = d_head or len(weight) // n
        if weight.ndim != 2 or not width or len(weight) != n * width or n_heads % n_kv_heads:
            raise damaged(
                file.name,
                f"{roles.upper()} of shape {weight.shape} cannot be divided among {n_heads} heads "
                f"and {n_kv_heads} key and value heads",
            )
        ends = np.cumsum([heads[role] * width for role in roles])[:-1]
        for role, rows in zip(roles, np.split(weight, ends), strict=True):
            matrices[role] = per_head(rows, heads[role])
    if matrices["q"].shape[2] != matrices["k"].shape[2]:
        raise damaged(file.name, "queries and keys differ in width")
    return matrices


def layers_of(
    file: TensorFile, found: Iterable[tuple[Kind, int, int, Callable[[], Projections]]]
) -> tuple[AttentionLayer, ...]:
    """Return layers with their indices: encoder, causal, cross-attention.

    Raises:
        Unreadable: If there is none, or more than any model has.
    """
    found = list(found)
    if not 0 < len(found) <= _MAX_LAYERS:
        raise Unreadable(
            f"{file.name} has {len(found):,} attention layers by name; the file holds "
            f"{listing(file.entries)}"
        )
    indices = {kind: count() for kind in Kind}
    kinds = list(Kind)
    return tuple(
        AttentionLayer(kind, next(indices[kind]), n_heads, n_kv_heads, read)
        for kind, n_heads, n_kv_heads, read in sorted(found, key=lambda one: kinds.index(one[0]))
    )


def projections(
    matrices: Mapping[str, Array],
    gain_q: Array | None,
    gain_kv: Array | None,
    rope: Rope | None = None,
) -> Projections:
    """Return a layer from its matrices by role."""  # fmt: skip
    return Projections(matrices["q"], matrices["k"], matrices["v"], gain_q, gain_kv, rope)


def check_n_entries(file: str, n: int, what: str) -> None:
    """Raise Unreadable for a file that claims more entries of a kind than any model has."""
    if n > MAX_ENTRIES:
        raise damaged(file, f"it claims {n:,} {what}; allowed are {MAX_ENTRIES:,}")


@dataclass
class Cursor:
    """Position in a file, which every method moves forward; they raise Unreadable at its end."""

    path: Path
    data: mmap.mmap
    position: int = 0

    def skip(self, n_bytes: int) -> int:
        """Move `n_bytes` forward and return the previous position."""
        start, end = self.position, self.position + n_bytes
        if end > len(self.data):
            raise damaged(
                self.path.name, f"it ends at byte {len(self.data):,}, but byte {end:,} is needed"
            )
        self.position = end
        return start

    def number(self, code: str) -> int:
        """Read one little-endian integer of the type with this `struct` code."""
        start = self.skip(struct.calcsize(f"<{code}"))
        value: int = struct.unpack_from(f"<{code}", self.data, start)[0]
        return value

    def count(self, code: str, what: str) -> int:
        """Read the number of the file's entries of a kind."""
        n = self.number(code)
        check_n_entries(self.path.name, n, what)
        return n

    def shape(self, code: str, rank: int) -> tuple[int, ...]:
        """Read the sides of a tensor, which are integers of the type with this `struct` code."""
        if rank > 8:
            raise damaged(self.path.name, f"a tensor has rank {rank:,}; allowed are 0 to 8")
        return tuple(self.number(code) for _ in range(rank))

    def text(self, n_bytes: int) -> str:
        """Read a text up to its closing zero; bytes that are not UTF-8 are replaced."""
        if n_bytes > 2**16:
            raise damaged(self.path.name, f"a name has {n_bytes:,} bytes; allowed are 65,536")
        start = self.skip(n_bytes)
        text = self.data[start : self.position].decode("utf-8", errors="replace")
        return text.partition("\0")[0]

    def tensor(
        self, name: str, shape: tuple[int, ...], type: str, n_bytes: int, more: int = 0
    ) -> Stored:
        """Return the place of the tensor whose data is next, and skip the data.

        Args:
            name: Name of the tensor, for messages.
            shape: Its shape.
            type: Name of its number type for NumPy.
            n_bytes: Size of the data as the file states it.
            more: Number of bytes behind its numbers.
        """  # fmt: skip
        dtype = np.dtype(type.replace("intgemm", "int"))
        needed = dtype.itemsize * math.prod(shape) + more
        if n_bytes != needed or any(side < 0 for side in shape):
            raise damaged(
                self.path.name,
                f"{quote(name)} of shape {shape} in {type} has {n_bytes:,} bytes, but needs "
                f"{needed:,}",
            )
        return Stored(shape, type, self.path, self.skip(n_bytes), n_bytes)


@contextmanager
def open_header(path: Path) -> Iterator[Cursor]:
    """Yield a cursor at the start of a file, and close the file afterwards; errors as `reading`."""
    with (
        reading(path),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        yield Cursor(path, data)
