"""Examples: fresh ones, a stock that is gone through, those that are measured on."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, tiny
from searching import briefly

from attnkit.model.initial import generator_for
from attnkit.tasks import NOTHING, TASKS
from attnkit.training import Training
from attnkit.training import cohort as cohort_module
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData, draw_probe, held_out_examples, unstack

CPU = torch.device("cpu")


def rows_of(tokens):
    """Examples as values, in order: (b, i, fields)."""
    return [tuple(row) for row in tokens.flatten(1).tolist()]


# A stock


@given(
    st.integers(1, 9).map(lambda n: 16 * n),
    st.sampled_from([16, 32, 48]),
    st.integers(1, 3),
    st.integers(1, 3),
)
@briefly(25)
def test_every_round_holds_each_example_once(n_train, n_batch, n_seeds, n_rounds):
    """In a new order, with the last batch as short as it must be; labels go with their tokens."""
    if n_train < n_batch:
        n_train = n_batch
    experiment = tiny("phonebook", n_train=n_train, batch_size=n_batch, n_seeds=n_seeds)
    data = TrainingData(experiment, experiment.seeds, CPU)
    n_batches = math.ceil(n_train / n_batch)
    rounds = [[data.next() for _ in range(n_batches)] for _ in range(n_rounds)]
    for batches in rounds:
        sizes = [tokens.shape[1] for tokens, _ in batches]
        assert sizes == [n_batch] * (n_train // n_batch) + [n_train % n_batch] * (
            n_train % n_batch > 0
        )
    for s, seed in enumerate(experiment.seeds):
        stock = experiment.task.draw(n_train, generator_for(seed, "training data"), held_out=False)
        known = sorted(zip(rows_of(stock.tokens), rows_of(stock.labels), strict=True))
        orders = []
        for batches in rounds:
            tokens, labels = (torch.cat([pair[i][s] for pair in batches]) for i in (0, 1))
            orders.append(rows_of(tokens))
            assert sorted(zip(orders[-1], rows_of(labels), strict=True)) == known
        if n_train > 16:
            assert all(one != other for one, other in pairwise(orders))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_depend_on_no_other_seed_and_hold_nothing_that_is_held_out(kind):
    """Fresh or from a stock, whatever they are drawn for."""
    for n_train in (0, 48):
        experiment = tiny(kind, n_train=n_train, n_seeds=3)
        together, alone = (TrainingData(experiment, seeds, CPU) for seeds in ([0, 1, 2], [1]))
        for _ in range(20):
            pairs = zip(together.next(), alone.next(), strict=True)
            assert all(torch.equal(one[1], other[0]) for one, other in pairs)
    experiment = tiny(kind, n_train=64, n_eval=64)
    held_out = held_out_examples(experiment, [0], CPU).tokens[0]
    data = TrainingData(experiment, [0], CPU)
    batches = torch.cat([data.next()[0][0] for _ in range(4)])
    shown = TrainingData(experiment, [0], CPU).evaluation_examples().tokens[0]
    assert not {*rows_of(batches), *rows_of(shown)} & {*rows_of(held_out)}
    assert {*rows_of(shown)} <= {*rows_of(batches)}


# The example that is shown


def test_entries_of_the_example_hold_different_answers():
    """So a wrong answer tells which entry it came from; lists have no more symbols than places."""
    for name, task in TASKS.items():
        example = draw_probe(task())
        held = example.target[0] != NOTHING
        both = (example.target, example.labels)
        entries, answers = (set(each[0, held].tolist()) for each in both)
        enough = len(entries) < task().n_classes
        assert (len(entries) == len(answers)) == enough, name


@pytest.mark.parametrize("task", ["neighbours", "reverse"])
def test_an_example_that_will_do_or_for_want_of_another_is_the_first(task):
    """Neighbours have different numbers anyway, and a long list always repeats a symbol."""
    kind = TASKS[task]()
    first = kind.draw(1, generator_for(0, "probe"), held_out=True)
    assert torch.equal(draw_probe(kind).tokens, first.tokens)


# Accuracy on what is trained on


@pytest.mark.parametrize(
    ("kind", "given", "n_shown"),
    [
        ("directed", {}, None),
        ("directed", {"n_train": 16, "n_eval": 48}, 16),
        ("directed", {"n_train": 96, "n_eval": 48}, 48),
        ("reverse", {}, 16),
        ("language", {}, 16),
        ("language", {"n_train": 96}, 16),
    ],
)
def test_how_many_are_shown(kind, given, n_shown):
    """As many as are held out, but no more than there are; none where all are new."""
    shown = TrainingData(tiny(kind, **given), [0, 1], CPU).evaluation_examples()
    assert (None if shown is None else shown.tokens.shape[:2]) == (n_shown and (2, n_shown))


@pytest.mark.parametrize("kind", ["reverse", "language", "transfer"])
def test_training_accuracy_is_the_share_of_right_answers(kind):
    """Of every run, on those examples, worked out from the answers that it gives."""
    cohort = Cohort(tiny(kind, n_train=32, n_eval=32), [0, 1], CPU)
    cohort.advance(8)
    experiment = cohort.experiment
    shown = TrainingData(experiment, cohort.seeds, CPU, experiment.task).evaluation_examples()
    found = cohort.evaluations[-1].metrics["training_accuracy"]
    for run, (_, seed) in enumerate(cohort.runs):
        answers, _, _ = cohort.answer(unstack(shown)[seed])
        labels = shown.labels[seed].numpy()
        right = (answers[run] == labels).sum() / (labels != NOTHING).sum()
        assert found[run] == pytest.approx(right)


def test_a_stock_that_is_known_by_heart_tells_nothing_of_others():
    """A few examples again and again: all right on those, not on others."""
    experiment = tiny(
        "reverse", n_train=16, n_symbols=16, steps=200, sharing="QKV", learning_rate=0.01, clip=0
    )
    training = Training(experiment, "cpu")
    training.advance(200)
    history = training.snapshot().history
    assert (history["training_accuracy"][-1] > 0.95).all()
    assert (history["accuracy"][-1] < 0.6).all()


# Answering in parts


@pytest.mark.parametrize(("kind", "together"), [("directed", 16), ("mqar", 48), ("language", 80)])
def test_held_out_examples_are_answered_in_parts(kind, together, monkeypatch):
    """Accuracies and losses are those of all at once; attention is measured on the first part."""
    given = {"n_eval": 80, "n_train": 96, "sharing": ["QKV", "Q=K qk_norm"]}
    (expected,) = Cohort(tiny(kind, **given), [0, 1], CPU).evaluations
    monkeypatch.setattr(cohort_module, "MEASURED_TOGETHER", together)
    cohort = Cohort(tiny(kind, **given), [0, 1], CPU)
    (found,) = cohort.evaluations
    for name in ("accuracy", "training_accuracy"):
        np.testing.assert_array_equal(found.metrics[name], expected.metrics[name])
    np.testing.assert_array_equal(found.slice_accuracy, expected.slice_accuracy)
    for name in ("loss", "weight_symmetry"):
        np.testing.assert_allclose(found.metrics[name], expected.metrics[name], rtol=1e-6)
    monkeypatch.undo()
    fewer = Cohort(tiny(kind, **{**given, "n_eval": together}), [0, 1], CPU)
    same = torch.equal(
        fewer._held_out.tokens, cohort._held_out.tokens[:, :together]
    )  # not where a task draws in passes over all
    if same:
        for name in ("score_symmetry", "mass_on_target", "symmetry_error"):
            np.testing.assert_allclose(
                found.metrics[name], fewer.evaluations[0].metrics[name], atol=1e-6
            )


def test_more_than_a_part_is_answered_by_default():
    """More examples than are answered together: the accuracy is that of all of them."""
    experiment = tiny("directed", n_eval=2048, sharing="QKV")
    cohort = Cohort(experiment, [0], CPU)
    held_out = held_out_examples(experiment, [0], CPU)
    answers = cohort.model.logits(held_out.tokens).argmax(-1)
    right = (answers[0] == held_out.labels[0]).double().mean().item()
    assert cohort.evaluations[0].metrics["accuracy"][0] == pytest.approx(right)


# Slices


@pytest.mark.parametrize("kind", ["mqar", "neighbours"])
def test_slice_accuracy_is_that_of_the_task_s_groups(kind):
    """Worked out from the answers to what is held out."""
    experiment = tiny(kind, n_eval=32, steps=20)
    cohort = Cohort(experiment, [0, 1], CPU)
    cohort.advance(20)
    found, task = cohort.evaluations[-1].slice_accuracy, experiment.task
    assert found.shape == (10, len(task.slice_names))
    for run, (_, seed) in enumerate(cohort.runs):
        held_out = task.draw(32, generator_for(seed, "evaluation"), held_out=True)
        answers, _, _ = cohort.answer(held_out)
        right, group = answers[run] == held_out.labels.numpy(), task.slices(held_out).numpy()
        for place in range(len(task.slice_names)):
            asked = (group == place) & (held_out.labels.numpy() != NOTHING)
            expected = right[asked].mean() if asked.any() else np.nan
            assert found[run, place] == pytest.approx(expected, nan_ok=True)


def test_a_lost_run_is_missing_in_slices_too():
    """As in every other number."""
    cohort = Cohort(tiny("mqar"), [0, 1], CPU)
    cohort.model.run_parameters(0)["W_U"].fill_(torch.nan)
    cohort.advance(2)
    slices = cohort.evaluations[-1].slice_accuracy
    lost = cohort.diverged_at >= 0
    assert lost.sum() == 1
    assert np.isnan(slices[lost]).all()
    assert not np.isnan(slices[~lost]).all(1).any()
