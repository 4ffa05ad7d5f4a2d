"""Intervals over seeds, against scipy.stats."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from attnkit.training.statistics import (
    mean_interval,
    median_interval,
    paired_difference,
    standard_deviation,
)

VALUES = st.just(np.nan) | st.floats(-100, 100, allow_subnormal=False)
ROWS = hnp.arrays(float, st.tuples(st.integers(1, 3), st.integers(1, 7)), elements=VALUES)


def expected_of(values, level=0.95):
    """Mean, Student's limits and deviation of one row by scipy, NaN left out."""
    values = values[~np.isnan(values)]
    if len(values) < 2:  # one says nothing about the spread, none has no mean either
        return [*values, *[np.nan] * 4][:4]
    mean, error = values.mean(), stats.sem(values)
    limits = stats.t.interval(level, len(values) - 1, mean, error) if error else (mean, mean)
    return [mean, *limits, values.std(ddof=1)]


@given(ROWS, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_intervals_and_deviations_agree_with_scipy(values, level):
    """Intervals are those of every row without its gaps; paired ones are of the differences."""
    before = values.copy()
    for rows, found in (
        (values, mean_interval(values, level)),
        (values - values[:, ::-1], paired_difference(values, values[:, ::-1], level)),
    ):
        expected = np.array([expected_of(row, level) for row in rows])
        told = np.stack([found.mean, found.low, found.high, standard_deviation(rows)], -1)
        np.testing.assert_allclose(told, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(values, before)


@given(hnp.arrays(float, st.integers(0, 40), elements=VALUES), st.sampled_from([0.5, 0.9, 0.95]))
def test_the_interval_of_a_median_is_that_of_the_sign_test(values, level):
    """A limit is the value at which so many lie beyond it that a sign test does not refute it."""
    found, known = median_interval(values, level), np.sort(values[~np.isnan(values)])
    n = len(known)
    refuted = [k for k in range((n + 1) // 2) if 2 * stats.binom.cdf(k, n, 0.5) <= 1 - level]
    if not refuted:
        assert np.isnan([found.low, found.high]).all()
    else:
        assert (found.low, found.high) == (known[refuted[-1]], known[-1 - refuted[-1]])
        endless = median_interval(np.where(values > found.mean, np.inf, values), level)
        assert (endless.mean, endless.low) == (found.mean, found.low) or n % 2 == 0
    np.testing.assert_equal(found.mean, np.median(known) if n else np.nan)


def test_the_last_axis_is_averaged_in_double_precision_at_95_percent():
    """0, 1, 2: mean 1, half width t(2, 0.975) / √3. Leading axes stay."""
    found = mean_interval(np.tile(np.arange(3.0), (2, 5, 1)))
    half = 4.302652729911275 / np.sqrt(3)
    for limits, expected in ((found.mean, 1), (found.low, 1 - half), (found.high, 1 + half)):
        np.testing.assert_allclose(limits, np.full((2, 5), expected))
    many = np.full(3 * 10**5, 0.1, np.float32)
    assert mean_interval(many).mean == pytest.approx(np.float32(0.1), rel=1e-12)
