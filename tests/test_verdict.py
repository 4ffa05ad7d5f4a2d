"""The rule that gives verdicts, and its power, against scipy and textbooks."""

from functools import cache
from math import inf, isfinite, nan

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from small_claims import MadeUp, made_up, small_claim

from attnkit.claims.base import LEAST_SEEDS
from attnkit.claims.measures import MEASURES
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.power import power, power_of
from attnkit.evidence.verdict import (
    LEVEL,
    MOST_WORSE,
    STILL_RISES,
    Judgement,
    differences,
    judge,
    judge_statement,
    judge_together,
    still_rises,
)
from attnkit.training.statistics import mean_interval

ALPHA = 1 - LEVEL
LIMIT = 0.05
WORSE, NO_WORSE = worse("left", "right", LIMIT), no_worse("left", "right", LIMIT)
SCORE = st.integers(-300, 300).map(lambda hundredths: hundredths / 100)


def about(low=-inf, high=inf):
    """Return a statement about the mean loss of one arm."""
    return Statement("", "", "arm", measure="loss", low=low, high=high)


@cache
def counted(statement, n_worse, n_better, n):
    """Return the finding if so many of n pairs are worse and better."""
    counts = (n_worse, n_better, n - n_worse - n_better)
    return judge_statement(statement, np.repeat([-1.0, 1.0, 0.0], counts))


@given(
    hnp.arrays(
        float,
        st.integers(LEAST_SEEDS, 40),
        elements=st.sampled_from([nan, inf, -inf, -1.0, 0.0, 1.0, -LIMIT, LIMIT, 0.3]) | SCORE,
    ),
    st.sampled_from([worse, better, no_worse]),
    st.sampled_from([LIMIT, 0.3]),
    st.sampled_from(["accuracy", "steps_to_solve"]),
    st.sampled_from([-1e-8, 0, 1e-8]),
)
def test_pairs_are_counted_as_mcnemar_and_clopper_and_pearson_do(gains, says, by, measure, error):
    """By scipy's exact binomial tests; a run that diverged counts against either verdict."""
    gains = gains * (1 + error)
    sign = MEASURES[measure].better
    found = judge_statement(says("a", "b", by, measure=measure), sign * gains)
    n, n_lost = len(gains), int(np.isnan(gains).sum())
    n_worse, n_better = int((gains < -by - 1e-6).sum()), int((gains > by + 1e-6).sum())
    if says is better:
        n_worse, n_better = n_better, n_worse
    assert found.method == "pairs"
    counts = (found.n_pairs, found.n_worse, found.n_better, found.n_lost, found.n_alike)
    assert counts == (n, n_worse, n_better, n_lost, n - n_worse - n_better - n_lost)
    against = n_better + n_lost
    p_worse = stats.binomtest(n_worse, n_worse + against).pvalue if n_worse > against else 1.0
    p_no_worse = min(1, 2 * stats.binomtest(n_worse + n_lost, n, MOST_WORSE, "less").pvalue)
    expected = (p_no_worse, p_worse) if says is no_worse else (p_worse, p_no_worse)
    assert (found.p_held, found.p_not) == pytest.approx(expected)
    verdict = "held" if expected[0] <= ALPHA else "undecided"
    assert found.verdict == ("did not hold" if expected[1] <= ALPHA else verdict)
    share_low = stats.binomtest(n_worse, n).proportion_ci(LEVEL, "exact").low
    share_high = stats.binomtest(n_worse + n_lost, n).proportion_ci(LEVEL, "exact").high
    assert (found.share_low, found.share_high) == pytest.approx((share_low, share_high), abs=1e-9)
    assert (p_no_worse <= ALPHA) == (share_high <= MOST_WORSE)


