"""Results that nobody has trained, and rows of a store, read and altered behind its back."""

import contextlib

import numpy as np
from finished import finished
from sqlalchemy import update

from attnkit.experiment import Experiment
from attnkit.service.database import open_engine
from attnkit.service.store import RESULTS
from attnkit.training.results import Result

SMALL = {"task": "directed", "n_seeds": 1, "n_entries": 6, "n_names": 11, "steps": 20}


def make_result(first_seed=0, n_numbers=5000, **given):
    """A finished result with so many random weights."""
    experiment = Experiment(**{**SMALL, "sharing": "QKV", "first_seed": first_seed, **given})
    accuracy = np.full((3, len(experiment.sharing), experiment.n_seeds), 0.5)
    weights = np.random.default_rng(first_seed).random(n_numbers).astype(np.float32)
    parameters = [{"W_Q": weights + run} for run in range(experiment.n_runs)]
    return Result(finished(experiment, accuracy), parameters)


def put(store, *first_seeds, **given):
    """Store results, and return their hashes in the same order."""
    results = [make_result(first_seed, **given) for first_seed in first_seeds]
    for result in results:
        store.put(*result.to_blobs())
    return [result.experiment.hash for result in results]


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
