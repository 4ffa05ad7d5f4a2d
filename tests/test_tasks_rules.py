"""Each task against its slow reference, its chance and plateau, its odds and its labels."""

import inspect
import itertools
import math
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from random_tasks import configured, every_task, seeded, smallest_task
from scipy.stats import chisquare
from searching import briefly
from task_rules import (
    CONTENT,
    GUESS,
    REFERENCES,
    by_entry,
    distance,
    in_row,
    numbers_of,
)

from attnkit.tasks import NOTHING
from attnkit.tasks.base import is_held_out
from attnkit.tasks.fuzzy import FuzzyPhonebook
from attnkit.tasks.fuzzy_recall import FuzzyRecall
from attnkit.tasks.k_hop import KHop
from attnkit.tasks.lists import Sort
from attnkit.tasks.mad import NoisyRecall, SelectiveCopy
from attnkit.tasks.mqar import Mqar
from attnkit.tasks.neighbours import MEMBERS, Neighbours
from attnkit.tasks.relations import Mutual
from attnkit.tasks.transfer import Before, Transfer
from attnkit.tasks.translation import Dictionary


def every(tasks):
    """Run a test for each of some tasks."""
    return pytest.mark.parametrize("cls", tasks, ids=lambda cls: cls.name)


def without_fill(task):
    """Return the task without random tokens that its reference could take for keys."""
    return task.model_copy(update={"random_fill": False}) if isinstance(task, Mqar) else task


# Answers, chance and the side of the split


@every(REFERENCES)
@briefly(20)
@given(st.data())
def test_answers_are_those_of_the_slow_reference(cls, data):
    """Labels, targets, reverses and groups follow from the tokens, at any dials."""
    task = without_fill(data.draw(configured(cls)))
    examples = task.make_examples(4, seeded(data.draw(st.integers(0, 999))))
    groups = task.slices(examples)
    for b, tokens in enumerate(examples.tokens.tolist()):
        expected = REFERENCES[cls](task, tokens)
        assert examples.labels[b].tolist() == expected.labels
        assert examples.target[b].tolist() == expected.target
        assert (examples.reverse is None) == (expected.reverse is None)
        if expected.reverse is not None:
            assert examples.reverse[b].tolist() == expected.reverse
        assert bool(task.slice_names) == (expected.groups is not None)
        if expected.groups is not None:
            asked = examples.labels[b] != NOTHING
            assert [task.slice_names[group] for group in groups[b][asked]] == expected.groups


def near_zero(surplus):
    """Assert that independent numbers have a mean of zero, within five sigma."""
    surplus = surplus.double()
    assert abs(surplus.mean().item()) <= 5 * surplus.std().item() / math.sqrt(len(surplus)) + 1e-12


