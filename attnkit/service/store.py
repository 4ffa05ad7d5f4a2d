"""Finished Results by the content hash of their experiment, in SQLite or PostgreSQL.

What `put` has returned for is on the disk, whole. What is read of a row and is torn or altered, or
made of another text than this copy has, counts as absent, and the next `put` replaces the row.

There is one result per experiment, whichever engine and kind of processor trained it; its snapshot
names both. A result of another engine or processor, whose bits differ, replaces it.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
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
from attnkit.foundation.settings import InvalidExperiment
from attnkit.service.database import Database
from attnkit.service.database_engines import Unavailable, is_file, lock_writers
from attnkit.service.migrations import RESULTS, NotOurs, checksum, has_whole_snapshot, is_whole
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

__all__ = [
    "LONGEST_NAME",
    "LONGEST_SEARCH",
    "ResultStore",
    "StoredEntry",
    "TooLarge",
    "Unavailable",
]

LONGEST_NAME = 80
"""Letters of the name that people give a result."""

LONGEST_SEARCH = 200
"""Letters of a search that are looked at."""

_TOUCH_SECONDS = 60.0
"""Reads of one result within it count as one use, to spare writes."""

T = TypeVar("T")


class TooLarge(Exception):
    """A result that takes more than one result may take here; the text says so, for people."""


@dataclass(frozen=True)
class StoredEntry:
    """What a list says of one stored result.

    Attributes:
        name: what somebody called it; empty if nobody did.
        text: canonical JSON of the experiment.
        version: of the attnkit that stored it.
        n_bytes: of the snapshot and the parameters.
        used_at: when it was last looked at, to the minute.
    """

    hash: str
    name: str
    task: str
    text: str
    n_runs: int
    steps: int
    seconds: float
    version: str
    n_bytes: int
    pinned: bool
    created_at: datetime
    used_at: datetime

    @property
    def experiment(self) -> Experiment:
        """The experiment that was trained.

        Raises:
            InvalidExperiment: if this copy does not have its task or a variant.
        """
        return from_text(self.text)


class ResultStore:
    """Stored results, for any number of threads, processes and machines at once.

    Nothing is opened before the first use. Whatever fails raises `Unavailable`; the next use tries
    anew.

    Args:
        where: a folder, a database as a URL (`sqlite:///…`, `postgresql://…`), or an engine.
            Empty: this user's data folder.
        megabytes: beyond it the results longest not looked at are forgotten, pinned ones never.
        result_megabytes: that a single result may take, so that none flushes many; None: any.
        moved: called when a file was moved aside, with the reason and the number of its results
            that are kept.

    Attributes:
        notes: what became of a file that could not be read, for people.

    Raises:
        Unavailable: if `where` cannot be understood, or its driver is missing.
    """

    def __init__(
        self,
        where: str | Path | Engine,
        *,
        megabytes: int = 5000,
        result_megabytes: int | None = None,
        moved: Callable[[str, int], None] | None = None,
    ) -> None:
        self._database = Database(where, moved)
        self.notes = self._database.notes
        self._most_bytes = megabytes * 2**20
        self._result_megabytes = result_megabytes
        self._touched: dict[str, float] = {}

    def put(self, snapshot: bytes, parameters: bytes) -> bool:
        """Store a finished result, as `Result.to_blobs` writes it.

        Returns:
            False if there was one already of the same engine and kind of processor.

        Raises:
            ValueError: if the bytes hold no finished result. TooLarge: if it is not stored, nor
                will be when tried again. Unavailable: if it is not stored now.
        """
        self._check_size(len(snapshot) + len(parameters))
        result = Result.from_blobs(snapshot, parameters)
        if result.snapshot.status != "finished":
            raise ValueError(f"status: got {result.snapshot.status!r}, allowed 'finished'")
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
        new, n_forgotten = self._database.do(
            lambda connection: self._put(connection, values, maker)
        )
        if not new:
            self._touch(experiment.hash)
        if n_forgotten:
            self._database.give_back_space()
        return new

    def _check_size(self, n_bytes: int) -> None:
        most = self._result_megabytes
        if most is not None and n_bytes > most * 2**20:
            taken = math.ceil(10 * n_bytes / 2**20) / 10  # never told as what is allowed
            raise TooLarge(f"it takes {taken:,.1f} MB, allowed at most {most:,} MB on this copy")

    def _put(
        self, connection: Connection, values: dict[str, Any], maker: tuple[str, str]
    ) -> tuple[bool, int]:
        lock_writers(connection)
        row = _row(connection, values["hash"])
        there = _result(row) if row is not None and has_whole_snapshot(row) else None
        if there is not None and there.snapshot.maker == maker:
            return False, 0
        own = RESULTS.c.hash == values["hash"]
        kept = connection.execute(select(RESULTS.c.name, RESULTS.c.pinned).where(own)).one_or_none()
        values |= kept._asdict() if kept is not None else {"name": "", "pinned": False}
        connection.execute(delete(RESULTS).where(own))
        n_forgotten = self._make_room(connection, values["n_bytes"])
        connection.execute(insert(RESULTS).values(**values, used_at=_next_use(connection)))
        if is_file(connection) and _row(connection, values["hash"]) is None:
            raise NotOurs("its file is damaged")  # a wrong index leads to another row
        return True, n_forgotten

    def _make_room(self, connection: Connection, n_bytes: int) -> int:
        """Forget what was longest not used until so many bytes more may be kept; how many."""
        excess, n_forgotten = _n_bytes(connection) + n_bytes - self._most_bytes, 0
        oldest = (
            select(RESULTS.c.hash, _SIZE.label("n_bytes"))
            .where(~RESULTS.c.pinned)
            .order_by(RESULTS.c.used_at, RESULTS.c.hash)
            .limit(1)
        )
        while excess > 0 and (row := connection.execute(oldest).one_or_none()) is not None:
            connection.execute(delete(RESULTS).where(RESULTS.c.hash == row.hash))
            excess -= row.n_bytes
            n_forgotten += 1
        return n_forgotten

    def snapshot(self, hash: str) -> Snapshot | None:
        """The last snapshot of a stored experiment, or None. It counts as use.

        The parameters are not looked at.
        """
        return self._used(hash, _snapshot_row, _snapshot)

    def result(self, hash: str) -> Result | None:
        """A stored result, or None. It counts as use."""
        return self._used(hash, _row, _result)

    def experiment(self, hash: str) -> Experiment | None:
        """What a stored result was trained on; None if it is not there or this copy lacks it."""
        if not _is_hash(hash):
            return None
        wanted = select(RESULTS.c.text).where(RESULTS.c.hash == hash)
        text = self._database.do(lambda connection: connection.scalar(wanted), changes=False)
        if not isinstance(text, str) or hash_of(text) != hash:
            return None
        try:
            return from_text(text)
        except InvalidExperiment:
            return None

    def entries(self, search: str = "", limit: int = 200) -> list[StoredEntry]:
        """What is stored, newest first.

        Args:
            search: words that must all stand in the name, the task, the settings or the hash;
                a setting may be given as `name=value`.
        """
        wanted = select(*[RESULTS.c[name] for name in StoredEntry.__annotations__])
        for word in _plain(search[:LONGEST_SEARCH]).split():
            wanted = wanted.where(or_(*_places(word)))
        wanted = wanted.order_by(RESULTS.c.created_at.desc(), RESULTS.c.hash).limit(limit)
        rows = self._database.do(lambda connection: connection.execute(wanted).all(), changes=False)
        return [entry for entry in map(_entry, rows) if entry is not None]

    def rename(self, hash: str, name: str) -> bool:
        """Call a result something, or with an empty name nothing; False if it is not there."""
        return self._change(hash, name=_plain(name)[:LONGEST_NAME])

    def pin(self, hash: str, pinned: bool) -> bool:
        """Keep a result whatever the size limit says, or no longer; False if it is not there."""
        return self._change(hash, pinned=pinned)

    def delete(self, hash: str) -> bool:
        """Forget a result; False if it was not there."""
        if not _is_hash(hash):
            return False
        gone = delete(RESULTS).where(RESULTS.c.hash == hash)
        if not self._database.do(lambda connection: connection.execute(gone).rowcount):
            return False
        self._database.give_back_space()
        return True

    def n_bytes(self) -> int:
        """Bytes of all stored snapshots and parameters."""
        return self._database.do(_n_bytes, changes=False)

    def close(self) -> None:
        """Give back the connections; a later use opens new ones."""
        self._database.close()

    def _change(self, hash: str, **values: Any) -> bool:
        if not _is_hash(hash):
            return False
        changed = update(RESULTS).where(RESULTS.c.hash == hash).values(**values)
        return self._database.do(lambda connection: connection.execute(changed).rowcount) > 0

    def _used(
        self,
        hash: str,
        find: Callable[[Connection, str], Row[Any] | None],
        read: Callable[[Row[Any]], T | None],
    ) -> T | None:
        if not _is_hash(hash):
            return None
        row = self._database.do(lambda connection: find(connection, hash), changes=False)
        found = None if row is None else read(row)
        if found is not None:
            self._touch(hash)
        return found

    def _touch(self, hash: str) -> None:
        """Note a use, if none was noted lately."""
        now = time.monotonic()
        recent = {old: at for old, at in self._touched.items() if now - at < _TOUCH_SECONDS}
        if hash in recent:
            return
        self._touched = {**recent, hash: now}

        def touch(connection: Connection) -> None:
            used = update(RESULTS).where(RESULTS.c.hash == hash)
            connection.execute(used.values(used_at=_next_use(connection)))

        with contextlib.suppress(Unavailable):  # what was read can be shown all the same
            self._database.do(touch)


def _row(connection: Connection, hash: str) -> Row[Any] | None:
    """A whole row; None if it is not there, or torn."""
    row = _found(connection, hash, RESULTS.c)
    return row if row is not None and is_whole(row) else None


def _snapshot_row(connection: Connection, hash: str) -> Row[Any] | None:
    """What is needed of a row for its snapshot; None if it is not there, or torn."""
    columns = RESULTS.c
    row = _found(connection, hash, (columns.hash, columns.snapshot, columns.snapshot_checksum))
    return row if row is not None and has_whole_snapshot(row) else None


def _found(connection: Connection, hash: str, columns: Iterable[Column[Any]]) -> Row[Any] | None:
    return connection.execute(select(*columns).where(RESULTS.c.hash == hash)).one_or_none()


def _snapshot(row: Row[Any]) -> Snapshot | None:
    """The snapshot of a whole row, or None if this copy cannot read it."""
    try:
        snapshot = Snapshot.from_bytes(row.snapshot)
    except ValueError:
        return None
    return snapshot if snapshot.experiment.hash == row.hash else None


def _result(row: Row[Any]) -> Result | None:
    """The same with the parameters."""
    if _snapshot(row) is None:
        return None
    try:
        return Result.from_blobs(row.snapshot, row.parameters)
    except ValueError:
        return None


def _entry(row: Row[Any]) -> StoredEntry | None:
    """What a list says of a row, or None if it was altered."""
    try:
        times = {name: _time(getattr(row, name)) for name in ("created_at", "used_at")}
        return StoredEntry(**{**row._asdict(), **times}) if hash_of(row.text) == row.hash else None
    except (AttributeError, OSError, OverflowError, TypeError, ValueError):
        return None


def _places(word: str) -> Iterator[ColumnElement[bool]]:
    """Where a searched word may stand."""
    columns = RESULTS.c
    for column in (columns.name, columns.task, columns.text, columns.hash):
        yield column.icontains(word, autoescape=True)
    name, separator, value = word.partition("=")
    if separator:  # a setting as it stands in JSON
        for told in (value, f'"{value}"'):
            for end in (",", "}"):
                yield columns.text.icontains(f'"{name}": {told}{end}', autoescape=True)


def _n_bytes(connection: Connection) -> int:
    return int(connection.scalar(select(func.sum(_SIZE))) or 0)


_SIZE = func.length(RESULTS.c.snapshot) + func.length(RESULTS.c.parameters)
"""What is really there: a wrong `n_bytes` of one row must not cost the others their place."""


def _next_use(connection: Connection) -> int:
    """The time; later than every earlier use even after the clock was put back."""
    newest = connection.scalar(select(func.max(RESULTS.c.used_at)))
    return max(_microseconds(), newest + 1 if isinstance(newest, int) else 0)


def _microseconds() -> int:
    return time.time_ns() // 1000


def _time(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def _is_hash(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{16}", text) is not None


def _plain(text: str) -> str:
    """A text on one line, with nothing in it that cannot be seen or stored."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
