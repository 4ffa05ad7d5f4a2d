"""Power of a claim's test: the probability that a number of seeds decides it.

The differences of a pilot, such as a record, are resampled seed by seed. What no seed of the pilot
has shown, such as a failure with one seed in a hundred, is therefore taken for impossible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float64

from attnkit.claims.statements import Statement
from attnkit.evidence.record import Evidence
from attnkit.evidence.verdict import LEVEL, differences, p_values

N_DRAWS = 2_000
"""Number of resampled runs; the error of a probability is at most about 0.01."""


def power(
    pilot: Sequence[tuple[Statement, Float64[np.ndarray, " s"]]],
    n_seeds: int,
    alpha: float = 1 - LEVEL,
) -> float:
    """Return the probability that seeds decide a claim, for or against it.

    Args:
        pilot: Each tested statement with its differences, as
            `attnkit.evidence.verdict.differences` returns them. Statements with as many differences
            are resampled with the same seeds.
        n_seeds: Number of seeds.
        alpha: Level of the verdict, from 0 to 1. Of 20 claims that are read together, Holm's
            strictest level is 0.05 / 20.
    """
    drawn = np.random.default_rng(0).random((N_DRAWS, n_seeds))
    p_held, p_not = zip(
        *(
            p_values(statement, values[(drawn * len(values)).astype(int)])
            for statement, values in pilot
        ),
        strict=True,
    )
    held = np.max(p_held, axis=0) <= alpha
    failed = len(pilot) * np.min(p_not, axis=0) <= alpha
    return float((held | failed).mean())


@lru_cache(maxsize=256)
def power_of(evidence: Evidence, n_seeds: int, n_together: int = 1) -> float:
    """Return the probability that seeds like those of a record decide its claim.

    Args:
        evidence: The record.
        n_seeds: Number of seeds of every arm.
        n_together: Number of claims that are read together; the level is Holm's strictest.

    Arms are compared with their best recipes alone, so for a variant that loses this is the most
    that can be expected.
    """
    return power(pilot_of(evidence, evidence.statements), n_seeds, (1 - LEVEL) / n_together)


def pilot_of(
    evidence: Evidence, statements: Iterable[Statement]
) -> list[tuple[Statement, Float64[np.ndarray, " s"]]]:
    """Return statements with their differences in a record, see `power`."""
    return [
        (statement, differences(statement, evidence.scores_at(statement.measure, statement.at)))
        for statement in statements
    ]
