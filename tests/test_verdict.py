"""The rule that gives verdicts: against scipy and textbooks, and its size, power and coverage.

`pytest -s` prints the tables of power.
"""

import sys
from functools import cache
from itertools import pairwise
from math import inf, nan

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from attnkit.claims.base import LEAST_SEEDS
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.verdict import (
    LEVEL,
    MOST_WORSE,
    RULE,
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
COUNTS = (8, 20, 40)
WORSE, NO_WORSE = worse("left", "right", LIMIT), no_worse("left", "right", LIMIT)

SCORE = st.integers(-300, 300).map(lambda hundredths: hundredths / 100)
SEEDS = hnp.arrays(float, st.integers(LEAST_SEEDS, 23), elements=SCORE)
REGION = st.tuples(SCORE, SCORE).filter(lambda limits: limits[0] < limits[1])
HALF_LINE = st.one_of(st.tuples(SCORE, st.just(inf)), st.tuples(st.just(-inf), SCORE))


def about(measure, low=-inf, high=inf):
    """Return a statement about the mean of one arm."""
    return Statement("", "arm", measure=measure, low=low, high=high)


@cache
def counted(statement, n_worse, n_better, n, n_lost=0):
    """Return the finding if so many of n pairs are worse, better and lost."""
    counts = (n_worse, n_better, n_lost, n - n_worse - n_better - n_lost)
    return judge_statement(statement, np.repeat([-1.0, 1.0, nan, 0.0], counts))


def outcomes(n):
    """Return every number of worse and better pairs of n."""
    return [(w, b) for w in range(n + 1) for b in range(n + 1 - w)]


# pairs, against independent references


@pytest.mark.parametrize("n", [LEAST_SEEDS, 11, 20])
def test_worse_is_mcnemars_exact_test(n):
    """Its p is that of the binomial test of one half on the discordant pairs."""
    for n_worse, n_better in outcomes(n):
        found = counted(WORSE, n_worse, n_better, n)
        assert (found.method, found.n_pairs) == ("pairs", n)
        assert (found.n_worse, found.n_better) == (n_worse, n_better)
        assert found.n_alike == n - n_worse - n_better
        expected = 1.0
        if n_worse > n_better:
            expected = stats.binomtest(n_worse, n_worse + n_better).pvalue
        assert found.p_held == pytest.approx(expected)
        assert counted(NO_WORSE, n_worse, n_better, n).p_not == found.p_held


@pytest.mark.parametrize("n", [LEAST_SEEDS, 11, 30])
def test_the_share_that_is_worse_has_the_limits_of_clopper_and_pearson(n):
    """They are those of `scipy.stats.binomtest`, and the upper one decides on "no worse"."""
    for k in range(n + 1):
        found = counted(NO_WORSE, k, 0, n)
        expected = stats.binomtest(k, n).proportion_ci(LEVEL, "exact")
        assert (found.share_low, found.share_high) == pytest.approx((*expected,), abs=1e-9)
        assert (found.p_held <= ALPHA) == (found.share_high <= MOST_WORSE)
        assert counted(WORSE, k, 0, n).p_not == found.p_held


@given(SEEDS, st.sampled_from([0.0, LIMIT, 0.3]), st.sampled_from(["accuracy", "steps_to_solve"]))
def test_better_mirrors_worse_and_order_does_not_matter(values, by, measure):
    """An arm is worse than another if and only if that one is better."""
    one = judge_statement(worse("a", "b", by, measure=measure), values)
    other = judge_statement(better("b", "a", by, measure=measure), -values[::-1])
    for name in ("n_worse", "n_better", "p_held", "p_not", "share_low", "share_high"):
        assert getattr(one, name) == getattr(other, name)
    assert one.median == pytest.approx(-other.median)


@given(SEEDS, st.sampled_from([LIMIT, 0.3]))
def test_no_worse_is_the_opposite_of_worse(values, by):
    """Values that show the one refute the other, and no values show both."""
    one, other = (
        judge_statement(worse("a", "b", by), values),
        judge_statement(no_worse("a", "b", by), values),
    )
    assert (one.p_held, one.p_not) == (other.p_not, other.p_held)
    assert max(one.p_held, one.p_not) > ALPHA


@pytest.mark.parametrize("n", [8, 40])
def test_more_pairs_that_are_worse_never_lower_the_support(n):
    """All of them show it, none of them does not; among 40 none shows the opposite."""
    found = [counted(WORSE, k, 0, n) for k in range(n + 1)]
    for fewer, more in pairwise(found):
        assert fewer.p_held >= more.p_held
        assert fewer.p_not <= more.p_not
    assert found[-1].verdict == "held"
    assert found[0].verdict == ("did not hold" if n >= 17 else "undecided")


def test_so_many_failures_are_allowed():
    """With fewer than 17 pairs nothing is "no worse"."""
    for n, most in {8: None, 16: None, 17: 0, 20: 0, 30: 1, 40: 2}.items():
        allowed = [k for k in range(n + 1) if counted(NO_WORSE, k, 0, n).verdict == "held"]
        assert max(allowed, default=None) == most, n


def test_half_of_the_runs_may_fail_and_the_arm_is_worse():
    """Runs that do as well do not count against it: 9 failures of 20, none on the other side."""
    assert counted(WORSE, 9, 0, 20).verdict == "held"
    assert counted(WORSE, 9, 0, 20).p_held == pytest.approx(2 / 2**9)
    assert counted(WORSE, 9, 3, 20).verdict == "undecided"


def test_differences_at_the_limit_are_alike():
    """Limits do not belong to regions, also where a record has rounded the last digit."""
    for rounding in (-1e-8, 0, 1e-8):
        values = np.repeat([-LIMIT, LIMIT], 10) * (1 + rounding)
        for statement in (WORSE, NO_WORSE):
            assert judge_statement(statement, values).n_alike == 20, rounding


@pytest.mark.parametrize("statement", [WORSE, NO_WORSE, about("loss", low=0)])
def test_five_seeds_say_nothing(statement):
    """However large the effect is."""
    for n in range(LEAST_SEEDS):
        for value in (-100.0, 100.0):
            found = judge_statement(statement, value + np.linspace(0, 1, n))
            assert (found.verdict, found.p_held, found.p_not) == ("undecided", 1, 1), n


# means, against independent references


@given(SEEDS, HALF_LINE)
def test_means_give_students_p(values, limits):
    """As `scipy.stats.ttest_1samp` against the limit of the region, for the side of the mean."""
    assume(np.ptp(values) > 0)
    limit = next(limit for limit in limits if np.isfinite(limit))
    assume(abs(values.mean() - limit) > 1e-9)
    found = judge_statement(about("loss", *limits), values)
    expected = stats.ttest_1samp(values, limit).pvalue
    inside = limits[0] < values.mean() < limits[1]
    leaning = (expected, 1) if inside else (1, expected)
    assert found.method == "mean"
    assert (found.p_held, found.p_not) == pytest.approx(leaning, abs=1e-9)


def test_differences_of_means_give_the_paired_p():
    """As `scipy.stats.ttest_rel` of both arms, one of them moved by what matters."""
    rng = np.random.default_rng(3)
    right = rng.normal(2, 1, 11)
    scores = {"left": right + rng.normal(0.2, 0.1, 11), "right": right}
    statement = worse("left", "right", LIMIT, measure="loss")
    found = judge_statement(statement, differences(statement, scores))
    expected = stats.ttest_rel(scores["left"], right + LIMIT)
    interval = stats.ttest_rel(scores["left"], right).confidence_interval(LEVEL)
    assert found.p_held == pytest.approx(expected.pvalue)
    assert (found.effect_low, found.effect_high) == pytest.approx((interval.low, interval.high))


@given(SEEDS, REGION | HALF_LINE)
def test_a_mean_is_judged_by_its_interval(values, limits):
    """It holds if and only if the interval lies in the region, and not if it lies outside."""
    found = judge_statement(about("loss", *limits), values)
    low, high = found.effect_low, found.effect_high
    assume(min(abs(end - limit) for end in (low, high) for limit in limits) > 1e-9)
    inside = limits[0] < low and high < limits[1]
    outside = high < limits[0] or low > limits[1]
    assert found.verdict == ("held" if inside else "did not hold" if outside else "undecided")


@given(SCORE, st.integers(LEAST_SEEDS, 23))
def test_means_of_seeds_that_are_all_alike_are_certain(value, n):
    """In the region, outside it, and on its limit, where rounding must not decide."""
    expected = {value - 0.1: "held", value + 0.1: "did not hold", value: "undecided"}
    for low, verdict in expected.items():
        assert judge_statement(about("loss", low=low), np.full(n, value)).verdict == verdict


# seeds that lack a score, or never solve their task


def test_a_pair_that_diverged_counts_against_either_verdict():
    """It counts as better where the arm is to be worse, and as worse where it is not to be."""
    assert counted(WORSE, 6, 0, 20, 1).p_held == counted(WORSE, 6, 1, 20).p_held
    assert counted(NO_WORSE, 0, 0, 20, 1).p_held == counted(NO_WORSE, 1, 0, 20).p_held
    found = counted(NO_WORSE, 2, 3, 20, 1)
    assert (found.n_worse, found.n_better, found.n_lost, found.n_alike) == (2, 3, 1, 14)
    assert found.share_high == counted(NO_WORSE, 3, 0, 20).share_high
    assert found.share_low == counted(NO_WORSE, 2, 0, 20).share_low


def test_means_are_not_compared_if_a_run_diverged():
    """The mean of the others might be another."""
    found = judge_statement(about("loss", low=0), np.array([2.0, 3, 5, nan, 7, 11, 13]))
    assert (found.verdict, found.n_lost) == ("undecided", 1)


@pytest.mark.parametrize("statement", [WORSE, NO_WORSE, about("loss", low=0)])
def test_runs_that_all_diverged_say_nothing(statement):
    """They give neither a verdict, nor an average, nor a warning."""
    found = judge_statement(statement, np.full(20, nan))
    assert found.verdict == "undecided"
    assert (found.share_low, found.share_high) == (0, 1)
    assert np.isnan([found.effect, found.effect_low, found.effect_high, found.median]).all()


def test_two_runs_that_never_solve_a_task_are_alike():
    """One that never does is worse than any that does; the mean is then not known."""
    scores = {"a": np.array([inf, inf, 9, 9]), "b": np.array([inf, 8, inf, 8])}
    statement = worse("a", "b", 2, measure="steps_to_solve")
    values = differences(statement, scores)
    np.testing.assert_array_equal(values, [0, inf, -inf, 1])
    found = judge_statement(statement, values)
    assert (found.n_worse, found.n_better, found.n_alike) == (1, 1, 2)
    assert np.isnan(found.effect)
    assert found.median == 0.5
    assert np.isnan(judge_statement(statement, values[1:3]).median)


def test_arms_with_fewer_seeds_are_compared_on_their_common_seeds():
    """The first seeds are those that both have."""
    scores = {"left": np.array([0.5, 0.6]), "right": np.array([1.0, 1.0, 0.0])}
    np.testing.assert_allclose(differences(WORSE, scores), [-0.5, -0.4])
    swapped = {"left": scores["right"], "right": scores["left"]}
    np.testing.assert_allclose(differences(WORSE, swapped), [0.5, 0.4])


def test_differences_of_differences_are_taken_seed_by_seed():
    """(left − right) − (left too − right too), NaN where any of the four is."""
    names = ["a", "b", "c", "d"]
    rows = np.array([[7.0, 7, nan, 7], [2, 3, 2, 2], [11, 13, 11, 11], [5, 5, 5, nan]])
    scores = dict(zip(names, rows, strict=True))
    one, two, four = (
        Statement("", *arms[:2], "loss", second_left=arms[2], second_right=arms[3])
        for arms in (["a", None, None, None], ["a", "b", None, None], names)
    )
    np.testing.assert_array_equal(differences(one, scores), [7, 7, nan, 7])
    np.testing.assert_array_equal(differences(two, scores), [5, 4, nan, 5])
    np.testing.assert_array_equal(differences(four, scores), [-1, -4, nan, nan])


@pytest.mark.parametrize(
    ("accuracy", "rises"),
    [
        ([0.3, 0.5, 0.7], True),
        ([0.3, 0.5, 0.51, 0.52], False),
        ([0.3, 0.5, 0.6, 0.61], True),  # the last but one doubling added more
        ([0.9, 0.5, 0.3], False),
        ([0.3, 0.3], True),  # one doubling is too few to tell
        ([0.5, 0.5, 0.5 + STILL_RISES + 1e-9], True),
    ],
)
def test_accuracy_has_stopped_rising_after_two_doublings_that_add_little(accuracy, rises):
    """It falls, stays or rises by at most `STILL_RISES` in both."""
    assert still_rises(np.array(accuracy)) == rises


def test_the_rule_in_words_has_its_numbers():
    """The words for pages name the limits that decide."""
    for words in (f"most {MOST_WORSE:.0%} of all seeds", f"fewer than {LEAST_SEEDS} seeds"):
        assert words in RULE.replace("\n", " ")


# verdicts on claims, and verdicts read together


def test_a_claim_holds_as_far_as_its_weakest_statement():
    """All must hold, so nothing is corrected; the largest p is the claim's."""
    strong, weak = counted(WORSE, 12, 0, 20), counted(WORSE, 8, 1, 20)
    assert judge([strong, weak]) == Judgement("held", weak.p_held)
    assert judge([strong, counted(WORSE, 5, 0, 20)]).verdict == "undecided"


@pytest.mark.parametrize(("others", "verdict"), [(0, "did not hold"), (2, "undecided")])
def test_a_claim_is_refuted_after_bonferroni(others, verdict):
    """No failure of 20 refutes alone (p = .023), but not as the worst of three (p = .069)."""
    found = judge([*[counted(WORSE, 20, 0, 20)] * others, counted(WORSE, 0, 0, 20)])
    assert found.verdict == verdict
    assert found.p == pytest.approx((1 + others) * 2 * 0.8**20)


def test_one_statement_refutes_a_claim_though_the_others_hold():
    """With 40 seeds it does so among three, too."""
    held = counted(WORSE, 40, 0, 40)
    found = judge([held, counted(WORSE, 0, 0, 40), held])
    assert found == Judgement("did not hold", pytest.approx(6 * 0.8**40))


def adjusted(ps):
    """Return Holm's adjusted p by his definition: the largest (m − i + 1) p of those no larger."""
    ranks = stats.rankdata(ps, "ordinal")
    steps = [(p, rank, (len(ps) - rank + 1) * p) for p, rank in zip(ps, ranks, strict=True)]
    return [min(1, max(step for _, r, step in steps if r <= rank)) for _, rank, _ in steps]


@given(st.lists(st.integers(0, 2000).map(lambda units: units / 10_000), max_size=30))
def test_verdicts_read_together_are_holms(ps):
    """A verdict stands where the adjusted p is at most 5%; the others become undecided."""
    alone = [Judgement(("held", "did not hold")[place % 2], p) for place, p in enumerate(ps)]
    expected = [
        one.verdict if p <= ALPHA else "undecided"
        for one, p in zip(alone, adjusted(ps), strict=True)
    ]
    assert judge_together(alone) == expected


@pytest.mark.parametrize(
    ("ps", "standing"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0, 3]),  # the worked example of encyclopaedias
        ([0.04], [0]),
        ([0.04, 0.04], []),
        ([0.02, 0.04], [0, 1]),  # Bonferroni would let only the first stand
        ([0.03, 0.001, 1.0], [1]),
    ],
)
def test_known_examples_of_holm(ps, standing):
    """The standing verdicts were found by hand."""
    found = judge_together([Judgement("held", p) for p in ps])
    assert [place for place, verdict in enumerate(found) if verdict == "held"] == standing


