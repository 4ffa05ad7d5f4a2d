"""Parts of the sentences that the views conclude with: names, verbs and shares in percent.

The sentences are values of a result's header, one for every frame, so that the browser only shows
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attnkit.training.summary import percent

Sentences = dict[str, list[Any]]
"""Text, or texts of all variants, for each frame, by name of the figure that shows them."""

MOST_NAMED = 4
"""Most variants that a sentence names one by one."""


def listed(names: Sequence[str]) -> str:
    """Return names as a list to be read aloud; of many, only how many variants they are."""
    if len(names) > MOST_NAMED:
        return f"{len(names)} variants"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def everyone(names: Sequence[str]) -> str:
    """Return the subject of a sentence about all variants."""
    return {1: names[0], 2: "Both variants"}.get(len(names), f"All {len(names)} variants")


def verb(subjects: Sequence[Any], one: str, several: str) -> str:
    """Return the form of a verb that agrees with the number of subjects."""
    return one if len(subjects) == 1 else several


def percents(shares: Iterable[float]) -> str:
    """Return shares in percent: one number if all are alike, else the lowest and the highest."""
    known = [share for share in shares if np.isfinite(share)]
    if not known:
        return ""
    low, high = percent(min(known)), percent(max(known))
    return low if low == high else f"{low} to {high}"
