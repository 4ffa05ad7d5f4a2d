"""MQAR against the published rule read anew: ranges, slots and their odds, where labels stand."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chisquare

from attnkit.tasks import NOTHING
from attnkit.tasks.base import is_held_out
from attnkit.tasks.mqar import Mqar, choose_few


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def batches(task, n_examples):
    """So many examples, ten thousand at a time."""
    generator = seeded(1)
    for _ in range(n_examples // 10_000):
        yield task.make_examples(10_000, generator)


@st.composite
def tasks(draw, **fixed):
    """A task with any dials."""
    n_pairs = draw(st.integers(2, 64))
    return Mqar(
        n_pairs=n_pairs,
        length=2 * draw(st.integers(2 * n_pairs, 256)),
        n_tokens=2 * draw(st.integers(max(8, n_pairs + 1), 4096)),
        power_a=draw(st.floats(0.01, 1)),
        **({"random_fill": draw(st.booleans())} | fixed),
    )


def read(task, tokens):
    """Labels and targets of one example without random fill, from its tokens alone."""
    n, first_value = task.n_pairs, task.n_tokens // 2
    value_of = {tokens[2 * pair]: 2 * pair + 1 for pair in range(n)}
    labels, target = [], []
    for token in tokens[2 * n :]:
        place = value_of.get(token, NOTHING)
        labels.append(tokens[place] - first_value if token else NOTHING)
        target.append(place if token else NOTHING)
    return labels, target


# The rule, example by example


@settings(max_examples=40)
@given(tasks(random_fill=False), st.integers(0, 999))
def test_labels_follow_from_the_tokens(task, seed):
    """Where the fill is 0, every other token after the pairs asks."""
    examples = task.make_examples(5, seeded(seed))
    for tokens, labels, target in zip(
        examples.tokens[:, :, 0].tolist(),
        examples.labels.tolist(),
        examples.target.tolist(),
        strict=True,
    ):
        assert (labels, target) == read(task, tokens)


@settings(max_examples=40)
@given(tasks(), st.integers(0, 999))
def test_each_key_is_asked_once_at_the_first_token_of_a_slot(task, seed):
    """Its label stands on the query itself, whatever fills the other positions."""
    examples = task.make_examples(5, seeded(seed))
    n, first_value = task.n_pairs, task.n_tokens // 2
    for tokens, labels in zip(
        examples.tokens[:, :, 0].tolist(), examples.labels.tolist(), strict=True
    ):
        keys, values = tokens[: 2 * n : 2], tokens[1 : 2 * n : 2]
        assert len(set(keys)) == len(set(values)) == n
        assert all(
            1 <= key < first_value <= value < task.n_tokens for key in keys for value in values
        )
        asked = [place for place, label in enumerate(labels) if label != NOTHING]
        assert all(place % 2 == 0 for place in asked)
        assert sorted(tokens[2 * n + place] for place in asked) == sorted(keys)
        for place in asked:
            assert labels[place] + first_value == values[keys.index(tokens[2 * n + place])]


@settings(max_examples=40)
@given(tasks(), st.integers(0, 999))
def test_slices_are_distances(task, seed):
    """From the key to its query, between the two numbers of the group's name."""
    examples = task.make_examples(5, seeded(seed))
    groups = task.slices(examples)
    bounds = [tuple(map(int, name.split("–"))) for name in task.slice_names]
    assert bounds[0][0] == 2
    assert bounds[-1][1] == task.length - 2
    assert [high + 2 for _, high in bounds[:-1]] == [low for low, _ in bounds[1:]]
    for example, place in (examples.labels != NOTHING).nonzero().tolist():
        key = examples.target[example, place].item() - 1
        low, high = bounds[groups[example, place]]
        assert low <= 2 * task.n_pairs + place - key <= high
    assert (groups[examples.labels == NOTHING] == NOTHING).all()


# The rule, in a million examples


