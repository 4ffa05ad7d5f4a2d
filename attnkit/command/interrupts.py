"""Handling of Ctrl-C and SIGTERM: when a command ends at once, and when it saves first.

This module is imported before everything that is slow to import, so it needs little itself.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""

LINE = "attnkit: interrupted"
"""Message of an interrupted command, on standard error."""

_ENOUGH = 5
"""Signals after which a command ends at once, even while it saves."""


class Interrupts:
    """Signal handler of the process.

    At first a signal ends the process at once: nothing is computed yet, and a `KeyboardInterrupt`
    in the middle of an import would end in a traceback. Within a `with` block the first signal
    raises `KeyboardInterrupt`. From then on signals are only counted, so that a second Ctrl-C
    cannot disturb the saving of what the first one stopped.

    Attributes:
        n_signals: signals that were received.
    """

    def __init__(self) -> None:
        self.n_signals = 0
        self._handle = self._leave

    def install(self) -> None:
        """Handle the signals of this process from now on, except those it was told to ignore."""
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.received)

    def finish(self) -> None:
        """Ignore signals while the interpreter shuts down; everything is done by then."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def __enter__(self) -> None:
        """Begin a block in which the first signal raises `KeyboardInterrupt`."""
        if self.n_signals:
            raise KeyboardInterrupt
        self._handle = self._stop

    def __exit__(self, *_: object) -> None:
        """End the block; what it computed is saved next."""
        self.hold()

    def hold(self) -> None:
        """Count signals from now on without acting on them: results are being saved."""
        self._handle = self._count

    def received(self, *_: object) -> None:
        """Handle one signal."""
        self.n_signals += 1
        if self.n_signals >= _ENOUGH:
            self._leave()
        self._handle()

    def _leave(self) -> None:
        try:
            os.write(2, f"{LINE}\n".encode())
        finally:  # standard error may be closed
            os._exit(INTERRUPTED)

    def _stop(self) -> None:
        self.hold()
        raise KeyboardInterrupt

    def _count(self) -> None:
        pass


interrupts = Interrupts()
"""Handler of this process; in a process that did not install it, Ctrl-C works as in Python."""
