"""Trials: experiments that tune the learning rates of a claim's arms, and that compare the arms.

Arms with the same settings are variants of one experiment, each at its own learning rates; runs of
an experiment do not depend on each other. Pages build trials, too, so this module does not import
torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from attnkit.claims.base import Arm
from attnkit.claims.measures import measured
from attnkit.evidence.stored import Number
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Learning rates that are tried for every arm, as multiples of the task's default."""

AS_GOOD = 0.005
"""Difference of accuracy, or of loss in nats, within which learning rates are equally good."""

FINER_RATES = (0.125, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
"""The same multiples on the finer grid, see `Arm.finer_rates`."""

TUNING_SEED = 900_000
"""First seed of tuning, far from the seeds of the runs that are compared."""

N_TUNING_SEEDS = 2

FIRST_SEED = 2_000
"""First seed of the runs that are compared.

A first pass used seeds from 0, and an earlier record with another rule seeds from 100. Claims were
changed after both, so they are tested on new seeds.
"""

MOST_TOGETHER = 10
"""Largest number of variants in a trial: an interruption loses little, and memory stays small."""


@dataclass(frozen=True)
class Trial:
    """An experiment whose variants are arms at certain learning rates.

    Attributes:
        experiment: The experiment.
        cells: (name of the arm, learning rate) of every variant, in their order.
        up_to: Multiple of the arms' base steps for which the experiment is trained.
    """

    experiment: Experiment
    cells: tuple[tuple[str, float], ...]
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


@dataclass(frozen=True)
class Tuned:
    """The tuned learning rate of an arm, and the rates that were tried.

    Attributes:
        rate: The chosen learning rate.
        tried: Learning rate → mean of the measure over the tuning seeds; NaN if a run diverged.
        by: The measure that was compared, "accuracy" or "loss".
    """

    rate: float
    tried: Mapping[float, Number] = field(default_factory=dict)
    by: str = "accuracy"

    def in_words(self, rate: float) -> str:
        """Return the mean that a learning rate reached, as text."""
        mean = self.tried[rate]
        if np.isnan(mean):
            return "diverged"
        return f"{mean:.1%}" if self.by == "accuracy" else f"{mean:.3f}"

    @property
    def at_edge(self) -> bool:
        """Whether the chosen rate is the smallest or the largest of those that were tried."""
        return len(self.tried) > 1 and self.rate in (min(self.tried), max(self.tried))


def rates_of(arm: Arm) -> tuple[float, ...]:
    """Return the learning rates that are tried for an arm."""
    default = arm.experiment.training.learning_rate
    multiples = FINER_RATES if arm.finer_rates else RATES
    return tuple(float(f"{multiple * default:.3g}") for multiple in multiples)


def tuning_trials(arms: Sequence[Arm]) -> list[Trial]:
    """Return the trials that tune arms: every arm at each of its learning rates."""
    cells = [
        _Cell(arm, arm.tuned_at, rate) for arm in arms if not arm.rate_of for rate in rates_of(arm)
    ]
    return _trials(cells, N_TUNING_SEEDS, TUNING_SEED)


def comparing_trials(
    arms: Sequence[Arm], rates: Mapping[str, float], n_seeds: int, first_seed: int = FIRST_SEED
) -> list[Trial]:
    """Return the trials that compare arms, each at one learning rate.

    Args:
        arms: The arms.
        rates: Name of the arm → learning rate; a missing arm has the default of its task.
        n_seeds: Number of seeds, unless `Arm.most_seeds` is smaller.
        first_seed: The first seed.
    """
    cells = [
        _Cell(arm, arm.up_to, rates.get(arm.name, arm.experiment.training.learning_rate))
        for arm in arms
    ]
    return _trials(cells, n_seeds, first_seed)


@dataclass(frozen=True)
class _Cell:
    """An arm, trained for a multiple of its base steps at a learning rate."""

    arm: Arm
    times: int
    rate: float

    @cached_property
    def experiment(self) -> Experiment:
        return self.arm.trained_for(self.times)


def _trials(cells: Sequence[_Cell], n_seeds: int, first_seed: int) -> list[Trial]:
    """Return trials of cells with equal settings, at most `MOST_TOGETHER` each, in their order."""
    groups: dict[str, list[_Cell]] = {}
    for cell in cells:
        settings = {
            name: value for name, value in cell.experiment.settings().items() if name != "sharing"
        }
        others = [cell.times, cell.arm.most_seeds, bool(cell.arm.rate_of)]
        key = json.dumps([settings, *others], sort_keys=True)
        groups.setdefault(key, []).append(cell)
    return [
        trial
        for group in groups.values()
        for first in range(0, len(group), MOST_TOGETHER)
        for trial in _fitting(
            group[first : first + MOST_TOGETHER],
            min(n_seeds, group[0].arm.most_seeds or n_seeds),
            first_seed,
        )
    ]


def _fitting(cells: Sequence[_Cell], n_seeds: int, first_seed: int) -> list[Trial]:
    """Return one trial, or several smaller ones if one of all cells takes too much memory.

    Raises:
        InvalidExperiment: If one cell alone takes too much memory.
    """
    by_variant = {
        Variant(f"{cell.arm.variant} learning_rate={cell.rate:g}"): cell for cell in cells
    }
    try:
        experiment = cells[0].experiment.replace(
            sharing=list(by_variant),
            n_seeds=n_seeds,
            first_seed=first_seed,
        )
    except InvalidExperiment:
        if len(cells) == 1:
            raise
        half = len(cells) // 2
        return [
            trial
            for part in (cells[:half], cells[half:])
            for trial in _fitting(part, n_seeds, first_seed)
        ]
    in_order = [by_variant[variant] for variant in experiment.sharing]
    trial_cells = tuple((cell.arm.name, cell.rate) for cell in in_order)
    return [Trial(experiment, trial_cells, cells[0].times)]


def choose_rate(tried: Mapping[float, Mapping[str, np.ndarray]], by: str) -> Tuned:
    """Return the best learning rate of an arm.

    If several are equally good within `AS_GOOD`, the middle one is chosen: the largest is often the
    fastest but fails with the next seed.

    Args:
        tried: Learning rate → measure → (s,) scores of the tuning seeds.
        by: The measure that is compared, "accuracy" or "loss".
    """
    means = {
        rate: float(values[by].mean() if not np.isnan(values["loss"]).any() else np.nan)
        for rate, values in tried.items()
    }
    converged = {rate: mean for rate, mean in means.items() if not np.isnan(mean)}
    if not converged:
        return Tuned(sorted(means)[len(means) // 2], means, by)
    sign = 1 if by == "accuracy" else -1
    best = max(sign * mean for mean in converged.values())
    as_good = sorted(rate for rate, mean in converged.items() if sign * mean >= best - AS_GOOD)
    return Tuned(as_good[(len(as_good) - 1) // 2], means, by)


def tuning_measure(arm: Arm) -> str:
    """Return the measure by which learning rates are chosen: "loss" on text, else "accuracy"."""
    return "loss" if arm.experiment.task.loss_to_beat is not None else "accuracy"
