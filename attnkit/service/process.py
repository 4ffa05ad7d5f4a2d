"""The server's side of the training process: it starts, reads, supervises and replaces it.

Pages request what only that process can compute: examples, answers and inspections.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache

from attnkit.analysis.responses import Example
from attnkit.experiment import Experiment
from attnkit.foundation.language import mark
from attnkit.foundation.process import environment_with_package
from attnkit.service.jobs import NOBODY, Watcher
from attnkit.service.logs import log
from attnkit.service.protocol import (
    Answer,
    Beat,
    Command,
    DrawExample,
    Pace,
    Request,
    Turn,
    Update,
    Withdraw,
    encode,
    read,
)
from attnkit.tasks import Task
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

CHECK_SECONDS = 1.0
"""Time between two checks."""

SILENT_CHECKS = 15
"""Checks without a message after which the training process is replaced.

They are counted, not timed, because no check takes place while the whole machine is suspended.
"""

STARTING_CHECKS = 120
"""Checks without the first message: a new process imports torch, perhaps from a slow disk."""

MAX_EXAMPLES = 256
"""Number of examples that are remembered, one for each setting of a task."""

OF_ADDRESS, OF_VISITOR = 60, 6
"""Largest number of requests under way of one address, and of one browser at it."""

_BUSY = mark("The training process is busy: ask again in a moment")

_DIED = mark("The training process died and began anew: ask again")

_DIED_OF_IT = mark("The training process died while it answered this request")

Reply = Answer | Beat | Pace | Turn | Update
"""Messages of the training process."""


class ChildProcess:
    """A process that takes commands on standard input and writes replies on standard output.

    Args:
        module: Name of the module that it runs.
    """

    def __init__(self, module: str) -> None:
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # so that Ctrl-C reaches the server only
            # numpy's threads would compete with those of torch
            env={"OPENBLAS_NUM_THREADS": "1", **environment_with_package()},
        )
        self._writer = threading.Thread(target=self._write, name="attnkit-commands", daemon=True)
        self._writer.start()

    @property
    def id(self) -> int:
        """Id of the process."""
        return self._process.pid

    def send(self, command: Command) -> None:
        """Send a command without waiting; it is lost if the process has died."""
        self._commands.put(command)

    def read(self) -> Reply:
        """Wait for one message.

        Raises:
            EOFError: If the process has ended.
            ValueError: If the process sends an invalid message.
        """
        assert self._process.stdout is not None
        reply: Reply = read(self._process.stdout)
        return reply

    def kill(self) -> None:
        """End the process at once; `read` then raises."""
        self._process.kill()

    def hang_up(self) -> None:
        """Close standard input of the process, so that it ends by itself."""
        self._commands.put(None)

    def end(self, seconds: float = 0.0) -> None:
        """Wait until the process has ended, and kill it when the time is up."""
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        self.hang_up()
        self._writer.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _write(self) -> None:
        """Write commands in a thread of its own, because a full pipe blocks."""
        assert self._process.stdin is not None
        while (command := self._commands.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(encode(command))
                self._process.stdin.flush()
        with contextlib.suppress(OSError):  # its other end may be gone
            self._process.stdin.close()


class TrainingProcess(ChildProcess):
    """A process that runs `attnkit.service.worker`."""

    def __init__(self) -> None:
        super().__init__("attnkit.service.worker")


class Supervisor:
    """Owner of the training process and of the two threads that read and check it.

    Args:
        changed: Held while one of the following is called, and by whoever makes this object.
        receive: Called with every message about a job or a request, and with the snapshot and the
            result that it holds.
        recover: Called after the process died and was started again, with the ids of the job or
            requests whose turn it was, and the number of processes that died in a row without any
            message.
        check: Called every `CHECK_SECONDS`.

    Attributes:
        process: The present training process.
        n_restarts: Number of times that it was started again.
    """

    def __init__(
        self,
        changed: threading.Condition,
        receive: Callable[[Answer | Pace | Update, Snapshot | None, Result | None], None],
        recover: Callable[[tuple[str, ...], int], None],
        check: Callable[[], None],
    ) -> None:
        self.n_restarts = 0
        self._changed = changed
        self._receive, self._recover, self._check = receive, recover, check
        self._silent_checks = 0  # since the last message
        self._has_sent = False  # whether a message of this process has come
        self._turn: tuple[str, ...] = ()
        self._closed = threading.Event()
        self.process = TrainingProcess()
        self._threads = [
            threading.Thread(target=work, name=f"attnkit-{name}", daemon=True)
            for name, work in (("live", self._read), ("leases", self._check_regularly))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the training process and both threads."""
        with self._changed:
            self._closed.set()
            self.process.hang_up()
        self.process.end(seconds=5)
        for thread in self._threads:
            thread.join()
        self.process.close()

    def _read(self) -> None:
        """Receive messages until the service is closed; snapshots are decoded without the lock."""
        n_silent_deaths = 0
        while not self._closed.is_set():
            try:
                message = self.process.read()
                decoded = message.decode() if isinstance(message, Update) else (None, None)
            except (
                Exception
            ):  # it died, perhaps in the middle of a message, or its message is invalid
                n_silent_deaths += 1
                self._restart(n_silent_deaths)
                continue
            n_silent_deaths = 0
            with self._changed:
                self._silent_checks, self._has_sent = 0, True
                if isinstance(message, Turn):
                    self._turn = tuple(message.ids)
                elif not isinstance(message, Beat):
                    self._receive(message, *decoded)

    def _restart(self, n_silent_deaths: int) -> None:
        """Start the process again, after a longer pause each time it dies at once."""
        self.process.end()  # it may be alive and send invalid messages
        if n_silent_deaths > 1:
            self._closed.wait(min(30.0, 0.5 * 2**n_silent_deaths))
        with self._changed:
            if self._closed.is_set():
                return
            self.n_restarts += 1
            log("training process died", restarts=self.n_restarts)
            self.process.close()
            self._silent_checks, self._has_sent = 0, False
            try:
                self.process = TrainingProcess()
            except (OSError, RuntimeError):  # no memory for it; the next read fails and tries again
                return
            turn, self._turn = self._turn, ()
            self._recover(turn, n_silent_deaths)

    def _check_regularly(self) -> None:
        """Call `check`, and kill a process that sends nothing; `_read` then starts another."""
        while not self._closed.wait(CHECK_SECONDS):
            with self._changed:
                self._silent_checks += 1
                if self._silent_checks == (SILENT_CHECKS if self._has_sent else STARTING_CHECKS):
                    log("training process silent", seconds=self._silent_checks * CHECK_SECONDS)
                    self.process.kill()
                self._check()


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
