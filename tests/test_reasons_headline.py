"""The headline: the reason to tell first; and the sentences of shipped and new runs."""

import dataclasses
import re

import numpy as np
import pytest
from finished import finished
from kinds import KINDS, tiny
from reason_snapshots import FLAT, Q_K, RISES, SOLVED, pair_of, report, rising, with_metrics

from attnkit.analysis.reasons import headline, reason
from attnkit.examples import load_example
from attnkit.tasks import TASKS
from attnkit.training import Training
from attnkit.variants import Variant


def test_the_clearest_kind_comes_first_and_then_the_first_column():
    """The headline names the first mirrored variant, and prefers it to one that still rises.

    Of one failing variant it is the reason.
    """
    assert headline(report(), 0) == reason(report(), Q_K, 0)
    snapshot = report(sharing=["Q=K", "Q=K=V"], accuracy=(0.5, 0.45), right=(0.45, 0.45))
    snapshot = with_metrics(
        snapshot, mass_on_reverse=(0.44, 0.44), symmetry_error=(0, 0), score_symmetry=(1, 1)
    )
    assert headline(snapshot, 0).variant == Q_K
    only_one = with_metrics(snapshot, symmetry_error=(1, 0))
    assert headline(only_one, 0).variant == "Q=K=V"


def test_of_curves_that_rise_the_lowest_is_named():
    """Rising curves cross each other, so the lowest is named and not the first column."""
    higher = [0.1, *RISES[1:4], 0.7]
    snapshot = rising([higher], [RISES], [higher], sharing=["QKV", "Q=K", "K=V"], d_head=16)
    assert headline(snapshot, 0) == reason(snapshot, Q_K, 0)


@pytest.mark.parametrize(
    ("sharing", "told"),
    [
        (["QKV"], "QKV solves it."),
        (["QKV", "Q=K"], "Both solve it, even with one matrix for queries and keys."),
        (["QKV", "K=V"], "Both solve it, even with one matrix for keys and values."),
        (
            ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V"],
            "All five solve it, even with one matrix for queries, keys and values.",
        ),
        (["QKV", "Q=K=V d_head=8"], "Both solve it."),  # other things differ, too
    ],
)
def test_a_solved_task_says_how_few_matrices_are_enough(sharing, told):
    """The sentence names the fewest matrices that solve the task with every seed."""
    snapshot = rising(*[[SOLVED, SOLVED]] * len(sharing), sharing=sharing)
    found = headline(snapshot, 0)
    assert (found.kind, found.sentence) == ("solved", told)


def test_a_task_that_is_nearly_solved_is_told_with_its_lowest_accuracy():
    """A nearly solved task, without three evaluations at 99%, is told with its lowest accuracy."""
    near = [0, 0.96, 0.97, 0.98, 0.98]
    snapshot = rising([SOLVED], [near], sharing=["QKV", "Q=K"])
    assert headline(snapshot, 0).sentence == (
        "Both have at least 98% right, even with one matrix for queries and keys."
    )


def test_another_seed_that_fails_is_told_where_this_one_does_not():
    """The headline of a seed that succeeds names the seed that fails."""
    snapshot = rising([SOLVED, SOLVED], [SOLVED, FLAT], sharing=["QKV", "Q=K"])
    found = headline(snapshot, 0)
    assert (found.variant, found.kind) == (Q_K, "other seeds")
    assert found.sentence == "Both solve it with seed 0; with seed 1, Q=K has 60% right."


def test_another_seed_that_diverged_is_told_too():
    """The headline of a seed that succeeds names the seed that diverged."""
    rows = [[[0.0, 0.0]], [[1.0, 1.0]], [[1.0, 1.0]], [[1.0, np.nan]]]
    experiment = tiny("phonebook", sharing=["Q=K"], n_seeds=2)
    snapshot = finished(experiment, rows, diverged_at=[[-1, 8]])
    assert headline(snapshot, 1).kind == "diverged"
    assert headline(snapshot, 0).sentence == "Q=K solves it with seed 0; with seed 1, Q=K diverged."


def test_what_is_not_known_is_called_unknown_once_the_training_has_ended():
    """The headline of a run that has stopped at 60% without a known reason admits it."""
    snapshot = rising([SOLVED], [FLAT], sharing=["QKV", "Q=K"])
    found = headline(snapshot, 0)
    assert (found.variant, found.kind) == (Q_K, "unknown")
    assert "do not know" in found.advice
    assert headline(dataclasses.replace(snapshot, status="running"), 0) is None


# Shipped examples and new runs


def test_every_shipped_example_has_sentences_for_people():
    """Sentences of shipped examples are short, have no absolute words, and name a variant."""
    for task in TASKS:
        snapshot = load_example(task)
        experiment = snapshot.experiment
        found = [reason(snapshot, v, seed) for v in experiment.sharing for seed in experiment.seeds]
        found += [headline(snapshot, seed) for seed in experiment.seeds]
        for each in filter(None, found):
            assert max(len(part.split()) for part in each.sentence.split(". ")) <= 20, task
            most = 36 if each.kind == "mirrored" else 26  # readers need to know who reports to whom
            assert len(each.sentence.split()) <= most, task
            assert not re.search("cannot|never|nan|inf", each.sentence)
            assert each.page in ("attention", "asymmetry", "questions")
            assert each.variant in experiment.sharing


def test_the_default_example_says_why_shared_queries_and_keys_fail():
    """The first screen names two entries of its example and their two equal scores."""
    snapshot = load_example("directed")
    found = headline(snapshot, 0)
    one, other = pair_of(snapshot)
    run = snapshot.experiment.runs.index((Q_K, 0))
    scores = snapshot.probe.scores[run, -1, 0]
    names = [label.short for label in snapshot.experiment.task.label(snapshot.probe.tokens)]
    assert (found.variant, found.kind) == (Q_K, "mirrored")
    pair, mirror = f"{names[one]}→{names[other]}", f"{names[other]}→{names[one]}"
    assert f"{pair} and {mirror} the same ({scores[one, other]:.2f})" in found.sentence
    assert f"{scores[one, other]:.2f}" == f"{scores[other, one]:.2f}"
    assert all(reason(snapshot, Variant(v), 0) is None for v in ("QKV", "K=V", "Q=V"))


@pytest.mark.parametrize("kind", KINDS)
def test_reasons_of_a_run_that_has_hardly_begun(kind):
    """No snapshot of the first steps makes a reason raise an error."""
    training = Training(tiny(kind, n_seeds=1), "cpu")
    for _ in range(3):
        snapshot = training.snapshot()
        for variant in snapshot.experiment.sharing:
            reason(snapshot, variant, 0)
        headline(snapshot, 0)
        pair_of(snapshot)
        training.advance(3)
