"""Writer of finished results: a thread of its own, because a database may be slow or gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import chain
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
        self._waiting: dict[str, tuple[bytes, bytes]] = {}  # snapshot and parameters by job
        self._reported: dict[str, str] = {}  # reason why a result still waits, by job
        self._changed = threading.Condition()
        self._closing = False
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
        waiting, given_up = self._waiting, []
        with self._changed:
            waiting[job_id] = snapshot, parameters
            while len(waiting) > 1 and sum(map(len, chain(*waiting.values()))) > MAX_BYTES:
                given_up.append(next(iter(waiting)))
                del waiting[given_up[-1]]
            self._changed.notify_all()
        for oldest in given_up:
            self._report(oldest, mark("too many results wait for the store"), False)

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
                (first, blobs), is_last = next(iter(self._waiting.items())), self._closing
            reason, again = self._put(*blobs)
            with self._changed:
                if self._waiting.pop(first, None) and again:  # unless it was given up meanwhile
                    self._waiting[first] = blobs  # behind the others, which may be smaller
                answered = [first]
                if again:
                    waiting, before = dict.fromkeys(self._waiting, reason), self._reported
                    answered = [job for job in waiting if before.get(job) != reason]
                    self._reported = waiting
            for job in answered:
                self._report(job, reason, again)
            if again and is_last:
                return
            if again:
                with self._changed:
                    self._changed.wait_for(self._has_news, RETRY_SECONDS)

    def _has_news(self) -> bool:
        """Return whether to try at once: to end, or to report why a new result is not stored."""
        return self._closing or bool(self._waiting.keys() - self._reported.keys())

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
