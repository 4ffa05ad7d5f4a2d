"""Rows of a result store: put by tests, read and altered behind the store's back."""

import contextlib

from sqlalchemy import select, update
from storing import made

from attnkit.service.database_engines import open_engine
from attnkit.service.table import RESULTS

UNKNOWN = "0123456789abcdef"


def put(store, *first_seeds, **given):
    """Store made results, and return their hashes in the same order."""
    hashes = []
    for first_seed in first_seeds:
        result = made(first_seed, **given)
        store.put(*result.to_blobs())
        hashes.append(result.experiment.hash)
    return hashes


def stored(store):
    """Return the hashes of all results."""
    return {entry.hash for entry in store.entries()}


@contextlib.contextmanager
def connected(where):
    """Yield a separate connection to the database of a store, in a transaction."""
    engine, _ = open_engine(where)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def alter(where, altered, **values):
    """Change a row without the store."""
    with connected(where) as connection:
        connection.execute(update(RESULTS).where(RESULTS.c.hash == altered).values(**values))


def row_of(where, hash):
    """Return a row as the database holds it."""
    with connected(where) as connection:
        return connection.execute(select(RESULTS).where(RESULTS.c.hash == hash)).one()
