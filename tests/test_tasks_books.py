"""Phone book, directed and mutual relation: their books, chance and plateau, and labels.

The laws of all tasks stand in test_tasks.py, test_tasks_examples.py and test_tasks_split.py.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.tasks.base import NAMES, is_held_out
from attnkit.tasks.phonebook import Phonebook
from attnkit.tasks.relations import Directed, Mutual

BOOKS = (Phonebook, Directed, Mutual)
every_task = pytest.mark.parametrize("cls", BOOKS)


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def positions(examples):
    """(b, i) position of each token."""
    return torch.arange(examples.tokens.shape[1]).expand(examples.tokens.shape[:2])


@st.composite
def sizes(draw, cls):
    """A task of any allowed size."""
    step = 2 if cls is Mutual else 1
    n_entries = draw(st.integers(math.ceil(4 / step), 16 // step)) * step
    n_names = draw(st.integers(max(4, n_entries), 64))
    return cls(n_entries=n_entries, n_names=n_names, n_values=draw(st.integers(4, 64)))


@st.composite
def drawn(draw, *classes):
    """A task and examples of it."""
    task = draw(sizes(draw(st.sampled_from(classes or BOOKS))))
    return task, task.make_examples(7, seeded(draw(st.integers(0, 999))))


# What a batch of examples is


@given(drawn())
def test_fields_use_different_ids(case):
    """The embedding is a sum over fields, so no id may stand in two of them."""
    _, examples = case
    fields = [set(field.unique().tolist()) for field in examples.tokens.unbind(-1)]
    assert sum(map(len, fields)) == len(set.union(*fields))


@given(drawn())
def test_every_id_can_occur(case):
    """The vocabulary has no more ids than names, others, numbers and a blank need."""
    task, _ = case
    blank = 1 if isinstance(task, Phonebook) else 0
    assert task.d_vocab == (task.n_fields - 1) * task.n_names + task.n_values + blank


@given(drawn())
def test_labels_are_the_numbers_of_the_target_entries(case):
    """The value field at the target, counted from the first number."""
    task, examples = case
    numbers = examples.tokens[:, :, -1] - (task.n_fields - 1) * task.n_names
    assert torch.equal(examples.labels, numbers.gather(1, examples.target))


@given(drawn())
def test_names_in_a_book_are_distinct(case):
    """Each person stands in a book once."""
    task, examples = case
    for names in task.book(examples.tokens)[:, :, 0].tolist():
        assert len(set(names)) == len(names) == task.n_entries


@given(drawn(Directed))
def test_directed_is_one_cycle(case):
    """Following the targets from anyone meets everyone before coming back."""
    task, examples = case
    here, met = torch.zeros(7, 1, dtype=torch.int64), []
    for _ in range(task.n_entries):
        here = examples.target.gather(1, here)
        met.append(here)
    assert torch.equal(torch.cat(met, 1).sort(1).values, positions(examples))
    assert (here == 0).all()


@given(drawn(Directed))
def test_directed_reverse_undoes_target(case):
    """Who is asked by i asks i."""
    _, examples = case
    assert torch.equal(examples.target.gather(1, examples.reverse), positions(examples))
    assert torch.equal(examples.reverse.gather(1, examples.target), positions(examples))


@given(drawn(Mutual))
def test_mutual_pairs_everyone_with_another(case):
    """An involution without fixed points."""
    _, examples = case
    assert torch.equal(examples.target.gather(1, examples.target), positions(examples))
    assert (examples.target != positions(examples)).all()


@given(drawn(Directed, Mutual))
def test_a_relation_names_its_target(case):
    """The second field of an entry is the name that stands first in the target entry."""
    task, examples = case
    names, others = examples.tokens[:, :, 0], examples.tokens[:, :, 1] - task.n_names
    assert torch.equal(others, names.gather(1, examples.target))


@pytest.mark.parametrize("cls", [Mutual, Phonebook])
def test_a_relation_without_direction_has_no_reverse(cls):
    """There is no entry that asks for the asker, or it is the target itself."""
    assert cls().make_examples(3, seeded()).reverse is None


@given(drawn(Phonebook))
def test_phonebook_asks_each_name_once_with_a_blank(case):
    """The second half repeats the names in the order of the targets, without numbers."""
    task, examples = case
    entries, questions = examples.tokens.split(task.n_entries, 1)
    assert torch.equal(questions[:, :, 0], entries[:, :, 0].gather(1, examples.target))
    assert torch.equal(examples.target.sort(1).values, positions(examples)[:, : task.n_entries])
    assert (questions[:, :, 1] == task.d_vocab - 1).all()
    assert (entries[:, :, 1] < task.d_vocab - 1).all()


# The split


@given(drawn(), st.randoms(use_true_random=False))
def test_the_side_does_not_depend_on_the_order_of_entries(case, random):
    """A shuffled book stays where it is."""
    task, examples = case
    book = task.book(examples.tokens)
    order = random.sample(range(task.n_entries), task.n_entries)
    assert torch.equal(is_held_out(book[:, order]), is_held_out(book))


@given(drawn(Phonebook), st.randoms(use_true_random=False))
def test_the_side_does_not_depend_on_the_questions(case, random):
    """A phone book asked in another order is the same book."""
    task, examples = case
    order = random.sample(range(task.n_entries), task.n_entries)
    entries, questions = examples.tokens.split(task.n_entries, 1)
    asked = torch.cat([entries, questions[:, order]], 1)
    assert torch.equal(task.book(asked), task.book(examples.tokens))


@every_task
def test_every_part_of_an_entry_decides_the_side(cls):
    """Changing one field of one entry moves some books, about as many as chance would."""
    book = cls().book(cls().make_examples(2000, seeded()).tokens)
    for field in range(cls().n_fields):
        changed = book.clone()
        changed[:, 1, field] += 1
        moved = (is_held_out(changed) != is_held_out(book)).double().mean().item()
        assert moved == pytest.approx(2 * (1 / 8) * (7 / 8), abs=0.05)


@every_task
def test_the_sides_are_alike(cls):
    """Held-out answers are spread over classes and targets as those of training."""
    task = cls()
    for held_out in (False, True):
        examples = task.draw(2000, seeded(5), held_out=held_out)
        share = examples.labels.flatten().bincount(minlength=task.n_classes) / 2000 / 8
        assert (share - 1 / task.n_classes).abs().max() < 0.01


# Chance and plateau


@every_task
@settings(max_examples=7)
@given(st.data())
def test_chance_is_what_a_random_entry_scores(cls, data):
    """Monte Carlo: answer with the number of an entry picked at random, oneself excluded."""
    task = data.draw(sizes(cls))
    examples = task.make_examples(3000, seeded(data.draw(st.integers(0, 99))))
    numbers = task.book(examples.tokens)[:, :, -1] - (task.n_fields - 1) * task.n_names
    shift = torch.randint(1, task.n_entries, examples.target.shape, generator=seeded(7))
    if cls is Phonebook:  # questions are no entries: any entry may be picked
        picked = torch.randint(task.n_entries, examples.target.shape, generator=seeded(7))
    else:
        picked = (positions(examples) + shift) % task.n_entries
    right = (numbers.gather(1, picked) == examples.labels).double().mean().item()
    assert right == pytest.approx(task.chance, abs=0.025)


@settings(max_examples=7)
@given(sizes(Directed))
def test_plateau_is_what_guessing_the_direction_scores(task):
    """Monte Carlo: answer with the target's or the asker's number, each half of the time."""
    examples = task.make_examples(3000, seeded())
    numbers = examples.tokens[:, :, -1] - 2 * task.n_names
    coin = torch.rand(examples.target.shape, generator=seeded(7)) < 0.5
    picked = torch.where(coin, examples.target, examples.reverse)
    right = (numbers.gather(1, picked) == examples.labels).double().mean().item()
    assert right == pytest.approx(task.plateau, abs=0.025)


def test_tasks_without_direction_have_no_plateau():
    """Symmetric scores solve them."""
    assert Mutual().plateau is None
    assert Phonebook().plateau is None


# Reading an example


def worked(task, rows, question_rows=()):
    """Tokens of a docstring's example from (name, …, number) rows."""
    index = NAMES.index
    if isinstance(task, Phonebook):
        blank = task.n_names + task.n_values
        rows = [(index(name), task.n_names + number - 10) for name, number in rows]
        return np.array(rows + [(index(name), blank) for name in question_rows])
    return np.array(
        [(index(a), task.n_names + index(b), 2 * task.n_names + n - 10) for a, b, n in rows]
    )


