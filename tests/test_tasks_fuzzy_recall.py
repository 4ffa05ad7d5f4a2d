"""Fuzzy recall against a slow reference, and a million examples against its laws."""

import math
import re
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chisquare

from attnkit.tasks import NOTHING
from attnkit.tasks.base import is_held_out
from attnkit.tasks.fuzzy_recall import FuzzyRecall


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


@st.composite
def drawn(draw):
    """A task with any dials and a few examples of it."""
    n_longest, n_keys = draw(st.integers(1, 3)), draw(st.integers(7, 64))
    n_pairs = draw(st.integers(2, min(32, n_longest * n_keys)))
    task = FuzzyRecall(
        n_pairs=n_pairs, n_longest=n_longest, n_keys=n_keys, n_values=draw(st.integers(7, 64))
    )
    return task, task.make_examples(5, seeded(draw(st.integers(0, 999))))


def read(task, tokens):
    """Pairs as (key, value, place of the value), from where a value ends and a key begins."""
    pairs = []
    for place, token in enumerate(tokens):
        is_key = token < task.n_keys
        if is_key and (not pairs or pairs[-1][1]):
            pairs.append(([], [], []))
        pairs[-1][0 if is_key else 1].append(token)
        if not is_key:
            pairs[-1][2].append(place)
    return pairs


@settings(max_examples=40)
@given(drawn())
def test_a_key_is_followed_by_its_value_again(case):
    """Pairs first; then each key once, and at every token what comes next, if it is a value's."""
    task, examples = case
    start, groups = task.answers_from, task.slices(examples)
    for row, tokens in enumerate(examples.tokens[:, :, 0].tolist()):
        book = read(task, tokens[:start])
        values = {tuple(key): (value, places) for key, value, places in book}
        assert len(values) == len(book) == task.n_pairs
        sizes = sorted(1 + place % task.n_longest for place in range(task.n_pairs))
        assert (
            sorted(map(len, values)) == sorted(len(value) for value, _ in values.values()) == sizes
        )
        for key, (value, _) in values.items():
            assert len(set(key)) == len(key)
            assert len(set(value)) == len(value)
        last_value = values[tuple(read(task, tokens[start:])[-1][0])][0]
        questions = read(task, [*tokens[start:], last_value[-1]])
        assert sorted(tuple(key) for key, _, _ in questions) == sorted(values)
        n = task.n_ctx - start
        labels, target, group = [NOTHING] * n, [NOTHING] * n, [NOTHING] * n
        for key, value, places in questions:
            right, homes = values[tuple(key)]
            assert value == right
            for token, place, home in zip(value, places, homes, strict=True):
                labels[place - 1] = token - task.n_keys
                target[place - 1] = home
                group[place - 1] = task.slice_names.index(f"{len(key)}")
        assert examples.labels[row].tolist() == labels
        assert examples.target[row].tolist() == target
        assert groups[row].tolist() == group


@pytest.mark.long
def test_a_million_examples_keep_the_rule():
    """What is asked, where it is found, and that values follow their keys in both parts."""
    task, generator = FuzzyRecall(), seeded(1)
    start, n_values = task.answers_from, sum(task._sizes)
    for _ in range(100):
        examples = task.make_examples(10_000, generator)
        tokens = examples.tokens[:, :, 0]
        asked = examples.labels != NOTHING
        assert (asked.sum(1) == n_values).all()
        answers = examples.labels[asked].view(-1, n_values)
        target = examples.target[asked].view(-1, n_values)
        assert torch.equal(tokens.gather(1, target) - task.n_keys, answers)
        is_value = tokens[:, :start] >= task.n_keys
        assert torch.equal(target.sort(1).values, is_value.nonzero()[:, 1].view(-1, n_values))
        before = tokens.gather(1, target - 1)
        assert torch.equal(before, tokens[:, start:][asked].view(-1, n_values))


def test_keys_and_values_of_a_size_are_drawn_evenly():
    """All 42 keys of two tokens, all 210 values of three."""
    task, generator = FuzzyRecall(n_pairs=6, n_values=7), seeded(1)
    counts = {2: np.zeros(8**2), 3: np.zeros(8**3)}
    for _ in range(20):
        for is_key, size in ((True, 2), (False, 3)):
            motifs = task._motifs(5_000, 7, is_key, generator)
            own = motifs[(motifs != NOTHING).sum(2) == size][:, :size]
            assert len(own) == 10_000
            code = (own * 8 ** torch.arange(size)).sum(1)
            counts[size] += code.bincount(minlength=8**size).numpy()
    for size, seen in counts.items():
        known = [
            sum(token * 8**i for i, token in enumerate(m)) for m in permutations(range(7), size)
        ]
        assert seen.nonzero()[0].tolist() == sorted(known)
        assert chisquare(seen[known]).pvalue > 1e-4


