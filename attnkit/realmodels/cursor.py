"""A binary file's header, read strictly: nothing is taken that is not there.

A header says how much of everything follows; a damaged or hostile one says too much. Every length
is compared with what the file still has before anything is made for it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from attnkit.realmodels.base import Unreadable, shown


def damaged(file: str, why: str) -> Unreadable:
    """What to raise of a file that contradicts itself."""
    return Unreadable(f"{file} is damaged: {why}; copy or download it again")


@dataclass
class Cursor:
    """A place in a file's bytes, moved on by what is taken.

    Attributes:
        name: of the file, in messages.
        data: all its bytes; a map of it, so that only those looked at are read.
        at: the place, in bytes from the start.
    """

    name: str
    data: mmap.mmap
    at: int = 0

    @property
    def left(self) -> int:
        """How many bytes follow."""
        return len(self.data) - self.at

    def skip(self, n: int, what: str) -> int:
        """Goes n bytes on, and says where it was."""
        if n > self.left:
            raise damaged(
                self.name,
                f"{what} at byte {self.at:,} would need {n:,} bytes, and {self.left:,} are left",
            )
        start, self.at = self.at, self.at + n
        return start

    def number(self, form: struct.Struct, what: str) -> int:
        """One whole number."""
        value: int = form.unpack_from(self.data, self.skip(form.size, what))[0]
        return value

    def numbers(self, form: str, n: int, what: str) -> tuple[int, ...]:
        """N whole numbers, of a type that struct names; little-endian."""
        size = struct.calcsize("<" + form)
        return struct.unpack_from(f"<{n}{form}", self.data, self.skip(n * size, what))

    def text(self, n: int, what: str) -> str:
        """N bytes as text; what is no UTF-8 is replaced."""
        start = self.skip(n, what)
        return self.data[start : start + n].decode("utf-8", errors="replace")


@contextmanager
def header(path: Path) -> Iterator[Cursor]:
    """A cursor at the start of a file, which is closed after.

    Raises:
        Unreadable: if it is not a file, is empty, or may not be read.
    """
    if not path.is_file():  # nor a pipe, which would wait for ever
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


def stretch(path: Path, start: int, n: int, name: str) -> np.ndarray:
    """N bytes of a file; it is open only meanwhile.

    Raises:
        Unreadable: if the file has become shorter, or is gone.
    """
    try:
        raw = np.fromfile(path, np.uint8, count=n, offset=start)
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error
    if len(raw) != n:
        raise Unreadable(f"{path.name} has become shorter: {shown(name)} is no longer in it")
    return raw


def finite(values: Float[np.ndarray, "..."], file: str, name: str) -> Float[np.ndarray, "..."]:
    """The same values, if every one is a number.

    Raises:
        Unreadable: if there is none, or one is infinite or not a number.
    """
    if not values.size:
        raise damaged(file, f"{shown(name)} has no values")
    # A sum in double precision tells without a mask as large as the matrix.
    with np.errstate(invalid="ignore"):
        total = values.sum(dtype=np.float64)
    if not np.isfinite(total):
        raise damaged(file, f"{shown(name)} has values that are infinite or not a number")
    return values
