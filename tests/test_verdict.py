"""The rule that gives verdicts, the search for recipes, and how often both err."""

import math
from dataclasses import replace
from functools import cache
from itertools import product
from math import inf, isfinite, nan

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from small_claims import TINY, about, made_up, small_claim
from tuning_error import simulate

from attnkit.claims import CLAIMS
from attnkit.claims.base import LEAST_SEEDS, SCHEDULES, arm
from attnkit.claims.measures import MEASURES
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence import trials, tuning
from attnkit.evidence.record import STILL_RISES, Recipe
from attnkit.evidence.trials import comparing_trials, tuning_measure, tuning_trials
from attnkit.evidence.tuning import Runs, Search, scores_of, worth
from attnkit.evidence.verdict import (
    LEVEL,
    MOST_WORSE,
    Judgement,
    differences,
    judge,
    judge_statement,
    judge_together,
)
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training import train
from attnkit.training.statistics import mean_interval
from attnkit.variants import Variant

ALPHA = 1 - LEVEL
LIMIT = 0.05
WORSE, NO_WORSE = worse("left", "right", LIMIT), no_worse("left", "right", LIMIT)
SCORE = st.integers(-300, 300).map(lambda hundredths: hundredths / 100)
ARM = arm("QKV", **TINY)
DEFAULT = ARM.experiment.training.learning_rate


def mean_loss(low=-inf, high=inf):
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
    found = judge_statement(says("a", "b", by, measure=measure), MEASURES[measure].better * gains)
    n, n_lost = len(gains), int(np.isnan(gains).sum())
    n_worse, n_better = int((gains < -by - 1e-6).sum()), int((gains > by + 1e-6).sum())
    if says is better:
        n_worse, n_better = n_better, n_worse
    counts = (n, n_worse, n_better, n_lost, n - n_worse - n_better - n_lost)
    told = (found.n_pairs, found.n_worse, found.n_better, found.n_lost, found.n_alike)
    assert (found.method, *told) == ("pairs", *counts)
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


@given(
    hnp.arrays(float, st.integers(LEAST_SEEDS, 23), elements=SCORE),
    st.tuples(SCORE | st.just(-inf), SCORE | st.just(inf)).filter(lambda ends: ends[0] < ends[1]),
)
def test_means_are_judged_by_students_t(values, limits):
    """As `scipy.stats.ttest_1samp` against the limits: held if the interval lies in the region."""
    assume(np.ptp(values) > 0)
    assume(all(abs(values.mean() - limit) > 1e-9 for limit in limits))
    assume(any(map(isfinite, limits)))
    found, (low, high), mean = judge_statement(mean_loss(*limits), values), limits, values.mean()
    at = [stats.ttest_1samp(values, limit).pvalue if isfinite(limit) else 0 for limit in limits]
    expected = (max(at), 1) if low < mean < high else (1, at[0] if mean <= low else at[1])
    assert (found.p_held, found.p_not) == pytest.approx(expected, abs=1e-9)
    interval = mean_interval(values, LEVEL)
    told = (found.method, found.effect, found.effect_low, found.effect_high)
    assert told == ("mean", interval.mean, interval.low, interval.high)
    value, n = values[0], len(values)  # seeds that are all alike are certain, but on the limit
    for more, verdict in ((-0.1, "held"), (0.1, "did not hold"), (0, "undecided")):
        assert judge_statement(mean_loss(low=value + more), np.full(n, value)).verdict == verdict


def test_five_seeds_and_runs_that_all_diverged_say_nothing():
    """However large the effect is; there is neither an average nor a warning."""
    for statement in (WORSE, NO_WORSE, mean_loss(low=0)):
        for n, value in product(range(LEAST_SEEDS), (-100.0, 100.0)):
            found = judge_statement(statement, value + np.linspace(0, 1, n))
            assert (found.verdict, found.p_held, found.p_not) == ("undecided", 1, 1), n
        found = judge_statement(statement, np.full(20, nan))
        assert (found.verdict, found.share_low, found.share_high) == ("undecided", 0, 1)
        assert np.isnan([found.effect, found.effect_low, found.effect_high]).all()


