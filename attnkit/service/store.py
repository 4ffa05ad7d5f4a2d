"""Store of finished results by the content hash of their experiment, in SQLite or PostgreSQL.

When `put` returns, the complete result is on the disk. A row that is torn or altered, or was
trained on another text than this copy has, counts as absent, and the next `put` replaces it.

There is one result per experiment, whichever engine, kind of processor and versions trained it; its
snapshot names them. A result of another maker, whose bits differ, replaces it.

A server writes from a thread of its own, `ResultWriter`, because a database may be slow or gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from attnkit import __version__
from attnkit.experiment.experiment import Experiment, from_text, hash_of
from attnkit.foundation.language import mark
from attnkit.foundation.settings import InvalidExperiment, message_of
from attnkit.service.database import (
    DAMAGED,
    FOREIGN,
    Damaged,
    Database,
    Unavailable,
    lock_writers,
)
from attnkit.service.history import LONGEST_SEARCH, StoredEntry
from attnkit.training.maker import Maker
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

__all__ = ["LONGEST_NAME", "ResultStore", "ResultWriter", "TooLarge", "Unavailable"]

RESULTS = sa.Table(
    "results",
    sa.MetaData(),
    sa.Column("hash", sa.String(16), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("n_runs", sa.Integer, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("seconds", sa.Float(53), nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("n_bytes", sa.BigInteger, nullable=False),
    sa.Column("pinned", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("used_at", sa.BigInteger, nullable=False),
    sa.Column("snapshot", sa.LargeBinary, nullable=False),
    sa.Column("parameters", sa.LargeBinary, nullable=False),
    sa.Column("checksum", sa.String(32), nullable=False),
    sa.Column("snapshot_checksum", sa.String(32), nullable=False),
    sa.Index("results_used_at", "used_at"),
)
"""One finished experiment per row. Times are in microseconds since 1970.

