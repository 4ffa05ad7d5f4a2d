"""Models that visitors have measured, kept for as long as the server runs."""

from __future__ import annotations

import secrets

from attnkit.realmodels.atlas import Atlas
from attnkit.ui.cache import Cache
from attnkit.ui.server.singletons import Singleton

MOST_ATLASES, MOST_BYTES = 20, 2**27
"""Limits of what one server keeps; beyond them, the least recently opened is dropped first."""

_ID_BYTES = 16


class MeasuredModels:
    """Atlases by ids that nobody can guess, so that only a link with the id shows one.

    Args:
        most: Largest number of atlases.
        most_bytes: Largest size of all atlases together.
    """

    def __init__(self, most: int = MOST_ATLASES, most_bytes: int = MOST_BYTES) -> None:
        self._kept: Cache[Atlas] = Cache(most, most_bytes, size_of)
        self.get = self._kept.get

    def keep(self, atlas: Atlas) -> str:
        """Keep an atlas under a new id, and return the id; "" if the atlas alone is too large."""
        key = secrets.token_urlsafe(_ID_BYTES)
        self._kept.put(key, atlas)
        return key if self.get(key) is not None else ""


def size_of(atlas: Atlas) -> int:
    """Return the bytes that an atlas takes in memory."""
    table = int(atlas.table.memory_usage(deep=True).sum())
    return table + sum(array.nbytes for array in atlas.arrays.values())


measured_models = Singleton(MeasuredModels)
"""The measured models of this server."""
