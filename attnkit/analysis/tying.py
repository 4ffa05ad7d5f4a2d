"""Trained models whose matrices are tied afterwards: the loss at once, and further training.

A trained QKV model can be changed to K=V in two ways. A mixture gives both roles the matrix
α W_K + (1 − α) W_V. A repair keeps W_K and multiplies the values by a linear map that is fitted on
activations. `attnkit.analysis.inspection.surgery` measures both; this module holds the result and
imports no torch. `docs/value_maps.py` compares other maps.

If a head is as wide as the model and W_K is invertible, W_K⁻¹ W_V is a map without any error,
because then V = K W_K⁻¹ W_V. For the keys of all heads together this is Slim attention (Graef and
Wasielewski 2025, arXiv 2503.05840). A narrower head loses what its keys do not contain.

Further training (`train_on`) repeats the finished run, which gives the same numbers, ties it as the
text of its variant says, and continues; for comparison, the same run also continues untied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from attnkit.experiment import Experiment
from attnkit.experiment.experiment import MAX_EVALUATIONS
from attnkit.foundation.tables import csv_table
from attnkit.foundation.words import counted, listed
from attnkit.training.snapshot import Snapshot
from attnkit.training.statistics import Interval, mean_interval, paired_difference
from attnkit.training.summary import fixed, percent, percent_limits
from attnkit.variants import Variant
from attnkit.variants.tying import TieAtOption

if TYPE_CHECKING:
    import pandas as pd

ALPHAS = tuple(round(0.05 * index, 2) for index in range(21))
"""Shares of W_K in the mixtures: 0 keeps W_V, 0.5 is the average, 1 keeps W_K."""

MIXTURE_NAMES = {0.0: "keep W_V", 0.5: "average", 1.0: "keep W_K"}
"""Names of the mixtures that are known by a name, as on screen."""

SAME = 0.01
"""Largest difference of accuracy that counts as none."""

NEAR_CHANCE = 0.05
"""Distance from chance below which a model has learnt little that tying could cost."""

SMALLEST = 1e-5
"""Smallest singular value of the keys, as a share of the largest, that a fit uses. Smaller ones are
rounding errors of activations in single precision."""

MOST_SEEDS = 5
"""Most seeds that a page ties: enough for an interval, few enough to wait for."""

_LEAST_AFTER = 0.25
"""Least steps after tying, as a share of the run's; the run is tied earlier if need be."""


def linear_map(
    keys: Float[np.ndarray, "*n t d"], values: Float[np.ndarray, "*n t e"]
) -> Float[np.ndarray, "*n d e"]:
    """Return the map M with the smallest ‖K M − V‖; of several, the one with the smallest ‖M‖.

    Args:
        keys: Keys of t tokens.
        values: Values of the same tokens.
    """
    keys, values = (np.asarray(one, np.float64) for one in (keys, values))
    transposed = np.swapaxes(keys, -2, -1)
    inverse = np.linalg.pinv(transposed @ keys, rcond=SMALLEST**2, hermitian=True)
    fitted: np.ndarray = inverse @ (transposed @ values)
    return fitted


