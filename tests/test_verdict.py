"""The rule that gives verdicts: against scipy and textbooks, and on seeds of a known effect."""

from functools import cache
from itertools import pairwise
from math import comb, inf, nan, sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from attnkit.claims.base import Statement, better, no_worse, worse
from attnkit.evidence.verdict import (
    LEAST_SEEDS,
    LEVEL,
    Judgement,
    differences,
    find,
    judge,
    judge_together,
)
from attnkit.statistics import mean_interval

ALPHA = 1 - LEVEL
LIMIT = 0.05
ORDER = ["contradicted", "inconclusive", "supported"]

SCORE = st.integers(-300, 300).map(lambda hundredths: hundredths / 100)
SEEDS = hnp.arrays(float, st.integers(LEAST_SEEDS, 17), elements=SCORE)
REGION = st.tuples(SCORE, SCORE).filter(lambda limits: limits[0] < limits[1])
HALF_LINE = st.one_of(st.tuples(SCORE, st.just(inf)), st.tuples(st.just(-inf), SCORE))


def about(measure, low=-inf, high=inf):
    """A statement about one arm."""
    return Statement("", "arm", measure=measure, low=low, high=high)


@cache
def counted(holding, n):
    """The finding if a statement about accuracies holds in so many of n pairs."""
    return find(about("accuracy", low=0), np.repeat([1.0, -1.0], [holding, n - holding]))


def binomial_p(holding, n):
    """Two-sided p of one half, from the sum of the binomial coefficients."""
    tail = sum(comb(n, k) for k in range(max(holding, n - holding), n + 1)) / 2**n
    return min(1.0, 2 * tail)


# The rule against independent references


@pytest.mark.parametrize("n", [*range(1, 14), 30])
def test_share_of_pairs_is_clopper_and_pearson(n):
    """Limits are quantiles of beta distributions, for every number of holding pairs."""
    for k in range(n + 1):
        found = counted(k, n)
        low = stats.beta.ppf(ALPHA / 2, k, n - k + 1) if k else 0
        high = stats.beta.ppf(1 - ALPHA / 2, k + 1, n - k) if k < n else 1
        assert (found.n_pairs, found.n_holding, found.method) == (n, k, "pairs")
        assert (found.share_low, found.share_high) == pytest.approx((low, high), abs=1e-12)


@pytest.mark.parametrize("n", [*range(LEAST_SEEDS, 14), 30])
def test_pairs_give_the_binomial_p_of_one_half(n):
    """It belongs to the side to which the pairs lean; the other side has 1."""
    for k in range(n + 1):
        expected = binomial_p(k, n)
        leaning = [1.0, 1.0]
        if 2 * k != n:
            leaning[2 * k < n] = expected
        found = counted(k, n)
        assert [found.p_supported, found.p_contradicted] == pytest.approx(leaning, abs=1e-12)


@given(SEEDS, HALF_LINE)
def test_means_give_students_p(values, limits):
    """As `scipy.stats.ttest_1samp` against the limit of the region, for the side of the mean."""
    assume(np.ptp(values) > 0)
    limit = next(limit for limit in limits if np.isfinite(limit))
    assume(abs(values.mean() - limit) > 1e-9)
    found = find(about("loss", *limits), values)
    expected = stats.ttest_1samp(values, limit).pvalue
    inside = limits[0] < values.mean() < limits[1]
    leaning = (expected, 1) if inside else (1, expected)
    assert found.method == "mean"
    assert (found.p_supported, found.p_contradicted) == pytest.approx(leaning, abs=1e-9)


def test_differences_of_means_give_the_paired_p():
    """As `scipy.stats.ttest_rel` of both arms, one of them moved by what matters."""
    rng = np.random.default_rng(3)
    right = rng.normal(2, 1, 11)
    scores = {"left": right + rng.normal(0.2, 0.1, 11), "right": right}
    statement = worse("left", "right", LIMIT, measure="loss")
    found = find(statement, differences(statement, scores))
    expected = stats.ttest_rel(scores["left"], right + LIMIT)
    interval = stats.ttest_rel(scores["left"], right).confidence_interval(LEVEL)
    assert found.p_supported == pytest.approx(expected.pvalue)
    assert (found.effect_low, found.effect_high) == pytest.approx((interval.low, interval.high))


