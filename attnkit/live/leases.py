"""Which tabs care for which jobs, and since when none does."""

from __future__ import annotations

from dataclasses import dataclass, field

WATCHED_SECONDS = 15.0
"""Whoever has looked at a job within so long watches it."""


@dataclass
class Leases:
    """Who has looked at which job; times are those of one clock, in seconds.

    The empty name stands for whoever is no tab: it holds a lease, but is no watcher.

    A tab that is there keeps what it has looked at, whatever page it shows and however rarely a
    browser lets it ask. One that is not known to be there must look again and again.
    """

    _seen: dict[str, dict[str, float]] = field(default_factory=dict)
    _present: dict[str, float] = field(default_factory=dict)

    def arrive(self, tab: str) -> None:
        """A tab is there."""
        self._present[tab] = float("inf")

    def leave(self, tab: str, now: float) -> None:
        """A tab is gone, perhaps for a moment only."""
        if tab in self._present:
            self._present[tab] = now

    def look(self, job: str, tab: str, now: float) -> None:
        """A tab looks at a job."""
        self._seen.setdefault(job, {})[tab] = now

    def turn_away(self, job: str, tab: str) -> None:
        """A tab does not care for a job any more."""
        self._seen.get(job, {}).pop(tab, None)

    def watched_until(self, job: str) -> float:
        """When a job was last watched; infinite if a tab that cares for it is there."""
        return max(self._times(job).values(), default=0.0)

    def n_watchers(self, job: str, now: float, *, but: str = "") -> int:
        """Tabs that watch a job, without one of them."""
        return sum(
            at > now - WATCHED_SECONDS
            for tab, at in self._times(job).items()
            if tab not in ("", but)
        )

    def forget(self, job: str) -> None:
        """Nobody will ask for a job any more."""
        self._seen.pop(job, None)

    def forget_tabs(self, left_before: float) -> None:
        """Tabs that were gone by then do not come back."""
        self._present = {tab: left for tab, left in self._present.items() if left >= left_before}

    @property
    def n_tabs(self) -> int:
        """Tabs that are there, or were a moment ago."""
        return len(self._present)

    def _times(self, job: str) -> dict[str, float]:
        """By tab, until when it watched."""
        return {
            tab: max(at, self._present.get(tab, at)) for tab, at in self._seen.get(job, {}).items()
        }
