"""The table of stored results, and transactions that recover or say why they fail.

A broken connection is opened again, and so is a file that somebody has replaced. A file that cannot
be read is moved aside, and a new one is begun: its results can be trained again to the same bits.
No file is deleted, and no file but the store's own is moved.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from attnkit.foundation.language import mark
from attnkit.service.database_engines import (
    CHANGES,
    CONNECT_SECONDS,
    Unavailable,
    free_space,
    has_locks,
    lock_writers,
    open_engine,
)

RESULTS = Table(
    "results",
    MetaData(),
    Column("hash", String(16), primary_key=True),
    Column("name", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("n_runs", Integer, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("seconds", Float(53), nullable=False),
    Column("version", Text, nullable=False),
    Column("n_bytes", BigInteger, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("used_at", BigInteger, nullable=False),
    Column("snapshot", LargeBinary, nullable=False),
    Column("parameters", LargeBinary, nullable=False),
    Column("checksum", String(32), nullable=False),
    Column("snapshot_checksum", String(32), nullable=False),
    Index("results_used_at", "used_at"),
)
"""One finished experiment per row.

Times are in microseconds since 1970, because SQLite has no type for them. The checksum of the
snapshot alone is a column of its own, because snapshots are read far more often than parameters.
"""

VERSION = 3
"""Version of the table. Increase it with every change of the columns."""

_VERSIONS = Table("results_schema", MetaData(), Column("version", Integer, nullable=False))
"""Table with a single row, the version of the table `results`."""

_FOREIGN = mark("its table `results` was not made by attnkit")
_NO_DATABASE = mark("its file is not a database")
_OPENING = mark("it is being opened")  # by another thread; it may have a long file to read
_DAMAGED = mark("its file is damaged")
_BUSY = mark("others have been writing to it for too long")
_CROWDED = mark("it has too many connections")
_GONE = mark("the database cannot be reached")
_READ_ONLY = mark("it is read-only")
_REFUSED = mark("the database refuses the user")
_FULL = mark("the disk is full")
_DISK = mark("the disk cannot be read or written")
_NO_LOCKS = mark(
    "its file system, such as NFS or Lustre, locks no files: name a folder on another one, or a "
    "PostgreSQL server, in ATTNKIT_STORE"
)

_DAMAGE = {
    "not a database": _NO_DATABASE,
    "unsupported file format": _NO_DATABASE,
    "malformed": _DAMAGED,
    "could not decode": _DAMAGED,
    "can't decode": _DAMAGED,
}
"""Part of a message from SQLite or its driver → meaning, for files that must be replaced."""

_MEANINGS = {
    "is full": _FULL,
    "is locked": _BUSY,
    "disk i/o error": _DISK,
    "locking protocol": _BUSY,
    "readonly": _READ_ONLY,
    "unable to open": mark("its file cannot be opened"),
    "too big": mark("the result is too large for it"),
    "no such": _FOREIGN,
    "has no column": _FOREIGN,
    "fatal:  database": mark("there is no such database"),
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
    "42P01": _FOREIGN,
    "42703": _FOREIGN,
    "53100": _FULL,
    "55P03": _BUSY,
}
"""PostgreSQL's error code → meaning."""

_NO_FOLDER = "its folder cannot be used ({})"

REASONS = {_CROWDED, _GONE, _OPENING, _FOREIGN, *_MEANINGS.values(), *_STATES.values()} | {
    _NO_FOLDER.format(os.strerror(number)) for number in errno.errorcode
}
"""All fixed texts of `Unavailable` for a database in use; the log accepts only these."""

_SMALLEST_FILE = 512
"""Bytes of SQLite's smallest page. It would overwrite a shorter file as if it were empty."""

_SUFFIXES = ("-wal", "-shm", "")
"""Suffixes of the files of one SQLite database; the database itself is moved last."""

Identity = tuple[int, int]
"""Device and inode of a file, which tell it from another file of the same name."""

T = TypeVar("T")


class Unusable(Exception):
    """The database cannot be used by this copy; the message says why, for people."""


class NotOurs(Unusable):
    """Error of a database that another program has written, or that does not keep its rows."""


