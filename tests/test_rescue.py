"""What rescues symmetric scores: the changes that are offered, and what is said of them."""

import numpy as np
import pytest

from attnkit.analysis.rescue import (
    Outcome,
    changes_of,
    effect_sentences,
    goal_of,
    symmetric_variants,
    untied,
    verdict_on,
)
from attnkit.experiment import Experiment
from attnkit.training import train
from attnkit.variants import CATALOGUE, Variant

ALL = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"]
FIVE = np.array([0.5, 0.48, 0.52, 0.49, 0.51])


def directed(**settings):
    """The directed relation with all five columns."""
    return Experiment(**{"task": "directed", "sharing": ALL, **settings})


def outcome(experiment, **accuracy):
    """Made-up accuracies, by names without their equals signs."""
    named = {"QKV": np.ones(5), "Q_K": FIVE, "Q_K_V": FIVE - 0.1, "K_V": np.ones(5)} | accuracy
    found = {v: named[v.value.replace("=", "_")] for v in experiment.sharing if v.value != "Q=V"}
    return Outcome(experiment, found)


def test_those_that_must_be_symmetric_are_found():
    """By their wiring, not by their names."""
    texts = ["QKV", "Q=K", "Q=K=V", "Q=K positions=rope", "Q=K unit_key"]
    found = symmetric_variants(directed(sharing=texts))
    assert {variant.value for variant in found} == {"Q=K", "Q=K=V", "Q=K positions=rope"}


def test_each_change_differs_in_one_setting():
    """Besides the columns: of those that need not be symmetric, one stays beside the others."""
    experiment = directed()
    changes = changes_of(experiment)
    assert [change.label for change in changes] == [
        "4 heads", "2 layers", "an MLP of 128", "a model width of 64", "1,800 steps",
    ]  # fmt: skip
    before = experiment.settings()
    for change in changes:
        after = change.experiment.settings()
        differing = {name for name in after if after[name] != before[name]}
        assert differing == {"sharing", change.setting}
        assert after["sharing"] == ["QKV", "Q=K", "Q=K=V"]


def test_what_is_there_or_not_allowed_is_not_offered():
    """More heads once there are four; no second MLP; a self-mask where there is none.

    Untying is offered where the untied column is not there: Q=K beside QKV says it already.
    """
    changed = directed(n_heads=4, d_mlp=64, self_mask=False)
    labels = [change.label for change in changes_of(changed)]
    assert {"8 heads", "a self-mask"} <= set(labels)
    assert not [label for label in labels if "MLP" in label]
    settings = {change.setting for change in changes_of(directed(n_layers=4, d_model=512))}
    assert not settings & {"n_layers", "d_model", "sharing"}
    change = changes_of(directed(sharing=["Q=K", "Q=V"]))[-1]
    assert change.setting == "sharing"
    assert change.experiment.sharing == ("QKV", "Q=K", "Q=V")


def test_untied_keeps_all_else():
    """If there is such a variant; every catalogued one can be asked."""
    for text, expected in (
        ("Q=K", "QKV"),
        ("Q=K=V", "K=V"),
        ("Q=K positions=rope", "QKV positions=rope"),
        ("Q=K signed", None),
        ("QKV", None),
    ):
        found = untied(Variant(text))
        assert (None if found is None else found.value) == expected
    for named in CATALOGUE.values():
        untied(named.variant)


VERDICTS = [
    (FIVE + 0.47, "rescued"),
    (FIVE + 0.3, "partly rescued"),
    (FIVE + 0.01, "no real difference"),
    (FIVE - 0.2, "worse"),
    (FIVE + np.array([0.5, -0.4, 0.4, -0.3, 0.2]), "not sure with so few seeds"),
    (FIVE * np.nan, "diverged"),
    (np.array([1.0, 0.97, np.nan, 0.98, 1.0]), "rescued"),
    (np.array([1.0, *[np.nan] * 4]), "not sure with one seed"),
]


def test_verdicts_go_by_differences_seed_by_seed():
    """Sure and large enough; near the best: rescued. A single seed is never sure."""
    for after, verdict in VERDICTS:
        assert verdict_on(FIVE, after, 1.0) == verdict, after
    for gain in (0.5, 0.3, 0.02, -0.3):
        assert verdict_on(FIVE[:1], FIVE[:1] + gain, 1.0) == "not sure with one seed"
    assert verdict_on(FIVE * np.nan, FIVE, 1.0) == "nothing to compare, since seeds diverged"


GOALS = [  # accuracy of the other column before and after, the goal, and what is said
    (1.0, 0.52, 1.0, "partly rescued"),
    (0.55, 0.52, 0.55, "rescued"),
    (0.52, 0.9, 0.9, "partly rescued"),
    (np.nan, 0.52, 0.52, "rescued"),
    (0.9, np.nan, 0.9, "partly rescued"),
    (np.nan, np.nan, 1.0, "partly rescued"),
]


def test_to_be_as_bad_as_a_column_that_collapsed_is_no_rescue():
    """The goal is the better of what the other columns had before the change and after it."""
    experiment = directed(sharing=["QKV", "Q=K"])
    change = changes_of(experiment)[0]
    for free_before, free_after, goal, verdict in GOALS:
        before = outcome(experiment, QKV=np.full(5, free_before), Q_K=FIVE - 0.04)
        after = outcome(change.experiment, QKV=np.full(5, free_after), Q_K=FIVE)
        assert goal_of(before, after) == pytest.approx(goal)
        (sentence,) = effect_sentences(before, after, change.setting)
        assert sentence.startswith("Q=K: 46% with 1 head → 50% with 4 heads")
        assert sentence.endswith(f": {verdict}.")


def test_a_change_is_told_in_a_sentence_per_column():
    """Before and after, with the interval, the seeds, and how many of them diverged."""
    experiment = directed()
    change, before = changes_of(experiment)[0], outcome(experiment)
    some = np.array([0.5, 0.5, 0.5, 0.5, np.nan])
    for q_k, expected in (
        (FIVE + 0.28, "78% with 4 heads (95% interval 76 to 80%, 5 seeds): partly rescued."),
        (FIVE * np.nan, "diverged with 4 heads (5 seeds): diverged."),
        (some, "50% with 4 heads (5 seeds, 1 diverged): no real difference."),
    ):
        after = outcome(change.experiment, Q_K=q_k, Q_K_V=FIVE)
        assert effect_sentences(before, after, change.setting) == [
            f"Q=K: 50% with 1 head → {expected}",
            "Q=K=V: 40% with 1 head → 50% with 4 heads (95% interval 48 to 52%, 5 seeds): "
            "partly rescued.",
        ]


def test_untying_is_told_with_the_name_of_what_came_of_it():
    """Another column stands for the tied one."""
    before = directed(sharing=["Q=K", "Q=V"])
    change = changes_of(before)[-1]
    (sentence,) = effect_sentences(outcome(before), outcome(change.experiment), change.setting)
    assert sentence.startswith("Q=K: 50% → 100% with separate W_Q and W_K (QKV)")
    assert sentence.endswith("rescued.")


def test_columns_that_are_left_out_change_no_number():
    """A trained change equals the same runs among all columns."""
    tiny = {"steps": 6, "evaluate_every": 3, "n_seeds": 2, "batch_size": 16, "n_eval": 16}
    change = changes_of(directed(**tiny))[0]
    alone = Outcome.of(train(change.experiment).snapshot)
    among = Outcome.of(train(directed(**tiny, n_heads=4)).snapshot)
    for variant, accuracy in alone.accuracy.items():
        assert accuracy.tolist() == among.accuracy[variant].tolist()
    assert alone.reference == Variant("QKV")
