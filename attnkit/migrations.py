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
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)


def _first_columns() -> list[Column[Any]]:
    """Those of version 1."""
    return [
        Column("hash", String(16), primary_key=True),
        Column("fingerprint", Text, nullable=False),
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
    "results", MetaData(), *_first_columns(), Column("checksum", String(32), nullable=False)
)
"""One finished experiment per row. Times are microseconds since 1970: SQLite has no times."""

_VERSIONS = Table("results_schema", MetaData(), Column("version", Integer, nullable=False))
"""One row: how many steps the database has taken."""


_FOREIGN = "its table `results` is not ours"


class Unusable(Exception):
    """A database that this copy cannot use; the text says why, for people."""


class NewerSchema(Unusable):
    """One that a later version of this package has written."""


class NotOurs(Unusable):
    """One that another program has written, or that does not keep what it is given."""


def checksum(hash: str, snapshot: bytes, parameters: bytes) -> str:
    """Thirty-two hexadecimal digits of what a row stands for; they tell a torn row."""
    digest = hashlib.blake2b(f"{hash} {len(snapshot)} ".encode(), digest_size=16)
    digest.update(snapshot)
    digest.update(parameters)
    return digest.hexdigest()


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
    if taken > len(STEPS):
        raise NewerSchema(
            f"a newer attnkit wrote it (version {taken} of its tables, allowed at most "
            f"{len(STEPS)}): update this copy"
        )
    if inspect(connection).has_table("results") != (taken > 0):
        raise NotOurs(_FOREIGN)
    for step in STEPS[taken:]:
        step(connection)
    if taken < len(STEPS):
        connection.execute(update(_VERSIONS).values(version=len(STEPS)))
    found = {column["name"] for column in inspect(connection).get_columns("results")}
    if not found.issuperset(RESULTS.columns.keys()):
        raise NotOurs(_FOREIGN)


def _create(connection: Connection) -> None:
    """Version 1: rows without a checksum."""
    Table("results", MetaData(), *_first_columns()).create(connection)


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


STEPS: list[Callable[[Connection], None]] = [_create, _add_checksums]
"""Never changed once released; what comes later is appended."""