@given(SEEDS, REGION | HALF_LINE)
def test_a_mean_is_judged_by_its_interval(values, limits):
    """Supported if and only if it lies in the region, contradicted if wholly outside."""
    found = find(about("loss", *limits), values)
    low, high = found.effect_low, found.effect_high
    assume(min(abs(end - limit) for end in (low, high) for limit in limits) > 1e-9)
    inside = limits[0] < low and high < limits[1]
    outside = high < limits[0] or low > limits[1]
    expected = "supported" if inside else "contradicted" if outside else "inconclusive"
    assert found.verdict == expected


@given(SEEDS, REGION | HALF_LINE)
def test_pairs_are_judged_by_the_share_that_holds(values, limits):
    """Supported if and only if its interval lies above one half, contradicted if below."""
    found = find(about("accuracy", *limits), values)
    assert found.n_holding == sum(limits[0] < value < limits[1] for value in values)
    assert (found.verdict == "supported") == (found.share_low > 0.5)
    assert (found.verdict == "contradicted") == (found.share_high < 0.5)


@given(SEEDS, REGION | HALF_LINE, st.sampled_from(["accuracy", "loss"]), st.randoms())
def test_order_and_sign_do_not_matter(values, limits, measure, random):
    """Seeds in another order, or all of it mirrored, give the same verdict."""
    found = find(about(measure, *limits), values)
    shuffled = np.array(random.sample(list(values), len(values)))
    mirrored = find(about(measure, -limits[1], -limits[0]), -shuffled)
    both = [(one.p_supported, one.p_contradicted) for one in (found, mirrored)]
    assert both[0] == pytest.approx(both[1], abs=1e-9)


@given(SEEDS, SCORE, SCORE.map(abs), st.sampled_from(["accuracy", "loss"]))
def test_more_of_it_never_lowers_support(values, limit, more, measure):
    """All seeds moved further into the region leave the verdict or raise it."""
    before, after = (find(about(measure, low=limit), values + by) for by in (0, more))
    assert ORDER.index(after.verdict) >= ORDER.index(before.verdict)
    assert after.p_supported <= before.p_supported + 1e-9


@pytest.mark.parametrize("n", [6, 7, 10, 12, 30])
def test_more_holding_pairs_never_lower_support(n):
    """Nor the share; all of them support, none of them contradicts."""
    found = [counted(k, n) for k in range(n + 1)]
    for fewer, more in pairwise(found):
        assert ORDER.index(fewer.verdict) <= ORDER.index(more.verdict)
        assert fewer.p_supported >= more.p_supported
        assert fewer.share_low < more.share_low
    assert (found[0].verdict, found[-1].verdict) == ("contradicted", "supported")


@pytest.mark.parametrize(("n", "needed"), [(6, 6), (8, 8), (9, 8), (10, 9), (12, 10), (20, 15)])
def test_so_many_pairs_must_hold(n, needed):
    """The table of the sign test."""
    assert [counted(k, n).verdict for k in (needed - 1, needed)] == ["inconclusive", "supported"]


@pytest.mark.parametrize("measure", ["accuracy", "loss"])
@pytest.mark.parametrize("n", range(6))
def test_five_seeds_say_nothing(n, measure):
    """However large the effect; not even none of them fails."""
    for value in (-100.0, 100.0):
        found = find(about(measure, low=0), value + np.linspace(0, 1, n))
        assert (found.verdict, found.p_supported, found.p_contradicted) == ("inconclusive", 1, 1)


@pytest.mark.parametrize("n", [6, 7, 12, 19])
@pytest.mark.parametrize("value", [0.0, 0.05, 0.1, 0.29, -0.7])
def test_seeds_that_are_all_alike_are_certain(value, n):
    """In the region, outside it, and on its limit, where rounding must not decide."""
    values = np.full(n, value)
    for low, verdict in ((value - 0.1, ORDER[2]), (value + 0.1, ORDER[0]), (value, ORDER[1])):
        assert find(about("loss", low=low), values).verdict == verdict
    assert find(about("accuracy", low=value), values).n_holding == 0  # limits are outside


