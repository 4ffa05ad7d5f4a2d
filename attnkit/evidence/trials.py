"""From the arms of a claim to experiments: which are tuned, and which are then compared.

Arms of one setting train beside each other as variants of one experiment, each at learning rates
of its own; a run does not depend on those beside it. No torch here: pages build these, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from attnkit.claims.base import Arm
from attnkit.evidence.measures import measured
from attnkit.experiment import Experiment
from attnkit.results import Snapshot
from attnkit.settings import InvalidExperiment
from attnkit.variants import Variant

RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Learning rates that are tried for every arm, as multiples of the task's own."""

AS_GOOD = 0.005
"""Learning rates are as good as the best to within half a point of accuracy, or so many nats."""

FINER_RATES = (0.125, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
"""Those of an arm that is tuned finer."""

TUNING_SEED = 900_000
"""The first seed of tuning; far from those that are compared."""

N_TUNING_SEEDS = 2

FIRST_SEED = 100
"""Of those that are compared. Seeds from 0 on were a first pass: after it, some claims were given
more seeds and steps, so they cannot be tested on these."""

MOST_TOGETHER = 10
"""Variants of one trial: little is lost if it is interrupted, and memory stays small."""


@dataclass(frozen=True)
class Trial:
    """An experiment whose variants are arms at certain learning rates.

    Attributes:
        cells: (arm's name, learning rate) of every variant, in their order.
    """

    experiment: Experiment
    cells: tuple[tuple[str, float], ...]

    def per_cell(self, values: np.ndarray) -> dict[tuple[str, float], np.ndarray]:
        """Split the runs: (arm's name, rate) → (s,)."""
        n_seeds = self.experiment.n_seeds
        return {
            cell: values[place * n_seeds : (place + 1) * n_seeds]
            for place, cell in enumerate(self.cells)
        }

    def split(self, measured: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """Arm → measure → (s,), where every arm has one learning rate."""
        found: dict[str, dict[str, np.ndarray]] = {name: {} for name, _ in self.cells}
        for measure, values in measured.items():
            for (name, _), own in self.per_cell(values).items():
                found[name][measure] = own
        return found

    def scores(self, snapshot: Snapshot) -> dict[str, dict[str, np.ndarray]]:
        """The same of a snapshot of its experiment, of all measures."""
        return self.split(measured(snapshot))


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

    def told(self, rate: float) -> str:
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
    """The learning rates that are tried for an arm."""
    own = arm.experiment.training.learning_rate
    factors = FINER_RATES if arm.finely else RATES
    return tuple(float(f"{factor * own:.3g}") for factor in factors)


def tuning_trials(arms: Sequence[Arm]) -> list[Trial]:
    """What is trained to tune them: every arm at each of its rates."""
    own = [(arm, rates_of(arm)) for arm in arms if not arm.rate_of]
    return _trials(own, N_TUNING_SEEDS, TUNING_SEED)


def comparing_trials(
    arms: Sequence[Arm], rates: Mapping[str, float], n_seeds: int, first_seed: int = FIRST_SEED
) -> list[Trial]:
    """What is trained to compare them: every arm at its own rate.

    Args:
        rates: by the names of the arms; the task's own where there is none.
    """
    cells = [(arm, (rates.get(arm.name, arm.experiment.training.learning_rate),)) for arm in arms]
    return _trials(cells, n_seeds, first_seed)


def _trials(
    cells: Sequence[tuple[Arm, tuple[float, ...]]], n_seeds: int, first_seed: int
) -> list[Trial]:
    """One for every setting, or more; arms of one setting in their order."""
    groups: dict[str, list[tuple[Arm, float]]] = {}
    for arm, rates in cells:
        setting = json.dumps(
            {name: value for name, value in arm.experiment.settings().items() if name != "sharing"},
            sort_keys=True,
        )
        groups.setdefault(setting, []).extend((arm, rate) for rate in rates)
    return [
        trial
        for group in groups.values()
        for first in range(0, len(group), MOST_TOGETHER)
        for trial in _fitting(group[first : first + MOST_TOGETHER], n_seeds, first_seed)
    ]


def _fitting(cells: Sequence[tuple[Arm, float]], n_seeds: int, first_seed: int) -> list[Trial]:
    """One trial, or several if all in one take too much memory.

    Raises:
        InvalidExperiment: if even one alone does.
    """
    named = {
        Variant(f"{arm.variant} learning_rate={rate:g}"): (arm.name, rate) for arm, rate in cells
    }
    try:
        experiment = cells[0][0].experiment.replace(
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
    return [Trial(experiment, tuple(named[variant] for variant in experiment.sharing))]


def choose(tried: Mapping[float, Mapping[str, np.ndarray]], by: str) -> Tuned:
    """The best learning rate of an arm.

    Of several that are as good to within `AS_GOOD` the middle one: the largest is often the fastest
    and fails with the next seed.

    Args:
        tried: rate → measure → (s,) of the tuning seeds.
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
    """What the learning rate of an arm is judged by: on text the loss, else the accuracy."""
    return "loss" if arm.experiment.task.loss_to_beat is not None else "accuracy"
