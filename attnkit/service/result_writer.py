"""Puts finished results into the store, in a thread of its own: a database may be slow or gone."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from attnkit.experiment import Experiment
from attnkit.service.store import ResultStore, TooLarge, Unavailable
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

RETRY_SECONDS = 2.0
"""Between two tries while the store does not answer."""

MOST_BYTES = 2**27
"""Of results that wait for the store; beyond it the oldest are given up."""

ASKED_AGAIN_SECONDS = 15.0
"""A store that did not answer is not asked for a stored result again before that."""

T = TypeVar("T")


@dataclass(eq=False)
class _Waiting:
    job_id: str
    snapshot: bytes
    parameters: bytes
    told: str = ""
    """Why the store does not have it, as its job was told."""

    @property
    def n_bytes(self) -> int:
        return len(self.snapshot) + len(self.parameters)


class Keeper:
    """Keeps results until the store has them.

    Args:
        store: where they go; None: nowhere.
        tell: called with a job's id and, if the store did not take its result, the reason and
            whether it will be tried again; once for the same reason.
    """

    def __init__(self, store: ResultStore | None, tell: Callable[[str, str, bool], None]) -> None:
        self._store, self._tell = store, tell
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._refusal = ""  # why the store took nothing when it was last tried
        self._ask_again_at = 0.0
        self._thread = threading.Thread(target=self._run, name="attnkit-keeper", daemon=True)
        if store is not None:
            self._thread.start()

    @property
    def stores(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    @property
    def n_waiting(self) -> int:
        """Results that the store has not taken yet."""
        return len(self._waiting)

    def keep(self, job_id: str, snapshot: bytes, parameters: bytes) -> None:
        """Put a finished result into the store as soon as it takes it."""
        given_up: list[_Waiting] = []
        new = _Waiting(job_id, snapshot, parameters)
        with self._changed:
            self._waiting.append(new)
            while len(self._waiting) > 1 and sum(w.n_bytes for w in self._waiting) > MOST_BYTES:
                given_up.append(self._waiting.popleft())
            refusal = self._refusal
            self._changed.notify_all()
        for one in given_up:
            self._tell(one.job_id, "too many results wait for the store", False)
        self._tell_refusal(new, refusal)

    def recall(self, experiment: Experiment) -> Snapshot | None:
        """Return the last snapshot of a stored experiment.

        None if there is none, or the store does not answer.
        """
        return self._recall(lambda store: store.snapshot(experiment.hash))

    def recall_result(self, experiment: Experiment) -> Result | None:
        """Return a stored result with its parameters; None as in `recall`."""
        return self._recall(lambda store: store.result(experiment.hash))

    def _recall(self, read: Callable[[ResultStore], T | None]) -> T | None:
        if self._store is None or time.monotonic() < self._ask_again_at:
            return None
        try:
            return read(self._store)
        except Unavailable:
            self._ask_again_at = time.monotonic() + ASKED_AGAIN_SECONDS
            return None

    def close(self, seconds: float = 5.0) -> None:
        """Try once more to put away what waits, then end the thread."""
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
                one = self._waiting[0]
            reason = self._put(one)
            if not reason.again:
                self._take_off(one)
                self._refusal = ""
                self._tell(one.job_id, reason.text, False)
                continue
            with self._changed:
                self._refusal = reason.text
                self._waiting.rotate(-1)  # others may be smaller than one that finds no room
                concerned = list(self._waiting)
            for other in concerned:
                self._tell_refusal(other, reason.text)
            with self._changed:
                if self._closing:
                    return
                self._changed.wait_for(lambda: self._closing, timeout=RETRY_SECONDS)

    def _take_off(self, one: _Waiting) -> None:
        """It waits no more; it may have been given up in the meantime."""
        with self._changed, suppress(ValueError):
            self._waiting.remove(one)

    def _tell_refusal(self, one: _Waiting, why: str) -> None:
        """Tell a job why it is not stored yet, if that is news."""
        with self._changed:
            news, one.told = why not in ("", one.told), why or one.told
        if news:
            self._tell(one.job_id, why, True)

    def _put(self, one: _Waiting) -> _Reason:
        assert self._store is not None
        try:
            self._store.put(one.snapshot, one.parameters)
        except Unavailable as error:
            return _Reason(str(error), again=True)
        except TooLarge as error:
            return _Reason(str(error), again=False)
        except Exception as error:  # whatever it is, the results behind it must go on
            return _Reason(f"{type(error).__name__}: {error}"[:200], again=False)
        self._ask_again_at = 0.0
        return _Reason()


@dataclass(frozen=True)
class _Reason:
    """Why the store did not take a result; empty: it did."""

    text: str = ""
    again: bool = False
