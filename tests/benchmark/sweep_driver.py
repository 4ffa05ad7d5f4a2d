"""Time and memory of the driver of a large sweep, without any training.

`python tests/benchmark/sweep_driver.py 1000000` plans a sweep of a million cells, hands all chunks
to workers that do nothing, and resumes after nine tenths of the parts. The parts have the columns
and about the size of real ones; writing them is the work of workers and is not counted.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.sweeps.chunk import ChunkReport
from attnkit.sweeps.estimate import CostModel, Estimate
from attnkit.sweeps.folder import SweepFolder
from attnkit.sweeps.planning import Chunk, Plan
from attnkit.sweeps.run import Prepared, drive
from attnkit.sweeps.specification import Sweep

if TYPE_CHECKING:
    import pandas as pd

N_NODES = 1_000
"""Number of nodes, each with one worker, that the plan assumes."""

_WRITTEN = 0.9
"""Share of the chunks that are finished when the sweep is resumed."""

_METRICS = ("accuracy", "loss", "steps_to_threshold", "score_symmetry", "mass_on_target", "seconds")


@dataclass(frozen=True)
class Simulation:
    """Time and memory of a driver without training.

    Attributes:
        n_cells: Cells of the sweep, with one seed each.
        n_chunks: Chunks that were submitted.
        plan_seconds: Seconds until the first chunk could be submitted.
        drive_seconds: Seconds of the driver for all chunks, without the workers.
        resume_seconds: Seconds until the missing runs were known again.
        part_megabytes: Size of all parts, in MiB.
        peak_megabytes: Largest memory of this process, in MiB (on Linux).
    """

    n_cells: int
    n_chunks: int
    plan_seconds: float
    drive_seconds: float
    resume_seconds: float
    part_megabytes: float
    peak_megabytes: float


class _Idle:
    """Workers that report every chunk as finished at once, and keep the chunks."""

    n_workers = N_NODES

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def submit(self, fn: Any, sweep: Sweep, chunk: Chunk, folder: SweepFolder) -> Future[Any]:
        """Return a future that is done."""
        self.chunks.append(chunk)
        future: Future[Any] = Future()
        future.set_result(ChunkReport(n_runs=chunk.n_runs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing."""


def simulated_sweep(n_cells: int) -> Sweep:
    """Return a sweep of about this many cells, of the five sharings, widths and rates."""
    n_rates = max(1, round(n_cells / 5 / 16 / 50))
    return Sweep(
        base={"task": "phonebook"},
        axes={
            "d_head": list(range(1, 17)),
            "learning_rate": [float(f"{rate:.6g}") for rate in np.geomspace(1e-4, 0.1, 50)],
            "steps": [600 + k for k in range(n_rates)],
        },
        n_seeds=1,
    )


def simulate(n_cells: int, folder: SweepFolder) -> Simulation:
    """Plan, drive and resume a sweep of about this many cells without training.

    Args:
        n_cells: Number of cells.
        folder: An empty folder for the parts.
    """
    sweep = simulated_sweep(n_cells)
    model = CostModel(sweep, pace=0.02)
    started = time.perf_counter()
    plan = Plan.of(sweep)
    prepared = Prepared(sweep, folder, plan, model, Estimate.of(plan, model))
    next(plan.chunks(model.seconds, N_NODES))
    planned = time.perf_counter()
    workers = _Idle()
    drive(prepared, workers)
    driven = time.perf_counter()
    folder.write_specification(sweep)
    for chunk in workers.chunks[: int(_WRITTEN * len(workers.chunks))]:
        folder.write_part(_simulated_rows(sweep, chunk))
    n_bytes = folder.n_bytes()
    resumed = time.perf_counter()
    finished = folder.read_parts(["cell", "seed", "error"])
    missing = Plan.of(sweep, finished).n_missing
    seconds = time.perf_counter() - resumed
    expected = sum(c.n_runs for c in workers.chunks[int(_WRITTEN * len(workers.chunks)) :])
    assert missing == expected
    return Simulation(
        n_cells=sweep.n_cells,
        n_chunks=len(workers.chunks),
        plan_seconds=planned - started,
        drive_seconds=driven - planned,
        resume_seconds=seconds,
        part_megabytes=n_bytes / 2**20,
        peak_megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _simulated_rows(sweep: Sweep, chunk: Chunk) -> pd.DataFrame:
    """Return rows of a chunk as a worker writes them, with random numbers."""
    import pandas as pd

    runs = [
        (sweep.cell_hash(sweep.point(group.point), sweep.sharing[variant]), variant, seed)
        for group in chunk.groups
        for variant in group.variants
        for seed in group.seeds
    ]
    numbers = np.random.default_rng(0).random((len(runs), len(_METRICS)))
    rows = pd.DataFrame(numbers, columns=list(_METRICS))
    return rows.assign(
        cell=[cell for cell, _, _ in runs],
        sharing=[sweep.sharing[variant].value for _, variant, _ in runs],
        seed=[seed for _, _, seed in runs],
        error=None,
    )


def main() -> None:
    """Print the simulation of a sweep, with the number of cells as the only argument."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cells", type=int)
    with tempfile.TemporaryDirectory() as place:
        simulation = simulate(parser.parse_args().cells, SweepFolder(place))
    for name, value in vars(simulation).items():
        print(f"{name.replace('_', ' ')}: {value:,.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
