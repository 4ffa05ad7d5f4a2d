"""Requests for what only the training process can compute: examples, answers and inspections."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnkit.analysis.responses import Answers, Example
from attnkit.experiment import Experiment
from attnkit.tasks import Task

MAX_EXAMPLES = 256
"""Number of examples that are remembered, one for each setting of a task."""

MAX_REQUESTS = 64
"""Number of requests under way; further ones are refused, because the training process is busy."""

_BUSY = "The training process is busy: ask again in a moment"

_DIED = "The training process died and began anew: ask again"

_DIED_OF_IT = "The training process died while it answered this request"


@dataclass
class _Request:
    """One request to the training process.

    Attributes:
        blob: The answer, once it has come.
        error: The reason why there will be no answer.
        gone: Whether the film that it needs is gone.
    """

    id: str
    blob: bytes | None = None
    error: str = ""
    gone: bool = False

    @property
    def answered(self) -> bool:
        return self.blob is not None or bool(self.error) or self.gone


class Requests:
    """Requests under way, and examples that have come.

    Args:
        changed: Notified when an answer has come; its lock guards everything here.
        tell: Sends a command to the training process.
    """

    def __init__(
        self, changed: threading.Condition, tell: Callable[[dict[str, Any]], None]
    ) -> None:
        self._changed, self._tell = changed, tell
        self._requests: dict[str, _Request] = {}
        self._examples: dict[Task, _Request | Example | str] = {}

    def example(self, experiment: Experiment, seconds: float) -> Example | str | None:
        """See `TrainingService.example`."""
        task = experiment.task
        with self._changed:
            entry = self._examples.get(task)
            if entry is None and len(self._requests) >= MAX_REQUESTS:
                return None
            if entry is None:
                while len(self._examples) >= MAX_EXAMPLES:
                    del self._examples[next(iter(self._examples))]
                entry = self._send({"do": "example", "experiment": experiment.to_json()})
                self._examples[task] = entry
            if not isinstance(entry, _Request):
                return entry
            request = entry
            self._changed.wait_for(lambda: request.answered, timeout=seconds)
            if not request.answered:
                return None
            answer = request.error if request.blob is None else Example.from_bytes(request.blob)
            if self._examples.get(task) is request:  # no other waiting thread was first
                del self._examples[task]
                if answer != _DIED:  # this request may be repeated
                    self._examples[task] = answer
            return answer

    def ask(self, models: dict[str, Any], tokens: np.ndarray, seconds: float) -> Answers | str:
        """See `TrainingService.ask`.

        Args:
            models: Fields of the command that name the models.
            tokens: (i, fields) entries, followed by as many questions.
            seconds: Longest wait.
        """
        answer = self._answer({"do": "ask", **models, "tokens": tokens.tolist()}, seconds)
        return Answers.from_bytes(answer) if isinstance(answer, bytes) else answer or _BUSY

    def inspect(
        self, models: dict[str, Any], inspection: dict[str, Any], seconds: float
    ) -> bytes | str | None:
        """See `TrainingService.inspect`.

        Args:
            models: Fields of the command that name the jobs whose films are inspected.
            inspection: `Inspection.to_dict`.
            seconds: Longest wait.
        """
        return self._answer({"do": "inspect", **models, "asked": inspection}, seconds)

    def _answer(self, command: dict[str, Any], seconds: float) -> bytes | str | None:
        """Send a request and wait; None if the film that it needs is gone."""
        with self._changed:
            if len(self._requests) >= MAX_REQUESTS:
                return _BUSY
            request = self._send(command)
            self._changed.wait_for(lambda: request.answered, timeout=seconds)
            self._requests.pop(request.id, None)
        if request.gone:
            return None
        return request.blob if request.blob is not None else request.error or _BUSY

    def take(self, header: dict[str, Any], blob: bytes) -> None:
        """Receive an answer of the training process."""
        request = self._requests.pop(header["request"], None)
        if request is not None:
            request.error, request.gone = header.get("error", ""), "gone" in header
            request.blob = None if request.error or request.gone else blob
            self._changed.notify_all()

    def give_up(self, turn: str) -> None:
        """End all requests after the death of the training process.

        Args:
            turn: Id of the job or request whose turn it was. If it is a request, the process died
                of it, and its example is not requested again.
        """
        for request in self._requests.values():
            request.error = _DIED_OF_IT if request.id == turn else _DIED
        self._requests.clear()
        self._changed.notify_all()

    def _send(self, command: dict[str, Any]) -> _Request:
        request = _Request(uuid.uuid4().hex[:12])
        self._requests[request.id] = request
        self._tell({**command, "request": request.id})
        return request
