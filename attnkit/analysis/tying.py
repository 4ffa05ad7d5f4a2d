"""Accuracy of trained models whose keys and values were tied afterwards, as values.

A trained QKV model can be changed to K=V in two ways. A mixture gives both roles the matrix
α W_K + (1 − α) W_V. A repair keeps W_K and multiplies the values by a linear map that is fitted on
activations. `attnkit.analysis.inspection.tying` measures both; this module holds the result and
imports no torch. `docs/value_maps.py` compares other maps.

If a head is as wide as the model and W_K is invertible, W_K⁻¹ W_V is a map without any error,
because then V = K W_K⁻¹ W_V. For the keys of all heads together this is Slim attention (Graef and
Wasielewski 2025, arXiv 2503.05840). A narrower head loses what its keys do not contain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from attnkit.analysis.recovery import percent_of
from attnkit.foundation.words import counted, listed
from attnkit.training.statistics import mean_interval, paired_difference
from attnkit.training.summary import fixed, percent

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
        return {name: getattr(self, name).astype(np.float32) for name in _ARRAYS}

    @property
    def header(self) -> dict[str, Any]:
        """All other attributes as plain values."""
        return {name: value for name, value in asdict(self).items() if name not in _ARRAYS}

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
        return pd.DataFrame(rows, columns=list(COLUMNS))

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
        """Sentence about the width of a head, which decides what its keys contain."""
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
        """Return the change from W_K for both to the map, in points, with its interval."""
        gain = paired_difference(self.fitted, self.kept_key)
        mean, low, high = (100 * float(value) for value in (gain.mean, gain.low, gain.high))
        if np.isnan(low) or round(low) == round(high):
            return _signed(mean)
        return f"{_signed(mean)} [{_signed(low)} to {_signed(high)}]"


COLUMNS = (
    "task", "sharing", "seed", "way", "alpha", "accuracy_before", "accuracy_after", "cka",
)  # fmt: skip
"""Columns of `TyingResult.table`."""

_ARRAYS = ("before", "mixed", "fitted", "cka")


def _signed(value: float) -> str:
    """Return a number without decimals, with plus or a true minus."""
    return fixed(value, 0, "+") if round(value) else "0"


def _stretches(good: Bool[np.ndarray, " a"]) -> str:
    """Return in words which mixtures are marked: every stretch of neighbours in `ALPHAS`."""
    indices = np.flatnonzero(good)
    texts = []
    for stretch in np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1):
        first, last = ALPHAS[stretch[0]], ALPHAS[stretch[-1]]
        texts.append(f"α = {first:g}" if first == last else f"α from {first:g} to {last:g}")
    return listed(texts, "or")
