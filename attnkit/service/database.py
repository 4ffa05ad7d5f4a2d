"""A database for results: an SQLite file by default, or a PostgreSQL server.

`Database.do` runs transactions, and says in plain words why one has failed. A damaged file in a
data folder is renamed, and a new one takes its place: results can be trained again to the same
bits. Nothing is deleted.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from platformdirs import user_data_dir
from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from attnkit.foundation.extras import install_hint
from attnkit.foundation.language import mark

FILE = "results.sqlite"
"""Name of the database file in a data folder."""

CONNECT_SECONDS = 3
"""Seconds after which a server that does not answer counts as gone."""

BUSY_SECONDS = 10
"""Seconds to wait for others that write, or for a free connection."""

FOREIGN = mark("its table `results` was not made by attnkit")
DAMAGED = mark("its file is damaged, or is not a database")
_BUSY = mark("others have been writing to it for too long")
_LOCKED = mark(
    "others have been writing to it for too long, or its file system, such as NFS or Lustre, locks "
    "no files: name a folder on another one, or a PostgreSQL server, in ATTNKIT_STORE"
)
_GONE = mark("the database cannot be reached")
_CLOSED = mark("its file or folder cannot be opened")
_READ_ONLY = mark("it is read-only")
_REFUSED = mark("the database refuses the user, or does not exist")
_FULL = mark("the disk is full")
_ADDRESS = mark("its address is neither a folder nor of the form sqlite:///… or postgresql://…")

_REASONS: dict[int | str, str] = {
    sqlite3.SQLITE_ERROR: FOREIGN,  # a table or a column is missing
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_IOERR_LOCK: _LOCKED,
    sqlite3.SQLITE_IOERR_RDLOCK: _LOCKED,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_READONLY_DBMOVED: FOREIGN,  # another process has moved the file
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    "25006": _READ_ONLY,
    "28": _REFUSED,
    "3D": _REFUSED,
    "42501": _REFUSED,
    "42": FOREIGN,
    "53100": _FULL,
    "53": _BUSY,
    "55P03": _BUSY,
}
"""Error code of SQLite or PostgreSQL, or the class of one → reason."""

_REFUSALS = {"too many": _BUSY, "fatal:  the database system": _GONE, "fatal": _REFUSED}
"""Part of PostgreSQL's message for a connection that it refuses, which has no code → reason."""

_SMALLEST_FILE = 512
"""Bytes of SQLite's smallest page. It would overwrite a shorter file as if it were empty."""

_WRITERS = 0x6174746E6B6974
"""Number of the advisory lock that writers take on PostgreSQL."""

_MEMORY = (None, "", ":memory:")
"""Names of SQLite's databases in memory, which end with their process."""

_WRITING = threading.Lock()
"""Held by the thread of this process that writes to a file: SQLite lets threads starve that try."""

_MOVING = threading.Lock()

T = TypeVar("T")


class Unavailable(Exception):
    """The database cannot be used now; the message says why, for people."""


class Damaged(Unavailable):
    """The file of the database is damaged, or another program has written it."""


