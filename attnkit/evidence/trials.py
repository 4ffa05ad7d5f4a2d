"""Trials: the experiments that tune the arms of a claim, and those that compare them.

Arms with the same settings train beside each other as variants of one experiment, each at its own
learning rates; a run does not depend on those beside it. Pages build trials, too, so this module
does not import torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from attnkit.claims.base import Arm
from attnkit.claims.measures import measured
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Learning rates that are tried for every arm, as multiples of the task's own."""

AS_GOOD = 0.005
"""Learning rates count as equally good within half a point of accuracy, or so many nats."""

FINER_RATES = (0.125, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
"""The multiples for an arm that is tuned on the finer grid."""

TUNING_SEED = 900_000
"""The first seed of tuning; far from those that are compared."""

N_TUNING_SEEDS = 2

FIRST_SEED = 2_000
"""The first seed of the runs that are compared.

Seeds from 0 on were a first pass, seeds from 100 on an earlier record with another rule; claims
were changed after both, so they are tested on new seeds.
"""

MOST_TOGETHER = 10
"""Most variants of one trial, so that an interruption loses little and memory stays small."""


@dataclass(frozen=True)
class Trial:
    """An experiment whose variants are arms at certain learning rates.

    Attributes:
        experiment: The experiment.
        cells: Name of the arm and learning rate of every variant, in their order.
        up_to: Multiple of the base steps of the arms for which it is trained.
    """

    experiment: Experiment
    cells: tuple[tuple[str, float], ...]
    up_to: int = 1

    def per_cell(self, values: np.ndarray) -> dict[tuple[str, float], np.ndarray]:
        """Split the runs, which are the last axis: (name of the arm, rate) → (..., s)."""
        n_seeds = self.experiment.n_seeds
        return {
            cell: values[..., place * n_seeds : (place + 1) * n_seeds]
            for place, cell in enumerate(self.cells)
        }

    def split(self, measured: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """Return arm → measure → (..., s), where every arm has one learning rate."""
        found: dict[str, dict[str, np.ndarray]] = {name: {} for name, _ in self.cells}
        for measure, values in measured.items():
            for (name, _), own in self.per_cell(values).items():
                found[name][measure] = own
        return found

    def scores(self, snapshot: Snapshot) -> dict[str, dict[str, np.ndarray]]:
        """Return arm → measure → (k, s) of a snapshot of its experiment, of all measures."""
        return self.split(measured(snapshot, self.up_to))


@dataclass(frozen=True)
class Tuned:
    """How an arm came to its learning rate.

    Attributes:
        rate: the chosen one.
        tried: rate → mean over the tuning seeds of what was compared; NaN if a run diverged.
        by: the measure that was compared.
    """

    rate: float
    tried: dict[float, float] = field(default_factory=dict)
    by: str = "accuracy"

    def in_words(self, rate: float) -> str:
        """What was reached with a rate, as shown."""
        reached = self.tried[rate]
        if np.isnan(reached):
            return "diverged"
        return f"{reached:.1%}" if self.by == "accuracy" else f"{reached:.3f}"

    @property
    def at_edge(self) -> bool:
        """Whether a rate beyond those that were tried might be better still."""
        return len(self.tried) > 1 and self.rate in (min(self.tried), max(self.tried))


def rates_of(arm: Arm) -> tuple[float, ...]:
    """Return the learning rates that are tried for an arm."""
    own = arm.experiment.training.learning_rate
    factors = FINER_RATES if arm.finer_rates else RATES
    return tuple(float(f"{factor * own:.3g}") for factor in factors)


def tuning_trials(arms: Sequence[Arm]) -> list[Trial]:
    """Return the trials that tune arms: every arm at each of its rates."""
    cells = [
        _Cell(arm, arm.tuned_at, rate) for arm in arms if not arm.rate_of for rate in rates_of(arm)
    ]
    return _trials(cells, N_TUNING_SEEDS, TUNING_SEED)


def comparing_trials(
    arms: Sequence[Arm], rates: Mapping[str, float], n_seeds: int, first_seed: int = FIRST_SEED
) -> list[Trial]:
    """Return the trials that compare arms: every arm at its own rate.

    Args:
        arms: The arms.
        rates: Learning rates by the names of the arms; without one, the task's own is used.
        n_seeds: Number of seeds, of arms that do not have fewer.
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
    """Return one trial for every setting, or several; arms of one setting keep their order."""
    groups: dict[str, list[_Cell]] = {}
    for cell in cells:
        own = {
            name: value for name, value in cell.experiment.settings().items() if name != "sharing"
        }
        others = [cell.times, cell.arm.most_seeds, bool(cell.arm.rate_of)]
        key = json.dumps([own, *others], sort_keys=True)
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
    """Return one trial, or several if all in one take too much memory.

    Raises:
        InvalidExperiment: If even one alone takes too much.
    """
    named = {Variant(f"{cell.arm.variant} learning_rate={cell.rate:g}"): cell for cell in cells}
    try:
        experiment = cells[0].experiment.replace(
            sharing=list(named),
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
    told = tuple((named[variant].arm.name, named[variant].rate) for variant in experiment.sharing)
    return [Trial(experiment, told, cells[0].times)]


def choose(tried: Mapping[float, Mapping[str, np.ndarray]], by: str) -> Tuned:
    """Return the best learning rate of an arm.

    Of several that are equally good within `AS_GOOD` it is the middle one: the largest is often the
    fastest and fails with the next seed.

    Args:
        tried: Rate → measure → (s,) of the tuning seeds.
        by: "accuracy" or "loss".
    """
    means = {
        rate: float(values[by].mean() if not np.isnan(values["loss"]).any() else np.nan)
        for rate, values in tried.items()
    }
    known = {rate: mean for rate, mean in means.items() if mean == mean}
    if not known:
        return Tuned(sorted(means)[len(means) // 2], means, by)
    sign = 1 if by == "accuracy" else -1
    best = max(sign * mean for mean in known.values())
    as_good = sorted(rate for rate, mean in known.items() if sign * mean >= best - AS_GOOD)
    return Tuned(as_good[(len(as_good) - 1) // 2], means, by)


def tuned_by(arm: Arm) -> str:
    """Return the measure by which learning rates are chosen: the loss on text, else accuracy."""
    return "loss" if arm.experiment.task.loss_to_beat is not None else "accuracy"
