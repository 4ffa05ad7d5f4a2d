"""Requests for what only the training process can compute: examples, answers and inspections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(eq=False)
class _Waiting:
    """A request under way, and the answer once it has come."""

    answer: Answer | None = None


class Requests:
    """Requests under way, and examples that have come.

    Args:
        changed: Notified when an answer has come; its lock guards everything here.
        send: Sends a request to the training process.
    """

    def __init__(self, changed: threading.Condition, send: Callable[[Request], None]) -> None:
        self._changed, self._send = changed, send
        self._under_way: dict[str, _Waiting] = {}
        self._examples: dict[Task, _Waiting | Example | str] = {}

    def example(self, experiment: Experiment, seconds: float) -> Example | str | None:
        """Return an example of a task, the reason why there is none, or None if it comes later."""
        task = experiment.task
        with self._changed:
            entry = self._examples.get(task)
            if entry is None:
                if len(self._under_way) >= MAX_REQUESTS:
                    return None
                while len(self._examples) >= MAX_EXAMPLES:
                    del self._examples[next(iter(self._examples))]
                entry = self._begin(DrawExample(experiment=experiment.to_json()))
                self._examples[task] = entry
            if not isinstance(entry, _Waiting):
                return entry
            answer = self._wait(entry, seconds)
            if answer is None:
                return None
            found = answer.error or Example.from_bytes(answer.blob)
            if self._examples.get(task) is entry:  # no other waiting thread was first
                self._examples[task] = found
                if found == _DIED:  # this request may be repeated
                    del self._examples[task]
            return found

    def answer(self, request: Request, seconds: float) -> bytes | str | None:
        """Return an answer, the reason why there is none, or None if a film that it needs is gone.

        Args:
            request: The request.
            seconds: Longest wait.
        """
        with self._changed:
            if len(self._under_way) >= MAX_REQUESTS:
                return _BUSY
            answer = self._wait(self._begin(request), seconds)
            self._under_way.pop(request.request, None)
        if answer is None:
            return _BUSY
        return None if answer.gone else answer.error or answer.blob

    def take(self, answer: Answer) -> None:
        """Receive an answer of the training process."""
        waiting = self._under_way.pop(answer.request, None)
        if waiting is not None:
            waiting.answer = answer
            self._changed.notify_all()

    def give_up(self, turn: str) -> None:
        """End all requests after the death of the training process.

        Args:
            turn: Id of the job or request whose turn it was. If it is a request, the process died
                of it, and its example is not requested again.
        """
        for request in list(self._under_way):
            self.take(Answer(request, error=_DIED_OF_IT if request == turn else _DIED))

    def _begin(self, request: Request) -> _Waiting:
        waiting = self._under_way[request.request] = _Waiting()
        self._send(request)
        return waiting

    def _wait(self, waiting: _Waiting, seconds: float) -> Answer | None:
        self._changed.wait_for(lambda: waiting.answer is not None, timeout=seconds)
        return waiting.answer
