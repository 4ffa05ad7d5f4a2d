"""Reasons that curves show: narrow heads, seeds, divergence, guesses, and too few steps."""

import dataclasses

import numpy as np
import pytest
from finished import finished
from kinds import tiny
from reason_snapshots import FLAT, Q_K, RISES, SOLVED, report, rising, with_metrics

from attnkit.analysis.reasons import headline, reason
from attnkit.experiment import Experiment
from attnkit.variants import Variant


@pytest.mark.parametrize(
    ("sharing", "role"), [("K=V", "both key and value"), ("Q=V", "both query and value")]
)
def test_a_narrow_head_with_tied_values_learns_slowly(sharing, role):
    """The sentence has the width of a head, and QKV's accuracy at the same step."""
    snapshot = rising([SOLVED], [RISES], sharing=["QKV", sharing], d_head=4)
    found = reason(snapshot, Variant(sharing), 0)
    assert (found.kind, found.page) == ("narrow head", "questions")
    assert found.sentence == (
        f"{sharing} learns slowly: the 4 numbers of a head are {role}: 60% right at step 8, "
        "QKV 100%."
    )
    assert "cannot" not in found.sentence


@pytest.mark.parametrize(
    ("curves", "given"),
    [
        (([SOLVED], [RISES]), {"d_head": 9}),  # wide enough
        (([SOLVED], [RISES]), {"sharing": ["QKV", "Q=K"]}),  # values are not tied
        (([SOLVED], [RISES]), {"sharing": ["Q=K", "Q=K=V"]}),  # slow at every width
        (([SOLVED], [RISES]), {"sharing": ["QKV d_head=8", "K=V"]}),  # differs in width, too
        (([SOLVED], [FLAT]), {}),  # it does not learn
        (([SOLVED], [[0, 0.1, 0.15, 0.2, 0.24]]), {}),  # no better than the number of any entry
        (([[0, 0.3, 0.5, 0.6, 0.65]], [RISES]), {}),  # QKV is no faster
        (([[*SOLVED[:4], np.nan]], [RISES]), {}),  # QKV diverged
    ],
)
def test_what_is_slow_for_another_reason_is_not_told_as_narrow(curves, given):
    """Every condition is needed for a narrow head."""
    given = {"sharing": ["QKV", "K=V"], "d_head": 4, **given}
    snapshot = rising(*curves, **given)
    found = reason(snapshot, snapshot.experiment.sharing[1], 0)
    assert found is None or found.kind != "narrow head"


# The optimiser


def test_other_seeds_that_solve_the_task_are_counted():
    """The sentence counts the seeds that solve the task, and has this seed's accuracy."""
    snapshot = rising([SOLVED, FLAT, SOLVED], sharing=["Q=K"])
    found = reason(snapshot, Q_K, 1)
    assert found.kind == "optimiser"
    assert found.sentence == ("Q=K solves it with 2 of 3 seeds, but here it has 60% right.")
    assert "do not know" in found.advice
    assert reason(snapshot, Q_K, 0) is None


@pytest.mark.parametrize(
    "curves",
    [
        [FLAT, FLAT, FLAT],  # no seed solves it
        [SOLVED, RISES, SOLVED],  # this one is on its way
        [SOLVED, [0, 0.96, 0.96, 0.96, 0.96], SOLVED],  # nearly there
        [[0, 1, 1, 1, 0.5], FLAT, FLAT],  # the other has lost it again
    ],
)
def test_other_seeds_are_told_only_of_one_that_is_stuck(curves):
    """Every condition is needed for a seed that fails where others do not."""
    found = reason(rising(curves, sharing=["Q=K"]), Q_K, 1)
    assert found is None or found.kind != "optimiser"


def test_a_run_that_diverged_is_told_with_its_step_and_rate():
    """The sentence has the step of divergence and the learning rate to go below."""
    rows = [[[0.1], [0.1]], [[0.5], [np.nan]], [[1.0], [np.nan]]]
    experiment = tiny("phonebook", sharing=["QKV", "Q=K learning_rate=0.5"], n_seeds=1)
    snapshot = finished(experiment, rows, diverged_at=[[-1], [4]])
    variant = experiment.sharing[1]
    found = reason(snapshot, variant, 0)
    assert (found.variant, found.kind) == (variant, "diverged")
    assert "diverged by step 4: its loss is not a finite number any more." in found.sentence
    assert found.advice == "Try a learning rate below 0.5."
    assert headline(snapshot, 0) == found


# Chance, groups of questions, examples known by heart


def test_a_loss_of_equal_guesses_is_told():
    """A loss equal to the logarithm of the number of answers is that of guessing."""
    loss = np.full((5, 1, 1), np.log(7))
    found = reason(rising([FLAT], loss=loss, sharing=["Q=K"]), Q_K, 0)
    assert found.kind == "chance"
    assert found.sentence == (
        "Q=K has learned nothing yet: its loss of 1.95 is that of guessing among 7 answers."
    )
    for other in (0.9, 1.1):
        found = reason(rising([FLAT], loss=other * loss, sharing=["Q=K"]), Q_K, 0)
        assert found.kind == "unknown"


