"""Means, confidence intervals and deviations over seeds; missing values (NaN) are left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import bdtr, stdtrit

Array = np.ndarray


@dataclass(frozen=True)
class Interval:
    """Mean, or median, with its confidence limits; limits are NaN where too few values exist."""

    mean: Float[Array, " *n"]
    low: Float[Array, " *n"]
    high: Float[Array, " *n"]

    def within(self, least: float, most: float) -> Interval:
        """Return the interval with its limits clipped to the range of possible values."""
        return Interval(self.mean, self.low.clip(least, most), self.high.clip(least, most))


def mean_interval(values: Float[Array, "*n s"], level: float = 0.95) -> Interval:
    """Return the mean over the last axis with Student's t interval.

    Args:
        values: One number per seed; NaN where a seed has none.
        level: Probability that the interval covers the true mean, for normally distributed values.
    """
    values = np.asarray(values, dtype=np.float64)
    present = ~np.isnan(values)
    count = present.sum(-1)
    total = np.where(present, values, 0.0).sum(-1)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    squares = np.where(present, (values - mean[..., None]) ** 2, 0.0).sum(-1)
    freedom = np.where(count > 1, count - 1, np.nan)
    half = stdtrit(freedom, 0.5 + level / 2) * np.sqrt(squares / freedom / np.maximum(count, 1))
    return Interval(mean, mean - half, mean + half)


def median_interval(values: Float[Array, " s"], level: float = 0.95) -> Interval:
    """Return the median with the exact interval between two of the values, as by a sign test.

    Args:
        values: One number per seed, which may be infinite; NaN where a seed has none.
        level: Least probability that the interval covers the true median, for any distribution.
    """
    ordered = np.sort(values[~np.isnan(values)])
    n = len(ordered)
    n_beyond = int((bdtr(np.arange(n // 2), n, 0.5) <= (1 - level) / 2).sum())
    low, high = (ordered[n_beyond - 1], ordered[-n_beyond]) if n_beyond else (np.nan, np.nan)
    with np.errstate(invalid="ignore"):  # The middle of −∞ and ∞ is NaN.
        median = np.median(ordered) if n else np.nan
    return Interval(np.asarray(median), np.asarray(low), np.asarray(high))


def paired_difference(
    values: Float[Array, "*n s"], baseline: Float[Array, "*n s"], level: float = 0.95
) -> Interval:
    """Return the interval of `values - baseline`; equal indices are equal seeds."""
    return mean_interval(np.asarray(values, float) - np.asarray(baseline, float), level)


def standard_deviation(values: Float[Array, "*n s"]) -> Float[Array, " *n"]:
    """Return the sample standard deviation over the last axis; NaN for fewer than two values."""
    values = np.asarray(values, dtype=np.float64)
    present = ~np.isnan(values)
    deviations = np.where(present, values - mean_interval(values).mean[..., None], 0.0)
    freedom = np.where(present.sum(-1) > 1, present.sum(-1) - 1, np.nan)
    deviation: Array = np.sqrt((deviations**2).sum(-1) / freedom)
    return deviation
