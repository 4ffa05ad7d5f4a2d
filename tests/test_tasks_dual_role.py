"""Dual role against a slow reference, a million books, and what symmetric scores can do."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from attnkit.tasks.base import NAMES, is_held_out
from attnkit.tasks.dual_role import DualRole

NEXT = {0: 1, 1: 2, 2: 0}


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def successor(name):
    """The name that a name asks for."""
    return name - name % 3 + NEXT[name % 3]


def answers(task, tokens):
    """(labels, targets, reverses) of one example, from its tokens alone."""
    names, seconds = tokens.T.tolist()
    targets = [names.index(successor(name)) for name in names]
    reverses = [next(i for i, n in enumerate(names) if successor(n) == name) for name in names]
    return [seconds[target] - task.n_names for target in targets], targets, reverses


@st.composite
def sizes(draw):
    """A task of any allowed size."""
    n_circles = draw(st.integers(2, 5))
    return DualRole(
        n_circles=n_circles,
        n_names=3 * draw(st.integers(n_circles, 21)),
        n_values=draw(st.integers(4, 64)),
    )


@settings(max_examples=50)
@given(sizes(), st.integers(0, 999))
def test_the_next_name_answers_and_the_one_before_is_a_decoy(task, seed):
    """Both are among the entries, and are two."""
    examples = task.make_examples(5, seeded(seed))
    for b, tokens in enumerate(examples.tokens):
        labels, targets, reverses = answers(task, tokens)
        assert examples.labels[b].tolist() == labels
        assert examples.target[b].tolist() == targets
        assert examples.reverse[b].tolist() == reverses
        here = range(task.n_ctx)
        assert all(len({*three}) == 3 for three in zip(here, targets, reverses, strict=True))


@pytest.mark.long
def test_a_million_books():
    """Whole circles in any order; target and reverse undo each other, and three steps lead back."""
    task, generator = DualRole(), seeded(1)
    for _ in range(250):
        examples = task.make_examples(4000, generator)
        names, seconds = examples.tokens.unbind(-1)
        target, reverse = examples.target, examples.reverse
        following = names - names % 3 + (names + 1) % 3
        assert torch.equal(names.gather(1, target), following)
        here = torch.arange(task.n_ctx).expand_as(target)
        assert torch.equal(target.gather(1, reverse), here)
        assert torch.equal(target.gather(1, target), reverse)
        assert torch.equal(seconds.gather(1, target), task.n_names + examples.labels)
        assert (names.sort(1).values.diff() > 0).all()


def test_circles_and_places_are_uniform():
    """Every name stands at every position equally often."""
    task = DualRole(n_circles=2, n_names=12)
    names = task.make_examples(12_000, seeded()).tokens[:, :, 0]
    for position in range(task.n_ctx):
        assert (names[:, position].bincount(minlength=12) - 1000).abs().max() < 150  # five sigma


@settings(max_examples=10)
@given(sizes())
def test_chance_is_what_another_entry_scores(task):
    """Monte Carlo."""
    examples = task.make_examples(3000, seeded())
    numbers = examples.tokens[:, :, 1] - task.n_names
    here = torch.arange(task.n_ctx)
    shift = torch.randint(1, task.n_ctx, examples.target.shape, generator=seeded(7))
    right = (numbers.gather(1, (here + shift) % task.n_ctx) == examples.labels).double().mean()
    assert right.item() == pytest.approx(task.chance, abs=0.025)


@settings(max_examples=10)
@given(sizes())
def test_plateau_is_what_guessing_the_direction_scores(task):
    """Monte Carlo: the number of the next or of the one before, each half of the time."""
    examples = task.make_examples(3000, seeded())
    numbers = examples.tokens[:, :, 1] - task.n_names
    coin = torch.rand(examples.target.shape, generator=seeded(7)) < 0.5
    picked = torch.where(coin, examples.target, examples.reverse)
    right = (numbers.gather(1, picked) == examples.labels).double().mean().item()
    assert right == pytest.approx(task.plateau, abs=0.025)


def test_symmetric_scores_prefer_the_next_name_at_most_twice():
    """Whatever the order of the three scores of a circle: as the docstring proves."""
    orders = itertools.permutations(range(3))
    right = [(s01 > s20) + (s12 > s01) + (s20 > s12) for s01, s12, s20 in orders]
    assert set(right) == {1, 2}


def test_sides_share_no_book_and_same_generators_give_the_same():
    """A held-out book is not trained on in any order."""
    task = DualRole(n_circles=2, n_names=6, n_values=4)
    books = []
    for held_out in (False, True):
        one, again = (task.draw(5000, seeded(3), held_out=held_out) for _ in range(2))
        assert torch.equal(one.tokens, again.tokens)
        assert torch.equal(one.labels, again.labels)
        assert (is_held_out(task.book(one.tokens)) == held_out).all()
        books.append({frozenset(map(tuple, book)) for book in task.book(one.tokens).tolist()})
    assert not books[0] & books[1]


def test_more_circles_than_there_are_are_refused():
    """With how many there are."""
    with pytest.raises(ValidationError, match="n_circles: got 3, allowed at most 2, a third of"):
        DualRole(n_names=6)


def test_labels_of_the_worked_example():
    """As the docstring writes it."""
    task = DualRole(n_circles=2)
    text = "Ben 31, Dia 14, Cem 25, Ada 19, Fay 40, Eli 12"
    rows = [part.split() for part in text.split(", ")]
    tokens = torch.tensor([(NAMES.index(n), task.n_names + int(v) - 10) for n, v in rows])
    labels = task.label(tokens.numpy())
    assert [label.short for label in labels] == [name for name, _ in rows]
    assert labels[0].query == "Ben asks Cem"
    assert labels[2].full == "Cem asks Ada, 25"
    numbers, targets, reverses = answers(task, tokens)
    assert [task.answer_text(number) for number in numbers] == "25 12 19 31 14 40".split()
    assert targets == [2, 5, 3, 0, 1, 4]
    assert reverses == [3, 4, 0, 2, 5, 1]
