"""Transactions of the store that recover from broken connections and files, or say why they fail.

A broken connection is opened again, and so is a file that somebody has replaced. A file that cannot
be read is moved aside, and its readable results are copied to a new file.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Row, insert
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from attnkit.service.damage import Identity, identity, move_aside, readable_rows
from attnkit.service.database_engines import (
    CHANGES,
    CONNECT_SECONDS,
    free_space,
    lock_writers,
    open_engine,
)
from attnkit.service.database_errors import (
    NO_DATABASE,
    OPENING,
    Unavailable,
    is_damage,
    lacks_tables,
    reason,
)
from attnkit.service.table import RESULTS, NotOurs, Unusable, is_intact, prepare_tables

T = TypeVar("T")


class Database:
    """Database of a store, opened at its first use. Safe to use from many threads.

    Args:
        where: As `open_engine` takes it.
        moved: Called after a file was moved aside, with the reason and the number of results that
            were copied from it.

    Attributes:
        notes: Sentences for people about files that were moved aside.

    Raises:
        Unavailable: If `where` cannot be understood or its driver is missing.
    """

    def __init__(
        self, where: str | Path | Engine, moved: Callable[[str, int], None] | None = None
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
                    raise Unavailable(reason(error)) from error
        raise AssertionError

    def free_space(self) -> None:
        """Shorten the file after deletions, if that is possible now."""
        free_space(self._engine)

    def close(self) -> None:
        """Close the connections; a later use opens new ones."""
        if self._owns_engine:
            self._engine.dispose()

    def _identity(self) -> Identity | None:
        return None if self._file is None else identity(self._file)

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
            raise Unavailable(OPENING)
        try:
            self._reopen()
        finally:
            self._opening.release()

    def _reopen(self) -> None:
        def prepare(connection: Connection) -> None:
            lock_writers(connection)
            prepare_tables(connection)

        if self._ready and self._identity() == self._opened:  # another thread was faster
            return
        if self._file is not None:
            self._engine.dispose()
            self._file.parent.mkdir(parents=True, exist_ok=True)
            if self._file.is_file() and 0 < self._file.stat().st_size < _SMALLEST_FILE:
                raise NotOurs(NO_DATABASE)
        self._transaction(prepare, True)
        self._opened = self._identity()
        self._ready = True

    def _repair(self, error: BaseException, seen: Identity | None) -> bool:
        """Remove the cause of an error; return whether another try may succeed."""
        if self._file is not None and (is_damage(error) or isinstance(error, NotOurs)):
            return self._replace_file(self._file, seen, reason(error))
        if lacks_tables(error):
            self._ready = False
            return True
        return bool(getattr(error, "connection_invalidated", False))

    def _replace_file(self, file: Path, damaged: Identity | None, why: str) -> bool:
        """Move a damaged file aside and copy its readable results to a new one.

        Returns:
            Whether another try may succeed: False if the folder does not allow to move the file.
        """
        self._engine.dispose()
        try:
            aside = move_aside(file, damaged)
        except OSError:
            return False
        if aside is not None:
            n_copied = 0
            with contextlib.suppress(*_FAILURES, Unavailable):
                for row in readable_rows(aside):
                    n_copied += self._copy(file, row)
            copied = f"; of its results {n_copied} could be read and are kept" if n_copied else ""
            self.notes.append(f"{file.name}: {why}. It is called {aside.name} now{copied}.")
            if self._moved is not None:
                self._moved(why, n_copied)
        return True

    def _copy(self, file: Path, row: Row[Any]) -> bool:
        """Store a row in the new file if it is intact; return whether it is."""
        if not is_intact(row):
            return False
        self._open(identity(file))
        with contextlib.suppress(IntegrityError):  # the same experiment was stored meanwhile
            self._transaction(lambda c: c.execute(insert(RESULTS).values(row._asdict())), True)
        return True


_SMALLEST_FILE = 512
"""Bytes of SQLite's smallest page. It would overwrite a shorter file as if it were empty."""

_FAILURES = (SQLAlchemyError, OSError, Unusable, UnicodeError)
"""Errors that a transaction may raise; the last one if SQLite's own texts are damaged."""
