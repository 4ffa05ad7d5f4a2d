"""Finished experiments side by side: tables of settings, results and differences; sentences.

All statistics are over seeds and computed from complete histories. Two runs form a pair if they
have the same seed. Sentences have means over the seeds that did not diverge.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from attnkit.experiment.experiment import Experiment, default_settings, settings
from attnkit.foundation.settings import shown
from attnkit.foundation.words import MOST_NAMED, all_of, capitalised, listed, named, verb
from attnkit.tasks import OwnData, task_named
from attnkit.training.metrics import METRICS
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval, paired_difference, standard_deviation
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

if TYPE_CHECKING:
    import pandas as pd

Metric = Literal["accuracy", "loss"]

LETTERS = "ABCDEFGH"
"""Names of the compared experiments; their number is the most that can be compared."""

ABSENT = "–"
"""Text in place of the value of a setting that a task does not have."""


@dataclass(frozen=True, eq=False)
class ComparedExperiment:
    """A finished experiment in a comparison, with its letter and the name that people gave it."""

    letter: str
    name: str
    snapshot: Snapshot

    @property
    def experiment(self) -> Experiment:
        """The experiment that was trained."""
        return self.snapshot.experiment

    def last(self, metric: Metric) -> Float[np.ndarray, "variant seed"]:
        """Return a metric at the last evaluation; NaN where a run diverged."""
        return self.snapshot.per_sharing(self.snapshot.history[metric][-1].astype(np.float64))


def variants_of(compared: Sequence[ComparedExperiment]) -> list[Variant]:
    """Return every variant of any experiment, in the order of first occurrence."""
    return list(dict.fromkeys(v for each in compared for v in each.experiment.sharing))


def settings_table(compared: Sequence[ComparedExperiment]) -> pd.DataFrame:
    """Return one row per setting that differs, and one column per experiment.

    A single experiment is compared with the defaults of its task.
    """
    import pandas as pd

    columns = {each.letter: each.experiment.settings() for each in compared}
    if len(columns) == 1:
        (experiment,) = (each.experiment for each in compared)
        own = {"data": experiment.task.data} if isinstance(experiment.task, OwnData) else {}
        columns["Default"] = {**default_settings(experiment.task.name), **own}
    names = dict.fromkeys(name for column in columns.values() for name in column)
    labels = {"task": "Task", "sharing": "Variants"}
    for each in compared:
        labels |= {n: s.label for n, s in settings(each.experiment.task.name).items()}
    rows = []
    for name in names:
        first, *others = (column.get(name) for column in columns.values())
        if any(value != first for value in others):
            rows.append([labels[name], *(_text_of(name, value) for value in (first, *others))])
    return pd.DataFrame(rows, columns=["Setting", *columns], dtype=str)


def summary_table(compared: Sequence[ComparedExperiment], metric: Metric) -> pd.DataFrame:
    """Return one row per experiment and variant.

    Columns: `last`, the mean over seeds at the last evaluation, with its 95% limits `low` and
    `high` and the standard deviation `sd` over seeds; `mean`, the mean over seeds of the mean of
    all evaluations that count (better if the task is learnt early); `best`, the best evaluation of
    the best seed, which is biased upwards; `solved`, the number of seeds that reached the
    threshold; `steps_to_threshold`, the mean over those seeds; `diverged`, the number of diverged
    seeds, which the other columns leave out.
    """
    import pandas as pd

    tables = []
    for each in compared:
        snapshot = each.snapshot
        last = each.last(metric)
        interval = mean_interval(last)
        history = snapshot.history[metric].astype(np.float64)
        counted = np.where(snapshot.counted() & ~np.isnan(history[-1]), history, np.nan)
        over_training = snapshot.per_sharing(mean_interval(counted.T).mean)
        steps = snapshot.per_sharing(snapshot.steps_to_threshold())
        table = pd.DataFrame(
            {
                "experiment": each.letter,
                "sharing": [variant.value for variant in each.experiment.sharing],
                "seeds": each.experiment.n_seeds,
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
    """Return the paired differences of every variant to the baseline of the same experiment.

    Experiments without the baseline have no rows.
    """
    last = _last_of(compared, metric)
    letters, variants = map(last.index.get_level_values, ("experiment", "sharing"))
    against = last[variants == baseline.value].droplevel("sharing")
    rows = last[(variants != baseline.value) & letters.isin(against.index)]
    return _differences(rows, against.loc[rows.index.get_level_values("experiment")])


def differences_between(
    compared: Sequence[ComparedExperiment], baseline: ComparedExperiment, metric: Metric
) -> pd.DataFrame:
    """Return the paired differences of every experiment to the baseline, for common variants.

    Runs form pairs only on the same task, where the same seed means the same data. `n_pairs` is 0
    if the task differs or if no seed is common.
    """
    task = baseline.experiment.task.name
    others = [each.letter for each in compared if each.experiment.task.name != task]
    last = _last_of(compared, metric)
    letters, variants = map(last.index.get_level_values, ("experiment", "sharing"))
    against = last[letters == baseline.letter].droplevel("experiment")
    last.loc[others] = np.nan
    rows = last[(letters != baseline.letter) & variants.isin(against.index)]
    return _differences(rows, against.loc[rows.index.get_level_values("sharing")])


def _last_of(compared: Sequence[ComparedExperiment], metric: Metric) -> pd.DataFrame:
    """Return a metric at the last evaluation, (experiments and variants, seeds)."""
    import pandas as pd

    tables = {
        each.letter: pd.DataFrame(
            each.last(metric),
            [variant.value for variant in each.experiment.sharing],
            list(each.experiment.seeds),
        )
        for each in compared
    }
    return pd.concat(tables, names=["experiment", "sharing"])


def _differences(rows: pd.DataFrame, against: pd.DataFrame) -> pd.DataFrame:
    """Return paired differences with 95% limits; a seed that diverged on a side forms no pair."""
    values, others = rows.to_numpy(float), against.to_numpy(float)
    gap = paired_difference(values, others)
    return rows.index.to_frame(index=False).assign(
        n_pairs=(~np.isnan(values - others)).sum(-1),
        difference=gap.mean,
        low=gap.low,
        high=gap.high,
    )


def evaluation_table(compared: Sequence[ComparedExperiment]) -> pd.DataFrame:
    """Return one row per experiment, run and evaluation: metrics, and settings that differ."""
    import pandas as pd

    all_settings = [each.experiment.settings() for each in compared]
    names = dict.fromkeys(name for flat in all_settings for name in flat if name not in _IMPLIED)
    differing = [n for n in names if len({repr(flat.get(n)) for flat in all_settings}) > 1]
    tables = []
    for each, flat in zip(compared, all_settings, strict=True):
        snapshot, experiment = each.snapshot, each.experiment
        n_evaluations = len(snapshot.eval_steps)
        columns: dict[str, Any] = {
            "experiment": experiment.hash,
            "task": experiment.task.name,
            **{name: flat.get(name) for name in differing},
            "sharing": np.repeat([variant.value for variant, _ in experiment.runs], n_evaluations),
            "seed": np.repeat([seed for _, seed in experiment.runs], n_evaluations),
            "step": np.tile(snapshot.eval_steps, experiment.n_runs),
        }
        columns |= {name: snapshot.history[name].T.ravel() for name in METRICS}
        columns["asymmetry"] = snapshot.asymmetry.T.ravel()
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def to_json(compared: Sequence[ComparedExperiment]) -> str:
    """Return settings, last metrics and all evaluations of every run as JSON, null for NaN."""
    experiments = []
    for each in compared:
        snapshot = each.snapshot
        data = Result(snapshot, parameters=[]).to_dict()  # which contains no parameters
        for run, row in enumerate(data["runs"]):
            row["history"] = {
                name: [None if math.isnan(value) else value for value in values]
                for name in METRICS
                for values in [snapshot.history[name][:, run].tolist()]
            }
        experiments.append({"name": each.name, **data, "eval_steps": snapshot.eval_steps.tolist()})
    return json.dumps({"experiments": experiments}, ensure_ascii=False, allow_nan=False)


_IMPLIED = ("task", "sharing", "n_seeds", "first_seed")
"""Settings that need no column of their own in `evaluation_table`: other columns imply them."""


def _text_of(name: str, value: Any) -> str:
    if value is None:
        return ABSENT
    if name == "task":
        return task_named(value).title
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else shown(value)


def _best(counted: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the best of all evaluations of all seeds, (e, variant, seed) → (variant,)."""
    sign = -1.0 if metric == "loss" else 1.0
    best = np.where(np.isnan(counted), -np.inf, sign * counted).max((0, 2))
    return np.where(np.isinf(best), np.nan, sign * best)


