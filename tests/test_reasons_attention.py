"""Reasons that attention shows: mirrored scores, tokens that find themselves, questions."""

import dataclasses

import numpy as np
import pytest
from finished import finished
from kinds import tiny
from reason_snapshots import CYCLE, Q_K, QKV, pair_of, report, with_metrics, with_probe

from attnkit.analysis.reasons import reason
from attnkit.experiment import Experiment


def test_mirrored_scores_are_told_with_both_of_the_pair():
    """The sentence names the first pair, its two equal scores, the mix-up, and the accuracy."""
    found = reason(report(), Q_K, 0)
    assert reason(report(), QKV, 0) is None  # which solves the task
    assert (found.variant, found.kind, found.page) == (Q_K, "mirrored", "asymmetry")
    assert found.sentence == (
        "Ada’s boss is Ben, Ben’s boss is Cem. Q=K scores Ada→Ben and Ben→Ada the same (2.00), "
        "because Q and K share a matrix. Asked for Ben’s boss, it mixes up Cem and Ada: 50% right."
    )


def test_who_is_not_diverted_on_the_example_is_not_said_to_be():
    """No mix-up is claimed if the example does not show it; the accuracy is told instead."""
    snapshot = report()
    pattern = snapshot.probe.pattern.copy()
    pattern[:, :, :, 1, 0] = 0.1 * pattern[:, :, :, 1, 2]
    sentence = reason(with_probe(snapshot, pattern=pattern), Q_K, 0).sentence
    assert sentence.endswith("share a matrix. So it guesses: 50% right.")


def test_a_run_beside_finished_ones_is_told_by_its_own_last_evaluation():
    """A variant with fewer evaluations than the others is judged by its own last one."""
    whole = report()
    history = {name: np.append(values, values[-1:], 0) for name, values in whole.history.items()}
    for values in history.values():
        values[-1, 1] = np.nan
    steps = np.append(whole.eval_steps, whole.eval_steps[-1] + 2)
    later = dataclasses.replace(whole, history=history, eval_steps=steps)
    assert reason(later, Q_K, 0) == reason(whole, Q_K, 0)


@pytest.mark.parametrize(
    "given",
    [
        {"error": (1.5, 0.2)},  # scores differ with the direction
        {"error": (1.5, np.nan)},  # attention of one side to another has no direction
        {"wrong": (0.0, 0.38)},  # the right entry has more
        {"right": (0.97, 0.28), "wrong": (0.0, 0.28)},  # hardly more than equal shares
        {"accuracy": (1.0, 0.64)},  # better than picking one of the two, as with several heads
        {"accuracy": (1.0, 0.3)},  # worse: something else is wrong, too
        {"accuracy": (1.0, 1.0)},  # right nevertheless
        {"accuracy": (1.0, np.nan)},
        {"wrong": (0.0, np.nan)},  # a task without reversed entries
    ],
)
def test_what_is_not_quite_a_mirror_is_not_told_as_one(given):
    """Every condition is needed for mirrored scores; the plateau of seven numbers is 0.57."""
    found = reason(report(**given), Q_K, 0)
    assert found is None or found.kind != "mirrored"


def test_scores_that_differ_a_little_are_told_as_almost_alike():
    """Scores that are not exactly equal, as with relative positions, are called almost the same."""
    snapshot = report(error=(1.5, 0.03))
    scores = snapshot.probe.scores.copy()
    scores[:, :, :, 1, 0] += 0.05
    found = reason(with_probe(snapshot, scores=scores), Q_K, 0)
    assert "Ada→Ben and Ben→Ada almost the same (2.00 and 2.05)" in found.sentence


def test_without_recorded_scores_the_attention_is_told():
    """Results of earlier versions, which have no scores, are explained by their attention."""
    found = reason(with_probe(report(), scores=None), Q_K, 0)
    assert found.kind == "mirrored"
    assert found.sentence == (
        "Q=K gives 45% of its attention to the right entry and 44% to the mirrored one, so it "
        "guesses: 50% right."
    )
    several = reason(report(n_heads=2), Q_K, 0)  # a score for each head
    assert "gives 45% of its attention" in several.sentence


# The marked pair


def test_the_marked_pair_depends_on_the_example_alone():
    """It is a query and its target, whose reversed entry is the query.

    The pair stays the same while models learn, and starts at an entry that is asked.
    """
    snapshot = report()
    assert pair_of(snapshot) == (0, 1)
    assert (snapshot.probe.target[0], snapshot.probe.reverse[1]) == (1, 0)
    for seed in range(5):
        pattern = np.random.default_rng(seed).random(snapshot.probe.pattern.shape)
        other = with_metrics(snapshot, symmetry_error=(0, 0), score_symmetry=(1, 1))
        assert pair_of(with_probe(other, pattern=pattern.astype(np.float16))) == (0, 1)
    labels = snapshot.probe.labels.copy()
    labels[0] = -1
    assert pair_of(with_probe(snapshot, labels=labels)) == (1, 2)


