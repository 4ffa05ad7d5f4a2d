"""The training process: it trains jobs in turns and sends snapshots to the server.

`attnkit.service.process` starts it as `python -m attnkit.service.worker`. Messages of
`attnkit.service.protocol` come on standard input and leave on standard output. The process ends
when its input ends, so that none outlives the server. Before each turn it sends whose turn it is,
so that the server knows this if the process dies.

It also answers requests, because pages never import torch: it draws examples of tasks, lets trained
models answer phone books, and inspects them. For these it keeps the last weights of every job, and
films its first seed.

One loop does all of this. Building a training, training and answering requests are done in turns of
about `SLICE_SECONDS`. All commands that have come are obeyed before a turn is chosen, and `Turns`
chooses it: answers come first, addresses have equal shares, and so have the jobs of an address.

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
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark
from attnkit.foundation.machine import free_and_total_memory
from attnkit.foundation.process import give_memory_back, limit_memory, prepare_for_training
from attnkit.foundation.slices import SlicedWork
from attnkit.service.answers import Archive, FilmGone, error_text, is_lack_of_memory
from attnkit.service.modules import answer_to
from attnkit.service.protocol import (
    Answer,
    Beat,
    Command,
    GiveModule,
    MeasurePace,
    Message,
    Pace,
    Request,
    Start,
    State,
    Turn,
    Update,
    Verb,
    Withdraw,
    encode,
    read,
)
from attnkit.service.server import server_settings
from attnkit.service.training_job import TrainingJob, build
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

ANSWER_SECONDS = 1.0
"""Seconds for which answers come before trainings; after that they have a third of the time."""

MARGIN, ANSWERS_MEGABYTES = 1.3, 600
"""The process may take so many times the estimated memory of all trainings, and in addition so many
MiB for answers. An allocation beyond it fails, and with it the job or answer that makes it."""

TRIM_SECONDS = 2.0
"""Time between two returns of unused memory to the system while several jobs take turns."""

NICENESS = 10
"""Niceness of the process: the server, and a browser on the same machine, come first."""

Path = tuple[str, str, str]
"""Kind of work ("answers" or "trainings"), address, and the job or the visitor who asks."""


@dataclass
class Turns:
    """Whose turn comes next. A path says whose work it is: (kind, address, job or visitor).

    Answers come first, because people wait for them, within `ANSWER_SECONDS`. Otherwise whoever has
    used least comes next, as in start-time fair queueing (Goyal, Vin and Cheng, 1996): first among
    addresses, then among the jobs of an address. Who was away enters level with the others.
    """

    _used: dict[tuple[str, ...], float] = field(default_factory=dict)  # by beginning of a path
    _now: dict[tuple[str, ...], float] = field(default_factory=dict)  # used by who came last
    _lead: float = -ANSWER_SECONDS  # seconds of answers beyond half of those of trainings

    def next(self, waiting: Collection[Path]) -> Path:
        """Return the waiting path that comes next; among equal ones, the first."""
        kinds = {kind for kind, *_ in waiting}
        if len(kinds) == 2:
            kinds = {"answers" if self._lead < 0 else "trainings"}
        else:
            self._lead = -ANSWER_SECONDS
        path = min(
            (path for path in waiting if path[0] in kinds),
            key=lambda path: (self._start(path[:2]), self._start(path)),
        )
        for name in (path[:2], path):
            self._now[name[:-1]] = self._start(name)
        ahead = {n: used for n, used in self._used.items() if used > self._now.get(n[:-1], 0.0)}
        known = {path[:2] for path in waiting} | {name for name in ahead if len(name) == 2}
        self._used = {name: used for name, used in ahead.items() if name[:2] in known}
        self._now = {name: at for name, at in self._now.items() if len(name) == 1 or name in known}
        return path

    def charge(self, path: Path, seconds: float) -> None:
        """Count seconds of work for an address, and for a job or visitor of it."""
        more = seconds if path[0] == "answers" else -seconds / 2
        self._lead = max(-ANSWER_SECONDS, self._lead + more)
        for name in (path[:2], path):
            self._used[name] = self._start(name) + seconds

    def _start(self, name: tuple[str, ...]) -> float:
        return max(self._used.get(name, 0.0), self._now.get(name[:-1], 0.0))


@dataclass
class Inquiry:
    """Equal requests, which share one answer; it is computed in the turns of all their senders.

    Attributes:
        work: The computation of the answer.
        begun: Whether its computation has begun.
        requests: Requests by id.
    """

    work: SlicedWork[bytes]
    begun: bool = False
    requests: dict[str, Request] = field(default_factory=dict)


class Worker:
    """Main loop of the training process: takes commands, trains jobs and answers requests.

    Args:
        output: Stream to which messages are written.
    """

    def __init__(self, output: BinaryIO) -> None:
        self._output, self._writing = output, threading.Lock()
        self._shares = Turns()
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

    def _turns(self) -> dict[Path, Callable[[], None]]:
        """Return the work that waits for a turn.

        Each address has at most one answer in progress, which limits the memory that answers take.
        """
        turns: dict[Path, Callable[[], None]] = {}
        answered = {
            request.address
            for inquiry in self._inquiries.values()
            if inquiry.begun
            for request in inquiry.requests.values()
        }
        for key, inquiry in self._inquiries.items():
            for request in inquiry.requests.values():
                if inquiry.begun or request.address not in answered:
                    path = ("answers", request.address, request.visitor)
                    turns.setdefault(path, partial(self._answer, key))
        for name, job in self._jobs.items():
            if not job.is_built or job.reports or not job.paused:
                turn = self._train if job.is_built else self._build
                turns["trainings", job.start.address, name] = partial(turn, name)
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
            verb: Verb = "pause" if command.paused else "resume"
            job = self._held.pop(command.resumes, None)
            if job is None:
                job = TrainingJob(command, verb)
            else:
                job.start, job.verb, job.obeyed = command, verb, 0
                job.begin()
            self._jobs[command.job] = job
        elif command.job in self._jobs:  # not finished in the meantime
            job = self._jobs[command.job]
            job.obeyed = command.number
            if command.verb != "stop":
                job.steer(command.verb)
            elif job.is_built:
                started = time.monotonic()
                self._end(command.job, "stopped")
                path = ("trainings", job.start.address, command.job)
                self._shares.charge(path, time.monotonic() - started)
            else:
                del self._jobs[command.job]
                if job.building is not None:
                    job.building.withdraw()
                    self._has_ended = True
                self._write(Update(command.job, "stopped", command.number))

    def _withdraw(self, request: str) -> None:
        """Drop a request, and the computation of its answer if nobody else has asked for it."""
        for key, inquiry in list(self._inquiries.items()):
            if inquiry.requests.pop(request, None) is not None and not inquiry.requests:
                del self._inquiries[key]
                inquiry.work.withdraw()
                self._has_ended = self._has_ended or inquiry.begun

    # turns

    def _answer(self, key: bytes) -> None:
        """Compute an answer for one turn; if it is finished, send it to all who wait for it."""
        inquiry = self._inquiries[key]
        inquiry.begun, requests = True, tuple(inquiry.requests)
        self._write(Turn(requests))
        try:
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
        job = self._jobs[name]
        self._write(Turn((name,)))
        try:
            if job.building is None:
                job.building = SlicedWork(partial(build, job.start, self._engine))
            if not job.building.advance(SLICE_SECONDS):
                return
            job.training, job.recorder = job.building.result()
        except Exception as error:  # the page must learn of any error
            del self._jobs[name]
            self._fail(name, error)
            return
        job.is_built, job.building = True, None
        job.begin()

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
            job.training.advance(n_steps)
            job.recorder.record_frame()
        except Exception as error:  # the failure of one job must not end the others
            del self._jobs[name]
            self._fail(name, error)
            return
        job.pace = (time.monotonic() - started) / n_steps
        if job.training.finished:
            self._end(name, "finished")
        elif job.training.seconds > (most := job.start.seconds):
            limit = mark("after {most:.0f} s of training, the limit of this copy", most=most)
            self._end(name, "stopped", limit)
        elif job.training.step == job.pauses_at:
            job.steer("pause")
            self._send(name, job, "paused")
        elif time.monotonic() >= job.next_at and job.training.step >= job.start.step:
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
        sizes = {key: peak_megabytes(job.training.experiment) for key, job in self._held.items()}
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
        rest = SNAPSHOT_SECONDS + len(snapshot) / BYTES_PER_SECOND
        n_active = sum(other.is_built and not other.paused for other in self._jobs.values())
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
    most_megabytes = MARGIN * server_settings().training_megabytes + ANSWERS_MEGABYTES
    limit_memory(min(free_and_total_memory()[1], most_megabytes))
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
