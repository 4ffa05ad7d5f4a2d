"""The training process: it trains jobs in turns and sends snapshots to the server.

`attnkit.service.process` starts it as `python -m attnkit.service.worker`. Messages of
`attnkit.service.protocol` come on standard input and leave on standard output. The process ends
when its input ends, so that none outlives the server. Before each turn it sends whose turn it is,
so that the server knows this if the process dies.

Between turns it also answers requests, because pages never import torch: it draws examples of
tasks, lets trained models answer phone books, and inspects them. For these it keeps the last
weights of every job, and films its first seed.

If the kernel has to be compiled first, a thread does that, and jobs begin on torch in the meantime.
A job keeps the engine that it began with.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from typing import BinaryIO

from attnkit.experiment import Experiment, from_text
from attnkit.foundation.machine import processor_kind
from attnkit.foundation.process import give_memory_back, limit_memory, prepare_for_training
from attnkit.service.answers import Archive, FilmGone, error_text
from attnkit.service.jobs import memory_of
from attnkit.service.protocol import (
    Answer,
    Beat,
    Command,
    MeasurePace,
    Message,
    Pace,
    Request,
    Start,
    State,
    Steer,
    Turn,
    Update,
    encode,
    read,
)
from attnkit.training.engine import Engine, choose_engine, is_ready, ready_engine
from attnkit.training.pace import measure_pace
from attnkit.training.recorder import Recorder
from attnkit.training.training import Training, pick_device

HEARTBEAT_SECONDS = 1.0
"""Time between two heartbeats, sent by a thread of their own because one step may take long."""

SLICE_SECONDS = 0.1
"""Length of a job's turn; a command waits until it is over."""

SNAPSHOT_SECONDS = 0.2
"""Shortest time between two small snapshots of a running job."""

BYTES_PER_SECOND = 2**22
"""Largest rate of snapshots; large snapshots are sent less often."""

SPARE = 1.5
"""Memory that all jobs together may take, divided by its estimate."""

HELD_MEGABYTES = 128
"""Estimated memory of stopped jobs that are kept to be continued; the oldest are dropped first."""

TRIM_SECONDS = 2.0
"""Time between two returns of unused memory to the system while several jobs take turns."""

NICENESS = 10
"""Niceness of the process: the server, and a browser on the same machine, come first."""


@dataclass
class TrainingJob:
    """One job with its training, its film, and its place among the other jobs.

    Attributes:
        paused: Whether it takes no turns.
        steps_left: Number of steps before it pauses again; None: no limit.
        obeyed: Number of the last command.
        next_at: Time from which the next snapshot may be sent.
        pace: Seconds per step, as measured in the last turn.
        max_seconds: Training time after which it is stopped.
        quiet_until: Step that it had reached before; no snapshots of earlier steps are sent.
        address: Jobs of the same address share its turns.
        served: Training time received, not counted from 0 but as `Worker._enter` does.
    """

    training: Training
    recorder: Recorder
    paused: bool = False
    steps_left: int | None = None
    obeyed: int = 0
    next_at: float = 0.0
    pace: float = 0.05
    max_seconds: float = float("inf")
    quiet_until: int = 0
    address: str = ""
    served: float = 0.0

    @property
    def n_steps_to_evaluation(self) -> int:
        """Number of steps to the evaluation after the last step that pages have seen."""
        evaluate_every = self.training.experiment.training.evaluate_every
        seen = max(self.training.step, self.quiet_until)
        return seen + evaluate_every - seen % evaluate_every - self.training.step