The checksum of the snapshot alone is a column of its own, because snapshots are read far more often
than parameters.
"""

VERSION = 3
"""Version of the table. Increase it with every change of the columns."""

_VERSIONS = sa.Table(
    "results_schema", sa.MetaData(), sa.Column("version", sa.Integer, nullable=False)
)
"""Table with a single row, the version of the table `results`."""

BEGUN = sa.Table(
    "begun",
    sa.MetaData(),
    sa.Column("hash", sa.String(16), primary_key=True),
    sa.Column("visitor", sa.String(32), primary_key=True),
    sa.Column("server", sa.String(32), nullable=False),
    sa.Column("times", sa.Integer, nullable=False),
    sa.Column("begun_at", sa.BigInteger, nullable=False),
)
"""One row per training under way and visitor who began it, so that it survives its server."""

BEGUN_DAYS = 2
"""Days after which a training whose server has died is no longer begun anew."""

LONGEST_NAME = 80
"""Largest number of characters in the name of a result."""

_TOUCH_SECONDS = 60.0
"""Seconds within which all reads of one result count as one use, to save writes."""

RETRY_SECONDS = 2.0
"""Time between two tries while the store does not answer."""

MAX_BYTES = 2**27
"""Size of all results that wait for the store; beyond it the oldest are given up."""

UNREAD_SECONDS = 15.0
"""Time without reads after a store did not answer one, so that pages do not wait for it."""

T = TypeVar("T")


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
        database: The database, for other tables beside that of results.
        notes: Sentences for people about files that were moved aside.

    Raises:
        Unavailable: If `where` cannot be understood or its driver is missing.
    """

    def __init__(
        self,
        where: str | Path | sa.Engine,
        *,
        megabytes: int = 5000,
        result_megabytes: int | None = None,
        moved: Callable[[str], None] | None = None,
    ) -> None:
        self.database = Database(where, moved)
        self.database.prepare(_prepare_tables)
        self.notes = self.database.notes
        self._max_bytes = megabytes * 2**20
        self._result_megabytes = result_megabytes
        self._server = uuid.uuid4().hex
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
        experiment = result.experiment
        for variant in experiment.sharing:
            if "module" in variant.given:
                raise ValueError(f"sharing: got {variant}, allowed variants whose code others have")
        values = {
            "hash": experiment.hash,
            "task": experiment.task.name,
            "text": experiment.to_json(),
            "n_runs": experiment.n_runs,
            "steps": result.snapshot.step,
            "seconds": result.seconds,
            "version": __version__,
            "n_bytes": len(snapshot) + len(parameters),
            "created_at": _microseconds(),
            "snapshot": snapshot,
            "parameters": parameters,
            "checksum": checksum(experiment.hash, snapshot, parameters),
            "snapshot_checksum": checksum(experiment.hash, snapshot),
        }
        maker = result.snapshot.maker
        is_new = self.database.do(lambda connection: self._put(connection, values, maker))
        if not is_new:
            self._note_use(experiment.hash)
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

    def _put(self, connection: sa.Connection, values: dict[str, Any], maker: Maker) -> bool:
        """Insert or replace a row, and make room for it; return whether that was needed."""
        lock_writers(connection)
        same_hash = RESULTS.c.hash == values["hash"]
        stored = _result(_select_row(connection, values["hash"], RESULTS.c))
        if stored is not None and stored.snapshot.maker == maker:
            return False
        choices = sa.select(RESULTS.c.name, RESULTS.c.pinned).where(same_hash)
        replaced = connection.execute(choices).one_or_none()
        kept = {"name": "", "pinned": False} if replaced is None else replaced._asdict()
        connection.execute(sa.delete(RESULTS).where(same_hash))
        excess = _n_bytes(connection) + values["n_bytes"] - self._max_bytes
        unpinned = sa.select(RESULTS.c.hash, _SIZE.label("n_bytes")).where(~RESULTS.c.pinned)
        oldest = unpinned.order_by(RESULTS.c.used_at, RESULTS.c.hash)
        for row in connection.execute(oldest).all() if excess > 0 else ():
            if excess > 0:
                connection.execute(sa.delete(RESULTS).where(RESULTS.c.hash == row.hash))
                excess -= row.n_bytes
        now = _next_use(connection)
        connection.execute(sa.insert(RESULTS).values(**values, **kept, used_at=now))
        written = connection.scalar(sa.select(RESULTS.c.checksum).where(same_hash))
        if written != values["checksum"]:  # a damaged index leads to another row
            raise Damaged(DAMAGED)
        return True

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
        names = ("hash", "snapshot", "snapshot_checksum")
        return _snapshot(self._row(hash, [RESULTS.c[name] for name in names]))

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
        query = sa.select(*[RESULTS.c[name] for name in StoredEntry.__annotations__])
        for word in _plain(search[:LONGEST_SEARCH]).split():
            query = query.where(sa.or_(*(c.icontains(word, autoescape=True) for c in _SEARCHED)))
        query = query.order_by(RESULTS.c.created_at.desc(), RESULTS.c.hash).limit(limit)
        rows = self.database.do(lambda connection: connection.execute(query).all(), changes=False)
        return [entry for entry in map(_entry, rows) if entry is not None]

    def rename(self, hash: str, name: str) -> bool:
        """Name a result, or remove its name with an empty one; False if it is not stored."""
        return self._change(hash, sa.update(RESULTS).values(name=_plain(name)[:LONGEST_NAME]))

    def pin(self, hash: str, pinned: bool) -> bool:
        """Exempt a result from the size limit, or no longer; False if it is not stored."""
        return self._change(hash, sa.update(RESULTS).values(pinned=pinned))

    def delete(self, hash: str) -> bool:
        """Delete a result; False if it was not stored."""
        return self._change(hash, sa.delete(RESULTS))

    def note_begin(self, hash: str, visitor: str) -> None:
        """Note that a visitor's training is under way, in case this server dies before its end."""
        now = _microseconds()
        old = BEGUN.c.begun_at < now - BEGUN_DAYS * 86_400 * 10**6

        def write(connection: sa.Connection) -> None:
            BEGUN.create(connection, checkfirst=True)
            row = connection.execute(sa.select(BEGUN).where(_is_begun(hash, visitor))).one_or_none()
            is_again = row is not None and row.server != self._server
            times = 1 if row is None else row.times + is_again
            connection.execute(sa.delete(BEGUN).where(_is_begun(hash, visitor) | old))
            values = {"hash": hash, "visitor": visitor, "times": times, "begun_at": now}
            connection.execute(sa.insert(BEGUN).values(**values, server=self._server))

        self.database.do(write)

    def note_end(self, hash: str) -> None:
        """Note that a training on this server has ended, however it has ended."""
        this = (BEGUN.c.hash == hash) & (BEGUN.c.server == self._server)
        self.database.do(lambda connection: connection.execute(sa.delete(BEGUN).where(this)))

    def interrupted(self, visitor: str) -> dict[str, int]:
        """Return how many servers have died during each of a visitor's trainings, by its hash."""

        def read(connection: sa.Connection) -> dict[str, int]:
            if not sa.inspect(connection).has_table(BEGUN.name):
                return {}
            is_lost = (BEGUN.c.visitor == visitor) & (BEGUN.c.server != self._server)
            rows = connection.execute(sa.select(BEGUN.c.hash, BEGUN.c.times).where(is_lost))
            return dict(map(tuple, rows))

        return self.database.do(read, changes=False)

    def n_bytes(self) -> int:
        """Return the size of all stored snapshots and parameters in bytes."""
        return self.database.do(_n_bytes, changes=False)

    def close(self) -> None:
        """Close the connections; a later use opens new ones."""
        self.database.close()

    def _change(self, hash: str, statement: sa.Update | sa.Delete) -> bool:
        if not _is_hash(hash):
            return False
        statement = statement.where(RESULTS.c.hash == hash)
        return self.database.do(lambda connection: connection.execute(statement).rowcount) > 0

    def _row(self, hash: str, columns: Iterable[sa.Column[Any]]) -> sa.Row[Any] | None:
        """Return some columns of a row; None if it is not stored."""
        if not _is_hash(hash):
            return None
        return self.database.do(lambda c: _select_row(c, hash, columns), changes=False)

    def _note_use(self, hash: str) -> None:
        """Write the time of use, unless that was done within the last minute."""
        now = time.monotonic()
        recent = {key: at for key, at in self._used_at.items() if now - at < _TOUCH_SECONDS}
        if hash in recent:
            return
        self._used_at = {**recent, hash: now}

        def write(connection: sa.Connection) -> None:
            statement = sa.update(RESULTS).where(RESULTS.c.hash == hash)
            connection.execute(statement.values(used_at=_next_use(connection)))

        with contextlib.suppress(Unavailable):  # the result itself has been read
            self.database.do(write)


