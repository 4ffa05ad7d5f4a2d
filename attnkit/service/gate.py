"""A door with a secret: few guesses a day, and nobody who guesses keeps the owner out.

Guesses are slowed down twice. An address that was wrong waits, twice as long after each wrong
secret. And all addresses together queue in two lanes, one for addresses that were not wrong within
a day and one for the others; each lane lets one attempt through every `LANE_SECONDS`. So fewer than
173,000 secrets are compared in a day, from however many addresses, and whoever guesses does not
stand in the lane of those who did not.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

LANE_SECONDS = 1.0
"""Between two attempts in one lane."""

LONGEST_DELAY = 10.0
"""Seconds that an attempt may wait in its lane; what would wait for longer is not looked at."""

FIRST_WAIT = 2.0
"""Seconds that an address waits after its first wrong secret; doubled by each further one."""

LONGEST_WAIT = 600.0

DAY = 86400.0

MOST_ADDRESSES = 10_000
"""Addresses that are remembered; beyond it those that were wrong longest ago are forgotten."""


@dataclass
class _Guesser:
    """An address that was wrong: how often, when last, and until when it waits."""

    wrong: int = 0
    at: float = 0.0
    until: float = 0.0


class Gate:
    """Opens for one secret. Safe to use from many threads.

    Args:
        secret: What opens it; nothing does if it is empty.
        clock: Seconds that never go back.
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
        self._guessers: dict[str, _Guesser] = {}  # the one that was wrong last stands last
        self._lanes = {False: float("-inf"), True: float("-inf")}  # when each is free again
        self._lock = threading.Lock()

    def opens(self, secret: str, address: str = "") -> bool:
        """Return whether a secret is right, after a delay if others try, too.

        While `shut_seconds` of the address is above 0, no secret is looked at.

        Args:
            secret: What was typed.
            address: Where it comes from.
        """
        with self._lock:
            now = self._clock()
            if not self._secret or self._wait(address, now) > 0:
                return False
            known = self._guesser(address, now)
            begins = max(now, self._lanes[known.wrong > 0])
            self._lanes[known.wrong > 0] = begins + LANE_SECONDS
            right = hmac.compare_digest(secret.encode("utf-8", "replace"), self._secret)
            self._guessers.pop(address, None)
            if not right:
                self._note_wrong(address, known, begins)
        self._sleep(begins - now)
        return right

    def shut_seconds(self, address: str = "") -> float:
        """Return for how long nothing from an address is looked at; 0 if it may try."""
        with self._lock:
            return self._wait(address, self._clock())

    def _wait(self, address: str, now: float) -> float:
        known = self._guesser(address, now)
        return max(0.0, known.until - now, self._lanes[known.wrong > 0] - LONGEST_DELAY - now)

    def _guesser(self, address: str, now: float) -> _Guesser:
        known = self._guessers.get(address)
        return known if known is not None and now < known.at + DAY else _Guesser()

    def _note_wrong(self, address: str, known: _Guesser, at: float) -> None:
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(known.wrong, 30))
        while len(self._guessers) >= MOST_ADDRESSES:
            del self._guessers[next(iter(self._guessers))]
        self._guessers[address] = _Guesser(known.wrong + 1, at, at + wait)
