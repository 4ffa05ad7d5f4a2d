"""Names as people type them, in any writing, without characters that nobody sees."""

from __future__ import annotations

import re
import unicodedata

MOST_MARKS = 30
"""Largest number of marks on one letter that are kept; composing takes the square of it."""

_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of invisible characters and of those that change the writing direction."""

_JOINER = re.compile("(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])")
"""Joiners inside an emoji or a word of a writing that needs them."""


def composed(text: str) -> str:
    """Return the composed form of a text, with at most `MOST_MARKS` marks on each letter."""
    kept, n_marks = [], 0
    for letter in text:
        n_marks = n_marks + 1 if unicodedata.combining(letter) else 0
        if n_marks <= MOST_MARKS:
            kept.append(letter)
    return unicodedata.normalize("NFC", "".join(kept))


def without_controls(text: str) -> str:
    """Remove invisible characters and those that change the writing direction; keep tabs."""
    return "".join(
        letter for letter in text if letter == "\t" or unicodedata.category(letter) not in _HIDDEN
    )


def as_typed(text: str) -> str:
    """Return a name on one line: composed, spaces made single, hidden characters removed.

    Joiners stay where emoji and writings other than ASCII need them.
    """
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    pieces = _JOINER.split(" ".join(text.split()))
    joiners = _JOINER.findall(" ".join(text.split()))
    visible = [without_controls(piece) for piece in pieces]
    parts = [visible[0], *(j + piece for j, piece in zip(joiners, visible[1:], strict=True))]
    name = " ".join(composed("".join(parts)).split())
    return name if name == text else as_typed(name)  # a joiner may have lost what it joined