class ResultWriter:
    """Writes results to the store, and tries again until it has taken them.

    Args:
        store: The store; None: results are not stored.
        report: Called with a job's id, the reason why the store did not take its result, and
            whether it will be tried again; with an empty reason when the store has taken it. The
            same reason is reported once.
    """

    def __init__(self, store: ResultStore | None, report: Callable[[str, str, bool], None]) -> None:
        self._store, self._report = store, report
        self._waiting: dict[str, tuple[bytes, bytes]] = {}  # snapshot and parameters by job
        self._notes: list[Callable[[ResultStore], None]] = []
        self._changed = threading.Condition()
        self._closing = self._has_news = False
        self._read_again_at = 0.0
        self._thread = threading.Thread(
            target=self._run, args=(store,), name="attnkit-store", daemon=True
        )
        if store is not None:
            self._thread.start()

    @property
    def has_store(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    def write(self, job_id: str, snapshot: bytes, parameters: bytes) -> None:
        """Store a finished result as soon as the store takes it; return at once."""
        waiting, given_up = self._waiting, []
        with self._changed:
            waiting[job_id] = snapshot, parameters
            while len(waiting) > 1 and sum(map(len, chain(*waiting.values()))) > MAX_BYTES:
                given_up.append(next(iter(waiting)))
                del waiting[given_up[-1]]
            self._has_news = True
            self._changed.notify_all()
        for oldest in given_up:
            self._report(oldest, mark("too many results wait for the store"), False)

    def note_begin(self, hash: str, visitor: str) -> None:
        """Note soon, if the store can, that a visitor's training is under way."""
        self._note(lambda store: store.note_begin(hash, visitor))

    def note_end(self, hash: str) -> None:
        """Note soon, if the store can, that a training has ended, however it has ended."""
        self._note(lambda store: store.note_end(hash))

    def _note(self, note: Callable[[ResultStore], None]) -> None:
        if self._store is not None:
            with self._changed:
                self._notes.append(note)
                self._changed.notify_all()

    def interrupted(self, visitor: str) -> dict[str, int]:
        """Return the trainings as `ResultStore.interrupted` does; none without a store."""
        return self._read(lambda store: store.interrupted(visitor)) or {}

    def recall(self, experiment: Experiment) -> Snapshot | None:
        """Return the last snapshot of a stored experiment; None if there is none, or no store."""
        return self._read(lambda store: store.snapshot(experiment.hash))

    def recall_result(self, experiment: Experiment) -> Result | None:
        """Return a stored result with its parameters; None as in `recall`."""
        return self._read(lambda store: store.result(experiment.hash))

    def close(self, seconds: float = 5.0) -> None:
        """Try once more to store what waits, for at most so many seconds, then end the thread."""
        with self._changed:
            self._closing = self._has_news = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _read(self, read: Callable[[ResultStore], T | None]) -> T | None:
        if self._store is None or time.monotonic() < self._read_again_at:
            return None
        try:
            return read(self._store)
        except Unavailable:
            self._read_again_at = time.monotonic() + UNREAD_SECONDS
            return None

    def _run(self, store: ResultStore) -> None:
        reported: dict[str, str] = {}  # reason why a result still waits, by job
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._notes or self._closing)
                notes, self._notes = self._notes, []
            with contextlib.suppress(Unavailable):  # the others would wait as long in vain
                for note in notes:
                    note(store)
            with self._changed:
                if not self._waiting:
                    if self._closing and not self._notes:
                        return
                    continue
                (job, blobs), is_last = next(iter(self._waiting.items())), self._closing
                self._has_news = False
            reason, again = self._put(store, *blobs)
            with self._changed:
                if self._waiting.pop(job, None) and again:  # unless it was given up meanwhile
                    self._waiting[job] = blobs  # behind the others, which may be smaller
                answered = [job]
                if again:
                    answered = [one for one in self._waiting if reported.get(one) != reason]
                    reported = dict.fromkeys(self._waiting, reason)
            for one in answered:
                self._report(one, reason, again)
            if again and is_last:
                return
            if again:
                with self._changed:  # a new result is tried at once, to report why it waits
                    self._changed.wait_for(lambda: self._has_news, RETRY_SECONDS)

    def _put(self, store: ResultStore, snapshot: bytes, parameters: bytes) -> tuple[str, bool]:
        """Return why the store did not take a result, and whether another try may help."""
        try:
            store.put(snapshot, parameters)
        except (Unavailable, TooLarge) as error:
            return message_of(error), isinstance(error, Unavailable)
        except Exception as error:  # no error of one result may stop those behind it
            return f"{type(error).__name__}: {error}"[:200], False
        self._read_again_at = 0.0
        return "", False


