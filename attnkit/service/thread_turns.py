"""Turns at a processor that several threads share, such as those that draw pages."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future

from attnkit.service.fair_shares import AddressShares


class ThreadTurns:
    """Turns for threads, few at a time; the thread whose address has used least time comes next.

    Python runs one thread at a time, so more threads at once only make everybody wait longer.
    Safe to use from many threads.

    Args:
        at_once: Number of threads that work at the same time, at most.
        of_address: Number of threads of one address that work at the same time, at most, while no
            other address waits or works. Otherwise it is one.
    """

    def __init__(self, at_once: int, of_address: int) -> None:
        self._at_once, self._of_address = at_once, of_address
        self._lock = threading.Lock()
        self._shares = AddressShares()
        self._waiting: dict[tuple[str, str], Future[bool]] = {}  # the oldest first
        self._working: Counter[str] = Counter()  # by address

    def begin(self, address: str, member: str) -> bool:
        """Wait for a turn; return False if the same member has asked again meanwhile.

        Args:
            address: Address whose share it counts for.
            member: Name of who works for the address, such as a session. Members share its turns.
        """
        granted = Future[bool]()
        with self._lock:
            late = self._waiting.pop((address, member), None)
            if late is not None:
                late.set_result(False)
            self._waiting[address, member] = granted
            self._grant()
        return granted.result()

    def end(self, address: str, member: str, seconds: float) -> None:
        """End a turn.

        Args:
            address: Address as at its beginning.
            member: Member as at its beginning.
            seconds: Processor time that was used.
        """
        with self._lock:
            self._working[address] -= 1
            self._working += Counter()  # without those at 0
            self._shares.charge(address, member, seconds)
            self._grant()

    def _grant(self) -> None:
        """Give turns to waiting threads while there are free ones."""
        while self._working.total() < self._at_once:
            addresses = {address for address, _ in self._waiting} | {*self._working}
            most = self._of_address if len(addresses) == 1 else 1
            ready = [key for key in self._waiting if self._working[key[0]] < most]
            if not ready:
                return
            chosen = self._shares.next(ready)
            self._working[chosen[0]] += 1
            self._waiting.pop(chosen).set_result(True)
