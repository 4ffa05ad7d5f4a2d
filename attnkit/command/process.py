"""Signals and standard streams of a command's process.

Ctrl-C and SIGTERM end a command at once, or let it save its results first. Streams may be closed,
full, or read by a program that ends early. This module is imported before all slow imports, so it
imports little itself.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""

MESSAGE = "attnkit: interrupted"
"""Message of an interrupted command on standard error."""

_SIGNALS_TO_END = 5
"""Number of signals after which a command ends at once, even while it saves."""


class Interrupts:
    """Signal handler of the process.

    At first a signal ends the process at once: nothing is computed yet, and a `KeyboardInterrupt`
    during an import would print a traceback. Within a `with` block the first signal raises
    `KeyboardInterrupt`. From then on signals are only counted, so that a second Ctrl-C does not
    disturb the saving of results.

    Attributes:
        n_signals: Number of signals that were received.
    """

    def __init__(self) -> None:
        self.n_signals = 0
        self._has_begun = self._computes = False

    def install(self) -> None:
        """Handle the signals of this process from now on, except those that it ignores."""
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.received)

    def finish(self) -> None:
        """Ignore signals while the interpreter shuts down; all work is done by then."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def __enter__(self) -> None:
        """Begin a block in which the first signal raises `KeyboardInterrupt`."""
        if self.n_signals:
            raise KeyboardInterrupt
        self._has_begun = self._computes = True

    def __exit__(self, *_: object) -> None:
        """End the block; its results are saved next."""
        self.hold()

    def hold(self) -> None:
        """Only count signals from now on, because results are being saved."""
        self._has_begun, self._computes = True, False

    def received(self, *_: object) -> None:
        """Handle one signal."""
        self.n_signals += 1
        if not self._has_begun or self.n_signals >= _SIGNALS_TO_END:
            try:
                os.write(2, f"{MESSAGE}\n".encode())
            finally:  # standard error may be closed
                os._exit(INTERRUPTED)
        if self._computes:
            self.hold()
            raise KeyboardInterrupt


interrupts = Interrupts()
"""Handler of this process; where it is not installed, Ctrl-C works as usual in Python."""


def prepare_streams() -> None:
    """Make the standard streams of this process safe to use.

    A closed stream is connected to the null device: otherwise the next file that is opened gets
    its number, and libraries write their messages into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    encoding = sys.stderr.encoding if sys.stderr is not None else "utf-8"
    sys.stderr = io.TextIOWrapper(
        _Lossy(2, "w", closefd=False),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=True,
    )
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names can have any bytes


def discard_output() -> None:
    """Connect standard output to the null device, so that nothing fails when Python exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    with suppress(OSError):
        sys.stdout.flush()


class _Lossy(io.FileIO):
    """Raw stream that ignores write errors: a lost message must not end a training."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError:
            return len(data)
