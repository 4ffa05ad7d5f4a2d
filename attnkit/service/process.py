"""The server's side of the training process: it starts, reads, supervises and replaces it."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

from attnkit.foundation.process import environment_with_package
from attnkit.service.logs import log
from attnkit.service.protocol import Answer, Beat, Command, Pace, Turn, Update, encode, read
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
        _close(self._process.stdout)

    def _write(self) -> None:
        """Write commands in a thread of its own, because a full pipe blocks."""
        assert self._process.stdin is not None
        while (command := self._commands.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(encode(command))
                self._process.stdin.flush()
        _close(self._process.stdin)


class TrainingProcess(ChildProcess):
    """A process that runs `attnkit.service.worker`."""

    def __init__(self) -> None:
        super().__init__("attnkit.service.worker")


def _close(pipe: IO[bytes] | None) -> None:
    """Close a pipe whose other end may be gone."""
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()


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