class Worker:
    """Main loop of the training process: takes commands, trains jobs and answers requests.

    Args:
        output: Stream to which messages are written.
    """

    def __init__(self, output: BinaryIO) -> None:
        self._output, self._writing = output, threading.Lock()
        self._jobs: dict[str, TrainingJob] = {}
        self._served: dict[str, float] = {}  # training time by address, counted as in `_enter`
        self._held: dict[str, TrainingJob] = {}  # stopped jobs that can be continued
        self._archive = Archive(self._jobs)
        self._trim_at = 0.0
        self._engine: Engine = "torch"  # for jobs that begin

    def take_engine(self) -> None:
        """Compile this machine's engine if needed, and use it for jobs that begin after that."""
        self._engine = ready_engine(pick_device("auto"))

    def run(self, commands: queue.Queue[Command | None]) -> None:
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
            if isinstance(command, Request) and active:  # many requests must not stop training
                self._take_turn(self._next(active))

    def _trim(self) -> None:
        give_memory_back()
        self._trim_at = time.monotonic() + TRIM_SECONDS

    @property
    def _active(self) -> dict[str, TrainingJob]:
        return {name: job for name, job in self._jobs.items() if not job.paused}

    def _next(self, active: dict[str, TrainingJob]) -> str:
        """Return the job whose turn it is: the least served job of the least served address."""
        return min(
            active, key=lambda name: (self._served[active[name].address], active[name].served)
        )

    def _enter(self, job: TrainingJob) -> None:
        """Count a job that begins or continues as served no less than the active ones.

        Otherwise it would take all turns until it has caught up.
        """
        active = [other for other in self._active.values() if other is not job]
        same_address = [other.served for other in active if other.address == job.address]
        job.served = max(job.served, min(same_address, default=0.0))
        if not same_address:
            least = min((self._served[other.address] for other in active), default=0.0)
            self._served[job.address] = max(self._served.get(job.address, 0.0), least)
        present = {other.address for other in self._jobs.values()}
        self._served = {address: self._served[address] for address in present}

    def _obey(self, command: Command) -> None:
        if isinstance(command, Request):
            self._answer(command)
        elif isinstance(command, MeasurePace):
            engine = self._engine
            with contextlib.suppress(Exception):  # the estimates then follow the first jobs
                self._write(Pace(measure_pace(engine), engine))
        elif isinstance(command, Start):
            self._start(command)
        elif command.job in self._jobs:  # not finished in the meantime
            self._steer(self._jobs[command.job], command)

    def _steer(self, job: TrainingJob, command: Steer) -> None:
        job.obeyed = command.number
        if job.paused:
            self._enter(job)
        if command.verb == "stop":
            self._end(command.job, "stopped")
            return
        job.paused = command.verb == "pause"
        if job.paused:
            self._send(command.job, job, "paused")
        else:
            job.steps_left = job.n_steps_to_evaluation if command.verb == "step" else None

    def _answer(self, request: Request) -> None:
        """Answer a request, or send why that is impossible."""
        self._write(Turn(request.request))
        try:
            answer = Answer(request.request, self._archive.answer(request))
        except FilmGone:
            answer = Answer(request.request, gone=True)
        except Exception as error:  # the page must learn of any error
            answer = Answer(request.request, error=error_text(error))
        self._write(answer)

    def _start(self, command: Start) -> None:
        self._write(Turn(command.job))
        try:
            job = self._held.pop(command.resumes, None) or self._begin(command)
        except Exception as error:  # the page must learn of any error
            self._fail(command.job, error)
            return
        job.paused, job.steps_left, job.obeyed = command.paused, None, 0
        job.max_seconds, job.address = command.seconds, command.address
        job.quiet_until = command.step
        self._jobs[command.job] = job
        self._enter(job)
        if job.training.step >= job.quiet_until:
            self._send(command.job, job, "paused" if job.paused else "running")

    def _begin(self, command: Start) -> TrainingJob:
        """Begin the missing runs, or all runs if another engine has trained the finished ones."""
        device = pick_device("auto")
        engine = ready_engine(device, self._engine)
        same = tuple(command.maker) == (engine, processor_kind(device))
        text = command.missing if same else command.experiment
        training = Training(from_text(text), engine=engine)
        return TrainingJob(training, Recorder(training))

    def _take_turn(self, name: str) -> None:
        job = self._jobs[name]
        n_steps = max(1, round(SLICE_SECONDS / job.pace))
        left = job.recorder.n_steps_left
        if left:  # equal turns up to the next frame, as each turn ends with its slowest cohort
            n_steps = math.ceil(left / max(1, round(left / n_steps)))
        if job.steps_left is not None:
            n_steps = min(n_steps, job.steps_left)
            job.steps_left -= n_steps
        self._write(Turn(name))
        started = time.monotonic()
        try:
            job.training.advance(n_steps)
            job.recorder.record_frame()
        except Exception as error:  # the failure of one job must not end the others
            del self._jobs[name]
            self._fail(name, error)
            return
        seconds = time.monotonic() - started
        job.pace = seconds / n_steps
        job.served += seconds
        self._served[job.address] += seconds
        if job.training.finished:
            self._end(name, "finished")
        elif job.training.seconds > job.max_seconds:
            limit = f"after {job.max_seconds:.0f} s of training, the limit of this copy"
            self._end(name, "stopped", limit)
        elif job.steps_left == 0:
            job.paused, job.steps_left = True, None
            self._send(name, job, "paused")
        elif time.monotonic() >= job.next_at and job.training.step >= job.quiet_until:
            self._send(name, job, "running")

    def _end(self, name: str, state: State, reason: str = "") -> None:
        """End a job and send its last snapshot; keep its film and its weights."""
        job = self._jobs.pop(name)
        if state == "stopped" and not reason:
            self._hold(name, job)
        self._archive.keep(name, job)
        self._send(name, job, state, reason)
        del job  # so that `_trim` returns its memory
        self._trim()

    def _hold(self, name: str, job: TrainingJob) -> None:
        """Keep a stopped job so that it can be continued, and drop the oldest ones."""
        self._held[name] = job
        sizes = {key: memory_of(held.training.experiment) for key, held in self._held.items()}
        while sum(sizes.values()) > HELD_MEGABYTES:
            oldest = next(iter(sizes))
            del self._held[oldest], sizes[oldest]

    def _send(self, name: str, job: TrainingJob, state: State, reason: str = "") -> None:
        """Send a snapshot, for a finished job with its weights; if that fails, the job fails."""
        parameters = b""
        try:
            if state == "finished":
                snapshot, parameters = job.training.result().to_blobs()
            else:
                stopped = state == "stopped"
                snapshot = job.training.snapshot("stopped" if stopped else None).to_bytes()
        except Exception as error:  # the failure of one job must not end the others
            self._jobs.pop(name, None)
            self._fail(name, error)
            return
        self._write(Update(name, state, job.obeyed, reason, snapshot, parameters))
        rest = rest_after(len(snapshot))
        job.next_at = time.monotonic() + rest * max(1, len(self._active))

    def _fail(self, name: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"[:500]
        if isinstance(error, MemoryError) or "allocate memory" in text:
            text = "not enough memory: take smaller sizes, or fewer seeds"
        self._write(Update(name, "failed", error=text))

    def _write(self, message: Message) -> None:
        with self._writing:
            self._output.write(encode(message))
            self._output.flush()

    def beat(self) -> None:
        """Send heartbeats until the server is gone. Call it in a thread of its own."""
        never = threading.Event()
        with contextlib.suppress(OSError):
            while not never.wait(HEARTBEAT_SECONDS):
                self._write(Beat())


def rest_after(n_bytes: int) -> float:
    """Return the shortest time in seconds between a snapshot of `n_bytes` and the next one."""
    return SNAPSHOT_SECONDS + n_bytes / BYTES_PER_SECOND


def _warm_up() -> None:
    """Take one step of a small experiment, because torch imports and sets up much on first use."""
    experiment = Experiment(n_seeds=1, batch_size=16, n_eval=16, steps=1)
    Training(experiment, engine="torch").advance(1)


def _compile(worker: Worker, commands: queue.Queue[Command | None]) -> None:
    """Compile the engine, and let the worker measure its pace."""
    worker.take_engine()
    commands.put(MeasurePace())


def _read_commands(commands: queue.Queue[Command | None]) -> None:
    try:
        while True:
            commands.put(read(sys.stdin.buffer))
    except EOFError:  # the server is gone
        pass
    finally:
        commands.put(None)


def main() -> None:
    """Run the training process until standard input ends."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not break a frame
    os.nice(NICENESS)
    prepare_for_training()
    commands: queue.Queue[Command | None] = queue.Queue()
    worker = Worker(output)
    threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
    threading.Thread(target=worker.beat, daemon=True).start()
    _warm_up()
    if is_ready(choose_engine(pick_device("auto"))):
        worker.take_engine()
    else:
        threading.Thread(target=_compile, args=(worker, commands), daemon=True).start()
    commands.put(MeasurePace())
    if len(sys.argv) > 1:
        limit_memory(SPARE * int(sys.argv[1]))
    try:
        worker.run(commands)
    except (BrokenPipeError, KeyboardInterrupt):  # the server is gone
        os._exit(0)


if __name__ == "__main__":
    main()
