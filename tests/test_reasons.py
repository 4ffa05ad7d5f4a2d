"""Reasons: each is told only if the run's own numbers show it."""

import dataclasses

import numpy as np
import pytest
from finished import finished
from kinds import tiny

from attnkit.experiment import Experiment
from attnkit.reasons import headline, marked_pair, reason
from attnkit.variants import Variant

Q_K, QKV = Variant("Q=K"), Variant("QKV")
CYCLE = [1, 2, 3, 4, 0]
"""Entry i of the book reports to entry CYCLE[i]."""


def with_metrics(snapshot, **last):
    """The snapshot with other last values of metrics, one for each variant."""
    history = dict(snapshot.history)
    for name, by_variant in last.items():
        values = history[name].copy()
        values[-1] = np.repeat(by_variant, snapshot.experiment.n_seeds)
        history[name] = values
    return dataclasses.replace(snapshot, history=history)


def with_probe(snapshot, **arrays):
    """The snapshot with other arrays of its example."""
    return dataclasses.replace(snapshot, probe=dataclasses.replace(snapshot.probe, **arrays))


def report(accuracy=(1.0, 0.5), right=(0.97, 0.45), wrong=(0.0, 0.44), error=(1.5, 0.0), **given):
    """Who reports to whom, of five, after training: QKV solves it and Q=K does not.

    The scores of both are 2 between neighbours on the cycle, and 9 on the way that QKV finds.
    """
    experiment = tiny("directed", **{"sharing": ["QKV", "Q=K"], "n_seeds": 1, **given})
    n_heads = experiment.n_heads
    levels = np.repeat(np.array(accuracy), experiment.n_seeds).reshape(2, -1)
    rows = np.stack([levels * share for share in (0, 0.99, 0.99, 1, 1)])
    base = finished(experiment, rows)
    tokens = np.array([[i, 11 + CYCLE[i], 22 + i] for i in range(5)])
    scores = np.zeros((2, 1, 1, 5, 5))
    for i, target in enumerate(CYCLE):
        scores[:, 0, 0, i, target] = [9, 2 + i / 4]
        scores[:, 0, 0, target, i] = [2, 2 + i / 4]
    scores = scores.repeat(n_heads, 2).repeat(experiment.n_seeds, 0)
    masked = np.exp(scores - 1e5 * np.eye(5))
    base = with_probe(
        base,
        tokens=tokens,
        labels=np.array(CYCLE),
        target=np.array(CYCLE),
        reverse=np.argsort(CYCLE),
        scores=scores.astype(np.float16),
        pattern=(masked / masked.sum(-1, keepdims=True)).astype(np.float16),
    )
    symmetry = [1.0 if own < 0.1 else 0.0 for own in error]
    return with_metrics(
        base,
        mass_on_target=right,
        mass_on_reverse=wrong,
        symmetry_error=error,
        score_symmetry=symmetry,
    )


# Mirrored scores


def test_mirrored_scores_are_told_with_both_of_the_pair():
    """The pair that has most attention in both directions, and the accuracy."""
    found = reason(report(), Q_K, 0)
    assert (found.variant, found.kind, found.page) == (Q_K, "mirrored", "asymmetry")
    assert found.sentence == (
        "Q=K: Eli→Ada scores 3.00 and Ada→Eli 3.00, so it guesses which of the two is meant: "
        "50% right."
    )


def test_a_variant_that_solves_the_task_has_no_reason():
    """QKV's scores are no mirror, and it is right."""
    assert reason(report(), QKV, 0) is None


@pytest.mark.parametrize(
    "given",
    [
        {"error": (1.5, 0.02)},  # not quite symmetric, as with relative positions
        {"wrong": (0.0, 0.38)},  # the right entry has more
        {"right": (0.97, 0.3), "wrong": (0.0, 0.3)},  # hardly more than equal shares
        {"accuracy": (1.0, 0.64)},  # better than picking one of the two, as with several heads
        {"accuracy": (1.0, 0.3)},  # worse: something else is wrong, too
        {"accuracy": (1.0, 1.0)},  # right nevertheless
        {"wrong": (0.0, np.nan)},  # a task without reversed entries
    ],
)
def test_what_is_not_quite_a_mirror_is_not_told_as_one(given):
    """Each condition by itself; the plateau of seven numbers is 0.57."""
    found = reason(report(**given), Q_K, 0)
    assert found is None or found.kind != "mirrored"


def test_without_recorded_scores_the_attention_is_told():
    """Results of earlier versions have no scores."""
    found = reason(with_probe(report(), scores=None), Q_K, 0)
    assert found.kind == "mirrored"
    assert found.sentence == (
        "Q=K puts 45% of its attention on the right entry and 44% on the reversed one, so it "
        "guesses which of the two is meant: 50% right."
    )


def test_of_several_heads_the_attention_is_told():
    """A pair has as many scores as there are heads."""
    found = reason(report(n_heads=2), Q_K, 0)
    assert "puts 45% of its attention" in found.sentence


# The marked pair


def test_the_marked_pair_is_a_query_and_what_it_should_look_at():
    """The pair with the largest equal scores, whichever columns there are."""
    snapshot = report()
    assert marked_pair(snapshot, 0) == (4, 0)
    assert snapshot.probe.target[4] == 0
    assert snapshot.probe.reverse[0] == 4


def test_without_mirrored_runs_the_first_pair_is_marked():
    """Any pair shows that the scores differ."""
    assert marked_pair(report(error=(1.5, 1.5)), 0) == (0, 1)


def test_a_task_without_direction_has_no_marked_pair():
    """Nobody asks for the asker."""
    experiment = Experiment(task="phonebook", n_seeds=1)
    assert marked_pair(finished(experiment, [[[0.5]] * 5]), 0) is None


# The headline


def test_the_headline_is_the_reason_of_the_variant_that_fails():
    """QKV has none."""
    assert headline(report(), 0) == reason(report(), Q_K, 0)
