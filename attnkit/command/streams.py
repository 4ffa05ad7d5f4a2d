"""Handling of standard streams that are closed, full, or read by a program that ends early."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


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
