"""The worker without a process of its own: commands come from a queue, frames stay in memory."""

import contextlib
import json
import queue
import threading

import pytest

from attnkit.service.worker import Worker

RUN = {"do": "start", "paused": False, "seconds": 3600.0, "address": ""}
"""Fields of every command that starts a job."""


class ThreadProcess:
    """Stands in for the training process: the same worker in a thread, begun in no time."""

    id = 0

    def __init__(self, megabytes=0):
        self._commands, self._frames, self._dead = queue.Queue(), queue.SimpleQueue(), False
        self._worker = Worker(self)
        self._worker.take_engine()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self):
        with contextlib.suppress(BrokenPipeError, SystemExit):
            self._worker.run(self._commands)
        self._frames.put(None)

    def write(self, frame):
        """Take a frame of the worker."""
        if self._dead:
            raise BrokenPipeError
        header, _, blob = frame.partition(b"\n")
        self._frames.put((json.loads(header), blob))

    def flush(self):
        """Do nothing, as no frame is buffered."""

    def read(self):
        """Wait for a frame."""
        frame = self._frames.get()
        if frame is None:
            raise OSError("the process has ended")
        return frame

    def tell(self, command):
        """Take a command."""
        self._commands.put(command)

    def kill(self):
        """End in the middle of whatever is done."""
        self._dead = True
        self._commands.put(None)
        self._frames.put(None)

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
    """All training services of a module have threads in place of processes, with short turns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnkit.service.service.TrainingProcess", ThreadProcess)
        patch.setattr("attnkit.service.supervisor.SILENT_CHECKS", 10**9)  # no heart beats
        patch.setattr("attnkit.service.worker.SLICE_SECONDS", 0.005)
        patch.setattr("attnkit.service.worker.SNAPSHOT_SECONDS", 0.005)
        yield


class _Commands(queue.Queue):
    """Commands of a worker, which ends as soon as it has nothing to do."""

    def get(self, block=True):
        """Take the next command; None if the worker would wait."""
        return None if block and self.empty() else super().get(block)


class MemoryWorker(Worker):
    """A worker that keeps the headers of its frames."""

    def __init__(self):
        super().__init__(self)
        self.headers, self.commands = [], _Commands()

    def write(self, frame):
        """Keep the header of a frame."""
        self.headers.append(json.loads(frame.partition(b"\n")[0]))

    def flush(self):
        """Do nothing, as no frame is buffered."""

    def work(self, *commands):
        """Do all that is commanded; a pair of a name and an experiment is a job to start."""
        for command in commands:
            if isinstance(command, tuple):
                command = {**RUN, "job": command[0], "experiment": command[1].to_json()}
            self.commands.put(command)
        self.run(self.commands)
        return self
