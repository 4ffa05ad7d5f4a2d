"""The training process: it trains jobs in turns and sends snapshots to the server.

`attnkit.service.process` starts it as `python -m attnkit.service.worker`. Messages of
`attnkit.service.protocol` come on standard input and leave on standard output. The process ends
when its input ends, so that none outlives the server. Before each turn it sends whose turn it is,
so that the server knows this if the process dies.

It also answers requests, because pages never import torch: it draws examples of tasks, lets trained
models answer phone books, and inspects them. For these it keeps the last weights of every job, and
films its first seed.

One loop does all of this. Building a training, training and answering requests are done in turns of
about `SLICE_SECONDS`. All commands that have come are obeyed before a turn is chosen, and
`NestedShares` chooses it by the seconds that each address has used, then by those that its answers
and its trainings have used, and then by those of each visitor who asks, or of each job.

If the kernel has to be compiled first, a thread does that, and jobs begin on torch in the meantime.
A job keeps the engine that it began with.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import BinaryIO

from attnkit.experiment import Experiment, from_text
from attnkit.foundation.language import mark
from attnkit.foundation.process import give_memory_back, prepare_for_training
from attnkit.foundation.slices import SlicedWork
from attnkit.service.allowance import Allowance
from attnkit.service.answers import Archive, FilmGone, error_text, is_lack_of_memory
from attnkit.service.fair_shares import NestedShares
from attnkit.service.modules import answer_to
from attnkit.service.protocol import (
    Answer,
    Beat,
    Command,
    GiveModule,
    MeasurePace,
    Message,
    ModelRequest,
    Pace,
    Request,
    Start,
    State,
    Steer,
    Turn,
    Update,
    Withdraw,
    encode,
    read,
)
from attnkit.service.work import Build, Inquiry, TrainingJob, build
from attnkit.training.engine import Engine, choose_engine, is_ready, ready_engine
from attnkit.training.memory import peak_megabytes
from attnkit.training.pace import measure_pace
from attnkit.training.training import Training, pick_device

HEARTBEAT_SECONDS = 1.0
"""Time between two heartbeats, sent by a thread of their own because one step may take long."""

SLICE_SECONDS = 0.1
"""Length of a turn; a command waits until it is over."""

SNAPSHOT_SECONDS = 0.2
"""Shortest time between two small snapshots of a running job."""

BYTES_PER_SECOND = 2**22
"""Largest rate of snapshots; large snapshots are sent less often."""

HELD_MEGABYTES = 128
"""Estimated memory of stopped jobs that are kept to be continued; the oldest are dropped first."""

ANSWER_MEGABYTES = 300
"""Memory of the computation of an answer in MiB, in addition to that of training its models."""

TRIM_SECONDS = 2.0
"""Time between two returns of unused memory to the system while several jobs take turns."""

NICENESS = 10
"""Niceness of the process: the server, and a browser on the same machine, come first."""


class Worker:
    """Main loop of the training process: takes commands, trains jobs and answers requests.

    Args:
        output: Stream to which messages are written.
        allowance: Class of the limits on the memory of jobs and answers.
    """

    def __init__(self, output: BinaryIO, allowance: type[Allowance] = Allowance) -> None:
        self._output, self._writing = output, threading.Lock()
        self._allowance = allowance
        self._shares = NestedShares()
        self._builds: dict[str, Build] = {}
        self._jobs: dict[str, TrainingJob] = {}
        self._held: dict[str, TrainingJob] = {}  # stopped jobs that can be continued
        self._inquiries: dict[bytes, Inquiry] = {}
        self._archive = Archive(self._jobs)
        self._has_ended, self._trim_at = False, 0.0  # the first: since memory was last given back
        self._engine: Engine = "torch"  # for jobs that begin

    def take_engine(self) -> None:
        """Compile this machine's engine if needed, and use it for jobs that begin after that."""
        self._engine = ready_engine(pick_device("auto"))

    def run(self, commands: queue.Queue[Command | None]) -> None:
        """Work until a None is taken from the queue."""
        while True:
            turns = self._turns()
            try:
                command = commands.get(block=not turns)
            except queue.Empty:
                path = self._shares.next(turns)
                started = time.monotonic()
                turns[path]()
                self._shares.charge(path, time.monotonic() - started)
            else:
                if command is None:
                    return
                self._obey(command)
            if self._has_ended or (len(turns) > 1 and time.monotonic() > self._trim_at):
                give_memory_back()
                self._has_ended, self._trim_at = False, time.monotonic() + TRIM_SECONDS

    def _turns(self) -> dict[tuple[str, ...], Callable[[], None]]:
        """Return the work that waits for a turn, by address, kind, and visitor or job.

        Each address has at most one answer in progress, which limits the memory that answers take.
        """
        turns: dict[tuple[str, ...], Callable[[], None]] = {}
        begun = {
            request.address
            for inquiry in self._inquiries.values()
            if inquiry.memory is not None
            for request in inquiry.requests.values()
        }
        for key, inquiry in self._inquiries.items():
            for request in inquiry.requests.values():
                if inquiry.memory is not None or request.address not in begun:
                    path = (request.address, "answers", request.visitor)
                    turns.setdefault(path, partial(self._answer, key, request))
        for name, job_to_build in self._builds.items():
            turns[job_to_build.start.address, "trainings", name] = partial(self._build, name)
        for name, job in self._jobs.items():
            if job.reports or not job.paused:
                turns[job.address, "trainings", name] = partial(self._train, name)
        return turns

    # commands

    def _obey(self, command: Command) -> None:
        if isinstance(command, Request):
            inquiry = self._inquiries.get(command.key)
            if inquiry is None:
                inquiry = Inquiry(SlicedWork(partial(self._archive.answer, command)))
                self._inquiries[command.key] = inquiry
            inquiry.requests[command.request] = command
        elif isinstance(command, Withdraw):
            self._withdraw(command.request)
        elif isinstance(command, GiveModule):
            answer_to(command)  # after an error, experiments that name the class fail
        elif isinstance(command, MeasurePace):
            engine = self._engine
            with contextlib.suppress(Exception):  # the estimates then follow the first jobs
                self._write(Pace(measure_pace(engine), engine))
        elif isinstance(command, Start):
            job = self._held.pop(command.resumes, None)
            if job is None:
                self._builds[command.job] = Build(command)
            else:
                job.begin(command)
                self._jobs[command.job] = job
        elif command.job in self._builds:
            self._steer_build(command)
        elif command.job in self._jobs:  # not finished in the meantime
            job = self._jobs[command.job]
            job.obey(command)
            if command.verb == "stop":
                started, path = time.monotonic(), (job.address, "trainings", command.job)
                self._end(command.job, "stopped")
                self._shares.charge(path, time.monotonic() - started)

    def _steer_build(self, command: Steer) -> None:
        """Steer a job that is not built yet; if it is stopped, it is never built."""
        build_of_job = self._builds[command.job]
        build_of_job.steer = command
        if command.verb == "stop":
            del self._builds[command.job]
            if build_of_job.work is not None:
                build_of_job.work.withdraw()
                self._has_ended = True
            self._write(Update(command.job, "stopped", command.number))

    def _withdraw(self, request: str) -> None:
        """Drop a request, and the computation of its answer if nobody else has asked for it."""
        for key, inquiry in list(self._inquiries.items()):
            if inquiry.requests.pop(request, None) is not None and not inquiry.requests:
                del self._inquiries[key]
                inquiry.work.withdraw()
                self._has_ended = self._has_ended or inquiry.memory is not None

    # turns

    def _answer(self, key: bytes, request: Request) -> None:
        """Compute an answer for one turn; if it is finished, send it to all who wait for it."""
        inquiry = self._inquiries[key]
        requests = tuple(inquiry.requests)
        self._write(Turn(requests))
        try:
            if inquiry.memory is None:
                inquiry.memory = self._allowance(ANSWER_MEGABYTES + _megabytes_of(request))
            with inquiry.memory.limit():
                if not inquiry.work.advance(SLICE_SECONDS):
                    return
            answer = Answer(requests, inquiry.work.result())
        except FilmGone:
            answer = Answer(requests, gone=True)
        except Exception as error:  # the page must learn of any error
            answer = Answer(requests, error=error_text(error))
        del self._inquiries[key]
        self._write(answer)

    def _build(self, name: str) -> None:
        """Build a training for one turn; if it is finished, begin its job."""
        building = self._builds[name]
        start, engine = building.start, self._engine
        self._write(Turn((name,)))
        try:
            if building.work is None or building.memory is None:
                experiment = building.experiment(engine)
                building.memory = self._allowance(peak_megabytes(experiment, engine))
                building.work = SlicedWork(partial(build, experiment, engine))
            with building.memory.limit():
                if not building.work.advance(SLICE_SECONDS):
                    return
            job = TrainingJob(*building.work.result(), building.memory)
        except Exception as error:  # the page must learn of any error
            del self._builds[name]
            self._fail(name, error)
            return
        del self._builds[name]
        job.begin(start)
        if building.steer is not None:
            job.obey(building.steer)
        self._jobs[name] = job

    def _train(self, name: str) -> None:
        """Train a job for one turn, or send its snapshot if one was requested."""
        job = self._jobs[name]
        self._write(Turn((name,)))
        if job.reports:
            self._send(name, job, "paused" if job.paused else "running")
            return
        n_steps = job.n_steps(SLICE_SECONDS)
        started = time.monotonic()
        try:
            with job.memory.limit():
                job.training.advance(n_steps)
                job.recorder.record_frame()
        except Exception as error:  # the failure of one job must not end the others
            del self._jobs[name]
            self._fail(name, error)
            return
        job.pace = (time.monotonic() - started) / n_steps
        if job.training.finished:
            self._end(name, "finished")
        elif job.training.seconds > job.max_seconds:
            most = job.max_seconds
            limit = mark("after {most:.0f} s of training, the limit of this copy", most=most)
            self._end(name, "stopped", limit)
        elif job.steps_left == 0:
            job.paused, job.steps_left = True, None
            self._send(name, job, "paused")
        elif time.monotonic() >= job.next_at and job.training.step >= job.quiet_until:
            self._send(name, job, "running")

    # ends and messages

    def _end(self, name: str, state: State, reason: str = "") -> None:
        """End a job and send its last snapshot; keep its film and its weights."""
        job = self._jobs.pop(name)
        if state == "stopped" and not reason:
            self._hold(name, job)
        self._archive.keep(name, job)
        self._send(name, job, state, reason)
        self._has_ended = True

    def _hold(self, name: str, job: TrainingJob) -> None:
        """Keep a stopped job so that it can be continued, and drop the oldest ones."""
        self._held[name] = job
        sizes = {key: held.memory.estimate for key, held in self._held.items()}
        while sum(sizes.values()) > HELD_MEGABYTES:
            oldest = next(iter(sizes))
            del self._held[oldest], sizes[oldest]

    def _send(self, name: str, job: TrainingJob, state: State, reason: str = "") -> None:
        """Send a snapshot, for a finished job with its weights; if that fails, the job fails."""
        parameters, job.reports = b"", False
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
        n_active = sum(not other.paused for other in self._jobs.values())
        job.next_at = time.monotonic() + rest * max(1, n_active)

    def _fail(self, name: str, error: Exception) -> None:
        self._has_ended = True
        text = error_text(error)
        if is_lack_of_memory(error):
            text = mark("it needs more memory than estimated; take smaller sizes, or fewer seeds")
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


def _megabytes_of(request: Request) -> float:
    """Return the estimated memory in MiB of training the models that a request is about."""
    if isinstance(request, ModelRequest) and request.experiment:
        return peak_megabytes(from_text(request.experiment), "torch")
    return 0.0


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
    try:
        worker.run(commands)
    except (BrokenPipeError, KeyboardInterrupt):  # the server is gone
        os._exit(0)


if __name__ == "__main__":
    main()
