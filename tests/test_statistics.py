"""Intervals over seeds, against scipy.stats."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from attnkit.training.statistics import mean_interval, paired_difference

VALUES = st.floats(-100, 100, allow_subnormal=False)
ROWS = hnp.arrays(float, st.tuples(st.integers(1, 3), st.integers(2, 7)), elements=VALUES)


def expected_interval(values, level):
    """Mean and Student's t limits of one row by scipy, NaN left out."""
    values = values[~np.isnan(values)]
    error = stats.sem(values)
    if error == 0:  # scipy gives NaN for a distribution without width
        return values.mean(), values.mean(), values.mean()
    return values.mean(), *stats.t.interval(level, len(values) - 1, values.mean(), error)


@given(ROWS, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_interval_agrees_with_scipy(values, level):
    """Mean and limits of every row at several levels."""
    found = mean_interval(values, level)
    expected = np.array([expected_interval(row, level) for row in values])
    np.testing.assert_allclose(found.mean, expected[:, 0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.low, expected[:, 1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.high, expected[:, 2], rtol=1e-9, atol=1e-9)


@given(ROWS, st.data())
def test_missing_values_are_left_out(values, data):
    """NaN anywhere in a row gives the interval of the others."""
    row = values[0]
    gaps = data.draw(st.lists(st.integers(0, len(row)), max_size=3))
    found = mean_interval(np.insert(row, gaps, np.nan))
    expected = mean_interval(row)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(found.low, expected.low, atol=1e-9)
    np.testing.assert_allclose(found.high, expected.high, atol=1e-9)


def test_default_level_is_95_percent():
    """0, 1, 2: mean 1, half width t(2, 0.975) / √3."""
    found = mean_interval(np.array([0.0, 1.0, 2.0]))
    half = 4.302652729911275 / np.sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx((1, 1 - half, 1 + half))


def test_few_values_have_no_limits():
    """One says nothing about the spread, none has no mean either; nothing warns."""
    for values in ([0.7], [np.nan, 0.7, np.nan]):
        found = mean_interval(np.array(values))
        assert found.mean == 0.7
        assert np.isnan([found.low, found.high]).all()
    found = mean_interval(np.full((2, 3), np.nan))
    assert np.isnan([found.mean, found.low, found.high]).all()


def test_the_last_axis_is_averaged_in_double_precision():
    """Leading axes stay, many float32 values lose nothing, and the input is not changed."""
    values = np.arange(2 * 3 * 5.0).reshape(2, 3, 5)
    values[0, 0, 0] = np.nan
    before = values.copy()
    np.testing.assert_array_equal(mean_interval(values).mean, np.nanmean(values, -1))
    np.testing.assert_array_equal(values, before)
    many = np.full(3 * 10**5, 0.1, np.float32)
    assert mean_interval(many).mean == pytest.approx(np.float32(0.1), rel=1e-12)


@given(ROWS)
def test_paired_difference_is_the_interval_of_differences(values):
    """Seed by seed, then as any mean."""
    baseline = values[:, ::-1]
    found, expected = paired_difference(values, baseline), mean_interval(values - baseline)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.low, expected.low)
    np.testing.assert_array_equal(found.high, expected.high)


def test_paired_difference_needs_both_of_a_pair():
    """A constant gap has no width, however much seeds differ; a lone seed is left out."""
    baseline = np.array([1.0, 8.0, 64.0, 512.0, 3.0, np.nan])
    arm = baseline + 0.5
    arm[4:] = np.nan, 7.0
    found = paired_difference(arm, baseline)
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)
