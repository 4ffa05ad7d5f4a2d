"""Models that visitors have measured, kept for as long as the server runs."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict

from attnkit.realmodels.atlas import Atlas
from attnkit.ui.singletons import Singleton

MOST_ATLASES, MOST_BYTES = 20, 2**27
"""Limits of what one server keeps; beyond them, the least recently opened is dropped first."""

_ID_BYTES = 16


class MeasuredModels:
    """Atlases by ids that nobody can guess, so that only a link with the id shows one.

    Several threads may use it at once.

    Args:
        most: Largest number of atlases.
        most_bytes: Largest size of all atlases together.
    """

    def __init__(self, most: int = MOST_ATLASES, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Atlas] = OrderedDict()

    def keep(self, atlas: Atlas) -> str:
        """Keep an atlas under a new id, and return the id; "" if the atlas alone is too large."""
        if size_of(atlas) > self._most_bytes:
            return ""
        key = secrets.token_urlsafe(_ID_BYTES)
        with self._lock:
            self._kept[key] = atlas
            while len(self._kept) > self._most or self._n_bytes() > self._most_bytes:
                self._kept.popitem(last=False)
        return key

    def get(self, key: str) -> Atlas | None:
        """Return the atlas of an id; None if there is none, or none any more."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _n_bytes(self) -> int:
        return sum(map(size_of, self._kept.values()))


def size_of(atlas: Atlas) -> int:
    """Return the bytes that an atlas takes in memory."""
    table = int(atlas.table.memory_usage(deep=True).sum())
    return table + sum(array.nbytes for array in atlas.arrays.values())


measured_models = Singleton(MeasuredModels)
"""The measured models of this server."""
