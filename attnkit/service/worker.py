"""The training process: trains the jobs it is told to, in turns, and sends snapshots.

Started by `attnkit.service.service` as `python -m attnkit.service.worker`. Commands come as JSON
lines on standard input, answers leave as frames on standard output: one JSON line, then as many
bytes as it says, of `Snapshot.to_bytes` and, of a finished job, its weights. It ends when
its input does, so no orphan outlives the server. Before a turn it says whose it is: if it dies, the
server knows.

Between two turns it also draws examples of tasks, which pages must not do since they never import
torch, asks trained models about a book, and looks inside them. For that it keeps the last weights
of phone books, and films every job's first seed.

Where the kernel has to be compiled first, a thread waits for that, and jobs begin on torch in the
meantime. A job keeps the engine that it began with.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from attnkit.analysis.custom_phone_book import is_phone_book
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.views import inspect
from attnkit.analysis.responses import Answers
from attnkit.experiment import Experiment, from_text
from attnkit.foundation.machine import processor_kind
from attnkit.foundation.process import give_memory_back, limit_memory, prepare_for_training
from attnkit.service.book_answers import (
    Weights,
    WeightsGone,
    answer,
    draw_example,
    joined_answers,
    reason,
)
from attnkit.service.process import encode
from attnkit.training.camera import Camera
from attnkit.training.engine import Engine, choose_engine, is_ready, ready_engine
from attnkit.training.film import Film
from attnkit.training.joining import join_films
from attnkit.training.training import Training, pick_device

HEARTBEAT_SECONDS = 1.0
"""Between two signs of life, which a thread of its own sends: a step or a question may be long."""

SLICE_SECONDS = 0.1
"""A job's turn; a command waits until it is over."""

SNAPSHOT_SECONDS = 0.2
"""Least time between two snapshots of a running job, if they are small."""

BYTES_PER_SECOND = 2**22
"""Large ones come more rarely, so that running jobs send no more than that."""

SPARE = 1.5
"""What all jobs may really take, over what is estimated."""

KEPT_BYTES = 2**26
"""Weights of ended jobs that are kept, of the newest jobs whose task can be asked."""

FILM_BYTES = 2**27
"""Films of ended jobs that are kept, the most recently looked at."""

HELD_MEGABYTES = 128
"""Stopped trainings that are kept so that they can go on, the newest; their estimated memory."""

QUESTIONS = ("example", "ask", "inspect")
"""Commands that are answered at once, and change no job."""

TRIM_SECONDS = 2.0
"""Between two returns of unused memory to the system while several jobs take turns."""

NICENESS = 10
"""Below the server and a browser on the same machine: what people press comes first."""


@dataclass
class _Job:
    training: Training
    camera: Camera
    paused: bool = False
    steps_left: int | None = None
    """Steps to take before pausing again; None: no limit."""
    obeyed: int = 0
    """The number of the last command."""
    next_at: float = 0.0
    """When the next snapshot may be sent."""
    pace: float = 0.05
    """Seconds per step, as last measured."""
    most_seconds: float = float("inf")
    """Training time after which it is stopped, whatever its experiment asks for."""
    quiet_until: int = 0
    """The step that was reached before; snapshots of earlier steps are not sent again."""
    address: str = ""
    """Jobs of one address share its turns."""
    served: float = 0.0
    """Time it has had, counted from what the others of its address had when it began."""


class FilmGone(Exception):
    """A job's film is not kept any more."""


