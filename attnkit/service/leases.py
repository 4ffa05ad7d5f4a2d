"""Which tabs care for which jobs, and since when none does."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnkit.service.jobs import NOBODY, Watcher

WATCHED_SECONDS = 15.0
"""Whoever has looked at a job within so long watches it."""


@dataclass
class Leases:
    """Who has looked at which job; times are those of one clock, in seconds.

    A tab that is there keeps what it has looked at, whatever page it shows and however rarely a
    browser lets it ask. One that is not known to be there must look again and again. The watcher
    without a tab holds a lease as well, but counts as nobody.
    """

    _seen: dict[str, dict[Watcher, float]] = field(default_factory=dict)
    _present: dict[str, float] = field(default_factory=dict)

    def arrive(self, tab: str) -> None:
        """A tab is there."""
        self._present[tab] = float("inf")

    def leave(self, tab: str, now: float) -> None:
        """A tab is gone, perhaps for a moment only."""
        if tab in self._present:
            self._present[tab] = now

    def look(self, job: str, watcher: Watcher, now: float) -> None:
        """A watcher looks at a job."""
        self._seen.setdefault(job, {})[watcher] = now

    def turn_away(self, job: str, watcher: Watcher) -> None:
        """A watcher does not care for a job any more, nor do tabs that they have left."""
        seen = self._seen.get(job, {})
        for other in list(seen):
            left = self._present.get(other.tab, 0.0) < float("inf")
            if other == watcher or (left and watcher.visitor == other.visitor != ""):
                del seen[other]

    def watched_until(self, job: str) -> float:
        """When a job was last watched; infinite if a tab that cares for it is there."""
        return max(self._times(job).values(), default=0.0)

    def left_at(self, job: str) -> float:
        """Return when the last tab that cares for a job was closed.

        Infinite if one is still there, if a program looks at the job, or if nobody ever has.
        """
        seen = self._seen.get(job, {})
        return max((self._present.get(w.tab, float("inf")) for w in seen), default=float("inf"))

    def n_watchers(
        self, job: str, now: float, but: Watcher = NOBODY, within: float = WATCHED_SECONDS
    ) -> int:
        """Tabs that have watched a job within so many seconds.

        Args:
            but: whose tab does not count, nor those that the same visitor has left.
        """
        return sum(
            at > now - within and other not in (NOBODY, but)
            for other, at in self._times(job).items()
            if at == float("inf") or not but.visitor or other.visitor != but.visitor
        )

    def forget(self, job: str) -> None:
        """Nobody will ask for a job any more."""
        self._seen.pop(job, None)

    def forget_tabs(self, left_before: float) -> None:
        """Tabs that were gone by then do not come back."""
        self._present = {tab: left for tab, left in self._present.items() if left >= left_before}
        for job, seen in self._seen.items():
            times = self._times(job)
            for watcher in [watcher for watcher in seen if times[watcher] < left_before]:
                del seen[watcher]

    def _times(self, job: str) -> dict[Watcher, float]:
        """By watcher, until when they watched."""
        return {
            watcher: max(at, self._present.get(watcher.tab, at))
            for watcher, at in self._seen.get(job, {}).items()
        }
