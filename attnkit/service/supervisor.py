"""Supervision of the training process: it is read, watched for silence, and started again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnkit.service.logs import log
from attnkit.service.process import TrainingProcess
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


@dataclass(frozen=True, eq=False)
class Frame:
    """One message of the training process.

    Attributes:
        header: Fields of the message.
        blob: Bytes that follow the header.
        snapshot: Decoded snapshot of a job, if the message has one.
        result: Decoded result of a finished job.
    """

    header: dict[str, Any]
    blob: bytes
    snapshot: Snapshot | None = None
    result: Result | None = None

    @staticmethod
    def decoded(header: dict[str, Any], blob: bytes) -> Frame:
        """Decode the snapshot and the result of a job.

        Raises:
            ValueError: If the bytes are neither.
        """
        if "job" not in header or not blob:
            return Frame(header, blob)
        snapshot = Snapshot.from_bytes(blob[: header["snapshot"]])
        if header["state"] != "finished":
            return Frame(header, blob, snapshot)
        parameters = blob[header["snapshot"] :]
        return Frame(header, blob, snapshot, Result.from_blobs(snapshot, parameters))

    @property
    def blobs(self) -> tuple[bytes, bytes]:
        """Bytes of the snapshot and of the parameters."""
        size = self.header["snapshot"]
        return self.blob[:size], self.blob[size:]


class Supervisor:
    """Owner of the training process and of the two threads that read and check it.

    Args:
        start: Starts a training process.
        changed: Held while one of the following is called.
        receive: Called with every message about a job or a request.
        recover: Called after the process died and was started again, with the job or request whose
            turn it was, and the number of processes that died in a row without any message.
        check: Called every `CHECK_SECONDS`.

    Attributes:
        process: The present training process.
        n_restarts: Number of times that it was started again.
    """

    def __init__(
        self,
        start: Callable[[], TrainingProcess],
        changed: threading.Condition,
        receive: Callable[[Frame], None],
        recover: Callable[[str, int], None],
        check: Callable[[], None],
    ) -> None:
        self.n_restarts = 0
        self._start, self._changed = start, changed
        self._receive, self._recover, self._check = receive, recover, check
        self._silent_checks = 0  # since the last message
        self._has_sent = False  # whether a message of this process has come
        self._turn = ""
        self._closed = threading.Event()
        self.process = start()
        self._threads = [
            threading.Thread(target=work, name=f"attnkit-{name}", daemon=True)
            for name, work in (("live", self._read), ("leases", self._check_regularly))
        ]

    def begin(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def tell(self, command: dict[str, Any]) -> None:
        """Send a command to the training process without waiting."""
        self.process.tell(command)

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
        """Receive messages until the service is closed."""
        n_silent_deaths = 0
        while not self._closed.is_set():
            try:
                frame = Frame.decoded(*self.process.read())
            except Exception:  # it died, perhaps in the middle of a message, or sends nonsense
                n_silent_deaths += 1
                self._restart(n_silent_deaths)
                continue
            n_silent_deaths = 0
            with self._changed:
                self._silent_checks, self._has_sent = 0, True
                if "turn" in frame.header:
                    self._turn = frame.header["turn"]
                elif "beat" not in frame.header:
                    self._receive(frame)

    def _restart(self, n_silent_deaths: int) -> None:
        """Start the process again, after a longer pause each time it dies at once."""
        self.process.end()  # it may be alive and send nonsense
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
                self.process = self._start()
            except (OSError, RuntimeError):  # no memory for it; the next read fails and tries again
                return
            turn, self._turn = self._turn, ""
            self._recover(turn, n_silent_deaths)

    def _check_regularly(self) -> None:
        while not self._closed.wait(CHECK_SECONDS):
            with self._changed:
                self._kill_if_silent()
                self._check()

    def _kill_if_silent(self) -> None:
        """Kill a process that sends nothing, such as a suspended one; `_read` starts another."""
        self._silent_checks += 1
        if self._silent_checks == (SILENT_CHECKS if self._has_sent else STARTING_CHECKS):
            log("training process silent", seconds=self._silent_checks * CHECK_SECONDS)
            self.process.kill()