class Worker:
    """Takes commands and trains; one per process."""

    def __init__(self, output: BinaryIO) -> None:
        self._output, self._writing = output, threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._served: dict[str, float] = {}  # time that each address has had, counted likewise
        self._ended: dict[str, Weights] = {}
        self._held: dict[str, _Job] = {}  # stopped, and may go on
        self._films: dict[str, Film] = {}  # of ended jobs, the last looked at last
        self._trim_at = 0.0
        self._engine: Engine = "torch"  # of jobs that begin

    def take_engine(self) -> None:
        """Let jobs that begin from now on train on this machine's engine, once it is compiled."""
        self._engine = ready_engine(pick_device("auto"))

    def run(self, commands: queue.Queue[dict[str, Any] | None]) -> None:
        """Work until a None is taken from the queue."""
        while True:
            active = self._active
            try:
                command = commands.get(block=not active)
            except queue.Empty:
                self._take_turn(self._next(active))
                if len(active) > 1 and time.monotonic() > self._trim_at:
                    self._trim()
                continue
            if command is None:
                return
            self._obey(command)
            if command["do"] in QUESTIONS and active:  # many who ask must not stop who trains
                self._take_turn(self._next(active))

    def _trim(self) -> None:
        give_memory_back()
        self._trim_at = time.monotonic() + TRIM_SECONDS

    @property
    def _active(self) -> dict[str, _Job]:
        return {name: job for name, job in self._jobs.items() if not job.paused}

    def _next(self, active: dict[str, _Job]) -> str:
        """Return the job whose turn it is: of the address served least, the job served least."""
        return min(
            active, key=lambda name: (self._served[active[name].address], active[name].served)
        )

    def _enter(self, job: _Job) -> None:
        """Let a job that begins, or goes on, have had no less than those that are active."""
        active = [other for other in self._active.values() if other is not job]
        own = [other.served for other in active if other.address == job.address]
        job.served = max(job.served, min(own, default=0.0))
        if not own:
            served = min((self._served[other.address] for other in active), default=0.0)
            self._served[job.address] = max(self._served.get(job.address, 0.0), served)
        known = {other.address for other in self._jobs.values()}
        self._served = {address: self._served[address] for address in known}

    def _obey(self, command: dict[str, Any]) -> None:
        verb = command["do"]
        if verb in QUESTIONS:
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
        if job.paused:
            self._enter(job)
        if verb == "pause":
            job.paused = True
            self._send(name, job, "paused")
        elif verb == "resume":
            job.paused, job.steps_left = False, None
        elif verb == "step":
            job.paused, job.steps_left = False, _to_next_evaluation(job)
        elif verb == "stop":
            self._end(name, "stopped")

    def _reply(self, command: dict[str, Any]) -> None:
        """Draw an example, or ask a job's models; what goes wrong is told."""
        header = {"request": command["request"]}
        self._tell_turn(command["request"])
        try:
            if command["do"] == "example":
                blob = draw_example(from_text(command["experiment"])).to_bytes()
            elif command["do"] == "ask":
                blob = self._answer(command).to_bytes()
            else:
                blob = self._inspect(command)
        except FilmGone:
            self._write({**header, "gone": True}, b"")
        except Exception as error:  # whatever it is, the page must hear of it
            self._write({**header, "error": reason(error)}, b"")
        else:
            self._write(header, blob)

    def _answer(self, command: dict[str, Any]) -> Answers:
        """Ask the models of a shipped example or of a job.

        A job may have taken over finished runs: then each job that trained some is asked.
        """
        tokens = np.array(command["tokens"])
        if "example" in command:
            return answer(Weights.shipped(command["example"]), tokens)
        if "trainers" not in command:
            return answer(self._weights(command["job"]), tokens)
        weights = {name: self._weights(name) for name in command["trainers"]}
        experiment = from_text(command["experiment"])
        return joined_answers(experiment, [weights[n] for n in command["trainers"]], tokens)

    def _weights(self, name: str) -> Weights:
        job = self._jobs.get(name)
        weights = self._ended.get(name) if job is None else Weights.of(job.training)
        if weights is None:
            raise WeightsGone("The weights of this run are not kept any more: train it again")
        return weights

    def _inspect(self, command: dict[str, Any]) -> bytes:
        """Look inside the models of a job; its film's name stands in the header."""
        names = command.get("trainers", [command["job"]])
        films = {name: self._film(name) for name in names}
        film = films[names[0]]
        if "trainers" in command:
            film = join_films(from_text(command["experiment"]), [films[name] for name in names])
        found = inspect(film, Inspection.from_dict(command["asked"]))
        found.header["film"] = command["job"]
        return found.to_bytes()

    def _film(self, name: str) -> Film:
        """Return the film of one job; it then counts as the one that was looked at last."""
        job, film = self._jobs.get(name), self._films.pop(name, None)
        if job is not None:
            return job.camera.film
        if film is None:
            raise FilmGone
        self._films[name] = film
        return film

    def _start(self, name: str, command: dict[str, Any]) -> None:
        self._tell_turn(name)
        try:
            job = self._held.pop(command.get("resumes", ""), None) or self._begin(command)
        except Exception as error:  # whatever it is, the page must hear of it
            self._fail(name, error)
            return
        job.paused, job.steps_left, job.obeyed = command["paused"], None, 0
        job.most_seconds, job.address = command["seconds"], command["address"]
        job.quiet_until = command.get("step", 0)
        self._jobs[name] = job
        self._enter(job)
        if job.training.step >= job.quiet_until:
            self._send(name, job, "paused" if job.paused else "running")

    def _begin(self, command: dict[str, Any]) -> _Job:
        """Begin the runs that are missing; all runs if this engine has not trained the others."""
        device = pick_device("auto")
        engine = ready_engine(device, self._engine)
        text = command["experiment"]
        if command.get("maker") == [engine, processor_kind(device)]:
            text = command["missing"]
        training = Training(from_text(text), engine=engine)
        return _Job(training, Camera(training))

    def _take_turn(self, name: str) -> None:
        job = self._jobs[name]
        n_steps = max(1, round(SLICE_SECONDS / job.pace))
        left = job.camera.n_steps_left
        if left:  # equal turns to the next frame: every end of a turn waits for the slowest cohort
            n_steps = math.ceil(left / max(1, round(left / n_steps)))
        if job.steps_left is not None:
            n_steps = min(n_steps, job.steps_left)
            job.steps_left -= n_steps
        self._tell_turn(name)
        started = time.monotonic()
        try:
            job.training.advance(n_steps)
            job.camera.shoot()
        except Exception as error:  # one job's failure must not end the others
            del self._jobs[name]
            self._fail(name, error)
            return
        seconds = time.monotonic() - started
        job.pace = seconds / n_steps
        job.served += seconds
        self._served[job.address] += seconds
        if job.training.finished:
            self._end(name, "finished")
        elif job.training.seconds > job.most_seconds:
            limit = f"after {job.most_seconds:.0f} s of training, the limit of this copy"
            self._end(name, "stopped", limit)
        elif job.steps_left == 0:
            job.paused, job.steps_left = True, None
            self._send(name, job, "paused")
        elif time.monotonic() >= job.next_at and job.training.step >= job.quiet_until:
            self._send(name, job, "running")

    def _end(self, name: str, state: str, why: str = "") -> None:
        """Send the last snapshot; of a job that can be asked its weights stay, for questions."""
        job = self._jobs.pop(name)
        if state == "stopped" and not why:
            self._hold(name, job)
        if is_phone_book(job.training.experiment.task):
            with contextlib.suppress(MemoryError, RuntimeError):
                self._ended[name] = Weights.of(job.training)
            _drop_oldest(self._ended, KEPT_BYTES)
        self._films[name] = job.camera.film
        _drop_oldest(self._films, FILM_BYTES, least=1)
        self._send(name, job, state, why)
        del job
        self._trim()

    def _hold(self, name: str, job: _Job) -> None:
        """Keep a stopped training so that it can go on, and of the others the newest."""
        self._held[name] = job
        sizes = {held: own.training.experiment.megabytes for held, own in self._held.items()}
        while sum(sizes.values()) > HELD_MEGABYTES:
            oldest = next(iter(sizes))
            del self._held[oldest], sizes[oldest]

    def _send(self, name: str, job: _Job, state: str, why: str = "") -> None:
        """Send a snapshot, of a finished job its weights too; if that is too much, it fails."""
        try:
            if state == "finished":
                blob, weights = job.training.result().to_blobs()
            else:
                blob = job.training.snapshot("stopped" if state == "stopped" else None).to_bytes()
                weights = b""
        except Exception as error:  # one job's failure must not end the others
            self._jobs.pop(name, None)
            self._fail(name, error)
            return
        header = {"job": name, "state": state, "obeyed": job.obeyed, "snapshot": len(blob)}
        if why:
            header["error"] = why
        self._write(header, blob + weights)
        job.next_at = time.monotonic() + rest_after(len(blob)) * max(1, len(self._active))

    def _fail(self, name: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"[:500]
        if isinstance(error, MemoryError) or "allocate memory" in text:
            text = "not enough memory: take smaller sizes, or fewer seeds"
        header = {"job": name, "state": "failed", "obeyed": 0, "snapshot": 0, "error": text}
        self._write(header, b"")

    def _tell_turn(self, name: str) -> None:
        self._write({"turn": name}, b"")

    def _write(self, header: dict[str, Any], blob: bytes) -> None:
        with self._writing:
            self._output.write(encode(header, blob))
            self._output.flush()

    def beat(self) -> None:
        """Send signs of life until the server is gone; runs in a thread of its own."""
        never = threading.Event()
        with contextlib.suppress(OSError):
            while not never.wait(HEARTBEAT_SECONDS):
                self._write({"beat": True}, b"")


def _drop_oldest(
    kept: dict[str, Weights] | dict[str, Film], most_bytes: int, least: int = 0
) -> None:
    """Drop the first of them until the others are small enough, or so few are left."""
    while len(kept) > least and sum(each.n_bytes for each in kept.values()) > most_bytes:
        del kept[next(iter(kept))]


def rest_after(n_bytes: int) -> float:
    """Least seconds between a snapshot of so many bytes and the next."""
    return SNAPSHOT_SECONDS + n_bytes / BYTES_PER_SECOND


def _to_next_evaluation(job: _Job) -> int:
    """Return the number of steps to the evaluation after the last step that was shown."""
    cadence = job.training.experiment.training.evaluate_every
    shown = max(job.training.step, job.quiet_until)
    return shown + cadence - shown % cadence - job.training.step


def _warm_up() -> None:
    """Take one step of a small experiment: torch imports and sets up much on first use."""
    small = {"n_seeds": 1, "batch_size": 16, "n_eval": 16, "steps": 1}
    Training(Experiment(**small), engine="torch").advance(1)


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
    commands: queue.Queue[dict[str, Any] | None] = queue.Queue()
    worker = Worker(output)
    for work, given in ((_read_commands, (commands,)), (worker.beat, ())):
        threading.Thread(target=work, args=given, daemon=True).start()
    _warm_up()
    if is_ready(choose_engine(pick_device("auto"))):
        worker.take_engine()
    else:
        threading.Thread(target=worker.take_engine, daemon=True).start()
    if len(sys.argv) > 1:
        limit_memory(SPARE * int(sys.argv[1]))
    try:
        worker.run(commands)
    except (BrokenPipeError, KeyboardInterrupt):  # the server is gone
        os._exit(0)


if __name__ == "__main__":
    main()
