"""Sentences about what experiments reached, for the history of finished experiments.

Values are means over the seeds that did not diverge: accuracies in percent, or losses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from attnkit.analysis.comparison import ComparedExperiment, Metric
from attnkit.foundation.words import MOST_NAMED, all_of, capitalised, listed, named, verb
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

_MOST_IN_A_CELL = 4
"""Variants that the cell of a table names, at most."""


def metric_of(snapshots: Sequence[Snapshot]) -> Metric:
    """Return the measure that tells experiments apart: loss if a task has a loss to beat."""
    has_loss = any(one.experiment.task.loss_to_beat is not None for one in snapshots)
    return "loss" if has_loss else "accuracy"


def last_means(snapshot: Snapshot, metric: Metric) -> Float[np.ndarray, " variant"]:
    """Return the mean of each variant at its last evaluation; NaN if all seeds diverged."""
    means: np.ndarray = mean_interval(snapshot.per_sharing(snapshot.latest(metric))).mean
    return means


def in_a_cell(snapshot: Snapshot) -> str:
    """Return what the first variants reached, such as "QKV 100%, Q=K 49%, …"."""
    metric = metric_of([snapshot])
    means = zip(snapshot.experiment.sharing, last_means(snapshot, metric), strict=True)
    texts = [f"{title_of(variant)} {level_in_words(mean, metric)}" for variant, mean in means]
    shortened = ", ".join(texts[:_MOST_IN_A_CELL])
    shortened += ", …" if len(texts) > _MOST_IN_A_CELL else ""
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
    levels: dict[str, list[str]] = {}
    for _, mean in sorted(known, key=lambda pair: sign * pair[1]):
        levels[level_in_words(mean, metric)] = []
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


@dataclass(frozen=True)
class _Spread:
    """Values of one variant in several experiments, by letter."""

    title: str
    values: dict[str, float]

    @property
    def width(self) -> float:
        """Difference of the largest and the smallest value."""
        return max(self.values.values()) - min(self.values.values())

    def in_words(self, metric: Metric) -> str:
        """Return the values with their letters, such as "49% in A, 97% in B"."""
        return ", ".join(f"{level_in_words(v, metric)} in {k}" for k, v in self.values.items())


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
    shared = [_Spread(title_of(v), found) for v, found in by_variant.items() if len(found) > 1]
    if not shared:
        return f"{letters} have results of no variant in common."
    differing = [
        spread
        for spread in shared
        if len({level_in_words(value, metric) for value in spread.values.values()}) > 1
    ]
    noun = "loss" if metric == "loss" else "accuracy"
    if not differing:
        same = "the same" if not any(spread.width for spread in shared) else "about the same"
        if len(shared) > 1:
            return f"Every variant that {letters} share has {same} {noun}."
        return f"{shared[0].title} has {same} {noun} in {listed(shared[0].values)}."
    most = max(differing, key=lambda spread: spread.width)
    lead = f"The {noun} of {most.title}"
    return f"{lead} differs{' most' * (len(shared) > 1)}: {most.in_words(metric)}."


def level_in_words(value: float, metric: Metric = "accuracy") -> str:
    """Return a mean accuracy in percent, or a mean loss; "diverged" if it is none."""
    if math.isnan(value):
        return "diverged"
    return f"{value:.2f}" if metric == "loss" else percent(value)
