"""Turns at a processor that several threads share, such as those that draw pages."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from attnkit.service.fair_shares import NestedShares


@dataclass
class _Waiting:
    """A thread that waits; the result is whether it has the turn."""

    thread: threading.Thread = field(default_factory=threading.current_thread)
    has_turn: Future[bool] = field(default_factory=Future)


class ThreadTurns:
    """Turns for threads, few at a time; the thread whose address has used least time comes next.

    Python runs one thread at a time, so more threads at once only make everybody wait longer.
    Safe to use from many threads. The turn of a thread that has ended is free.

    Args:
        at_once: Number of threads that work at the same time, at most.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once, self._lock = at_once, threading.Lock()
        self._shares = NestedShares()
        self._waiting: dict[tuple[str, ...], _Waiting] = {}  # the oldest first
        self._working: set[threading.Thread] = set()

    def begin(self, address: str, member: str) -> bool:
        """Wait for a turn; return False if the same member has asked again meanwhile.

        Args:
            address: Address whose share it counts for.
            member: Name of who works for the address, such as a session. Members share its turns.
        """
        waiting = _Waiting()
        with self._lock:
            late = self._waiting.pop((address, member), None)
            if late is not None:
                late.has_turn.set_result(False)
            self._waiting[address, member] = waiting
            self._grant()
        return waiting.has_turn.result()

    def end(self, address: str, member: str, seconds: float) -> None:
        """End the turn of the present thread.

        Args:
            address: Address as at its beginning.
            member: Member as at its beginning.
            seconds: Processor time that was used.
        """
        with self._lock:
            self._working.discard(threading.current_thread())
            self._shares.charge((address, member), seconds)
            self._grant()

    def n_waiting(self, address: str) -> int:
        """Return the number of threads of an address that wait for a turn."""
        with self._lock:
            return sum(of == address for of, *_ in self._waiting)

    def _grant(self) -> None:
        """Give turns to waiting threads while there are free ones."""
        self._working = {thread for thread in self._working if thread.is_alive()}
        while self._waiting and len(self._working) < self._at_once:
            waiting = self._waiting.pop(self._shares.next(self._waiting))
            self._working.add(waiting.thread)
            waiting.has_turn.set_result(True)
