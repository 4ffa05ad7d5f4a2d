"""Parts of the readers of model files: named tensors, the numbers of a header, and one-line errors.

A model file can harm nobody but its owner, because hosted copies open none. Readers therefore
compare counts and sizes with the file's size, so that a damaged file cannot take much time or
memory, and leave all else to the libraries.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Unreadable, listing, quote

MAX_ENTRIES = 2**14
"""Largest number of tensors, keys or aliases of a file."""

MAX_AXES, MAX_TEXT_BYTES = 8, 2**16


COPY_AGAIN = "copy or download it again"


def damaged(file: str, reason: str, advice: str = COPY_AGAIN) -> Unreadable:
    """Return the error to raise for a file that contradicts itself."""
    return Unreadable(f"{file} is damaged: {reason}; {advice}")


def check_n_entries(file: str, n: int, what: str) -> None:
    """Raise Unreadable for a file that claims more entries of a kind than any model has."""
    if n > MAX_ENTRIES:
        raise damaged(file, f"it claims {n:,} {what}; allowed are {MAX_ENTRIES:,}")


@contextmanager
def reading(path: Path, advice: str = COPY_AGAIN) -> Iterator[None]:
    """Raise Unreadable for whatever a library raises while it reads a file.

    Args:
        path: The file.
        advice: What to do if the file is damaged, for the message.

    Raises:
        Unreadable: If the path is not a file, or the code in the context raises an error.
    """
    try:
        if not path.is_file():  # opening a pipe would wait for ever
            raise Unreadable(f"{path.name} is not a file; give the path of a model's file")
        yield
    except Unreadable:
        raise
    except OSError as error:
        reason = error.strerror or _line(error)
        raise Unreadable(f"{path.name}: cannot be opened ({reason})") from error
    except Exception as error:  # which one depends on the library and on the damage
        raise damaged(path.name, _line(error), advice) from error


def _line(error: Exception) -> str:
    """Return a library's message on one line, without paths of this machine."""
    message = re.sub(r"[^\s'\"]*[/\\]", "", str(error)[:500])
    line = " ".join("".join(c if c.isprintable() else " " for c in message[:160]).split())
    return line.rstrip(".") or "it cannot be read"


@dataclass(frozen=True)
class TensorEntry:
    """Place and type of a tensor in a file.

    Attributes:
        shape: Shape.
        type: Name of the number type in the file's format, such as "Q4_1".
        offset: First byte, from the start of the file.
        n_bytes: Size in bytes.
    """

    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int


@dataclass(frozen=True, eq=False)
class BinaryFile:
    """File whose header has been read.

    Attributes:
        path: The file.
        entries: Entry of every tensor, by name.
    """

    path: Path
    entries: Mapping[str, TensorEntry]

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor, by name."""
        return {name: entry.shape for name, entry in self.entries.items()}

    def read_bytes(self, name: str) -> np.ndarray:
        """Read the bytes of a tensor; the file is open only during this call.

        Raises:
            Unreadable: If the tensor is missing, or the file has become shorter or was deleted.
        """
        check_has(self.path, name, self.entries)
        entry = self.entries[name]
        with reading(self.path):
            raw = np.fromfile(self.path, np.uint8, count=entry.n_bytes, offset=entry.offset)
        if len(raw) != entry.n_bytes:
            raise Unreadable(
                f"{self.path.name} has become shorter: {quote(name)} is no longer in it"
            )
        return raw


def check_has(path: Path, name: str, names: Mapping[str, object]) -> None:
    """Raise Unreadable if a tensor is not among those of a file."""
    if name not in names:
        raise Unreadable(f"{path.name} has no tensor {quote(name)}; it has {listing(names)}")


@dataclass
class Cursor:
    """Position in a file, which every method moves forward.

    All methods raise Unreadable if the file ends too early.

    Attributes:
        name: Name of the file in messages.
        data: Memory map of the file, so that only the bytes that are used are read.
        position: Offset of the next byte, from the start of the file.
    """

    name: str
    data: mmap.mmap
    position: int = 0

    def skip(self, n_bytes: int) -> int:
        """Move `n_bytes` forward and return the previous position."""
        start, end = self.position, self.position + n_bytes
        if end > len(self.data):
            raise damaged(
                self.name, f"it ends at byte {len(self.data):,}, but byte {end:,} is needed"
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
        check_n_entries(self.name, n, what)
        return n

    def shape(self, code: str, rank: int) -> tuple[int, ...]:
        """Read the sides of a tensor, which are integers of the type with this `struct` code."""
        if rank > MAX_AXES:
            raise damaged(self.name, f"a tensor has rank {rank:,}; allowed are 0 to {MAX_AXES}")
        return tuple(self.number(code) for _ in range(rank))

    def text(self, n_bytes: int) -> str:
        """Read a text up to its closing zero; bytes that are not UTF-8 are replaced."""
        if n_bytes > MAX_TEXT_BYTES:
            raise damaged(
                self.name, f"a name has {n_bytes:,} bytes; allowed are {MAX_TEXT_BYTES:,}"
            )
        start = self.skip(n_bytes)
        text = self.data[start : self.position].decode("utf-8", errors="replace")
        return text.partition("\0")[0]


@contextmanager
def open_header(path: Path) -> Iterator[Cursor]:
    """Yield a cursor at the start of a file, and close the file afterwards; errors as `reading`."""
    with (
        reading(path),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        yield Cursor(path.name, data)


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
