"""Estimates of what a sweep costs, from a short measurement on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import mean

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.sweeps.chunk import ChunkReport
from attnkit.sweeps.planning import Chunk, Group, Plan, variants_of
from attnkit.sweeps.specification import Sweep
from attnkit.training.memory import peak_megabytes
from attnkit.training.pace import measure_pace, work_of
from attnkit.variants import Variant

N_SAMPLED = 200
"""Number of points whose costs stand for those of all points in an estimate."""

_MEASURED = (0.0, 0.5, 0.9)
"""Places of the measured experiments among a sample that is sorted by work, from 0 to 1."""

_MOST_MEASURED_SECONDS = 4.0

WORKER_MEGABYTES = 480.0
"""Memory of a worker process before it trains anything, with torch and the kernel loaded."""


@dataclass
class CostModel:
    """Seconds that runs take on one core: measured before the sweep, corrected while it runs.

    Attributes:
        pace: Seconds per unit of `work_of`.
    """

    sweep: Sweep
    pace: float = 0.1
    _predicted: dict[int, float] = field(default_factory=dict)
    _measured: dict[int, float] = field(default_factory=dict)

    @staticmethod
    def measured(sweep: Sweep, plan: Plan) -> CostModel:
        """Measure a few steps of cheap and expensive cells of a plan, for a few seconds."""
        experiments = [e for group in sample(plan, 40) if (e := _possible(sweep, group))]
        experiments.sort(key=lambda e: work_of(e, e.sharing[0], sweep.engine))
        paces: list[float] = []
        started = time.perf_counter()
        for index in sorted({round(share * (len(experiments) - 1)) for share in _MEASURED}):
            if experiments and time.perf_counter() - started < _MOST_MEASURED_SECONDS:
                experiment = experiments[index].replace(n_seeds=1)
                paces.append(measure_pace(sweep.engine, experiment, block=2))
        return CostModel(sweep, mean(paces)) if paces else CostModel(sweep)

    def seconds(self, group: Group) -> float:
        """Return the estimated seconds of a group on one core, with its runs on tuning seeds."""
        return sum(self._seconds_of(group, variant) for variant in group.variants)

    def _seconds_of(self, group: Group, variant: int) -> float:
        predicted = self._predict(group, variant)
        known = self._predicted.get(variant, 0.0)
        if known:
            return predicted * self._measured[variant] / known
        total = sum(self._predicted.values())
        return predicted * (sum(self._measured.values()) / total if total else 1.0)

    def _predict(self, group: Group, variant: int) -> float:
        sweep, name, rates = self.sweep, self.sweep.sharing[variant], self.sweep.rates
        n_tuning = rates.tuning_seeds * len(rates.multiples) if rates.tunes else 0
        experiment = _experiment(sweep, group.point, sweep.sharing)
        if experiment is None or name not in experiment.sharing:
            experiment = _experiment(sweep, group.point, (name,))
        if experiment is None:
            return 0.0
        return (len(group.seeds) + n_tuning) * self.pace * work_of(experiment, name, sweep.engine)

    def learn(self, chunk: Chunk, report: ChunkReport) -> None:
        """Correct the estimates by what a chunk has taken, for each variant."""
        measured = {variant: spent for variant, spent in report.seconds.items() if spent}
        for group in chunk.groups:
            for variant in measured.keys() & set(group.variants):
                predicted = self._predict(group, variant)
                self._predicted[variant] = self._predicted.get(variant, 0.0) + predicted
        for variant, spent in measured.items():
            self._measured[variant] = self._measured.get(variant, 0.0) + spent


@dataclass(frozen=True)
class Estimate:
    """Estimated needs of the missing runs of a sweep.

    Attributes:
        n_runs: Runs that count and are missing.
        core_hours: Hours of computation on one core.
        megabytes: Memory of one worker, in MiB.
    """

    n_runs: int
    core_hours: float
    megabytes: float

    @staticmethod
    def of(plan: Plan, model: CostModel) -> Estimate:
        """Return the estimate for a plan, from a sample of its points."""
        groups = sample(plan, N_SAMPLED)
        n_sampled = sum(group.n_runs for group in groups)
        seconds = sum(model.seconds(group) for group in groups)
        experiments = [e for group in groups if (e := _possible(plan.sweep, group))]
        megabytes = (peak_megabytes(experiment, plan.sweep.engine) for experiment in experiments)
        largest = max(megabytes, default=0.0)
        rates, n_seeds = plan.sweep.rates, plan.sweep.n_seeds
        if rates.tunes:  # all learning rates of a variant are tried together
            largest *= max(1.0, rates.tuning_seeds * len(rates.multiples) / n_seeds)
        n_runs = plan.n_missing
        hours = seconds / 3600 * n_runs / n_sampled if n_sampled else 0.0
        return Estimate(n_runs, hours, WORKER_MEGABYTES + largest)


def sample(plan: Plan, n_points: int) -> list[Group]:
    """Return the groups of at most `n_points` points, spread over the plan."""
    stride = max(1, len(plan.order) // n_points)
    return list(replace(plan, order=plan.order[::stride]).groups())


def _possible(sweep: Sweep, group: Group) -> Experiment | None:
    """Return the experiment of a group, or of a variant that is possible; None without any."""
    return _experiment(sweep, group.point, tuple(variants_of(sweep, group)))


@lru_cache(4096)
def _experiment(sweep: Sweep, point: int, variants: tuple[Variant, ...]) -> Experiment | None:
    try:
        return sweep.experiment(sweep.point(point), list(variants))
    except InvalidExperiment:
        return next(
            (e for v in variants if len(variants) > 1 and (e := _experiment(sweep, point, (v,)))),
            None,
        )
