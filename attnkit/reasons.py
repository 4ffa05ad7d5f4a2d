"""Reasons for what a run does, in one sentence: a placeholder that knows none."""

from __future__ import annotations

from dataclasses import dataclass

from attnkit.results import Snapshot
from attnkit.variants import Variant


@dataclass(frozen=True)
class Reason:
    """Why a variant behaves as it does.

    Attributes:
        kind: the kind of failure. sentence: one plain sentence. page: the page that shows it.
    """

    variant: Variant
    kind: str
    sentence: str
    page: str


def marked_pair(snapshot: Snapshot, seed: int) -> tuple[int, int] | None:
    """Return the query and the entry it should look at, whose mirror is wrong."""
    return None


def reason(snapshot: Snapshot, variant: Variant, seed: int) -> Reason | None:
    """Return the reason for what one variant does."""
    return None


def headline(snapshot: Snapshot, seed: int) -> Reason | None:
    """Return the reason that the page tells."""
    return None