def checksum(hash: str, snapshot: bytes, parameters: bytes = b"") -> str:
    """Return the checksum of a row's content, 32 hexadecimal digits, which reveals a torn row."""
    content = f"{hash} {len(snapshot)} ".encode() + snapshot + parameters
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _is_begun(hash: str, visitor: str) -> sa.ColumnElement[bool]:
    return (BEGUN.c.hash == hash) & (BEGUN.c.visitor == visitor)


def _prepare_tables(connection: sa.Connection) -> None:
    """Create the tables in an empty database, or check that those that exist can be used.

    Raises:
        Unavailable: If the tables cannot be used.
    """
    _VERSIONS.create(connection, checkfirst=True)
    version = connection.scalar(sa.select(_VERSIONS.c.version))
    exists = sa.inspect(connection).has_table("results")
    if version is None and not exists:
        RESULTS.create(connection)
        connection.execute(sa.insert(_VERSIONS).values(version=VERSION))
    elif version not in (None, VERSION):
        raise Unavailable(
            mark(
                "its table of results has version {found}, and this copy of attnkit reads only "
                "version {own}: use the attnkit that wrote it, or name another place for results",
                found=version,
                own=VERSION,
            )
        )
    else:
        columns = sa.inspect(connection).get_columns("results") if exists else []
        if version is None or not {c["name"] for c in columns} >= {*RESULTS.columns.keys()}:
            raise Damaged(FOREIGN)


