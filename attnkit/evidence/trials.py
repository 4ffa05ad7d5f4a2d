"""Trials: experiments that tune the recipes of a claim's arms, and that compare the arms.

Arms with the same settings are variants of one experiment, each at its own learning rates; runs of
an experiment do not depend on each other. The *quick form* of a claim is few runs, with which
readers see for themselves what a record says. Pages build trials, too, so torch is not imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnkit.claims import Claim, Verdict
from attnkit.claims.base import LEAST_SEEDS, Arm
from attnkit.claims.measures import measured
from attnkit.evidence.record import Evidence, Recipe, Tuned
from attnkit.evidence.tuning import Request
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.pace import work_of
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

NEW_SEED = 70_000
"""First seed of new runs, which no shipped record has used."""

QUICK_SEEDS = 20
"""Most seeds of the quick form."""

TWO_MINUTES = 6_000.0
"""Work that ends in about two minutes on two cores, in 10⁹ multiply-adds."""

NO_WORSE_SEEDS = 17
"""Fewest seeds that can show "no worse": if no seed of 17 is worse, at most a fifth of all is."""


@dataclass(frozen=True)
class Trial:
    """An experiment whose variants are arms at certain learning rates.

    Attributes:
        cells: (name of the arm, recipe) of every variant, in their order.
        up_to: Multiple of the arms' base steps for which the experiment is trained.
    """

    experiment: Experiment
    cells: tuple[tuple[str, Recipe], ...]
    up_to: int = 1

    def scores(self, snapshot: Snapshot) -> dict[str, dict[str, np.ndarray]]:
        """Read all measures from a snapshot of the experiment: arm → measure → (k, s)."""
        found = zip(self.cells, measured(snapshot, self.up_to), strict=True)
        return {name: scores for (name, _), scores in found}


def tuning_trials(requests: Sequence[tuple[Arm, Request]]) -> list[Trial]:
    """Return the trials that train the runs of requests."""
    by_seeds: dict[tuple[int, int], list[_Cell]] = {}
    for arm, one in requests:
        cell = _Cell(arm, one.times, one.recipe)
        by_seeds.setdefault((one.n_seeds, TUNING_SEED + one.first), []).append(cell)
    return [trial for seeds, cells in by_seeds.items() for trial in _trials(cells, *seeds)]


def comparing_trials(
    arms: Sequence[Arm], recipes: Mapping[str, Recipe], n_seeds: int, first_seed: int = FIRST_SEED
) -> list[Trial]:
    """Return the trials that compare arms, each with one recipe.

    Args:
        recipes: Name of the arm → recipe; a missing arm has the settings of its task.
        n_seeds: Number of seeds, unless `Arm.most_seeds` is smaller.
    """
    cells = [_Cell(arm, arm.up_to, recipes.get(arm.name) or own_recipe(arm)) for arm in arms]
    return _trials(cells, n_seeds, first_seed)


def own_recipe(arm: Arm) -> Recipe:
    """Return the recipe with the learning rate of the arm's task."""
    return Recipe(arm.experiment.training.learning_rate)


class _Cell:
    """An arm, trained for a multiple of its base steps with a recipe."""

    def __init__(self, arm: Arm, times: int, recipe: Recipe) -> None:
        self.arm, self.times, self.recipe = arm, times, recipe
        self.experiment = arm.trained_for(times, recipe.schedule)


def _trials(cells: Sequence[_Cell], n_seeds: int, first_seed: int) -> list[Trial]:
    """Return trials of cells with equal settings, at most `MOST_TOGETHER` each, in their order.

    A trial has at most `MOST_SEEDS` seeds; later ones train the other seeds of the same cells.
    """
    groups: dict[str, list[_Cell]] = {}
    for cell in cells:
        settings = cell.experiment.settings() | {"sharing": None}
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
            sharing=list(by_variant), n_seeds=n_seeds, first_seed=first_seed
        )
    except InvalidExperiment:
        if (half := len(cells) // 2) > 0:
            parts = [(cells[:half], n_seeds, first_seed), (cells[half:], n_seeds, first_seed)]
        elif (half := n_seeds // 2) > 0:
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


@dataclass(frozen=True)
class QuickForm:
    """The runs of a claim's quick form: what decides, with recorded recipes.

    Of a claim that did not hold, that is the cheapest of the statements that failed, as any of them
    refutes it; otherwise all statements. No arm is trained for longer than its claim says.

    Attributes:
        arms: Arms of the statements that are tested; without a record, also those whose recipes
            they use.
        n_seeds: Number of seeds of every arm, at most `QUICK_SEEDS`: as many as end in about two
            minutes; half of those of the full form without a record.
        tuned: Arm → its recorded recipe; empty without a current record.
    """

    arms: tuple[Arm, ...]
    n_seeds: int
    tuned: Mapping[str, Tuned]

    @staticmethod
    def of(claim: Claim, record: Evidence | None) -> QuickForm:
        """Return the quick form of a claim with its record, if there is one."""
        if record is None or not record.current:
            return QuickForm(claim.judged_arms, _within(claim.n_seeds // 2), {})
        choices = [claim.compared_arms]
        if record.judgement.verdict is Verdict.FAILED:
            found = record.own_findings.items()
            failed = [one for one, finding in found if finding.verdict is Verdict.FAILED]
            choices = [claim.arms_of([statement]) for statement in failed] or choices
        arms = min(choices, key=_work_of_seed)
        tuned = {arm.name: record.tuned[arm.name] for arm in arms if arm.name in record.tuned}
        in_time = int(TWO_MINUTES / _work_of_seed(arms))
        return QuickForm(arms, _within(min(claim.n_seeds, in_time)), tuned)

    @property
    def untuned(self) -> bool:
        """Whether no recipe is recorded."""
        return not self.tuned

    def trials(self, first_seed: int) -> list[Trial]:
        """Return the trials; an arm without a recorded recipe has the settings of its task."""
        recipes = {name: one.recipe for name, one in self.tuned.items()}
        return comparing_trials(self.arms, recipes, self.n_seeds, first_seed)


def _work_of_seed(arms: tuple[Arm, ...]) -> float:
    experiments = [arm.experiment for arm in arms]
    return sum(work_of(experiment, experiment.sharing[0]) for experiment in experiments)


def _within(n_seeds: int) -> int:
    return max(LEAST_SEEDS, min(QUICK_SEEDS, n_seeds))
