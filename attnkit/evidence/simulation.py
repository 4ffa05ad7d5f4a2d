"""Simulated error of the whole procedure: tuning, test and Holm's correction.

Two arms with equal chances are tuned apart and compared, again and again, with runs that are drawn
from a population of trained ones. Whatever difference is then found is an error. It includes that
of tuning, which a test on given recipes does not see: the arms may end with different recipes.

`python tests/tuning_error.py` trains the populations and writes `simulated.json`, which ships with
the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attnkit.claims.base import Arm, Verdict, arm_title
from attnkit.claims.measures import SOLVED
from attnkit.claims.statements import worse
from attnkit.evidence.tuning import Point, Runs, Search
from attnkit.evidence.verdict import LEVEL, Scores, judge_statement, with_rivals
from attnkit.foundation.language import tr
from attnkit.tasks import TASKS

SIMULATED = Path(__file__).parent / "simulated.json"
"""File of the errors that ship with the package."""

Population = Mapping[tuple[str, int], Runs]
"""(schedule, doublings of the task's learning rate) → the runs of many seeds."""


class Errors(NamedTuple):
    """Errors of simulated comparisons of two arms with equal chances.

    Attributes:
        arm: The arm in words.
        learns: Largest share of seeds that learn with a recipe of the population.
        n_seeds: Number of seeds that compare the arms.
        n: Number of simulations.
        alone: Share in which a difference is found if the claim is read alone.
        together: Share in which one is found at Holm's strictest level.
    """

    arm: str
    learns: float
    n_seeds: int
    n: int
    alone: float
    together: float


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
    alone, together = (
        float((p_values <= level).mean()) for level in (1 - LEVEL, (1 - LEVEL) / n_claims)
    )
    learns = max(float((runs.accuracy[-1] >= SOLVED).mean()) for runs in population.values())
    name = f"{arm.name}, {arm.experiment.task.name}"
    return Errors(name, learns, n_seeds, n, alone, together)


def errors_in_words() -> str:
    """Return the simulated errors that ship with the package, as a sentence."""
    errors = [Errors(**one) for one in json.loads(SIMULATED.read_text(encoding="utf-8"))]
    shares = [
        tr(
            "{alone:.1%} ({together:.1%} at Holm's strictest level) for {arm} on “{task}”, of "
            "which {learns:.0%} of the seeds learn at best",
            alone=one.alone,
            together=one.together,
            arm=arm_title(arm),
            task=tr(TASKS[task].title),
            learns=one.learns,
        )
        for one in errors
        for arm, task in [one.arm.rsplit(", ", 1)]
    ]
    return tr(
        "Two arms with equal chances, tuned apart and compared on {n_seeds} seeds: in {n:,} "
        "simulations with resampled runs a difference is found in {shares}.",
        n_seeds=errors[0].n_seeds,
        n=errors[0].n,
        shares="; ".join(shares),
    )


def _p_of(population: Population, arm: Arm, n_seeds: int, draws: np.random.Generator) -> float:
    """Return the p-value of a difference between two arms that are the same."""
    one, other = (_compared(population, arm, n_seeds, draws) for _ in range(2))
    return min(_p_worse(one, other), _p_worse(other, one))


def _p_worse(loser: Sequence[Scores], winner: Sequence[Scores]) -> float:
    """Return the p-value of a worse arm, with each of its recipes against the winner's best."""
    statement = worse("loser", "winner")
    best, *others = (judge_statement(statement, scores - winner[0]) for scores in loser)
    return with_rivals(best, others).p_held if best.verdict is Verdict.HELD else best.p_held


def _compared(
    population: Population, arm: Arm, n_seeds: int, draws: np.random.Generator
) -> list[Scores]:
    """Return accuracies on other seeds, with the recipes that a search finds, best first."""
    search = Search(arm)
    while wanted := search.wanted():
        for request in wanted:
            search.add(request, _drawn(population, request.point, request.n_seeds, draws))
    found = (_drawn(population, point, n_seeds, draws) for point in search.leading)
    return [runs.accuracy[-1] for runs in found]


def _drawn(population: Population, point: Point, n_seeds: int, draws: np.random.Generator) -> Runs:
    """Return runs with a recipe; outside the grid, with its nearest one."""
    known = [one for schedule, one in population if schedule == point.schedule]
    runs = population[point.schedule, min(max(point.doublings, min(known)), max(known))]
    chosen = draws.integers(runs.accuracy.shape[1], size=n_seeds)
    return Runs(runs.steps, runs.accuracy[:, chosen], runs.loss[:, chosen])
