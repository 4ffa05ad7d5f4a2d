"""What becomes of a database file that cannot be read: it is kept aside, and searched for results.

Nothing is ever deleted, and only the one file of ours is moved.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Row, create_engine, select, text
from sqlalchemy.exc import SQLAlchemyError

from attnkit.service.migrations import RESULTS

Identity = tuple[int, int]
"""A file's device and number, whatever its name is."""

_PARTS = ("-wal", "-shm", "")
"""What belongs to an SQLite file; the file itself moves last."""


def identity(file: Path) -> Identity | None:
    """What tells a file from another of the same name; None if there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def move_aside(file: Path, damaged: Identity | None) -> Path | None:
    """Give the damaged file a name of its own.

    Returns:
        Where it is now; None if another process was faster.

    Raises:
        OSError: if the folder does not allow it.
    """
    with _alone(file.parent):
        if damaged is None or identity(file) != damaged:
            return None
        names = (file.with_name(f"{file.name}.broken-{number}") for number in count(1))
        aside = next(name for name in names if not name.exists())
        for part in _PARTS:
            with contextlib.suppress(FileNotFoundError):
                file.with_name(file.name + part).rename(aside.with_name(aside.name + part))
        return aside


def readable_rows(file: Path) -> Iterator[Row[Any]]:
    """The rows that can still be read, torn ones among them."""
    has_log = file.with_name(f"{file.name}-wal").exists()
    address = f"file:{quote(str(file))}?{'mode=ro' if has_log else 'immutable=1'}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(address, uri=True)
        connection.execute("PRAGMA writable_schema = ON")  # reads a file cut short, too
        return connection

    engine = create_engine("sqlite://", creator=connect)
    try:
        with engine.connect() as connection:
            for number in sorted(_row_numbers(connection)):
                with contextlib.suppress(*_UNREADABLE):
                    wanted = select(RESULTS).where(_ROW.bindparams(number=number))
                    yield from connection.execute(wanted).all()
    finally:
        engine.dispose()


_ROW = text("rowid = :number")

_UNREADABLE = (SQLAlchemyError, ValueError, TypeError, OverflowError)
"""What reading a damaged row may raise."""


def _row_numbers(connection: Connection) -> set[int]:
    """All that the table and its indexes still tell, each from both ends."""
    numbers: set[int] = set()
    for order in ("rowid", "rowid DESC", "hash", "hash DESC", "used_at", "used_at DESC"):
        with contextlib.suppress(*_UNREADABLE):
            found = connection.execute(text(f"SELECT rowid FROM results ORDER BY {order}"))
            numbers.update(row.rowid for row in found)
    return numbers


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process is in here; where the system has no such lock, hope so."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