def test_averages_of_runs_that_diverged_or_never_solve_a_task_are_not_made_up():
    """Means are not compared if a run diverged; two that never solve it are alike."""
    found = judge_statement(mean_loss(low=0), np.array([2.0, 3, 5, nan, 7, 11, 13]))
    assert (found.verdict, found.n_lost) == ("undecided", 1)
    scores = {"a": np.array([inf, inf, 9, 9]), "b": np.array([inf, 8, inf, 8])}
    statement = worse("a", "b", 2, measure="steps_to_solve")
    values = differences(statement, scores)
    np.testing.assert_array_equal(values, [0, inf, -inf, 1])
    assert judge_statement(statement, values).effect == 0.5
    assert np.isnan(judge_statement(statement, values[1:3]).effect)
    assert np.isnan(judge_statement(mean_loss(low=0), np.array([inf, 1, 2, 3, 5, 7, 11])).effect)


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


@pytest.mark.parametrize(
    ("accuracy", "rises"),
    [
        ([0.3, 0.5, 0.51, 0.52], False),
        ([0.3, 0.5, 0.6, 0.61], True),  # the last but one doubling added more
        ([0.9, 0.5, 0.3], False),
        ([0.3, 0.3], True),
        ([0.5, 0.5, 0.5 + STILL_RISES + 1e-9], True),
    ],
)
def test_accuracy_has_stopped_rising_after_two_doublings_that_add_little(accuracy, rises):
    """It falls, stays or rises by at most `STILL_RISES` in both; one doubling tells nothing."""
    scores = {"QKV": {"accuracy": np.array(accuracy)[:, None]}}
    assert replace(made_up(small_claim()), scores=scores).still_rises("QKV") == rises


def test_a_claim_holds_as_far_as_its_weakest_statement_and_is_refuted_after_bonferroni():
    """All must hold, so nothing is corrected there; any may refute.

    No failure of 20 refutes alone (p = .023), but not as the worst of three (p = .069).
    """
    strong, weak = counted(WORSE, 12, 0, 20), counted(WORSE, 8, 1, 20)
    assert judge([strong, weak]) == Judgement("held", weak.p_held)
    assert judge([strong, counted(WORSE, 5, 0, 20)]).verdict == "undecided"
    for n, others, verdict in ((20, 0, "did not hold"), (20, 2, "undecided")):
        found = judge([*[counted(WORSE, n, 0, n)] * others, counted(WORSE, 0, 0, n)])
        assert found == Judgement(verdict, pytest.approx((1 + others) * 2 * 0.8**n))


@given(st.lists(st.integers(0, 2000).map(lambda units: units / 10_000), max_size=30))
def test_verdicts_read_together_are_holms(ps):
    """Holm's adjusted p is the largest (m − i + 1) p of those no larger; it stands at most 5%."""
    alone = [Judgement(("held", "did not hold")[place % 2], p) for place, p in enumerate(ps)]
    ranks = stats.rankdata(ps, "ordinal")
    steps = [(rank, (len(ps) - rank + 1) * p) for p, rank in zip(ps, ranks, strict=True)]
    adjusted = [max(step for r, step in steps if r <= rank) for rank in ranks]
    stands = [p <= ALPHA for p in adjusted]
    expected = [one.verdict if ok else "undecided" for one, ok in zip(alone, stands, strict=True)]
    assert judge_together(alone) == expected


def runs(accuracies, losses=None):
    """Return runs that reach an accuracy and a loss at the last of five evaluations."""
    last = np.asarray(accuracies, float)
    loss = 1 - last if losses is None else np.asarray(losses, float)
    steps, rises = np.linspace(0.0, 100.0, 5), np.linspace(0.0, 1.0, 5)[:, None]
    return Runs(steps, rises * last, np.broadcast_to(loss, (5, len(loss))))


def finish(search, landscape):
    """Answer all requests of a search by a function of the point; return them in their order."""
    requests = []
    while wanted := search.wanted():
        assert len(requests) < 200
        for request in wanted:
            requests.append(request)
            search.add(request, landscape(request))
    return requests