# Seeds that lack a score


@pytest.mark.parametrize("measure", ["accuracy", "loss"])
def test_a_pair_that_diverged_does_not_hold(measure):
    """5 of 6, and by pairs even where seeds scatter."""
    found = find(about(measure, low=0), np.array([2.0, 3, 5, nan, 7, 11]))
    assert (found.method, found.n_holding, found.n_pairs) == ("pairs", 5, 6)
    assert found.p_supported == pytest.approx(binomial_p(5, 6))
    assert found.effect == pytest.approx(28 / 5)


def test_a_pair_that_diverged_does_not_contradict():
    """None of 6 pairs does, but with one lost among them at most 1 of 6 might."""
    found = find(about("accuracy", low=0), np.array([-1.0, -1, -1, nan, -1, -1]))
    assert (found.n_holding, found.verdict) == (0, "inconclusive")
    assert found.p_contradicted == pytest.approx(binomial_p(1, 6))


def test_runs_that_all_diverged_say_nothing():
    """Neither by pairs nor by their mean; and no warning either."""
    found = find(about("loss", low=0), np.full(7, nan))
    assert (found.n_holding, found.verdict) == (0, "inconclusive")
    assert (found.share_low, found.share_high) == (0, 1)
    assert np.isnan([found.effect, found.effect_low, found.effect_high]).all()


def test_differences_of_differences_are_taken_seed_by_seed():
    """(left − right) − (left too − right too), NaN where any of the four is."""
    names = ["a", "b", "c", "d"]
    rows = np.array([[7.0, 7, nan, 7], [2, 3, 2, 2], [11, 13, 11, 11], [5, 5, 5, nan]])
    scores = dict(zip(names, rows, strict=True))
    one, two, four = (
        Statement("", *arms[:2], left_too=arms[2], right_too=arms[3])
        for arms in (["a", None, None, None], ["a", "b", None, None], names)
    )
    np.testing.assert_array_equal(differences(one, scores), [7, 7, nan, 7])
    np.testing.assert_array_equal(differences(two, scores), [5, 4, nan, 5])
    np.testing.assert_array_equal(differences(four, scores), [-1, -4, nan, nan])


# Verdicts on claims, and verdicts read together


def test_a_claim_is_supported_by_its_weakest_statement():
    """All must hold, so nothing is corrected; the largest p is the claim's."""
    assert judge([counted(12, 12), counted(10, 12)]) == Judgement(
        "supported", counted(10, 12).p_supported
    )
    assert judge([counted(12, 12), counted(9, 12)]).verdict == "inconclusive"


@pytest.mark.parametrize(("others", "verdict"), [(0, ORDER[0]), (1, ORDER[1]), (4, ORDER[1])])
def test_a_claim_is_contradicted_after_bonferroni(others, verdict):
    """0 of 6 pairs contradict alone (1/32), but not as the worst of two (1/16)."""
    found = judge([*[counted(6, 6)] * others, counted(0, 6)])
    assert (found.verdict, found.p) == (verdict, pytest.approx((1 + others) / 32))


def test_one_statement_contradicts_a_claim_though_the_others_hold():
    """0 of 12 among three: 3 × 2 / 4096."""
    found = judge([counted(12, 12), counted(0, 12), counted(12, 12)])
    assert found == Judgement("contradicted", pytest.approx(6 / 4096))


def adjusted(ps):
    """Holm's adjusted p by his definition: the largest (m − i + 1) p of those no larger."""
    ranks = stats.rankdata(ps, "ordinal")
    steps = [(p, rank, (len(ps) - rank + 1) * p) for p, rank in zip(ps, ranks, strict=True)]
    return [min(1, max(step for _, r, step in steps if r <= rank)) for _, rank, _ in steps]