class Database:
    """Database of a store, opened at its first use. Safe to use from many threads.

    Args:
        where: As `open_engine` takes it.
        moved: Called with the reason after a file was moved aside.

    Attributes:
        notes: Sentences for people about files that were moved aside.

    Raises:
        Unavailable: If `where` cannot be understood or its driver is missing.
    """

    def __init__(
        self, where: str | Path | Engine, moved: Callable[[str], None] | None = None
    ) -> None:
        self.notes: list[str] = []
        self._moved = moved
        self._engine, self._file = open_engine(where)
        self._owns_engine = self._engine is not where
        self._opening = threading.Lock()
        self._ready = False
        self._opened: Identity | None = None

    def do(self, work: Callable[[Connection], T], *, changes: bool = True) -> T:
        """Return the result of `work` in a transaction, which is repeated where that may help.

        Args:
            work: Called with the connection.
            changes: Whether it writes.

        Raises:
            Unavailable: If the transaction has failed.
        """
        for tries_left in (2, 1, 0):
            seen = self._identity()
            try:
                self._open(seen)
                return self._transaction(work, changes)
            except _FAILURES as error:
                if not tries_left or not self._repair(error, seen):
                    reason = _reason(error)
                    if reason in (_BUSY, _DISK) and not has_locks(self._engine):
                        reason = _NO_LOCKS
                    raise Unavailable(reason) from error
        raise AssertionError

    def free_space(self) -> None:
        """Shorten the file after deletions, if that is possible now."""
        free_space(self._engine)

    def close(self) -> None:
        """Close the connections; a later use opens new ones."""
        if self._owns_engine:
            self._engine.dispose()

    def _identity(self) -> Identity | None:
        """Return the identity of the file; None if there is none, or a server instead."""
        if self._file is None:
            return None
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _transaction(self, work: Callable[[Connection], T], changes: bool) -> T:
        with self._engine.connect() as connection:
            connection.execution_options(**{CHANGES: changes})
            with connection.begin():
                return work(connection)

    def _open(self, seen: Identity | None) -> None:
        """Prepare the tables, once and again after somebody has replaced the file."""
        if self._ready and seen == self._opened:
            return
        if not self._opening.acquire(timeout=2 * CONNECT_SECONDS):
            raise Unavailable(_OPENING)
        try:
            if self._ready and self._identity() == self._opened:  # another thread was faster
                return
            if self._file is not None:
                self._engine.dispose()
                self._file.parent.mkdir(parents=True, exist_ok=True)
                if self._file.is_file() and 0 < self._file.stat().st_size < _SMALLEST_FILE:
                    raise NotOurs(_NO_DATABASE)
            self._transaction(_prepare_tables, True)
            self._opened = self._identity()
            self._ready = True
        finally:
            self._opening.release()

    def _repair(self, error: BaseException, seen: Identity | None) -> bool:
        """Remove the cause of an error; return whether another try may succeed."""
        message = _message(error)
        if self._file is not None and (
            isinstance(error, NotOurs) or any(part in message for part in _DAMAGE)
        ):
            return self._move_aside(self._file, seen, _reason(error))
        if "no such" in message or "has no column" in message or _state(error) in _LACKING:
            self._ready = False
            return True
        return bool(getattr(error, "connection_invalidated", False))

    def _move_aside(self, file: Path, damaged: Identity | None, why: str) -> bool:
        """Rename a damaged file, so that a new one takes its name.

        Returns:
            Whether another try may succeed: False if the folder does not allow to move the file.
        """
        self._engine.dispose()
        try:
            with _locked(file.parent):
                if damaged is None or self._identity() != damaged:  # another process was faster
                    return True
                names = (file.with_name(f"{file.name}.broken-{number}") for number in count(1))
                aside = next(name for name in names if not name.exists())
                for suffix in _SUFFIXES:
                    with contextlib.suppress(FileNotFoundError):
                        part = file.with_name(file.name + suffix)
                        part.rename(aside.with_name(aside.name + suffix))
        except OSError:
            return False
        self.notes.append(f"{file.name}: {why}. It is called {aside.name} now.")
        if self._moved is not None:
            self._moved(why)
        return True


_FAILURES = (SQLAlchemyError, OSError, Unusable, UnicodeError)
"""Errors that a transaction may raise; the last one if SQLite's own texts are damaged."""

_LACKING = ("42P01", "42703")
"""PostgreSQL's error codes for a table or a column that is missing."""


def checksum(hash: str, snapshot: bytes, parameters: bytes = b"") -> str:
    """Return the checksum of a row's content, 32 hexadecimal digits, which reveals a torn row."""
    digest = hashlib.blake2b(f"{hash} {len(snapshot)} ".encode(), digest_size=16)
    digest.update(snapshot)
    digest.update(parameters)
    return digest.hexdigest()


def _prepare_tables(connection: Connection) -> None:
    """Create the tables in an empty database, or check that those that exist can be used.

    Raises:
        Unusable: If the tables cannot be used.
    """
    lock_writers(connection)
    _VERSIONS.create(connection, checkfirst=True)
    version = connection.scalar(select(_VERSIONS.c.version))
    exists = inspect(connection).has_table("results")
    if version is None and not exists:
        RESULTS.create(connection)
        connection.execute(insert(_VERSIONS).values(version=VERSION))
        return
    if version is None:
        raise NotOurs(_FOREIGN)
    if version != VERSION:
        raise Unusable(
            f"its table of results has version {version}, and this copy of attnkit reads only "
            f"version {VERSION}: use the attnkit that wrote it, or name another place for results"
        )
    columns = inspect(connection).get_columns("results") if exists else []
    if not {column["name"] for column in columns}.issuperset(RESULTS.columns.keys()):
        raise NotOurs(_FOREIGN)


def _reason(error: BaseException) -> str:
    """Return the meaning of an error, without any part of the address, which may hold a password.

    Args:
        error: An error of SQLAlchemy or of the operating system, or `Unusable`.
    """
    if isinstance(error, Unusable):
        return str(error)
    if isinstance(error, NoFreeConnection):
        return _CROWDED
    if isinstance(error, OSError):
        return _NO_FOLDER.format(error.strerror)
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


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of this block; Windows and some file systems have no such lock."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