def peak(schedule, doublings, width):
    """Return a landscape: fewer of ten seeds learn the further a learning rate lies from its best.

    With the other schedule, and further away than `width` doublings, none learns.
    """

    def landscape(request):
        away = abs(request.point.doublings - doublings)
        learns = max(0.0, 1 - away / width) if request.point.schedule == schedule else 0.0
        seeds = np.arange(request.first, request.first + request.n_seeds)
        return runs(np.where(seeds / tuning.TUNING_SEEDS < learns, 1.0, 0.2 * 0.7**away))

    return landscape


@given(
    st.sampled_from(SCHEDULES),
    st.integers(-tuning.MOST_DOUBLINGS + 1, 6),
    st.integers(2, 6),
    st.booleans(),
)
def test_the_grid_grows_until_the_best_rate_is_inside(schedule, doublings, width, long):
    """Wherever it lies, tuned on ten seeds, with a smaller and a larger rate tried beside it."""
    search = Search(replace(ARM, up_to=2 * tuning.SHORTENED if long else 1))
    requests = finish(search, peak(schedule, doublings, width))
    found = search.found()
    rates = sorted(one.rate for one in found.tried if one.schedule == found.schedule)
    assert not found.at_edge
    assert math.log2(rates[-1] / rates[0]) == pytest.approx(len(rates) - 1, abs=0.01)
    (best,) = (one for one in found.tried if (one.rate, one.schedule) == found.recipe)
    assert best.n_seeds == tuning.TUNING_SEEDS
    reached = {(one.rate, one.schedule): one.mean for one in found.tried}
    assert best.mean == max(reached.values())
    if any(one.n_solved for one in found.tried):
        assert found.schedule == schedule
        assert found.rate == pytest.approx(DEFAULT * 2.0**doublings, rel=1e-3)
    assert len({(r.point, r.times, r.first) for r in requests}) == len(requests)
    assert {r.first + r.n_seeds for r in requests} <= {tuning.SCREENING_SEEDS, tuning.TUNING_SEEDS}


def test_one_rate_that_learns_is_found_wherever_it_lies():
    """A search finds the only rate that learns, even if the other schedule seems better."""
    for schedule, doublings in product(SCHEDULES, tuning.ALL_DOUBLINGS):

        def landscape(request, learns=(schedule, doublings)):
            other = 0.03 + 0.02 * (request.point.schedule != learns[0])
            return runs(np.full(request.n_seeds, 1.0 if request.point == learns else other))

        for up_to in (1, tuning.SHORTENED):
            search = Search(replace(ARM, up_to=up_to))
            finish(search, landscape)
            rate = pytest.approx(DEFAULT * 2.0**doublings, rel=1e-3)
            assert search.found().recipe == (rate, schedule)


def test_of_rates_as_good_the_middle_one_is_taken():
    """The worse neighbour on either side counts, so that a rate beside a bad one is not taken."""
    learnt = {-2: 1.0, -1: 1.0, 0: 1.0, 1: 0.2, 2: 1.0, 3: 0.1, -3: 1.0}
    for by in ("accuracy", "loss"):
        assert max(learnt, key=lambda doublings: worth(learnt, doublings, by)) in (-2, -1)

    def landscape(request):
        level = learnt.get(request.point.doublings, 0.1)
        return runs(np.full(request.n_seeds, level if request.point.schedule == "cosine" else 0.1))

    search = Search(ARM)
    finish(search, landscape)
    assert search.leading[0] in {("cosine", -2), ("cosine", -1)}


def test_learning_counts_most_then_accuracy_and_speed():
    """A run that diverged has learnt nothing."""
    accuracy = np.array([[0.1, 0.1, 0.1, 0.1], [0.96, 0.1, 0.1, 0.96], [0.97, 0.96, 0.94, nan]])
    loss = np.array([[1.0] * 4, [0.5] * 4, [0.1, 0.2, 0.3, nan]])
    made = Runs(np.array([0.0, 50.0, 100.0]), accuracy, loss)
    expected = [0.97 + 1 + tuning.SPEED / 2, 0.96 + 1, 0.94, tuning.DIVERGED["accuracy"]]
    assert scores_of(made, "accuracy") == pytest.approx(expected)
    assert scores_of(made, "loss") == pytest.approx([-0.1, -0.2, -0.3, tuning.DIVERGED["loss"]])