@given(st.lists(st.integers(0, 2000).map(lambda units: units / 10_000), max_size=30))
def test_verdicts_read_together_are_holms(ps):
    """A verdict stands where the adjusted p is at most 5%; the others become inconclusive."""
    alone = [Judgement(ORDER[place % 2 * 2], p) for place, p in enumerate(ps)]
    expected = [
        one.verdict if p <= ALPHA else "inconclusive"
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
    """By hand."""
    found = judge_together([Judgement("supported", p) for p in ps])
    assert [place for place, verdict in enumerate(found) if verdict == "supported"] == standing


def test_six_pairs_cannot_stand_beside_another_claim():
    """Their least p is 1/32, and two claims need 1/40: the quick form is read claim by claim."""
    alone = judge([counted(6, 6)])
    assert judge_together([alone]) == ["supported"]
    assert judge_together([alone, alone]) == ["inconclusive", "inconclusive"]
    assert judge_together([judge([counted(10, 10)])] * 25) == ["supported"] * 25


# Simulated seeds with a known effect. Rates of 10,000 repetitions scatter: by 0.0022 at 5%.

REPETITIONS = 10_000
COUNTS = (6, 10, 12)
CHANCE = 3 * sqrt(ALPHA * LEVEL / REPETITIONS)
FAILING = 0.1


def make_normal(rng, shape, shift):
    """Accuracies that scatter around 80%."""
    return 0.8 - shift + 0.04 * rng.standard_normal(shape)


def make_bimodal(rng, shape, shift):
    """97%, but one run in ten fails and guesses."""
    failed = rng.random(shape) < FAILING
    return np.where(failed, 0.3, 0.97 - shift) + 0.01 * rng.standard_normal(shape)


def make_near_ceiling(rng, shape, shift):
    """99% and seldom less, of 256 examples."""
    return np.round(256 * (1 - rng.exponential(0.01 + shift, shape))).clip(0) / 256


KINDS = {"normal": make_normal, "bimodal": make_bimodal, "near ceiling": make_near_ceiling}
EFFECTS = (0.0, 0.03, 0.07)


def make_differences(kind, rng, shape, shift):
    """Left − right, the left worse by a shift."""
    return KINDS[kind](rng, shape, shift) - KINDS[kind](rng, shape, 0)


@cache
def large_sample(kind, shift):
    """(10⁶,) differences that stand for the truth."""
    return make_differences(kind, np.random.default_rng(7), 10**6, shift)


def findings_of(statement, rows):
    """A finding for each row (k, s) of accuracies, which depends on how many pairs hold."""
    holding = ((rows > statement.low) & (rows < statement.high)).sum(1)
    first = {int(k): find(statement, rows[place]) for k, place in firsts(holding)}
    for row, k in zip(rows[:5], holding, strict=False):
        assert find(statement, row).n_holding == first[int(k)].n_holding == k
    return [first[int(k)] for k in holding]


def firsts(values):
    """Every value and where it first stands."""
    return zip(*np.unique(values, return_index=True), strict=True)


def verdict_rate(findings, verdict):
    """How often it is given."""
    return np.mean([one.verdict == verdict for one in findings])


def exact_coverage(kind, n, shift):
    """How often the exact interval holds the true share of pairs that hold."""
    rng = np.random.default_rng([17, n])
    statement = worse("left", "right", LIMIT)
    truth = (large_sample(kind, shift) < statement.high).mean()
    found = findings_of(statement, make_differences(kind, rng, (REPETITIONS, n), shift))
    return np.mean([one.share_low <= truth <= one.share_high for one in found])


def student_coverage(kind, n, shift):
    """How often Student's interval holds the true mean difference."""
    rng = np.random.default_rng([19, n])
    interval = mean_interval(make_differences(kind, rng, (REPETITIONS, n), shift))
    truth = large_sample(kind, shift).mean()
    return np.mean((interval.low <= truth) & (truth <= interval.high))


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("kind", KINDS)
def test_exact_interval_covers_the_share_of_pairs(kind, n):
    """At 10,000 repetitions, for no effect, one that does not matter and one that does."""
    for shift in EFFECTS:
        assert exact_coverage(kind, n, shift) >= 0.94


@pytest.mark.parametrize("n", COUNTS)
def test_exact_interval_covers_whatever_the_scores(n):
    """Without chance: binomial, for every true share, so for every distribution of scores."""
    findings = [counted(k, n) for k in range(n + 1)]
    for share in np.linspace(0, 1, 401):
        covering = [one.share_low <= share <= one.share_high for one in findings]
        assert stats.binom.pmf(range(n + 1), n, share) @ covering >= LEVEL - 1e-12


def judged_by_mean(statement, rows):
    """The intervals and verdicts of all rows (k, s) of losses; `find` gives the first the same."""
    interval = mean_interval(rows, LEVEL)
    inside = (interval.low > statement.low) & (interval.high < statement.high)
    outside = (interval.high < statement.low) | (interval.low > statement.high)
    verdicts = np.select([inside, outside], [ORDER[2], ORDER[0]], ORDER[1])
    for row, verdict in zip(rows[:60], verdicts, strict=False):
        assert find(statement, row).verdict == verdict
    return interval, verdicts


@pytest.mark.parametrize("n", COUNTS)
def test_students_interval_covers_the_mean_loss(n):
    """Losses scatter around a mean: seed by seed alike, and one arm worse by a known amount."""
    rng = np.random.default_rng([23, n])
    for effect in (0.0, 0.05, 0.2):
        seeds = rng.normal(2, 0.3, (REPETITIONS, n))
        left, right = (seeds + rng.normal(by, 0.1, seeds.shape) for by in (effect, 0))
        statement = worse("left", "right", LIMIT, measure="loss")
        interval, _ = judged_by_mean(statement, left - right)
        assert np.mean((interval.low <= effect) & (effect <= interval.high)) >= 0.94


@pytest.mark.parametrize("n", COUNTS)
def test_students_interval_is_not_for_runs_that_fail(n):
    """Why accuracies are counted: seeds without a failure hide how much failures cost.

    If one run in ten fails on the left and none on the right, most samples of few seeds hold no
    failure or one; then Student's interval is narrow and misses the mean.
    """
    rng = np.random.default_rng([29, n])
    right = 0.97 + 0.01 * rng.standard_normal((REPETITIONS, n))
    rows = make_bimodal(rng, right.shape, 0) - right
    interval = mean_interval(rows)
    truth = FAILING * (0.3 - 0.97)
    assert np.mean((interval.low <= truth) & (truth <= interval.high)) < 0.9
    statement = no_worse("left", "right", LIMIT)
    findings = findings_of(statement, rows)
    assert np.mean([one.share_low <= 1 - FAILING <= one.share_high for one in findings]) >= 0.94
    # The mean is below −0.05, but Student's interval often says that it is above.
    assert truth < -LIMIT
    assert np.mean(interval.low > -LIMIT) > ALPHA + CHANCE


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_effect_is_seldom_called_one(kind, n):
    """Both arms alike: not worse, not better, and not more than so much worse."""
    rng = np.random.default_rng([31, n])
    rows = make_differences(kind, rng, (REPETITIONS, n), 0)
    for build, false in ((worse, ORDER[2]), (better, ORDER[2]), (no_worse, ORDER[0])):
        for by in (0.0, LIMIT):
            if build is no_worse and by == 0:
                continue  # a tie is then no effect and outside the region
            findings = findings_of(build("left", "right", by), rows)
            assert verdict_rate(findings, false) <= 0.05


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("kind", ["normal", "bimodal"])
def test_a_share_of_one_half_seldom_gets_a_verdict(kind, n):
    """The very boundary: the limit is the true median of the differences."""
    rng = np.random.default_rng([37, n])
    median = float(np.median(large_sample(kind, 0.07)))
    rows = make_differences(kind, rng, (REPETITIONS, n), 0.07)
    findings = findings_of(about("accuracy", low=median), rows)
    assert 1 - verdict_rate(findings, "inconclusive") <= 0.05


@pytest.mark.parametrize("n", range(LEAST_SEEDS, 31))
def test_a_share_of_one_half_seldom_gets_a_verdict_whatever_the_scores(n):
    """Without chance, from the binomial probabilities of all numbers of holding pairs."""
    verdicts = [counted(k, n).verdict != "inconclusive" for k in range(n + 1)]
    assert stats.binom.pmf(range(n + 1), n, 0.5) @ verdicts <= 0.05


@pytest.mark.parametrize("n", COUNTS)
def test_a_mean_on_the_limit_seldom_gets_a_verdict(n):
    """Losses whose true difference is the limit: exactly 5%, and 2.5% if it is supported."""
    rng = np.random.default_rng([41, n])
    statement = worse("left", "right", LIMIT, measure="loss")
    _, verdicts = judged_by_mean(statement, rng.normal(LIMIT, 0.1, (REPETITIONS, n)))
    assert np.mean(verdicts != "inconclusive") <= ALPHA + CHANCE
    assert np.mean(verdicts == "supported") <= ALPHA / 2 + CHANCE
    _, verdicts = judged_by_mean(statement, rng.normal(0, 0.1, (REPETITIONS, n)))
    assert np.mean(verdicts == "supported") <= 0.05


def judged_by_pairs(holding, n):
    """(k) lists of judgements, from how many of n pairs hold (k, claims, statements)."""
    codes = np.sort(holding) @ (n + 1) ** np.arange(holding.shape[-1])
    first = firsts(codes.ravel())
    claims = holding.reshape(-1, holding.shape[-1])
    judged = {code: judge([counted(int(k), n) for k in claims[place]]) for code, place in first}
    return [[judged[code] for code in family] for family in codes.tolist()]


def any_verdict(families):
    """How often any of the claims that are read together gets a verdict."""
    together = [judge_together(family) for family in families]
    return np.mean([set(verdicts) != {"inconclusive"} for verdicts in together])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("n", "n_statements"), [(6, 1), (10, 1), (12, 1), (10, 3)])
