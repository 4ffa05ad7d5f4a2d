"""Meanings of database errors, in a few words for people."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from attnkit.service.table import FOREIGN, NO_VERSION, Unusable


class Unavailable(Exception):
    """The store cannot be reached or written now; the message says why, for people."""


NO_DATABASE = "its file is not a database"

OPENING = "it is being opened"
"""Said while another thread opens the database, which may have a long file to read."""

_DAMAGED = "its file is damaged"
_BUSY = "others have been writing to it for too long"
_CROWDED = "it has too many connections"
_GONE = "the database cannot be reached"
_READ_ONLY = "it is read-only"
_REFUSED = "the database refuses the user"
_FULL = "the disk is full"

_DAMAGE = {
    "not a database": NO_DATABASE,
    "unsupported file format": NO_DATABASE,
    "malformed": _DAMAGED,
    "could not decode": _DAMAGED,
    "can't decode": _DAMAGED,
}
"""Part of a message from SQLite or its driver → meaning, for files that must be replaced."""

_MEANINGS = {
    "is full": _FULL,
    "is locked": _BUSY,
    "disk i/o error": "the disk cannot be read or written",
    "readonly": _READ_ONLY,
    "unable to open": "its file cannot be opened",
    "too big": "the result is too large for it",
    "no such": FOREIGN,
    "has no column": FOREIGN,
    "fatal:  database": "there is no such database",
    "fatal:  password": _REFUSED,
    "fatal:  role": _REFUSED,
    "fatal:  no pg_hba": _REFUSED,
    "fatal:  sorry, too many": _CROWDED,
    **_DAMAGE,
}
"""Part of a message → meaning. PostgreSQL gives no code for a connection that it refuses."""

_STATES = {
    "25006": _READ_ONLY,
    "42501": _REFUSED,
    "42P01": FOREIGN,
    "42703": FOREIGN,
    "53100": _FULL,
    "55P03": _BUSY,
}
"""PostgreSQL's error code → meaning."""

REASONS = frozenset(
    {_CROWDED, _GONE, OPENING, FOREIGN, NO_VERSION, *_MEANINGS.values(), *_STATES.values()}
)
"""All fixed texts that `reason` and `Unusable` have for a database; the log accepts only these."""


def is_damage(error: BaseException) -> bool:
    """Return whether an error means that a file is not an SQLite database, or a damaged one."""
    return any(part in _message(error) for part in _DAMAGE)


def lacks_tables(error: BaseException) -> bool:
    """Return whether an error means that a table or a column is missing."""
    message = _message(error)
    return "no such" in message or "has no column" in message or _state(error) in ("42P01", "42703")


def reason(error: BaseException) -> str:
    """Return the meaning of an error, without any part of the address, which may hold a password.

    Args:
        error: An error of SQLAlchemy or of the operating system, or `Unusable`.
    """
    if isinstance(error, Unusable):
        return str(error)
    if isinstance(error, NoFreeConnection):
        return _CROWDED
    if isinstance(error, OSError):
        return f"its folder cannot be used ({error.strerror})"
    if _state(error) in _STATES:
        return _STATES[_state(error)]
    message = _message(error)
    return next((meaning for part, meaning in _MEANINGS.items() if part in message), _GONE)


def _message(error: BaseException) -> str:
    """Return the message of SQLite or of the driver in lower case."""
    return str(error.orig if isinstance(error, DBAPIError) else error).lower()


def _state(error: BaseException) -> str:
    """Return PostgreSQL's code for an error; empty if there is none."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""
