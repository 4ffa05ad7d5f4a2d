"""Engines for the two kinds of database: an SQLite file by default, or a PostgreSQL server."""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import psutil
from platformdirs import user_data_dir
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from attnkit.foundation.extras import install_hint


class Unavailable(Exception):
    """The store cannot be reached or written now; the message says why, for people."""


FILE = "results.sqlite"
"""Name of the database file in a data folder."""

CHANGES = "attnkit_changes"
"""Execution option of a connection that will write: on SQLite, its transactions begin with the
write lock."""

CONNECT_SECONDS = 3
"""Seconds after which a server that does not answer counts as gone."""

BUSY_SECONDS = 10
"""Seconds to wait for others that write, or for a free connection."""

_PAGES = 2048
"""Pages of 4096 bytes that are returned to the file system at once."""

_NETWORK = re.compile(
    "9p|afpfs|afs|beegfs|ceph|cifs|(mac|osx)?fuse(?!blk|.fuse-overlayfs)|gpfs|lustre|nfs|panfs|smb"
    "|vboxsf|virtiofs"
)
"""Beginnings of the names of file systems that several machines share; not known on Windows."""

_NO_SHARED_MEMORY = (
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_IOERR_SHMLOCK,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_IOERR_SHMSIZE,
)
"""SQLite's errors where a write-ahead log finds no shared memory."""

_LOCK = 0x6174746E6B6974
"""Number of the advisory lock that writers take on PostgreSQL."""


def open_engine(where: str | Path | Engine) -> tuple[Engine, Path | None]:
    """Return an engine that connects at its first use.

    Args:
        where: A folder, the URL of a database, or an engine. Empty: this user's data folder.

    Returns:
        The engine, and its file if `where` is a folder or empty.

    Raises:
        Unavailable: If the address cannot be understood or its driver is missing.
    """
    if isinstance(where, Engine):
        return _from_engine(where), None
    if "\0" in str(where):
        raise Unavailable("its address contains a NUL character: write it without one")
    if isinstance(where, str) and "://" in where:
        try:
            return _from_url(make_url(where)), None
        except (ArgumentError, ValueError):
            raise Unavailable(_ALLOWED) from None
    try:
        folder = Path(where or user_data_dir("attnkit")).expanduser().absolute()
    except RuntimeError:
        raise Unavailable("this user has no folder: name one") from None
    file = folder / FILE
    return _sqlite(URL.create("sqlite", database=str(file))), file


def _from_engine(engine: Engine) -> Engine:
    if engine.dialect.name != "postgresql":  # a file needs the settings below to lose nothing
        return _from_url(engine.url)
    _wait_briefly(engine)
    return engine


def _from_url(url: URL) -> Engine:
    kind = url.get_backend_name()
    if kind == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise Unavailable("a database in memory keeps nothing: name a file")
        return _sqlite(url)
    if kind in ("postgresql", "postgres"):
        return _postgresql(url)
    raise Unavailable(_ALLOWED)


_ALLOWED = "its address is neither a folder nor of the form sqlite:///… or postgresql://…"


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url, hide_parameters=True, pool_timeout=BUSY_SECONDS)

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _: Any, args: Any, options: dict[str, Any]) -> Any:
        return _open(partial(dialect.connect, *args, **options), Path(str(url.database)))

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        changes = connection.get_execution_options().get(CHANGES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if changes else "BEGIN")

    return engine


def _open(connect: Callable[[], Any], file: Path) -> Any:
    """Return a connection to a file; only a file that can have a write-ahead log has one.

    Processes share the index of a log in memory, which many network file systems do not offer, and
    which processes on two machines never share. SQLite does not wait for others that open a log.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    has_log = not _NETWORK.match(_file_system_of(file))
    while True:
        connection = connect()
        try:
            _prepare(connection, has_log)
            return connection
        except Exception as error:
            connection.close()
            code = getattr(error, "sqlite_errorcode", 0)
            if has_log and code in _NO_SHARED_MEMORY:
                has_log = False
            elif code & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            else:
                time.sleep(0.02)


def _prepare(connection: Any, has_log: bool) -> None:
    connection.isolation_level = None  # `begin` begins transactions, not the driver
    connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS}")
    if not has_log:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # reads a log without shared memory
    is_new = not connection.execute("PRAGMA page_count").fetchone()[0]
    if is_new:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if not has_log or connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute(f"PRAGMA journal_mode = {'WAL' if has_log else 'DELETE'}")
    connection.execute("PRAGMA locking_mode = NORMAL")
    connection.execute("SELECT * FROM sqlite_master").fetchall()
    connection.execute("PRAGMA journal_size_limit = 16777216")
    connection.execute("PRAGMA synchronous = FULL")


def _file_system_of(file: Path) -> str:
    """Return the name of the file system that a file is on; empty if it is not known."""
    if sys.platform == "win32":  # where drives that are away would be waited for
        return ""
    with contextlib.suppress(OSError, RuntimeError, psutil.Error):
        systems = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
        return next((systems[at] for at in file.resolve().parents if at in systems), "").lower()
    return ""


def has_locks(engine: Engine) -> bool:
    """Return whether processes can lock files in the folder of an SQLite file."""
    if sys.platform == "win32" or engine.dialect.name != "sqlite":
        return True
    import fcntl

    try:
        with TemporaryFile(dir=Path(str(engine.url.database)).parent) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
    return True


def _postgresql(url: URL) -> Engine:
    if find_spec("psycopg") is None:
        raise Unavailable(f"PostgreSQL needs the extra `postgres`: {install_hint('postgres')}")
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        hide_parameters=True,
        pool_pre_ping=True,
        pool_timeout=BUSY_SECONDS,
        connect_args={"prepare_threshold": None},  # poolers keep no prepared statements
    )
    _wait_briefly(engine)
    return engine


def _wait_briefly(engine: Engine) -> None:
    """Set short timeouts for a server that does not answer, unless the address sets them."""
    if not engine.driver.startswith("psycopg"):
        return

    @event.listens_for(engine, "do_connect")
    def limit(_dialect: Any, _record: Any, _args: Any, options: dict[str, Any]) -> None:
        options.setdefault("connect_timeout", CONNECT_SECONDS)
        options.setdefault("tcp_user_timeout", 1000 * BUSY_SECONDS)


def is_file(connection: Connection) -> bool:
    """Return whether the database is an SQLite file, not a server."""
    return connection.dialect.name == "sqlite"


def lock_writers(connection: Connection) -> None:
    """Wait until no other replica writes, and keep others waiting until the transaction ends."""
    if not is_file(connection):  # the transaction of a file has the write lock from its beginning
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def free_space(engine: Engine) -> None:
    """Shorten an SQLite file after deletions, if that is possible now; PostgreSQL needs no call."""
    if engine.dialect.name != "sqlite":
        return
    with (
        contextlib.suppress(SQLAlchemyError, sqlite3.Error),
        contextlib.closing(engine.raw_connection()) as connection,
    ):
        driver = connection.driver_connection
        assert driver is not None
        previous = 0
        while (free := driver.execute("PRAGMA freelist_count").fetchone()[0]) not in (0, previous):
            previous = free  # in portions, so that others can write in between
            driver.executescript(f"PRAGMA incremental_vacuum({_PAGES})")  # `execute` frees one page
