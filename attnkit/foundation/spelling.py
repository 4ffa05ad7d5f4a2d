"""Spelling: the known name that is spelt most like a typed one, for suggestions in messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache

_MOST_COMPARED = 4
"""Number of names that are compared with a typed one letter by letter, which takes long."""


def nearest_name(typed: str, names: Iterable[str], similarity: float = 0.6) -> str | None:
    """Return the name that is spelt most like a typed one; None if no name is similar.

    Only the names that have most letters in common with it are compared, because anybody can type
    a text that has the letters of many names.

    Args:
        similarity: Similarity from 0 to 1 that a name must have: twice the number of letters in
            common and in the same order, as a share of all letters of both.
    """
    letters = _letters(typed)
    shares = {name: _share(len(letters & _letters(name)), typed, name) for name in names}
    close = sorted((n for n in shares if shares[n] >= similarity), key=lambda n: (shares[n], n))
    nearest = difflib.get_close_matches(typed, close[-_MOST_COMPARED:], 1, similarity)
    return nearest[0] if nearest else None


def _share(n_common: int, typed: str, name: str) -> float:
    return 2 * n_common / (len(typed) + len(name) or 1)


@lru_cache(1024)
def _letters(text: str) -> frozenset[tuple[str, int]]:
    """Return the letters of a text, each with its number among equal ones."""
    return frozenset((letter, text[:i].count(letter)) for i, letter in enumerate(text))