def metric_of(snapshots: Sequence[Snapshot]) -> Metric:
    """Return the measure that tells experiments apart: loss if a task has a loss to beat."""
    has_loss = any(one.experiment.task.loss_to_beat is not None for one in snapshots)
    return "loss" if has_loss else "accuracy"


def last_means(snapshot: Snapshot, metric: Metric) -> Float[np.ndarray, " variant"]:
    """Return the mean of each variant at its last evaluation; NaN if all seeds diverged."""
    means: np.ndarray = mean_interval(snapshot.per_sharing(snapshot.latest(metric))).mean
    return means


def in_a_cell(snapshot: Snapshot) -> str:
    """Return what the first four variants reached, such as "QKV 100%, Q=K 49%, …"."""
    metric = metric_of([snapshot])
    means = zip(snapshot.experiment.sharing, last_means(snapshot, metric), strict=True)
    texts = [f"{title_of(variant)} {level_in_words(mean, metric)}" for variant, mean in means]
    shortened = ", ".join(texts[:4] + ["…"] * (len(texts) > 4))
    return f"loss: {shortened}" if metric == "loss" else shortened


def levels_in_words(
    variants: Sequence[Variant], means: Sequence[float], metric: Metric, lead: str = ""
) -> str:
    """Return one sentence about the means of an experiment's variants.

    Args:
        means: Mean of each variant; NaN if it has none.
        lead: Beginning of the sentence, such as "At step 250, ".
    """
    sign = 1 if metric == "loss" else -1
    titled = [(title_of(variant), mean) for variant, mean in zip(variants, means, strict=True)]
    known = [(title, mean) for title, mean in titled if not math.isnan(mean)]
    lacking = [title for title, mean in titled if math.isnan(mean)]
    ordered = sorted(known, key=lambda pair: sign * pair[1])
    levels: dict[str, list[str]] = {level_in_words(mean, metric): [] for _, mean in ordered}
    for title, mean in known:
        levels[level_in_words(mean, metric)].append(title)
    if len(levels) == 1 and len(known) == len(variants) > 1:
        levels = {level: [all_of(titles)] for level, titles in levels.items()}
    parts = _parts(levels, len(known), metric)
    if lacking:
        parts.append(f"{named(lacking)} {verb(lacking, 'has', 'have')} no result")
    return capitalised(f"{lead}{', '.join(parts)}.")


