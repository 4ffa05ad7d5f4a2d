"""Errors and warnings of other packages on a hosted copy, logged in one line without their texts.

Streamlit logs an exception of a page with its message and its traceback, and so do the server and
asyncio. A message may hold what a visitor has typed, and whoever causes errors on purpose can fill
a disk. Here an error is one line that says its type and where it was raised, and of many at one
place only a few are logged in a minute.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from attnkit.service.logs import log

MOST_LINES = 3
"""Number of lines about one place in a minute; further ones are counted."""

MINUTE = 60.0
"""Seconds after which a place may be logged again."""

Place = tuple[str, type[BaseException] | None, str, int]
"""Event, type of the exception if there is one, module, and line."""

T = TypeVar("T")


class Repetitions(Generic[T]):
    """Log with only a few lines in a minute for each place. Safe to use from many threads.

    Args:
        write: Logs a place; the second argument is the number of repetitions that were left out
            since the last line of the place.
        clock: Returns seconds that never decrease.
    """

    def __init__(
        self, write: Callable[[T, int], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._clock = write, clock
        self._lines: dict[T, tuple[float, int]] = {}  # beginning of its minute, repetitions in it
        self._lock = threading.RLock()  # a collection of garbage may find an error

    def add(self, place: T) -> None:
        """Log a place, or only count it if it has had all its lines of this minute."""
        with self._lock:
            now = self._clock()
            began, count = self._lines.get(place, (now, 0))
            left_out = 0
            if now >= began + MINUTE:
                began, count, left_out = now, 0, max(0, count - MOST_LINES)
            self._lines[place] = began, count + 1
        if count < MOST_LINES:
            self._write(place, left_out)


def log_foreign_errors() -> None:
    """Log errors and warnings of other packages in the form of our log, and nothing else of them.

    Records of Python's `logging` are logged when they are created, whatever handlers a logger has,
    and so are uncaught exceptions of any thread.
    """
    repetitions = Repetitions(_write)
    create = logging.getLogRecordFactory()

    def silent_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = create(*args, **kwargs)
        if (record.levelno or 0) >= logging.WARNING:
            kind = "error" if record.levelno >= logging.ERROR else "warning"
            error = record.exc_info[1] if record.exc_info else None
            repetitions.add(_place(f"unexpected {kind}", error, record.name, record.lineno))
        record.levelno = -1  # below the level of every handler
        record.msg, record.args, record.exc_info = "", None, None
        return record

    def uncaught(error: BaseException | None) -> None:
        if isinstance(error, Exception):
            repetitions.add(_place("unexpected error", error, __name__, 0))

    logging.setLogRecordFactory(silent_record)
    logging.captureWarnings(True)
    sys.excepthook = lambda kind, error, _: uncaught(error)
    threading.excepthook = lambda args: uncaught(args.exc_value)
    sys.unraisablehook = lambda args: uncaught(args.exc_value)


def _place(event: str, error: BaseException | None, module: str, line: int) -> Place:
    """Return where an error was raised: the innermost line of attnkit, or else of any package.

    Args:
        event: Event of the line.
        error: The exception, if there is one.
        module: Module or logger that has logged it, for an exception without a traceback.
        line: Line in this module.
    """
    frames = traceback.walk_tb(error.__traceback__ if error else None)
    places = [(str(frame.f_globals.get("__name__")), number) for frame, number in frames]
    own = [place for place in places if place[0].partition(".")[0] == "attnkit"]
    return event, type(error) if error else None, *[(module, line), *places, *own][-1]


def _write(place: Place, more: int) -> None:
    event, error, module, line = place
    fields: dict[str, Any] = {"error": error} if error else {}
    log(event, module=module, line=line, **fields, **({"more": more} if more else {}))