class Database:
    """Database that is opened at its first use. Safe to use from many threads.

    Args:
        where: A folder, the URL of a database, or an engine. Empty: this user's data folder.
        moved: Called with the reason after a damaged file was moved aside.

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
        self._create: list[Callable[[Connection], None]] = []
        self._has_tables = False

    def prepare(self, create: Callable[[Connection], None]) -> None:
        """Call `create`, such as a `MetaData.create_all`, before the next use and in a new file."""
        self._create.append(create)
        self._has_tables = False

    def do(self, work: Callable[[Connection], T], *, changes: bool = True) -> T:
        """Return the result of `work` in a transaction, which is repeated where that may help.

        Args:
            work: Called with the connection; it may be called again.
            changes: Whether it writes.

        Raises:
            Unavailable: If the transaction has failed.
        """
        for tries_left in (2, 1, 0):
            inode = self._inode()
            try:
                if self._file is not None:
                    self._file.parent.mkdir(parents=True, exist_ok=True)
                if not self._has_tables:
                    self._transaction(self._create_tables, True)
                    self._has_tables = True
                return self._transaction(work, changes)
            except (SQLAlchemyError, OSError, UnicodeError, Unavailable) as error:
                failure = error if isinstance(error, Unavailable) else _unavailable(error)
                again = bool(getattr(error, "connection_invalidated", False))
                if isinstance(failure, Damaged):
                    again = self._move_aside(inode, failure)
                elif failure.args[0] == FOREIGN:
                    again, self._has_tables = True, False
                if not (tries_left and again):
                    raise failure from (None if failure is error else error)
        raise AssertionError

    def close(self) -> None:
        """Close the connections; a later use opens new ones."""
        self._engine.dispose()

    def _transaction(self, work: Callable[[Connection], T], changes: bool) -> T:
        in_turn = changes and self._engine.dialect.name == "sqlite"
        if in_turn and not _WRITING.acquire(timeout=BUSY_SECONDS):
            raise Unavailable(_BUSY)
        try:
            with self._engine.connect() as connection:
                connection.execution_options(attnkit_changes=changes)
                with connection.begin():
                    return work(connection)
        finally:
            if in_turn:
                _WRITING.release()

    def _create_tables(self, connection: Connection) -> None:
        lock_writers(connection)
        for create in self._create:
            create(connection)

    def _inode(self) -> int | None:
        """Return the number of the file, which tells it from another one of the same name."""
        with contextlib.suppress(OSError):
            return None if self._file is None else self._file.stat().st_ino
        return None

    def _move_aside(self, inode: int | None, why: Damaged) -> bool:
        """Rename the damaged file unless another thread or process has; return whether it is gone.

        A file that an address names stays, because it may be another program's.
        """
        file = self._file
        if file is None:
            return False
        with _MOVING:
            if inode is None or self._inode() != inode:
                return True
            numbered = (file.with_name(f"{file.name}.broken-{number}") for number in count(1))
            try:
                aside = next(path for path in numbered if not path.exists())
                for suffix in ("-journal", "-wal", "-shm", ""):
                    with contextlib.suppress(FileNotFoundError):
                        part = file.with_name(file.name + suffix)
                        part.rename(aside.with_name(aside.name + suffix))
            except OSError:
                return False
            self._has_tables = False
        self.notes.append(f"{file.name}: {why}. It is called {aside.name} now.")
        if self._moved is not None:
            self._moved(str(why))
        return True


def open_engine(where: str | Path | Engine) -> tuple[Engine, Path | None]:
    """Return an engine that connects at its first use, and its file if `where` is a folder.

    Raises:
        Unavailable: If the address cannot be understood or its driver is missing.
    """
    engine = where if isinstance(where, Engine) else None
    try:
        if "\0" in str(where):
            raise ValueError
        if not isinstance(where, Engine) and "://" not in str(where):
            file = Path(where or user_data_dir("attnkit")).expanduser().absolute() / FILE
            return _sqlite(URL.create("sqlite", database=str(file))), file
        url = make_url(str(where)) if engine is None else engine.url
        kind = url.get_backend_name()
        if kind == "sqlite" and (engine is not None or url.database not in _MEMORY):
            return _sqlite(url), None
        if kind not in ("postgresql", "postgres"):
            raise ValueError
        if engine is None:
            options: dict[str, Any] = {"hide_parameters": True, "pool_pre_ping": True}
            url = url.set(drivername="postgresql+psycopg")
            engine = create_engine(url, pool_timeout=BUSY_SECONDS, **options)
    except ImportError:
        hint = install_hint("postgres")
        text = mark("PostgreSQL needs the extra `postgres`: {hint}", hint=hint)
        raise Unavailable(text) from None
    except (ArgumentError, RuntimeError, ValueError):  # whose texts may hold a password
        raise Unavailable(_ADDRESS) from None

    @event.listens_for(engine, "do_connect")
    def limit(_dialect: Any, _record: Any, _args: Any, options: dict[str, Any]) -> None:
        options.setdefault("connect_timeout", CONNECT_SECONDS)
        options.setdefault("tcp_user_timeout", 1000 * BUSY_SECONDS)
        if engine.driver == "psycopg":
            options.setdefault("prepare_threshold", None)  # poolers keep no prepared statements

    return engine, None


def lock_writers(connection: Connection) -> None:
    """Wait until no other copy writes, and keep others waiting until the transaction ends."""
    if connection.dialect.name == "postgresql":  # on SQLite, the transaction itself has a lock
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS})")


def _sqlite(url: URL) -> Engine:
    """Return an engine that opens the file for every transaction, so that it may be replaced."""
    pool: dict[str, Any] = {"poolclass": NullPool}
    if url.database in _MEMORY:  # one connection has the data, and threads wait
        pool = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
    engine = create_engine(url, hide_parameters=True, **pool)

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _record: Any, args: Any, options: dict[str, Any]) -> Any:
        file = Path(str(url.database))
        if file.is_file() and 0 < file.stat().st_size < _SMALLEST_FILE:
            raise Damaged(DAMAGED)
        options |= {"check_same_thread": False, "isolation_level": None, "timeout": 0}
        with contextlib.ExitStack() as failed:
            connection = failed.enter_context(contextlib.closing(dialect.connect(*args, **options)))
            _set_up(connection)
            failed.pop_all()
        return connection

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        changes = connection.get_execution_options().get("attnkit_changes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if changes else "BEGIN")

    return engine


def _set_up(connection: sqlite3.Connection) -> None:
    """Let a connection wait for others, sync what it writes, and shorten its file after deletions.

    Older versions wrote a write-ahead log, which processes on two machines cannot share. A rollback
    journal works on every file system that has locks.
    """
    with contextlib.suppress(sqlite3.OperationalError):  # an older version still has the file open
        if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS}")
    with contextlib.suppress(sqlite3.OperationalError):  # the file is read-only
        if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != 1:
            connection.execute("PRAGMA auto_vacuum = FULL")
    connection.execute("PRAGMA synchronous = EXTRA")


def _unavailable(error: Exception) -> Unavailable:
    """Return why a transaction failed, without any part of the address: it may hold a password."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorcode", None) or getattr(cause, "sqlstate", None)
    if code:
        kind = code & 0xFF if isinstance(code, int) else code[:2]
        reason = _REASONS.get(code) or _REASONS.get(kind, _GONE)
    elif isinstance(cause, (UnicodeError, sqlite3.OperationalError)):  # a text is not in UTF-8
        reason = DAMAGED
    elif isinstance(cause, (OSError, NoFreeConnection)):
        reason = _CLOSED if isinstance(cause, OSError) else _BUSY
    else:
        message = str(cause).lower()
        reason = next((_REFUSALS[part] for part in _REFUSALS if part in message), _GONE)
    return (Damaged if reason == DAMAGED else Unavailable)(reason)