@every(GUESS)
@briefly(4)
@given(st.data())
def test_chance_is_what_the_guess_of_the_docstring_scores(cls, data):
    """Guesses are right as often as `chance` says, and more often halfway on the plateau."""
    task = smallest_task(cls) if data.draw(st.booleans()) else data.draw(configured(cls))
    n_examples = min(2000, 40_000 // task.n_ctx + 50)
    examples = task.make_examples(n_examples, seeded(data.draw(st.integers(0, 99))))
    asked = examples.labels != NOTHING
    right = asked & (GUESS[cls](task, examples, seeded(7)) == examples.labels)
    near_zero(right.sum(1) - task.chance * asked.sum(1))
    assert (task.plateau is None) == (examples.reverse is None)
    if task.plateau is not None:
        coin = torch.rand(examples.target.shape, generator=seeded(8)) < 0.5
        picked = torch.where(coin, examples.target, examples.reverse)
        right = by_entry(examples).gather(1, picked) == examples.labels
        near_zero(right.double().mean(1) - task.plateau)


# The split


@every_task
def test_sides_share_no_content_and_are_alike(cls, seed):
    """Content, not questions or noise, decides the side; one in eight is held out."""
    content = CONTENT.get(cls, in_row)
    for task, n in ((smallest_task(cls), 200), (cls(), 600)):
        sides = [task.draw(n, seeded(seed + i), held_out=bool(i)) for i in (0, 1)]
        trained, held_out = ({content(task, row) for row in s.tokens.tolist()} for s in sides)
        assert trained
        assert held_out
        assert not trained & held_out
        if cls in CONTENT:
            tokens = task.make_examples(n, seeded(seed)).tokens
            contents = [content(task, row) for row in tokens.tolist()]
            drawn = dict(zip(contents, is_held_out(task.book(tokens)).tolist(), strict=True))
            share = sum(drawn.values()) / len(drawn)
            assert share == pytest.approx(1 / 8, abs=5 * math.sqrt(7 / 64 / len(drawn)))
    shares = [s.labels[s.labels != NOTHING].bincount(minlength=task.n_classes) for s in sides]
    one, other = (counts / counts.sum() for counts in shares)
    assert (one - other).abs().max() < 0.07


# What the tables above cannot tell


@pytest.mark.parametrize("power_a", [0.01, 1.0])
def test_random_fill_of_mqar_asks_nothing(power_a, seed):
    """Each key is asked once at the first token of a slot, whatever fills the others."""
    examples = (task := Mqar(power_a=power_a)).make_examples(500, seeded(seed))
    n, tokens, asked = task.n_pairs, examples.tokens[:, :, 0], examples.labels != NOTHING
    assert (asked.sum(1) == n).all()
    assert not asked[:, 1::2].any()
    queries, target = tokens[:, 2 * n :][asked].view(-1, n), examples.target[asked].view(-1, n)
    assert torch.equal(tokens.gather(1, target - 1), queries)
    assert torch.equal(tokens.gather(1, target) - 32, examples.labels[asked].view(-1, n))
    assert chisquare(tokens[:, 2 * n :][~asked].bincount(minlength=64)).pvalue > 1e-6


def test_the_earlier_task_of_transfer_has_the_same_books_on_the_same_side():
    """What evaluates the later task was not trained on in the earlier one either."""
    task = Transfer()
    ours, theirs = (each.make_examples(300, seeded()).tokens for each in (task, task.earlier))
    assert torch.equal(task.book(ours), task.earlier.book(theirs))


@briefly(15)
@given(configured(Neighbours), st.sampled_from([16, 32, 112]), st.integers(0, 999))
def test_cosines_of_neighbours_are_as_the_dial_says(task, d_model, seed):
    """Within a family the cosine, at equal places of two families the rest, else none."""
    ids, rows = task.fixed_embedding(d_model, seeded(seed))
    assert ids.tolist() == list(range(task.n_names))
    family, member = ids // MEMBERS, ids % MEMBERS
    expected = task.cosine * (family[:, None] == family).double()
    expected += (1 - task.cosine) * (member[:, None] == member)
    unit = (rows / rows.norm(dim=1, keepdim=True)).double()
    assert (unit @ unit.T - expected).abs().max() < 2e-6
    # A token's two vectors have a root mean square of one half together.
    assert (rows.square().mean(1) - 0.25 / 2).abs().max() < 1e-6


# Odds


DRAWN_EVENLY = {
    Mqar: lambda task, e: e.tokens[:, : 2 * task.n_pairs, 0],
    SelectiveCopy: lambda task, e: e.labels,
    NoisyRecall: lambda task, e: e.tokens[:, :2, 0],
    FuzzyRecall: lambda task, e: e.tokens[:, :1, 0],
    Sort: lambda task, e: e.tokens[:, :, 0],
}
"""Columns of tasks in which not every token and target is even."""


def counted(task, examples):
    """Yield how often anything stands in every column, and every pair in neighbouring ones."""
    read = DRAWN_EVENLY.get(type(task), lambda _, e: torch.cat([e.tokens.flatten(1), e.target], 1))
    columns = read(task, examples).T.contiguous()
    for column in columns:
        counts = column.bincount()
        yield counts[counts > 0]
    if not isinstance(task, (Mutual, KHop)):  # in these one target decides another
        for pair in pairwise(columns):
            counts = (pair[0] * 100 + pair[1]).bincount()
            yield counts[counts > 0]


@every(REFERENCES)
def test_what_is_drawn_is_drawn_evenly(cls, seed):
    """By chi-square, which would be as large by chance once in ten million draws."""
    task = cls()
    examples = task.make_examples(10_000, seeded(seed))
    unused = 1 if isinstance(task, (Transfer, Before)) else 0  # what stands for a hidden half
    assert len(examples.tokens.unique()) == task.d_vocab - unused
    for place, counts in enumerate(counted(task, examples)):
        assert len(counts) == 1 or chisquare(counts).pvalue > 1e-7, (place, counts)


def test_noise_is_even_and_as_frequent_as_the_dial_says(seed):
    """The last key is any of those that were there."""
    task = NoisyRecall(noise_share=0.4)
    tokens = task.make_examples(20_000, seeded(seed)).tokens[:, :, 0]
    noise = tokens >= task.n_keys + task.n_values
    assert chisquare(tokens[noise].unique(return_counts=True)[1]).pvalue > 1e-7
    near_zero(noise[:, 2:-1].double().mean(1) - task.noise_share)
    there = (tokens[:, :-1:2, None] == torch.arange(task.n_keys)).any(1).sum(1)
    near_zero((tokens[:, -1] == tokens[:, 0]).double() - 1 / there)


@pytest.mark.parametrize("power_a", [0.01, 0.5, 1.0])
def test_slots_of_mqar_are_drawn_in_proportion_without_replacement(power_a, seed):
    """Both queries' slots together against p_i p_j / (1 − p_i), and i^(a−1) makes p."""
    task = Mqar(n_pairs=2, length=16, power_a=power_a, random_fill=False)
    odds = np.array([i ** (power_a - 1) for i in range(1, 7)])
    p = odds / odds.sum()
    expected = p[:, None] * p[None, :] / (1 - p[:, None])
    np.fill_diagonal(expected, 0)
    target = task.make_examples(50_000, seeded(seed)).target
    first, second = ((target == place).int().argmax(1) // 2 for place in (1, 3))
    seen = (first * 6 + second).bincount(minlength=36).numpy()
    possible = expected.flatten() > 0
    assert not seen[~possible].any()
    assert chisquare(seen[possible], 50_000 * expected.flatten()[possible]).pvalue > 1e-6


def test_half_of_all_names_are_left_for_the_last_entry_of_a_fuzzy_book():
    """Names nearer than three to a name are at most 1/2 of all per others."""
    all_names = list(itertools.product(range(16), repeat=3))
    too_near = sum(distance(name, (0, 0, 0)) < 3 for name in all_names)
    most = max(n for n in range(1, 17) if 2 * (n - 1) * too_near <= len(all_names))
    dials = {"n_letters": 3, "n_alphabet": 16, "n_entries": most}
    FuzzyPhonebook(**dials)
    with pytest.raises(ValidationError, match=f"{most}"):
        FuzzyPhonebook(**{**dials, "n_entries": most + 1})


# Worked examples


WORKED = """
phonebook | n_entries=3 | 0,53 1,36 2,47 1,64 2,64 0,64 |
    0: Ada / Ada 31 / Ada 31; 3: Ben ? / Ben ? / Ben ?
directed | n_entries=3 | 0,34,85 1,32,68 2,33,79 | 0: Ada / Ada: Cem / Ada: Cem, 31
mutual | n_entries=4 | 0,34,85 1,35,68 2,32,79 3,33,73 | 0: Ada / Ada & Cem / Ada & Cem, 31
fuzzy_phonebook | n_entries=3 n_alphabet=26 | 0,39,71,92,125 1,43,60,90,108 10,30,73,78,119
    1,43,52,90,136 10,30,73,92,136 20,39,71,92,136 |
    0: ANTO / ANTO 31 / ANTO 31; 3: BRAM ? / BRAM ? / BRAM ?
dual_role | n_circles=2 | 1,51 3,34 2,45 0,39 5,60 4,32 | 0: Ben / Ben asks Cem / Ben asks Cem, 31
neighbours | n_asking=2 | 5,36 3,53 4,47 0,41 1,64 1,65 6,64 6,65 |
    0: Ben2 / Ben2 14 / Ben2 14; 5: Ada2 ? / Ada2 2nd / Ada2, 2nd neighbour?
transfer | n_entries=3 | 0,53 1,36 2,47 64,36 64,47 64,53 |
    0: Ada / Ada 31 / Ada 31; 3: ? 14 / ? 14 / ? 14
before_transfer | n_entries=3 | 0,53 1,36 2,47 1,65 2,65 0,65 |
    0: Ada / Ada 31 / Ada 31; 3: Ben ? / Ben ? / Ben ?
k_hop | n_names=3 | 0,5 1,3 2,4 2,7 0,6 1,7 |
    0: Ada / Ada: Cem / Ada: Cem; 3: Cem+2 / Cem+2 ? / Cem+2 ?
induction | n_seen=4 | 5 1 10 2 10 5 1 | 0: f / f / f; 4: k ? / k ? / k ?
fuzzy_recall | n_pairs=2 n_longest=2 | 2 0 11 0 9 7 0 9 7 2 0 |
    1: a / a / key a; 2: 4 / 4 / value 4; 8: 0 / a 2 0 ? / value 0; 9: c / c ? / key c
noisy_recall | n_pairs=6 | 1 11 2 8 21 18 1 11 0 9 2 |
    0: b / b ? / key b; 1: 3 / 3 / value 3; 4: ~5 / ~5 / noise ~5
selective_copy | n_copied=3 length=10 | 14 7 3 14 14 7 15 14 14 14 |
    0: · / · / blank; 1: 7 / 7 / 7; 6: > / > / mark; 8: · / token 2 ? / token 2 ?
mqar | n_tokens=14 n_pairs=2 length=12 random_fill=0 | 2 8 4 7 0 0 4 0 0 0 2 0 |
    0: 2 / 2 ? / key 2; 1: 8 / 8 ? / value 8; 5: 0 / 0 ? / fill 0; 6: 4 / 4 ? / 4 ?
reverse | length=4 | 3 1 4 7 | 2: 4 / 3: 4 / place 3: 4
swap | length=4 | 3 1 4 7 | 2: 4 / 3: 4 / place 3: 4
sub | length=4 | 3 1 4 7 | 2: 4 / 3: 4 / place 3: 4
copy | length=4 | 3 1 4 7 | 2: 4 / 3: 4 / place 3: 4
sort | length=4 | 4 1 7 1 |
"""
"""Task, dials, tokens, and by place a label of every kind: on an axis, in a row, in a tooltip."""


@pytest.mark.parametrize("worked", re.split(r"\n(?! )", WORKED.strip()))
def test_the_docstrings_example_is_true(worked):
    """Its tokens are shown as it says, and its labels and targets are those of the rule."""
    name, *columns = (column.strip() for column in re.sub(r"\s+", " ", worked).split("|"))
    dials, text, expected = (re.split(r"; | (?=\w+=)", column) for column in columns)
    (cls,) = (cls for cls in REFERENCES if cls.name == name)
    given = {dial: int(value) for dial, value in (one.split("=") for one in dials)}
    task = cls().model_copy(update=given)
    tokens = [[int(field) for field in token.split(",")] for token in text[0].split()]
    labels = task.label(np.array(tokens))
    for place, told in (one.split(": ", 1) for one in filter(None, expected)):
        label = labels[int(place)]
        assert f"{label.short} / {label.query} / {label.full}" == told
    answers = REFERENCES[cls](task, tokens)
    table = inspect.cleandoc(cls.__doc__).split("```")[1]
    rows = dict(re.findall(r"^(label|target|reverse) +(.+)$", table, re.MULTILINE))
    shown = [task.answer_text(label) for label in answers.labels if label != NOTHING]
    assert rows["label"].split() == shown
    assert rows["target"].replace("–", "").split() == [f"{t}" for t in answers.target if t >= 0]
    if answers.reverse:
        assert rows["reverse"].split() == [f"{place}" for place in answers.reverse]


def test_labels_of_a_sentence():
    """Names with their numbers, the start, and what was written so far."""
    task, numbers = Dictionary(n_words=3), numbers_of(32)
    tokens = [2, 0, 1, 2 * 32, 32 + numbers[2], 32 + numbers[0]]
    labels = task.label(np.array(tokens)[:, None])
    cem, ada, ben = (task.answer_text(numbers[name]) for name in (2, 0, 1))
    assert [label.short for label in labels] == ["Cem", "Ada", "Ben", "start", cem, ada]
    assert labels[2].full == f"Ben ({ben})"
    assert [label.query for label in labels[3:]] == ["start →", f"{cem} →", f"{ada} →"]