@pytest.mark.parametrize(
    ("accuracy", "share", "told"), [(0.1, 1.3, True), (0.1, 1.05, False), (0.5, 1.3, False)]
)
def test_a_loss_above_that_of_guesses_is_told_with_the_learning_rate(accuracy, share, told):
    """A loss above guessing counts if few answers are right: confident models may have it too."""
    loss = np.array([1, 2, 3, 2.8, 1])[:, None, None] * share * np.log(7)
    found = reason(rising([[0, *[accuracy] * 4]], loss=loss, sharing=["Q=K"]), Q_K, 0)
    assert (found.kind == "optimiser") == told
    if told:
        assert found.sentence == (
            "Q=K does worse than guessing at a learning rate of 0.005: its loss is 2.53, that of "
            "guesses 1.95."
        )


@pytest.mark.parametrize(
    ("known", "new", "told"),
    [(0.97, 0.6, True), (0.65, 0.6, False), (0.97, 0.92, False), (np.nan, 0.6, False)],
)
def test_examples_known_by_heart_are_told(known, new, told):
    """Known examples are a reason if their accuracy is much above that on new ones."""
    snapshot = rising([[0, new, new, new, new]], sharing=["Q=K"])
    found = reason(with_metrics(snapshot, training_accuracy=[known]), Q_K, 0)
    assert (found.kind == "memorised") == told
    if told:
        assert found.sentence == (
            "Q=K has 97% right on examples that it was trained on, but only 60% on new ones."
        )


@pytest.mark.parametrize(
    ("best", "worst", "told"), [(0.98, 0.2, True), (0.98, 0.7, False), (0.8, 0.2, False)]
)
def test_groups_of_questions_that_fail_are_told(best, worst, told):
    """Groups of questions are a reason if one is answered and another is not."""
    experiment = Experiment(task="k_hop", sharing=["Q=K"], n_seeds=1)
    snapshot = finished(experiment, [[[0.5]], [[0.5]], [[0.5]]])
    shares = np.array([[best, worst]], np.float32)
    found = reason(dataclasses.replace(snapshot, slice_accuracy=shares), Q_K, 0)
    assert (found.kind == "part") == told
    if told:
        assert found.sentence == ("Q=K answers only some questions. Hops “1”: 98% right, “2”: 20%.")


# Not yet trained


def test_a_curve_that_still_rises_is_told_with_two_of_its_points():
    """A rising curve is told with two points, in other words during training than after it."""
    snapshot = rising([RISES], sharing=["Q=K"])
    ended = reason(snapshot, Q_K, 0)
    assert ended.kind == "early"
    assert ended.sentence == (
        "Q=K was still learning when training ended: 50% right at step 6, 60% at step 8."
    )
    running = reason(dataclasses.replace(snapshot, status="running"), Q_K, 0)
    assert running.sentence == "Q=K is still learning: 50% right at step 6, 60% at step 8."


def test_where_the_accuracy_waits_the_loss_tells_that_a_run_learns():
    """A falling loss on new examples counts as learning, unless the accuracy falls too."""
    loss = np.array([3, 2.4, 2.0, 1.9, 1.8])[:, None, None]
    found = reason(rising([FLAT], loss=loss, sharing=["Q=K"]), Q_K, 0)
    assert found.sentence.endswith("ended: loss 1.90 at step 6, 1.80 at step 8.")
    slower = reason(rising([FLAT], loss=loss / 10, sharing=["Q=K"]), Q_K, 0)
    worse = reason(rising([[*FLAT[:4], 0.5]], loss=loss, sharing=["Q=K"]), Q_K, 0)
    assert {slower.kind, worse.kind} == {"unknown"}


@pytest.mark.parametrize("curve", [FLAT, [0, 0.6, 0.6, 0.6, 0.62], [0, 0.6, 0.8, 0.9, 0.96]])
def test_a_curve_that_has_stopped_or_is_nearly_there_is_not(curve):
    """A rise within the scatter, or close to the top, is no reason."""
    found = reason(rising([curve], sharing=["Q=K"]), Q_K, 0)
    assert found is None or found.kind == "unknown"


def test_where_the_loss_is_the_measure_it_is_told():
    """On a text the loss is told, because accuracy over single characters says little."""
    loss = np.array([4, 3, 2.8, 2.6, 2.5])[:, None, None]
    snapshot = rising([FLAT], loss=loss, kind="language", sharing=["Q=K"])
    assert reason(snapshot, Q_K, 0).sentence == (
        "Q=K was still learning when training ended: loss 2.60 at step 6, 2.50 at step 8."
    )


def test_before_the_first_step_nothing_is_explained():
    """An untrained run has its accuracy told, whatever its other numbers are."""
    snapshot = dataclasses.replace(report(), step=0)
    assert reason(snapshot, Q_K, 0).sentence == "Q=K is not trained yet: 50% right."


def test_evaluations_of_an_earlier_task_or_form_do_not_count():
    """A rise during the earlier task is not told."""
    experiment = tiny("transfer", sharing=["Q=K"], n_seeds=1, steps=16, earlier_steps=15)
    snapshot = dataclasses.replace(
        finished(experiment, [[[0.1]], [[0.3]], [[0.5]]]),
        eval_steps=np.array([0, 6, 12]),
        step=12,
        status="running",
    )
    assert reason(snapshot, Q_K, 0) is None
