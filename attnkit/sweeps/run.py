"""Running of a sweep: workers train chunks, and the driver submits them and reports progress.

A worker writes what it has trained into the sweep's folder and returns only a short report, so that
no result is lost with the process, the machine or the cluster that ran it: whatever ends, the next
start trains what is missing there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnkit.evidence.trials import TUNING_SEED
from attnkit.evidence.tuning import DIVERGED, worth
from attnkit.experiment import Experiment
from attnkit.foundation.process import give_memory_back
from attnkit.foundation.settings import InvalidExperiment, Value
from attnkit.sweeps.planning import (
    Chunk,
    Group,
    Plan,
    estimate_of,
    experiments_of,
    measured_pace,
    n_runs_of,
    seconds_of,
)
from attnkit.sweeps.result import SweepFolder, SweepResult, failed_rows, labelled
from attnkit.sweeps.specification import InvalidSweep, Sweep
from attnkit.sweeps.workers import WorkerLost, Workers, open_workers
from attnkit.variants import Variant

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.training.training import Training

_IN_FLIGHT_PER_WORKER = 2
"""Number of chunks per worker that are submitted and unfinished: no worker waits for the next."""

_PATIENCE = 10.0
"""Seconds after which the driver looks for new workers, though no chunk is finished."""


_COMPARED = ("accuracy", "loss", "steps_to_threshold", "score_symmetry", "learning_rate")
"""Columns that a check of a stored result compares to the bit with repeated runs."""


def train_chunk(sweep: Sweep, chunk: Chunk, folder: SweepFolder) -> int:
    """Train a chunk, write its part, and return the number of runs that could not be trained.

    Cells that fail do not stop the others: their rows hold the reason instead of numbers.
    """
    import pandas as pd

    rows = pd.concat([train_group(sweep, group) for group in chunk], ignore_index=True)
    folder.write_part(rows)
    give_memory_back()
    return int(rows["error"].notna().sum())


def train_first_batch(sweep: Sweep, group: Group) -> None:
    """Train one step of a group, before which a worker imports torch and loads the kernel."""
    for experiment in experiments_of(sweep, group)[:1]:
        with suppress(MemoryError, RuntimeError, ArithmeticError):
            _open_training(sweep, experiment).advance(1)


def train_group(sweep: Sweep, group: Group) -> pd.DataFrame:
    """Train the runs of a group and return their rows."""
    import pandas as pd

    point, variants = sweep.point(group.point), group.variants_in(sweep)
    try:
        return _trained(sweep, point, variants, group.seeds)
    except InvalidExperiment as error:
        reason = str(error)
    except (MemoryError, RuntimeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
    if len(variants) == 1:
        return failed_rows(sweep, point, variants[0], group.seeds, reason)
    # too large together, or one of them is impossible or fails
    return pd.concat([train_group(sweep, cell) for cell in group.cells()], ignore_index=True)


def _trained(
    sweep: Sweep, point: Mapping[str, Value], variants: Sequence[Variant], seeds: range
) -> pd.DataFrame:
    base = sweep.experiment(point, variants)
    rate = base.training.learning_rate
    rates = [rate if m == 1 else float(f"{m * rate:.3g}") for m in sweep.rates.multiples]
    chosen = dict.fromkeys(variants, rates[0])
    tried = {variant.value: "{}" for variant in variants}
    started = time.perf_counter()
    if sweep.rates.tunes:
        tuning = range(TUNING_SEED, TUNING_SEED + sweep.rates.tuning_seeds)
        runs = _train(sweep, base, [(v, r) for v in variants for r in rates], tuning)
        by = "loss" if base.task.loss_to_beat is not None else "accuracy"
        for variant in variants:
            of_variant = runs[runs["sharing"] == variant.value]
            chosen[variant], tried[variant.value] = _best(of_variant, by)
    runs = labelled(sweep, point, _train(sweep, base, list(chosen.items()), seeds))
    seconds, names = time.perf_counter() - started, runs["sharing"]
    work = {variant.value: base.costs(variant).multiply_adds for variant in variants}
    shares = names.map(work) / sum(work.values()) / len(seeds)
    return runs.assign(tried=names.map(tried), seconds=seconds * shares, error=None)


def _best(runs: pd.DataFrame, by: str) -> tuple[float, str]:
    """Return the learning rate that is worth most, and the mean at every rate as JSON."""
    rates, diverged = runs["learning_rate"], runs["loss"].isna()
    score = runs[by] if by == "accuracy" else -runs[by]
    scores = score.mask(diverged, DIVERGED[by]).groupby(rates).mean()
    worths = [worth(dict(enumerate(scores)), index, by) for index in range(len(scores))]
    means = runs[by].groupby(rates).mean().mask(diverged.groupby(rates).any())
    tried = {f"{rate:g}": None if np.isnan(mean) else mean for rate, mean in means.items()}
    return float(scores.index[int(np.argmax(worths))]), json.dumps(tried)


def _train(
    sweep: Sweep, base: Experiment, cells: Sequence[tuple[Variant, float]], seeds: range
) -> pd.DataFrame:
    """Train variants at learning rates in one experiment; return the rows of their runs."""
    from attnkit.training.summary import run_table

    rate = base.training.learning_rate
    by_variant = {
        variant if r == rate else Variant(f"{variant} learning_rate={r:g}"): (variant.value, r)
        for variant, r in cells
    }
    experiment = base.replace(sharing=list(by_variant), first_seed=seeds.start, n_seeds=len(seeds))
    training = _open_training(sweep, experiment)
    training.advance(experiment.training.steps)
    snapshot = training.snapshot()
    table = run_table(snapshot).assign(engine=snapshot.engine, processor=snapshot.processor)
    trained = [by_variant[Variant(str(name))] for name in table["sharing"]]
    return table.assign(sharing=[v for v, _ in trained], learning_rate=[r for _, r in trained])


def _open_training(sweep: Sweep, experiment: Experiment) -> Training:
    import torch

    from attnkit.training.training import Training

    device = "cuda" if sweep.engine == "torch" and torch.cuda.is_available() else "cpu"
    training = Training(experiment, device, sweep.engine, attention_curves=False)
    if training.engine != sweep.engine:
        raise RuntimeError(f"the engine {sweep.engine!r} of this sweep cannot be used here")
    return training


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


class Outlook(NamedTuple):
    """Runs, time and memory that a sweep still needs before it begins.

    Attributes:
        n_missing: Runs that are still to be trained.
        core_hours: Estimated time of one core.
        megabytes: Memory of one worker, in MiB.
        n_workers: Number of workers; 0 if nothing is missing.
        start: Seconds until one of them had trained a batch.
    """

    n_missing: int
    core_hours: float
    megabytes: float
    n_workers: int = 0
    start: float = 0.0


def run_sweep(
    sweep: Sweep,
    out: str | Path,
    place: str = "local",
    *,
    resume: bool = True,
    retry_failed: bool = False,
    begin: Callable[[Outlook], bool] | None = None,
    report: Callable[[Progress], None] | None = None,
) -> SweepResult:
    """Train the runs that are missing in the folder of a sweep, and return the result.

    Args:
        sweep: The sweep.
        out: Folder, or a URL that fsspec knows, for the finished parts.
        place: Where to train: "local" for processes on this machine, "ray" for a Ray cluster.
        resume: Whether the folder may hold finished runs, of this sweep or of one with other axes.
        retry_failed: Whether runs that could not be trained are tried again.
        begin: Function that is called when workers are ready; nothing is trained or written if it
            returns false.
        report: Function that is called at the start and after every finished chunk.

    Raises:
        InvalidSweep: If the folder holds a sweep and `resume` is false, or one with another
            engine; if this machine does not have the engine; if the sweep is estimated to need
            more than its budget; or if no worker can start.
        OSError: If the folder cannot be read or written.
    """
    folder = SweepFolder(str(out))
    plan = _missing(sweep, folder, resume=resume, retry_failed=retry_failed)
    pace = measured_pace(plan)
    outlook = Outlook(plan.n_missing, *estimate_of(plan, pace))
    limit = sweep.budget.core_hours
    if limit and outlook.core_hours > limit:
        raise InvalidSweep(
            f"budget.core_hours: got {limit:g}, but the sweep is estimated to need "
            f"{outlook.core_hours:.3g}; allowed is 0 (no limit) or more than that"
        )
    began = time.monotonic()
    at_place: AbstractContextManager[Workers | None] = nullcontext()
    if plan.n_missing:
        at_place = open_workers(place, outlook.megabytes)
    with at_place as workers:
        if workers is not None:
            with suppress(WorkerLost):  # `drive` finds out which cell ends its worker
                workers.result(workers.submit(train_first_batch, sweep, next(plan.groups())))
            start = time.monotonic() - began
            outlook = outlook._replace(n_workers=workers.n_workers, start=start)
        if begin is None or begin(outlook):
            folder.write_specification(sweep)
            if workers is not None:
                drive(plan, pace, folder, workers, report)
    return SweepResult.read(folder, sweep)


def _missing(sweep: Sweep, folder: SweepFolder, *, resume: bool, retry_failed: bool) -> Plan:
    """Return the plan of the runs that are missing in a folder; errors are those of `run_sweep`."""
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
    return Plan.of(sweep, finished)


def drive(
    plan: Plan,
    pace: float,
    folder: SweepFolder,
    workers: Workers,
    report: Callable[[Progress], None] | None = None,
) -> None:
    """Train everything that is missing.

    A chunk whose worker is lost is divided into its cells, because any chunk beside it may have
    ended the worker. A cell whose worker is lost is trained once more at the end, with no other
    beside it, and then recorded as failed.

    Args:
        plan: The missing runs.
        pace: Seconds of a unit of work on one core, by which chunks are made.
        folder: Where workers write what they have trained.
        workers: The workers.
        report: Function that is called at the start and after every finished chunk.
    """
    sweep, progress, began = plan.sweep, Progress(plan.n_missing), time.monotonic()
    waiting: list[Chunk] = []
    suspects: list[Chunk] = []  # cells that were given up while others trained beside them
    alone: Chunk | None = None
    chunks = plan.chunks(partial(seconds_of, sweep=sweep, pace=pace), workers.n_workers)
    in_flight: dict[Any, Chunk] = {}
    while True:
        progress.seconds, progress.n_workers = time.monotonic() - began, workers.n_workers
        if report is not None:
            report(progress)
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
                n_failed = workers.result(task)
            except WorkerLost as error:
                if len(cells := [cell for group in chunk for cell in group.cells()]) > 1:
                    waiting += [(cell,) for cell in cells]
                elif chunk is not alone:
                    suspects.append(chunk)
                else:
                    ((point, (variant,), seeds),) = chunk
                    reason = str(error) or "its process was ended, probably for lack of memory"
                    lost = sweep.point(point), sweep.sharing[variant], seeds, reason
                    folder.write_part(failed_rows(sweep, *lost))
                    progress.n_failed += len(seeds)
            else:
                progress.n_done += n_runs_of(chunk) - n_failed
                progress.n_failed += n_failed


def repeat_sample(result: SweepResult, n_cells: int) -> tuple[str, pd.DataFrame]:
    """Train random cells of a sweep again, all if there are fewer, and compare them with its runs.

    Returns:
        Kind of processor and versions of this machine; and one row per run with `cell`, `sharing`,
        `seed`, `processor` and `versions` of the record, `equal` (whether all of `_COMPARED` have
        the same bits), `accuracy_difference`, `loss_difference`.

    Raises:
        InvalidSweep: If the record has no finished run.
    """
    import pandas as pd

    sweep, recorded = result.sweep, result.runs[result.runs["error"].isna()]
    if recorded.empty:
        raise InvalidSweep("--check: the folder has no finished run, allowed is one that has")
    hashes, tables = sweep.cell_hashes().astype("U16"), []
    for name in np.random.default_rng(0).permutation(recorded["cell"].unique())[:n_cells]:
        point, variant = np.argwhere(hashes == name)[0].tolist()
        seeds = recorded.loc[recorded["cell"] == name, "seed"]
        span = range(int(seeds.min()), int(seeds.max()) + 1)
        tables.append(train_group(sweep, Group(point, (variant,), span)))
    again = pd.concat(tables, ignore_index=True)
    if again["error"].notna().all():
        raise InvalidSweep(f"--check: nothing can be trained here ({again['error'].iloc[0]})")
    pairs = recorded.merge(again, on=["cell", "seed"], suffixes=("", "_again"))
    before = pairs[[*_COMPARED]].to_numpy(float)
    after = pairs[[f"{column}_again" for column in _COMPARED]].to_numpy(float)
    table = pairs[["cell", "sharing", "seed", "processor", "versions"]].assign(
        equal=np.where(np.isnan(before), np.isnan(after), before == after).all(1),
        accuracy_difference=(pairs["accuracy_again"] - pairs["accuracy"]).abs(),
        loss_difference=(pairs["loss_again"] - pairs["loss"]).abs(),
    )
    where = ", ".join(again[["processor", "versions"]].dropna().iloc[0])
    return where, table
