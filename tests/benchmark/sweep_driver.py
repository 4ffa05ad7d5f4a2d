"""Time and memory of the driver of a large sweep, without any training.

`python tests/benchmark/sweep_driver.py 1000000` plans a sweep of a million cells, hands all chunks
to workers that do nothing, and resumes after nine tenths of the parts; no writing is counted.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Collection
from typing import Any, cast

import numpy as np
import pandas as pd

from attnkit.sweeps.planning import Chunk, Plan, estimate_of, n_runs_of, seconds_of
from attnkit.sweeps.result import SweepFolder
from attnkit.sweeps.run import drive
from attnkit.sweeps.specification import Sweep

_N_NODES = 1_000  # each with one worker
_WRITTEN = 0.9  # share of the chunks that are finished when the sweep is resumed
_METRICS = ("accuracy", "loss", "steps_to_threshold", "score_symmetry", "mass_on_target", "seconds")


class _Idle:
    """Workers that report every chunk as finished at once, and keep the chunks."""

    n_workers = _N_NODES

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def submit(self, function: Any, sweep: Sweep, chunk: Chunk, folder: SweepFolder) -> Any:
        self.chunks.append(chunk)
        return len(self.chunks) - 1

    def wait(self, tasks: Collection[Any], seconds: float) -> list[Any]:
        return list(tasks)

    def result(self, task: Any) -> int:
        return 0

    def shutdown(self, *, cancel: bool) -> None:
        pass


def simulate(n_cells: int, folder: SweepFolder) -> dict[str, float]:
    """Plan, drive and resume a sweep of about so many cells; the peak is that of Linux, in MiB."""
    axes = {
        "d_head": list(range(1, 17)),
        "learning_rate": [float(f"{rate:.6g}") for rate in np.geomspace(1e-4, 0.1, 50)],
        "steps": [600 + k for k in range(max(1, round(n_cells / 5 / 16 / 50)))],
    }
    sweep = Sweep(base={"task": "phonebook"}, axes=axes, n_seeds=1)
    workers, pace = _Idle(), 0.02
    started = time.perf_counter()
    plan = Plan.of(sweep)
    estimate_of(plan, pace)
    next(plan.chunks(lambda group: seconds_of(group, sweep, pace), _N_NODES))
    planned = time.perf_counter()
    drive(plan, pace, folder, cast("Any", workers))
    driven = time.perf_counter()
    folder.write_specification(sweep)
    n_written = int(_WRITTEN * len(workers.chunks))
    for chunk in workers.chunks[:n_written]:
        folder.write_part(_simulated_rows(sweep, chunk))
    resumed = time.perf_counter()
    missing = Plan.of(sweep, folder.read_parts(["cell", "seed", "error"])).n_missing
    known = time.perf_counter()
    assert missing == sum(n_runs_of(chunk) for chunk in workers.chunks[n_written:])
    return {
        "n cells": sweep.n_cells,
        "n chunks": len(workers.chunks),
        "plan seconds": planned - started,  # until the first chunk could be submitted
        "drive seconds": driven - planned,
        "resume seconds": known - resumed,
        "peak megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _simulated_rows(sweep: Sweep, chunk: Chunk) -> pd.DataFrame:
    """Return rows of a chunk as a worker writes them, with random numbers."""
    runs = [
        (sweep.hashes_at(sweep.point(group.point), [sweep.sharing[variant]])[0], variant, seed)
        for group in chunk
        for variant in group.variants
        for seed in group.seeds
    ]
    numbers = np.random.default_rng(0).random((len(runs), len(_METRICS)))
    return pd.DataFrame(numbers, columns=list(_METRICS)).assign(
        cell=[cell for cell, _, _ in runs],
        sharing=[sweep.sharing[variant].value for _, variant, _ in runs],
        seed=[seed for _, _, seed in runs],
        error=None,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        found = simulate(int(sys.argv[1]), SweepFolder(place))
    for name, value in found.items():
        print(f"{name}: {value:,.1f}")  # noqa: T201
