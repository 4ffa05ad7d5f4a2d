"""Words of sentences about several things: lists of names, counts, and verbs that agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

MOST_NAMED = 5
"""Most things that a sentence names one by one."""


def listed(names: Iterable[str], last: str = "and") -> str:
    """Return names as in a sentence: "a", "a and b", "a, b and c"; empty if there are none."""
    *others, final = [*names] or [""]
    return f"{', '.join(others)} {last} {final}" if others else final


def named(names: Sequence[str]) -> str:
    """Return the names of variants as a list; of many, only how many they are."""
    return listed(names) if len(names) <= MOST_NAMED else f"{len(names)} variants"


def shortened(texts: Sequence[str]) -> Sequence[str]:
    """Return the first texts and the number of all others, if there are many."""
    if len(texts) <= MOST_NAMED:
        return texts
    return [*texts[: MOST_NAMED - 1], f"{len(texts) - MOST_NAMED + 1} others"]


def all_of(names: Sequence[str]) -> str:
    """Return the subject of a sentence about all variants, such as "both variants"."""
    return {1: names[0], 2: "both variants"}.get(len(names), f"all {len(names)} variants")


def verb(subjects: Sequence[Any], one: str, several: str) -> str:
    """Return the form of a verb that agrees with the number of subjects."""
    return one if len(subjects) == 1 else several


def counted(number: int, noun: str) -> str:
    """Return a number of things, such as "1 seed" or "1,200 steps"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def numbers_kept(number: float | None) -> str:
    """Return how many numbers a decoder keeps, which is unknown (None or NaN) of some modules."""
    known = number is not None and number == number
    return f"{number:,.0f}" if known else "an unknown number of"


def capitalised(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]
