"""Laws of all registered tasks: their texts and numbers, their examples, and the split.

test_tasks_rules.py compares the examples with slow references.
"""

import inspect
import math
import re
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from random_tasks import a_few, configured, every_task, limits, parts, seeded, smallest_task
from scipy.stats import chisquare

from attnkit.experiment.experiment import Experiment, full_size
from attnkit.experiment.training_settings import TrainingSettings
from attnkit.tasks import FAMILIES, NOTHING, TASKS, Task
from attnkit.tasks.base import HELD_OUT_ONE_IN, NAMES, choose, choose_few, in_order, is_held_out
from attnkit.tasks.phonebook import Phonebook
from attnkit.variants.size import Size

# Texts and numbers


def test_tasks_are_listed_by_family_under_names_of_their_own():
    """No two tasks share a name or a title, and families have their order."""
    assert all(name == cls.name for name, cls in TASKS.items())
    assert len({cls.title for cls in TASKS.values()}) == len(TASKS)
    shown = [FAMILIES.index(cls.family) for cls in TASKS.values()]
    assert shown == sorted(shown)
    assert len(set(NAMES)) == len(NAMES) == 64
    assert all(2 <= len(name) <= 4 and name.isalpha() and name[0].isupper() for name in NAMES)


@every_task
def test_settings_of_a_task_are_known_and_do_not_collide(cls):
    """Settings are written flat; overrides and the full size name allowed values of them."""
    others = {*Experiment.model_fields, *Size.model_fields, *TrainingSettings.model_fields}
    assert not others & set(cls.model_fields)
    assert not set(Size.model_fields) & set(TrainingSettings.model_fields)
    assert set(cls.overrides) <= {"n_seeds", *Size.model_fields, *TrainingSettings.model_fields}
    assert Experiment(task=cls.name).settings().items() >= cls.overrides.items()
    assert full_size(cls.name).settings().items() >= cls.full_size.items()
    assert (full_size(cls.name) == Experiment(task=cls.name)) == (not cls.full_size)


@every_task
def test_every_dial_and_the_task_say_what_they_are(cls):
    """A dial has a label, help, bounds and an allowed default; a task has title and question."""
    for name, info in cls.model_fields.items():
        assert info.title
        assert info.description.endswith(".")
        if info.annotation in (int, float):
            assert {"ge", "le"} <= limits(info).keys()
        else:
            assert info.annotation is bool or get_args(info.annotation)
        assert getattr(cls(**{name: info.default}), name) == info.default
    with pytest.raises(ValidationError, match="frozen"):
        setattr(cls(), name, info.default)
    assert cls.title[0].isupper()
    assert cls.question.endswith("?")
    assert cls.source
    assert not cls.source.endswith(".")
    assert bool(cls.slice_title) == bool(cls().slice_names)


@every_task
def test_the_docstring_draws_an_example(cls):
    """A docstring shows an example as a table; rows without a name continue the last one."""
    tables = re.findall(r"```\n(.*?)```", inspect.cleandoc(cls.__doc__), re.DOTALL)
    assert tables, "the docstring has no table between two lines of three backticks"
    for table in tables:
        head, *rows = (
            {cell.start(): cell[0] for cell in re.finditer(r"\S+(?: \S+)*", line)}
            for line in table.splitlines()
        )
        names = [row[0] for row in (head, *rows) if 0 in row]
        assert len(set(names)) == len(names) >= 3
        assert "label" in names
        for row in rows:
            assert row.keys() <= head.keys(), table


