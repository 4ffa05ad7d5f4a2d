"""Search for the best recipe of an arm: a learning rate and a schedule.

The search spends few seeds on all recipes and more on those that are near the best (successive
halving). A long training is first tried for a quarter of its steps. The grid of learning rates
grows until the best one has a smaller and a larger neighbour. If no run has learnt by then, a wide
grid is tried: where nothing is learnt, the scores of neighbours do not show the way to a rate that
learns. A rate of a long training that learns only after a quarter of the steps can still be
missed. This module does not train: `attnkit.evidence.gathering` trains what a search wants.

Reference: Jamieson and Talwalkar 2016, arXiv 1502.07943 (successive halving).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from attnkit.claims.base import Arm, Schedule
from attnkit.claims.measures import SOLVED
from attnkit.evidence.record import Recipe, Tried, Tuned

FIRST_DOUBLINGS = range(-2, 3)
"""Learning rates that are tried first, as doublings of the task's own."""

ALL_DOUBLINGS = range(-4, 7)
"""Learning rates that are tried if no run has learnt at those beside the best; of long trainings
for a quarter of the steps first."""

MOST_DOUBLINGS = 8
"""Largest number of doublings or halvings of the task's own learning rate."""

SCREENING_SEEDS, TUNING_SEEDS = 4, 10
"""Numbers of seeds for every recipe, and for those that may be chosen."""

FINALISTS = 4
"""Number of recipes that are tried with all tuning seeds, at least."""

SHORTENED = 4
"""Trainings of at least so many times the base steps are first tried for as small a share."""

SPEED = 0.02
"""Weight of the share of the steps that are left when a run first solves its task."""

NEIGHBOURS = {"accuracy": (0.25, 0.1), "loss": (0.05, 0.02)}
"""Weights of the learning rates one doubling and two doublings away, beside a rate's own score."""

DIVERGED = {"accuracy": 0.0, "loss": -10.0}
"""Score of a run that diverged."""


class Point(NamedTuple):
    """Place of a recipe in the grid: its schedule, and doublings of the task's learning rate."""

    schedule: Schedule
    doublings: int


class Request(NamedTuple):
    """Runs that a search wants: a recipe, a multiple of the base steps, and tuning seeds."""

    point: Point
    recipe: Recipe
    times: int
    first: int
    n_seeds: int


class Runs(NamedTuple):
    """Curves of s runs: (e,) steps, (e, s) accuracy, and (e, s) loss in nats."""

    steps: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray


def scores_of(runs: Runs, by: str) -> Float64[np.ndarray, " s"]:
    """Return a score for every run, (s,); higher is better.

    Args:
        by: "loss" for minus the last loss. "accuracy" for the last accuracy, plus 1 for a run that
            has solved its task, plus `SPEED` times the share of the steps that were left when it
            first had: the number of runs that learn counts most, and then how fast they do.
    """
    last = runs.loss[-1]
    solved = runs.accuracy >= SOLVED
    left = np.where(solved.any(0), 1 - runs.steps[solved.argmax(0)] / runs.steps[-1], 0.0)
    scores = -last if by == "loss" else runs.accuracy[-1] + solved[-1] + SPEED * left
    return np.where(np.isnan(last), DIVERGED[by], scores)


def worth(scores: Mapping[int, float], doublings: int, by: str) -> float:
    """Return the worth of a learning rate: its mean score, and a share of its neighbours'.

    The worse neighbour at one doubling counts, and the worse one at two. Of rates that are as good,
    this prefers the one in the middle of those that learn: there a somewhat smaller or larger rate,
    or another seed, costs least.

    Args:
        scores: Doublings of some learning rate → mean score. A missing neighbour counts as much as
            the one before it.
        doublings: The learning rate.
        by: What is compared, "accuracy" or "loss".
    """
    total = below = above = scores[doublings]
    for away, weight in enumerate(NEIGHBOURS[by], 1):
        below = scores.get(doublings - away, below)
        above = scores.get(doublings + away, above)
        total += weight * min(below, above)
    return total


