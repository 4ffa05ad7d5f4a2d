"""Leases: the tabs that watch jobs, and since when nobody has watched one."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnkit.service.jobs import NOBODY, Watcher

WATCHED_SECONDS = 15.0
"""Time during which a tab that has looked at a job counts as watching it."""


@dataclass
class Leases:
    """Times at which tabs have looked at jobs, all in seconds on one clock.

    An open tab keeps watching the jobs that it has looked at, whatever page it shows and however
    rarely a browser lets it look. A tab that is not known to be open has to look again and again.
    `NOBODY` holds a lease as well, but does not count as a watcher.
    """

    _seen: dict[str, dict[Watcher, float]] = field(default_factory=dict)  # by job
    _closed_at: dict[str, float] = field(default_factory=dict)  # by tab; infinite while it is open

    def arrive(self, tab: str) -> None:
        """Note that a tab is open."""
        self._closed_at[tab] = float("inf")

    def leave(self, tab: str, now: float) -> None:
        """Note that a tab is closed, perhaps for a moment only."""
        if tab in self._closed_at:
            self._closed_at[tab] = now

    def look(self, job: str, watcher: Watcher, now: float) -> None:
        """Note that a watcher looks at a job."""
        self._seen.setdefault(job, {})[watcher] = now

    def turn_away(self, job: str, watcher: Watcher) -> None:
        """Remove a watcher from a job, and closed tabs of the same visitor as well."""
        seen = self._seen.get(job, {})
        for other in list(seen):
            closed = self._closed_at.get(other.tab, 0.0) < float("inf")
            if other == watcher or (closed and watcher.visitor == other.visitor != ""):
                del seen[other]

    def watched_until(self, job: str) -> float:
        """Return when a job was last watched; infinite if one of its tabs is open."""
        return max(self._times(job).values(), default=0.0)

    def left_at(self, job: str) -> float:
        """Return when the last tab that watched a job was closed.

        Infinite if one is still open, if a program watches the job, or if nobody ever has.
        """
        seen = self._seen.get(job, {})
        return max((self._closed_at.get(w.tab, float("inf")) for w in seen), default=float("inf"))

    def n_watchers(
        self, job: str, now: float, but: Watcher = NOBODY, within: float = WATCHED_SECONDS
    ) -> int:
        """Return the number of tabs that have watched a job lately.

        Args:
            job: The job.
            now: The present time.
            but: A tab that does not count, nor closed tabs of its visitor.
            within: Seconds within which a tab must have watched the job.
        """
        return sum(
            at > now - within and other not in (NOBODY, but)
            for other, at in self._times(job).items()
            if at == float("inf") or not but.visitor or other.visitor != but.visitor
        )

    def forget(self, job: str) -> None:
        """Forget a job."""
        self._seen.pop(job, None)

    def forget_tabs(self, left_before: float) -> None:
        """Forget tabs that were closed before a time."""
        self._closed_at = {tab: at for tab, at in self._closed_at.items() if at >= left_before}
        for job, seen in self._seen.items():
            times = self._times(job)
            for watcher in [watcher for watcher in seen if times[watcher] < left_before]:
                del seen[watcher]

    def _times(self, job: str) -> dict[Watcher, float]:
        """Return the time until which each watcher has watched a job."""
        return {
            watcher: max(at, self._closed_at.get(watcher.tab, at))
            for watcher, at in self._seen.get(job, {}).items()
        }
