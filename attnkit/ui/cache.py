"""A cache that drops what was used least recently, and that several threads may use at once."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cache(Generic[T]):
    """Values by key; beyond its limits, the least recently used are dropped first.

    Args:
        most: Largest number of values.
        most_bytes: Largest size of all values together.
        size_of: Returns the size of a value in bytes.

    Attributes:
        n_bytes: Size of all values together.
    """

    def __init__(
        self, most: int, most_bytes: float = math.inf, size_of: Callable[[T], int] = lambda _: 0
    ) -> None:
        self._most, self._most_bytes, self._size_of = most, most_bytes, size_of
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self.n_bytes = 0

    def get(self, key: Hashable) -> T | None:
        """Return the value of a key; None if there is none, or none any more."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, value: T) -> T:
        """Keep a value, and return it; a value beyond the limits by itself is not kept."""
        size = self._size_of(value)
        with self._lock:
            if size > self._most_bytes:
                return value
            self.n_bytes += size - self._kept.pop(key, (value, 0))[1]
            self._kept[key] = value, size
            while len(self._kept) > self._most or self.n_bytes > self._most_bytes:
                self.n_bytes -= self._kept.popitem(last=False)[1][1]
        return value