def test_keys_of_two_tokens_share_them():
    """About as often as two different keys would: one token alone does not tell."""
    task = FuzzyRecall(n_pairs=6)
    keys = task._motifs(50_000, 7, True, seeded())
    two = keys[(keys != NOTHING).sum(2) == 2].view(-1, 2, 3)[:, :, :2]
    shared = (two[:, 0, :, None] == two[:, 1, None, :]).any((1, 2)).double()
    disjoint = 5 * 4 / 41  # of the 41 other keys
    sigma = math.sqrt(disjoint * (1 - disjoint) / len(shared))
    assert shared.mean().item() == pytest.approx(1 - disjoint, abs=5 * sigma)


@pytest.mark.parametrize("dials", [{}, {"n_pairs": 7, "n_values": 7}, {"n_longest": 1}])
def test_chance_is_what_a_value_token_of_the_book_scores(dials):
    """Within sampling error, examples being independent."""
    task = FuzzyRecall(**dials)
    examples = task.make_examples(20_000, seeded(2))
    first = examples.tokens[:, : task.answers_from, 0]
    n_values = sum(task._sizes)
    values = first[first >= task.n_keys].view(-1, n_values) - task.n_keys
    asked = examples.labels != NOTHING
    labels = examples.labels[asked].view(-1, n_values)
    picked = torch.randint(n_values, labels.shape, generator=seeded(3))
    right = (values.gather(1, picked) == labels).double().mean(1)
    sigma = right.std().item() / math.sqrt(len(right))
    assert right.mean().item() == pytest.approx(task.chance, abs=5 * sigma)


@pytest.mark.parametrize("dials", [{}, {"n_pairs": 2, "n_longest": 1, "n_values": 7}])
def test_no_held_out_book_is_trained_on(dials):
    """In whatever order it is asked."""
    task = FuzzyRecall(**dials)
    trained, held_out = (
        {
            tuple(tokens[: task.answers_from])
            for tokens in task.draw(10_000, seeded(side), held_out=bool(side))
            .tokens[:, :, 0]
            .tolist()
        }
        for side in (0, 1)
    )
    assert held_out
    assert not trained & held_out


def test_the_questions_do_not_count_for_the_side():
    """Only what comes before them."""
    task = FuzzyRecall()
    tokens = task.make_examples(500, seeded()).tokens
    other = torch.cat([tokens[:, : task.answers_from], tokens[:, task.answers_from :].flip(1)], 1)
    assert torch.equal(is_held_out(task.book(tokens)), is_held_out(task.book(other)))


def test_the_published_length_can_be_had():
    """128 lies between those of 16 and 17 pairs."""
    assert [FuzzyRecall(n_pairs=n_pairs).n_ctx for n_pairs in (16, 17)] == [123, 131]


def test_the_worked_example():
    """As the docstring draws it."""
    task = FuzzyRecall(n_pairs=2, n_longest=2)
    a, c, value = 0, 2, 7
    book = [c, a, value + 4, a, value + 2, value]
    tokens = [*book, a, value + 2, value, c, a]
    labels = task.label(np.array(tokens)[:, None])
    assert " ".join(label.short for label in labels) == "c a 4 a 2 0 a 2 0 c a"
    assert [label.query for label in labels[6:]] == ["a ?", "a 2 ?", "a 2 0 ?", "c ?", "c a ?"]
    assert [label.full for label in labels[1:3]] == ["key a", "value 4"]
    assert read(task, book) == [([2, 0], [11], [2]), ([0], [9, 7], [4, 5])]
    assert task.n_ctx == len(tokens)
    assert task.answers_from == len(book)
    assert task.answer_text(4) == "4"


def test_more_short_keys_than_tokens_are_refused():
    """Keys differ."""
    message = "n_pairs: got 8, allowed at most n_longest × n_keys (7)"
    with pytest.raises(ValidationError, match=re.escape(message)):
        FuzzyRecall(n_pairs=8, n_longest=1)
