"""Finished experiments beside each other: what differs, what each reached, differences in pairs.

Snapshots in, tables out. All statistics are over seeds and come from full histories; two runs make
a pair if they have the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from attnkit.experiment.experiment import Experiment, settings
from attnkit.tasks import TASKS
from attnkit.training.results import Result
from attnkit.training.snapshot import METRICS, Snapshot
from attnkit.training.statistics import mean_interval, paired_difference, standard_deviation
from attnkit.variants import Variant

if TYPE_CHECKING:
    import pandas as pd

Metric = Literal["accuracy", "loss"]

LETTERS = "ABCDEFGH"
"""What experiments are called beside each other; so many can be compared."""

ABSENT = "–"
"""In place of a setting that a task does not have."""


@dataclass(frozen=True, eq=False)
class ComparedExperiment:
    """An experiment that is compared: its letter, what people call it, what it reached."""

    letter: str
    name: str
    snapshot: Snapshot

    @property
    def experiment(self) -> Experiment:
        """The experiment that was trained."""
        return self.snapshot.experiment

    def last(self, metric: Metric) -> Float[np.ndarray, "variant seed"]:
        """At the last evaluation; NaN where a run diverged."""
        return self.snapshot.per_sharing(self.snapshot.history[metric][-1].astype(np.float64))


def variants_of(compared: Sequence[ComparedExperiment]) -> list[Variant]:
    """Every variant that one of them has, in the order of the first that has it."""
    return list(dict.fromkeys(v for one in compared for v in one.experiment.sharing))


def settings_table(compared: Sequence[ComparedExperiment]) -> pd.DataFrame:
    """One row per setting that is not the same in all, one column per experiment.

    Of a single experiment: what its task's defaults are not.
    """
    import pandas as pd

    columns = {one.letter: one.experiment.settings() for one in compared}
    if len(columns) == 1:
        defaults = Experiment(task=compared[0].experiment.task.name)
        columns["Default"] = defaults.settings()
    names = dict.fromkeys(name for column in columns.values() for name in column)
    labels = {"task": "Task", "sharing": "Variants"}
    for one in compared:
        labels |= {n: s.label for n, s in settings(one.experiment.task.name).items()}
    rows = []
    for name in names:
        values = [column.get(name) for column in columns.values()]
        if any(value != values[0] for value in values):
            texts = [_written(name, value) for value in values]
            rows.append([labels[name], *texts])
    return pd.DataFrame(rows, columns=["Setting", *columns], dtype=str)


def summary_table(compared: Sequence[ComparedExperiment], metric: Metric) -> pd.DataFrame:
    """One row per experiment and variant.

    Columns: `last`, the mean over seeds of the last evaluation, with its 95% limits `low` and
    `high` and the standard deviation `sd` over seeds; `mean`, the mean over seeds of the mean of
    all evaluations that count (the earlier something is learnt, the better); `best`, the best
    evaluation of the best seed, which chance favours; `solved`, the number of seeds at the
    threshold, and `steps_to_threshold`, the mean over those. Diverged seeds are left out of all.
    """
    import pandas as pd

    tables = []
    for one in compared:
        snapshot = one.snapshot
        last = one.last(metric)
        interval = mean_interval(last)
        history = snapshot.history[metric].astype(np.float64)
        counted = np.where(snapshot.counted() & ~np.isnan(history[-1]), history, np.nan)
        over_training = snapshot.per_sharing(mean_interval(counted.T).mean)
        steps = snapshot.per_sharing(snapshot.steps_to_threshold())
        table = pd.DataFrame(
            {
                "experiment": one.letter,
                "sharing": [variant.value for variant in one.experiment.sharing],
                "seeds": one.experiment.n_seeds,
                "last": interval.mean,
                "low": interval.low,
                "high": interval.high,
                "sd": standard_deviation(last),
                "mean": mean_interval(over_training).mean,
                "best": _best(snapshot.per_sharing(counted), metric),
                "solved": (~np.isnan(steps)).sum(-1),
                "steps_to_threshold": mean_interval(steps).mean,
                "diverged": snapshot.per_sharing(snapshot.diverged_at >= 0).sum(-1),
            }
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def differences_within(
    compared: Sequence[ComparedExperiment], baseline: Variant, metric: Metric
) -> pd.DataFrame:
    """Every variant minus the baseline of the same experiment, seed by seed.

    Experiments without the baseline have no rows.
    """
    rows = []
    for one in compared:
        variants = one.experiment.sharing
        if baseline in variants:
            last = one.last(metric)
            against = last[variants.index(baseline)]
            for variant, values in zip(variants, last, strict=True):
                if variant != baseline:
                    rows.append([one.letter, variant.value, *_difference(values, against)])
    return _differences(rows)


def differences_between(
    compared: Sequence[ComparedExperiment], baseline: ComparedExperiment, metric: Metric
) -> pd.DataFrame:
    """Every experiment minus the baseline for the variants that both have, seed by seed.

    Only seeds that both have make pairs, and only experiments on one task, which has their data;
    `n_pairs` is 0 where there are none.
    """
    rows = []
    theirs = baseline.last(metric)
    for one in compared:
        same_task = one.experiment.task.name == baseline.experiment.task.name
        seeds = sorted(set(one.experiment.seeds) & set(baseline.experiment.seeds))
        here = [seed - one.experiment.first_seed for seed in seeds if same_task]
        there = [seed - baseline.experiment.first_seed for seed in seeds if same_task]
        for variant, values in zip(one.experiment.sharing, one.last(metric), strict=True):
            if one is not baseline and variant in baseline.experiment.sharing:
                against = theirs[baseline.experiment.sharing.index(variant)]
                difference = _difference(values[here], against[there])
                rows.append([one.letter, variant.value, *difference])
    return _differences(rows)


def evaluation_table(compared: Sequence[ComparedExperiment]) -> pd.DataFrame:
    """One row per experiment, run and evaluation: every metric, and every setting that differs."""
    import pandas as pd

    all_settings = [one.experiment.settings() for one in compared]
    names = dict.fromkeys(name for flat in all_settings for name in flat)
    told = [n for n in names if n not in _TOLD and len({repr(s.get(n)) for s in all_settings}) > 1]
    tables = []
    for one, flat in zip(compared, all_settings, strict=True):
        snapshot, experiment = one.snapshot, one.experiment
        n_evaluations = len(snapshot.eval_steps)
        columns: dict[str, Any] = {
            "experiment": experiment.hash,
            "task": experiment.task.name,
            **{name: flat.get(name) for name in told},
            "sharing": np.repeat([variant.value for variant, _ in experiment.runs], n_evaluations),
            "seed": np.repeat([seed for _, seed in experiment.runs], n_evaluations),
            "step": np.tile(snapshot.eval_steps, experiment.n_runs),
        }
        columns |= {name: snapshot.history[name].T.ravel() for name in METRICS}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def n_evaluations(compared: Sequence[ComparedExperiment]) -> int:
    """The rows of `evaluation_table`."""
    return sum(len(one.snapshot.eval_steps) * one.experiment.n_runs for one in compared)


def to_json(compared: Sequence[ComparedExperiment]) -> str:
    """Settings, runs at their last evaluation and every evaluation, null where undefined."""
    told = []
    for one in compared:
        snapshot = one.snapshot
        final = Result(snapshot, parameters=[]).to_dict()  # it tells none of the parameters
        for run, row in enumerate(final["runs"]):
            row["history"] = {n: _plain(snapshot.history[n][:, run]) for n in METRICS}
        told.append({"name": one.name, **final, "eval_steps": snapshot.eval_steps.tolist()})
    return json.dumps({"experiments": told}, ensure_ascii=False, allow_nan=False)


_TOLD = ("task", "sharing", "n_seeds", "first_seed")
"""Settings that stand in every row of the raw data in another way."""


def _written(name: str, value: Any) -> str:
    if value is None:
        return ABSENT
    if name == "task":
        return TASKS[value].title
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _best(counted: np.ndarray, metric: Metric) -> np.ndarray:
    """The best of all evaluations of all seeds, (e, variant, seed) → (variant,)."""
    sign = -1.0 if metric == "loss" else 1.0
    best = np.where(np.isnan(counted), -np.inf, sign * counted).max((0, 2))
    return np.where(np.isinf(best), np.nan, sign * best)


def _difference(values: np.ndarray, against: np.ndarray) -> tuple[int, float, float, float]:
    """Pairs, mean difference and its limits; a seed that diverged in one of the two is no pair."""
    gap = paired_difference(values, against)
    n_pairs = int((~np.isnan(values - against)).sum())
    return n_pairs, float(gap.mean), float(gap.low), float(gap.high)


def _differences(rows: list[list[Any]]) -> pd.DataFrame:
    import pandas as pd

    columns = ["experiment", "sharing", "n_pairs", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _plain(values: np.ndarray) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]
