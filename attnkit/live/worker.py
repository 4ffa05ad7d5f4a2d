"""The training process: trains the jobs it is told to, in turns, and sends snapshots.

Started by `attnkit.live.service` as `python -m attnkit.live.worker`. Commands come as JSON lines
on standard input, answers leave as frames on standard output: one JSON line, then as many bytes of
`Snapshot.to_bytes` as it says. It ends when its input does, so no orphan outlives the server.

Between two turns it also draws examples of tasks, which pages must not do since they never import
torch, and asks trained models about a book; it keeps the last weights of phone books for that.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from attnkit.experiment import Experiment, from_text
from attnkit.live.asking import Weights, WeightsGone, answer, draw_example, reason
from attnkit.live.views import encode
from attnkit.own_book import can_be_asked
from attnkit.process import prepare_for_training
from attnkit.training import Training

SLICE_SECONDS = 0.1
"""A job's turn; a command waits until it is over."""

MAX_JOB_SECONDS = 3600.0
"""Training time after which a job is stopped, whatever its experiment asks for."""

SNAPSHOT_SECONDS = 0.2
"""Least time between two snapshots of a running job, if they are small."""

BYTES_PER_SECOND = 2**22
"""Large ones come more rarely, so that a running job sends no more than that."""

KEPT_BYTES = 2**26
"""Weights of ended jobs that are kept, of the newest jobs whose task can be asked."""

NICENESS = 5
"""Below the server and a browser on the same machine: what people press comes first."""


@dataclass
class _Job:
    training: Training
    paused: bool = False
    steps_left: int | None = None
    """Steps to take before pausing again; None: no limit."""
    obeyed: int = 0
    """The number of the last command."""
    next_at: float = 0.0
    """When the next snapshot may be sent."""
    pace: float = 0.05
    """Seconds per step, as last measured."""


class Worker:
    """Takes commands and trains; one per process."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._jobs: dict[str, _Job] = {}
        self._ended: dict[str, Weights] = {}
        self._turns = itertools.count()

    def run(self, commands: queue.Queue[dict[str, Any] | None]) -> None:
        """Work until a None is taken from the queue."""
        while True:
            active = [name for name, job in self._jobs.items() if not job.paused]
            try:
                command = commands.get(block=not active)
            except queue.Empty:
                name = active[next(self._turns) % len(active)]
                self._take_turn(name)
                continue
            if command is None:
                return
            self._obey(command)

    def _obey(self, command: dict[str, Any]) -> None:
        verb = command["do"]
        if verb in ("example", "ask"):
            self._reply(command)
            return
        name = command["job"]
        if verb == "start":
            self._start(name, command)
            return
        job = self._jobs.get(name)
        if job is None:  # finished in the meantime
            return
        job.obeyed = command["number"]
        if verb == "pause":
            job.paused = True
            self._send(name, job, "paused")
        elif verb == "resume":
            job.paused, job.steps_left = False, None
        elif verb == "step":
            job.paused, job.steps_left = False, _to_next_evaluation(job.training)
        elif verb == "stop":
            self._end(name, "stopped")

    def _reply(self, command: dict[str, Any]) -> None:
        """Draw an example, or ask a job's models; what goes wrong is told."""
        header = {"request": command["request"]}
        try:
            if command["do"] == "example":
                blob = draw_example(from_text(command["experiment"])).to_bytes()
            else:
                weights = self._weights(command["job"])
                blob = answer(weights, np.array(command["tokens"])).to_bytes()
        except Exception as error:  # whatever it is, the page must hear of it
            self._write({**header, "error": reason(error)}, b"")
        else:
            self._write(header, blob)

    def _weights(self, name: str) -> Weights:
        job = self._jobs.get(name)
        weights = self._ended.get(name) if job is None else Weights.of(job.training)
        if weights is None:
            raise WeightsGone("The weights of this run are not kept any more: train it again")
        return weights

    def _start(self, name: str, command: dict[str, Any]) -> None:
        try:
            job = _Job(Training(from_text(command["experiment"])), paused=command["paused"])
        except Exception as error:  # whatever it is, the page must hear of it
            self._fail(name, error)
            return
        self._jobs[name] = job
        self._send(name, job, "paused" if job.paused else "running")

    def _take_turn(self, name: str) -> None:
        job = self._jobs[name]
        n_steps = max(1, round(SLICE_SECONDS / job.pace))
        if job.steps_left is not None:
            n_steps = min(n_steps, job.steps_left)
            job.steps_left -= n_steps
        started = time.monotonic()
        try:
            job.training.advance(n_steps)
        except Exception as error:  # one job's failure must not end the others
            del self._jobs[name]
            self._fail(name, error)
            return
        job.pace = (time.monotonic() - started) / n_steps
        if job.training.finished:
            self._end(name, "finished")
        elif job.training.seconds > MAX_JOB_SECONDS:
            self._end(name, "stopped")
        elif job.steps_left == 0:
            job.paused, job.steps_left = True, None
            self._send(name, job, "paused")
        elif time.monotonic() >= job.next_at:
            self._send(name, job, "running")

    def _end(self, name: str, state: str) -> None:
        """Send the last snapshot; of a job that can be asked its weights stay, for questions."""
        job = self._jobs.pop(name)
        if can_be_asked(job.training.experiment.task):
            self._ended[name] = Weights.of(job.training)
            while sum(weights.n_bytes for weights in self._ended.values()) > KEPT_BYTES:
                del self._ended[next(iter(self._ended))]
        self._send(name, job, state)

    def _send(self, name: str, job: _Job, state: str) -> None:
        blob = job.training.snapshot("stopped" if state == "stopped" else None).to_bytes()
        header = {"job": name, "state": state, "obeyed": job.obeyed}
        self._write(header, blob)
        job.next_at = time.monotonic() + rest_after(len(blob))

    def _fail(self, name: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"[:500]
        self._write({"job": name, "state": "failed", "obeyed": 0, "error": text}, b"")

    def _write(self, header: dict[str, Any], blob: bytes) -> None:
        self._output.write(encode(header, blob))
        self._output.flush()


def rest_after(n_bytes: int) -> float:
    """Least seconds between a snapshot of so many bytes and the next."""
    return SNAPSHOT_SECONDS + n_bytes / BYTES_PER_SECOND


def _to_next_evaluation(training: Training) -> int:
    cadence = training.experiment.training.evaluate_every
    return cadence - training.step % cadence


def _warm_up() -> None:
    """Take one step of a small experiment: torch imports and sets up much on first use."""
    small = {"n_seeds": 1, "batch_size": 16, "n_eval": 16, "steps": 1}
    Training(Experiment(**small)).advance(1)


def _read_commands(commands: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin.buffer:
        commands.put(json.loads(line))
    commands.put(None)


def main() -> None:
    """Serve commands from standard input until it ends."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not break a frame
    os.nice(NICENESS)
    prepare_for_training()
    _warm_up()
    commands: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
    try:
        Worker(output).run(commands)
    except (BrokenPipeError, KeyboardInterrupt):  # the server is gone
        os._exit(0)


if __name__ == "__main__":
    main()
