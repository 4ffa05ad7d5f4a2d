"""Boundary between the settings at which a variant solves the task and those at which it does not.

At every value of one axis, such as the number of entries, the boundary is the value of the other,
such as the head width, at which half of the seeds solve the task. It comes from a logistic
regression of its own at each value of the axis, because real boundaries are neither straight nor
monotone: some seeds fail at wide heads, and small tasks are sometimes learnt later than larger
ones. `half_point` explains the regression and its band.

Ratios of two boundaries combine the bands of both, as if the runs of both variants were
independent. Runs with the same seed see the same examples, so their outcomes tend to agree and the
intervals are, if anything, too wide.

Source:
    Firth, "Bias reduction of maximum likelihood estimates", Biometrika 80 (1993); Heinze and
    Schemper, "A solution to the problem of separation in logistic regression", Statistics in
    Medicine 21 (2002), for the profile of the penalised likelihood; Zou and Donner, "Construction
    of confidence limits about effect measures: a general approach", Statistics in Medicine 27
    (2008), for intervals of sums and differences from their parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from jaxtyping import Float
from scipy.special import chdtri, log_expit

from attnkit.foundation.settings import Value
from attnkit.sweeps.cells import runs_at

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.sweeps.result import SweepResult

_REACH = 2.0
"""Factors of two outside of the values of a sweep up to which the limits of a band are searched."""

_N_POINTS, _N_SLOPES = 241, 48
"""Size of the grid of half points and slopes on which the likelihood is computed."""


@dataclass(frozen=True, eq=False)
class Boundary:
    """Values of one axis at which half of the seeds of a variant solve the task.

    Attributes:
        sharing: Text form of the variant.
        x: Axis whose values are found.
        y: Axis at whose values they are found; None if the sweep has one axis.
        at: Values of the axis `y`; an empty text if there is none.
        half: Value of `x` at which half of the seeds solve the task; −∞ or ∞ where it lies below or
            above all values of the sweep, since it is not extrapolated.
        low: Lower 95% limits of `half`; −∞ where there is none.
        high: Upper 95% limits of `half`; ∞ where there is none.
        rises: Whether larger values of `x` help.
        has_ratios: Whether all values of `x` are above 0, so that boundaries have ratios.
    """

    sharing: str
    x: str
    y: str | None
    at: list[Value]
    half: Float[np.ndarray, " y"]
    low: Float[np.ndarray, " y"]
    high: Float[np.ndarray, " y"]
    rises: bool
    has_ratios: bool

    @property
    def measured(self) -> Float[np.ndarray, " y"]:
        """Whether the boundary lies within the values of the sweep, for each value of `y`."""
        return np.asarray(np.isfinite(self.half))


def boundary(
    result: SweepResult,
    sharing: str,
    x: str,
    y: str | None = None,
    fixed: Mapping[str, Value] | None = None,
) -> Boundary | None:
    """Return the boundary of a variant, with a value in `fixed` for every other axis.

    It is None if all or none of the runs solve the task, if `x` has no numbers, or if nowhere two
    values of it are trained.
    """
    runs = runs_at(result, fixed or {}, x, y)
    values = result.sweep.axes[x]
    if len(values) < 2 or not all(map(is_number, values)):
        return None
    rises = _rises(runs, x)
    runs = runs[runs["sharing"] == sharing]
    if runs["steps_to_threshold"].notna().nunique() < 2:
        return None
    logarithmic = is_logarithmic(values)
    rows, found = list[Value](), []
    for at, of_row in [("", runs)] if y is None else runs.groupby(y, sort=False):
        table = of_row.groupby(x)["steps_to_threshold"].agg(["count", "size"])
        if len(table) < 2:
            continue
        numbers = table.index.to_numpy(float)
        numbers = np.log2(numbers) if logarithmic else numbers
        reach = _REACH if logarithmic else float(np.ptp(numbers)) / 2
        n_solved, n_runs = table["count"].to_numpy(float), table["size"].to_numpy(float)
        rows.append(cast("Value", at))
        found.append(half_point(numbers, n_solved, n_runs, rises=rises, reach=reach))
    if not rows:
        return None
    limits = np.array(found).T
    if logarithmic:
        limits = np.where(np.isfinite(limits), np.exp2(limits), limits)
    half, low, high = limits
    return Boundary(sharing, x, y, rows, half, low, high, rises, logarithmic)


def is_logarithmic(values: Sequence[Value]) -> bool:
    """Return whether all values of an axis are numbers above 0, which have logarithms."""
    return all(is_number(value) and float(value) > 0 for value in values)


def is_number(value: Value) -> bool:
    """Return whether a value is a number, neither a text nor a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rises(runs: pd.DataFrame, x: str) -> bool:
    """Return whether more runs, of all variants together, solve the task at larger values."""
    shares = runs["steps_to_threshold"].notna().groupby(runs[x]).mean()
    numbers = shares.index.to_numpy(float)
    return bool(((numbers - numbers.mean()) * shares.to_numpy(float)).sum() >= 0)


