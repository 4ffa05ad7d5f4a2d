"""Trials: experiments that tune the recipes of a claim's arms, and that compare the arms.

Arms with the same settings are variants of one experiment, each at its own learning rates; runs of
an experiment do not depend on each other. Pages build trials, too, so this module does not import
torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnkit.claims.base import Arm
from attnkit.claims.measures import measured
from attnkit.evidence.tuning import Recipe, Request
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

TUNING_SEED = 900_000
"""First seed of tuning, far from the seeds of the runs that are compared."""

FIRST_SEED = 60_000
"""First seed of the runs that are compared.

Earlier passes used seeds from 0, from 100 and from 2000. Claims, or how recipes are tuned, were
changed after each, so they are tested on new seeds.
"""

MOST_SEEDS = 40
"""Largest number of seeds of an experiment."""

MOST_TOGETHER = 10
"""Largest number of variants in a trial: an interruption loses little, and memory stays small."""


@dataclass(frozen=True)
class Trial:
    """An experiment whose variants are arms at certain learning rates.

    Attributes:
        experiment: The experiment.
        cells: (name of the arm, recipe) of every variant, in their order.
        up_to: Multiple of the arms' base steps for which the experiment is trained.
    """

    experiment: Experiment
    cells: tuple[tuple[str, Recipe], ...]
    up_to: int = 1

    def scores(self, snapshot: Snapshot) -> dict[str, dict[str, np.ndarray]]:
        """Read all measures from a snapshot of the experiment: arm → measure → (k, s)."""
        parts = {
            measure: np.split(values, len(self.cells), -1)
            for measure, values in measured(snapshot, self.up_to).items()
        }
        return {
            name: {measure: parts[measure][index] for measure in parts}
            for index, (name, _) in enumerate(self.cells)
        }


def tuning_trials(requests: Sequence[tuple[Arm, Request]]) -> list[Trial]:
    """Return the trials that train the runs of requests."""
    by_seeds: dict[tuple[int, int], list[_Cell]] = {}
    for arm, request in requests:
        cell = _Cell(arm, request.times, request.recipe)
        by_seeds.setdefault((request.first, request.n_seeds), []).append(cell)
    return [
        trial
        for (first, n_seeds), cells in by_seeds.items()
        for trial in _trials(cells, n_seeds, TUNING_SEED + first)
    ]


def comparing_trials(
    arms: Sequence[Arm], recipes: Mapping[str, Recipe], n_seeds: int, first_seed: int = FIRST_SEED
) -> list[Trial]:
    """Return the trials that compare arms, each with one recipe.

    Args:
        arms: The arms.
        recipes: Name of the arm → recipe; a missing arm has the settings of its task.
        n_seeds: Number of seeds, unless `Arm.most_seeds` is smaller.
        first_seed: The first seed.
    """
    cells = [_Cell(arm, arm.up_to, recipes.get(arm.name) or own_recipe(arm)) for arm in arms]
    return _trials(cells, n_seeds, first_seed)


def own_recipe(arm: Arm) -> Recipe:
    """Return the recipe with the learning rate of the arm's task."""
    return Recipe(arm.experiment.training.learning_rate)


@dataclass(frozen=True)
class _Cell:
    """An arm, trained for a multiple of its base steps with a recipe."""

    arm: Arm
    times: int
    recipe: Recipe

    @cached_property
    def experiment(self) -> Experiment:
        return self.arm.trained_for(self.times, self.recipe.schedule)


def _trials(cells: Sequence[_Cell], n_seeds: int, first_seed: int) -> list[Trial]:
    """Return trials of cells with equal settings, at most `MOST_TOGETHER` each, in their order.

    A trial has at most `MOST_SEEDS` seeds; later ones train the other seeds of the same cells.
    """
    groups: dict[str, list[_Cell]] = {}
    for cell in cells:
        settings = {
            name: value for name, value in cell.experiment.settings().items() if name != "sharing"
        }
        others = [cell.times, cell.arm.most_seeds, bool(cell.arm.recipe_of)]
        key = json.dumps([settings, *others], sort_keys=True)
        groups.setdefault(key, []).append(cell)
    return [
        trial
        for group in groups.values()
        for first in range(0, len(group), MOST_TOGETHER)
        for n in [min(n_seeds, group[0].arm.most_seeds or n_seeds)]
        for start in range(0, n, MOST_SEEDS)
        for trial in _fitting(
            group[first : first + MOST_TOGETHER], min(MOST_SEEDS, n - start), first_seed + start
        )
    ]


def _fitting(cells: Sequence[_Cell], n_seeds: int, first_seed: int) -> list[Trial]:
    """Return one trial, or several smaller ones if one of all cells takes too much memory.

    Raises:
        InvalidExperiment: If one cell with one seed takes too much memory.
    """
    by_variant = {
        Variant(f"{cell.arm.variant} learning_rate={cell.recipe.rate:g}"): cell for cell in cells
    }
    try:
        experiment = cells[0].experiment.replace(
            sharing=list(by_variant),
            n_seeds=n_seeds,
            first_seed=first_seed,
        )
    except InvalidExperiment:
        if len(cells) > 1:
            half = len(cells) // 2
            parts = [(cells[:half], n_seeds, first_seed), (cells[half:], n_seeds, first_seed)]
        elif n_seeds > 1:
            half = n_seeds // 2
            parts = [(cells, half, first_seed), (cells, n_seeds - half, first_seed + half)]
        else:
            raise
        return [trial for part in parts for trial in _fitting(*part)]
    in_order = [by_variant[variant] for variant in experiment.sharing]
    trial_cells = tuple((cell.arm.name, cell.recipe) for cell in in_order)
    return [Trial(experiment, trial_cells, cells[0].times)]


def tuning_measure(arm: Arm) -> str:
    """Return the measure by which recipes are chosen: "loss" on text, else "accuracy"."""
    return "loss" if arm.experiment.task.loss_to_beat is not None else "accuracy"