def test_a_recipe_that_diverged_has_no_mean():
    """By the loss, the best is found among the others."""

    def landscape(request):
        losses = np.full(request.n_seeds, abs(request.point.doublings - 1.0))
        losses[0] = np.nan if request.point.doublings == 3 else losses[0]
        return runs(np.full(request.n_seeds, 0.99), losses)

    search = Search(ARM, "loss")
    finish(search, landscape)
    found = search.found()
    assert found.rate == pytest.approx(2 * DEFAULT)
    for one in found.tried:
        away = round(math.log2(one.rate / DEFAULT))
        assert (one.mean == pytest.approx(abs(away - 1))) != (away == 3)
    assert not found.never_learnt  # a loss says nothing about it


MIXED = (  # in none of the orders in which experiments have their variants
    arm("K=V kv_heads=1 n_heads=2", "K=V, MQA", **TINY),
    arm("Q=K", "symmetric", **TINY),
    arm("QKV", "free", **TINY),
    arm("Q=K=V", "one", **TINY),
    arm("K=V", "tied", **TINY),
)


def check_cells(trial, arms):
    """Hold the cells of a trial against the variants of its experiment, in their order."""
    by_name, training = {one.name: one for one in arms}, trial.experiment.training
    expected = [f"{by_name[name].variant} learning_rate={one.rate:g}" for name, one in trial.cells]
    assert list(map(Variant, expected)) == list(trial.experiment.sharing)
    schedules = {recipe.schedule for _, recipe in trial.cells}
    assert schedules - {None} <= {training.schedule}
    assert (training.warm_up, training.clip > 0) == (0.05, True) or "cosine" not in schedules


def test_every_claim_trains_its_arms_and_compares_on_seeds_of_their_own():
    """Cells follow an experiment's own order, and no seed is both tuned on and compared."""
    for claim in CLAIMS.values():
        for arms in (claim.judged_arms, claim.confirmation[0]):
            recipes = {
                one.name: Recipe(0.001 * (1 + place), one.schedules[-1])
                for place, one in enumerate(arms)
            }
            wanted = [(one, request) for one in arms for request in Search(one).wanted()]
            tuned, compared = tuning_trials(wanted), comparing_trials(arms, recipes, 2)
            cells = sorted(cell for trial in tuned for cell in trial.cells)
            with about(claim):
                assert cells == sorted((one.name, request.recipe) for one, request in wanted)
                for trial in (*tuned, *compared):
                    check_cells(trial, arms)
                    assert len(trial.cells) <= trials.MOST_TOGETHER
                seeds = {seed for trial in compared for seed in trial.experiment.seeds}
                assert seeds <= {trials.FIRST_SEED, trials.FIRST_SEED + 1}
                assert all(seeds.isdisjoint(trial.experiment.seeds) for trial in tuned)


def test_arms_train_beside_each_other_unless_something_sets_them_apart():
    """Other settings, a rate of another arm, fewer seeds, and more steps make another trial."""
    (_, request), *_ = wanted = [(one, r) for one in MIXED for r in Search(one).wanted()]
    most = trials.MOST_TOGETHER
    assert [len(trial.cells) for trial in tuning_trials(wanted)] == [most, most, 5] * 2
    (trial,) = tuning_trials([(MIXED[0], request._replace(first=5, n_seeds=4))])
    assert trial.experiment.seeds == range(trials.TUNING_SEED + 5, trials.TUNING_SEED + 9)
    own = MIXED[1].experiment.training.learning_rate
    (trial,) = comparing_trials(MIXED[1:3], {"free": Recipe(0.0071)}, 3)
    assert dict(trial.cells) == {"free": Recipe(0.0071), "symmetric": Recipe(own)}
    assert tuning_measure(arm("QKV", task="language")) == "loss"  # whose accuracy says little
    assert tuning_measure(replace(MIXED[0], up_to=2)) == "accuracy"
    arms = (
        *MIXED[1:3],
        arm("Q=K", "longer", **{**TINY, "steps": 7}),
        arm("Q=K", "borrowing", recipe_of="free", **TINY),
        replace(MIXED[3], most_seeds=3),
        replace(MIXED[4], up_to=8),
    )
    rates = dict.fromkeys((one.name for one in arms), Recipe(0.01))
    found = comparing_trials(arms, rates, 5, first_seed=7)
    cells = [" ".join(sorted(name for name, _ in trial.cells)) for trial in found]
    assert cells == ["free symmetric", "longer", "borrowing", "one", "tied"]
    assert [trial.experiment.training.steps for trial in found] == [6, 7, 6, 6, 8 * 6]
    assert [trial.up_to for trial in found] == [1, 1, 1, 1, 8]
    ends = [10 if cell == "one" else 12 for cell in cells]
    assert [trial.experiment.seeds for trial in found] == [range(7, end) for end in ends]