class MeanRatio(NamedTuple):
    """Geometric mean of the ratios of two boundaries, over the values at which both were found.

    Attributes:
        ratio: Mean ratio; NaN if no value is common.
        low: Lower 95% limit; 0 if there is none.
        high: Upper 95% limit; infinite if there is none.
        n_compared: Number of values in the mean.
    """

    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n_compared: int = 0

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low > 1 or self.high < 1


def mean_ratio(a: Boundary | None, b: Boundary | None) -> MeanRatio:
    """Return the mean ratio of the boundary of `a` to that of `b`."""
    if a is None or b is None or not (a.has_ratios and b.has_ratios):
        return MeanRatio()
    places = {at: row for row, at in enumerate(b.at) if b.measured[row]}
    of_a = [row for row, at in enumerate(a.at) if a.measured[row] and at in places]
    if not of_a:
        return MeanRatio()
    rows = ((a, of_a), (b, [places[a.at[row]] for row in of_a]))
    with np.errstate(divide="ignore"):  # a limit of 0
        (mid_a, low_a, high_a), (mid_b, low_b, high_b) = (
            np.log2(np.clip([line.half[at], line.low[at], line.high[at]], 0, None))
            for line, at in rows
        )
    mean, n = float((mid_a - mid_b).mean()), len(of_a)
    below = float(np.sqrt(((mid_a - low_a) ** 2 + (high_b - mid_b) ** 2).sum())) / n
    above = float(np.sqrt(((high_a - mid_a) ** 2 + (mid_b - low_b) ** 2).sum())) / n
    return MeanRatio(2**mean, 2 ** (mean - below), 2 ** (mean + above), n)


class HalfPoint(NamedTuple):
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

    Runs that succeed at every large value and at none of the small ones are *separated*: the slope
    of the usual logistic regression is then infinite, and a bootstrap over seeds draws the same
    runs every time, so that its band has no width. Firth's penalty, half the logarithm of the
    determinant of the information, keeps the slope finite, and the profile of the penalised
    likelihood covers the gap between the last value that fails and the first that succeeds. It is
    computed on a grid, so the result is always the same.

    Args:
        values: Tested values, at least two different ones.
        n_solved: Number of runs that succeeded at each value.
        n_runs: Number of runs at each value.
        rises: Whether more runs succeed at larger values.
        reach: Distance outside of the tested values up to which limits are searched.
    """
    lowest, highest = float(values.min()), float(values.max())
    points, success, failure, weight = _terms_of(tuple(values.tolist()), rises, reach)
    likelihood = success @ n_solved + failure @ (n_runs - n_solved)
    centred = values - (lowest + highest) / 2
    sums = weight @ np.array([n_runs, n_runs * centred, n_runs * centred**2]).T
    information = sums[..., 0] * sums[..., 2] - sums[..., 1] ** 2
    penalised = likelihood + 0.5 * np.log(np.maximum(information, 1e-300))
    profile = penalised.max(1)
    best = int(profile.argmax())
    value = float(points[best])
    inside = np.flatnonzero(profile >= profile[best] - chdtri(1, 0.05) / 2)
    low, high = float(points[inside[0]]), float(points[inside[-1]])
    return HalfPoint(
        -np.inf if value < lowest else np.inf if value > highest else value,
        -np.inf if inside[0] == 0 else low,
        np.inf if inside[-1] == _N_POINTS - 1 else high,
    )


@lru_cache(maxsize=16)
def _terms_of(
    values: tuple[float, ...], rises: bool, reach: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return half points (point,) and terms of the likelihood at each, (point, slope, x).

    The terms are the logarithms of the probabilities of success and of failure, and the variance of
    an outcome. They are the same for all variants and rows of a sweep.
    """
    lowest, highest = min(values), max(values)
    points = np.linspace(lowest - reach, highest + reach, _N_POINTS)
    scale = 4 / (highest - lowest)
    slopes = np.geomspace(0.5, 128, _N_SLOPES) * (scale if rises else -scale)
    score = slopes[:, None] * (np.array(values) - points[:, None, None])
    log_success, log_failure = log_expit(score), log_expit(-score)
    return points, log_success, log_failure, np.exp(log_success + log_failure)