# size and power of counting pairs, from the exact probabilities of all outcomes


def probability(statement, n, share_worse, share_better=0.0):
    """Return the exact probability that a statement holds, from the shares of all seeds."""
    holding = [
        outcome for outcome in outcomes(n) if counted(statement, *outcome, n).verdict == "held"
    ]
    if not holding:
        return 0.0
    shares = (share_worse, share_better, 1 - share_worse - share_better)
    counts = [(w, b, n - w - b) for w, b in holding]
    return float(stats.multinomial.pmf(counts, n, shares).sum())


@pytest.mark.parametrize("n", COUNTS)
def test_errors_are_rare(n):
    """At most 2.5% of all samples get the wrong verdict.

    Arms that each fail by themselves with the same rate are seldom called worse. An arm that is
    worse with a fifth of all seeds is seldom called no worse, whatever the other seeds do.
    """
    for failing in (0.02, 0.1, 0.3, 0.5):
        one_sided = failing * (1 - failing)
        assert probability(WORSE, n, one_sided, one_sided) <= ALPHA / 2, failing
    for share_better in (0.0, 0.2, 0.5):
        assert probability(NO_WORSE, n, MOST_WORSE, share_better) <= ALPHA / 2, share_better


@pytest.mark.parametrize(
    ("statement", "floors"),
    [
        (WORSE, {0.3: (0.01, 0.58, 0.98), 0.5: (0.14, 0.97, 0.99), 0.8: (0.79, 0.99, 0.99)}),
        (NO_WORSE, {0.0: (0, 0.99, 0.99), 0.02: (0, 0.66, 0.95), 0.05: (0, 0.35, 0.67)}),
    ],
    ids=["worse", "no worse"],
)
def test_power(statement, floors):
    """Few seeds find large effects only, and nothing is "no worse" with 8 of them."""
    sys.stdout.write(f"\nP({statement.text}), for n = {COUNTS}\n")
    for share, least in floors.items():
        powers = [probability(statement, n, share) for n in COUNTS]
        told = ", ".join(f"{power:.3f}" for power in powers)
        sys.stdout.write(f"  {share:.0%} of seeds worse: {told}\n")
        assert all(power >= floor for power, floor in zip(powers, least, strict=True))


