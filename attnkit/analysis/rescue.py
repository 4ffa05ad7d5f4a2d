"""Single changes of an experiment that may rescue variants with symmetric scores, and their effect.

With the change, the variants whose scores are symmetric by construction are trained again, and as a
reference the first other variant of the experiment. Runs do not depend on each other, so leaving
out the remaining variants changes no number. This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from attnkit.analysis.comparison import level_in_words
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.words import counted
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval, paired_difference
from attnkit.training.summary import percent_limits
from attnkit.variants import InvalidVariant, Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing

UNTIED = {Sharing.Q_K: Sharing.QKV, Sharing.Q_K_V: Sharing.K_V}
"""Sharing with W_Q = W_K → the same sharing with separate W_Q and W_K."""

LEAST_GAIN = 0.03
"""Least difference of accuracy that counts, even if a smaller one is statistically certain."""

NEAR = 0.05
"""Largest distance in accuracy to the goal (see `goal_of`) at which a variant counts as rescued."""


@dataclass(frozen=True)
class Change:
    """One change of an experiment.

    Attributes:
        setting: Name of the changed setting; "sharing" if W_Q and W_K are separated.
        label: New state of the setting in a few words, for example "4 heads".
        experiment: The changed experiment.
    """

    setting: str
    label: str
    experiment: Experiment


@dataclass(frozen=True, eq=False)
class Outcome:
    """Final accuracies of an experiment.

    Attributes:
        experiment: The trained experiment.
        accuracy: Variant → accuracy of every seed at the last evaluation; NaN if it diverged.
    """

    experiment: Experiment
    accuracy: dict[Variant, Float64[np.ndarray, " s"]]

    @staticmethod
    def of(snapshot: Snapshot) -> Outcome:
        """Return the accuracies at the last evaluation of a snapshot."""
        last = snapshot.per_sharing(snapshot.history["accuracy"][-1]).astype(np.float64)
        return Outcome(
            snapshot.experiment, dict(zip(snapshot.experiment.sharing, last, strict=True))
        )

    def mean(self, variant: Variant) -> float:
        """Return the mean accuracy of a variant over its seeds; NaN if all of them diverged."""
        return float(mean_interval(self.accuracy[variant]).mean)

    @property
    def reference(self) -> Variant | None:
        """Most accurate variant whose scores need not be symmetric; None if all diverged."""
        symmetric = set(symmetric_variants(self.experiment))
        others = [v for v in self.accuracy if v not in symmetric and not np.isnan(self.mean(v))]
        return max(others, key=self.mean, default=None)


def symmetric_variants(experiment: Experiment) -> list[Variant]:
    """Return the variants whose scores are symmetric by construction."""
    return [v for v in experiment.sharing if experiment.wiring(v).symmetric]


def changes_of(experiment: Experiment) -> list[Change]:
    """Return the possible changes of an experiment that has a variant with symmetric scores."""
    changes = []
    for setting, value in _candidates(experiment):
        try:
            changed = experiment.replace(**{"sharing": _retrained(experiment), setting: value})
        except (InvalidExperiment, InvalidVariant):
            continue
        changes.append(Change(setting, state_of(changed, setting), changed))
    return changes


def _candidates(experiment: Experiment) -> Iterator[tuple[str, Any]]:
    """Yield settings and their new values, which the experiment may not allow."""
    size = experiment.size
    yield "n_heads", 4 if size.n_heads < 4 else 8
    yield "n_layers", size.n_layers + 1
    if not size.d_mlp:
        yield "d_mlp", 4 * size.d_model
    yield "d_model", 2 * size.d_model
    yield "steps", 3 * experiment.training.steps
    if not size.self_mask:
        yield "self_mask", True
    twins = [untied(variant) for variant in symmetric_variants(experiment)]
    new = [twin for twin in twins if twin is not None and twin not in experiment.sharing]
    if new:
        yield "sharing", [*_retrained(experiment), *dict.fromkeys(new)]


def _retrained(experiment: Experiment) -> list[Variant]:
    symmetric = symmetric_variants(experiment)
    others = [variant for variant in experiment.sharing if variant not in symmetric]
    return [v for v in experiment.sharing if v in symmetric or v in others[:1]]


def untied(variant: Variant) -> Variant | None:
    """Return the variant with separate matrices for Q and K; None if there is no such variant."""
    if variant.sharing not in UNTIED or variant.identity or len(variant.stages) > 1:
        return None
    _, *words = variant.value.split()
    try:
        return Variant(" ".join([UNTIED[variant.sharing].value, *words]))
    except InvalidVariant:
        return None


def state_of(experiment: Experiment, setting: str) -> str:
    """Return the state of a setting in a few words, for example "4 heads"."""
    size = experiment.size
    match setting:
        case "n_heads":
            return counted(size.n_heads, "head")
        case "n_layers":
            return counted(size.n_layers, "layer")
        case "d_mlp":
            return f"an MLP of {size.d_mlp}" if size.d_mlp else "no MLP"
        case "d_model":
            return f"a model width of {size.d_model}"
        case "steps":
            return counted(experiment.training.steps, "step")
        case "self_mask":
            return "a self-mask" if size.self_mask else "no self-mask"
    return "separate W_Q and W_K"


def effect_sentences(before: Outcome, after: Outcome, setting: str) -> list[str]:
    """Return one sentence on the effect of a change for each variant with symmetric scores."""
    sentences = []
    for variant in symmetric_variants(before.experiment):
        twin = untied(variant) if setting == "sharing" else variant
        if twin is None or twin not in after.accuracy:
            continue
        new_title = "" if twin == variant else f" ({title_of(twin)})"
        old = level_in_words(before.mean(variant))
        if setting != "sharing":
            old += f" with {state_of(before.experiment, setting)}"
        new = level_in_words(after.mean(twin))
        new += f" with {state_of(after.experiment, setting)}{new_title}"
        verdict = verdict_on(before.accuracy[variant], after.accuracy[twin], goal_of(before, after))
        certainty = _certainty(after.accuracy[twin])
        sentences.append(f"{title_of(variant)}: {old} → {new} ({certainty}): {verdict}.")
    return sentences


def _certainty(accuracy: Float64[np.ndarray, " s"]) -> str:
    """Return the interval of a mean, the number of seeds, and how many of them diverged.

    An interval whose limits are the same percentage is left out.
    """
    n_seeds, n_diverged = len(accuracy), int(np.isnan(accuracy).sum())
    interval, text = mean_interval(accuracy), counted(n_seeds, "seed")
    if 0 < n_diverged < n_seeds:
        text += f", {n_diverged} diverged"
    return percent_limits(float(interval.low), float(interval.high), "95% interval {}, ") + text


def goal_of(before: Outcome, after: Outcome) -> float:
    """Return the accuracy that a variant with symmetric scores must reach to count as rescued.

    It is the best accuracy of any other variant, before or after the change: where the change makes
    the other variants fail, too, being as bad as they are is no rescue.
    """
    references = [(outcome, outcome.reference) for outcome in (before, after)]
    return max((each.mean(best) for each, best in references if best is not None), default=1.0)


def verdict_on(
    before: Float64[np.ndarray, " s"], after: Float64[np.ndarray, " s"], goal: float
) -> str:
    """Return the effect of a change in a few words, from the paired differences of the seeds.

    Args:
        before: Accuracy of every seed before the change; NaN where a seed diverged.
        after: Accuracy of the same seeds after the change.
        goal: Accuracy from `goal_of`.
    """
    if np.isnan(after).all():
        return "diverged"
    gain = paired_difference(after, before)
    if np.isnan(gain.mean):
        return "nothing to compare, since seeds diverged"
    if not np.isfinite([gain.low, gain.high]).all():
        return "not sure with one seed"
    if abs(gain.mean) < LEAST_GAIN:
        return "no real difference"
    if gain.low <= 0 <= gain.high:
        return "not sure with so few seeds"
    if gain.mean < 0:
        return "worse"
    return "rescued" if mean_interval(after).mean >= goal - NEAR else "partly rescued"
