"""Hops against a slow reference, and a million cycles against their laws."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chisquare

from attnkit.tasks.base import NAMES, is_held_out
from attnkit.tasks.k_hop import KHop


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
    n_names = draw(st.integers(6, 32))
    n_hops = draw(st.integers(1, min(8, n_names - 1)))
    fewest_hops = draw(st.integers(1, n_hops))
    task = KHop(n_names=n_names, n_hops=n_hops, fewest_hops=fewest_hops)
    return task, task.make_examples(5, seeded(draw(st.integers(0, 999))))


@settings(max_examples=40)
@given(drawn())
def test_the_answer_is_so_many_hops_on(case):
    """Follow the entries one by one, as the tokens say."""
    task, examples = case
    n = task.n_names
    for tokens, labels, target in zip(
        examples.tokens.tolist(), examples.labels.tolist(), examples.target.tolist(), strict=True
    ):
        place_of = {name: place for place, (name, _) in enumerate(tokens[:n])}
        to = {name: other - n for name, other in tokens[:n]}
        here, met = 0, set()
        while here not in met:
            met.add(here)
            here = to[here]
        assert met == place_of.keys() == to.keys() == set(range(n))
        assert sorted(name for name, _ in tokens[n:]) == sorted(to)
        for (name, hops), label, place in zip(tokens[n:], labels, target, strict=True):
            here = name
            for _ in range(hops - 2 * n + task.fewest_hops):
                asked_last, here = here, to[here]
            assert label == here != name
            assert place == place_of[asked_last]


@settings(max_examples=40)
@given(drawn())
def test_slices_are_the_hops_that_the_question_names(case):
    """By the label of its token."""
    task, examples = case
    for tokens, groups in zip(examples.tokens.numpy(), task.slices(examples).tolist(), strict=True):
        queries = [label.query for label in task.label(tokens)[task.n_names :]]
        named = [re.fullmatch(r"[A-Z][a-z]+\+(\d) \?", text)[1] for text in queries]
        assert named == [task.slice_names[group] for group in groups]


@pytest.mark.long
def test_a_million_examples_keep_the_rule():
    """One cycle, each name asked once, answers as many hops on, at the right entry."""
    task = KHop(n_hops=3)
    n = task.n_names
    rows = torch.arange(n).expand(10_000, -1)
    for examples in batches(task, 1_000_000):
        names, others = examples.tokens[:, :n].unbind(-1)
        to = torch.zeros_like(names).scatter(1, names, others - n)
        here, met = torch.zeros_like(names[:, :1]), []
        for _ in range(n):
            here = to.gather(1, here)
            met.append(here)
        assert torch.equal(torch.cat(met, 1).sort(1).values, rows)
        asked, more = examples.tokens[:, n:].unbind(-1)
        assert torch.equal(asked.sort(1).values, rows)
        before = asked
        answer = to.gather(1, asked)
        for hops in (2, 3):
            far = more - 2 * n + 1 >= hops
            before, answer = before.clone(), answer.clone()
            before[far] = answer[far]
            answer[far] = to.gather(1, answer)[far]
        assert torch.equal(answer, examples.labels)
        assert torch.equal(names.gather(1, examples.target), before)


def test_cycles_orders_and_hops_are_drawn_evenly():
    """All 120 cycles of six, all first entries, all first questions, all hops."""
    task = KHop(n_names=6, n_hops=5)
    cycles, first, asked, hops = (torch.zeros(n) for n in (6**5, 6, 6, 5))
    for examples in batches(task, 200_000):
        names, others = examples.tokens[:, :6].unbind(-1)
        to = torch.zeros_like(names).scatter(1, names, others - 6)
        code = (to[:, :5] * 6 ** torch.arange(5)).sum(1)
        cycles += code.bincount(minlength=6**5)
        first += names[:, 0].bincount(minlength=6)
        asked += examples.tokens[:, 6, 0].bincount(minlength=6)
        hops += task.slices(examples).flatten().bincount(minlength=5)
    assert (cycles > 0).sum() == math.factorial(5)
    for counts in (cycles[cycles > 0], first, asked, hops):
        assert chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("dials", [{}, {"n_names": 6, "n_hops": 5}, {"fewest_hops": 2}])
def test_chance_is_what_another_name_scores(dials):
    """Within sampling error."""
    task = KHop(**dials)
    examples = task.make_examples(50_000, seeded(2))
    asked = examples.tokens[:, task.n_names :, 0]
    shift = torch.randint(1, task.n_names, asked.shape, generator=seeded(3))
    right = ((asked + shift) % task.n_names == examples.labels).double()
    sigma = right.mean(1).std().item() / math.sqrt(len(right))
    assert right.mean().item() == pytest.approx(task.chance, abs=5 * sigma)


@pytest.mark.parametrize("dials", [{}, {"n_names": 6}])
def test_no_held_out_cycle_is_trained_on(dials):
    """In whatever order its entries stand and are asked."""
    task = KHop(**dials)
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


def test_the_side_depends_on_the_cycle_alone():
    """Neither the order of the entries nor the questions count."""
    task = KHop()
    tokens = task.make_examples(500, seeded()).tokens
    other = torch.cat([tokens[:, :8].flip(1), tokens[:, 8:].roll(1, 1)], 1)
    assert torch.equal(is_held_out(task.book(tokens)), is_held_out(task.book(other)))


def test_the_worked_example():
    """As the docstring draws it, among six names."""
    task = KHop(n_names=6)
    ada, ben, cem = map(NAMES.index, ("Ada", "Ben", "Cem"))
    entries = [(ada, 6 + cem), (ben, 6 + ada), (cem, 6 + ben), (3, 6 + 4), (4, 6 + 5), (5, 6 + 3)]
    questions = [(cem, 13), (ada, 12), (ben, 13), (3, 12), (4, 12), (5, 12)]
    labels = task.label(np.array(entries + questions))
    assert [label.short for label in labels[:3]] == ["Ada", "Ben", "Cem"]
    assert [label.full for label in labels[:3]] == ["Ada: Cem", "Ben: Ada", "Cem: Ben"]
    assert [label.query for label in labels[6:9]] == ["Cem+2 ?", "Ada+1 ?", "Ben+2 ?"]
    assert task.answer_text(cem) == "Cem"


@pytest.mark.parametrize(
    ("dials", "message"),
    [
        ({"fewest_hops": 3}, "fewest_hops: got 3, allowed at most n_hops (2)"),
        ({"n_names": 6, "n_hops": 6}, "n_hops: got 6, allowed at most 5, below n_names"),
    ],
)
def test_dials_that_disagree_are_told(dials, message):
    """With the value and what is allowed."""
    with pytest.raises(ValidationError, match=re.escape(message)):
        KHop(**dials)
