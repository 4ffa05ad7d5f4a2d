"""The database table of stored results, its version, and the checksums of its rows."""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
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
)

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
"""One finished experiment per row.

Times are in microseconds since 1970, because SQLite has no type for them. The checksum of the
snapshot alone is a column of its own, because snapshots are read far more often than parameters.
"""

VERSION = 3
"""Version of the table. Increase it with every change of the columns."""

_VERSIONS = Table("results_schema", MetaData(), Column("version", Integer, nullable=False))
"""Table with a single row, the version of the table `results`."""

FOREIGN = "its table `results` was not made by attnkit"

NO_VERSION = "the version in its table `results_schema` is not a positive integer"


class Unusable(Exception):
    """The database cannot be used by this copy; the message says why, for people."""


class OtherVersion(Unusable):
    """The table was written by another version of this package."""


class NotOurs(Unusable):
    """Another program has written the database, or it does not keep what is written."""


def checksum(hash: str, snapshot: bytes, parameters: bytes = b"") -> str:
    """Return the checksum of a row's content, 32 hexadecimal digits, which reveals a torn row."""
    digest = hashlib.blake2b(f"{hash} {len(snapshot)} ".encode(), digest_size=16)
    digest.update(snapshot)
    digest.update(parameters)
    return digest.hexdigest()


def is_intact(row: Row[Any]) -> bool:
    """Return whether snapshot and parameters of a row are as they were written."""
    if not isinstance(row.snapshot, bytes) or not isinstance(row.parameters, bytes):
        return False  # SQLite stores values of any type in any column
    return bool(row.checksum == checksum(row.hash, row.snapshot, row.parameters))


def has_intact_snapshot(row: Row[Any]) -> bool:
    """Return whether the snapshot of a row is as it was written; no parameters are needed."""
    if not isinstance(row.snapshot, bytes):
        return False
    return bool(row.snapshot_checksum == checksum(row.hash, row.snapshot))


def prepare_tables(connection: Connection) -> None:
    """Create the tables in an empty database, or check that those that exist can be used.

    Call it in a transaction that holds the lock of writers.

    Raises:
        Unusable: If the tables cannot be used.
    """
    _VERSIONS.create(connection, checkfirst=True)
    version = connection.scalar(select(_VERSIONS.c.version))
    exists = inspect(connection).has_table("results")
    if version is None and not exists:
        RESULTS.create(connection)
        connection.execute(insert(_VERSIONS).values(version=VERSION))
        return
    if version is None:
        raise NotOurs(FOREIGN)
    if not isinstance(version, int) or version < 1:  # SQLite stores any type in any column
        raise NotOurs(NO_VERSION)
    if version != VERSION:
        raise OtherVersion(
            f"its table of results has version {version}, and this copy of attnkit reads only "
            f"version {VERSION}: use the attnkit that wrote it, or name another place for results"
        )
    columns = inspect(connection).get_columns("results") if exists else []
    if not {column["name"] for column in columns}.issuperset(RESULTS.columns.keys()):
        raise NotOurs(FOREIGN)