@dataclass
class Search:
    """Search for the recipe of one arm.

    Train what `wanted` returns and hand it to `add`, until nothing is wanted; then `found` returns
    the result.

    Attributes:
        by: What is compared, "accuracy" or "loss".
    """

    arm: Arm
    by: str = "accuracy"
    _screened: dict[Point, float] = field(default_factory=dict)
    _runs: dict[Point, list[Runs]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._times = self.arm.tuned_at or self.arm.up_to
        self._default = self.arm.experiment.training.learning_rate

    def wanted(self) -> list[Request]:
        """Return the runs that are needed next; none if the search is finished."""
        if missing := self._missing(FIRST_DOUBLINGS):
            return missing
        best = self.leading[0]
        both = (best._replace(doublings=best.doublings + step) for step in (-1, 1))
        beside = [point for point in self._allowed(both) if point not in self._runs]
        if not beside and self._never_learnt and (missing := self._missing(ALL_DOUBLINGS)):
            return missing
        again = beside or [point for point in self.leading if len(self._runs[point]) == 1]
        return [self._request(point, self._times) for point in again]

    def _missing(self, doublings: range) -> list[Request]:
        """Return the runs of a grid that are needed next.

        Long trainings come first with a quarter of their steps, and then those that did best.
        """
        grid = self._allowed(Point(one, d) for one in self.arm.schedules for d in doublings)
        if short := self._times // SHORTENED:
            known = self._screened.keys() | self._runs.keys()
            if unknown := [point for point in grid if point not in known]:
                return [self._request(point, short) for point in unknown]
            screened = (point for point in grid if point in self._screened)
            grid = sorted(screened, key=self._screened.__getitem__, reverse=True)
            first = (next(p for p in grid if p.schedule == s) for s in self.arm.schedules)
            grid = list(dict.fromkeys([*grid[:FINALISTS], *first]))
        return [self._request(p, self._times) for p in grid if p not in self._runs]

    @property
    def _never_learnt(self) -> bool:
        """Whether no run has solved the task at its last step."""
        runs = chain(*self._runs.values())
        return self.by == "accuracy" and all((one.accuracy[-1] < SOLVED).all() for one in runs)

    def add(self, request: Request, runs: Runs) -> None:
        """Take over the runs of a request."""
        if request.times < self._times:
            self._screened[request.point] = float(scores_of(runs, self.by).mean())
        else:
            self._runs.setdefault(request.point, []).append(runs)

    def found(self) -> Tuned:
        """Return the best recipe and all that were tried for the whole number of steps."""
        recipe = self._recipe(self.leading[0])
        return Tuned(
            rate=recipe.rate,
            schedule=recipe.schedule,
            by=self.by,
            steps=self._times * self.arm.base_steps,
            tried=tuple(self._tried(point) for point in sorted(self._runs)),
            rivals=tuple(self._recipe(point) for point in self.leading[1:]),
        )

    @property
    def leading(self) -> list[Point]:
        """The recipes that are worth most, the best one first."""

        means = {point: self._mean(point) for point in self._runs}

        def worth_of(point: Point) -> float:
            same = {p.doublings: m for p, m in means.items() if p.schedule == point.schedule}
            return worth(same, point.doublings, self.by)

        return sorted(self._runs, key=worth_of, reverse=True)[:FINALISTS]

    def _recipe(self, point: Point) -> Recipe:
        return Recipe(float(f"{self._default * 2.0**point.doublings:.4g}"), point.schedule)

    def _request(self, point: Point, times: int) -> Request:
        screened = (SCREENING_SEEDS, TUNING_SEEDS - SCREENING_SEEDS)
        seeds = screened if point in self._runs else (0, SCREENING_SEEDS)
        return Request(point, self._recipe(point), times, *seeds)

    def _allowed(self, points: Iterable[Point]) -> list[Point]:
        """Return the points whose learning rates lie within the limits of the search."""
        near = (point for point in points if abs(point.doublings) <= MOST_DOUBLINGS)
        return [point for point in near if 1e-5 <= self._recipe(point).rate <= 1.0]

    def _mean(self, point: Point) -> float:
        scores = [scores_of(runs, self.by) for runs in self._runs[point]]
        return float(np.concatenate(scores).mean())

    def _tried(self, point: Point) -> Tried:
        accuracy = np.concatenate([runs.accuracy[-1] for runs in self._runs[point]])
        loss = np.concatenate([runs.loss[-1] for runs in self._runs[point]])
        n_solved = int((accuracy >= SOLVED).sum())
        values = loss if self.by == "loss" else np.where(np.isnan(loss), np.nan, accuracy)
        rate = self._recipe(point).rate
        return Tried(rate, point.schedule, len(loss), n_solved, float(values.mean()))