# coverage of intervals


@pytest.mark.parametrize("n", COUNTS)
def test_the_interval_of_a_share_covers_it(n):
    """It does so for every true share, from the exact probabilities of all outcomes."""
    findings = [counted(NO_WORSE, k, 0, n) for k in range(n + 1)]
    for share in np.linspace(0, 1, 201):
        covering = [one.share_low <= share <= one.share_high for one in findings]
        assert stats.binom.pmf(range(n + 1), n, share) @ covering >= LEVEL - 1e-12


REPETITIONS = 10_000
CHANCE = 3 * np.sqrt(ALPHA * LEVEL / REPETITIONS)


@pytest.mark.parametrize(("n", "effect"), [(8, 0.05), (40, 0.0)])
def test_students_interval_covers_the_mean_loss(n, effect):
    """Losses scatter around a mean; a mean on the limit seldom gets a verdict."""
    rng = np.random.default_rng([23, n])
    seeds = rng.normal(2, 0.3, (REPETITIONS, n))
    rows = seeds + rng.normal(effect, 0.1, seeds.shape) - seeds - rng.normal(0, 0.1, seeds.shape)
    interval = mean_interval(rows, LEVEL)
    missed = (interval.low > effect) | (interval.high < effect)
    assert missed.mean() <= ALPHA + CHANCE
    for row, is_missed in zip(rows[:100], missed, strict=False):
        assert (judge_statement(about("loss", low=effect), row).verdict != "undecided") == is_missed


