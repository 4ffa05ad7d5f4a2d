"""Errors and warnings of other packages on a hosted copy, logged in one line without their texts.

Streamlit logs an exception of a page with its message and its traceback, and so do the server and
asyncio. A message may hold what a visitor has typed, and whoever causes errors on purpose can fill
a disk. Here an error is one line that says its type and where it was raised. Of many at one place,
the first ones of a minute are logged, then their number.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from attnkit.service.logs import log

MOST_LINES = 3
"""Number of lines about one place in a minute; further ones are counted."""

MINUTE = 60.0
"""Seconds after which a place may be logged again."""

_PACKAGE = "attnkit"

Event = Literal["unexpected error", "unexpected warning"]

Place = tuple[Event, type[BaseException] | None, str, int]
"""Event, type of the exception if there is one, module, and line."""

T = TypeVar("T")


@dataclass
class Repetitions(Generic[T]):
    """Log of errors by place, with only a few lines in a minute for each place.

    Args:
        write: Logs a place; the second argument is the number of repetitions that were left out.
        later: Calls a function after some seconds, unless that is impossible.
        clock: Returns seconds that never decrease.
    """

    write: Callable[[T, int], None]
    later: Callable[[float, Callable[[], None]], object]
    clock: Callable[[], float] = time.monotonic
    _began: float = 0.0
    _counts: dict[T, int] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)  # a collection may find an error

    def add(self, place: T) -> None:
        """Log a place, or only count it if it has had all its lines of this minute."""
        if self.clock() >= self._began + MINUTE:
            self.end_minute()
        with self._lock:
            is_first = not self._counts
            self._began = self.clock() if is_first else self._began
            count = self._counts[place] = self._counts.get(place, 0) + 1
        if is_first:
            self.later(MINUTE, self.end_minute)
        if count <= MOST_LINES:
            self.write(place, 0)

    def end_minute(self) -> None:
        """Log how many repetitions were left out, and begin anew."""
        with self._lock:
            counts, self._counts = self._counts, {}
        for place, count in counts.items():
            if count > MOST_LINES:
                self.write(place, count - MOST_LINES)


def log_foreign_errors() -> None:
    """Log errors and warnings of other packages in the form of our log, and nothing else of them.

    Records of Python's `logging` are logged when they are made, whatever handlers a logger has, and
    so are uncaught exceptions of any thread.
    """
    repetitions = Repetitions(_write, in_a_timer)
    make = logging.getLogRecordFactory()

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made = make(*args, **kwargs)
        if (made.levelno or 0) >= logging.WARNING:
            event: Event = (
                "unexpected error" if made.levelno >= logging.ERROR else "unexpected warning"
            )
            error = made.exc_info[1] if made.exc_info else None
            repetitions.add(_place(event, error, made.name, made.lineno))
        made.levelno = -1  # below the level of every handler
        made.msg, made.args, made.exc_info = "", None, None
        return made

    def uncaught(
        kind: type[BaseException], error: BaseException, _: TracebackType | None = None
    ) -> None:
        if issubclass(kind, Exception):
            repetitions.add(_place("unexpected error", error, __name__, 0))

    logging.setLogRecordFactory(record)
    logging.captureWarnings(True)
    sys.excepthook = uncaught
    threading.excepthook = lambda args: uncaught(args.exc_type, args.exc_value or args.exc_type())
    sys.unraisablehook = lambda args: uncaught(args.exc_type, args.exc_value or args.exc_type())


def _place(event: Event, error: BaseException | None, module: str, line: int) -> Place:
    """Return where an error was raised: the innermost line of attnkit, or else of any package.

    Args:
        event: Event of the line.
        error: The exception, if there is one.
        module: Module or logger that has logged it, where an exception has no traceback.
        line: Line in this module.
    """
    traceback = None if error is None else error.__traceback__
    is_ours = False
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__"))
        if not is_ours or name.partition(".")[0] == _PACKAGE:
            module, line = name, traceback.tb_lineno
            is_ours = name.partition(".")[0] == _PACKAGE
        traceback = traceback.tb_next
    return event, None if error is None else type(error), module, line


def _write(place: Place, more: int) -> None:
    event, error, module, line = place
    fields: dict[str, Any] = {} if error is None else {"error": error}
    fields |= {"more": more} if more else {}
    is_error = event == "unexpected error"
    log(
        "unexpected error" if is_error else "unexpected warning",
        module=module,
        line=line,
        **fields,
    )


def in_a_timer(seconds: float, call: Callable[[], None]) -> None:
    """Call a function after some seconds, if a thread can be started."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    with suppress(RuntimeError):  # no thread can be started; the next error ends the minute
        timer.start()