def _parts(levels: Mapping[str, Sequence[str]], n: int, metric: Metric) -> list[str]:
    """Return the clauses of a sentence about `n` variants, the best level first."""
    if not levels:
        return []
    (best, leaders), *others = levels.items()
    is_one = len(leaders) == 1 and not leaders[0].endswith(" variants")
    reach, noun = "reaches" if is_one else "reach", " accuracy"
    if metric == "loss":
        reach, noun = "has a loss of" if is_one else "have a loss of", ""
    first = f"{named(leaders)} {reach} {best}{noun}"
    if others and n > MOST_NAMED:
        last, losers = others[-1]
        return [first, f"and {named(losers)} {verb(losers, 'comes', 'come')} last with {last}"]
    return [first, *(f"{listed(titles)} {level}" for level, titles in others)]


def comparison_in_words(compared: Sequence[ComparedExperiment]) -> str:
    """Return one sentence about several experiments: which variant differs most, and how."""
    metric = metric_of([one.snapshot for one in compared])
    letters = listed([one.letter for one in compared])
    by_variant: dict[Variant, dict[str, float]] = {}
    for one in compared:
        means = last_means(one.snapshot, metric)
        for variant, mean in zip(one.experiment.sharing, means, strict=True):
            if not math.isnan(mean):
                by_variant.setdefault(variant, {})[one.letter] = float(mean)
    shared = {variant: values for variant, values in by_variant.items() if len(values) > 1}
    if not shared:
        return f"{letters} have results of no variant in common."
    widths = {variant: max(by.values()) - min(by.values()) for variant, by in shared.items()}
    levels = {
        variant: {letter: level_in_words(value, metric) for letter, value in values.items()}
        for variant, values in shared.items()
    }
    differing = [variant for variant in shared if len({*levels[variant].values()}) > 1]
    noun = "loss" if metric == "loss" else "accuracy"
    if not differing:
        same = "about the same" if any(widths.values()) else "the same"
        if len(shared) > 1:
            return f"Every variant that {letters} share has {same} {noun}."
        ((variant, values),) = shared.items()
        return f"{title_of(variant)} has {same} {noun} in {listed(values)}."
    variant = max(differing, key=widths.__getitem__)
    texts = ", ".join(f"{level} in {letter}" for letter, level in levels[variant].items())
    return f"The {noun} of {title_of(variant)} differs{' most' * (len(shared) > 1)}: {texts}."


def level_in_words(value: float, metric: Metric = "accuracy") -> str:
    """Return a mean accuracy in percent, or a mean loss; "diverged" if it is none."""
    if math.isnan(value):
        return "diverged"
    return f"{value:.2f}" if metric == "loss" else percent(value)
