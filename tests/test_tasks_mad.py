"""Recall among noise and selective copying against slow references and their laws."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import binom, chisquare

from attnkit.tasks import NOTHING
from attnkit.tasks.base import is_held_out
from attnkit.tasks.mad import LETTERS, NoisyRecall, SelectiveCopy


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def batches(task, n_examples):
    """So many examples, ten thousand at a time."""
    generator = seeded(1)
    for _ in range(n_examples // 10_000):
        yield task.make_examples(10_000, generator)


def near(shares, expected):
    """Whether the mean of independent shares is as expected, within five sigma."""
    sigma = shares.double().std().item() / math.sqrt(len(shares))
    return shares.double().mean().item() == pytest.approx(expected, abs=5 * sigma)


@st.composite
def noisy(draw):
    """Recall among noise with any dials, and a few examples."""
    n_pairs, n_keys, n_values = (draw(st.integers(4, high)) for high in (128, 64, 64))
    n_noise, noise_share = draw(st.integers(1, 64)), draw(st.floats(0, 0.8))
    task = NoisyRecall(
        n_pairs=n_pairs, n_keys=n_keys, n_values=n_values, n_noise=n_noise, noise_share=noise_share
    )
    return task, task.make_examples(5, seeded(draw(st.integers(0, 999))))


@st.composite
def copied(draw):
    """Selective copying with any dials, and a few examples."""
    n_copied = draw(st.integers(4, 96))
    length = draw(st.integers(2 * n_copied + 2, 512))
    task = SelectiveCopy(n_copied=n_copied, length=length, n_tokens=draw(st.integers(8, 128)))
    return task, task.make_examples(5, seeded(draw(st.integers(0, 999))))


# Recall among noise


def read_stream(task, tokens):
    """Labels, targets and times seen of one stream, token by token."""
    places, labels, target, times = {}, [], [], []
    for place, token in enumerate(tokens):
        known = places.get(token, [])
        labels.append(tokens[known[0]] - task.n_keys if known else NOTHING)
        target.append(known[0] if len(known) == 1 else NOTHING)
        times.append(len(known))
        if token < task.n_keys:
            places[token] = [*known, place + 1]
    return labels[2:], target[2:], times[2:]


@settings(max_examples=40)
@given(noisy())
def test_a_key_that_was_there_before_is_asked(case):
    """Its value is the answer, its only place the target, its count the slice."""
    task, examples = case
    groups = task.slices(examples)
    for tokens, labels, target, group in zip(
        examples.tokens[:, :, 0].tolist(),
        examples.labels.tolist(),
        examples.target.tolist(),
        groups.tolist(),
        strict=True,
    ):
        expected, places, times = read_stream(task, tokens)
        assert (labels, target) == (expected, places)
        assert group == [min(count, 3) - 1 for count in times]
        assert labels[-1] != NOTHING


@settings(max_examples=40)
@given(noisy())
def test_a_stream_is_made_of_whole_pairs(case):
    """A key and a value, always the same, or two tokens of noise; at both ends no noise."""
    task, examples = case
    first_noise = task.n_keys + task.n_values
    for tokens in examples.tokens[:, :, 0].tolist():
        *first, last = tokens
        value_of = {}
        for key, value in zip(first[::2], first[1::2], strict=True):
            assert key >= first_noise or value_of.setdefault(key, value) == value
            assert key < task.n_keys <= value < first_noise or min(key, value) >= first_noise
        assert tokens[0] < task.n_keys
        assert last < task.n_keys


@pytest.mark.long
def test_a_million_streams_keep_the_rule():
    """One value for each key, no answer without an earlier pair, and the earlier value is it."""
    task = NoisyRecall()
    for examples in batches(task, 1_000_000):
        tokens = examples.tokens[:, :, 0]
        values = tokens[:, 1::2]
        table = torch.full((len(tokens), task.d_vocab), NOTHING)
        for pair in range(task.n_pairs):
            key = tokens[:, 2 * pair : 2 * pair + 1]
            known = table.gather(1, key)
            if pair:
                label = examples.labels[:, 2 * pair - 2 : 2 * pair - 1]
                asked = (key < task.n_keys) & (known != NOTHING)
                assert torch.equal(label, (known - task.n_keys).where(asked, NOTHING))
            if pair < task.n_pairs - 1:
                value = values[:, pair : pair + 1]
                kept = (known == value) | (known == NOTHING) | (key >= task.n_keys)
                assert kept.all()
                table = table.scatter(1, key, value)
        assert not (examples.labels[:, 1::2] != NOTHING).any()
        single = examples.target != NOTHING
        at = examples.target.clamp(min=1)
        assert torch.equal((tokens.gather(1, at) - task.n_keys)[single], examples.labels[single])
        assert torch.equal(tokens.gather(1, at - 1)[single], tokens[:, 2:][single])


def test_noise_keys_and_values_come_as_often_as_set():
    """Noise by its share, everything else evenly, the last key among those that were there."""
    task = NoisyRecall(noise_share=0.4)
    counts, noise_pairs, n_seen, surplus = torch.zeros(task.d_vocab), 0, 0, []
    for examples in batches(task, 200_000):
        tokens = examples.tokens[:, :, 0]
        counts += tokens[:, 2:-1].flatten().bincount(minlength=task.d_vocab)
        noise_pairs += (tokens[:, 2:-1:2] >= task.n_keys).sum().item()
        there = (tokens[:, :-1:2, None] == torch.arange(task.n_keys)).any(1)
        surplus.append((tokens[:, -1] == tokens[:, 0]).double() - 1 / there.sum(1))
        n_seen += len(tokens)
    keys, values, noise = counts.split([task.n_keys, task.n_values, task.n_noise])
    assert chisquare(keys).pvalue > 1e-4
    assert values.sum() == keys.sum()
    assert ((values / values.sum() - 1 / task.n_values).abs() < 0.002).all()
    assert chisquare(noise).pvalue > 1e-4
    n_free = n_seen * (task.n_pairs - 2)
    sigma = math.sqrt(0.4 * 0.6 / n_free)
    assert noise_pairs / n_free == pytest.approx(0.4, abs=5 * sigma)
    assert near(torch.cat(surplus), 0)


@pytest.mark.parametrize(
    "dials",
    [{}, {"n_pairs": 4, "n_keys": 4, "noise_share": 0.0}, {"n_pairs": 30, "noise_share": 0.8}],
)
def test_chance_is_what_the_value_of_an_earlier_pair_scores(dials):
    """Within sampling error, examples being independent; noise is never picked."""
    task = NoisyRecall(**dials)
    examples = task.make_examples(20_000, seeded(2))
    tokens = examples.tokens[:, :, 0]
    keys, values = tokens[:, :-1:2], tokens[:, 1::2] - task.n_keys
    labels = examples.labels[:, ::2]
    lots = torch.rand(20_000, task.n_pairs - 1, task.n_pairs - 1, generator=seeded(3))
    earlier = torch.ones(task.n_pairs - 1, task.n_pairs - 1).tril().bool()
    lots = lots.masked_fill(~(earlier & (keys < task.n_keys)[:, None, :]), -1)
    picked = values.gather(1, lots.argmax(2))
    asked = labels != NOTHING
    right = (asked & (picked == labels)).sum(1)
    assert near(right - task.chance * asked.sum(1), 0)


# Selective copying


@settings(max_examples=40)
@given(copied())
def test_tokens_are_said_in_order(case):
    """What is no blank, up to the mark, which follows the last token at once."""
    task, examples = case
    blank, mark = task.n_tokens - 2, task.n_tokens - 1
    for tokens, labels, target in zip(
        examples.tokens[:, :, 0].tolist(),
        examples.labels.tolist(),
        examples.target.tolist(),
        strict=True,
    ):
        stream = tokens[: tokens.index(mark)]
        assert target == [place for place, token in enumerate(stream) if token != blank]
        assert labels == [stream[place] for place in target]
        assert tokens[len(stream) + 1 :] == [blank] * task.n_copied
        assert len(labels) == task.n_copied
        assert stream[-1] != blank


@settings(max_examples=20)
@given(copied())
def test_slices_are_quarters_of_the_tokens(case):
    """In order, all alike but for one."""
    task, examples = case
    counts = task.slices(examples)[0].bincount(minlength=4)
    assert counts.max() - counts.min() <= 1
    assert (task.slices(examples).diff(dim=1) >= 0).all()


@pytest.mark.long
def test_a_million_copies_keep_the_rule():
    """Places rise, tokens stand there, all else is blank."""
    task = SelectiveCopy()
    blank = task.n_tokens - 2
    for examples in batches(task, 1_000_000):
        tokens = examples.tokens[:, :, 0]
        assert (examples.target.diff(dim=1) > 0).all()
        assert torch.equal(tokens.gather(1, examples.target), examples.labels)
        assert ((tokens < blank).sum(1) == task.n_copied).all()
        assert (tokens[:, task.answers_from - 1] == blank + 1).all()
        assert (examples.target[:, -1] == task.answers_from - 2).all()


def test_every_blank_falls_before_any_token():
    """So many before the first, and before the second, as coins would put there."""
    task = SelectiveCopy(n_copied=5, length=19)
    n_blanks = 19 - 2 * 5 - 1
    seen, values = torch.zeros(2, n_blanks + 1), torch.zeros(task.n_classes)
    for examples in batches(task, 200_000):
        first, second = examples.target[:, 0], examples.target[:, 1] - examples.target[:, 0] - 1
        seen[0] += first.bincount(minlength=n_blanks + 1)
        seen[1] += second.bincount(minlength=n_blanks + 1)
        values += examples.labels.flatten().bincount(minlength=task.n_classes)
    expected = 200_000 * binom.pmf(np.arange(n_blanks + 1), n_blanks, 1 / 5)
    likely = expected > 5
    for counts in seen.numpy():
        rest = [counts[~likely].sum(), expected[~likely].sum()]
        own, other = (np.append(a[likely], b) for a, b in ((counts, rest[0]), (expected, rest[1])))
        assert chisquare(own, other * own.sum() / other.sum()).pvalue > 1e-4
    assert chisquare(values).pvalue > 1e-4


@pytest.mark.parametrize("dials", [{}, {"n_tokens": 8, "n_copied": 7, "length": 40}])
def test_chance_is_what_one_of_the_tokens_scores(dials):
    """Within sampling error."""
    task = SelectiveCopy(**dials)
    labels = task.make_examples(50_000, seeded(2)).labels
    picked = torch.randint(task.n_copied, labels.shape, generator=seeded(3))
    assert near((labels.gather(1, picked) == labels).double().mean(1), task.chance)


# The split


@pytest.mark.parametrize(
    "task",
    [
        NoisyRecall(),
        NoisyRecall(n_pairs=4, n_keys=4, n_values=4),
        SelectiveCopy(),
        SelectiveCopy(n_tokens=8, length=10),
    ],
    ids=str,
)
def test_nothing_held_out_is_trained_on(task):
    """Not the same keys with the same values; not the same tokens in the same order."""

    def content(tokens):
        if isinstance(task, NoisyRecall):
            pairs = zip(tokens[:-1:2], tokens[1::2], strict=True)
            return frozenset(pair for pair in pairs if pair[0] < task.n_keys)
        return tuple(token for token in tokens if token < task.n_classes)

    trained, held_out = (
        {
            content(tokens)
            for tokens in task.draw(10_000, seeded(side), held_out=bool(side))
            .tokens[:, :, 0]
            .tolist()
        }
        for side in (0, 1)
    )
    assert held_out
    assert not trained & held_out


def test_where_the_blanks_are_does_not_count():
    """The same tokens in the same order are on one side."""
    task = SelectiveCopy()
    labels = torch.randint(14, (300, 4), generator=seeded())
    sides = []
    for places in ([0, 1, 2, 10], [3, 5, 9, 10]):
        tokens = torch.full((300, 16), 14)
        tokens[:, places], tokens[:, 11] = labels, 15
        sides.append(is_held_out(task.book(tokens[:, :, None])))
    assert torch.equal(*sides)
    assert sides[0].any()


# Reading an example


def test_the_worked_stream():
    """As the docstring draws it."""
    task = NoisyRecall(n_pairs=6)
    a, b, c, value, noise = 0, 1, 2, 8, 16
    tokens = [b, value + 3, c, value, noise + 5, noise + 2, b, value + 3, a, value + 1, c]
    labels = task.label(np.array(tokens)[:, None])
    assert " ".join(label.short for label in labels) == "b 3 c 0 ~5 ~2 b 3 a 1 c"
    assert [label.full for label in labels[3:5]] == ["value 0", "noise ~5"]
    assert labels[10].query == "c ?"
    answers, target, _ = read_stream(task, tokens)
    assert [task.answer_text(answers[place - 2]) for place in (6, 10)] == ["3", "0"]
    assert [target[place - 2] for place in (6, 10)] == [1, 3]


def test_the_worked_copy():
    """As the docstring draws it."""
    task = SelectiveCopy(n_copied=4, length=14)
    tokens = [14, 7, 3, 14, 14, 7, 14, 14, 1, 15, 14, 14, 14, 14]
    labels = task.label(np.array(tokens)[:, None])
    assert "".join(label.short for label in labels) == "·73··7··1>····"
    assert [label.query for label in labels[-2:]] == ["token 3 ?", "token 4 ?"]
    assert labels[9].full == "mark"
    assert task.answer_text(7) == "7"


def test_there_are_letters_enough():
    """One for each key of the largest size."""
    assert len(set(LETTERS)) == len(LETTERS) == 64


def test_a_length_without_a_blank_is_refused():
    """Two for every token, the mark and a blank."""
    message = "length: got 16, allowed at least 18, two for every token and two more"
    with pytest.raises(ValidationError, match=re.escape(message)):
        SelectiveCopy(n_copied=8)
