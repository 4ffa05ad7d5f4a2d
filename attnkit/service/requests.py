"""Requests for what only the training process can compute: examples, answers and inspections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache

from attnkit.analysis.responses import Example
from attnkit.experiment import Experiment
from attnkit.foundation.language import mark
from attnkit.service.jobs import NOBODY, Watcher
from attnkit.service.protocol import Answer, Command, DrawExample, Request, Withdraw
from attnkit.tasks import Task

MAX_EXAMPLES = 256
"""Number of examples that are remembered, one for each setting of a task."""

OF_ADDRESS, OF_VISITOR = 60, 6
"""Largest number of requests under way of one address, and of one browser at it."""

_BUSY = mark("The training process is busy: ask again in a moment")

_DIED = mark("The training process died and began anew: ask again")

_DIED_OF_IT = mark("The training process died while it answered this request")


class Requests:
    """Requests without an answer yet, and examples that have been drawn.

    Args:
        lock: Held by whoever calls `take` and `give_up`.
        send: Sends a command to the training process.
    """

    def __init__(self, lock: threading.Condition, send: Callable[[Command], None]) -> None:
        self._lock, self._send = lock, send
        self._under_way: dict[str, tuple[Request, Future[Answer]]] = {}
        self._examples: dict[Task, Future[Answer]] = {}

    def example(
        self, experiment: Experiment, seconds: float, watcher: Watcher = NOBODY
    ) -> Example | str | None:
        """Return an example of a task, the reason why there is none, or None if it comes later."""
        with self._lock:
            future = self._examples.pop(experiment.task, None)
            if future is None or (future.done() and future.result().error in (_BUSY, _DIED)):
                while len(self._examples) >= MAX_EXAMPLES:
                    del self._examples[next(iter(self._examples))]
                text = experiment.to_json()
                request = DrawExample(
                    experiment=text, address=watcher.address, visitor=watcher.visitor
                )
                future = self._begin(request)
                if future is None:
                    return None
            self._examples[experiment.task] = future
        answer = _wait(future, seconds)
        return None if answer is None else answer.error or _example(answer.blob)

    def answer(self, request: Request, seconds: float) -> bytes | str | None:
        """Return an answer, the reason why there is none, or None if a film that it needs is gone.

        Args:
            request: The request. It is withdrawn if its answer does not come in time.
            seconds: Longest wait.
        """
        with self._lock:
            future = self._begin(request)
        answer = None if future is None else _wait(future, seconds)
        if answer is None:
            with self._lock:
                self._withdraw(request.request)
            return _BUSY
        return None if answer.gone else answer.error or answer.blob

    def take(self, answer: Answer) -> None:
        """Receive an answer of the training process."""
        for request in answer.requests:
            _, future = self._under_way.pop(request, (None, None))
            if future is not None:
                future.set_result(answer)

    def give_up(self, turn: tuple[str, ...]) -> None:
        """End all requests after the death of the training process.

        Args:
            turn: Ids of the job or requests whose turn it was. If it is a request, the process died
                of it, and its example is not requested again.
        """
        for request in list(self._under_way):
            self.take(Answer((request,), error=_DIED_OF_IT if request in turn else _DIED))

    def _begin(self, request: Request) -> Future[Answer] | None:
        """Send a request; None if too many of its address or its browser are under way."""
        under_way = [other for other, _ in self._under_way.values()]
        of_address = [other for other in under_way if other.address == request.address]
        n_of_visitor = sum(other.visitor == request.visitor for other in of_address)
        if request.address and (len(of_address) >= OF_ADDRESS or n_of_visitor >= OF_VISITOR):
            return None
        future = Future[Answer]()
        self._under_way[request.request] = request, future
        self._send(request)
        return future

    def _withdraw(self, request: str) -> None:
        """End a request without an answer, unless its answer has come."""
        if request in self._under_way:
            self.take(Answer((request,), error=_BUSY))
            self._send(Withdraw(request))


def _wait(future: Future[Answer], seconds: float) -> Answer | None:
    """Wait for an answer; None if it has not come in time."""
    try:
        return future.result(seconds)
    except TimeoutError:
        return None


_example = lru_cache(MAX_EXAMPLES)(Example.from_bytes)