def test_students_interval_is_not_for_runs_that_fail():
    """Why pairs are counted: seeds without a failure hide how much failures cost.

    If one run in ten fails on the left and none on the right, most samples of few seeds hold no
    failure or one; then Student's interval is narrow and misses the mean.
    """
    rng = np.random.default_rng(29)
    failed = rng.random((REPETITIONS, 8)) < 0.1
    interval = mean_interval(np.where(failed, -0.67, 0) + 0.01 * rng.standard_normal(failed.shape))
    truth = -0.067
    assert np.mean((interval.low <= truth) & (truth <= interval.high)) < 0.9
    assert np.mean(interval.low > -LIMIT) > ALPHA + CHANCE  # It often says that it is above.


@pytest.mark.parametrize(("n", "n_statements"), [(20, 1), (40, 3)])
def test_twenty_claims_on_the_boundary_seldom_get_any_wrong_verdict(n, n_statements):
    """Half of them are said to be worse and are alike; half are worse with a fifth of the seeds."""
    rng = np.random.default_rng([43, n, n_statements])
    n_repetitions, n_wrong = 1_000, 0
    alike = rng.multinomial(n, (0.25, 0.25, 0.5), (n_repetitions, 10, n_statements))
    fifth = rng.multinomial(n, (MOST_WORSE, 0, 0.8), (n_repetitions, 10, n_statements))
    for first, second in zip(alike.tolist(), fifth.tolist(), strict=True):
        judged = [judge([counted(WORSE, w, b, n) for w, b, _ in one]) for one in first]
        judged += [judge([counted(NO_WORSE, w, b, n) for w, b, _ in one]) for one in second]
        verdicts = judge_together(judged)
        n_wrong += "held" in verdicts
    assert n_wrong / n_repetitions <= ALPHA
