"""The split of every registered task into training and held-out examples."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_tasks import a_few, configured, every_task, parts, seeded, smallest_task

from attnkit.tasks import NOTHING, TASKS, Task
from attnkit.tasks.base import HELD_OUT_ONE_IN, in_order, is_held_out
from attnkit.tasks.phonebook import Phonebook


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
    """A draw has the requested number of examples on either side of the split."""
    task = data.draw(configured(cls))
    n_examples, seed = data.draw(st.integers(1, 19)), data.draw(st.integers(0, 99))
    for held_out in (False, True):
        examples = task.draw(n_examples, seeded(seed), held_out=held_out)
        assert {len(part) for part in parts(examples)} == {n_examples}


@every_task
def test_the_smallest_allowed_sizes_can_be_split(cls):
    """Examples can be held out of a task with all dials at their lowest."""
    for held_out in (False, True):
        assert len(smallest_task(cls).draw(16, seeded(), held_out=held_out).tokens) == 16


@every_task
@pytest.mark.parametrize("size", ["default", "tiny"])
def test_held_out_and_training_examples_are_disjoint(cls, size):
    """No example is on both sides of the split, even of the smallest task."""
    task = cls() if size == "default" else smallest_task(cls)
    trained, held_out = contents(
        task, *(task.draw(1000, seeded(side), held_out=bool(side)) for side in (0, 1))
    )
    assert trained
    assert held_out
    assert not trained & held_out


@pytest.mark.parametrize("cls", [cls for cls in TASKS.values() if cls.draw is Task.draw])
def test_about_one_book_in_eight_is_held_out(cls):
    """The hash holds out one book in eight.

    Tasks with their own `draw` decide the side by other means.
    """
    books = cls().book(cls().make_examples(2000, seeded()).tokens)
    different = len(books.unique(dim=0))
    share = is_held_out(books).double().mean().item()
    five_sigma = 5 * math.sqrt((1 / HELD_OUT_ONE_IN) * (1 - 1 / HELD_OUT_ONE_IN) / different)
    assert share == pytest.approx(1 / HELD_OUT_ONE_IN, abs=five_sigma)


@every_task
def test_the_sides_are_alike(cls):
    """Held-out labels are spread over classes as training labels are."""
    shares = []
    for held_out in (False, True):
        labels = cls().draw(1000, seeded(5), held_out=held_out).labels
        counts = labels[labels != NOTHING].bincount(minlength=cls().n_classes)
        shares.append(counts / counts.sum())
    assert (shares[0] - shares[1]).abs().max() < 0.05


def test_the_order_of_a_books_entries_does_not_decide_its_side():
    """The side of a book depends on the order of its entries only if positions are a field."""
    book = torch.randint(99, (400, 4, 2), generator=seeded())
    turned = book.flip(1)
    assert torch.equal(is_held_out(book), is_held_out(turned))
    moved = (is_held_out(in_order(book)) != is_held_out(in_order(turned))).double().mean()
    assert moved == pytest.approx(2 * (1 / 8) * (7 / 8), abs=0.1)


def test_in_order_adds_the_position_as_a_field():
    """`in_order` adds the position as the last field and keeps all others."""
    book = torch.randint(99, (3, 5, 2), generator=seeded())
    ordered = in_order(book)
    assert torch.equal(ordered[:, :, :2], book)
    assert ordered[:, :, 2].tolist() == [[0, 1, 2, 3, 4]] * 3


def test_a_space_with_one_book_is_too_small():
    """An error names the task if one side of the split has no book."""
    task = Phonebook.model_construct(n_entries=2, n_names=2, n_values=1)
    empty = not is_held_out(task.book(task.make_examples(1, seeded()).tokens)).item()
    task.draw(3, seeded(), held_out=not empty)
    with pytest.raises(ValueError, match="phonebook: too few different examples to hold some out"):
        task.draw(3, seeded(), held_out=empty)
