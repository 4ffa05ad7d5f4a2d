"""Examples: fresh ones, a stock that is gone through, those that are measured on."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, tiny
from searching import briefly

from attnkit.model.initial import generator_for
from attnkit.tasks import NOTHING, TASKS, Examples
from attnkit.training import evaluation as evaluation_module
from attnkit.training.cohort import Cohort
from attnkit.training.data import TrainingData, draw_probe, held_out_examples, unstack

CPU = torch.device("cpu")


def rows_of(tokens):
    """Examples as values, in order: (b, i, fields)."""
    return [tuple(row) for row in tokens.flatten(1).tolist()]


@given(
    st.integers(1, 9).map(lambda n: 16 * n),
    st.sampled_from([16, 32, 48]),
    st.integers(1, 3),
    st.integers(1, 3),
)
@briefly(25)
def test_every_round_holds_each_example_once(n_train, n_batch, n_seeds, n_rounds):
    """In a new order, with the last batch as short as it must be; labels go with their tokens."""
    n_train = max(n_train, n_batch)
    experiment = tiny("phonebook", n_train=n_train, batch_size=n_batch, n_seeds=n_seeds)
    data = TrainingData(experiment, experiment.seeds, CPU)
    sizes = [min(n_batch, n_train - start) for start in range(0, n_train, n_batch)]
    rounds = [[data.next() for _ in sizes] for _ in range(n_rounds)]
    for batches in rounds:
        assert [tokens.shape[1] for tokens, _ in batches] == sizes
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
        seen = set()
        for _ in range(20):
            (ours, labels), (tokens, own_labels) = together.next(), alone.next()
            assert torch.equal(ours[1], tokens[0])
            assert torch.equal(labels[1], own_labels[0])
            seen |= {*rows_of(tokens[0])}
        assert len(seen) == 48 if n_train else len(seen) > 0.9 * 20 * 16
    experiment = tiny(kind, n_train=64, n_eval=64)
    held_out = held_out_examples(experiment, [0], CPU).tokens[0]
    data = TrainingData(experiment, [0], CPU)
    batches = torch.cat([data.next()[0][0] for _ in range(4)])
    shown = TrainingData(experiment, [0], CPU).evaluation_examples().tokens[0]
    assert not {*rows_of(batches), *rows_of(shown)} & {*rows_of(held_out)}
    assert {*rows_of(shown)} <= {*rows_of(batches)}


def test_the_example_that_is_shown_has_different_answers_where_there_are_enough():
    """So a wrong answer tells which entry it came from; else it is the first one."""
    for name, task in TASKS.items():
        example = draw_probe(task())
        held = example.target[0] != NOTHING
        entries, answers = (
            set(each[0, held].tolist()) for each in (example.target, example.labels)
        )
        assert (len(entries) == len(answers)) == (len(entries) < task().n_classes), name
        if name in ("neighbours", "reverse"):  # answers differ anyway, or never can
            first = task().draw(1, generator_for(0, "probe"), held_out=True)
            assert torch.equal(example.tokens, first.tokens), name


def test_training_accuracy_is_measured_on_as_many_as_are_held_out():
    """But on no more than there are; on none where all are new."""
    for kind, given_, n_shown in (
        ("directed", {}, None),
        ("directed", {"n_train": 16, "n_eval": 48}, 16),
        ("directed", {"n_train": 96, "n_eval": 48}, 48),
        ("language", {}, 16),
    ):
        shown = TrainingData(tiny(kind, **given_), [0, 1], CPU).evaluation_examples()
        shape = None if shown is None else shown.tokens.shape[:2]
        assert shape == (n_shown and (2, n_shown)), (kind, given_)


@pytest.mark.parametrize("kind", ["reverse", "language", "transfer", "mqar", "neighbours"])
def test_accuracies_are_shares_of_right_answers(kind):
    """Accuracies of every run, on its training examples and in each group of held-out ones."""
    experiment = tiny(kind, n_train=32, n_eval=32)
    task, cohort = experiment.task, Cohort(experiment, [0, 1], CPU)
    cohort.advance(8)
    shown = TrainingData(experiment, cohort.seeds, CPU, task).evaluation_examples()
    found = cohort.evaluations[-1]
    assert found.slice_accuracy.shape == (len(cohort.runs), len(task.slice_names))
    for run, (_, seed) in enumerate(cohort.runs):
        examples = unstack(shown)[seed]
        labels = examples.labels.numpy()
        right = (cohort.answer(examples)[0][run] == labels)[labels != NOTHING]
        assert found.metrics["training_accuracy"][run] == pytest.approx(right.mean())
        if task.slice_names:
            held_out = task.draw(32, generator_for(seed, "evaluation"), held_out=True)
            labels, group = held_out.labels.numpy(), task.slices(held_out).numpy()
            right = cohort.answer(held_out)[0][run] == labels
            places = [(group == n) & (labels != NOTHING) for n in range(len(task.slice_names))]
            expected = [right[place].mean() if place.any() else np.nan for place in places]
            np.testing.assert_allclose(found.slice_accuracy[run], expected, rtol=1e-6)


@pytest.mark.parametrize(("kind", "together"), [("directed", 16), ("mqar", 48), ("language", 80)])
def test_held_out_examples_are_answered_in_parts(kind, together, monkeypatch):
    """Accuracies and losses are those of all at once; attention is measured on the first part."""
    given = {"n_eval": 80, "n_train": 96, "sharing": ["QKV", "Q=K qk_norm"]}

    def evaluated():
        (found,) = Cohort(tiny(kind, **given), [0, 1], CPU).evaluations
        return found

    def first_part(*arguments):
        parts = vars(held_out_examples(*arguments)).values()
        return Examples(*(part if part is None else part[:, :together] for part in parts))

    expected = evaluated()
    with monkeypatch.context() as only:
        only.setattr(evaluation_module, "held_out_examples", first_part)
        first = evaluated()
    monkeypatch.setattr(evaluation_module, "MEASURED_TOGETHER", together)
    found = evaluated()
    np.testing.assert_array_equal(found.slice_accuracy, expected.slice_accuracy)
    for name in ("accuracy", "training_accuracy", "loss", "weight_symmetry"):
        np.testing.assert_allclose(found.metrics[name], expected.metrics[name], rtol=1e-6)
    for name in ("score_symmetry", "mass_on_target", "symmetry_error"):
        np.testing.assert_allclose(found.metrics[name], first.metrics[name], atol=1e-6)
