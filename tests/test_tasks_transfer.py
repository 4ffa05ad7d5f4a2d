"""Transfer and its earlier task against a slow reference, and a million books of both."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.tasks.base import NAMES, is_held_out
from attnkit.tasks.transfer import Before, Transfer

both = pytest.mark.parametrize("cls", [Transfer, Before])


def seeded(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def answers(task, tokens):
    """(labels, targets) of one example, from its tokens alone: the other half of the entry."""
    entries, questions = tokens[: task.n_entries].tolist(), tokens[task.n_entries :].tolist()
    unknown_name, unknown_number = task.n_classes, task.n_classes + 1
    labels, targets = [], []
    for name, number in questions:
        if isinstance(task, Transfer):
            assert name == unknown_name
            (found,) = [i for i, entry in enumerate(entries) if entry[1] == number]
        else:
            assert number == unknown_number
            (found,) = [i for i, entry in enumerate(entries) if entry[0] == name]
        targets.append(found)
        labels.append(entries[found][0 if isinstance(task, Transfer) else 1])
    return labels, targets


@st.composite
def sizes(draw, *classes):
    """A task of any allowed size."""
    n_entries = draw(st.integers(2, 16))
    many = st.integers(max(4, n_entries), 64)
    cls = draw(st.sampled_from(classes or [Transfer, Before]))
    return cls(n_entries=n_entries, n_names=draw(many), n_values=draw(many))


@settings(max_examples=50)
@given(sizes(), st.integers(0, 999))
def test_the_hidden_half_of_the_entry_is_the_answer(task, seed):
    """The name of a number, before that the number of a name."""
    examples = task.make_examples(5, seeded(seed))
    for b, tokens in enumerate(examples.tokens):
        labels, targets = answers(task, tokens)
        assert examples.labels[b].tolist() == labels
        assert examples.target[b].tolist() == targets
        names, numbers = tokens[: task.n_entries].T.tolist()
        assert len(set(names)) == len(set(numbers)) == task.n_entries
        assert max(names) < task.n_names <= min(numbers)


@both
@pytest.mark.long
def test_a_million_books(cls):
    """Half a million of each: every entry is asked once, and what is known is copied from it."""
    task, generator = cls(), seeded(1)
    hidden = 0 if cls is Transfer else 1
    for _ in range(125):
        examples = task.make_examples(4000, generator)
        entries, questions = examples.tokens.split(task.n_entries, 1)
        assert (examples.target.sort(1).values == torch.arange(task.n_entries)).all()
        asked = entries.gather(1, examples.target[:, :, None].expand_as(entries))
        assert torch.equal(asked[:, :, hidden], examples.labels)
        assert torch.equal(asked[:, :, 1 - hidden], questions[:, :, 1 - hidden])
        assert (questions[:, :, hidden] == task.n_classes + hidden).all()
        assert (entries.sort(1).values.diff(dim=1) > 0).all()


@settings(max_examples=10)
@given(sizes(Transfer))
def test_the_earlier_task_has_the_same_tokens(task):
    """Vocabulary, classes, length and fields; it hides the number, and there is none before it."""
    before = task.earlier
    assert before.model_dump() == task.model_dump()
    for name in ("d_vocab", "n_classes", "n_ctx", "n_fields", "answers_from", "chance"):
        assert getattr(before, name) == getattr(task, name)
    assert before.earlier is None
    ours, theirs = (each.make_examples(5, seeded()).tokens for each in (task, before))
    assert torch.equal(task.book(ours), before.book(theirs))


def test_only_the_later_task_is_listed():
    """And it is trained long enough for both."""
    assert Before.name not in TASKS
    training = Experiment(task="transfer").training
    assert 0 < training.earlier_steps < training.steps


def test_a_book_is_on_one_side_before_and_after():
    """What evaluates the later task was not trained on in the earlier one either."""
    task = Transfer(n_entries=2, n_names=4, n_values=4)
    sides = []
    for each in (task, task.earlier):
        for held_out in (False, True):
            one, again = (each.draw(2000, seeded(3), held_out=held_out) for _ in range(2))
            assert torch.equal(one.tokens, again.tokens)
            assert torch.equal(one.labels, again.labels)
            assert (is_held_out(each.book(one.tokens)) == held_out).all()
            sides.append({frozenset(map(tuple, book)) for book in each.book(one.tokens).tolist()})
    trained, held_out, trained_before, held_out_before = sides
    assert trained == trained_before
    assert held_out == held_out_before
    assert not trained & held_out


@settings(max_examples=10)
@given(sizes())
def test_chance_is_what_a_random_entry_scores(task):
    """Monte Carlo: the hidden field of an entry picked at random."""
    examples = task.make_examples(3000, seeded())
    field = 0 if isinstance(task, Transfer) else 1
    picked = torch.randint(task.n_entries, examples.target.shape, generator=seeded(7))
    found = examples.tokens[:, : task.n_entries, field].gather(1, picked)
    right = (found == examples.labels).double().mean().item()
    assert right == pytest.approx(task.chance, abs=0.04)


@both
@pytest.mark.parametrize(("dial", "least"), [("n_names", 5), ("n_values", 6)])
def test_there_are_enough_names_and_numbers_for_a_book(cls, dial, least):
    """Those of a book differ, and an error says of what there is too little."""
    with pytest.raises(ValidationError, match=rf"got 8, allowed at most {dial} \({least}\)"):
        cls(**{dial: least})


@both
def test_labels_of_the_worked_example(cls):
    """As the docstrings write them."""
    task = cls(n_entries=3)
    asked = "? 14, ? 25, ? 31" if cls is Transfer else "Ben ?, Cem ?, Ada ?"
    text = f"Ada 31, Ben 14, Cem 25, {asked}"
    tokens = torch.tensor(
        [
            (
                task.n_classes if name == "?" else NAMES.index(name),
                task.n_classes + 1 if number == "?" else task.n_names + int(number) - 10,
            )
            for name, number in (part.split() for part in text.split(", "))
        ]
    )
    labels = task.label(tokens.numpy())
    assert [label.full for label in labels] == text.split(", ")
    assert [label.query for label in labels] == text.split(", ")
    assert [label.short for label in labels] == ["Ada", "Ben", "Cem", *asked.split(", ")]
    classes, targets = answers(task, tokens)
    expected = "Ben Cem Ada" if cls is Transfer else "14 25 31"
    assert [task.answer_text(answer) for answer in classes] == expected.split()
    assert targets == [1, 2, 0]


def test_answers_read_as_names_and_numbers():
    """Every class has a text of its own."""
    task = Transfer()
    texts = [task.answer_text(answer) for answer in range(task.n_classes)]
    assert texts == [*NAMES[:32], *map(str, range(10, 42))]
