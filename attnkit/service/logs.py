"""Log of a running server: one line of JSON per event, on standard error.

No line holds a text that a visitor has typed, nor who visitors are: callers pass numbers, content
hashes, exceptions, of which only the type is logged, and fixed texts. The level is
`ATTNKIT_LOG_LEVEL`.

Errors and warnings of other packages get the same form on a hosted copy. Streamlit logs an
exception of a page with its message and its traceback, and so do the server and asyncio. A message
may hold what a visitor has typed, and whoever causes errors on purpose can fill a disk. So an error
is one line with its type and where it was raised, and of many at one place only a few are logged in
a minute.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import platform
import sys
import threading
import time
import traceback
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from attnkit import __version__
from attnkit.service.server import server_settings

EVENTS = {
    "server started": logging.INFO,
    "server stopped": logging.INFO,
    "not guarded": logging.WARNING,
    "experiment submitted": logging.INFO,
    "experiment refused": logging.INFO,
    "experiment started": logging.INFO,
    "experiment finished": logging.INFO,
    "experiment stopped": logging.INFO,
    "experiment failed": logging.WARNING,
    "training process died": logging.WARNING,
    "training process silent": logging.WARNING,
    "result not stored": logging.WARNING,
    "database moved aside": logging.WARNING,
    "unexpected error": logging.ERROR,
    "unexpected warning": logging.WARNING,
    "owner signed in": logging.INFO,
    "owner refused": logging.WARNING,
}
"""Event → level."""

PACKAGES = ("streamlit", "torch", "plotly", "numpy", "numba", "sqlalchemy", "psycopg")
"""Packages whose versions are logged."""

MOST_LINES = 3
"""Number of lines about one place in a minute; further ones are counted."""

MINUTE = 60.0
"""Seconds after which a place may be logged again."""

_places: dict[tuple[Any, ...], tuple[float, int]] = {}
"""By event and place: the beginning of its minute, and the number of repetitions in it."""

_lock = threading.RLock()  # a collection of garbage within it may find an error


def log(event: str, **fields: Any) -> None:
    """Log an event.

    Args:
        event: One of EVENTS.
        fields: Values by name; of an exception, its type is logged.
    """
    level = EVENTS[event]
    if level < logging.getLevelNamesMapping()[server_settings().log_level.upper()]:
        return
    timestamp = datetime.now(UTC).isoformat(timespec="milliseconds")
    head = {"time": timestamp, "level": logging.getLevelName(level).lower(), "event": event}
    line = json.dumps(head | {name: _shown(value) for name, value in fields.items()})
    with _lock, contextlib.suppress(OSError, ValueError):  # standard error may be closed
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _shown(value: Any) -> Any:
    if isinstance(value, BaseException):
        return type(value).__name__
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else None
    return value


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages, without importing them."""
    by_name = {"attnkit": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            by_name[package] = version(package)
    return by_name


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
    place, now = (kind, module, line, type(error)), time.monotonic()
    with _lock:
        began, count = _places.get(place, (now, 0))
        more = {}
        if now >= began + MINUTE:
            if count > MOST_LINES:
                more = {"more": count - MOST_LINES}
            began, count = now, 0
        _places[place] = began, count + 1
    if count < MOST_LINES:
        of_error = {"error": error} if error else {}
        log(f"unexpected {kind}", module=module, line=line, **of_error, **more)