def test_a_task_without_direction_has_no_marked_pair():
    """The phone book has no marked pair, because it has no reversed entries."""
    experiment = Experiment(task="phonebook", n_seeds=1)
    assert pair_of(finished(experiment, [[[0.5]] * 5])) is None


# A token that finds itself


def looking_at_itself(itself, right, accuracy=0.4, **given):
    """Return the snapshot of `report` with other attention of Q=K.

    Args:
        itself: Attention of every token on itself.
        right: Attention of every token on the right one; the other three share the rest.
        accuracy: Accuracy of Q=K.
        given: Other arguments of `report`.
    """
    snapshot = report(accuracy=(1.0, accuracy), wrong=(0.0, 0.1), **given)
    pattern = snapshot.probe.pattern.copy()
    pattern[1] = (1 - itself - right) / 3
    for i, target in enumerate(CYCLE):
        pattern[1, :, :, i, i], pattern[1, :, :, i, target] = itself, right
    return with_probe(snapshot, pattern=pattern)


def test_tokens_that_look_at_themselves_are_told():
    """The sentence has the attention on the token itself and on the right one."""
    found = reason(looking_at_itself(0.7, 0.1), Q_K, 0)
    assert (found.variant, found.kind, found.page) == (Q_K, "finds itself", "attention")
    assert found.sentence == (
        "Q=K finds itself: here, tokens give 70% of their attention to themselves and 10% to "
        "the right token."
    )


def test_a_share_that_rounds_to_nothing_is_told_as_under_one_percent():
    """Attention that rounds to 0% is told as under 1%."""
    found = reason(looking_at_itself(0.7, 0.004), Q_K, 0)
    assert found.sentence.endswith("and under 1% to the right token.")


@pytest.mark.parametrize(
    ("itself", "right", "accuracy"),
    [
        (0.28, 0.1, 0.4),  # little of it, though more than any other
        (0.5, 0.45, 0.4),  # as much on the right token, as in runs that solve a task
        (0.7, 0.1, 0.92),  # nearly all is right nevertheless
        (0.7, 0.1, np.nan),
    ],
)
def test_tokens_that_also_look_elsewhere_do_not_find_themselves(itself, right, accuracy):
    """Every condition is needed for tokens that find themselves."""
    found = reason(looking_at_itself(itself, right, accuracy), Q_K, 0)
    assert found is None or found.kind != "finds itself"


def test_few_tokens_that_look_at_themselves_are_not_the_reason():
    """Two of five tokens are too few, even if they raise the mean."""
    snapshot = looking_at_itself(0.9, 0.02)
    pattern = snapshot.probe.pattern.copy()
    for i in range(3):
        pattern[1, :, :, i] = 0.04
        pattern[1, :, :, i, (i + 2) % 5] = 0.84
    assert reason(with_probe(snapshot, pattern=pattern), Q_K, 0).kind == "unknown"


def test_where_the_answer_is_the_token_itself_nothing_is_wrong():
    """Tokens that have to look at themselves, as in a copied list, do nothing wrong."""
    experiment = tiny("reverse", sharing=["Q=K"], n_seeds=1)
    snapshot = finished(experiment, [[[0.3]], [[0.3]], [[0.3]]])
    n = experiment.task.n_ctx
    pattern = np.broadcast_to(np.eye(n), snapshot.probe.pattern.shape).astype(np.float16)
    itself = with_probe(snapshot, pattern=pattern, target=np.arange(n))
    assert reason(itself, Q_K, 0).kind == "unknown"
    others = with_probe(snapshot, pattern=pattern, target=np.arange(n)[::-1])
    assert reason(others, Q_K, 0).kind == "finds itself"


# Questions that look at each other


@pytest.mark.parametrize(
    ("entries", "accuracy", "told"),
    [(0.03, 0.1, True), (0.001, 0.1, True), (0.2, 0.1, False), (0.03, 0.92, False)],
)
def test_questions_that_look_at_each_other_are_told(entries, accuracy, told):
    """The sentence has the attention on questions and on all entries together."""
    experiment = tiny("phonebook", sharing=["Q=K"], n_seeds=1)
    snapshot = finished(experiment, [[[accuracy]]] * 3)
    pattern = snapshot.probe.pattern.copy()
    pattern[..., :5], pattern[..., 5:] = entries / 5, (1 - entries) / 5
    found = reason(with_probe(snapshot, pattern=pattern), Q_K, 0)
    assert (found is not None and found.kind == "looks elsewhere") == told
    if told:
        shares = "97% of their attention to questions and 3%"
        if entries < 0.01:
            shares = "99% of their attention to questions and under 1%"
        assert found.sentence == (
            f"Q=K: here, questions give {shares} to the entries that hold the answers."
        )


def test_where_entries_ask_themselves_there_is_no_elsewhere():
    """A task whose entries are the questions has no others to look at, so none are told."""
    pattern = np.full_like(report().probe.pattern, 0.2)
    found = reason(with_probe(report(accuracy=(1.0, 0.3)), pattern=pattern), Q_K, 0)
    assert found.kind == "unknown"