def test_what_is_too_large_for_one_experiment_is_split_and_nothing_left_out():
    """More seeds than an experiment has, and arms or seeds that take too much memory together."""
    n_seeds = 2 * trials.MOST_SEEDS + 3
    found = comparing_trials(MIXED[1:3], {}, n_seeds, first_seed=7)
    assert [seed for trial in found for seed in trial.experiment.seeds] == [*range(7, 7 + n_seeds)]
    assert len({trial.cells for trial in found}) == 1
    large = {"task": "mqar", "batch_size": 512, "n_layers": 4, "d_model": 128, "d_mlp": 512}
    arms = [replace(one, settings=large) for one in MIXED]
    parts = comparing_trials(arms, {}, 3)
    assert len(parts) > 1
    assert sorted(name for part in parts for name, _ in part.cells) == sorted(a.name for a in arms)
    for part in parts:
        check_cells(part, arms)
    with pytest.raises(InvalidExperiment):
        comparing_trials([replace(MIXED[0], settings=large | {"length": 128})], {}, 7)


def test_scores_of_a_trial_are_those_of_each_arm_alone():
    """A run does not depend on those beside it; steps to solve are the logarithm of the first."""
    rates = {"free": Recipe(0.013), "tied": Recipe(0.002), "one": Recipe(0.007)}
    (trial,) = comparing_trials(MIXED, rates, 2, first_seed=3)
    together = trial.scores(train(trial.experiment).snapshot)
    assert set(together) == {one.name for one in MIXED}
    for one in (MIXED[0], MIXED[4]):
        (alone,) = comparing_trials([one], rates, 2, first_seed=3)
        snapshot = train(alone.experiment).snapshot
        (expected,) = alone.scores(snapshot).values()
        for name in MEASURES:
            assert together[one.name][name] == pytest.approx(expected[name], rel=1e-5, nan_ok=True)
    assert len({own["loss"][-1, 0] for own in together.values()}) == len(MIXED)
    accuracy = [[0.1, 0.2], [0.96, 0.2], [0.5, 0.3], [0.5, 0.96], [1.0, 0.94]]
    history = {name: values[:1].repeat(5, 0) for name, values in snapshot.history.items()}
    history |= {"accuracy": np.array(accuracy)}
    made = replace(snapshot, eval_steps=np.arange(0, 30, 6), history=history)
    for until, second in ((24, np.log2(18)), (12, np.inf)):
        found = MEASURES["steps_to_solve"].read(made, until)
        np.testing.assert_allclose(found, [np.log2(6), second])


@pytest.mark.long(seconds=10)
@pytest.mark.parametrize("shares", [[0.1, 0.3, 0.7, 0.4, 0.1], [0.9] * 5])
def test_equal_arms_differ_no_more_often_than_the_level_says(shares, seed):
    """This includes tuning, which may miss the best recipe."""
    n, n_runs, population, allowed = 150, 200, {}, 1 - LEVEL
    for schedule, factor in (("constant", 1), ("cosine", 0.6)):
        for doublings, share in enumerate(shares, -len(shares) // 2):
            learns = np.arange(n_runs) < n_runs * share * factor
            accuracy = np.where(learns, np.array([[0], [0.5], [0.99]]), [[0], [0.1], [0.1]])
            steps = np.array([0.0, 50.0, 100.0])
            population[schedule, doublings] = Runs(steps, accuracy, 1 - accuracy)
    found = simulate(population, ARM, 40, 40, n, seed)
    assert found.together <= found.alone <= allowed + 3 * np.sqrt(allowed * LEVEL / n)
    assert (found.learns, found.n, found.n_seeds) == (max(shares), n, 40)
