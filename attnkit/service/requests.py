"""Requests for what only the training process can compute: examples, answers and inspections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache

from attnkit.analysis.responses import Example
from attnkit.experiment import Experiment
from attnkit.service.protocol import Answer, DrawExample, Request
from attnkit.tasks import Task

MAX_EXAMPLES = 256
"""Number of examples that are remembered, one for each setting of a task."""

MAX_REQUESTS = 64
"""Number of requests under way; further ones are refused, because the training process is busy."""

_BUSY = "The training process is busy: ask again in a moment"

_DIED = "The training process died and began anew: ask again"

_DIED_OF_IT = "The training process died while it answered this request"


class Requests:
    """Requests without an answer yet, and examples that have been drawn.

    Args:
        lock: Held by whoever calls `take` and `give_up`.
        send: Sends a request to the training process.
    """

    def __init__(self, lock: threading.Condition, send: Callable[[Request], None]) -> None:
        self._lock, self._send = lock, send
        self._under_way: dict[str, Future[Answer]] = {}
        self._examples: dict[Task, Future[Answer]] = {}

    def example(self, experiment: Experiment, seconds: float) -> Example | str | None:
        """Return an example of a task, the reason why there is none, or None if it comes later."""
        with self._lock:
            future = self._examples.pop(experiment.task, None)
            if future is None or (future.done() and future.result().error == _DIED):
                while len(self._examples) >= MAX_EXAMPLES:
                    del self._examples[next(iter(self._examples))]
                future = self._begin(DrawExample(experiment=experiment.to_json()))
                if future is None:
                    return None
            self._examples[experiment.task] = future
        answer = _wait(future, seconds)
        return None if answer is None else answer.error or _example(answer.blob)

    def answer(self, request: Request, seconds: float) -> bytes | str | None:
        """Return an answer, the reason why there is none, or None if a film that it needs is gone.

        Args:
            request: The request.
            seconds: Longest wait.
        """
        with self._lock:
            future = self._begin(request)
        answer = None if future is None else _wait(future, seconds)
        if answer is None:
            self._under_way.pop(request.request, None)
            return _BUSY
        return None if answer.gone else answer.error or answer.blob

    def take(self, answer: Answer) -> None:
        """Receive an answer of the training process."""
        future = self._under_way.pop(answer.request, None)
        if future is not None:
            future.set_result(answer)

    def give_up(self, turn: str) -> None:
        """End all requests after the death of the training process.

        Args:
            turn: Id of the job or request whose turn it was. If it is a request, the process died
                of it, and its example is not requested again.
        """
        for request in list(self._under_way):
            self.take(Answer(request, error=_DIED_OF_IT if request == turn else _DIED))

    def _begin(self, request: Request) -> Future[Answer] | None:
        """Send a request; None if too many are under way."""
        if len(self._under_way) >= MAX_REQUESTS:
            return None
        future = self._under_way[request.request] = Future[Answer]()
        self._send(request)
        return future


def _wait(future: Future[Answer], seconds: float) -> Answer | None:
    """Wait for an answer; None if it has not come in time."""
    try:
        return future.result(seconds)
    except TimeoutError:
        return None


_example = lru_cache(MAX_EXAMPLES)(Example.from_bytes)