@given(
    hnp.arrays(float, st.integers(LEAST_SEEDS, 23), elements=SCORE),
    st.tuples(SCORE | st.just(-inf), SCORE | st.just(inf)).filter(lambda ends: ends[0] < ends[1]),
)
def test_means_are_judged_by_students_t(values, limits):
    """As `scipy.stats.ttest_1samp` against the limits: held if the interval lies in the region."""
    assume(np.ptp(values) > 0)
    assume(all(abs(values.mean() - limit) > 1e-9 for limit in limits))
    assume(any(map(isfinite, limits)))
    found = judge_statement(about(*limits), values)
    low, high = limits
    at = [stats.ttest_1samp(values, limit).pvalue if isfinite(limit) else 0 for limit in limits]
    mean = values.mean()
    inside = low < mean < high
    expected = (max(at), 1) if inside else (1, at[0] if mean <= low else at[1])
    assert (found.p_held, found.p_not) == pytest.approx(expected, abs=1e-9)
    interval = mean_interval(values, LEVEL)
    told = (found.method, found.effect, found.effect_low, found.effect_high)
    assert told == ("mean", interval.mean, interval.low, interval.high)
    value, n = values[0], len(values)  # seeds that are all alike are certain, but on the limit
    for more, verdict in ((-0.1, "held"), (0.1, "did not hold"), (0, "undecided")):
        assert judge_statement(about(low=value + more), np.full(n, value)).verdict == verdict


@pytest.mark.parametrize("statement", [WORSE, NO_WORSE, about(low=0)])
def test_five_seeds_and_runs_that_all_diverged_say_nothing(statement):
    """However large the effect is; there is neither an average nor a warning."""
    for n in range(LEAST_SEEDS):
        for value in (-100.0, 100.0):
            found = judge_statement(statement, value + np.linspace(0, 1, n))
            assert (found.verdict, found.p_held, found.p_not) == ("undecided", 1, 1), n
    found = judge_statement(statement, np.full(20, nan))
    assert (found.verdict, found.share_low, found.share_high) == ("undecided", 0, 1)
    assert np.isnan([found.effect, found.effect_low, found.effect_high]).all()


def test_averages_of_runs_that_diverged_or_never_solve_a_task_are_not_made_up():
    """Means are not compared if a run diverged; two that never solve it are alike."""
    found = judge_statement(about(low=0), np.array([2.0, 3, 5, nan, 7, 11, 13]))
    assert (found.verdict, found.n_lost) == ("undecided", 1)
    scores = {"a": np.array([inf, inf, 9, 9]), "b": np.array([inf, 8, inf, 8])}
    statement = worse("a", "b", 2, measure="steps_to_solve")
    values = differences(statement, scores)
    np.testing.assert_array_equal(values, [0, inf, -inf, 1])
    found = judge_statement(statement, values)
    assert found.effect == 0.5
    assert np.isnan(judge_statement(statement, values[1:3]).effect)
    endless = judge_statement(about(low=0), np.array([inf, 1, 2, 3, 5, 7, 11]))
    assert np.isnan(endless.effect)


def test_differences_are_taken_seed_by_seed():
    """Over the first seeds, which all have; of four arms (a − b) − (c − d)."""
    rows = [[7.0, 7, nan, 7], [2, 3, 2, 2], [11, 13, 11, 11], [5, 5, 5, nan]]
    scores = dict(zip("abcd", map(np.array, rows), strict=True))
    for arms, expected in (
        (["a", None, None, None], [7, 7, nan, 7]),
        (["a", "b", None, None], [5, 4, nan, 5]),
        (["a", "b", "c", "d"], [-1, -4, nan, nan]),
    ):
        statement = Statement("", "", *arms[:2], "loss", second_left=arms[2], second_right=arms[3])
        np.testing.assert_array_equal(differences(statement, scores), expected)
        shorter = {**scores, "a": scores["a"][:2]}
        np.testing.assert_array_equal(differences(statement, shorter), expected[:2])


def test_accuracy_has_stopped_rising_after_two_doublings_that_add_little():
    """It falls, stays or rises by at most `STILL_RISES` in both; one doubling tells nothing."""
    for accuracy, rises in (
        ([0.3, 0.5, 0.7], True),
        ([0.3, 0.5, 0.51, 0.52], False),
        ([0.3, 0.5, 0.6, 0.61], True),  # the last but one doubling added more
        ([0.9, 0.5, 0.3], False),
        ([0.3, 0.3], True),
        ([0.5, 0.5, 0.5 + STILL_RISES + 1e-9], True),
    ):
        assert still_rises(np.array(accuracy)) == rises, accuracy