def test_directed_labels_of_the_worked_example():
    """Who points at whom, then the number, as the docstring writes them."""
    rows = [("Ada", "Cem", 31), ("Ben", "Ada", 14), ("Cem", "Ben", 25)]
    labels = Directed().label(worked(Directed(), rows))
    assert [label.short for label in labels] == ["Ada", "Ben", "Cem"]
    assert [label.query for label in labels] == ["Ada: Cem", "Ben: Ada", "Cem: Ben"]
    assert [label.full for label in labels] == ["Ada: Cem, 31", "Ben: Ada, 14", "Cem: Ben, 25"]


def test_mutual_labels_of_the_worked_example():
    """Both names of a couple; an arrow would stand for a score."""
    rows = [("Ada", "Cem", 31), ("Ben", "Dia", 14), ("Cem", "Ada", 25), ("Dia", "Ben", 19)]
    labels = Mutual().label(worked(Mutual(), rows))
    assert [label.full for label in labels][:2] == ["Ada & Cem, 31", "Ben & Dia, 14"]


def test_phonebook_labels_of_the_worked_example():
    """Entries show their number, questions a question mark."""
    rows = [("Ada", 31), ("Ben", 14), ("Cem", 25)]
    labels = Phonebook().label(worked(Phonebook(), rows, ["Ben", "Cem", "Ada"]))
    full = [label.full for label in labels]
    assert full == ["Ada 31", "Ben 14", "Cem 25", "Ben ?", "Cem ?", "Ada ?"]


@given(drawn())
def test_every_token_has_a_label(case):
    """Labels name the token's person, short on the axis and in full, at any size."""
    task, examples = case
    for tokens in examples.tokens.numpy():
        labels = task.label(tokens)
        assert len(labels) == task.n_ctx
        for label, (name, *_) in zip(labels, tokens.tolist(), strict=True):
            assert label.short.startswith(NAMES[name])
            assert label.full.startswith(label.short.rstrip(" ?"))
            assert len(label.short) <= 6


@given(drawn())
def test_the_answer_stands_in_the_label_of_the_target(case):
    """Who reads the labels can check the answer."""
    task, examples = case
    for tokens, answers, target in zip(
        examples.tokens.numpy(), examples.labels.tolist(), examples.target.tolist(), strict=True
    ):
        labels = task.label(tokens)
        for answer, position in zip(answers, target, strict=True):
            assert labels[position].full.endswith(f" {task.answer_text(answer)}")


@every_task
def test_answers_read_as_two_digits(cls):
    """Every class has a text of its own, all of one length."""
    texts = {cls().answer_text(answer) for answer in range(64)}
    assert len(texts) == 64
    assert {len(text) for text in texts} == {2}
