"""Fair shares of processor time: who comes next, by the seconds that each has used.

Start-time fair queueing (Goyal, Vin and Cheng, 1996), with the measured seconds of each piece of
work instead of announced ones. Whoever has used least comes next. One who was away enters level
with the others: neither the time before nor the time away counts. Only the work that is not yet
made up for counts, so nobody gains by leaving and coming back.
"""

from __future__ import annotations

from collections.abc import Iterable


class FairShares:
    """Seconds used by each of several names, which stand for addresses, jobs or connections."""

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


class AddressShares:
    """Fair shares of addresses and, within each address, of its jobs, requests or connections."""

    def __init__(self) -> None:
        self._addresses = FairShares()
        self._members: dict[str, FairShares] = {}

    def next(self, waiting: Iterable[tuple[str, str]]) -> tuple[str, str]:
        """Return the waiting address and its waiting member that come next.

        Raises:
            ValueError: If nobody waits.
        """
        by_address: dict[str, list[str]] = {}
        for address, member in waiting:
            by_address.setdefault(address, []).append(member)
        address = self._addresses.next(by_address)
        self._members = {
            name: members
            for name, members in self._members.items()
            if name in by_address or self._addresses.owes(name)
        }
        members = self._members.setdefault(address, FairShares())
        return address, members.next(by_address[address])

    def charge(self, address: str, member: str, seconds: float) -> None:
        """Count seconds of work for a member and its address."""
        self._addresses.charge(address, seconds)
        self._members.setdefault(address, FairShares()).charge(member, seconds)
