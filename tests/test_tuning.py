"""The search for recipes: which are tried, on how many seeds, and which is chosen."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_claims import TINY

from attnkit.claims.base import SCHEDULES, arm
from attnkit.evidence.curve import Curve
from attnkit.evidence.tuning import (
    ALL_DOUBLINGS,
    DIVERGED,
    FINALISTS,
    FIRST_DOUBLINGS,
    MOST_DOUBLINGS,
    NEIGHBOURS,
    SCREENING_SEEDS,
    SHORTENED,
    SPEED,
    TUNING_SEEDS,
    Recipe,
    Runs,
    Search,
    scores_of,
    worth,
)

ARM = arm("QKV", **TINY)
DEFAULT = ARM.experiment.training.learning_rate
EVALUATIONS = np.array([0.0, 25.0, 50.0, 75.0, 100.0])


def runs(accuracies, losses=None):
    """Return runs that reach an accuracy and a loss at the last of five evaluations."""
    last = np.asarray(accuracies, float)
    rises = np.linspace(0.0, 1.0, 5)[:, None]
    loss = 1 - last if losses is None else np.asarray(losses, float)
    return Runs(EVALUATIONS, rises * last, np.broadcast_to(loss, (5, len(loss))))


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
        return runs(np.where(seeds / TUNING_SEEDS < learns, 1.0, 0.2 * 0.7**away))

    return landscape


@given(
    st.sampled_from(SCHEDULES),
    st.integers(-MOST_DOUBLINGS + 1, 6),
    st.integers(2, 6),
    st.booleans(),
)
def test_the_grid_grows_until_the_best_rate_is_inside(schedule, doublings, width, long):
    """Wherever it lies, tuned on ten seeds, with a smaller and a larger rate tried beside it."""
    search = Search(replace(ARM, up_to=2 * SHORTENED if long else 1))
    requests = finish(search, peak(schedule, doublings, width))
    found = search.found()
    rates = sorted(one.rate for one in found.tried if one.schedule == found.schedule)
    assert not found.at_edge
    assert math.log2(rates[-1] / rates[0]) == pytest.approx(len(rates) - 1, abs=0.01)
    (best,) = (one for one in found.tried if (one.rate, one.schedule) == found.recipe)
    assert best.n_seeds == TUNING_SEEDS
    reached = {(one.rate, one.schedule): one.mean for one in found.tried}
    assert best.mean == max(reached.values())
    if any(one.n_solved for one in found.tried):
        assert found.schedule == schedule
        assert found.rate == pytest.approx(DEFAULT * 2.0**doublings, rel=1e-3)
    assert len({(r.point, r.times, r.first) for r in requests}) == len(requests)
    assert {r.first + r.n_seeds for r in requests} <= {SCREENING_SEEDS, TUNING_SEEDS}


@pytest.mark.parametrize("up_to", [1, SHORTENED, 4 * SHORTENED])
def test_few_seeds_go_to_all_recipes_and_many_to_the_best(up_to):
    """Long trainings are first tried for a quarter of their steps."""
    search = Search(replace(ARM, up_to=up_to))
    requests = finish(search, peak("constant", 0, 3))
    n_first = len(SCHEDULES) * len(FIRST_DOUBLINGS)
    assert all(r.n_seeds == SCREENING_SEEDS for r in requests[:n_first])
    short = up_to // SHORTENED
    assert {r.times for r in requests[:n_first]} == {short or up_to}
    assert {r.times for r in requests[n_first:]} == {up_to}
    tried = search.found().tried
    assert sum(one.n_seeds == TUNING_SEEDS for one in tried) >= FINALISTS
    assert len(tried) < n_first if short else len(tried) >= n_first
    assert search.found().steps == up_to * ARM.base_steps
    assert Search(replace(ARM, up_to=32, tuned_at=1)).wanted()[0].times == 1


@given(
    st.sampled_from(SCHEDULES),
    st.sampled_from(ALL_DOUBLINGS),
    st.floats(0.3, 1.0),
    st.booleans(),
)
def test_one_rate_that_learns_is_found_wherever_it_lies(schedule, doublings, share, long):
    """A search finds the only rate that learns, even if the other schedule seems better."""

    def landscape(request):
        if request.point == (schedule, doublings):
            seeds = np.arange(request.first, request.first + request.n_seeds)
            return runs(np.where(seeds % SCREENING_SEEDS < SCREENING_SEEDS * share, 1.0, 0.03))
        other = request.point.schedule != schedule
        return runs(np.full(request.n_seeds, 0.03 + 0.02 * other))

    search = Search(replace(ARM, up_to=SHORTENED if long else 1))
    finish(search, landscape)
    found = search.found()
    assert not found.never_learnt
    assert found.recipe == (pytest.approx(DEFAULT * 2.0**doublings, rel=1e-3), schedule)


def test_a_schedule_may_be_given():
    """Then no other is tried."""
    search = Search(replace(ARM, schedules=("cosine",)))
    assert {r.recipe.schedule for r in finish(search, peak("constant", 0, 3))} == {"cosine"}
    assert search.found().never_learnt


def test_of_rates_as_good_the_one_whose_neighbours_learn_is_chosen():
    """One that is as good beside rates that fail, or is somewhat faster, is not."""
    learnt = {-2: 1.0, -1: 1.0, 0: 1.0, 1: 0.2, 2: 1.0, 3: 0.1, -3: 1.0}

    def landscape(request):
        level = learnt.get(request.point.doublings, 0.1)
        return runs(np.full(request.n_seeds, level if request.point.schedule == "cosine" else 0.1))

    search = Search(ARM)
    finish(search, landscape)
    assert search.leading[0] in {("cosine", -2), ("cosine", -1)}
    one, two = NEIGHBOURS["accuracy"]
    assert worth({0: 1.0, 1: 0.2, -1: 0.9}, 0, "accuracy") == pytest.approx(1 + (one + two) * 0.2)
    assert worth({0: 1.0, 2: 0.3}, 0, "accuracy") == pytest.approx(1 + one + two * 0.3)
    assert worth({0: 1.0}, 0, "accuracy") == pytest.approx(1 + one + two)


def test_learning_counts_most_then_accuracy_and_speed():
    """A run that diverged has learnt nothing."""
    nan = float("nan")
    accuracy = np.array([[0.1, 0.1, 0.1, 0.1], [0.96, 0.1, 0.1, 0.96], [0.97, 0.96, 0.94, nan]])
    loss = np.array([[1.0] * 4, [0.5] * 4, [0.1, 0.2, 0.3, nan]])
    made = Runs(np.array([0.0, 50.0, 100.0]), accuracy, loss)
    expected = [0.97 + 1 + SPEED / 2, 0.96 + 1, 0.94, DIVERGED["accuracy"]]
    assert scores_of(made, "accuracy") == pytest.approx(expected)
    assert scores_of(made, "loss") == pytest.approx([-0.1, -0.2, -0.3, DIVERGED["loss"]])


def test_what_is_found_holds_all_that_was_tried():
    """With the seeds that learn, the mean, and the curves of the best; none diverges unseen."""

    def landscape(request):
        losses = np.full(request.n_seeds, abs(request.point.doublings - 1.0))
        if request.point.doublings == 3:
            losses[0] = np.nan
        return runs(np.full(request.n_seeds, 0.99), losses)

    search = Search(ARM, "loss")
    finish(search, landscape)
    found = search.found()
    assert found.rate == pytest.approx(2 * DEFAULT)
    assert found.recipe == Recipe(found.rate, found.schedule)
    assert len(found.curves) == FINALISTS
    assert next(iter(found.curves)) == f"{found.schedule} {found.rate:g}"
    assert all(type(curve) is Curve and curve.by == "loss" for curve in found.curves.values())
    for one in found.tried:
        away = round(math.log2(one.rate / DEFAULT))
        assert (one.mean == pytest.approx(abs(away - 1))) != (away == 3)
        assert one.n_solved == one.n_seeds
    assert not found.never_learnt  # a loss says nothing about it
