"""Induction against a slow reference, and a million examples against its laws."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chisquare

from attnkit.tasks.base import is_held_out
from attnkit.tasks.induction import Induction


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def batches(task, n_examples):
    """So many examples, ten thousand at a time."""
    generator = seeded(1)
    for _ in range(n_examples // 10_000):
        yield task.make_examples(10_000, generator)


@st.composite
def drawn(draw):
    """A task with any dials and a few examples of it."""
    n_seen = draw(st.integers(5, 48))
    task = Induction(n_seen=n_seen, n_tokens=draw(st.integers(max(8, n_seen), 52)))
    return task, task.make_examples(5, seeded(draw(st.integers(0, 999))))


@settings(max_examples=40)
@given(drawn())
def test_the_answer_is_what_came_next(case):
    """The row's own order, read token by token."""
    task, examples = case
    for tokens, labels, target in zip(
        examples.tokens[:, :, 0].tolist(),
        examples.labels.tolist(),
        examples.target.tolist(),
        strict=True,
    ):
        row, asked = tokens[: task.n_seen], tokens[task.n_seen :]
        assert len(set(row)) == task.n_seen
        assert sorted(asked) == sorted(row[:-1])
        assert target == [row.index(token) + 1 for token in asked]
        assert labels == [row[place] for place in target]


@pytest.mark.long
def test_a_million_examples_keep_the_rule():
    """Nothing twice in the row, all but its last asked once, answers after their tokens."""
    task = Induction()
    n = task.n_seen
    for examples in batches(task, 1_000_000):
        row, asked = examples.tokens[:, :, 0].split([n, n - 1], 1)
        ordered = row.sort(1).values
        assert (ordered[:, 1:] > ordered[:, :-1]).all()
        assert torch.equal(row.gather(1, examples.target - 1), asked)
        assert torch.equal(row.gather(1, examples.target), examples.labels)
        assert torch.equal(examples.target.sort(1).values, torch.arange(1, n).expand(10_000, -1))


def test_rows_and_questions_are_drawn_evenly():
    """Each token at each place, and each distance from a question to its answer's place."""
    task = Induction(n_seen=5, n_tokens=8)
    tokens, target = torch.zeros(5, 8), torch.zeros(4, 4)
    for examples in batches(task, 200_000):
        for place in range(5):
            tokens[place] += examples.tokens[:, place, 0].bincount(minlength=8)
        for place in range(4):
            target[place] += (examples.target[:, place] - 1).bincount(minlength=4)
    for counts in (*tokens, *target):
        assert chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("dials", [{}, {"n_seen": 5, "n_tokens": 50}])
def test_chance_is_what_another_token_of_the_row_scores(dials):
    """Within sampling error."""
    task = Induction(**dials)
    examples = task.make_examples(50_000, seeded(2))
    row = examples.tokens[:, : task.n_seen, 0]
    shift = torch.randint(1, task.n_seen, examples.target.shape, generator=seeded(3))
    picked = row.gather(1, (examples.target - 1 + shift) % task.n_seen)
    right = (picked == examples.labels).double()
    sigma = math.sqrt(task.chance * (1 - task.chance) / right.numel())
    assert right.mean().item() == pytest.approx(task.chance, abs=5 * sigma)


@pytest.mark.parametrize("dials", [{}, {"n_seen": 5, "n_tokens": 8}])
def test_no_held_out_row_is_trained_on(dials):
    """In whatever order it is asked."""
    task = Induction(**dials)
    trained, held_out = (
        {
            tuple(row)
            for row in task.draw(20_000, seeded(int(side)), held_out=side)
            .tokens[:, : task.n_seen, 0]
            .tolist()
        }
        for side in (False, True)
    )
    assert held_out
    assert not trained & held_out


def test_the_side_depends_on_the_order_of_the_row_alone():
    """Questions do not count; the row backwards is another."""
    task = Induction()
    tokens = task.make_examples(1000, seeded()).tokens
    row, asked = tokens.split([8, 7], 1)
    sides = is_held_out(task.book(tokens))
    assert torch.equal(sides, is_held_out(task.book(torch.cat([row, asked.flip(1)], 1))))
    moved = is_held_out(task.book(torch.cat([row.flip(1), asked], 1))) != sides
    assert moved.double().mean() == pytest.approx(2 * (1 / 8) * (7 / 8), abs=0.06)


def test_the_worked_example():
    """As the docstring draws it."""
    task = Induction(n_seen=5, n_tokens=16)
    tokens = np.array([ord(letter) - ord("a") for letter in "fbkcakfcb"])
    labels = task.label(tokens[:, None])
    assert [label.short for label in labels] == [*"fbkca", "k ?", "f ?", "c ?", "b ?"]
    assert [label.full for label in labels] == [label.query for label in labels]
    assert task.answer_text(2) == "c"


def test_a_row_longer_than_the_vocabulary_is_refused():
    """Its tokens differ."""
    message = "n_seen: got 9, allowed at most n_tokens (8)"
    with pytest.raises(ValidationError, match=re.escape(message)):
        Induction(n_seen=9, n_tokens=8)
