"""The worker without a process of its own: commands come from a queue, replies stay in memory."""

import contextlib
import io
import queue
import threading
from collections import deque

import pytest
from waiting import end_pages_service

from attnkit.service.protocol import Start, read
from attnkit.service.worker import Worker


class ThreadProcess:
    """Stands in for the training process: the same worker in a thread, begun in no time."""

    id = 0

    def __init__(self):
        self._commands, self._replies, self._dead = queue.Queue(), queue.SimpleQueue(), False
        self._worker = Worker(self)
        self._worker.take_engine()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self):
        with contextlib.suppress(BrokenPipeError, SystemExit):
            self._worker.run(self._commands)
        self._replies.put(None)

    def write(self, message):
        """Take an encoded message of the worker."""
        if self._dead:
            raise BrokenPipeError
        self._replies.put(read(io.BytesIO(message)))

    def flush(self):
        """Do nothing, as no message is buffered."""

    def read(self):
        """Wait for a message."""
        message = self._replies.get()
        if message is None:
            raise EOFError("the process has ended")
        return message

    def send(self, command):
        """Take a command."""
        self._commands.put(command)

    def kill(self):
        """End in the middle of whatever is done."""
        self._dead = True
        self._commands.put(None)
        self._replies.put(None)

    def hang_up(self):
        """End after the present command."""
        self._commands.put(None)

    def end(self, seconds=0.0):
        """Wait for the end."""
        self.kill()
        self._thread.join()

    def close(self):
        """There is nothing to close."""


@pytest.fixture(scope="module")
def in_threads():
    """Give all training services of a module threads instead of processes; the newest is last.

    Turns and checks are short. The service of the pages ends first: its process would be found
    silent, and a thread would replace it.
    """
    end_pages_service()
    newest = deque(maxlen=1)

    def begin():
        newest.append(ThreadProcess())
        return newest[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnkit.service.process.TrainingProcess", begin)
        patch.setattr("attnkit.service.process.CHECK_SECONDS", 0.02)
        for name in ("SILENT_CHECKS", "STARTING_CHECKS"):  # as no thread sends signs of life
            patch.setattr(f"attnkit.service.process.{name}", 10**9)
        patch.setattr("attnkit.service.worker.SLICE_SECONDS", 0.005)
        patch.setattr("attnkit.service.worker.SNAPSHOT_SECONDS", 0.005)
        yield newest


class _Commands(queue.Queue):
    """Commands of a worker, which ends as soon as it has nothing to do."""

    def get(self, block=True):
        """Take the next command; None if the worker would wait."""
        return None if block and self.empty() else super().get(block)


class MemoryWorker(Worker):
    """A worker that keeps its messages."""

    def __init__(self):
        super().__init__(self)
        self.messages, self.commands = [], _Commands()

    def write(self, message):
        """Keep a message."""
        self.messages.append(read(io.BytesIO(message)))

    def flush(self):
        """Do nothing, as no message is buffered."""

    def of(self, kind):
        """Return the messages of a type."""
        return [message for message in self.messages if isinstance(message, kind)]

    def work(self, *commands):
        """Do all that is commanded; a pair of a name and an experiment is a job to start."""
        for command in commands:
            if isinstance(command, tuple):
                command = Start(job=command[0], experiment=command[1].to_json())
            self.commands.put(command)
        self.run(self.commands)
        return self
