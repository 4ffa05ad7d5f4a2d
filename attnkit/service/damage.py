"""Rescue of a database file that cannot be read: it is moved aside and searched for results.

No file is deleted, and no file but the store's own is moved.
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

from attnkit.service.table import RESULTS

Identity = tuple[int, int]
"""Device and inode of a file, which tell it from another file of the same name."""

_SUFFIXES = ("-wal", "-shm", "")
"""Suffixes of the files of one SQLite database; the database itself is moved last."""

_UNREADABLE = (SQLAlchemyError, ValueError, TypeError, OverflowError)
"""Errors that reading a damaged row may raise."""


def identity(file: Path) -> Identity | None:
    """Return the identity of a file; None if there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def move_aside(file: Path, damaged: Identity | None) -> Path | None:
    """Rename a damaged file, so that a new one can take its name.

    Args:
        file: The name that the damaged file had.
        damaged: Its identity.

    Returns:
        The new name; None if another process was faster.

    Raises:
        OSError: If the folder does not allow it.
    """
    with _locked(file.parent):
        if damaged is None or identity(file) != damaged:
            return None
        names = (file.with_name(f"{file.name}.broken-{number}") for number in count(1))
        aside = next(name for name in names if not name.exists())
        for suffix in _SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                file.with_name(file.name + suffix).rename(aside.with_name(aside.name + suffix))
        return aside


def readable_rows(file: Path) -> Iterator[Row[Any]]:
    """Yield the rows of a damaged file that can be read, including torn ones."""
    has_log = file.with_name(f"{file.name}-wal").exists()
    address = f"file:{quote(str(file))}?{'mode=ro' if has_log else 'immutable=1'}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(address, uri=True)
        connection.execute("PRAGMA writable_schema = ON")  # opens truncated files as well
        return connection

    engine = create_engine("sqlite://", creator=connect)
    try:
        with engine.connect() as connection:
            for row_id in sorted(_row_ids(connection)):
                with contextlib.suppress(*_UNREADABLE):
                    query = select(RESULTS).where(text("rowid = :id").bindparams(id=row_id))
                    yield from connection.execute(query).all()
    finally:
        engine.dispose()


def _row_ids(connection: Connection) -> set[int]:
    """Return the ids found in the table and in its indexes.

    Each is read from both ends, because reading stops at the first damaged page.
    """
    ids: set[int] = set()
    for order in ("rowid", "rowid DESC", "hash", "hash DESC", "used_at", "used_at DESC"):
        with contextlib.suppress(*_UNREADABLE):
            rows = connection.execute(text(f"SELECT rowid FROM results ORDER BY {order}"))
            ids.update(row.rowid for row in rows)
    return ids


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of this block; Windows has no such lock."""
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
