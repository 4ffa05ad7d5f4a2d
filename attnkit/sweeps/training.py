"""Training of cells of a sweep: chunks in a worker, and a sample again to compare machines.

A worker writes what it has trained into the sweep's folder and returns only a short report, so
that no result is lost with the process, the machine or the cluster that ran it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnkit.evidence.trials import TUNING_SEED
from attnkit.evidence.tuning import DIVERGED, worth
from attnkit.experiment import Experiment
from attnkit.foundation.process import give_memory_back
from attnkit.foundation.settings import InvalidExperiment
from attnkit.sweeps.planning import Chunk, ChunkReport, Group, possible_experiment, variants_of
from attnkit.sweeps.result import SweepFolder, SweepResult, failed_rows, labelled
from attnkit.sweeps.specification import InvalidSweep, Sweep
from attnkit.variants import Variant

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.training.training import Training

COMPARED = ("accuracy", "loss", "steps_to_threshold", "score_symmetry", "learning_rate")
"""Columns that are compared to the bit."""


def train_chunk(sweep: Sweep, chunk: Chunk, folder: SweepFolder) -> ChunkReport:
    """Train a chunk and write its part.

    Cells that fail do not stop the others: their rows hold the reason instead of numbers.
    """
    import pandas as pd

    rows = pd.concat([train_group(sweep, group) for group in chunk.groups], ignore_index=True)
    folder.write_part(rows)
    give_memory_back()
    n_failed = int(rows["error"].notna().sum())
    return ChunkReport(len(rows) - n_failed, n_failed, float(rows["seconds"].sum()))


def train_first_batch(sweep: Sweep, group: Group) -> None:
    """Train one step of a group, before which a worker imports torch and loads the kernel."""
    experiment = possible_experiment(sweep, group)
    if experiment is not None:
        with suppress(MemoryError, RuntimeError, ArithmeticError):
            _open_training(sweep, experiment).advance(1)


def train_group(sweep: Sweep, group: Group) -> pd.DataFrame:
    """Train the runs of a group and return their rows."""
    import pandas as pd

    variants = variants_of(sweep, group)
    try:
        return _trained(sweep, group, variants)
    except InvalidExperiment as error:
        reason = str(error)
    except (MemoryError, RuntimeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
    if len(variants) == 1:
        return failed_rows(sweep, sweep.point(group.point), variants[0], group.seeds, reason)
    # too large together, or one of them is impossible or fails
    return pd.concat([train_group(sweep, cell) for cell in group.cells()], ignore_index=True)


def _trained(sweep: Sweep, group: Group, variants: list[Variant]) -> pd.DataFrame:
    """Return the rows of the variants of a group.

    Raises:
        InvalidExperiment: If the variants together need too much memory.
    """
    import pandas as pd

    point = sweep.point(group.point)
    base = sweep.experiment(point, variants)
    rate = base.training.learning_rate
    rates = [rate if m == 1 else float(f"{m * rate:.3g}") for m in sweep.rates.multiples]
    chosen = dict.fromkeys(variants, rates[0])
    tried = dict.fromkeys(variants, "{}")
    started = time.perf_counter()
    if sweep.rates.tunes:
        seeds = range(TUNING_SEED, TUNING_SEED + sweep.rates.tuning_seeds)
        runs = _train(sweep, base, [(v, r) for v in variants for r in rates], seeds)
        by = "loss" if base.task.loss_to_beat is not None else "accuracy"
        for variant in variants:
            chosen[variant], tried[variant] = _best(runs[runs["sharing"] == variant.value], by)
    runs = _train(sweep, base, list(chosen.items()), group.seeds)
    seconds = time.perf_counter() - started
    work = {v: base.costs(v).multiply_adds for v in variants}
    tables = []
    for variant in variants:
        rows = labelled(sweep, point, variant, runs[runs["sharing"] == variant.value])
        share = work[variant] / sum(work.values()) / len(group.seeds)
        tables.append(rows.assign(tried=tried[variant], seconds=seconds * share, error=None))
    return pd.concat(tables, ignore_index=True)


def _best(runs: pd.DataFrame, by: str) -> tuple[float, str]:
    """Return the learning rate that is worth most, and the mean at every rate as JSON.

    Args:
        runs: Runs of one variant at several learning rates.
        by: The measure that is compared, "accuracy" or "loss".
    """
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
    """Train variants at learning rates in one experiment; return the rows of their runs.

    Raises:
        RuntimeError: If the engine of the sweep is not available here.
    """
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
    """Return a training that has not begun, with the engine of the sweep.

    Raises:
        RuntimeError: If this engine is not available here.
    """
    import torch

    from attnkit.training.training import Training

    device = "cuda" if sweep.engine == "torch" and torch.cuda.is_available() else "cpu"
    training = Training(experiment, device, sweep.engine, attention_curves=False)
    if training.engine != sweep.engine:
        raise RuntimeError(f"the engine {sweep.engine!r} of this sweep cannot be used here")
    return training


@dataclass(frozen=True)
class Repetition:
    """Differences between recorded runs and their repetition here.

    Attributes:
        n_cells: Cells that were trained again.
        where: Kind of processor and versions of this machine.
        table: One row per run: `cell`, `sharing`, `seed`, `processor` and `versions` of the record,
            `equal` (whether the columns of `COMPARED` have the same bits), `accuracy_difference`,
            `loss_difference`.
    """

    n_cells: int
    where: str
    table: pd.DataFrame


def repeat_sample(result: SweepResult, n_cells: int, seed: int = 0) -> Repetition:
    """Train random cells of a sweep again and compare them with the record.

    Args:
        result: The recorded sweep.
        n_cells: Number of cells; all if there are fewer.
        seed: Seed of the choice.

    Raises:
        InvalidSweep: If the record has no finished run.
    """
    import pandas as pd

    sweep, recorded = result.sweep, result.runs[result.runs["error"].isna()]
    if recorded.empty:
        raise InvalidSweep("--check: the folder has no finished run, allowed is one that has")
    names = recorded["cell"].unique()
    chosen = np.random.default_rng(seed).permutation(names)[:n_cells]
    positions = {
        name: (point, variant)
        for (point, variant), name in np.ndenumerate(sweep.cell_hashes().astype("U16"))
    }
    tables = []
    for name in chosen:
        point, variant = positions[name]
        seeds = recorded.loc[recorded["cell"] == name, "seed"]
        span = range(int(seeds.min()), int(seeds.max()) + 1)
        tables.append(train_group(sweep, Group(int(point), (int(variant),), span)))
    again = pd.concat(tables, ignore_index=True)
    if again["error"].notna().all():
        raise InvalidSweep(f"--check: nothing can be trained here ({again['error'].iloc[0]})")
    pairs = recorded.merge(again, on=["cell", "seed"], suffixes=("", "_again"))
    before = pairs[[*COMPARED]].to_numpy(float)
    after = pairs[[f"{column}_again" for column in COMPARED]].to_numpy(float)
    table = pairs[["cell", "sharing", "seed", "processor", "versions"]].assign(
        equal=np.where(np.isnan(before), np.isnan(after), before == after).all(1),
        accuracy_difference=(pairs["accuracy_again"] - pairs["accuracy"]).abs(),
        loss_difference=(pairs["loss_again"] - pairs["loss"]).abs(),
    )
    where = ", ".join(again[["processor", "versions"]].dropna().iloc[0])
    return Repetition(len(chosen), where, table)
