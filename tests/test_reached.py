"""Sentences about what experiments reached: true for any number of variants, seeds and steps."""

import math

import numpy as np
import pytest
from finished import THREE_SEEDS, finished, letters, one_variant
from kinds import tiny

from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.reached import comparison_in_words, in_a_cell, levels_in_words, metric_of
from attnkit.figures.replay import replay
from attnkit.variants import Variant

FIVE = [Variant(text) for text in ("QKV", "Q=K", "K=V", "Q=V", "Q=K=V")]
SEVEN = [*FIVE, Variant("Q=K signed"), Variant("QKV sum")]
NONE = math.nan


def test_accuracies_are_told_from_the_best_to_the_last():
    """Equal percentages are one level, variants without a result are named; a moment may lead."""
    for means, sentence in (
        ([0.97], "QKV reaches 97% accuracy."),
        ([NONE], "QKV has no result."),
        ([1, 1], "Both variants reach 100% accuracy."),
        ([0.999, 1], "Q=K reaches 100% accuracy, QKV 99%."),
        ([0.991, 0.999], "Both variants reach 99% accuracy."),
        ([1, NONE], "QKV reaches 100% accuracy, Q=K has no result."),
        ([1, 1, NONE], "QKV and Q=K reach 100% accuracy, K=V has no result."),
        ([NONE, NONE], "QKV and Q=K have no result."),
        ([1] * 5, "All 5 variants reach 100% accuracy."),
        ([1, 0.49, 1, 1, 0.4], "QKV, K=V and Q=V reach 100% accuracy, Q=K 49%, Q=K=V 40%."),
        (
            [1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            "QKV reaches 100% accuracy, and Q=K comes last with 10%.",
        ),
        (
            [0.1, 1, 1, 1, 1, 1, 0.1],
            "Q=K, K=V, Q=V, Q=K=V and Indefinite reach 100% accuracy, and QKV and Two scores come "
            "last with 10%.",
        ),
    ):
        assert levels_in_words(SEVEN[: len(means)], means, "accuracy") == sentence
    led = levels_in_words(FIVE[:2], [0.5, 0.5], "accuracy", "At step 250, ")
    assert led == "At step 250, both variants reach 50% accuracy."


def test_losses_are_told_from_the_lowest():
    """A lower loss is better; two numbers that look the same are one level."""
    for means, sentence in (
        ([2.5, 2.25], "Q=K has a loss of 2.25, QKV 2.50."),
        ([2.251, 2.249], "Both variants have a loss of 2.25."),
        ([NONE, 2.25], "Q=K has a loss of 2.25, QKV has no result."),
    ):
        assert levels_in_words(FIVE[:2], means, "loss") == sentence


def one(accuracy, diverged_at=None, **given):
    """Return a finished experiment on two variants; all seeds end with these accuracies."""
    experiment = tiny("directed", sharing=["QKV", "Q=K"], **given)
    rising = np.array([[0.1, 0.1], accuracy])[:, :, None] + np.zeros((2, 2, experiment.n_seeds))
    return finished(experiment, rising, diverged_at=diverged_at)


def diverged():
    """Return a finished experiment in which all seeds of Q=K diverged."""
    accuracy = np.array([[[0.1, 0.1], [0.1, 0.1]], [[1, 1], [NONE, NONE]]])
    experiment = tiny("directed", sharing=["QKV", "Q=K"], n_seeds=2)
    return finished(experiment, accuracy, diverged_at=[[-1, -1], [5, 5]])


def test_a_comparison_names_the_variant_that_differs_most():
    """The conclusion is about variants that several experiments have, whatever their tasks."""
    seeds, other = one_variant(THREE_SEEDS), tiny("directed", sharing=["K=V"])
    for snapshots, sentence in (
        ([one([1, 0.5]), one([1, 0.9])], "The accuracy of Q=K differs most: 50% in A, 90% in B."),
        ([one([1, 0.5])] * 2, "Every variant that A and B share has the same accuracy."),
        (
            [one([1, 0.5]), one([1, 0.5]), one([0.25, 0.5])],
            "The accuracy of QKV differs most: 100% in A, 100% in B, 25% in C.",
        ),
        ([one([0.25, 0.5]), seeds], "The accuracy of QKV differs: 25% in A, 70% in B."),
        (
            [seeds, one_variant(THREE_SEEDS, kind="reverse")],
            "QKV has the same accuracy in A and B.",
        ),
        (
            [seeds, finished(other, np.zeros((2, 1, 2)))],
            "A and B have results of no variant in common.",
        ),
        ([diverged(), one([1, 0.5])], "QKV has the same accuracy in A and B."),
    ):
        assert comparison_in_words(letters(*snapshots)) == sentence


def test_a_cell_is_short():
    """The first variants; losses where the task has a loss to beat."""
    assert in_a_cell(one([1, 0.5])) == "QKV 100%, Q=K 50%"
    assert in_a_cell(diverged()) == "QKV 100%, Q=K diverged"
    experiment = tiny("language", sharing=["QKV"])
    history = np.full((2, 1, experiment.n_seeds), 0.25)
    assert in_a_cell(finished(experiment, history)) == "loss: QKV 0.75"
    five = tiny("directed", n_seeds=1)
    assert in_a_cell(finished(five, np.zeros((2, 5, 1)))) == "QKV 0%, Q=K 0%, K=V 0%, Q=V 0%, …"


def film_of(snapshot, variants):
    """Return the curves of some variants."""
    return InspectionResult.from_bytes(replay(snapshot, variants, metric_of([snapshot])))


def test_a_replay_has_the_means_and_limits_of_every_stored_evaluation():
    """And a sentence for each; colours mean variants, whichever are shown.

    Measures that were not recorded are left out; a long history is thinned, but for its end.
    """
    film = film_of(one_variant(THREE_SEEDS), FIVE[:1])
    assert film.framed["accuracy"][:, 0] == pytest.approx([0.2, 1.7 / 3, 0.7])
    low, high = film.framed["accuracy_low"][:, 0], film.framed["accuracy_high"][:, 0]
    assert (low < film.framed["accuracy"][:, 0]).all()
    assert ((low >= 0) & (high <= 1)).all()
    assert film.header["steps"] == [0, 4, 8]
    assert film.header["sentences"]["conclusion"] == [
        "Untrained, QKV reaches 20% accuracy.",
        "At step 4, QKV reaches 57% accuracy.",
        "At step 8, QKV reaches 70% accuracy.",
    ]
    both, second = (film_of(one([1, 0.5]), variants) for variants in (FIVE[:2], FIVE[1:2]))
    assert second.header["variants"] == both.header["variants"][1:]
    assert list(both.header["curves"]) == ["accuracy", "loss"]
    assert film.header["hints"]["accuracy"] == "Means of 3 seeds; bands: 95% intervals."
    assert both.header["hints"] == dict.fromkeys(["accuracy", "loss"], "Means of 2 seeds.")
    accuracy = np.linspace(0, 1, 1001)[:, None] * [1.0, 1.0]
    header = film_of(one_variant(accuracy, steps=1000), FIVE[:1]).header
    assert len(header["steps"]) < 200
    assert header["steps"][-1] == 1000
    assert header["sentences"]["conclusion"][-1] == "At step 1000, QKV reaches 100% accuracy."
