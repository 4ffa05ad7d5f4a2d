"""Plan of a sweep: the missing runs, the chunks in which they are trained, and what they cost.

Cells stay numbers until they are trained, so that a plan of a million cells fits into memory. Costs
follow from a short measurement on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnkit.experiment import Experiment
from attnkit.sweeps.specification import Sweep
from attnkit.training.memory import peak_megabytes
from attnkit.training.pace import measure_pace, work_of
from attnkit.variants import Variant

if TYPE_CHECKING:
    import pandas as pd

SHORTEST_CHUNK, LONGEST_CHUNK = 10.0, 60.0
"""Seconds of training that a chunk takes on one core: long enough that sending it and writing its
part cost little, short enough that little is lost with a worker."""

_WORKER_MEGABYTES = 480.0
"""Memory of a worker process before it trains anything, with torch and the kernel loaded."""


class Group(NamedTuple):
    """Runs that are trained together: variants at one point, with the same seeds.

    Attributes:
        point: Index of the point.
        variants: Indices of the variants.
        seeds: Consecutive seeds.
    """

    point: int
    variants: tuple[int, ...]
    seeds: range

    @property
    def n_runs(self) -> int:
        """Number of runs that count."""
        return len(self.variants) * len(self.seeds)

    def variants_in(self, sweep: Sweep) -> list[Variant]:
        """Return the variants themselves."""
        return [sweep.sharing[index] for index in self.variants]

    def cells(self) -> list[Group]:
        """Return one group for each variant."""
        return [self._replace(variants=(variant,)) for variant in self.variants]


Chunk = tuple[Group, ...]
"""Groups that one worker trains, and whose results it writes as one part."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The missing runs of a sweep.

    Attributes:
        sweep: The sweep.
        missing: (n_points, n_variants, n_seeds) whether a run is still to be trained.
        order: Indices of points, in the order in which they are trained.
    """

    sweep: Sweep
    missing: np.ndarray
    order: np.ndarray = field(repr=False)

    @staticmethod
    def of(sweep: Sweep, finished: pd.DataFrame | None = None) -> Plan:
        """Return the plan of a sweep.

        Points are in a random order, always the same: chunks then take about equally long, and a
        sweep that was interrupted shows something everywhere.

        The columns `cell` and `seed` of `finished` are those of runs that need not be repeated.
        """
        shape = (sweep.n_points, len(sweep.sharing), sweep.n_seeds)
        missing = np.ones(shape, bool)
        if finished is not None and len(finished):
            hashes = sweep.cell_hashes()
            cells = finished["cell"].to_numpy().astype("S16")
            seeds = finished["seed"].to_numpy()
            for index, seed in enumerate(sweep.seeds):
                missing[:, :, index] = ~np.isin(hashes, cells[seeds == seed])
        return Plan(sweep, missing, np.random.default_rng(0).permutation(sweep.n_points))

    @property
    def n_missing(self) -> int:
        """Number of runs that are still to be trained."""
        return int(self.missing[self.order].sum())

    def groups(self) -> Iterator[Group]:
        """Yield the missing runs in groups of variants that lack the same seeds."""
        first = self.sweep.first_seed
        for point in self.order.tolist():
            by_seeds: dict[range, list[int]] = {}
            for variant, lacking in enumerate(self.missing[point]):
                for seeds in _consecutive(first + np.flatnonzero(lacking)):
                    by_seeds.setdefault(seeds, []).append(variant)
            for seeds, variants in by_seeds.items():
                yield Group(point, tuple(variants), seeds)

    def chunks(self, seconds: Callable[[Group], float], n_workers: int) -> Iterator[Chunk]:
        """Yield the missing runs in chunks, by the estimated seconds of a group on one core."""
        pending: list[Group] = []
        taken = total = 0.0
        n_seen, left = 0, self.n_missing
        for group in self.groups():
            estimated = seconds(group)
            total, n_seen = total + estimated, n_seen + group.n_runs
            share = total / n_seen * left / n_workers  # expected seconds of each worker
            # in a short sweep eight chunks for each worker, so that all end at about the same time
            target = np.clip(share / 8, min(SHORTEST_CHUNK, share / 2), LONGEST_CHUNK)
            pieces = group.cells() if estimated > LONGEST_CHUNK else [group]
            for piece in pieces:
                if pending and taken + estimated / len(pieces) > target:
                    yield tuple(pending)
                    pending, taken = [], 0.0
                pending.append(piece)
                taken += estimated / len(pieces)
        if pending:
            yield tuple(pending)


def _consecutive(numbers: np.ndarray) -> list[range]:
    """Return ascending numbers as ranges of consecutive ones."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return [range(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]


def n_runs_of(chunk: Chunk) -> int:
    """Return the number of runs of a chunk that count."""
    return sum(group.n_runs for group in chunk)


def measured_pace(plan: Plan) -> float:
    """Return the seconds of a unit of `work_of`, from a few steps of cheap and expensive cells."""
    engine, paces = plan.sweep.engine, list[float]()
    experiments = [e for group in sample(plan, 40) for e in experiments_of(plan.sweep, group)]
    experiments.sort(key=lambda e: work_of(e, e.sharing[0], engine))
    started = time.perf_counter()
    for index in sorted({round(share * (len(experiments) - 1)) for share in (0, 0.5, 0.9)}):
        if experiments and time.perf_counter() - started < 4:
            paces.append(measure_pace(engine, experiments[index].replace(n_seeds=1), block=2))
    return mean(paces or [0.1])


def seconds_of(group: Group, sweep: Sweep, pace: float) -> float:
    """Return the estimated seconds of a group on one core, with its runs on tuning seeds."""
    # all variants, so that the same experiments serve every group at the point
    whole = group._replace(variants=(*range(len(sweep.sharing)),))
    variants = group.variants_in(sweep)
    works = (
        work_of(experiment, variant, sweep.engine)
        for experiment in experiments_of(sweep, whole)
        for variant in experiment.sharing
        if variant in variants
    )
    return (len(group.seeds) + sweep.n_tuning_runs) * pace * sum(works)


def estimate_of(plan: Plan, pace: float) -> tuple[float, float]:
    """Return core-hours and MiB of one worker that a plan needs, from a sample of its points."""
    sweep, groups = plan.sweep, sample(plan, 200)
    seconds = sum(seconds_of(group, sweep, pace) for group in groups)
    share = n_runs_of(tuple(groups)) / max(1, plan.n_missing)
    experiments = (one for group in groups for one in experiments_of(sweep, group))
    largest = max((peak_megabytes(one, sweep.engine) for one in experiments), default=0.0)
    # all learning rates of a variant are tried together
    largest *= max(1.0, sweep.n_tuning_runs / sweep.n_seeds)
    return seconds / 3600 / (share or 1.0), _WORKER_MEGABYTES + largest


def sample(plan: Plan, n_points: int) -> list[Group]:
    """Return the groups of at most `n_points` points, spread over the plan."""
    stride = max(1, len(plan.order) // n_points)
    return list(replace(plan, order=plan.order[::stride]).groups())


def experiments_of(sweep: Sweep, group: Group) -> list[Experiment]:
    """Return the experiments of the variants of a group that are possible."""
    return _experiments(sweep, group.point, group.variants)


@lru_cache(4096)
def _experiments(sweep: Sweep, point: int, variants: tuple[int, ...]) -> list[Experiment]:
    return sweep.experiments_at(sweep.point(point), [sweep.sharing[v] for v in variants])[0]
