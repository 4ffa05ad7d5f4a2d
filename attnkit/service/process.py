"""The server's side of the training process: commands go in, and frames come out."""

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
    """A process that runs `attnkit.service.worker`.

    Args:
        megabytes: Estimated memory that all its experiments may take.
    """

    def __init__(self, megabytes: int) -> None:
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "attnkit.service.worker", str(megabytes)],
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

    def tell(self, command: dict[str, Any]) -> None:
        """Send a command without waiting; it is lost if the process has died."""
        self._commands.put(json.dumps(command).encode() + b"\n")

    def read(self) -> tuple[dict[str, Any], bytes]:
        """Wait for one frame and return its header and its bytes.

        Raises:
            OSError: If the process has ended.
            ValueError: If the process sends nonsense.
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
    """Return a frame: a JSON line with the fields of the header and the size, then the bytes."""
    return json.dumps({**header, "size": len(blob)}).encode() + b"\n" + blob