def test_tasks_do_without_torch():
    """All tasks can be built and described before torch is imported."""
    program = """if True:
        import sys
        sys.modules["torch"] = None
        from attnkit.tasks import TASKS
        for cls in TASKS.values():
            task = cls()
            task.chance, task.d_vocab, task.loss_to_beat, task.loss_floor, task.slice_names
            task.plateau, task.earlier, task.sparse, task.ordered, task.answer_text(0)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@every_task
@a_few
@given(st.data())
def test_numbers_of_a_task_go_together(cls, data):
    """Positions, classes, chance and losses agree; dials are plain values that make it again."""
    task = data.draw(configured(cls))
    assert 0 <= task.n_source <= task.answers_from < task.n_ctx
    assert task.n_fields >= 1
    assert task.d_vocab >= 1
    assert task.n_classes >= 2
    assert 0 < task.chance < 1
    assert task.plateau is None or task.chance < task.plateau < 1
    floor, beaten = task.loss_floor or 0.0, task.loss_to_beat
    assert 0 <= floor < math.log(task.n_classes)
    assert beaten is None or floor < beaten < math.log(task.n_classes)
    again = cls(**task.model_dump())
    assert (again, hash(again)) == (task, hash(task))
    assert all(isinstance(value, (bool, int, float, str)) for value in task.model_dump().values())
    if task.earlier is not None:
        shared = ("d_vocab", "n_ctx", "n_fields", "n_source", "n_classes", "answers_from")
        assert all(getattr(task, name) == getattr(task.earlier, name) for name in shared)
        assert task.earlier.model_dump() == task.model_dump()
        assert task.earlier.earlier is None
        assert task.earlier.name not in TASKS


@every_task
def test_a_fixed_embedding_is_one_row_for_each_of_some_ids(cls):
    """A fixed embedding has one finite row per id, the same for generators of one seed only."""
    task = cls()
    fixed, again, other = (task.fixed_embedding(32, seeded(seed)) for seed in (3, 3, 4))
    if fixed is not None:
        ids, rows = fixed
        assert rows.shape == (len(ids), 32)
        assert rows.isfinite().all()
        assert len(set(ids.tolist())) == len(ids)
        assert 0 <= ids.min() <= ids.max() < task.d_vocab
        assert torch.equal(rows, again[1])
        assert torch.equal(ids, again[0])
        assert not torch.allclose(rows, other[1], atol=0.1)


# Examples


@every_task
@a_few
@given(st.data())
def test_examples_keep_the_contract(cls, data):
    """Examples have the promised shapes and ranges, and everything in them has a text."""
    task, seed = data.draw(configured(cls)), data.draw(st.integers(0, 999))
    examples, again = (task.make_examples(5, seeded(seed)) for _ in range(2))
    assert all(map(torch.equal, parts(examples), parts(again)))
    n_answers = task.n_ctx - task.answers_from
    assert examples.tokens.shape == (5, task.n_ctx, task.n_fields)
    assert all(part.shape == (5, n_answers) for part in parts(examples)[1:])
    assert all(part.dtype == torch.int64 for part in parts(examples))

    tokens, labels, *positions = parts(examples)
    assert 0 <= tokens.min() <= tokens.max() < task.d_vocab
    assert (NOTHING if task.sparse else 0) <= labels.min() <= labels.max() < task.n_classes
    for position in positions:
        assert NOTHING <= position.min() <= position.max() < task.n_ctx
    asked = labels != NOTHING
    assert asked.any(1).all()
    assert (examples.target[~asked] == NOTHING).all()
    fields = [set(field.unique().tolist()) for field in tokens.unbind(-1)]
    assert sum(map(len, fields)) == len(set.union(*fields)), "an id stands in two fields"

    for row in tokens.numpy():
        shown = task.label(row)
        assert len(shown) == task.n_ctx
        for label in shown:
            assert all(text.strip() for text in (label.short, label.query, label.full))
            assert len(label.short) <= 12
    answers = [task.answer_text(answer) for answer in range(task.n_classes)]
    assert all(text.strip() for text in answers)
    assert len(set(answers)) == len(answers)

    names = task.slice_names
    assert len(set(names)) == len(names)
    assert all(names)
    if names:
        group = task.slices(examples)
        assert group.shape == labels.shape
        assert 0 <= group[asked].min() <= group[asked].max() < len(names)


@every_task
def test_the_generator_is_the_only_randomness(cls):
    """Draws advance it, leave the global state alone, and do not change what was drawn before."""
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    generator = seeded(3)
    first = cls().draw(11, generator, held_out=False)
    kept = [part.clone() for part in parts(first)]
    second = cls().draw(11, generator, held_out=False)
    other = cls().draw(11, seeded(4), held_out=False)
    assert not torch.equal(first.tokens, second.tokens)
    assert not torch.equal(first.tokens, other.tokens)
    second.tokens.zero_()
    assert all(map(torch.equal, parts(first), kept))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    taken = first.take(torch.tensor([4, 1]))
    for part, some in zip(parts(first), parts(taken), strict=True):
        assert torch.equal(some, part[[4, 1]])
    with pytest.raises(AttributeError):
        first.tokens = None


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


@pytest.mark.parametrize(
    ("n_items", "n_chosen", "draw"),
    [(7, 3, choose), (5, 5, choose), (31, 4, choose_few), (8, 4, choose_few), (5, 1, choose_few)],
)
def test_choices_are_without_replacement_and_even(n_items, n_chosen, draw, seed):
    """First and last items are even by themselves and together, also after rows are redrawn."""
    rows = draw(20_000, n_items, n_chosen, seeded(seed))
    assert torch.equal(rows, draw(20_000, n_items, n_chosen, seeded(seed)))
    ordered = rows.sort(1).values
    assert (ordered.diff() > 0).all()
    assert 0 <= ordered.min() <= ordered.max() < n_items
    for place in (0, n_chosen - 1):
        assert chisquare(rows[:, place].bincount(minlength=n_items)).pvalue > 1e-6
    if n_chosen > 1:
        both = (rows[:, 0] * n_items + rows[:, -1]).bincount(minlength=n_items**2)
        different = both[~torch.eye(n_items, dtype=torch.bool).flatten()]
        assert chisquare(different).pvalue > 1e-6


# The split


def contents(task, *batches):
    """Return one set for each batch, of bytes that identify its examples.

    They are those of the book as a set, or of the whole example if the task does not draw books.
    """
    if type(task).draw is Task.draw:
        books = torch.cat([task.book(examples.tokens) for examples in batches])
        _, entry = books.flatten(0, 1).unique(dim=0, return_inverse=True)
        rows = entry.view(len(books), -1).sort(1).values
    else:
        own = [torch.cat([each.tokens.flatten(1), each.labels], 1) for each in batches]
        rows = torch.cat(own)
    sides = rows.split([len(examples.tokens) for examples in batches])
    return [{row.tobytes() for row in side.numpy()} for side in sides]


@every_task
@a_few
@given(st.data())
def test_draw_gives_as_many_examples_as_asked(cls, data):
    """A draw has the requested number of examples on either side, the same for one seed."""
    task = data.draw(configured(cls))
    n_examples, seed = data.draw(st.integers(1, 19)), data.draw(st.integers(0, 99))
    for held_out in (False, True):
        one, again = (task.draw(n_examples, seeded(seed), held_out=held_out) for _ in range(2))
        assert {len(part) for part in parts(one)} == {n_examples}
        assert all(map(torch.equal, parts(one), parts(again)))


@every_task
@pytest.mark.parametrize("size", ["default", "tiny"])
def test_the_sides_are_disjoint_and_alike(cls, size):
    """No example is on both sides, even of the smallest task; labels are spread alike."""
    task = cls() if size == "default" else smallest_task(cls)
    batches = [task.draw(1000, seeded(side), held_out=bool(side)) for side in (0, 1)]
    trained, held_out = contents(task, *batches)
    assert trained
    assert held_out
    assert not trained & held_out
    if size == "default":
        shares = []
        for examples in batches:
            counts = examples.labels[examples.labels != NOTHING].bincount(minlength=task.n_classes)
            shares.append(counts / counts.sum())
        assert (shares[0] - shares[1]).abs().max() < 0.05


def test_about_one_book_in_eight_is_held_out():
    """Tasks with their own `draw` decide the side by other means."""
    for cls in TASKS.values():
        if cls.draw is Task.draw:
            books = cls().book(cls().make_examples(2000, seeded()).tokens)
            five_sigma = 5 * math.sqrt(7 / 64 / len(books.unique(dim=0)))
            share = is_held_out(books).double().mean().item()
            assert share == pytest.approx(1 / HELD_OUT_ONE_IN, abs=five_sigma), cls.name


def test_the_order_of_a_books_entries_counts_only_as_a_field():
    """`in_order` adds the position as the last field, and then the order decides the side."""
    book = torch.randint(99, (400, 4, 2), generator=seeded())
    turned = book.flip(1)
    assert torch.equal(is_held_out(book), is_held_out(turned))
    moved = (is_held_out(in_order(book)) != is_held_out(in_order(turned))).double().mean()
    assert moved == pytest.approx(2 * (1 / 8) * (7 / 8), abs=0.1)
    assert torch.equal(in_order(book)[:, :, :2], book)
    assert in_order(book)[0, :, 2].tolist() == [0, 1, 2, 3]


def test_a_space_with_one_book_is_too_small():
    """An error names the task if one side of the split has no book."""
    task = Phonebook.model_construct(n_entries=2, n_names=2, n_values=1)
    empty = not is_held_out(task.book(task.make_examples(1, seeded()).tokens)).item()
    task.draw(3, seeded(), held_out=not empty)
    with pytest.raises(ValueError, match="phonebook: too few different examples to hold some out"):
        task.draw(3, seeded(), held_out=empty)