def _select_row(
    connection: sa.Connection, hash: str, columns: Iterable[sa.Column[Any]]
) -> sa.Row[Any] | None:
    return connection.execute(sa.select(*columns).where(RESULTS.c.hash == hash)).one_or_none()


def _snapshot(row: sa.Row[Any] | None) -> Snapshot | None:
    """Decode the snapshot of a row; None if it is missing or torn, or this copy cannot read it."""
    if row is None or not isinstance(row.snapshot, bytes):  # SQLite stores any type anywhere
        return None
    if row.snapshot_checksum != checksum(row.hash, row.snapshot):
        return None
    try:
        snapshot = Snapshot.from_bytes(row.snapshot)
    except ValueError:
        return None
    return snapshot if snapshot.experiment.hash == row.hash else None


def _result(row: sa.Row[Any] | None) -> Result | None:
    """Decode snapshot and parameters of a row; None as in `_snapshot`."""
    snapshot = _snapshot(row)
    if row is None or snapshot is None or not isinstance(row.parameters, bytes):
        return None
    if row.checksum != checksum(row.hash, row.snapshot, row.parameters):
        return None
    try:
        return Result.from_blobs(snapshot, row.parameters)
    except ValueError:
        return None


def _entry(row: sa.Row[Any]) -> StoredEntry | None:
    """Return the description of a row; None if the row was altered."""
    try:
        values = row._asdict()
        for name in ("created_at", "used_at"):
            values[name] = _EPOCH + timedelta(microseconds=values[name])
        return StoredEntry(**values) if hash_of(row.text) == row.hash else None
    except (AttributeError, OSError, OverflowError, TypeError, ValueError):
        return None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SEARCHED = (RESULTS.c.name, RESULTS.c.task, RESULTS.c.text, RESULTS.c.hash)
"""Columns in which a search finds words."""


def _n_bytes(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(sa.func.sum(_SIZE))) or 0)


_SIZE = sa.func.length(RESULTS.c.snapshot) + sa.func.length(RESULTS.c.parameters)
"""Actual size of a row. The column `n_bytes` is not used: if it is wrong in one row, others must
not be deleted for that."""


def _next_use(connection: sa.Connection) -> int:
    """Return the current time, or a later one than every earlier use if the clock was set back."""
    newest = connection.scalar(sa.select(sa.func.max(RESULTS.c.used_at)))
    return max(_microseconds(), newest + 1 if isinstance(newest, int) else 0)


def _microseconds() -> int:
    return time.time_ns() // 1000


def _is_hash(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{16}", text) is not None


def _plain(text: str) -> str:
    """Return a text on one line, without characters that cannot be displayed or stored."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())
