"""Gate of the owner's page, which slows down guesses without locking out the owner.

Guesses are slowed down twice. An address that has typed a wrong secret must wait, twice as long
after each wrong one. And the attempts of all addresses queue in two lanes, one for addresses
without a wrong secret within a day and one for the others; each lane lets one attempt through every
`LANE_SECONDS`. So fewer than 173,000 secrets are compared in a day, from however many addresses,
and the owner does not queue behind those who guess.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

LANE_SECONDS = 1.0
"""Time between two attempts in one lane."""

LONGEST_DELAY = 10.0
"""Longest wait in a lane; an attempt that would wait for longer is refused."""

FIRST_WAIT = 2.0
"""Wait of an address after its first wrong secret; doubled by each further one."""

LONGEST_WAIT = 600.0
"""Longest wait of an address after a wrong secret."""

DAY = 86400.0
"""Time after which a wrong secret is forgotten."""

MOST_ADDRESSES = 10_000
"""Number of addresses that are remembered; those with the oldest wrong secret are forgotten."""


@dataclass
class _Guesser:
    """Wrong secrets of one address.

    Attributes:
        n_wrong: Number of wrong secrets.
        at: Time of the last one.
        until: Time until which the address must wait.
    """

    n_wrong: int = 0
    at: float = 0.0
    until: float = 0.0


class Gate:
    """Gate that opens for one secret. Safe to use from many threads.

    Args:
        secret: The secret; if it is empty, the gate never opens.
        clock: Returns seconds that never go back.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        secret: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._secret = secret.encode()
        self._clock, self._sleep = clock, sleep
        self._guessers: dict[str, _Guesser] = {}  # by address, the last wrong one last
        # time when a lane is free: of addresses without (False) and with (True) a wrong secret
        self._lanes = {False: float("-inf"), True: float("-inf")}
        self._lock = threading.Lock()

    def opens(self, secret: str, address: str = "") -> bool:
        """Return whether a secret is right, after a delay if others try at the same time.

        While `shut_seconds` of the address is above 0, every secret is refused.

        Args:
            secret: Text that was typed.
            address: Address that it comes from.
        """
        with self._lock:
            now = self._clock()
            if not self._secret or self._wait(address, now) > 0:
                return False
            guesser = self._guesser(address, now)
            begins = max(now, self._lanes[guesser.n_wrong > 0])
            self._lanes[guesser.n_wrong > 0] = begins + LANE_SECONDS
            right = hmac.compare_digest(secret.encode("utf-8", "replace"), self._secret)
            self._guessers.pop(address, None)
            if not right:
                self._note_wrong(address, guesser, begins)
        self._sleep(begins - now)
        return right

    def shut_seconds(self, address: str = "") -> float:
        """Return for how many seconds an address must wait; 0 if it may try now."""
        with self._lock:
            return self._wait(address, self._clock())

    def _wait(self, address: str, now: float) -> float:
        guesser = self._guesser(address, now)
        wait_in_lane = self._lanes[guesser.n_wrong > 0] - LONGEST_DELAY - now
        return max(0.0, guesser.until - now, wait_in_lane)

    def _guesser(self, address: str, now: float) -> _Guesser:
        guesser = self._guessers.get(address)
        return guesser if guesser is not None and now < guesser.at + DAY else _Guesser()

    def _note_wrong(self, address: str, guesser: _Guesser, at: float) -> None:
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(guesser.n_wrong, 30))
        while len(self._guessers) >= MOST_ADDRESSES:
            del self._guessers[next(iter(self._guessers))]
        self._guessers[address] = _Guesser(guesser.n_wrong + 1, at, at + wait)
