"""How a database is opened, and what its errors mean to people.

SQLite in a folder is the embedded default; PostgreSQL is reached through psycopg 3.
"""

from __future__ import annotations

import contextlib
import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from platformdirs import user_data_dir
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from attnkit.service.migrations import FOREIGN, NO_VERSION

FILE = "results.sqlite"
"""The database in a data folder."""

CHANGES = "attnkit_changes"
"""Option of a connection that will write: on SQLite its transactions begin with the write lock."""

CONNECT_SECONDS = 3
"""After it a server that does not answer counts as gone."""

BUSY_SECONDS = 10
"""After it one gives up waiting for others that write."""

_PAGES = 2048
"""Of 4096 bytes, that are given back at once."""

_LOCK = 0x6174746E6B6974
"""What writers lock on PostgreSQL."""


class Unavailable(Exception):
    """The store cannot be reached or written now; the text says why, for people."""


def open_engine(where: str | Path | Engine) -> tuple[Engine, Path | None]:
    """An engine that connects at its first use, and the file if it is one in a data folder.

    Args:
        where: a folder, a database as a URL, or an engine. Empty: this user's data folder.

    Raises:
        Unavailable: if the URL cannot be understood, or its driver is missing.
    """
    if isinstance(where, Engine):
        return _of_engine(where), None
    if "\0" in str(where):
        raise Unavailable("its address contains a NUL character: write it without one")
    if isinstance(where, str) and "://" in where:
        try:
            return _of_url(make_url(where)), None
        except (ArgumentError, ValueError):
            raise Unavailable(_ALLOWED) from None
    try:
        folder = Path(where or user_data_dir("attnkit")).expanduser().absolute()
    except RuntimeError:
        raise Unavailable("this user has no folder: name one") from None
    file = folder / FILE
    return _sqlite(URL.create("sqlite", database=str(file))), file


def _of_engine(engine: Engine) -> Engine:
    if engine.dialect.name != "postgresql":  # a file is opened with settings that lose nothing
        return _of_url(engine.url)
    _wait_briefly(engine)
    return engine


def _of_url(url: URL) -> Engine:
    kind = url.get_backend_name()
    if kind == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise Unavailable("a database in memory keeps nothing: name a file")
        return _sqlite(url)
    if kind in ("postgresql", "postgres"):
        return _postgresql(url)
    raise Unavailable(_ALLOWED)


_ALLOWED = "its address is no folder and none of sqlite:///… and postgresql://…"


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url, hide_parameters=True, pool_timeout=BUSY_SECONDS)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin below, not in the driver
        connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # heard before the first table only
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        changes = connection.get_execution_options().get(CHANGES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if changes else "BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    if find_spec("psycopg") is None:
        raise Unavailable("PostgreSQL needs the extra `postgres`: pip install 'attnkit[postgres]'")
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
    """Give up a server that does not answer, unless the address says how long to wait."""
    if not engine.driver.startswith("psycopg"):
        return

    @event.listens_for(engine, "do_connect")
    def limit(_dialect: Any, _record: Any, _given: Any, options: dict[str, Any]) -> None:
        options.setdefault("connect_timeout", CONNECT_SECONDS)
        options.setdefault("tcp_user_timeout", 1000 * BUSY_SECONDS)


def is_file(connection: Connection) -> bool:
    """Whether the database is an SQLite file, and no server."""
    return connection.dialect.name == "sqlite"


def lock_writers(connection: Connection) -> None:
    """Until the transaction ends, no other writer of any replica is in this place."""
    if not is_file(connection):  # which has but one writer
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def give_back_space(engine: Engine) -> None:
    """Shorten an SQLite file by what was deleted, if possible; PostgreSQL does so by itself."""
    if engine.dialect.name != "sqlite":
        return
    with (
        contextlib.suppress(SQLAlchemyError, sqlite3.Error),
        contextlib.closing(engine.raw_connection()) as connection,
    ):
        driver = connection.driver_connection
        assert driver is not None
        left = 0
        while (free := driver.execute("PRAGMA freelist_count").fetchone()[0]) not in (0, left):
            left = free  # in portions, so that others may write in between
            driver.executescript(f"PRAGMA incremental_vacuum({_PAGES})")  # `execute` takes one page


def is_damage(error: BaseException) -> bool:
    """Whether an error says that a file is no SQLite database or cannot be read as one."""
    return any(part in _told(error) for part in _DAMAGED)


def lacks_tables(error: BaseException) -> bool:
    """Whether an error says that a table or a column is gone."""
    told = _told(error)
    return "no such" in told or "has no column" in told or _state(error) in ("42P01", "42703")


def reason(error: BaseException) -> str:
    """What a failure means, in few words; nothing of the address, which may hold a password."""
    if isinstance(error, NoFreeConnection):
        return _CROWDED
    if isinstance(error, OSError):
        return f"its folder cannot be used ({error.strerror})"
    if _state(error) in _STATES:
        return _STATES[_state(error)]
    told = _told(error)
    found = [meaning for part, meaning in {**_MEANINGS, **_DAMAGED}.items() if part in told]
    return found[0] if found else _GONE


def _told(error: BaseException) -> str:
    """What SQLite or the driver says."""
    return str(error.orig if isinstance(error, DBAPIError) else error).lower()


def _state(error: BaseException) -> str:
    """PostgreSQL's code for an error, or nothing."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""


NO_DATABASE = "its file is no database"

_DAMAGED = {
    "not a database": NO_DATABASE,
    "unsupported file format": NO_DATABASE,
    "malformed": "its file is damaged",
    "could not decode": "its file is damaged",
    "can't decode": "its file is damaged",
}

_BUSY = "others have been writing to it for too long"
_CROWDED = "too many ask it at once"
_GONE = "the database cannot be reached"
_READ_ONLY = "it can be read only"
_REFUSED = "the database refuses the user"
_OTHER_TABLES = "its tables are not ours"

_MEANINGS = {
    "is full": "the disk is full",
    "is locked": _BUSY,
    "disk i/o error": "the disk cannot be read or written",
    "readonly": _READ_ONLY,
    "unable to open": "its file cannot be opened",
    "too big": "the result is too large for it",
    "no such": _OTHER_TABLES,
    "has no column": _OTHER_TABLES,
    "fatal:  database": "there is no such database",
    "fatal:  password": _REFUSED,
    "fatal:  role": _REFUSED,
    "fatal:  no pg_hba": _REFUSED,
    "fatal:  sorry, too many": _CROWDED,
}
"""Parts of messages; of a failed connection the driver tells no code."""

_STATES = {
    "25006": _READ_ONLY,
    "42501": _REFUSED,
    "42P01": _OTHER_TABLES,
    "42703": _OTHER_TABLES,
    "53100": "the disk is full",
    "55P03": _BUSY,
}

OPENING = "it is being opened"
"""By another thread, which may have much to read."""

REASONS = frozenset(
    {
        *(_CROWDED, _GONE, OPENING, FOREIGN, NO_VERSION),
        *(*_DAMAGED.values(), *_MEANINGS.values(), *_STATES.values()),
    }
)
"""What is said of a database; of a folder it is what the system says."""
