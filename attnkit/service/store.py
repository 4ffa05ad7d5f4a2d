"""Store of finished results by the content hash of their experiment, in SQLite or PostgreSQL.

When `put` returns, the complete result is on the disk. A row that is torn or altered, or was
trained on another text than this copy has, counts as absent, and the next `put` replaces it. A file
that cannot be read is moved aside, and the store begins anew.

There is one result per experiment, whichever engine, kind of processor and versions trained it; its
snapshot names them. A result of another maker, whose bits differ, replaces it.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Row,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from attnkit import __version__
from attnkit.experiment.experiment import Experiment, from_text, hash_of
from attnkit.foundation.language import mark
from attnkit.foundation.settings import InvalidExperiment
from attnkit.service.database import RESULTS, Database, NotOurs, checksum
from attnkit.service.database_engines import Unavailable, is_file, lock_writers
from attnkit.service.history import LONGEST_SEARCH, StoredEntry
from attnkit.training.maker import Maker
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

__all__ = [
    "LONGEST_NAME",
    "ResultStore",
    "TooLarge",
    "Unavailable",
]

LONGEST_NAME = 80
"""Largest number of characters in the name of a result."""

_TOUCH_SECONDS = 60.0
"""Seconds within which all reads of one result count as one use, to save writes."""


class TooLarge(Exception):
    """The result exceeds the size limit of a single result; the message says so, for people."""


class ResultStore:
    """Stored results, for any number of threads, processes and machines at once.

    Nothing is opened before the first use. Every method raises `Unavailable` if the database fails,
    and the next call tries again.

    Args:
        where: A folder, the URL of a database (`sqlite:///…`, `postgresql://…`), or an engine.
            Empty: this user's data folder.
        megabytes: Size limit of the store. Beyond it the least recently used results are deleted,
            except pinned ones.
        result_megabytes: Size limit of a single result, so that none displaces many others; None:
            no limit.
        moved: Called with the reason after a file was moved aside.

    Attributes:
        database: The database of the results, which may have further tables.
        notes: Sentences for people about files that were moved aside.

    Raises:
        Unavailable: If `where` cannot be understood or its driver is missing.
    """

    def __init__(
        self,
        where: str | Path | Engine,
        *,
        megabytes: int = 5000,
        result_megabytes: int | None = None,
        moved: Callable[[str], None] | None = None,
    ) -> None:
        self._database = Database(where, moved)
        self.database = self._database
        self.notes = self._database.notes
        self._max_bytes = megabytes * 2**20
        self._result_megabytes = result_megabytes
        self._used_at: dict[str, float] = {}  # last noted use by hash, on the monotonic clock

    def put(self, snapshot: bytes, parameters: bytes) -> bool:
        """Store a finished result.

        Args:
            snapshot: First part of `Result.to_blobs`.
            parameters: Second part of `Result.to_blobs`.

        Returns:
            False if the store already had one of the same maker.

        Raises:
            ValueError: If the bytes are not a finished result, or if a PyTorch module computes a
                variant, whose code others do not have.
            TooLarge: If it exceeds the size limit; another try will not help.
            Unavailable: If it is not stored now; another try may help.
        """
        self._check_size(len(snapshot) + len(parameters))
        result = Result.from_blobs(snapshot, parameters)
        if result.snapshot.status != "finished":
            raise ValueError(f"status: got {result.snapshot.status!r}, allowed 'finished'")
        for variant in result.experiment.sharing:
            if "module" in variant.given:
                raise ValueError(f"sharing: got {variant}, allowed variants whose code others have")
        experiment, now = result.experiment, _microseconds()
        values = {
            "hash": experiment.hash,
            "task": experiment.task.name,
            "text": experiment.to_json(),
            "n_runs": experiment.n_runs,
            "steps": result.snapshot.step,
            "seconds": result.seconds,
            "version": __version__,
            "n_bytes": len(snapshot) + len(parameters),
            "created_at": now,
            "snapshot": snapshot,
            "parameters": parameters,
            "checksum": checksum(experiment.hash, snapshot, parameters),
            "snapshot_checksum": checksum(experiment.hash, snapshot),
        }
        maker = result.snapshot.maker
        is_new, n_deleted = self._database.do(
            lambda connection: self._put(connection, values, maker)
        )
        if not is_new:
            self._note_use(experiment.hash)
        if n_deleted:
            self._database.free_space()
        return is_new

    def _check_size(self, n_bytes: int) -> None:
        limit = self._result_megabytes
        if limit is not None and n_bytes > limit * 2**20:
            size = math.ceil(10 * n_bytes / 2**20) / 10  # rounded up, so that it exceeds the limit
            raise TooLarge(
                mark(
                    "it takes {size:,.1f} MB, allowed at most {limit:,} MB on this copy",
                    size=size,
                    limit=limit,
                )
            )

    def _put(
        self, connection: Connection, values: dict[str, Any], maker: Maker
    ) -> tuple[bool, int]:
        """Insert or replace a row; return whether that was needed, and how many were deleted."""
        lock_writers(connection)
        stored = _result(_select_row(connection, values["hash"], RESULTS.c))
        if stored is not None and stored.snapshot.maker == maker:
            return False, 0
        same_hash = RESULTS.c.hash == values["hash"]
        choices = select(RESULTS.c.name, RESULTS.c.pinned).where(same_hash)
        replaced = connection.execute(choices).one_or_none()
        values |= {"name": "", "pinned": False} if replaced is None else replaced._asdict()
        connection.execute(delete(RESULTS).where(same_hash))
        n_deleted = self._make_room(connection, values["n_bytes"])
        connection.execute(insert(RESULTS).values(**values, used_at=_next_use(connection)))
        if is_file(connection):
            row = _select_row(connection, values["hash"], RESULTS.c)
            if row is None or not _is_intact(row):
                raise NotOurs("its file is damaged")  # a damaged index leads to another row
        return True, n_deleted

    def _make_room(self, connection: Connection, n_bytes: int) -> int:
        """Delete the least recently used rows until `n_bytes` more fit; return how many."""
        excess, n_deleted = _n_bytes(connection) + n_bytes - self._max_bytes, 0
        oldest = (
            select(RESULTS.c.hash, _SIZE.label("n_bytes"))
            .where(~RESULTS.c.pinned)
            .order_by(RESULTS.c.used_at, RESULTS.c.hash)
            .limit(1)
        )
        while excess > 0 and (row := connection.execute(oldest).one_or_none()) is not None:
            connection.execute(delete(RESULTS).where(RESULTS.c.hash == row.hash))
            excess -= row.n_bytes
            n_deleted += 1
        return n_deleted

    def snapshot(self, hash: str) -> Snapshot | None:
        """Return the last snapshot of a stored experiment, or None; this counts as use.

        The parameters are not read.
        """
        snapshot = self.peek(hash)
        if snapshot is not None:
            self._note_use(hash)
        return snapshot

    def peek(self, hash: str) -> Snapshot | None:
        """Return the last snapshot as `snapshot` does, for lists: this does not count as use."""
        columns = RESULTS.c
        return _snapshot(
            self._row(hash, (columns.hash, columns.snapshot, columns.snapshot_checksum))
        )

    def result(self, hash: str) -> Result | None:
        """Return a stored result, or None; this counts as use."""
        result = _result(self._row(hash, RESULTS.c))
        if result is not None:
            self._note_use(hash)
        return result

    def experiment(self, hash: str) -> Experiment | None:
        """Return the experiment of a stored result.

        None if the result is not stored, or this copy lacks the task or a variant.
        """
        row = self._row(hash, (RESULTS.c.text,))
        if row is None or not isinstance(row.text, str) or hash_of(row.text) != hash:
            return None
        try:
            return from_text(row.text)
        except InvalidExperiment:
            return None

    def entries(self, search: str = "", limit: int = 200) -> list[StoredEntry]:
        """Return descriptions of the stored results, newest first.

        Args:
            search: Words that must all occur in the name, the task, the settings or the hash.
            limit: Largest number of entries.
        """
        query = select(*[RESULTS.c[name] for name in StoredEntry.__annotations__])
        for word in _plain(search[:LONGEST_SEARCH]).split():
            query = query.where(or_(*(c.icontains(word, autoescape=True) for c in _SEARCHED)))
        query = query.order_by(RESULTS.c.created_at.desc(), RESULTS.c.hash).limit(limit)
        rows = self._database.do(lambda connection: connection.execute(query).all(), changes=False)
        return [entry for entry in map(_entry, rows) if entry is not None]

    def rename(self, hash: str, name: str) -> bool:
        """Name a result, or remove its name with an empty one; False if it is not stored."""
        return self._change(hash, name=_plain(name)[:LONGEST_NAME])

    def pin(self, hash: str, pinned: bool) -> bool:
        """Exempt a result from the size limit, or no longer; False if it is not stored."""
        return self._change(hash, pinned=pinned)

    def delete(self, hash: str) -> bool:
        """Delete a result; False if it was not stored."""
        if not _is_hash(hash):
            return False
        statement = delete(RESULTS).where(RESULTS.c.hash == hash)
        if not self._database.do(lambda connection: connection.execute(statement).rowcount):
            return False
        self._database.free_space()
        return True

    def n_bytes(self) -> int:
        """Return the size of all stored snapshots and parameters in bytes."""
        return self._database.do(_n_bytes, changes=False)

    def close(self) -> None:
        """Close the connections; a later use opens new ones."""
        self._database.close()

    def _change(self, hash: str, **values: Any) -> bool:
        if not _is_hash(hash):
            return False
        statement = update(RESULTS).where(RESULTS.c.hash == hash).values(**values)
        return self._database.do(lambda connection: connection.execute(statement).rowcount) > 0

    def _row(self, hash: str, columns: Iterable[Column[Any]]) -> Row[Any] | None:
        """Return some columns of a row; None if it is not stored."""
        if not _is_hash(hash):
            return None
        return self._database.do(lambda c: _select_row(c, hash, columns), changes=False)

    def _note_use(self, hash: str) -> None:
        """Write the time of use, unless that was done within the last minute."""
        now = time.monotonic()
        recent = {key: at for key, at in self._used_at.items() if now - at < _TOUCH_SECONDS}
        if hash in recent:
            return
        self._used_at = {**recent, hash: now}

        def write(connection: Connection) -> None:
            statement = update(RESULTS).where(RESULTS.c.hash == hash)
            connection.execute(statement.values(used_at=_next_use(connection)))

        with contextlib.suppress(Unavailable):  # the result itself has been read
            self._database.do(write)


def _select_row(
    connection: Connection, hash: str, columns: Iterable[Column[Any]]
) -> Row[Any] | None:
    return connection.execute(select(*columns).where(RESULTS.c.hash == hash)).one_or_none()


def _is_intact(row: Row[Any]) -> bool:
    """Return whether snapshot and parameters of a row are as they were written."""
    if not isinstance(row.snapshot, bytes) or not isinstance(row.parameters, bytes):
        return False  # SQLite stores values of any type in any column
    return bool(row.checksum == checksum(row.hash, row.snapshot, row.parameters))


def _snapshot(row: Row[Any] | None) -> Snapshot | None:
    """Decode the snapshot of a row; None if it is missing or torn, or this copy cannot read it."""
    if row is None or not isinstance(row.snapshot, bytes):
        return None
    if row.snapshot_checksum != checksum(row.hash, row.snapshot):
        return None
    try:
        snapshot = Snapshot.from_bytes(row.snapshot)
    except ValueError:
        return None
    return snapshot if snapshot.experiment.hash == row.hash else None


def _result(row: Row[Any] | None) -> Result | None:
    """Decode snapshot and parameters of a row; None as in `_snapshot`."""
    snapshot = _snapshot(row)
    if row is None or snapshot is None or not _is_intact(row):
        return None
    try:
        return Result.from_blobs(snapshot, row.parameters)
    except ValueError:
        return None


def _entry(row: Row[Any]) -> StoredEntry | None:
    """Return the description of a row; None if the row was altered."""
    try:
        times = {name: _time(getattr(row, name)) for name in ("created_at", "used_at")}
        return StoredEntry(**{**row._asdict(), **times}) if hash_of(row.text) == row.hash else None
    except (AttributeError, OSError, OverflowError, TypeError, ValueError):
        return None


_SEARCHED = (RESULTS.c.name, RESULTS.c.task, RESULTS.c.text, RESULTS.c.hash)
"""Columns in which a search finds words."""


def _n_bytes(connection: Connection) -> int:
    return int(connection.scalar(select(func.sum(_SIZE))) or 0)


_SIZE = func.length(RESULTS.c.snapshot) + func.length(RESULTS.c.parameters)
"""Actual size of a row. The column `n_bytes` is not used: if it is wrong in one row, others must
not be deleted for that."""


def _next_use(connection: Connection) -> int:
    """Return the current time, or a later one than every earlier use if the clock was set back."""
    newest = connection.scalar(select(func.max(RESULTS.c.used_at)))
    return max(_microseconds(), newest + 1 if isinstance(newest, int) else 0)


def _microseconds() -> int:
    return time.time_ns() // 1000


def _time(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def _is_hash(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{16}", text) is not None


def _plain(text: str) -> str:
    """Return a text on one line, without characters that cannot be displayed or stored."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())
