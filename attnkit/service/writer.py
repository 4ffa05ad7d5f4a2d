"""Writer of finished results: a thread of its own, because a database may be slow or gone."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from attnkit.experiment import Experiment
from attnkit.foundation.settings import message_of
from attnkit.service.store import ResultStore, TooLarge, Unavailable
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

RETRY_SECONDS = 2.0
"""Time between two tries while the store does not answer."""

MAX_BYTES = 2**27
"""Size of all results that wait for the store; beyond it the oldest are given up."""

UNREAD_SECONDS = 15.0
"""Time without reads after a store did not answer one, so that pages do not wait for it."""

T = TypeVar("T")


@dataclass(eq=False)
class _Waiting:
    """A result that waits for the store.

    Attributes:
        reason: The last reported reason why the store has not taken it.
    """

    job_id: str
    snapshot: bytes
    parameters: bytes
    reason: str = ""

    @property
    def n_bytes(self) -> int:
        return len(self.snapshot) + len(self.parameters)


class ResultWriter:
    """Writes results to the store, and tries again until it has taken them.

    Args:
        store: The store; None: results are not stored.
        report: Called with a job's id, the reason why the store did not take its result, and
            whether it will be tried again; with an empty reason when the store has taken it. The
            same reason is reported once.
    """

    def __init__(self, store: ResultStore | None, report: Callable[[str, str, bool], None]) -> None:
        self._store, self._report = store, report
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._reason = ""  # why the store took nothing when it was last tried
        self._read_again_at = 0.0
        self._thread = threading.Thread(target=self._run, name="attnkit-store", daemon=True)
        if store is not None:
            self._thread.start()

    @property
    def has_store(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    def write(self, job_id: str, snapshot: bytes, parameters: bytes) -> None:
        """Store a finished result as soon as the store takes it; return at once."""
        given_up: list[_Waiting] = []
        new = _Waiting(job_id, snapshot, parameters)
        with self._changed:
            self._waiting.append(new)
            while len(self._waiting) > 1 and sum(w.n_bytes for w in self._waiting) > MAX_BYTES:
                given_up.append(self._waiting.popleft())
            reason = self._reason
            self._changed.notify_all()
        for oldest in given_up:
            self._report(oldest.job_id, "too many results wait for the store", False)
        if reason:
            self._report_new(new, reason, True)

    def recall(self, experiment: Experiment) -> Snapshot | None:
        """Return the last snapshot of a stored experiment; None if there is none, or no store."""
        return self._recall(lambda store: store.snapshot(experiment.hash))

    def recall_result(self, experiment: Experiment) -> Result | None:
        """Return a stored result with its parameters; None as in `recall`."""
        return self._recall(lambda store: store.result(experiment.hash))

    def _recall(self, read: Callable[[ResultStore], T | None]) -> T | None:
        if self._store is None or time.monotonic() < self._read_again_at:
            return None
        try:
            return read(self._store)
        except Unavailable:
            self._read_again_at = time.monotonic() + UNREAD_SECONDS
            return None

    def close(self, seconds: float = 5.0) -> None:
        """Try once more to store what waits, then end the thread.

        Args:
            seconds: Longest wait.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                first = self._waiting[0]
            reason, again = self._put(first)
            with self._changed:
                self._reason = reason if again else ""
                if again:
                    self._waiting.rotate(-1)  # others may be smaller than one that finds no room
                elif first in self._waiting:  # it may have been given up meanwhile
                    self._waiting.remove(first)
                reported = list(self._waiting) if again else [first]
            for each in reported:
                self._report_new(each, reason, again)
            if again:
                with self._changed:
                    if self._closing:
                        return
                    self._changed.wait_for(lambda: self._closing, timeout=RETRY_SECONDS)

    def _report_new(self, result: _Waiting, reason: str, again: bool) -> None:
        """Report an outcome, except another try for a reason that was reported already."""
        with self._changed:
            known = again and reason == result.reason
            result.reason = reason
        if not known:
            self._report(result.job_id, reason, again)

    def _put(self, result: _Waiting) -> tuple[str, bool]:
        """Return why the store did not take a result, and whether another try may help."""
        assert self._store is not None
        try:
            self._store.put(result.snapshot, result.parameters)
        except Unavailable as error:
            return message_of(error), True
        except TooLarge as error:
            return message_of(error), False
        except Exception as error:  # no error of one result may stop those behind it
            return f"{type(error).__name__}: {error}"[:200], False
        self._read_again_at = 0.0
        return "", False
