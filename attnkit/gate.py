"""A door with a secret: few may try, and nobody learns anything from how long an answer takes."""

from __future__ import annotations

import hmac
import threading
import time
from collections import deque
from collections.abc import Callable

MOST_WRONG = 5
"""Wrong secrets within `WINDOW_SECONDS`, whoever typed them; then the door stays shut so long."""

WINDOW_SECONDS = 60.0


class Gate:
    """Opens for one secret. Safe to use from many threads.

    Args:
        secret: what opens it; nothing does if it is empty.
        clock: seconds that never go back.
    """

    def __init__(self, secret: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._secret = secret.encode()
        self._clock = clock
        self._wrong: deque[float] = deque(maxlen=MOST_WRONG)
        self._lock = threading.Lock()

    def opens(self, secret: str) -> bool:
        """Whether a secret is right; while the gate is shut, none is."""
        with self._lock:
            if self.shut_seconds > 0 or not self._secret:
                return False
            if hmac.compare_digest(secret.encode("utf-8", "replace"), self._secret):
                self._wrong.clear()
                return True
            self._wrong.append(self._clock())
            return False

    @property
    def shut_seconds(self) -> float:
        """For how long nobody may try; 0 if anybody may."""
        if len(self._wrong) < MOST_WRONG:
            return 0.0
        now = self._clock()
        if self._wrong[-1] - self._wrong[0] > WINDOW_SECONDS:
            return 0.0
        return max(0.0, self._wrong[-1] + WINDOW_SECONDS - now)
