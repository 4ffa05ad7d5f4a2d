"""Named tensors of a model's file, as the readers of all formats return them.

Hosted copies open no model files, so a file can harm only the person who opens it. Readers
therefore compare counts and sizes with the file's size, so that a damaged file cannot take much
time or memory, and leave all else to the libraries.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Array
from attnkit.realmodels.errors import Unreadable, damaged, listing, quote, reading
from attnkit.realmodels.hub import HubFile

MAX_ENTRIES = 2**14
"""Largest number of tensors, keys or aliases of a file."""

MAX_AXES, MAX_TEXT_BYTES = 8, 2**16

_ATTENTION_WORDS = ("attn", "attention", "q_proj", "query", "qkv")
_QUANTISED_ENDINGS = ("qweight", "weight_packed", "scb", "weight_scale", "weight_format", "absmax")


@dataclass(frozen=True)
class TensorEntry:
    """Place and type of a tensor.

    Attributes:
        shape: Shape.
        type: Name of the number type in the file's format, such as "Q4_1".
        path: The file.
        offset: First byte, from the start of the file; 0 if a library finds it by name.
        n_bytes: Size in bytes; 0 if a library finds it by name.
        changed: Time of the file's last change when it was opened, in nanoseconds; 0 if unknown.
    """

    shape: tuple[int, ...]
    type: str
    path: Path | HubFile
    offset: int = 0
    n_bytes: int = 0
    changed: int = 0

    def read_bytes(self) -> np.ndarray:
        """Read the tensor's bytes; the file is open only during this call.

        Raises:
            Unreadable: If the file is shorter or gone, or the hub does not deliver it.
        """
        if isinstance(self.path, HubFile):
            raw = self.path.read(self.offset, self.n_bytes)
        else:
            with reading(self.path):
                raw = np.fromfile(self.path, np.uint8, count=self.n_bytes, offset=self.offset)
        if len(raw) != self.n_bytes:
            raise Unreadable(f"{self.path.name} has become shorter since it was opened")
        return raw


@dataclass(frozen=True, eq=False)
class TensorFile:
    """Named tensors in one or several files; each is read only when it is requested.

    Attributes:
        name: Name of the file in messages.
        entries: Entry of every tensor, by name.
        load: Function that reads a tensor by name, as numbers of any floating type.
    """

    name: str
    entries: Mapping[str, TensorEntry]
    load: Callable[[str], Array]

    def read(self, name: str) -> Float[Array, "..."]:
        """Read one tensor in single precision; the file is open only during this call.

        Raises:
            Unreadable: If the tensor is missing, damaged, of an unsupported type, or not finite.
        """
        if name not in self.entries:
            raise self.without(name)
        values, file = self.load(name), self.entries[name].path.name
        if values.shape != self.entries[name].shape:
            raise Unreadable(f"{file}: tensor {quote(name)} changed while it was read")
        with np.errstate(all="ignore"):
            values = values.astype(np.float32, copy=False)
            # This sum is not finite if any value is not, and needs no mask in memory.
            total = values.sum(dtype=np.float64)
        if not np.isfinite(total):
            raise damaged(file, f"{quote(name)} has values that are infinite or NaN")
        return values

    def without(self, name: str) -> Unreadable:
        """Return the error to raise for a tensor that is missing."""
        return Unreadable(f"{self.name} has no tensor {quote(name)}; {self.contents}")

    @property
    def contents(self) -> str:
        """Names of tensors that the file holds instead of the expected ones, for error messages."""
        similar = [n for n in self.entries if any(word in n.lower() for word in _ATTENTION_WORDS)]
        quantised = any(name.lower().endswith(_QUANTISED_ENDINGS) for name in self.entries)
        return f"the file holds {listing(similar or self.entries)}" + (
            " and is quantised: take the unquantised model" if quantised else ""
        )

    def check_shape(self, name: str, shape: tuple[int, ...], reason: str) -> None:
        """Raise Unreadable unless a tensor is present and has a shape.

        Args:
            name: Name of the tensor.
            shape: Shape that it must have.
            reason: Fields and values from which the shape follows, for the message.
        """
        if name not in self.entries:
            raise self.without(name)
        actual, file = self.entries[name].shape, self.entries[name].path.name
        if actual != shape:
            raise Unreadable(
                f"{file}: tensor {quote(name)} is of shape {quote(actual)}; it must be of shape "
                f"{shape} ({reason})"
            )


def check_n_entries(file: str, n: int, what: str) -> None:
    """Raise Unreadable for a file that claims more entries of a kind than any model has."""
    if n > MAX_ENTRIES:
        raise damaged(file, f"it claims {n:,} {what}; allowed are {MAX_ENTRIES:,}")


@dataclass
class Cursor:
    """Position in a file, which every method moves forward.

    All methods raise Unreadable if the file ends too early.

    Attributes:
        path: The file.
        data: Memory map of the file, so that only the bytes that are used are read.
        position: Offset of the next byte, from the start of the file.
    """

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
        if rank > MAX_AXES:
            raise damaged(
                self.path.name, f"a tensor has rank {rank:,}; allowed are 0 to {MAX_AXES}"
            )
        return tuple(self.number(code) for _ in range(rank))

    def text(self, n_bytes: int) -> str:
        """Read a text up to its closing zero; bytes that are not UTF-8 are replaced."""
        if n_bytes > MAX_TEXT_BYTES:
            raise damaged(
                self.path.name, f"a name has {n_bytes:,} bytes; allowed are {MAX_TEXT_BYTES:,}"
            )
        start = self.skip(n_bytes)
        text = self.data[start : self.position].decode("utf-8", errors="replace")
        return text.partition("\0")[0]

    def entry(
        self, name: str, shape: tuple[int, ...], type: str, n_bytes: int, needed: int
    ) -> TensorEntry:
        """Return the entry of the tensor whose data is next, and skip the data.

        Args:
            name: Name of the tensor, for messages.
            shape: Shape of the tensor.
            type: Name of its number type.
            n_bytes: Size of the data as the file states it.
            needed: Size of a tensor of this shape and type.
        """
        if n_bytes != needed:
            raise damaged(
                self.path.name,
                f"{quote(name)} of shape {shape} in {type} has {n_bytes:,} bytes, but needs "
                f"{needed:,}",
            )
        return TensorEntry(shape, type, self.path, self.skip(n_bytes), n_bytes)


@contextmanager
def open_header(path: Path) -> Iterator[Cursor]:
    """Yield a cursor at the start of a file, and close the file afterwards; errors as `reading`."""
    with (
        reading(path),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        yield Cursor(path, data)
