"""The database of the store: transactions that heal what can be healed, and say why they fail.

A connection that was dropped is made anew; a file that somebody replaced is opened again; a file
that cannot be read is moved aside, and what can be read of it is stored anew.
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
    NO_DATABASE,
    OPENING,
    Unavailable,
    give_back_space,
    is_damage,
    lacks_tables,
    lock_writers,
    open_engine,
    reason,
)
from attnkit.service.migrations import RESULTS, NotOurs, Unusable, is_whole, migrate

T = TypeVar("T")


class Database:
    """Opened at its first use; any number of threads may use it.

    Args:
        where: as `open_engine` takes it.
        moved: called when a file was moved aside, with the reason and the number of its results
            that are kept.

    Attributes:
        notes: what became of a file that could not be read, for people.

    Raises:
        Unavailable: if `where` cannot be understood, or its driver is missing.
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
        """One transaction, tried again where that may help.

        Raises:
            Unavailable: if it has failed.
        """
        for tries_left in (2, 1, 0):
            seen = None if self._file is None else identity(self._file)
            try:
                self._open(seen)
                return self._transaction(work, changes)
            except _FAILURES as error:
                if not tries_left or not self._mended(error, seen):
                    raise Unavailable(_reason(error)) from error
        raise AssertionError

    def give_back_space(self) -> None:
        """Shorten the file by what was deleted, if that is possible now."""
        give_back_space(self._engine)

    def close(self) -> None:
        """Give back the connections; a later use opens new ones."""
        if self._owns_engine:
            self._engine.dispose()

    def _transaction(self, work: Callable[[Connection], T], changes: bool) -> T:
        with self._engine.connect() as connection:
            connection.execution_options(**{CHANGES: changes})
            with connection.begin():
                return work(connection)

    def _open(self, seen: Identity | None) -> None:
        """Bring the tables up to date, once; and again if somebody has replaced the file."""
        if self._ready and seen == self._opened:
            return
        if not self._opening.acquire(timeout=2 * CONNECT_SECONDS):
            raise Unavailable(OPENING)
        try:
            self._reopen()
        finally:
            self._opening.release()

    def _reopen(self) -> None:
        def bring_up(connection: Connection) -> None:
            lock_writers(connection)
            migrate(connection)

        found = None if self._file is None else identity(self._file)
        if self._ready and found == self._opened:  # another thread was faster
            return
        if self._file is not None:
            self._engine.dispose()
            self._file.parent.mkdir(parents=True, exist_ok=True)
            if self._file.is_file() and 0 < self._file.stat().st_size < _SHORTEST:
                raise NotOurs(NO_DATABASE)
        self._transaction(bring_up, True)
        self._opened = None if self._file is None else identity(self._file)
        self._ready = True

    def _mended(self, error: BaseException, seen: Identity | None) -> bool:
        """Whether another try may do better."""
        if self._file is not None and (is_damage(error) or isinstance(error, NotOurs)):
            return self._begin_anew(self._file, seen, _reason(error))
        if lacks_tables(error):
            self._ready = False
            return True
        return bool(getattr(error, "connection_invalidated", False))

    def _begin_anew(self, file: Path, damaged: Identity | None, why: str) -> bool:
        """Keep the damaged file aside, and store anew what can be read of it."""
        self._engine.dispose()
        try:
            aside = move_aside(file, damaged)
        except OSError:
            return False
        if aside is not None:
            n_kept = 0
            with contextlib.suppress(*_FAILURES, Unavailable):
                for row in readable_rows(aside):
                    n_kept += self._rescue(file, row)
            kept = f"; of its results {n_kept} could be read and are kept" if n_kept else ""
            self.notes.append(f"{file.name}: {why}. It is called {aside.name} now{kept}.")
            if self._moved is not None:
                self._moved(why, n_kept)
        return True

    def _rescue(self, file: Path, row: Row[Any]) -> bool:
        """Store a row anew if it is whole."""
        if not is_whole(row):
            return False
        self._open(identity(file))
        with contextlib.suppress(IntegrityError):  # it has been computed again meanwhile
            self._transaction(lambda c: c.execute(insert(RESULTS).values(row._asdict())), True)
        return True


_SHORTEST = 512
"""Bytes of SQLite's smallest page; anything shorter it would take for empty and overwrite."""

_FAILURES = (SQLAlchemyError, OSError, Unusable, UnicodeError)
"""What a transaction may raise; the last where SQLite's own words are damaged, too."""


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, Unusable) else reason(error)
