"""Train populations of runs and simulate with them how often tuning and test err.

Two arms with equal chances are tuned apart and compared, again and again, with runs that are drawn
from a population of trained ones. Whatever difference is then found is an error. It includes that
of tuning, which a test on given recipes does not see: the arms may end with different recipes.

Run `python tests/tuning_error.py`, which takes ten minutes on two cores. docs/claims.md quotes what
it prints.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import SCHEDULES, Arm
from attnkit.claims.measures import SOLVED
from attnkit.claims.statements import worse
from attnkit.evidence.record import Recipe
from attnkit.evidence.trials import tuning_trials
from attnkit.evidence.tuning import ALL_DOUBLINGS, Point, Request, Runs, Search
from attnkit.evidence.verdict import LEVEL, Scores, judge_statement, with_rivals
from attnkit.training import train

ARMS = {"parameters": "K=V, 4 wide", "self_mask_needed": "Q=K"}  # some seeds learn, others do not
FIRST, N_SEEDS, N_SIMULATIONS, N_COMPARED = 10_000, 80, 2000, 60

Population = Mapping[tuple[str, int], Runs]
"""(schedule, doublings of the task's learning rate) → the runs of many seeds."""


def population_of(arm: Arm) -> Population:
    """Train an arm with all recipes."""
    default = arm.experiment.training.learning_rate
    wanted = [
        Request(Point(schedule, d), Recipe(default * 2.0**d, schedule), 1, first, N_SEEDS // 2)
        for schedule in SCHEDULES
        for d in ALL_DOUBLINGS
        for first in (FIRST, FIRST + N_SEEDS // 2)
    ]
    parts = {}
    for trial in tuning_trials([(arm, request) for request in wanted]):
        snapshot = train(trial.experiment, progress=False).snapshot
        both = np.stack([snapshot.history[name].astype(float) for name in ("accuracy", "loss")])
        cells = zip(trial.cells, np.split(both, len(trial.cells), -1), strict=True)
        for (_, recipe), values in cells:
            point = recipe.schedule, round(np.log2(recipe.rate / default))
            parts.setdefault(point, []).append(values)
    steps = snapshot.eval_steps.astype(float)
    return {point: Runs(steps, *np.concatenate(runs, -1)) for point, runs in parts.items()}


class Errors(NamedTuple):
    """Shares of simulations in which arms of equal chances differ, read alone and together."""

    arm: str
    learns: float
    n_seeds: int
    n: int
    alone: float
    together: float


def simulate(
    population: Population, arm: Arm, n_seeds: int, n_claims: int, n: int, seed: int
) -> Errors:
    """Simulate comparisons of two arms with equal chances, and return how often they differ."""
    draws = np.random.default_rng(seed)
    p_values = []
    for _ in range(n):
        one, other = (_compared(population, arm, n_seeds, draws) for _ in range(2))
        p_values.append(min(_p_worse(one, other), _p_worse(other, one)))
    alone, together = (
        float((np.array(p_values) <= level).mean()) for level in (1 - LEVEL, (1 - LEVEL) / n_claims)
    )
    learns = max(float((runs.accuracy[-1] >= SOLVED).mean()) for runs in population.values())
    name = f"{arm.name}, {arm.experiment.task.name}"
    return Errors(name, learns, n_seeds, n, alone, together)


def _p_worse(loser: Sequence[Scores], winner: Sequence[Scores]) -> float:
    """Return the p-value of a worse arm, with each of its recipes against the winner's best."""
    best, *others = (judge_statement(worse("one", "other"), one - winner[0]) for one in loser)
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


if __name__ == "__main__":
    for claim, name in ARMS.items():
        arm = CLAIMS[claim].arm_of(name)
        found = simulate(population_of(arm), arm, N_COMPARED, len(CLAIMS), N_SIMULATIONS, 0)
        sys.stdout.write(f"{found}\n")
