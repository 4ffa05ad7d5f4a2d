"""Work in slices: long work pauses, so that other work is done meanwhile, and then goes on.

Long work calls `pause` at places where it can wait. By itself, `pause` does nothing. Within
`SlicedWork`, the thread of the work waits there until its next slice, so that only one piece of
work runs at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Withdrawn(BaseException):
    """Raised at a pause of work that nobody needs any more; the work itself must not catch it."""


class SlicedWork(Generic[T]):
    """Work that is done in slices, in a thread of its own.

    Args:
        work: Function that does the work and calls `pause`.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._next, self._over = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._until = 0.0
        self._withdrawn = False
        self._results: list[T] = []
        self._errors: list[BaseException] = []

    def advance(self, seconds: float) -> bool:
        """Work until the first pause after this time, and return whether the work is done."""
        self._until = time.monotonic() + seconds
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="attnkit-slices", daemon=True)
            thread.start()  # it fails if there is no memory for its stack
            self._thread = thread
        else:
            self._next.release()
        self._over.acquire()
        return bool(self._results or self._errors)

    def result(self) -> T:
        """Return the result of work that is done, or raise its error. Call it once."""
        if self._errors:
            raise self._errors.pop()  # a kept error would keep all that the work has made
        return self._results.pop()

    def withdraw(self) -> None:
        """End the work at its present pause, and free its memory."""
        if self._thread is not None and not self._results and not self._errors:
            self._withdrawn = True
            self.advance(0.0)
            self._errors.clear()

    def pause(self) -> float:
        """Wait for the next slice, if the present one is over, and return the waited seconds."""
        if self._withdrawn:  # work that is withdrawn and cleans up
            raise _Withdrawn
        started = time.monotonic()
        if started < self._until:
            return 0.0
        self._over.release()
        self._next.acquire()
        if self._withdrawn:
            raise _Withdrawn
        return time.monotonic() - started

    def _run(self) -> None:
        _present.set(self)
        try:
            self._results.append(self._work())
        except BaseException as error:  # it is raised by `result`
            self._errors.append(error)
        self._work = _nothing  # it may refer to all that it needs
        self._over.release()


def _nothing() -> Any:
    """Do nothing."""


_present: ContextVar[SlicedWork[Any] | None] = ContextVar("present", default=None)


def pause() -> float:
    """Wait for other work if the present work is done in slices; return the waited seconds."""
    work = _present.get()
    return 0.0 if work is None else work.pause()
