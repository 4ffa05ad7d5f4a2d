"""Simulated error of the whole procedure: tuning, test and Holm's correction.

Two arms with equal chances are tuned apart and compared, again and again, with runs that are drawn
from a population of trained ones. Whatever difference is then found is an error. It includes that
of tuning, which a test on given recipes does not see: the arms may end with different recipes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from attnkit.claims.base import Arm
from attnkit.claims.statements import worse
from attnkit.evidence.tuning import Request, Runs, Search
from attnkit.evidence.verdict import LEVEL, judge_statement

Population = Mapping[tuple[str, int], Runs]
"""(schedule, doublings of the task's learning rate) → the runs of many seeds."""


class Errors(NamedTuple):
    """Errors of simulated comparisons of two arms with equal chances.

    Attributes:
        n: Number of simulations.
        alone: Share in which a difference is found if the claim is read alone.
        together: Share in which one is found at Holm's strictest level.
        among_all: Chance of at least one such error among all claims.
    """

    n: int
    alone: float
    together: float
    among_all: float


def simulate(
    population: Population, arm: Arm, n_seeds: int, n_claims: int, n: int, seed: int
) -> Errors:
    """Simulate comparisons of two arms with equal chances.

    Args:
        population: Runs of the arm with every recipe of a grid.
        arm: The arm, as it is tuned.
        n_seeds: Number of seeds that compare the arms.
        n_claims: Number of claims that are read together.
        n: Number of simulations.
        seed: Seed of the draws.
    """
    draws = np.random.default_rng(seed)
    p_values = np.array([_p_of(population, arm, n_seeds, draws) for _ in range(n)])
    alpha = 1 - LEVEL
    alone, together = (
        float((p_values <= alpha).mean()),
        float((p_values <= alpha / n_claims).mean()),
    )
    return Errors(n, alone, together, 1 - (1 - together) ** n_claims)


def _p_of(population: Population, arm: Arm, n_seeds: int, draws: np.random.Generator) -> float:
    """Return the p-value of a difference between two arms that are the same."""
    last = {}
    for name in ("one", "other"):
        schedule, doublings = _tuned(population, arm, draws)
        accuracy = population[schedule, doublings].accuracy[-1]
        last[name] = accuracy[draws.integers(len(accuracy), size=n_seeds)]
    difference = last["one"] - last["other"]
    statement = worse("one", "other")
    return min(judge_statement(statement, sign * difference).p_held for sign in (1, -1))


def _tuned(population: Population, arm: Arm, draws: np.random.Generator) -> tuple[str, int]:
    """Return the point of the recipe that a search finds with runs drawn from a population."""
    search = Search(arm)
    while wanted := search.wanted():
        for request in wanted:
            search.add(request, _drawn(population, request, draws))
    return search.best


def _drawn(population: Population, request: Request, draws: np.random.Generator) -> Runs:
    """Return runs of a request; outside the grid, those of its nearest point."""
    schedule, doublings = request.point
    known = [one for name, one in population if name == schedule]
    runs = population[schedule, min(max(doublings, min(known)), max(known))]
    chosen = draws.integers(runs.accuracy.shape[1], size=request.n_seeds)
    return Runs(runs.steps, runs.accuracy[:, chosen], runs.loss[:, chosen])
