"""The training process as the server sees it: a pipe to talk into, and frames that come out."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from typing import IO, Any

from attnkit.foundation.process import environment_with_package


class TrainingProcess:
    """One process that runs `attnkit.service.worker`.

    Args:
        megabytes: memory that all its experiments may take, estimated.
    """

    def __init__(self, megabytes: int) -> None:
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "attnkit.service.worker", str(megabytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server, whose end it notices by itself
            # torch counts its threads by itself; numpy's would compete with them
            env={"OPENBLAS_NUM_THREADS": "1", **environment_with_package()},
        )
        self._writer = threading.Thread(target=self._write, name="attnkit-writer", daemon=True)
        self._writer.start()

    @property
    def id(self) -> int:
        """Of the process."""
        return self._process.pid

    def tell(self, command: dict[str, Any]) -> None:
        """Send a command, without waiting; into the void if the process has died."""
        self._commands.put(json.dumps(command).encode() + b"\n")

    def read(self) -> tuple[dict[str, Any], bytes]:
        """Wait for one frame.

        Raises:
            OSError, ValueError: if the process has ended or sends nonsense.
        """
        stream = self._process.stdout
        assert stream is not None
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise OSError("the training process has ended")
        header: dict[str, Any] = json.loads(line)
        blob = stream.read(header["size"])
        if len(blob) < header["size"]:
            raise OSError("the training process ended in the middle of a frame")
        return header, blob

    def kill(self) -> None:
        """End the process at once; `read` then raises."""
        self._process.kill()

    def hang_up(self) -> None:
        """Say nothing more, so that it ends by itself."""
        self._commands.put(None)

    def end(self, seconds: float = 0.0) -> None:
        """Wait so long for its end, then kill it."""
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Close the pipes of a process that has ended, which nobody reads any more."""
        self.hang_up()
        self._writer.join()
        _close(self._process.stdout)

    def _write(self) -> None:
        """Send what is told until nothing more is; a pipe that nobody reads may hold it up."""
        assert self._process.stdin is not None
        while (line := self._commands.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(line)
                self._process.stdin.flush()
        _close(self._process.stdin)


def _close(pipe: IO[bytes] | None) -> None:
    """Close a pipe whose other end may be gone."""
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()


def encode(header: dict[str, Any], blob: bytes) -> bytes:
    """One frame: a JSON line, then as many bytes as it says."""
    return json.dumps({**header, "size": len(blob)}).encode() + b"\n" + blob
