"""What only the training process can compute: examples, answers to books, looks inside models."""

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
"""Examples remembered, by the settings of their task."""

MOST_ASKED = 64
"""Questions under way at once; more are told that the training process is busy."""

_BUSY = "The training process is busy: ask again in a moment"

_DIED = "The training process died and began anew: ask again"

_DIED_OF_IT = "The training process died of it"


@dataclass
class _Request:
    """A question to the training process: what came back, or why nothing did."""

    id: str
    blob: bytes | None = None
    error: str = ""
    gone: bool = False

    @property
    def answered(self) -> bool:
        return self.blob is not None or bool(self.error) or self.gone


class Questions:
    """Questions under way and examples remembered.

    Args:
        changed: notified when an answer has come; its lock guards everything here.
        tell: sends a command to the training process.
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
            known = self._examples.get(task)
            if known is None and len(self._requests) >= MOST_ASKED:
                return None
            if known is None:
                while len(self._examples) >= MAX_EXAMPLES:
                    del self._examples[next(iter(self._examples))]
                known = self._request({"do": "example", "experiment": experiment.to_json()})
                self._examples[task] = known
            if not isinstance(known, _Request):
                return known
            request = known
            self._changed.wait_for(lambda: request.answered, timeout=seconds)
            if not request.answered:
                return None
            found = request.error if request.blob is None else Example.from_bytes(request.blob)
            if self._examples.get(task) is request:  # nobody else who waited was first
                del self._examples[task]
                if request.blob is not None or request.error != _DIED:
                    self._examples[task] = found  # what died may be asked again
            return found

    def ask(self, models: dict[str, Any], tokens: np.ndarray, seconds: float) -> Answers | str:
        """See `TrainingService.ask`, `ask_example`; `models` says which models are asked."""
        with self._changed:
            if len(self._requests) >= MOST_ASKED:
                return _BUSY
            command = {"do": "ask", **models, "tokens": tokens.tolist()}
            request = self._request(command)
            self._changed.wait_for(lambda: request.answered, timeout=seconds)
            self._requests.pop(request.id, None)
        if request.blob is not None:
            return Answers.from_bytes(request.blob)
        return request.error or _BUSY

    def inspect(
        self, models: dict[str, Any], asked: dict[str, Any], seconds: float
    ) -> bytes | str | None:
        """See `TrainingService.inspect`; `models` names the jobs whose films are inspected."""
        with self._changed:
            if len(self._requests) >= MOST_ASKED:
                return _BUSY
            request = self._request({"do": "inspect", **models, "asked": asked})
            self._changed.wait_for(lambda: request.answered, timeout=seconds)
            self._requests.pop(request.id, None)
        if request.gone:
            return None
        return request.blob if request.blob is not None else request.error or _BUSY

    def take(self, header: dict[str, Any], blob: bytes) -> None:
        """An answer has come."""
        request = self._requests.pop(header["request"], None)
        if request is not None:
            request.error, request.gone = header.get("error", ""), "gone" in header
            request.blob = None if request.error or request.gone else blob
            self._changed.notify_all()

    def give_up(self, turn: str) -> None:
        """The training process died: nothing that was asked will be answered.

        Args:
            turn: the question of which it died, if it was one; its example is not asked for again.
        """
        for request in self._requests.values():
            request.error = _DIED_OF_IT if request.id == turn else _DIED
        self._requests.clear()
        self._changed.notify_all()

    def _request(self, command: dict[str, Any]) -> _Request:
        request = _Request(uuid.uuid4().hex[:12])
        self._requests[request.id] = request
        self._tell({**command, "request": request.id})
        return request