@pytest.mark.long
@pytest.mark.parametrize("random_fill", [False, True])
def test_a_million_examples_keep_the_rule(random_fill):
    """Ranges, no repetition, one query for each key, labels from targets, fill."""
    task = Mqar(random_fill=random_fill)
    n, first_value = task.n_pairs, task.n_tokens // 2
    for examples in batches(task, 500_000):
        tokens = examples.tokens[:, :, 0]
        keys, values = tokens[:, : 2 * n : 2], tokens[:, 1 : 2 * n : 2]
        assert (keys.min(), keys.max()) == (1, first_value - 1)
        assert (values.min(), values.max()) == (first_value, task.n_tokens - 1)
        for drawn in (keys, values):
            ordered = drawn.sort(1).values
            assert (ordered[:, 1:] > ordered[:, :-1]).all()
        asked = examples.labels != NOTHING
        assert (asked.sum(1) == n).all()
        assert not asked[:, 1::2].any()
        assert torch.equal(asked, examples.target != NOTHING)
        queries = tokens[:, 2 * n :][asked].view(-1, n)
        target = examples.target[asked].view(-1, n)
        assert torch.equal(tokens.gather(1, target - 1), queries)
        answers = tokens.gather(1, target) - first_value
        assert torch.equal(answers, examples.labels[asked].view(-1, n))
        assert torch.equal(queries.sort(1).values, keys.sort(1).values)
        fill = tokens[:, 2 * n :][~asked]
        if random_fill:
            counts = fill.bincount(minlength=task.n_tokens)
            assert chisquare(counts).pvalue > 1e-6
        else:
            assert not fill.any()


def test_keys_and_values_are_drawn_evenly():
    """Each key stands in each place equally often, and so does each value."""
    task = Mqar(n_tokens=16, n_pairs=3, length=12)
    counts = torch.zeros(6, 16)
    for examples in batches(task, 200_000):
        for place in range(6):
            counts[place] += examples.tokens[:, place, 0].bincount(minlength=16)
    for place, low, high in [(0, 1, 8), (1, 8, 16), (2, 1, 8), (3, 8, 16), (4, 1, 8), (5, 8, 16)]:
        assert chisquare(counts[place, low:high]).pvalue > 1e-4


