"""The table of stored results, and the steps that bring an older database to it.

Alembic was considered: for one table it would bring a folder of scripts, a configuration file and
two more packages, and would still need the lock and the refusal of a newer database that stand
here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)


def _columns() -> list[Column[Any]]:
    """Those that every version has."""
    return [
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
    ]


RESULTS = Table(
    "results",
    MetaData(),
    *_columns(),
    Column("checksum", String(32), nullable=False),
    Column("snapshot_checksum", String(32), nullable=False),
)
"""One finished experiment per row. Times are microseconds since 1970: SQLite has no times.

The second checksum is that of the snapshot alone, which is read far more often than both.
"""

_VERSIONS = Table("results_schema", MetaData(), Column("version", Integer, nullable=False))
"""One row: how many steps the database has taken."""


FOREIGN = "its table `results` is not ours"

NO_VERSION = "the version in its table `results_schema` is no whole number from 0 on"


class Unusable(Exception):
    """A database that this copy cannot use; the text says why, for people."""


class NewerSchema(Unusable):
    """One that a later version of this package has written."""


class NotOurs(Unusable):
    """One that another program has written, or that does not keep what it is given."""


def checksum(hash: str, snapshot: bytes, parameters: bytes = b"") -> str:
    """Thirty-two hexadecimal digits of what a row stands for; they tell a torn row."""
    digest = hashlib.blake2b(f"{hash} {len(snapshot)} ".encode(), digest_size=16)
    digest.update(snapshot)
    digest.update(parameters)
    return digest.hexdigest()


def is_whole(row: Row[Any]) -> bool:
    """Whether a row is as it was written."""
    if not isinstance(row.snapshot, bytes) or not isinstance(row.parameters, bytes):
        return False  # SQLite keeps anything in any column
    return bool(row.checksum == checksum(row.hash, row.snapshot, row.parameters))


def has_whole_snapshot(row: Row[Any]) -> bool:
    """Whether the snapshot of a row is as it was written; the parameters need not be there."""
    if not isinstance(row.snapshot, bytes):
        return False
    return bool(row.snapshot_checksum == checksum(row.hash, row.snapshot))


def migrate(connection: Connection) -> None:
    """Take the steps that a database lacks, in a transaction in which nobody else writes.

    Raises:
        Unusable: if its tables cannot be used.
    """
    _VERSIONS.create(connection, checkfirst=True)
    taken = connection.scalar(select(_VERSIONS.c.version))
    if taken is None:
        connection.execute(insert(_VERSIONS).values(version=0))
        taken = 0
    if not isinstance(taken, int) or taken < 0:  # SQLite keeps anything in any column
        raise NotOurs(NO_VERSION)
    if taken > len(STEPS):
        raise NewerSchema(
            f"a newer attnkit wrote it (version {taken} of its tables, allowed at most "
            f"{len(STEPS)}): update this copy"
        )
    if inspect(connection).has_table("results") != (taken > 0):
        raise NotOurs(FOREIGN)
    for step in STEPS[taken:]:
        step(connection)
    if taken < len(STEPS):
        connection.execute(update(_VERSIONS).values(version=len(STEPS)))
    found = {column["name"] for column in inspect(connection).get_columns("results")}
    if not found.issuperset(RESULTS.columns.keys()):
        raise NotOurs(FOREIGN)


def _create(connection: Connection) -> None:
    """Version 1: rows without a checksum, and a fingerprint of the task's text."""
    fingerprint = Column("fingerprint", Text, nullable=False)
    Table("results", MetaData(), *_columns(), fingerprint).create(connection)


def _add_checksums(connection: Connection) -> None:
    """Version 2: a checksum per row, and the order of use at hand."""
    connection.execute(
        text("ALTER TABLE results ADD COLUMN checksum VARCHAR(32) NOT NULL DEFAULT ''")
    )
    connection.execute(text("CREATE INDEX results_used_at ON results (used_at)"))
    columns = RESULTS.c
    for found in connection.scalars(select(columns.hash)).all():
        own = columns.hash == found
        row = connection.execute(select(columns.snapshot, columns.parameters).where(own)).one()
        told = checksum(found, row.snapshot, row.parameters)
        connection.execute(update(RESULTS).where(own).values(checksum=told))


def _add_checksums_of_snapshots(connection: Connection) -> None:
    """Version 3: a checksum of the snapshot alone; no fingerprint, which stands in the snapshot."""
    connection.execute(
        text("ALTER TABLE results ADD COLUMN snapshot_checksum VARCHAR(32) NOT NULL DEFAULT ''")
    )
    connection.execute(text("ALTER TABLE results DROP COLUMN fingerprint"))
    columns = RESULTS.c
    wanted = select(*[columns[name] for name in ("hash", "snapshot", "parameters", "checksum")])
    for found in connection.scalars(select(columns.hash)).all():
        own = columns.hash == found
        row = connection.execute(wanted.where(own)).one()
        if is_whole(row):  # a torn row stays torn
            told = checksum(found, row.snapshot)
            connection.execute(update(RESULTS).where(own).values(snapshot_checksum=told))


STEPS: list[Callable[[Connection], None]] = [_create, _add_checksums, _add_checksums_of_snapshots]
"""Never changed once released; what comes later is appended."""
