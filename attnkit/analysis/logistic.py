"""Point at which half of the runs succeed, from a penalised logistic regression, with its band.

Runs that succeed at every large value and at none of the small ones are *separated*: the slope of
the usual regression is then infinite, and a bootstrap over seeds draws the same runs every time,
so that its band has no width. Firth's penalty, half the logarithm of the determinant of the
information, keeps the slope finite, and the profile of the penalised likelihood covers the gap
between the last value that fails and the first that succeeds.

Source:
    Firth, "Bias reduction of maximum likelihood estimates", Biometrika 80 (1993); Heinze and
    Schemper, "A solution to the problem of separation in logistic regression", Statistics in
    Medicine 21 (2002), for the profile of the penalised likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.special import chdtri, log_expit

_N_POINTS, _N_SLOPES = 241, 48
"""Size of the grid of half points and slopes on which the likelihood is computed."""

_SLOPES = (0.5, 128.0)
"""Smallest and largest slope, per range of the values divided by four."""


@dataclass(frozen=True)
class HalfPoint:
    """Value at which half of the runs succeed, with the limits of its band.

    A number outside of the tested values is not extrapolated: it is infinite, with the sign of its
    side. A limit is infinite only if it lies further outside than `reach`.
    """

    value: float
    low: float
    high: float


def half_point(
    values: Float[np.ndarray, " x"],
    n_solved: Float[np.ndarray, " x"],
    n_runs: Float[np.ndarray, " x"],
    *,
    rises: bool = True,
    reach: float = 1.0,
) -> HalfPoint:
    """Return the value at which half of the runs succeed, with its 95% band.

    The likelihood is computed on a grid, so the result is always the same.

    Args:
        values: Tested values, at least two different ones.
        n_solved: Number of runs that succeeded at each value.
        n_runs: Number of runs at each value.
        rises: Whether more runs succeed at larger values.
        reach: Distance outside of the tested values up to which limits are searched.
    """
    lowest, highest = float(values.min()), float(values.max())
    grid = _grid_of(tuple(values.tolist()), rises, reach)
    likelihood = grid.log_success @ n_solved + grid.log_failure @ (n_runs - n_solved)
    centred = values - (lowest + highest) / 2
    sums = grid.weight @ np.array([n_runs, n_runs * centred, n_runs * centred**2]).T
    information = sums[..., 0] * sums[..., 2] - sums[..., 1] ** 2
    penalised = likelihood + 0.5 * np.log(np.maximum(information, 1e-300))
    profile = penalised.max(1)
    best, points = int(profile.argmax()), grid.points
    value = float(points[best])
    inside = np.flatnonzero(profile >= profile[best] - chdtri(1, 0.05) / 2)
    low, high = float(points[inside[0]]), float(points[inside[-1]])
    return HalfPoint(
        -np.inf if value < lowest else np.inf if value > highest else value,
        -np.inf if inside[0] == 0 else low,
        np.inf if inside[-1] == _N_POINTS - 1 else high,
    )


@dataclass(frozen=True, eq=False)
class _Grid:
    """Terms of the likelihood at every half point and slope, for runs at each value.

    Attributes:
        points: Half points, (point,).
        log_success: Logarithm of the probability of success, (point, slope, x).
        log_failure: Logarithm of the probability of failure, (point, slope, x).
        weight: Variance of an outcome, (point, slope, x).
    """

    points: np.ndarray
    log_success: np.ndarray
    log_failure: np.ndarray
    weight: np.ndarray


@lru_cache(maxsize=16)
def _grid_of(values: tuple[float, ...], rises: bool, reach: float) -> _Grid:
    """Return the grid of some values, the same for all variants and rows of a sweep."""
    lowest, highest = min(values), max(values)
    points = np.linspace(lowest - reach, highest + reach, _N_POINTS)
    scale = 4 / (highest - lowest)
    slopes = np.geomspace(*_SLOPES, _N_SLOPES) * (scale if rises else -scale)
    score = slopes[:, None] * (np.array(values) - points[:, None, None])
    log_success, log_failure = log_expit(score), log_expit(-score)
    return _Grid(points, log_success, log_failure, np.exp(log_success + log_failure))
