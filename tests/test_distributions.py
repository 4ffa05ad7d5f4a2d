"""The beta distribution and Student's t, against scipy."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import special, stats

from attnkit.training.distributions import (
    beta_probability,
    beta_quantile,
    student_limit,
    student_tail,
)

SHARE = st.floats(0, 1)
COUNT = st.integers(1, 1000)


@given(SHARE, COUNT, COUNT)
def test_probabilities_and_quantiles_of_the_beta_distribution_are_those_of_scipy(share, a, b):
    """Small probabilities are exact, too, and a quantile is where the probability is reached."""
    expected = special.betainc(a, b, share)
    assert beta_probability(share, a, b) == pytest.approx(expected, rel=1e-9, abs=1e-14)
    assume(1e-12 < share < 1 - 1e-12)
    assert beta_quantile(share, a, b) == pytest.approx(special.betaincinv(a, b, share), rel=1e-9)


@given(SHARE, st.integers(1, 100))
def test_no_success_is_certain_and_more_than_all_impossible(share, n):
    """At least 0 successes are certain, and more successes than trials impossible."""
    assert beta_probability(share, 0, n) == 1
    assert beta_probability(share, n, 0) == (share == 1)
    assert (beta_probability(0, n, n), beta_probability(1, n, n)) == (0, 1)


@given(st.floats(0, 1e300), st.floats(0.01, 0.999), st.integers(1, 10**5))
def test_tails_and_limits_of_students_distribution_are_those_of_scipy(t, level, freedom):
    """However far out the tail is."""
    expected = stats.t.sf(t, freedom)
    assert student_tail(t, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-300)
    limit = special.stdtrit(freedom, 0.5 + level / 2)
    assert student_limit(level, freedom) == pytest.approx(limit, rel=1e-7)


def test_what_is_missing_stays_missing():
    """One value has no interval, and NaN no probability."""
    assert math.isnan(student_limit(0.95, 0))
    assert math.isnan(student_tail(math.nan, 5))
    assert student_tail(math.inf, 5) == 0
