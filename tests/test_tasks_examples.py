"""Examples of every registered task, at any allowed dials."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_tasks import a_few, configured, drawn, every_task, parts, seeded, smallest_task

from attnkit.tasks import NOTHING, Examples
from attnkit.tasks.base import choose
from attnkit.tasks.phonebook import Phonebook


@every_task
@a_few
@given(st.data())
def test_examples_have_the_promised_shapes(cls, data):
    """Tokens are (b, i, fields), with one answer for every position that may answer."""
    task, examples = data.draw(drawn(cls))
    n_answers = task.n_ctx - task.answers_from
    assert examples.tokens.shape == (5, task.n_ctx, task.n_fields)
    assert all(part.shape == (5, n_answers) for part in parts(examples)[1:])
    assert all(part.dtype == torch.int64 for part in parts(examples))


@every_task
@a_few
@given(st.data())
def test_ids_stay_in_their_ranges(cls, data):
    """Tokens are below d_vocab, labels below n_classes, and targets are positions."""
    task, examples = data.draw(drawn(cls))
    tokens, labels, *positions = parts(examples)
    assert 0 <= tokens.min() <= tokens.max() < task.d_vocab
    assert (NOTHING if task.sparse else 0) <= labels.min() <= labels.max() < task.n_classes
    for position in positions:
        assert NOTHING <= position.min() <= position.max() < task.n_ctx


@every_task
@a_few
@given(st.data())
def test_every_example_asks_something(cls, data):
    """Every example asks something, and has no target where it asks nothing."""
    _, examples = data.draw(drawn(cls))
    asked = examples.labels != NOTHING
    assert asked.any(1).all()
    assert (examples.target[~asked] == NOTHING).all()


@every_task
@a_few
@given(st.data())
def test_every_token_and_answer_has_a_text(cls, data):
    """Every token has a text for the axis, its row and in full; answers have different texts."""
    task, examples = data.draw(drawn(cls))
    for tokens in examples.tokens.numpy():
        labels = task.label(tokens)
        assert len(labels) == task.n_ctx
        for label in labels:
            assert label.short.strip()
            assert label.query.strip()
            assert label.full.strip()
            assert len(label.short) <= 12
    answers = [task.answer_text(answer) for answer in range(task.n_classes)]
    assert all(text.strip() for text in answers)
    assert len(set(answers)) == len(answers)


@every_task
@a_few
@given(st.data())
def test_slices_are_groups_of_what_is_asked(cls, data):
    """Every answer belongs to one group, and every group has a name."""
    task, examples = data.draw(drawn(cls))
    names = task.slice_names
    assert len(set(names)) == len(names)
    assert all(names)
    if names:
        group = task.slices(examples)
        assert group.shape == examples.labels.shape
        asked = group[examples.labels != NOTHING]
        assert 0 <= asked.min() <= asked.max() < len(names)


@every_task
@a_few
@given(st.data())
def test_same_generator_state_gives_the_same_examples(cls, data):
    """The generator is the only source of randomness."""
    task = data.draw(configured(cls))
    first, again = (task.make_examples(11, seeded(3)) for _ in range(2))
    assert all(map(torch.equal, parts(first), parts(again)))


@every_task
def test_the_generator_is_advanced(cls):
    """Two draws from one generator differ, and so do draws of two seeds."""
    generator = seeded(3)
    first, second = (cls().draw(11, generator, held_out=False) for _ in range(2))
    other = cls().draw(11, seeded(4), held_out=False)
    assert not torch.equal(first.tokens, second.tokens)
    assert not torch.equal(first.tokens, other.tokens)


@every_task
def test_global_random_state_is_left_alone(cls):
    """Drawing does not touch the global generators of torch and numpy."""
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    cls().draw(5, seeded(), held_out=False)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


@every_task
def test_drawing_does_not_change_what_was_drawn(cls):
    """Examples keep their values when more are drawn."""
    generator = seeded()
    first = cls().draw(5, generator, held_out=False)
    kept = [part.clone() for part in parts(first)]
    cls().draw(5, generator, held_out=False).tokens.zero_()
    assert all(map(torch.equal, parts(first), kept))


@every_task
def test_examples_can_be_taken_by_position(cls):
    """`take` takes the same examples of every tensor of a batch."""
    examples = cls().make_examples(5, seeded())
    taken = examples.take(torch.tensor([4, 1]))
    for part, some in zip(parts(examples), parts(taken), strict=True):
        assert torch.equal(some, part[[4, 1]])


def test_examples_are_frozen():
    """A tensor of a batch cannot be replaced."""
    examples = Phonebook().make_examples(1, seeded())
    assert isinstance(examples, Examples)
    with pytest.raises(AttributeError):
        examples.tokens = None


@every_task
@pytest.mark.parametrize("size", ["default", "tiny"])
def test_no_constant_answer_beats_chance(cls, size):
    """The commonest class is right no more often than chance."""
    task = cls() if size == "default" else smallest_task(cls)
    seen, asked = (task.make_examples(1500, seeded(seed)).labels for seed in (1, 2))
    commonest = seen[seen != NOTHING].bincount().argmax()
    n_right, n_asked = ((asked == commonest).sum(1), (asked != NOTHING).sum(1))
    share = n_right.sum() / n_asked.sum()
    spread = (n_right - share * n_asked).std() / n_asked.double().mean()  # between examples
    assert share <= task.chance + 5 * spread / math.sqrt(len(asked))


@given(st.integers(1, 7), st.integers(0, 999))
def test_choose_draws_without_replacement(n_chosen, seed):
    """Every row of `choose` has different items."""
    for row in choose(5, 7, n_chosen, seeded(seed)).tolist():
        assert len(set(row)) == n_chosen
        assert set(row) <= set(range(7))


def test_choose_is_uniform():
    """Every item is first, and last, about equally often."""
    rows = choose(7000, 7, 3, seeded())
    for column in (0, 2):
        assert (rows[:, column].bincount(minlength=7) - 1000).abs().max() < 150  # five sigma
