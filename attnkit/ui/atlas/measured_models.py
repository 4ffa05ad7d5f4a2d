"""Models that visitors have measured, kept for as long as the server runs."""

from __future__ import annotations

import secrets

from attnkit.realmodels.atlas import Atlas
from attnkit.ui.cache import Cache
from attnkit.ui.server.service import Singleton

MOST_ATLASES, MOST_BYTES = 20, 2**27
"""Limits of what one server keeps; beyond them, the least recently opened is dropped first."""

_ID_BYTES = 16


def keep_measured(atlas: Atlas) -> str:
    """Keep an atlas under a new id, and return the id; "" if the atlas alone is too large.

    Nobody can guess the id, so that only a link with it shows the atlas.
    """
    key = secrets.token_urlsafe(_ID_BYTES)
    measured_models().put(key, atlas)
    return key if measured_models().get(key) is not None else ""


def size_of(atlas: Atlas) -> int:
    """Return the bytes that an atlas takes in memory."""
    table = int(atlas.table.memory_usage(deep=True).sum())
    return table + sum(array.nbytes for array in atlas.arrays.values())


@Singleton
def measured_models() -> Cache[Atlas]:
    """Return the measured models of this server, by their ids."""
    return Cache(MOST_ATLASES, MOST_BYTES, size_of)
