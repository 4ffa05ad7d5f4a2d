"""Strict reader of a binary file's header: no length in it is believed unchecked.

A header says how many names, numbers and bytes follow, and a damaged or hostile one may claim far
too many. Every length is compared with the bytes that remain in the file before memory is
allocated for it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Unreadable, quote


def damaged(file: str, reason: str) -> Unreadable:
    """Return the error to raise for a file that contradicts itself."""
    return Unreadable(f"{file} is damaged: {reason}; copy or download it again")


@dataclass
class Cursor:
    """Position in a file, which every method moves forward.

    The argument `what` of the methods names the item for error messages. All of them raise
    Unreadable if the file ends before the item does.

    Attributes:
        name: Name of the file in messages.
        data: Memory map of the file, so that only the bytes that are used are read.
        position: Offset of the next byte, from the start of the file.
    """

    name: str
    data: mmap.mmap
    position: int = 0

    @property
    def n_remaining(self) -> int:
        """Number of bytes from the position to the end of the file."""
        return len(self.data) - self.position

    def skip(self, n_bytes: int, what: str) -> int:
        """Move `n_bytes` forward and return the previous position."""
        if n_bytes > self.n_remaining:
            raise damaged(
                self.name,
                f"{what} at byte {self.position:,} needs {n_bytes:,} bytes, but only "
                f"{self.n_remaining:,} remain in the file",
            )
        start = self.position
        self.position += n_bytes
        return start

    def number(self, layout: struct.Struct, what: str) -> int:
        """Read one integer."""
        value: int = layout.unpack_from(self.data, self.skip(layout.size, what))[0]
        return value

    def numbers(self, code: str, n: int, what: str) -> tuple[int, ...]:
        """Read `n` little-endian numbers of the type with this `struct` code."""
        size = struct.calcsize("<" + code)
        return struct.unpack_from(f"<{n}{code}", self.data, self.skip(n * size, what))

    def text(self, n_bytes: int, what: str) -> str:
        """Read `n_bytes` as text; bytes that are not UTF-8 are replaced."""
        start = self.skip(n_bytes, what)
        return self.data[start : start + n_bytes].decode("utf-8", errors="replace")


@contextmanager
def open_header(path: Path) -> Iterator[Cursor]:
    """Yield a cursor at the start of a file, and close the file afterwards.

    Raises:
        Unreadable: If the path is not a file, or the file is empty or cannot be opened.
    """
    if not path.is_file():  # opening a pipe would wait for ever
        raise Unreadable(f"{path.name} is not a file; give the path of a model's file")
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            yield Cursor(path.name, data)
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"{path.name} is empty; copy or download it again") from error


def check_disjoint(file: str, places: Mapping[str, tuple[int, int]]) -> None:
    """Raise Unreadable if two tensors share bytes.

    Args:
        file: Name of the file in messages.
        places: First byte and number of bytes of every tensor, by name.
    """
    end, previous = 0, ""
    for name, (start, n_bytes) in sorted(places.items(), key=lambda item: item[1]):
        if start < end:
            raise damaged(file, f"{quote(previous)} and {quote(name)} share bytes")
        end, previous = start + n_bytes, name


def read_bytes(path: Path, start: int, n_bytes: int, tensor: str) -> np.ndarray:
    """Read the bytes of a tensor; the file is open only during this call.

    Raises:
        Unreadable: If the file has become shorter or has been deleted.
    """
    try:
        raw = np.fromfile(path, np.uint8, count=n_bytes, offset=start)
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error
    if len(raw) != n_bytes:
        raise Unreadable(f"{path.name} has become shorter: {quote(tensor)} is no longer in it")
    return raw


def check_finite(
    values: Float[np.ndarray, "..."], file: str, tensor: str
) -> Float[np.ndarray, "..."]:
    """Return the values of a tensor unchanged if all of them are finite.

    Raises:
        Unreadable: If there are no values, or one is infinite or NaN.
    """
    if not values.size:
        raise damaged(file, f"{quote(tensor)} has no values")
    # The sum in double precision is not finite if any value is not, and needs no mask in memory.
    with np.errstate(invalid="ignore"):
        total = values.sum(dtype=np.float64)
    if not np.isfinite(total):
        raise damaged(file, f"{quote(tensor)} has values that are infinite or NaN")
    return values
