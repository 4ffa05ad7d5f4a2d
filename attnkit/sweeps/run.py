"""Running of a sweep: chunks are submitted to workers, and progress is reported.

The loop keeps no results: workers write them into the sweep's folder, and whatever ends, the next
start trains what is missing there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.sweeps.planning import Chunk, CostModel, Estimate, Plan, variants_of
from attnkit.sweeps.result import SweepFolder, SweepResult, failed_rows
from attnkit.sweeps.specification import InvalidSweep, Sweep
from attnkit.sweeps.training import train_chunk, train_first_batch
from attnkit.sweeps.workers import WorkerLost, Workers, open_workers

_IN_FLIGHT_PER_WORKER = 2
"""Number of chunks per worker that are submitted and unfinished: no worker waits for the next."""

_PATIENCE = 10.0
"""Seconds after which the driver looks for new workers, though no chunk is finished."""


@dataclass
class Progress:
    """Progress of a sweep.

    Attributes:
        n_runs: Runs that the plan had at the start.
        n_done: Runs of these that are trained.
        n_failed: Runs of these that could not be trained.
        seconds: Seconds since the start.
        n_workers: Number of workers at this moment.
    """

    n_runs: int
    n_done: int = 0
    n_failed: int = 0
    seconds: float = 0.0
    n_workers: int = 1

    @property
    def seconds_left(self) -> float:
        """Estimated seconds until all runs are trained; infinite before the first is."""
        finished = self.n_done + self.n_failed
        if not finished:
            return float("inf")
        return self.seconds / finished * (self.n_runs - finished)


@dataclass(frozen=True)
class Prepared:
    """A sweep that can start, with its missing runs and their estimated cost."""

    sweep: Sweep
    folder: SweepFolder
    plan: Plan
    model: CostModel
    estimate: Estimate


def prepare(
    sweep: Sweep, folder: SweepFolder, *, resume: bool = False, retry_failed: bool = False
) -> Prepared:
    """Find the runs that are missing in a sweep's folder, and estimate their cost.

    Args:
        sweep: The sweep.
        folder: The folder for its parts.
        resume: Whether the folder may hold finished runs, of this sweep or of one with other axes.
        retry_failed: Whether runs that could not be trained are tried again.

    Raises:
        InvalidSweep: If the folder holds a sweep and `resume` is false, or one with another
            engine; if this machine does not have the engine; or if the sweep is estimated to need
            more than its budget.
        OSError: If the folder cannot be read.
    """
    import torch

    from attnkit.training.engine import ready_engine

    before = folder.read_specification()
    if before is not None and not resume:
        raise InvalidSweep(f"out: {folder.address} holds a sweep already; `resume` continues it")
    if before is not None and before.engine != sweep.engine:
        raise InvalidSweep(
            f"engine: got {sweep.engine!r}, allowed {before.engine!r}, with which "
            f"{folder.address} was begun"
        )
    if ready_engine(torch.device("cpu"), sweep.engine) != sweep.engine:
        raise InvalidSweep(
            f"engine: got {sweep.engine!r}, which cannot be used here, allowed 'torch'"
        )
    finished = folder.read_parts(["cell", "seed", "error"])
    if finished is not None and retry_failed:
        finished = finished[finished["error"].isna()]
    plan = Plan.of(sweep, finished)
    model = CostModel.measured(sweep, plan) if plan.n_missing else CostModel(sweep)
    estimate = Estimate.of(plan, model)
    limit = sweep.budget.core_hours
    if limit and estimate.core_hours > limit:
        raise InvalidSweep(
            f"budget.core_hours: got {limit:g}, but the sweep is estimated to need "
            f"{estimate.core_hours:.3g}; allowed is 0 (no limit) or more than that"
        )
    return Prepared(sweep, folder, plan, model, estimate)


@contextmanager
def started(prepared: Prepared, place: str) -> Iterator[tuple[Workers, float]]:
    """Start workers, and yield them with the seconds until one of them had trained a batch.

    An error or Ctrl-C in the block ends them at once.

    Args:
        prepared: A sweep with missing runs.
        place: "local" for processes on this machine, or "ray" for a Ray cluster.

    Raises:
        InvalidSweep: If there is no such place, or if no worker can start there.
    """
    began = time.monotonic()
    with open_workers(place, prepared.estimate.megabytes) as workers:
        first = next(prepared.plan.groups())
        with suppress(WorkerLost):  # `drive` finds out which cell ends its worker
            workers.result(workers.submit(train_first_batch, prepared.sweep, first))
        yield workers, time.monotonic() - began


def drive(
    prepared: Prepared, workers: Workers, report: Callable[[Progress], None] | None = None
) -> None:
    """Train everything that is missing.

    A chunk whose worker is lost is divided into its cells, because any chunk beside it may have
    ended the worker. A cell whose worker is lost is trained once more at the end, with no other
    beside it, and then recorded as failed.

    Args:
        prepared: The sweep.
        workers: The workers.
        report: Function that is called after every finished chunk.
    """
    sweep, folder, model = prepared.sweep, prepared.folder, prepared.model
    folder.write_specification(sweep)
    progress = Progress(prepared.plan.n_missing)
    began = time.monotonic()
    waiting: list[Chunk] = []
    suspects: list[Chunk] = []  # cells that were given up while others trained beside them
    alone: Chunk | None = None
    chunks = prepared.plan.chunks(model.seconds, workers.n_workers)
    in_flight: dict[Any, Chunk] = {}
    while True:
        while len(in_flight) < _IN_FLIGHT_PER_WORKER * workers.n_workers:
            chunk = waiting.pop() if waiting else next(chunks, None)
            if chunk is None:
                break
            in_flight[workers.submit(train_chunk, sweep, chunk, folder)] = chunk
        if not in_flight:
            if not suspects:
                return
            alone = suspects.pop()
            in_flight[workers.submit(train_chunk, sweep, alone, folder)] = alone
        for task in workers.wait(in_flight, _PATIENCE):
            chunk = in_flight.pop(task)
            try:
                done = workers.result(task)
            except WorkerLost as error:
                if len(cells := chunk.split()) > 1:
                    waiting += cells
                elif chunk is not alone:
                    suspects.append(chunk)
                else:
                    (group,) = chunk.groups
                    (variant,) = variants_of(sweep, group)
                    point = sweep.point(group.point)
                    reason = str(error) or "its process was ended, probably for lack of memory"
                    rows = failed_rows(sweep, point, variant, group.seeds, reason)
                    folder.write_part(rows)
                    progress.n_failed += chunk.n_runs
            else:
                model.learn(chunk, done.seconds)
                progress.n_done += done.n_runs
                progress.n_failed += done.n_failed
        progress.seconds, progress.n_workers = time.monotonic() - began, workers.n_workers
        if report is not None:
            report(progress)


def run_sweep(
    sweep: Sweep,
    out: str | Path,
    place: str = "local",
    *,
    resume: bool = True,
    retry_failed: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> SweepResult:
    """Train the runs that are missing in the folder of a sweep, and return the result.

    Args:
        sweep: The sweep.
        out: Folder, or a URL that fsspec knows, for the finished parts.
        place: Where to train: "local" for processes on this machine, "ray" for a Ray cluster.
        resume: Whether the folder may hold finished runs already.
        retry_failed: Whether runs that could not be trained are tried again.
        report: Function that is called after every finished chunk.

    Raises:
        InvalidSweep: If the sweep cannot start, see `prepare` and `started`.
        OSError: If the folder cannot be read or written.
    """
    folder = SweepFolder(str(out))
    prepared = prepare(sweep, folder, resume=resume, retry_failed=retry_failed)
    if prepared.plan.n_missing:
        with started(prepared, place) as (workers, _):
            drive(prepared, workers, report)
    else:
        folder.write_specification(sweep)
    return SweepResult.read(folder, sweep)
