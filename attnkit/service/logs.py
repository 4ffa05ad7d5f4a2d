"""Log of a running server: one line of JSON per event, on standard error.

No line can contain a text that a visitor has typed, nor who visitors are: values are numbers,
content hashes, types of exceptions, names of modules, or texts of this package. Any other value is
left out, and the line names its field. The level is `ATTNKIT_LOG_LEVEL`.
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
    "unexpected error": logging.ERROR,
    "unexpected warning": logging.WARNING,
    "owner signed in": logging.INFO,
    "owner refused": logging.WARNING,
}
"""Event → level."""

PACKAGES = ("streamlit", "torch", "plotly", "numpy", "numba", "sqlalchemy", "psycopg")
"""Packages whose versions are logged."""

_WRITING = threading.RLock()
_HASH = re.compile("[0-9a-f]{12,16}")
_TOO_LARGE = re.compile(r"it takes [0-9,.]+ MB, allowed at most [0-9,]+ MB on this copy")


def log(event: str, **fields: Any) -> None:
    """Log an event. No argument makes this fail.

    Args:
        event: One of EVENTS.
        fields: Values by name.
    """
    shown = {name: _shown(name, value) for name, value in fields.items()}
    logged = {name: value for name, value in shown.items() if value is not None}
    if left_out := sorted(fields.keys() - logged.keys()):
        logged["left_out"] = left_out  # names of arguments come from code, not from visitors
    level = EVENTS.get(event, logging.WARNING)
    if level < logging.getLevelNamesMapping()[server_settings().log_level.upper()]:
        return
    timestamp = datetime.now(UTC).isoformat(timespec="milliseconds")
    name = logging.getLevelName(level).lower()
    line = json.dumps({"time": timestamp, "level": name, "event": event, **logged})
    with _WRITING, contextlib.suppress(OSError, ValueError):  # standard error may be closed
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages, without importing them."""
    by_name = {"attnkit": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            by_name[package] = version(package)
    return by_name


def _shown(name: str, value: Any) -> Any:
    """Return a value as the log shows it; None if it may hold what a visitor has typed."""
    if isinstance(value, BaseException):
        value = type(value)
    if isinstance(value, type):
        return value.__name__ if issubclass(value, BaseException) else None
    if isinstance(value, dict):
        return value if value in (versions(), server_settings().shown()) else None
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else None
    if isinstance(value, int) or not isinstance(value, str):
        return value if isinstance(value, int) else None
    if name == "reason":
        return _reason(value)
    is_module = value in sys.modules or value in logging.root.manager.loggerDict
    return value if is_module or _HASH.fullmatch(value) else None


def _reason(text: str) -> str | None:
    """Return a reason if it is one of the fixed texts of the store, or the type of an exception."""
    from attnkit.service.database import REASONS  # imports SQLAlchemy, which takes a moment

    if text in REASONS or _TOO_LARGE.fullmatch(text):
        return text
    exception = text.partition(":")[0]  # the type without the message
    return exception if hasattr(builtins, exception) else None
