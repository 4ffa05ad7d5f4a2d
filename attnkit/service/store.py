"""Store of finished results by the content hash of their experiment, in SQLite or PostgreSQL.

When `put` returns, the complete result is on the disk. A row that is torn or altered, or was
trained on another text than this copy has, counts as absent, and the next `put` replaces it.

There is one result per experiment, whichever engine, kind of processor and versions trained it; its
snapshot names them. A result of another maker, whose bits differ, replaces it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Delete,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    Update,
    delete,
    func,
    insert,
    inspect,
    or_,
    select,
    update,
)

from attnkit import __version__
from attnkit.experiment.experiment import Experiment, from_text, hash_of
from attnkit.foundation.language import mark
from attnkit.foundation.settings import InvalidExperiment
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

__all__ = ["LONGEST_NAME", "ResultStore", "TooLarge", "Unavailable"]

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
"""One finished experiment per row. Times are in microseconds since 1970.

The checksum of the snapshot alone is a column of its own, because snapshots are read far more often
than parameters.
"""

VERSION = 3
"""Version of the table. Increase it with every change of the columns."""

_VERSIONS = Table("results_schema", MetaData(), Column("version", Integer, nullable=False))
"""Table with a single row, the version of the table `results`."""

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
        database: The database, for other tables beside that of results.
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
        self.database = Database(where, moved)
        self.database.prepare(_prepare_tables)
        self.notes = self.database.notes
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

    def _put(self, connection: Connection, values: dict[str, Any], maker: Maker) -> bool:
        """Insert or replace a row, and make room for it; return whether that was needed."""
        lock_writers(connection)
        same_hash = RESULTS.c.hash == values["hash"]
        stored = _result(_select_row(connection, values["hash"], RESULTS.c))
        if stored is not None and stored.snapshot.maker == maker:
            return False
        choices = select(RESULTS.c.name, RESULTS.c.pinned).where(same_hash)
        replaced = connection.execute(choices).one_or_none()
        kept = {"name": "", "pinned": False} if replaced is None else replaced._asdict()
        connection.execute(delete(RESULTS).where(same_hash))
        excess = _n_bytes(connection) + values["n_bytes"] - self._max_bytes
        unpinned = select(RESULTS.c.hash, _SIZE.label("n_bytes")).where(~RESULTS.c.pinned)
        oldest = unpinned.order_by(RESULTS.c.used_at, RESULTS.c.hash)
        for row in connection.execute(oldest).all() if excess > 0 else ():
            if excess > 0:
                connection.execute(delete(RESULTS).where(RESULTS.c.hash == row.hash))
                excess -= row.n_bytes
        now = _next_use(connection)
        connection.execute(insert(RESULTS).values(**values, **kept, used_at=now))
        written = connection.scalar(select(RESULTS.c.checksum).where(same_hash))
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
        query = select(*[RESULTS.c[name] for name in StoredEntry.__annotations__])
        for word in _plain(search[:LONGEST_SEARCH]).split():
            query = query.where(or_(*(c.icontains(word, autoescape=True) for c in _SEARCHED)))
        query = query.order_by(RESULTS.c.created_at.desc(), RESULTS.c.hash).limit(limit)
        rows = self.database.do(lambda connection: connection.execute(query).all(), changes=False)
        return [entry for entry in map(_entry, rows) if entry is not None]

    def rename(self, hash: str, name: str) -> bool:
        """Name a result, or remove its name with an empty one; False if it is not stored."""
        return self._change(hash, update(RESULTS).values(name=_plain(name)[:LONGEST_NAME]))

    def pin(self, hash: str, pinned: bool) -> bool:
        """Exempt a result from the size limit, or no longer; False if it is not stored."""
        return self._change(hash, update(RESULTS).values(pinned=pinned))

    def delete(self, hash: str) -> bool:
        """Delete a result; False if it was not stored."""
        return self._change(hash, delete(RESULTS))

    def n_bytes(self) -> int:
        """Return the size of all stored snapshots and parameters in bytes."""
        return self.database.do(_n_bytes, changes=False)

    def close(self) -> None:
        """Close the connections; a later use opens new ones."""
        self.database.close()

    def _change(self, hash: str, statement: Update | Delete) -> bool:
        if not _is_hash(hash):
            return False
        statement = statement.where(RESULTS.c.hash == hash)
        return self.database.do(lambda connection: connection.execute(statement).rowcount) > 0

    def _row(self, hash: str, columns: Iterable[Column[Any]]) -> Row[Any] | None:
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

        def write(connection: Connection) -> None:
            statement = update(RESULTS).where(RESULTS.c.hash == hash)
            connection.execute(statement.values(used_at=_next_use(connection)))

        with contextlib.suppress(Unavailable):  # the result itself has been read
            self.database.do(write)


def checksum(hash: str, snapshot: bytes, parameters: bytes = b"") -> str:
    """Return the checksum of a row's content, 32 hexadecimal digits, which reveals a torn row."""
    content = f"{hash} {len(snapshot)} ".encode() + snapshot + parameters
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _prepare_tables(connection: Connection) -> None:
    """Create the tables in an empty database, or check that those that exist can be used.

    Raises:
        Unavailable: If the tables cannot be used.
    """
    _VERSIONS.create(connection, checkfirst=True)
    version = connection.scalar(select(_VERSIONS.c.version))
    exists = inspect(connection).has_table("results")
    if version is None and not exists:
        RESULTS.create(connection)
        connection.execute(insert(_VERSIONS).values(version=VERSION))
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
        columns = inspect(connection).get_columns("results") if exists else []
        if version is None or not {c["name"] for c in columns} >= {*RESULTS.columns.keys()}:
            raise Damaged(FOREIGN)


def _select_row(
    connection: Connection, hash: str, columns: Iterable[Column[Any]]
) -> Row[Any] | None:
    return connection.execute(select(*columns).where(RESULTS.c.hash == hash)).one_or_none()


def _snapshot(row: Row[Any] | None) -> Snapshot | None:
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


def _result(row: Row[Any] | None) -> Result | None:
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


def _entry(row: Row[Any]) -> StoredEntry | None:
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


def _is_hash(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{16}", text) is not None


def _plain(text: str) -> str:
    """Return a text on one line, without characters that cannot be displayed or stored."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())
