"""The five list tasks against a slow reference, and a million lists against their laws."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.experiment.experiment import full_size
from attnkit.tasks import NOTHING
from attnkit.tasks.base import is_held_out
from attnkit.tasks.lists import Copy, Reverse, Sort, Subtract, Swap

LISTS = (Reverse, Sort, Swap, Subtract, Copy)
every_task = pytest.mark.parametrize("cls", LISTS)

ANSWER = {
    Reverse: lambda symbols, _: symbols[::-1],
    Sort: lambda symbols, _: sorted(symbols),
    Swap: lambda symbols, _: symbols[len(symbols) // 2 :] + symbols[: len(symbols) // 2],
    Subtract: lambda symbols, n: [n - 1 - symbol for symbol in symbols],
    Copy: lambda symbols, _: list(symbols),
}
"""What is answered to one list of n different symbols."""


def target_of(cls, symbols, place):
    """The place from which the answer at a place is."""
    if cls is Sort:
        answer = sorted(symbols)[place]
        return symbols.index(answer) if symbols.count(answer) == 1 else NOTHING
    n = len(symbols)
    return {Reverse: n - 1 - place, Swap: (place + n // 2) % n}.get(cls, place)


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def million(task):
    """A million examples, a hundred thousand at a time."""
    generator = seeded(1)
    for _ in range(10):
        yield task.make_examples(100_000, generator)


@st.composite
def drawn(draw, cls):
    """A task of any size and a few examples of it."""
    task = cls(length=2 * draw(st.integers(1, 32)), n_symbols=draw(st.integers(8, 64)))
    return task, task.make_examples(5, seeded(draw(st.integers(0, 999))))


@every_task
@settings(max_examples=30)
@given(st.data())
def test_answers_are_those_of_the_slow_reference(cls, data):
    """One list and one place at a time."""
    task, examples = data.draw(drawn(cls))
    for symbols, labels, target in zip(
        examples.tokens[:, :, 0].tolist(),
        examples.labels.tolist(),
        examples.target.tolist(),
        strict=True,
    ):
        assert labels == ANSWER[cls](symbols, task.n_symbols)
        assert target == [target_of(cls, symbols, place) for place in range(len(symbols))]


@pytest.mark.parametrize("cls", [Reverse, Sort, Subtract, Copy])
def test_lists_may_be_of_odd_length(cls):
    """Only halves need an even one."""
    task = cls(length=7)
    (symbols,) = task.make_examples(1, seeded()).tokens[:, :, 0].tolist()
    (labels,) = task.make_examples(1, seeded()).labels.tolist()
    assert labels == ANSWER[cls](symbols, 10)
    with pytest.raises(ValueError, match="multiple of 2"):
        Swap(length=7)


@every_task
def test_the_docstrings_example_is_true(cls):
    """Its labels and targets are those of its tokens."""
    rows = dict(re.findall(r"(\w+) {2,}(.+)", cls.__doc__.split("```")[1]))
    tokens, labels, target = (
        [NOTHING if cell == "–" else int(cell) for cell in rows[name].split()]
        for name in ("token", "label", "target")
    )
    assert labels == ANSWER[cls](tokens, 10)
    assert target == [target_of(cls, tokens, place) for place in range(len(tokens))]


@every_task
@pytest.mark.long
def test_a_million_lists_hold_their_answers(cls):
    """The symbol at the target is the answer, or what is left of it."""
    task = cls(length=6)
    for examples in million(task):
        tokens, known = examples.tokens[:, :, 0], examples.target != NOTHING
        found = tokens.gather(1, examples.target.clamp(min=0))
        found = 9 - found if cls is Subtract else found
        assert torch.equal(found[known], examples.labels[known])
        assert known.all() or cls is Sort


@pytest.mark.long
def test_a_million_sorted_lists_ascend_and_keep_their_symbols():
    """Sorting is a permutation; the target is unknown exactly where neighbours are alike."""
    for examples in million(Sort(length=6)):
        labels = examples.labels
        assert (labels[:, 1:] >= labels[:, :-1]).all()
        before, after = (
            torch.zeros(len(labels), 10, dtype=torch.int64).scatter_add_(
                1, symbols, torch.ones_like(symbols)
            )
            for symbols in (examples.tokens[:, :, 0], labels)
        )
        assert torch.equal(before, after)
        assert torch.equal(after.gather(1, labels) > 1, examples.target == NOTHING)


@pytest.mark.long
def test_symbols_are_even_and_independent_over_a_million_lists():
    """Every symbol at every place, and every pair of neighbours, six sigma at most."""
    counts, pairs = torch.zeros(6, 10), torch.zeros(5, 100)
    for examples in million(Copy(length=6)):
        tokens = examples.tokens[:, :, 0]
        for place in range(6):
            counts[place] += tokens[:, place].bincount(minlength=10)
        for place in range(5):
            pairs[place] += (10 * tokens[:, place] + tokens[:, place + 1]).bincount(minlength=100)
    assert (counts - 1e5).abs().max() < 6 * math.sqrt(1e6 * 0.1 * 0.9)
    assert (pairs - 1e4).abs().max() < 6 * math.sqrt(1e6 * 0.01 * 0.99)


@pytest.mark.parametrize("cls", [Reverse, Swap, Subtract])
def test_twice_is_as_before(cls):
    """The answers of the answers are the list."""
    task = cls()
    examples = task.make_examples(100, seeded())
    labels, _ = task._answers(examples.labels)
    assert torch.equal(labels, examples.tokens[:, :, 0])


@every_task
def test_every_constant_answer_scores_chance(cls):
    """None is better or worse than another, for sorted lists, too."""
    task = cls(length=6, n_symbols=9)
    labels = task.make_examples(200_000, seeded()).labels
    shares = labels.flatten().bincount(minlength=9) / labels.numel()
    assert (shares - task.chance).abs().max() < 6 * math.sqrt(task.chance / labels.numel())


def test_the_order_of_symbols_decides_the_side():
    """A list and its reverse are two."""
    task = Reverse()
    tokens = task.make_examples(4000, seeded()).tokens
    forth, back = (is_held_out(task.book(own)) for own in (tokens, tokens.flip(1)))
    moved = (forth != back).double().mean().item()
    assert moved == pytest.approx(2 * (1 / 8) * (7 / 8), abs=0.03)


@pytest.mark.parametrize("n_symbols", range(8, 65))
def test_the_shortest_lists_can_be_split(n_symbols):
    """Both sides have lists of two symbols."""
    task = Reverse(length=2, n_symbols=n_symbols)
    every = torch.cartesian_prod(*[torch.arange(n_symbols)] * 2)[:, :, None]
    assert 0.02 < is_held_out(task.book(every)).double().mean() < 0.25


def test_the_set_up_is_the_published_one():
    """The cell has two epochs, heads that fill the width, an MLP of four times it, a final norm."""
    for cls in LISTS:
        published = full_size(cls.name).settings()
        epoch = math.ceil(published["n_train"] / published["batch_size"])
        assert published["steps"] == 2 * epoch
        assert published["n_heads"] * published["d_head"] == published["d_model"]
        assert published["d_mlp"] == 4 * published["d_model"]
        assert published["blocks"] == "final_norm"
        assert published["length"] == 16


def test_labels_show_symbols_and_places():
    """Places count from one, as people do."""
    labels = Reverse().label(np.array([[3], [1]]))
    assert [label.short for label in labels] == ["3", "1"]
    assert [label.query for label in labels] == ["1: 3", "2: 1"]
    assert [label.full for label in labels] == ["place 1: 3", "place 2: 1"]
    assert Reverse().answer_text(9) == "9"
