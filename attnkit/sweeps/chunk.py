"""Training of a chunk of a sweep, in the process of a worker.

A worker writes what it has trained into the sweep's folder and returns only a short report, so
that no result is lost with the process, the machine or the cluster that ran it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.evidence.trials import TUNING_SEED
from attnkit.evidence.tuning import DIVERGED, worth
from attnkit.experiment import Experiment
from attnkit.foundation.process import give_memory_back
from attnkit.foundation.settings import InvalidExperiment
from attnkit.sweeps.folder import SweepFolder
from attnkit.sweeps.planning import Chunk, Group, variants_of
from attnkit.sweeps.result import failed_rows, labelled
from attnkit.sweeps.specification import Sweep
from attnkit.variants import Variant

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class ChunkReport:
    """Report of a worker about a chunk.

    Attributes:
        n_runs: Runs that were trained.
        n_failed: Runs that could not be trained; the part holds the reasons.
        seconds: Index of the variant → seconds that its runs took, with those on tuning seeds.
    """

    n_runs: int = 0
    n_failed: int = 0
    seconds: dict[int, float] = field(default_factory=dict)


def train_chunk(sweep: Sweep, chunk: Chunk, folder: SweepFolder) -> ChunkReport:
    """Train a chunk and write its part.

    Cells that fail do not stop the others: their rows hold the reason instead of numbers.
    """
    import pandas as pd

    report = ChunkReport()
    tables = []
    for group in chunk.groups:
        for table in train_group(sweep, group):
            failed = table["error"].notna()
            report.n_runs += int((~failed).sum())
            report.n_failed += int(failed.sum())
            variant = sweep.sharing.index(Variant(table["sharing"].iloc[0]))
            spent = report.seconds.get(variant, 0.0)
            report.seconds[variant] = spent + float(table["seconds"].sum())
            tables.append(table)
    folder.write_part(pd.concat(tables, ignore_index=True))
    give_memory_back()
    return report


def train_group(sweep: Sweep, group: Group) -> list[pd.DataFrame]:
    """Train the runs of a group and return one table per variant."""
    variants = variants_of(sweep, group)
    try:
        return _trained(sweep, group, variants)
    except InvalidExperiment as error:
        reason = str(error)
    except (MemoryError, RuntimeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
    if len(variants) == 1:
        return [failed_rows(sweep, sweep.point(group.point), variants[0], group.seeds, reason)]
    # too large together, or one of them is impossible or fails
    return [table for cell in group.cells() for table in train_group(sweep, cell)]


def _trained(sweep: Sweep, group: Group, variants: list[Variant]) -> list[pd.DataFrame]:
    """Return the rows of the variants of a group, one table for each.

    Raises:
        InvalidExperiment: If the variants together need too much memory.
    """
    point = sweep.point(group.point)
    base = sweep.experiment(point, variants)
    rate = base.training.learning_rate
    rates = [rate if m == 1 else float(f"{m * rate:.3g}") for m in sweep.rates.multiples]
    chosen = dict.fromkeys(variants, rates[0])
    tried: dict[Variant, Mapping[float, float]] = {variant: {} for variant in variants}
    started = time.perf_counter()
    if sweep.rates.tunes:
        seeds = range(TUNING_SEED, TUNING_SEED + sweep.rates.tuning_seeds)
        tables = _train(sweep, base, [(v, r) for v in variants for r in rates], seeds)
        by = "loss" if base.task.loss_to_beat is not None else "accuracy"
        for variant in variants:
            chosen[variant], tried[variant] = _best({r: tables[variant, r] for r in rates}, by)
    tables = _train(sweep, base, list(chosen.items()), group.seeds)
    seconds = time.perf_counter() - started
    work = {v: base.costs(v).multiply_adds for v in variants}
    result = []
    for variant in variants:
        share = work[variant] / sum(work.values()) / len(group.seeds)
        rows = labelled(sweep, point, variant, tables[variant, chosen[variant]])
        result.append(
            rows.assign(
                sharing=variant.value,
                learning_rate=chosen[variant],
                tried=json.dumps({f"{r:g}": _plain(mean) for r, mean in tried[variant].items()}),
                seconds=seconds * share,
                error=None,
            )
        )
    return result


def _best(tables: Mapping[float, pd.DataFrame], by: str) -> tuple[float, dict[float, float]]:
    """Return the learning rate that is worth most, and the mean of the measure at every rate.

    Args:
        tables: Learning rate → rows of its runs.
        by: The measure that is compared, "accuracy" or "loss".
    """
    rates = sorted(tables)
    means, scores = {}, []
    for rate in rates:
        values, diverged = tables[rate][by], tables[rate]["loss"].isna()
        means[rate] = float("nan" if diverged.any() else values.mean())
        score = -values if by == "loss" else values
        scores.append(float(score.mask(diverged, DIVERGED[by]).mean()))
    worths = [worth(dict(enumerate(scores)), index, by) for index in range(len(rates))]
    return rates[int(np.argmax(worths))], means


def _train(
    sweep: Sweep, base: Experiment, cells: Sequence[tuple[Variant, float]], seeds: range
) -> dict[tuple[Variant, float], pd.DataFrame]:
    """Train variants at learning rates in one experiment; return the rows of runs of each.

    Raises:
        RuntimeError: If the engine of the sweep is not available here.
    """
    import torch

    from attnkit.training.summary import run_table
    from attnkit.training.training import Training

    rate = base.training.learning_rate
    by_variant = {
        variant if r == rate else Variant(f"{variant} learning_rate={r:g}"): (variant, r)
        for variant, r in cells
    }
    experiment = base.replace(sharing=list(by_variant), first_seed=seeds.start, n_seeds=len(seeds))
    device = "cuda" if sweep.engine == "torch" and torch.cuda.is_available() else "cpu"
    training = Training(experiment, device, sweep.engine, attention_curves=False)
    if training.engine != sweep.engine:
        raise RuntimeError(f"the engine {sweep.engine!r} of this sweep cannot be used here")
    training.advance(experiment.training.steps)
    snapshot = training.snapshot()
    table = run_table(snapshot).assign(engine=snapshot.engine, processor=snapshot.processor)
    return {by_variant[Variant(str(name))]: rows for name, rows in table.groupby("sharing")}


def _plain(mean: float) -> Any:
    return None if np.isnan(mean) else mean
