"""Gate of the owner's page, which slows down whoever guesses its secret."""

import hmac
import threading
import time

LONGEST_DELAY, LONGEST_WAIT, MOST_ADDRESSES = 10.0, 600.0, 10_000


class Gate:
    """Gate that opens for one secret, with at most one attempt a second. Safe in many threads.

    After a wrong secret its address must wait for 2 seconds, then twice as long each time. If the
    secret is empty, the gate never opens.
    """

    def __init__(self, secret: str) -> None:
        self._secret, self._lock, self._free_at = secret.encode(), threading.Lock(), 0.0
        self._guessers: dict[str, tuple[int, float]] = {}  # wrong secrets, end of the wait

    def opens(self, secret: str, address: str = "") -> bool:
        """Return whether a secret is right, after earlier attempts; while shut, none is."""
        with self._lock:
            now = time.monotonic()
            if not self._secret or self._shut_seconds(address, now) > 0:
                return False
            begins = max(now, self._free_at)
            self._free_at = begins + 1.0
            right = hmac.compare_digest(secret.encode("utf-8", "replace"), self._secret)
            n_wrong = self._guessers.pop(address, (0, 0.0))[0] + 1
            if not right:
                wait = min(LONGEST_WAIT, 2.0 ** min(n_wrong, 10))
                self._guessers[address] = n_wrong, begins + wait
            if len(self._guessers) > MOST_ADDRESSES:
                del self._guessers[next(iter(self._guessers))]
        time.sleep(begins - now)
        return right

    def shut_seconds(self, address: str = "") -> float:
        """Return for how many seconds every secret of an address is refused."""
        with self._lock:
            return self._shut_seconds(address, time.monotonic())

    def _shut_seconds(self, address: str, now: float) -> float:
        until = max(self._free_at - LONGEST_DELAY, self._guessers.get(address, (0, 0.0))[1])
        return max(0.0, until - now)
