"""Log of a running server: one line of JSON per event, on standard error.

No line can contain a text that a visitor has typed, nor who visitors are. The events are a closed
list and so are the fields, whose values are numbers, content hashes, versions or fixed texts. Any
other value is left out, and the line names its field. The level is `ATTNKIT_LOG_LEVEL`.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import logging
import math
import platform
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from attnkit import __version__
from attnkit.service.server import server_settings

EVENTS = {
    "server started": logging.INFO,
    "server stopped": logging.INFO,
    "not guarded": logging.WARNING,
    "foreign connection closed": logging.WARNING,
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


def log(event: str, **fields: Any) -> None:
    """Log an event. No argument makes this fail.

    Args:
        event: One of EVENTS.
        fields: Values by name. Names that are not in FIELDS and values that a field cannot have are
            left out.
    """
    checked = {name: FIELDS[name](value) for name, value in fields.items() if name in FIELDS}
    logged = {name: value for name, value in checked.items() if value is not None}
    left_out = sorted(fields.keys() - logged.keys())
    if event not in EVENTS:
        event, left_out = "other", ["event", *left_out]
    if left_out:  # names of keyword arguments come from code, not from visitors
        logged["left_out"] = left_out
    level = EVENTS.get(event, logging.WARNING)
    if level >= logging.getLevelNamesMapping()[server_settings().log_level.upper()]:
        timestamp = datetime.now(UTC).isoformat(timespec="milliseconds")
        name = logging.getLevelName(level).lower()
        _write(json.dumps({"time": timestamp, "level": name, "event": event, **logged}))


def _write(line: str) -> None:
    """Write a line to the present standard error, or lose it if that is impossible."""
    with _WRITING, contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


_WRITING = threading.RLock()


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages, without importing them."""
    by_name = {"attnkit": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            by_name[package] = version(package)
        except PackageNotFoundError:
            continue
    return by_name


def _number(value: Any) -> float | int | None:
    """Return a finite number, rounded to three decimal places if it is not an integer."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else round(value, 3)


def _truth(value: Any) -> bool | None:
    """Return a value if it is true or false."""
    return value if isinstance(value, bool) else None


def _matching(pattern: str) -> Callable[[Any], str | None]:
    """Return a check for texts that match a pattern completely."""
    compiled = re.compile(pattern)
    return lambda value: value if isinstance(value, str) and compiled.fullmatch(value) else None


def _reason(value: Any) -> str | None:
    """Return a reason if it is one of the fixed texts of the store, or the type of an exception."""
    from attnkit.service.database import REASONS  # imports SQLAlchemy, which takes a moment

    if not isinstance(value, str):
        return None
    if value in REASONS or _TOO_LARGE.fullmatch(value):
        return value
    exception = value.partition(":")[0]  # the type without the message
    return exception if hasattr(builtins, exception) else None


_TOO_LARGE = re.compile(r"it takes [0-9,.]+ MB, allowed at most [0-9,]+ MB on this copy")


def _error(value: Any) -> str | None:
    """Return the type of an exception without its message."""
    exception = value if isinstance(value, type) else type(value)
    return exception.__name__ if issubclass(exception, BaseException) else None


def _module(value: Any) -> str | None:
    """Return the name of a module that is imported, or of a logger."""
    names = sys.modules.keys() | logging.root.manager.loggerDict.keys()
    return value if isinstance(value, str) and value in names else None


_NUMBERS = (
    *("runs", "step", "steps", "seconds", "waited", "place", "pid", "exit", "restarts"),
    *("jobs", "megabytes", "n_bytes", "cores", "tries", "line", "more"),
)

FIELDS: dict[str, Callable[[Any], Any]] = {
    "hash": _matching("[0-9a-f]{16}"),
    "job": _matching("[0-9a-f]{12}"),
    "again": _truth,
    "same_host": _truth,
    "error": _error,
    "module": _module,
    "reason": _reason,
    "settings": lambda value: value if value == server_settings().shown() else None,
    "versions": lambda value: value if value == versions() else None,
    **dict.fromkeys(_NUMBERS, _number),
}
"""Field → function that returns the value to log, or None to leave it out."""
