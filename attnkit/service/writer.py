"""Writer of finished results: a thread of its own, because a database may be slow or gone."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark
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
    """A result that waits for the store, and the last reported reason why it was not taken."""

    job_id: str
    blobs: tuple[bytes, bytes]
    reason: str = ""


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
        given_up, new = [], _Waiting(job_id, (snapshot, parameters))
        if self._reason:  # reported before the thread has the result, which it may store
            self._tell(new, self._reason, True)
        with self._changed:
            self._waiting.append(new)
            sizes = [sum(map(len, result.blobs)) for result in self._waiting]
            while len(sizes) > 1 and sum(sizes) > MAX_BYTES:
                sizes.pop(0)
                given_up.append(self._waiting.popleft())
            self._changed.notify_all()
        for oldest in given_up:
            self._tell(oldest, mark("too many results wait for the store"), False)

    def recall(self, experiment: Experiment) -> Snapshot | None:
        """Return the last snapshot of a stored experiment; None if there is none, or no store."""
        return self._read(lambda store: store.snapshot(experiment.hash))

    def recall_result(self, experiment: Experiment) -> Result | None:
        """Return a stored result with its parameters; None as in `recall`."""
        return self._read(lambda store: store.result(experiment.hash))

    def close(self, seconds: float = 5.0) -> None:
        """Try once more to store what waits, for at most so many seconds, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _read(self, read: Callable[[ResultStore], T | None]) -> T | None:
        if self._store is None or time.monotonic() < self._read_again_at:
            return None
        try:
            return read(self._store)
        except Unavailable:
            self._read_again_at = time.monotonic() + UNREAD_SECONDS
            return None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                first, is_last = self._waiting[0], self._closing
            reason, again = self._put(*first.blobs)
            with self._changed:
                self._reason = reason if again else ""
                if again:
                    self._waiting.rotate(-1)  # others may be smaller than one that finds no room
                elif first in self._waiting:  # it may have been given up meanwhile
                    self._waiting.remove(first)
                answered = list(self._waiting) if again else [first]
            for each in answered:
                self._tell(each, reason, again)
            if again and is_last:
                return
            if again:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)

    def _put(self, snapshot: bytes, parameters: bytes) -> tuple[str, bool]:
        """Return why the store did not take a result, and whether another try may help."""
        assert self._store is not None
        try:
            self._store.put(snapshot, parameters)
        except (Unavailable, TooLarge) as error:
            return message_of(error), isinstance(error, Unavailable)
        except Exception as error:  # no error of one result may stop those behind it
            return f"{type(error).__name__}: {error}"[:200], False
        self._read_again_at = 0.0
        return "", False

    def _tell(self, result: _Waiting, reason: str, again: bool) -> None:
        if not (again and reason == result.reason):  # nor is another try news
            result.reason = reason
            self._report(result.job_id, reason, again)
