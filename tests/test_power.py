"""The power of a claim's test, resampled from a pilot."""

import numpy as np
import pytest
from scipy import stats
from small_claims import MadeUp, made_up, small_claim

from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.power import power, power_of
from attnkit.evidence.verdict import LEVEL, judge, judge_statement

ALPHA = 1 - LEVEL
WORSE, NO_WORSE = worse("a", "b"), no_worse("a", "b")


def pilot_of(statement, n_worse, n):
    """Return a statement with so many of n pairs worse, and all others alike."""
    return statement, np.repeat([-1.0, 0.0], [n_worse, n - n_worse])


def least_worse(alpha):
    """Return the smallest number of pairs that are worse, and none better, which shows "worse"."""
    return next(k for k in range(1, 40) if 2 * 0.5**k <= alpha)


@pytest.mark.parametrize("alpha", [ALPHA, ALPHA / 47])
@pytest.mark.parametrize("n", [20, 53])
def test_counted_pairs_have_the_power_of_a_binomial_number(n, alpha):
    """The pairs are worse with a known share; both verdicts are decisions."""
    share = 11 / 40
    decided = stats.binom.sf(least_worse(alpha) - 1, n, share)
    most = max((k for k in range(n) if 2 * stats.binom.cdf(k, n, 0.2) <= alpha), default=-1)
    expected = decided + stats.binom.cdf(min(most, least_worse(alpha) - 1), n, share)
    for statement in (WORSE, NO_WORSE):
        found = power([pilot_of(statement, 11, 40)], n, alpha)
        assert found == pytest.approx(expected, abs=0.04)


def test_means_have_the_power_of_students_t_test(seed):
    """The pilot is so large that its differences are nearly normal."""
    values = stats.norm.ppf((np.arange(997) + 0.5) / 997) + 0.7
    statement = Statement("", "", "arm", measure="loss", low=0)
    n = 13
    t = stats.t.ppf(1 - ALPHA / 2, n - 1)
    expected = stats.nct.sf(t, n - 1, 0.7 * np.sqrt(n)) + stats.nct.cdf(-t, n - 1, 0.7 * np.sqrt(n))
    shuffled = np.random.default_rng(seed).permutation(values)
    assert power([(statement, shuffled)], n) == pytest.approx(expected, abs=0.05)


def test_all_statements_are_decided_with_the_same_seeds(seed):
    """As `judge` decides each resampled claim; what always fails is enough against it."""
    random = np.random.default_rng(seed)
    first = random.choice([-1.0, 0.0], 23)
    pilot = [(WORSE, first), (better("a", "b"), -first)]
    assert power(pilot, 30) == power(pilot[:1], 30)
    fails = (NO_WORSE, np.full(17, -1.0))
    assert power([pilot[0], fails], 20) == power([fails], 20) == 1.0
    assert power([pilot[0], fails], 5) == 0.0  # too few seeds
    sure = [(WORSE, np.full(7, -1.0)), (NO_WORSE, np.zeros(7))]
    for n in (8, 17, 20):
        findings = [judge_statement(one, np.resize(values, n)) for one, values in sure]
        assert power(sure, n) == (judge(findings).verdict != "undecided")


def test_a_run_that_diverges_counts_against_a_mean():
    """One seed in seven does, so hardly any large number of seeds is without it."""
    values = np.array([np.nan, 2.0, 3, 5, 7, 11, 13])
    statement = Statement("", "", "arm", measure="loss", low=0)
    assert power([(statement, values)], 6) > 0.1
    assert power([(statement, values)], 60) < 0.02


def test_more_seeds_and_fewer_other_claims_decide_more_often():
    """A record is its own pilot."""
    evidence = made_up(small_claim(), MadeUp(lambda _: None, QKV=1.0, Q_K=0.5))
    assert [power_of(evidence, n) for n in (5, 6, 20)] == [0, 1, 1]
    assert [power_of(evidence, 8, together) for together in (1, 47)] == [1, 0]