def test_twenty_claims_on_the_boundary_seldom_get_any_verdict(n, n_statements, shared):
    """Also if claims share seeds, so that half of the pairs of one seed hold or fail together."""
    rng = np.random.default_rng([43, n, n_statements])
    shape = (REPETITIONS, 20, n_statements, n)
    pairs = rng.random(shape, np.float32) < 0.5
    if shared:
        of_seed = rng.random((REPETITIONS, 1, 1, n)) < 0.5
        pairs = np.where(rng.random(shape, np.float32) < 0.5, of_seed, pairs)
    families = judged_by_pairs(pairs.sum(-1), n)
    assert any_verdict(families) <= 0.05
    alone = [one.verdict != "inconclusive" for family in families for one in family]
    assert np.mean(alone) <= 0.05


@pytest.mark.parametrize("n", COUNTS)
def test_twenty_means_on_the_limit_seldom_get_any_verdict(n):
    """By their p, as `find` gives it; ten more claims with a clear effect do not change it."""
    rng = np.random.default_rng([47, n])
    rows = rng.normal(0, 1, (REPETITIONS, 20, n))
    tested = stats.ttest_1samp(rows, 0, axis=-1)
    for family, ps in zip(rows[:3], tested.pvalue, strict=False):
        found = [judge([find(about("loss", low=0), row)]).p for row in family]
        assert found == pytest.approx(list(ps))
    sides = np.where(tested.statistic > 0, ORDER[2], ORDER[0])
    families = [
        [Judgement(side, p) for side, p in zip(*family, strict=True)]
        for family in zip(sides.tolist(), tested.pvalue.tolist(), strict=True)
    ]
    assert any_verdict(families) <= ALPHA + CHANCE
    clear = [Judgement("supported", 1e-9)] * 10
    wrong = [judge_together([*clear, *family])[10:] for family in families]
    assert np.mean([set(verdicts) != {"inconclusive"} for verdicts in wrong]) <= ALPHA + CHANCE
