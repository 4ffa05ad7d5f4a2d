"""Plan of a sweep: the runs that are missing, and the chunks in which they are trained.

Cells stay numbers until they are trained, so that a plan of a million cells fits into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from attnkit.sweeps.specification import Sweep

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.variants import Variant

SHORTEST_CHUNK, LONGEST_CHUNK = 10.0, 60.0
"""Seconds of training that a chunk takes on one core: long enough that sending it and writing its
part cost little, short enough that little is lost with a worker."""

_CHUNKS_PER_WORKER = 8
"""Number of chunks per worker in a short sweep, so that all workers end at about the same time."""


@dataclass(frozen=True)
class Group:
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

    def cells(self) -> list[Group]:
        """Return one group for each variant."""
        return [replace(self, variants=(variant,)) for variant in self.variants]


@dataclass(frozen=True)
class Chunk:
    """Groups that one worker trains, and whose results it writes as one part."""

    groups: tuple[Group, ...]

    @property
    def n_runs(self) -> int:
        """Number of runs that count."""
        return sum(group.n_runs for group in self.groups)

    def split(self) -> list[Chunk]:
        """Return one chunk for each cell."""
        return [Chunk((cell,)) for group in self.groups for cell in group.cells()]


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

        Args:
            sweep: The sweep.
            finished: Columns `cell` and `seed` of the runs that need not be repeated.
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
        for point in self.order.tolist():
            by_seeds: dict[bytes, list[int]] = {}
            for variant in np.flatnonzero(self.missing[point].any(-1)).tolist():
                by_seeds.setdefault(self.missing[point, variant].tobytes(), []).append(variant)
            for lacking, variants in by_seeds.items():
                for seeds in _consecutive(np.flatnonzero(np.frombuffer(lacking, bool))):
                    first = self.sweep.first_seed
                    yield Group(
                        point, tuple(variants), range(first + seeds.start, first + seeds.stop)
                    )

    def chunks(self, seconds: Callable[[Group], float], n_workers: int) -> Iterator[Chunk]:
        """Yield the missing runs in chunks, each with its points in order.

        Args:
            seconds: Function that estimates how long a group takes on one core.
            n_workers: Number of workers that take chunks.
        """
        pending: list[Group] = []
        taken = total = 0.0
        n_seen, left = 0, self.n_missing
        for group in self.groups():
            estimated = seconds(group)
            total, n_seen = total + estimated, n_seen + group.n_runs
            share = total / n_seen * left / n_workers  # expected seconds of each worker
            shortest = min(SHORTEST_CHUNK, share / 2)
            target = np.clip(share / _CHUNKS_PER_WORKER, shortest, LONGEST_CHUNK)
            pieces = _pieces(group, estimated)
            for piece in pieces:
                if pending and taken + estimated / len(pieces) > target:
                    yield Chunk(tuple(pending))
                    pending, taken = [], 0.0
                pending.append(piece)
                taken += estimated / len(pieces)
        if pending:
            yield Chunk(tuple(pending))


def _pieces(group: Group, seconds: float) -> list[Group]:
    """Divide a group that takes longer than a chunk by its variants."""
    n_pieces = int(min(len(group.variants), np.ceil(seconds / LONGEST_CHUNK)))
    return [
        Group(group.point, tuple(int(v) for v in variants), group.seeds)
        for variants in np.array_split(np.array(group.variants), max(1, n_pieces))
    ]


def _consecutive(numbers: np.ndarray) -> list[range]:
    """Return ascending numbers as ranges of consecutive ones."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return [range(int(run[0]), int(run[-1]) + 1) for run in runs]


def variants_of(sweep: Sweep, group: Group) -> list[Variant]:
    """Return the variants of a group."""
    return [sweep.sharing[index] for index in group.variants]