@pytest.mark.parametrize("power_a", [0.01, 0.5, 1.0])
def test_slots_are_drawn_in_proportion_without_replacement(power_a):
    """Both queries' slots together against p_i p_j / (1 − p_i), and i^(a−1) makes p."""
    task = Mqar(n_pairs=2, length=16, power_a=power_a, random_fill=False)
    n_slots = 6
    odds = np.array([i ** (power_a - 1) for i in range(1, n_slots + 1)])
    p = odds / odds.sum()
    expected = p[:, None] * p[None, :] / (1 - p[:, None])
    np.fill_diagonal(expected, 0)
    assert expected.sum() == pytest.approx(1)
    seen = torch.zeros(n_slots * n_slots, dtype=torch.int64)
    for examples in batches(task, 200_000):
        first, second = ((examples.target == place).int().argmax(1) // 2 for place in (1, 3))
        seen += (first * n_slots + second).bincount(minlength=n_slots * n_slots)
    possible = expected.flatten() > 0
    assert not seen.numpy()[~possible].any()
    p_value = chisquare(seen.numpy()[possible], 200_000 * expected.flatten()[possible]).pvalue
    assert p_value > 1e-3


def test_gaps_have_the_published_histogram():
    """T 64, four pairs: how many slots lie between the pairs and the first key's query."""
    task = Mqar(n_tokens=256, length=64, random_fill=False)
    gap = np.arange(1, 29)
    p = 0.01 * gap ** (0.01 - 1.0)
    seen = np.zeros(28)
    for examples in batches(task, 200_000):
        seen += np.bincount((examples.target == 1).int().argmax(1).numpy() // 2, minlength=28)
    assert chisquare(seen, 200_000 * p / p.sum()).pvalue > 1e-3


# Chance and the split


@pytest.mark.parametrize("dials", [{}, {"n_pairs": 16, "length": 64, "n_tokens": 128}])
def test_chance_is_what_a_random_value_scores(dials):
    """Within sampling error: answer with the value of any pair."""
    task = Mqar(**dials)
    examples = task.make_examples(50_000, seeded(2))
    asked = examples.labels != NOTHING
    values = examples.tokens[:, 1 : 2 * task.n_pairs : 2, 0] - task.n_classes
    picked = torch.randint(task.n_pairs, examples.labels.shape, generator=seeded(3))
    right = (values.gather(1, picked) == examples.labels)[asked].double()
    sigma = math.sqrt(task.chance * (1 - task.chance) / len(right))
    assert right.mean().item() == pytest.approx(task.chance, abs=5 * sigma)


@pytest.mark.parametrize("dials", [{}, {"n_tokens": 16, "n_pairs": 2, "length": 8}])
def test_no_held_out_pairs_are_trained_on(dials):
    """In whatever order they stand and are asked."""
    task = Mqar(**dials)
    trained, held_out = (
        {
            frozenset(map(tuple, book))
            for book in task.book(
                task.draw(20_000, seeded(int(side)), held_out=side).tokens
            ).tolist()
        }
        for side in (False, True)
    )
    assert held_out
    assert not trained & held_out


def test_the_side_depends_on_the_pairs_alone():
    """Neither their order nor what follows them counts."""
    task = Mqar()
    tokens = task.make_examples(500, seeded()).tokens
    other = torch.cat([tokens[:, 2:8], tokens[:, :2], tokens[:, 8:].flip(1)], 1)
    assert torch.equal(is_held_out(task.book(tokens)), is_held_out(task.book(other)))
    other[:, 1] = 32 + (other[:, 1] - 31) % 32
    moved = (is_held_out(task.book(tokens)) != is_held_out(task.book(other))).double().mean()
    assert moved == pytest.approx(2 * (1 / 8) * (7 / 8), abs=0.08)


# Drawing few of many


@pytest.mark.parametrize(("n_items", "n_chosen"), [(8, 4), (31, 4), (40, 7), (7, 7), (5, 1)])
def test_few_are_chosen_evenly_and_once(n_items, n_chosen):
    """Also after rows were drawn anew; items in the first and the last place, and which two."""
    rows = choose_few(200_000, n_items, n_chosen, seeded(4))
    ordered = rows.sort(1).values
    assert (ordered[:, 1:] > ordered[:, :-1]).all()
    for place in (0, n_chosen - 1):
        assert chisquare(rows[:, place].bincount(minlength=n_items)).pvalue > 1e-4
    if n_chosen > 1:
        both = (rows[:, 0] * n_items + rows[:, -1]).bincount(minlength=n_items**2)
        possible = ~torch.eye(n_items, dtype=torch.bool).flatten()
        assert chisquare(both[possible]).pvalue > 1e-4


def test_few_are_chosen_from_their_generator_alone():
    """The same seed, the same rows, though some are drawn more than once."""
    first, again = (choose_few(5000, 8, 4, seeded(5)) for _ in range(2))
    assert torch.equal(first, again)


# Reading an example


def test_the_worked_example():
    """As the docstring draws it."""
    task = Mqar(n_tokens=16, n_pairs=2, length=12, random_fill=False)
    tokens = [2, 8, 4, 12, 0, 0, 4, 0, 0, 0, 2, 0]
    labels = task.label(np.array(tokens)[:, None])
    assert [label.short for label in labels] == [str(token) for token in tokens]
    assert [label.full for label in labels[:4]] == ["key 2", "value 8", "key 4", "value 12"]
    assert [label.full for label in labels[4:8]] == ["fill 0", "fill 0", "4 ?", "fill 0"]
    assert labels[10].query == "2 ?"
    answers, target = read(task, tokens)
    assert [task.answer_text(answer) for answer in answers if answer != NOTHING] == ["12", "8"]
    assert target[2] == 3
    assert target[6] == 1


@pytest.mark.parametrize(
    ("dials", "message"),
    [
        ({"n_pairs": 7}, "length: got 24, allowed at least 28, four for every pair"),
        (
            {"n_tokens": 16, "n_pairs": 8, "length": 32},
            "n_pairs: got 8, allowed at most 7, the number of keys",
        ),
    ],
)
def test_dials_that_disagree_are_told(dials, message):
    """With the value and what is allowed."""
    with pytest.raises(ValidationError, match=re.escape(message)):
        Mqar(**dials)
