"""Running of a sweep: chunks are submitted to an executor, and progress is reported.

The loop knows only the interface of `concurrent.futures.Executor`. It keeps no results: workers
write them into the sweep's folder, and whatever ends, the next start trains what is missing there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from attnkit.sweeps.chunk import ChunkReport, train_chunk
from attnkit.sweeps.estimate import CostModel, Estimate
from attnkit.sweeps.folder import SweepFolder
from attnkit.sweeps.local import LocalExecutor, n_local_workers
from attnkit.sweeps.planning import Chunk, Plan, variants_of
from attnkit.sweeps.result import SweepResult, failed_rows
from attnkit.sweeps.specification import Sweep
from attnkit.sweeps.values import InvalidSweep

_IN_FLIGHT_PER_WORKER = 2
"""Number of chunks per worker that are submitted and unfinished: no worker waits for the next."""

_PATIENCE = 10.0
"""Seconds after which the driver looks for new workers, though no chunk is finished."""


class Workers(Protocol):
    """An executor that knows how many tasks it can run at the same time."""

    @property
    def n_workers(self) -> int:
        """Number of tasks that run at the same time; it may change."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Start a task."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers."""


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


def drive(
    prepared: Prepared, workers: Workers, report: Callable[[Progress], None] | None = None
) -> Progress:
    """Train everything that is missing.

    A chunk whose worker is lost is divided into its cells, because any chunk beside it may have
    ended the worker. A cell whose worker is lost is trained once more at the end, with no other
    beside it, and then recorded as failed.

    Args:
        prepared: The sweep.
        workers: The executor.
        report: Function that is called after every finished chunk.
    """
    sweep, folder, model = prepared.sweep, prepared.folder, prepared.model
    progress = Progress(prepared.plan.n_missing)
    started = time.monotonic()
    waiting: list[Chunk] = []
    suspects: list[Chunk] = []  # cells that were given up while others trained beside them
    alone: Chunk | None = None
    chunks = prepared.plan.chunks(model.seconds, workers.n_workers)
    in_flight: dict[Future[ChunkReport], Chunk] = {}
    while True:
        while len(in_flight) < _IN_FLIGHT_PER_WORKER * workers.n_workers:
            chunk = waiting.pop() if waiting else next(chunks, None)
            if chunk is None:
                break
            in_flight[workers.submit(train_chunk, sweep, chunk, folder)] = chunk
        if not in_flight:
            if not suspects:
                return progress
            alone = suspects.pop()
            in_flight[workers.submit(train_chunk, sweep, alone, folder)] = alone
        for future in wait(in_flight, _PATIENCE, FIRST_COMPLETED).done:
            chunk = in_flight.pop(future)
            error = future.exception()
            if error is not None and not _is_lost(error):
                raise error
            if error is None:
                done = future.result()
                model.learn(chunk, done)
                progress.n_done += done.n_runs
                progress.n_failed += done.n_failed
            elif len(cells := chunk.split()) > 1:
                waiting += cells
            elif chunk is not alone:
                suspects.append(chunk)
            else:
                _record_failure(sweep, chunk, folder, error)
                progress.n_failed += chunk.n_runs
        progress.seconds, progress.n_workers = time.monotonic() - started, workers.n_workers
        if report is not None:
            report(progress)


def _is_lost(error: BaseException) -> bool:
    """Return whether an error means that a worker was lost, and not that its task failed."""
    return isinstance(error, BrokenProcessPool) or type(error).__module__.startswith("ray.")


def _record_failure(sweep: Sweep, chunk: Chunk, folder: SweepFolder, error: BaseException) -> None:
    """Write a part that says why the only cell of a chunk could not be trained."""
    (group,) = chunk.groups
    reason = str(error).strip() or "its process was ended, most likely because memory was short"
    (variant,) = variants_of(sweep, group)
    point = sweep.point(group.point)
    folder.write_part(failed_rows(sweep, point, variant, group.seeds, reason))


def start_workers(place: str, megabytes: float) -> Workers:
    """Return the executor for a place: "local" for this machine, or "ray" for a Ray cluster.

    Args:
        place: "local" or "ray".
        megabytes: Memory that one worker needs, in MiB.

    Raises:
        InvalidSweep: If there is no such place, or if no worker can start there.
    """
    if place == "local":
        local = LocalExecutor(n_local_workers(megabytes))
        try:
            local.submit(os.getpid).result()
        except BrokenProcessPool:
            local.shutdown(cancel_futures=True)
            raise InvalidSweep(
                "place: no worker process can start here; in a script, train below the line "
                'if __name__ == "__main__":, because every worker imports the script'
            ) from None
        return local
    if place != "ray":
        raise InvalidSweep(f"place: got {place!r}, allowed local or ray")
    from attnkit.sweeps.cluster import RayExecutor

    return RayExecutor(n_workers=n_local_workers(megabytes))


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
        InvalidSweep: If the sweep cannot start, see `prepare` and `start_workers`.
        OSError: If the folder cannot be read or written.
    """
    folder = SweepFolder(str(out))
    prepared = prepare(sweep, folder, resume=resume, retry_failed=retry_failed)
    train_missing(prepared, place, report)
    return SweepResult.read(folder, sweep)


def train_missing(
    prepared: Prepared, place: str, report: Callable[[Progress], None] | None = None
) -> None:
    """Train the missing runs; an error or Ctrl-C ends the workers at once.

    Raises:
        InvalidSweep: See `start_workers`.
    """
    if not prepared.plan.n_missing:
        prepared.folder.write_specification(prepared.sweep)
        return
    workers = start_workers(place, prepared.estimate.megabytes)
    try:
        prepared.folder.write_specification(prepared.sweep)
        drive(prepared, workers, report)
    except BaseException:
        workers.shutdown(cancel_futures=True)
        raise
    workers.shutdown()
