"""What rescues scores that must be symmetric: one change of an experiment at a time, measured.

Of the columns, those that must be symmetric are trained again, and one that need not be beside
them: the best there can be with the same change. A run does not depend on those that train beside
it, so the columns that are left out change no number. No torch here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import mean_interval, paired_difference
from attnkit.variants import InvalidVariant, Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing

UNTIED = {Sharing.Q_K: Sharing.QKV, Sharing.Q_K_V: Sharing.K_V}
"""What is left of a sharing if W_Q and W_K may differ."""

LEAST_GAIN = 0.03
"""Smaller differences of accuracy are called none, however sure they are."""

NEAR = 0.05
"""A column that comes so close to the goal is called rescued; see `goal_of`."""


@dataclass(frozen=True)
class Change:
    """One change of an experiment.

    Attributes:
        setting: which is changed; "sharing" if W_Q and W_K may differ.
        label: what there is afterwards, in a few words.
        experiment: the changed one.
    """

    setting: str
    label: str
    experiment: Experiment


@dataclass(frozen=True, eq=False)
class Outcome:
    """How an experiment ended.

    Attributes:
        experiment: what was trained.
        accuracy: variant → (s,) at the last evaluation.
    """

    experiment: Experiment
    accuracy: dict[Variant, Float64[np.ndarray, " s"]]

    @staticmethod
    def of(snapshot: Snapshot) -> Outcome:
        """At a snapshot's step."""
        last = snapshot.per_sharing(snapshot.history["accuracy"][-1]).astype(np.float64)
        return Outcome(
            snapshot.experiment, dict(zip(snapshot.experiment.sharing, last, strict=True))
        )

    def mean(self, variant: Variant) -> float:
        """Over the seeds."""
        return float(mean_interval(self.accuracy[variant]).mean)

    @property
    def reference(self) -> Variant | None:
        """The best of the columns that need not be symmetric, of those that have not diverged."""
        held = set(must_be_symmetric(self.experiment))
        others = [v for v in self.accuracy if v not in held and not np.isnan(self.mean(v))]
        return max(others, key=self.mean, default=None)


def must_be_symmetric(experiment: Experiment) -> list[Variant]:
    """The variants whose scores are symmetric by construction."""
    return [v for v in experiment.sharing if experiment.wiring(v).symmetric]


def changes_of(experiment: Experiment) -> list[Change]:
    """What can be changed in an experiment that has a column that must be symmetric."""
    found = []
    for setting, wanted in _wanted(experiment):
        try:
            changed = experiment.replace(**{"sharing": _kept(experiment), setting: wanted})
        except (InvalidExperiment, InvalidVariant):
            continue
        found.append(Change(setting, state_of(changed, setting), changed))
    return found


def _wanted(experiment: Experiment) -> Iterator[tuple[str, Any]]:
    """The settings and their new values, allowed or not."""
    size = experiment.size
    yield "n_heads", 4 if size.n_heads < 4 else 8
    yield "n_layers", size.n_layers + 1
    if not size.d_mlp:
        yield "d_mlp", 4 * size.d_model
    yield "d_model", 2 * size.d_model
    yield "steps", 3 * experiment.training.steps
    if not size.self_mask:
        yield "self_mask", True
    twins = [untied(variant) for variant in must_be_symmetric(experiment)]
    new = [twin for twin in twins if twin is not None and twin not in experiment.sharing]
    if new:
        yield "sharing", [*_kept(experiment), *dict.fromkeys(new)]


def _kept(experiment: Experiment) -> list[Variant]:
    """The columns that are trained again, in their order."""
    held = must_be_symmetric(experiment)
    others = [variant for variant in experiment.sharing if variant not in held]
    return [v for v in experiment.sharing if v in held or v in others[:1]]


def untied(variant: Variant) -> Variant | None:
    """The same with matrices of their own for Q and K; None if there is no such variant."""
    if variant.sharing not in UNTIED or variant.identity or len(variant.stages) > 1:
        return None
    _, *words = variant.value.split()
    try:
        return Variant(" ".join([UNTIED[variant.sharing].value, *words]))
    except InvalidVariant:
        return None


def state_of(experiment: Experiment, setting: str) -> str:
    """What an experiment has of a setting, in a few words."""
    size = experiment.size
    match setting:
        case "n_heads":
            return f"{size.n_heads} head{'s' * (size.n_heads > 1)}"
        case "n_layers":
            return f"{size.n_layers} layer{'s' * (size.n_layers > 1)}"
        case "d_mlp":
            return f"an MLP of {size.d_mlp}" if size.d_mlp else "no MLP"
        case "d_model":
            return f"a model width of {size.d_model}"
        case "steps":
            return f"{experiment.training.steps:,} steps"
        case "self_mask":
            return "a self-mask" if size.self_mask else "no self-mask"
        case "sharing":
            return "W_Q and W_K apart"
    raise ValueError(f"setting: got {setting!r}, allowed those of Change")


def told(before: Outcome, after: Outcome, setting: str) -> list[str]:
    """What a change has done to every column that must be symmetric, a sentence for each."""
    found = []
    for variant in must_be_symmetric(before.experiment):
        twin = untied(variant) if setting == "sharing" else variant
        if twin is None or twin not in after.accuracy:
            continue
        became = "" if twin == variant else f" ({title_of(twin)})"
        was = number(before.mean(variant))
        if setting != "sharing":
            was += f" with {state_of(before.experiment, setting)}"
        is_now = number(after.mean(twin))
        is_now += f" with {state_of(after.experiment, setting)}{became}"
        verdict = verdict_on(before.accuracy[variant], after.accuracy[twin], goal_of(before, after))
        sure = _sure(after.accuracy[twin])
        found.append(f"{title_of(variant)}: {was} → {is_now} ({sure}): {verdict}.")
    return found


def number(accuracy: float) -> str:
    """An accuracy, readable."""
    return "diverged" if np.isnan(accuracy) else f"{accuracy:.2f}"


def _sure(accuracy: Float64[np.ndarray, " s"]) -> str:
    """How sure a mean is: its interval, how many seeds, how many of them diverged."""
    n_seeds, n_lost = len(accuracy), int(np.isnan(accuracy).sum())
    interval, told = mean_interval(accuracy), f"{n_seeds} seed{'s' * (n_seeds > 1)}"
    if 0 < n_lost < n_seeds:
        told += f", {n_lost} diverged"
    if np.isfinite(interval.low):
        told = f"95% interval {max(0, interval.low):.2f} to {min(1, interval.high):.2f}, {told}"
    return told


def goal_of(before: Outcome, after: Outcome) -> float:
    """What a column that must be symmetric has to reach: the best there was without the need to be.

    Before the change or after it: if those fail with it, too, to be as bad as they is no rescue.
    """
    references = [(own, own.reference) for own in (before, after)]
    return max((own.mean(best) for own, best in references if best is not None), default=1.0)


def verdict_on(
    before: Float64[np.ndarray, " s"], after: Float64[np.ndarray, " s"], goal: float
) -> str:
    """A change's effect in a few words, from the differences seed by seed.

    Args:
        before, after: NaN where a seed diverged.
        goal: accuracy near which it is rescued.
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
