"""What a running server tells whoever runs it: one line of JSON an event, on standard error.

No line can hold anything that a visitor typed, nor who they are: an event is one of a closed list,
and so is every field, whose value is a number, a content hash, a version, or a word of ours. What
is none of these is left out, and the line names the field. The level is `ATTNKIT_LOG_LEVEL`.
"""

from __future__ import annotations

import builtins
import errno
import json
import logging
import math
import os
import platform
import re
import sys
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
    "owner signed in": logging.INFO,
    "owner refused": logging.WARNING,
}
"""What is told, and how loudly."""

PACKAGES = ("streamlit", "torch", "plotly", "numpy", "numba", "sqlalchemy", "psycopg")
"""Whose versions are told."""


def log(event: str, **fields: Any) -> None:
    """Tell of an event; never raises for what it is given.

    Args:
        event: one of EVENTS.
        fields: names of FIELDS; others, and values that a field cannot have, are left out.
    """
    kept = {name: FIELDS[name](value) for name, value in fields.items() if name in FIELDS}
    left_out = sorted(name for name in fields if kept.get(name) is None)
    for name in left_out:
        kept.pop(name, None)
    if event not in EVENTS:
        event, left_out = "other", ["event", *left_out]
    if left_out:  # names of keyword arguments stand in our own code
        kept["left_out"] = left_out
    _logger().log(EVENTS.get(event, logging.WARNING), event, extra={"fields": kept})


@cache
def versions() -> dict[str, str]:
    """Versions of what runs here, without importing it."""
    found = {"attnkit": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class _Lines(logging.Handler):
    """Writes to what standard error is at that moment, a line in one piece."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; what cannot be written is lost."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": when,
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **record.__dict__["fields"],
        }
        try:
            sys.stderr.write(json.dumps(line) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return


@cache
def _logger() -> logging.Logger:
    logger = logging.getLogger("attnkit.events")
    logger.handlers = [_Lines()]
    logger.propagate = False
    logger.setLevel(server_settings().log_level.upper())
    return logger


def _number(value: Any) -> float | int | None:
    """A finite number, seconds and the like to the millisecond."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else round(value, 3)


def _matching(pattern: str) -> Callable[[Any], str | None]:
    """Texts of one form that leaves no room for a name."""
    form = re.compile(pattern)
    return lambda value: value if isinstance(value, str) and form.fullmatch(value) else None


def _reason(value: Any) -> str | None:
    """Why the store did not take a result or gave up a file, in the words that it has for it."""
    from attnkit.service.database_errors import REASONS  # it takes a moment

    if not isinstance(value, str):
        return None
    if value in REASONS or value in _of_folders() or _TOO_LARGE.fullmatch(value):
        return value
    kind = value.partition(":")[0]  # of an exception, not what it says
    return kind if hasattr(builtins, kind) else None


_TOO_LARGE = re.compile(r"it takes [0-9,.]+ MB, allowed at most [0-9,]+ MB on this copy")


@cache
def _of_folders() -> set[str]:
    return {f"its folder cannot be used ({os.strerror(number)})" for number in errno.errorcode}


def _error(value: Any) -> str | None:
    """What kind of exception, not what it says."""
    kind = value if isinstance(value, type) else type(value)
    return kind.__name__ if issubclass(kind, BaseException) else None


def _versions(value: Any) -> dict[str, str] | None:
    return value if value == versions() else None


def _settings(value: Any) -> dict[str, Any] | None:
    return dict(value) if value == server_settings().shown() else None


FIELDS: dict[str, Callable[[Any], Any]] = {
    "hash": _matching("[0-9a-f]{16}"),
    "job": _matching("[0-9a-f]{12}"),
    "again": lambda value: value if isinstance(value, bool) else None,
    "error": _error,
    "reason": _reason,
    "settings": _settings,
    "versions": _versions,
    **dict.fromkeys(
        (
            "runs",
            "step",
            "steps",
            "seconds",
            "waited",
            "place",
            "pid",
            "exit",
            "restarts",
            "jobs",
            "results",
            "megabytes",
            "n_bytes",
            "cores",
            "tries",
        ),
        _number,
    ),
}
"""What a line can hold, and what is kept of a value: None if nothing."""
