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
from typing import Any, Literal

from attnkit.service.logs import log

MOST_LINES = 3
"""Number of lines about one place in a minute; further ones are counted."""

MINUTE = 60.0
"""Seconds after which a place may be logged again."""

_lines: dict[tuple[Any, ...], tuple[float, int]] = {}
"""By event and place: the beginning of its minute, and the number of repetitions in it."""

_lock = threading.RLock()  # a collection of garbage within it may find an error


def log_foreign_errors() -> None:
    """Log errors and warnings of other packages in the form of our log, and nothing else of them.

    Records of Python's `logging` are logged when they are created, whatever handlers a logger has,
    and so are uncaught exceptions of any thread.
    """
    create = logging.getLogRecordFactory()

    def silent_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = create(*args, **kwargs)
        if (record.levelno or 0) >= logging.WARNING:
            error = record.exc_info[1] if record.exc_info else None
            is_error = record.levelno >= logging.ERROR
            log_place(error, record.name, record.lineno, "error" if is_error else "warning")
        record.levelno = -1  # below the level of every handler
        record.msg, record.args, record.exc_info = "", None, None
        return record

    def uncaught(error: BaseException | None) -> None:
        if isinstance(error, Exception):
            log_place(error, __name__, 0)

    logging.setLogRecordFactory(silent_record)
    logging.captureWarnings(True)
    sys.excepthook = lambda kind, error, _: uncaught(error)
    threading.excepthook = lambda args: uncaught(args.exc_value)
    sys.unraisablehook = lambda args: uncaught(args.exc_value)


def log_place(
    error: BaseException | None, module: str, line: int, kind: Literal["error", "warning"] = "error"
) -> None:
    """Log where an error was raised: the innermost line of attnkit, or else of any package.

    Args:
        error: The exception, if there is one.
        module: Module or logger that has logged it, for an exception without a traceback.
        line: Line in this module.
        kind: Whether it is an error or a warning.
    """
    frames = traceback.walk_tb(error.__traceback__ if error else None)
    places = [(str(frame.f_globals.get("__name__")), number) for frame, number in frames]
    own = [place for place in places if place[0].partition(".")[0] == "attnkit"]
    module, line = [(module, line), *places, *own][-1]
    fields = {"module": module, "line": line, **({"error": type(error)} if error else {})}
    place, now = (kind, *fields.values()), time.monotonic()
    with _lock:
        began, count = _lines.get(place, (now, 0))
        if now >= began + MINUTE:
            if count > MOST_LINES:
                fields["more"] = count - MOST_LINES
            began, count = now, 0
        _lines[place] = began, count + 1
    if count < MOST_LINES:
        log(f"unexpected {kind}", **fields)
