"""Fair shares of processor time: who comes next, by the seconds that each has used.

Start-time fair queueing (Goyal, Vin and Cheng, 1996), with the measured seconds of each piece of
work instead of announced ones. Whoever has used least comes next. One who was away enters level
with the others: neither the time before nor the time away counts. Only the work that is not yet
made up for counts, so nobody gains by leaving and coming back.
"""

from __future__ import annotations

from collections.abc import Iterable


class FairShares:
    """Seconds used by each of several names, which stand for addresses, jobs or sessions."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}  # only of names that are ahead of `_now`
        self._now = 0.0  # seconds used by the name that came last when it came

    def next(self, waiting: Iterable[str]) -> str:
        """Return the waiting name that has used least; among equal ones, the first.

        Raises:
            ValueError: If nobody waits.
        """
        name = min(waiting, key=self.used)
        self._now = self.used(name)
        self._used = {other: used for other, used in self._used.items() if used > self._now}
        return name

    def owes(self, name: str) -> bool:
        """Return whether a name has used more than the name that came last."""
        return self._used.get(name, 0.0) > self._now

    def used(self, name: str) -> float:
        """Return the seconds that count as used by a name."""
        return max(self._used.get(name, 0.0), self._now)

    def charge(self, name: str, seconds: float) -> None:
        """Count seconds of work for a name."""
        self._used[name] = self.used(name) + seconds


class NestedShares:
    """Fair shares of names within names: of addresses, and within each, of its jobs or sessions.

    A path says whose work it is, such as ("198.51.100.7", "answers", "visitor 3"). On every level,
    those who wait have equal shares. Paths that begin alike are equally long.
    """

    def __init__(self) -> None:
        self._shares = FairShares()
        self._within: dict[str, NestedShares] = {}

    def next(self, waiting: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the waiting path that comes next.

        Raises:
            ValueError: If nobody waits.
        """
        by_name: dict[str, list[tuple[str, ...]]] = {}
        for name, *rest in waiting:
            by_name.setdefault(name, []).append(tuple(rest))
        name = self._shares.next(by_name)
        self._within = {
            other: shares
            for other, shares in self._within.items()
            if other in by_name or self._shares.owes(other)
        }
        if not any(by_name[name]):
            return (name,)
        return name, *self._within.setdefault(name, NestedShares()).next(by_name[name])

    def charge(self, path: tuple[str, ...], seconds: float) -> None:
        """Count seconds of work on every level of a path."""
        name, *rest = path
        self._shares.charge(name, seconds)
        if rest:
            self._within.setdefault(name, NestedShares()).charge(tuple(rest), seconds)