def test_a_claim_holds_as_far_as_its_weakest_statement_and_is_refuted_after_bonferroni():
    """All must hold, so nothing is corrected there; any may refute.

    No failure of 20 refutes alone (p = .023), but not as the worst of three (p = .069).
    """
    strong, weak = counted(WORSE, 12, 0, 20), counted(WORSE, 8, 1, 20)
    assert judge([strong, weak]) == Judgement("held", weak.p_held)
    assert judge([strong, counted(WORSE, 5, 0, 20)]).verdict == "undecided"
    for n, others, verdict in (
        (20, 0, "did not hold"),
        (20, 2, "undecided"),
        (40, 2, "did not hold"),
    ):
        found = judge([*[counted(WORSE, n, 0, n)] * others, counted(WORSE, 0, 0, n)])
        assert found == Judgement(verdict, pytest.approx((1 + others) * 2 * 0.8**n))


@given(st.lists(st.integers(0, 2000).map(lambda units: units / 10_000), max_size=30))
def test_verdicts_read_together_are_holms(ps):
    """Holm's adjusted p is the largest (m − i + 1) p of those no larger; it stands at most 5%."""
    alone = [Judgement(("held", "did not hold")[place % 2], p) for place, p in enumerate(ps)]
    ranks = stats.rankdata(ps, "ordinal")
    steps = [(rank, (len(ps) - rank + 1) * p) for p, rank in zip(ps, ranks, strict=True)]
    adjusted = [max(step for r, step in steps if r <= rank) for rank in ranks]
    expected = [
        one.verdict if p <= ALPHA else "undecided" for one, p in zip(alone, adjusted, strict=True)
    ]
    assert judge_together(alone) == expected


@pytest.mark.parametrize("alpha", [ALPHA, ALPHA / 47])
@pytest.mark.parametrize("n", [20, 53])
def test_counted_pairs_have_the_power_of_a_binomial_number(n, alpha):
    """The pairs are worse with a known share; both verdicts are decisions."""
    share, values = 11 / 40, np.repeat([-1.0, 0.0], [11, 29])
    least = next(k for k in range(1, 40) if 2 * 0.5**k <= alpha)
    most = max((k for k in range(n) if 2 * stats.binom.cdf(k, n, 0.2) <= alpha), default=-1)
    expected = stats.binom.sf(least - 1, n, share) + stats.binom.cdf(min(most, least - 1), n, share)
    for statement in (WORSE, NO_WORSE):
        assert power([(statement, values)], n, alpha) == pytest.approx(expected, abs=0.04)


def test_means_have_the_power_of_students_t_test(seed):
    """The pilot is so large that its differences are nearly normal; a run that diverges is none."""
    values, n = stats.norm.ppf((np.arange(997) + 0.5) / 997) + 0.7, 13
    t, away = stats.t.ppf(1 - ALPHA / 2, n - 1), 0.7 * np.sqrt(n)
    expected = stats.nct.sf(t, n - 1, away) + stats.nct.cdf(-t, n - 1, away)
    shuffled = np.random.default_rng(seed).permutation(values)
    assert power([(about(low=0), shuffled)], n) == pytest.approx(expected, abs=0.05)
    lost = np.array([nan, 2.0, 3, 5, 7, 11, 13])
    assert power([(about(low=0), lost)], 6) > 0.1
    assert power([(about(low=0), lost)], 60) < 0.02


def test_all_statements_are_decided_with_the_same_seeds(seed):
    """As `judge` decides each resampled claim; what always fails is enough against it."""
    first = np.random.default_rng(seed).choice([-1.0, 0.0], 23)
    pilot = [(WORSE, first), (better("a", "b"), -first)]
    assert power(pilot, 30) == power(pilot[:1], 30)
    fails = (NO_WORSE, np.full(17, -1.0))
    assert [power([pilot[0], fails], n) for n in (5, 20)] == [0, 1]  # five seeds are too few
    sure = [(WORSE, np.full(7, -1.0)), (NO_WORSE, np.zeros(7))]
    for n in (8, 17, 20):
        findings = [judge_statement(one, np.resize(values, n)) for one, values in sure]
        assert power(sure, n) == (judge(findings).verdict != "undecided")
    evidence = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=0.5))
    assert [power_of(evidence, n) for n in (5, 6, 20)] == [0, 1, 1]
    assert [power_of(evidence, 8, together) for together in (1, 47)] == [1, 0]