@dataclass(frozen=True, eq=False)
class TyingResult:
    """Accuracies of one trained variant after its keys and values were tied, for every seed.

    Attributes:
        task: Name of the task.
        variant: Text form of the trained variant.
        seeds: Seeds of the runs.
        step: Training step after which they were tied.
        chance: Accuracy of a simple guess.
        n_examples: Number of held-out examples that every accuracy is measured on.
        d_head: Width of a head.
        d_model: Width of the model.
        before: Accuracy before tying; NaN for a run that has diverged, in all arrays.
        mixed: Accuracy with every mixture of `ALPHAS`.
        fitted: Accuracy with W_K for both and values multiplied by the fitted map.
        cka: Linear CKA of the keys and values of every layer and key-value head, on the training
            examples that the map is fitted on.
    """

    task: str
    variant: str
    seeds: tuple[int, ...]
    step: int
    chance: float
    n_examples: int
    d_head: int
    d_model: int
    before: Float[np.ndarray, " s"]
    mixed: Float[np.ndarray, "s a"]
    fitted: Float[np.ndarray, " s"]
    cka: Float[np.ndarray, "s l h"]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays by name, as single precision."""
        arrays = {n: v for n, v in vars(self).items() if isinstance(v, np.ndarray)}
        return {name: array.astype(np.float32) for name, array in arrays.items()}

    @property
    def header(self) -> dict[str, Any]:
        """All other attributes as plain values."""
        return {n: v for n, v in vars(self).items() if not isinstance(v, np.ndarray)}

    @staticmethod
    def from_parts(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> TyingResult:
        """Create a result from its `header` and `arrays`, which JSON may have changed to lists."""
        return TyingResult(**{**header, **arrays, "seeds": tuple(header["seeds"])})

    @property
    def kept_key(self) -> Float[np.ndarray, " s"]:
        """Accuracy with W_K for both, without a repair."""
        return self.mixed[:, -1]

    @property
    def table(self) -> pd.DataFrame:
        """Table with one row per seed and way to tie.

        Columns: `task`, `sharing`, `seed`, `way` ("mixture" or "fitted map"), `alpha` (NaN for the
        map), `accuracy_before`, `accuracy_after`, and `cka`, the mean over layers and heads.
        """
        import pandas as pd

        ways = [*(("mixture", alpha) for alpha in ALPHAS), ("fitted map", np.nan)]
        after = np.column_stack([self.mixed, self.fitted])
        rows = [
            (self.task, self.variant, seed, *way, before, accuracy, cka)
            for seed, before, cka, accuracies in zip(
                self.seeds, self.before, self.cka.mean((1, 2)), after, strict=True
            )
            for way, accuracy in zip(ways, accuracies, strict=True)
        ]
        columns = ["task", "sharing", "seed", "way", "alpha"]
        return pd.DataFrame(rows, columns=[*columns, "accuracy_before", "accuracy_after", "cka"])

    @property
    def mean_cka(self) -> float:
        """Mean of `cka` over seeds, layers and heads; NaN if all runs have diverged."""
        return float(mean_interval(self.cka.ravel()).mean)

    @property
    def has_diverged(self) -> bool:
        """Whether all runs have diverged, so that no accuracy is a number."""
        return bool(np.isnan(self.before).all())

    @property
    def has_learnt(self) -> bool:
        """Whether the mean accuracy before tying is clearly above chance."""
        return bool(mean_interval(self.before).mean >= self.chance + NEAR_CHANCE)

    @property
    def near_best(self) -> Bool[np.ndarray, " a"]:
        """Which mixtures are not shown to be more than `SAME` worse than the best one.

        Shown: the 95% interval of the differences, seed by seed, lies above it. With one seed, the
        difference itself decides.
        """
        best = int(np.nanargmax(mean_interval(self.mixed.T).mean))
        short = paired_difference(self.mixed[:, best], self.mixed.T)
        near: np.ndarray = np.where(np.isnan(short.low), short.mean, short.low) <= SAME
        return near

    @property
    def mixture_finding(self) -> str:
        """Sentences about the mixtures that keep the most accuracy."""
        if self.has_diverged:
            return "All runs have diverged, so nothing can be tied."
        before = percent_of(mean_interval(self.before))
        if not self.has_learnt:
            chance = percent(self.chance)
            return f"The model has learnt little yet: {before} before tying, {chance} by chance."
        mean, near = mean_interval(self.mixed.T).mean, self.near_best
        best = int(np.nanargmax(mean))
        most = percent_of(mean_interval(self.mixed[:, best]))
        if mean.min() >= mean[best] - SAME:
            return (
                f"All mixtures have about the same accuracy: {most}, against {before} before tying."
            )
        best_ones = (
            f"The best mixture has {_stretches(near)}: {most}"
            if near.sum() == 1
            else f"The best mixtures have {_stretches(near)}: up to {most}"
        )
        average, value, key = (
            percent(float(mean[ALPHAS.index(alpha)])) for alpha in (0.5, 0.0, 1.0)
        )
        return (
            f"{best_ones} right, against {before} before tying. "
            f"The average has {average}, W_V alone {value}, W_K alone {key}."
        )

    @property
    def repair_finding(self) -> str:
        """Sentences about the change of accuracy by W_K for both, and by the map after it."""
        if not self.has_learnt:
            return ""
        kept, before = (float(mean_interval(v).mean) for v in (self.kept_key, self.before))
        lost = before - kept
        if lost <= SAME:
            little = "nothing" if lost <= 0 else "at most one point"
            return f"Keeping W_K loses {little} ({percent(kept)}): there is nothing to repair."
        gain = self._gain()
        unit = "point" if gain in ("+1", "−1") else "points"
        return (
            f"With W_K for both, accuracy falls by {counted(round(100 * lost), 'point')}. A fitted "
            f"linear map changes it by {gain} {unit}. {self._reason}"
        )

    @property
    def _reason(self) -> str:
        width = self.d_head
        if width < self.d_model:
            return (
                f"Heads have {counted(width, 'number')} and the model {self.d_model}: a map can "
                "give back only what the keys of a head contain."
            )
        return (
            "That a map repairs this model is algebra: its heads are as wide as the model, so W_K "
            "has an inverse, and V = K W_K⁻¹ W_V (arXiv 2503.05840)."
        )

    def _gain(self) -> str:
        gain = paired_difference(self.fitted, self.kept_key)
        mean, low, high = (100 * float(value) for value in (gain.mean, gain.low, gain.high))
        if np.isnan(low) or round(low) == round(high):
            return _signed(mean)
        return f"{_signed(mean)} [{_signed(low)} to {_signed(high)}]"


def _signed(value: float) -> str:
    return fixed(value, 0, "+") if round(value) else "0"


def _stretches(good: Bool[np.ndarray, " a"]) -> str:
    """Return in words which mixtures are marked: every stretch of neighbours in `ALPHAS`."""
    indices = np.flatnonzero(good)
    texts = []
    for stretch in np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1):
        first, last = ALPHAS[stretch[0]], ALPHAS[stretch[-1]]
        texts.append(f"α = {first:g}" if first == last else f"α from {first:g} to {last:g}")
    return listed(texts, "or")


def train_on(run: Experiment, seed: int, variant: str, text: str, most_steps: int) -> Experiment:
    """Return an experiment that repeats a run, ties it where it ended, and trains it as long again.

    Its other variant is the same run, never tied.

    Args:
        run: Experiment of the finished run, with all its seeds.
        seed: Seed of the experiment that must be trained again; others are added as far as allowed.
        variant: Variant of the experiment that is tied.
        text: Text form of that variant with the tying, but without its time.
        most_steps: Most steps of an experiment; a run of nearly as many steps is tied halfway.

    Raises:
        InvalidVariant, InvalidExperiment: If there is no such experiment; names what is wrong.
    """
    training = run.training
    steps = min(2 * training.steps, most_steps)
    tied_at = training.steps if steps >= (1 + _LEAST_AFTER) * training.steps else steps // 2
    share = round(tied_at / steps, 6)
    when = "" if share == TieAtOption.implied else f" tie_at={share}"
    tied = Variant(f"{text}{when}")
    seeds = run.seeds
    n_seeds = min(len(seeds), MOST_SEEDS)
    settings = {
        "sharing": [tied.stages[0], tied],
        "first_seed": min(seed, seeds[-1] - n_seeds + 1),
        "n_seeds": n_seeds,
        "steps": steps,
        "schedule": "constant",
        "evaluate_every": max(training.evaluate_every, -(-steps // MAX_EVALUATIONS)),
        "warm_up": training.warm_up * training.steps / steps,
    }
    if run.equal != "nothing":  # keep the widths that equal costs have led to
        size = run.adjusted(variant).size
        settings |= {"equal": "nothing", "d_head": size.d_head, "d_mlp": size.d_mlp}
    return run.replace(**settings)


@dataclass(frozen=True, eq=False)
class Recovery:
    """Effect of tying on the accuracy so far. Intervals are over seeds.

    Attributes:
        step: Step at which it was tied.
        steps_since: Steps trained since then.
        before: Accuracy at that step without tying.
        at_once: Accuracy at that step, just after tying.
        now: Accuracy of the tied variant at the last evaluation.
        untied_now: Accuracy of the untied variant at the last evaluation.
        back_after: Steps until each seed came within `SAME` of its accuracy before; NaN if never.
        finished: Whether the training has ended.
    """

    step: int
    steps_since: int
    before: Interval
    at_once: Interval
    now: Interval
    untied_now: Interval
    back_after: Float[np.ndarray, " s"]
    finished: bool

    @property
    def finding(self) -> str:
        """Fall and recovery of the accuracy in two or three short sentences."""
        fall = f"Tied at step {self.step}: {percent_of(self.before)} → {percent_of(self.at_once)}"
        if self.steps_since == 0:
            return f"{fall} at once."
        back = self.back_after[~np.isnan(self.back_after)]
        later = f"{self.steps_since} steps later"
        if not np.isnan(self.back_after).any() and not back.any():
            little = "nothing" if self.at_once.mean >= self.before.mean else "at most one point"
            return f"{fall}, so {little} was lost. {later}: {percent_of(self.now)}."
        return (
            f"{fall} at once. {self._return}. {later} it has {percent_of(self.now)}, untied "
            f"{percent_of(self.untied_now)}."
        )

    @property
    def _return(self) -> str:
        n_seeds = len(self.back_after)
        back = np.unique(self.back_after[~np.isnan(self.back_after)])
        if not len(back):
            return "Not back" if self.finished else "Not back yet"
        n_back = int((~np.isnan(self.back_after)).sum())
        whose = "every seed" if n_back == n_seeds else f"{n_back} of {n_seeds} seeds"
        when = " to ".join(f"{steps:.0f}" for steps in dict.fromkeys((back[0], back[-1])))
        return f"Back{f' with {whose}' if n_seeds > 1 else ''} after {when} steps"


def recovery_of(snapshot: Snapshot) -> Recovery | None:
    """Return the effect of tying in an experiment of `train_on`; None before it is tied."""
    experiment = snapshot.experiment
    tied = tied_variant(experiment)
    step = experiment.tie_step(tied)
    accuracy = snapshot.per_sharing(snapshot.history["accuracy"])  # (e, variant, seed)
    since = snapshot.eval_steps >= step
    if not since.any():
        return None
    of_tied = accuracy[since, experiment.sharing.index(tied)]
    of_untied = accuracy[since, experiment.sharing.index(tied.stages[0])]
    near = of_tied >= of_untied[0] - SAME
    first = snapshot.eval_steps[since][near.argmax(0)] - step
    return Recovery(
        step,
        int(snapshot.eval_steps[-1]) - step,
        mean_interval(of_untied[0]),
        mean_interval(of_tied[0]),
        mean_interval(of_tied[-1]),
        mean_interval(of_untied[-1]),
        np.where(near.any(0), first, np.nan),
        snapshot.status != "running",
    )


def tied_variant(experiment: Experiment) -> Variant:
    """Return the variant of a `train_on` experiment that is tied during training."""
    return next(variant for variant in experiment.sharing if len(variant.stages) > 1)


def percent_of(interval: Interval) -> str:
    """Return a mean in percent, with its interval if there is one."""
    if np.isnan(interval.mean):
        return "diverged"
    low, high, mean = (float(value) for value in (interval.low, interval.high, interval.mean))
    return percent(mean) + percent_limits(low, high, " [{}]")


def curve_table(snapshot: Snapshot) -> str:
    """Return every evaluation of every run as CSV."""
    history = snapshot.history
    measures = (history["accuracy"], history["loss"], snapshot.asymmetry)
    rows = [
        (step, variant.value, seed, *(values[evaluation, run] for values in measures))
        for evaluation, step in enumerate(snapshot.eval_steps)
        for run, (variant, seed) in enumerate(snapshot.experiment.runs)
    ]
    return csv_table(["step", "sharing", "seed", "accuracy", "loss", "asymmetry"], rows)
