"""Laws of all registered tasks: their texts and numbers, their examples, their dials."""

import inspect
import math
import re
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from random_tasks import configured, every_task, limits, parts, seeded, smallest_task
from scipy.stats import chisquare
from searching import briefly

from attnkit.experiment.experiment import Experiment, full_size
from attnkit.experiment.training_settings import TrainingSettings
from attnkit.tasks import FAMILIES, NOTHING, TASKS
from attnkit.tasks.base import NAMES, is_held_out
from attnkit.tasks.draws import choose, choose_few
from attnkit.tasks.phonebook import Phonebook
from attnkit.variants.size import Size

# Texts and numbers


def test_tasks_are_listed_by_family_under_names_of_their_own():
    """Names and titles are unique, and families keep their order."""
    assert all(name == cls.name for name, cls in TASKS.items())
    assert len({cls.title for cls in TASKS.values()}) == len(TASKS)
    shown = [FAMILIES.index(cls.family) for cls in TASKS.values()]
    assert shown == sorted(shown)
    assert len(set(NAMES)) == len(NAMES) == 64


@every_task
def test_a_task_and_its_dials_say_what_they_are(cls):
    """Settings are written flat, so no dial collides; overrides and the full size are allowed."""
    for name, info in cls.model_fields.items():
        assert info.title, name
        assert info.description.endswith("."), name
        assert getattr(cls(**{name: info.default}), name) == info.default
        choices = info.annotation is bool or get_args(info.annotation)
        assert choices or {"ge", "le"} <= limits(info).keys(), name
    assert cls.question.endswith("?")
    assert bool(cls.slice_title) == bool(cls().slice_names)
    assert "label" in inspect.getdoc(cls).split("```")[1], "the docstring draws no example"
    others = {*Experiment.model_fields, *Size.model_fields, *TrainingSettings.model_fields}
    assert not others & set(cls.model_fields)
    assert set(cls.overrides) <= {"n_seeds", *Size.model_fields, *TrainingSettings.model_fields}
    assert Experiment(task=cls.name).settings().items() >= cls.overrides.items()
    assert full_size(cls.name).settings().items() >= cls.full_size.items()
    assert (full_size(cls.name) == Experiment(task=cls.name)) == (not cls.full_size)


def refusals(task):
    """Yield the errors of tasks that differ from this one by one whole number, and their dials."""
    for name, info in type(task).model_fields.items():
        if info.annotation is int:
            known = limits(info)
            step = known.get("multiple_of", 1)
            low = math.ceil(known["ge"] / step) * step
            for value in range(low, min(known["le"], low + 99) + 1, step):
                dials = {**task.model_dump(), name: value}
                try:
                    type(task)(**dials)
                except ValidationError as error:
                    yield error.errors(), dials


@every_task
def test_dials_that_disagree_are_told_the_nearest_value_allowed(cls):
    """The limit that an error tells is not refused for the same reason, and one beyond it is."""
    for start in (cls(), smallest_task(cls)):
        for (problem,), dials in refusals(start):
            field, value, allowed = (problem["ctx"][key] for key in ("field", "value", "allowed"))
            assert dials[field] == value
            bound, limit = re.search(r"at (most|least)\D* (?:\()?(\d+)", allowed).groups()
            known = limits(cls.model_fields[field])
            near = int(limit) // known.get("multiple_of", 1) * known.get("multiple_of", 1)
            beyond = near + known.get("multiple_of", 1) * (1 if bound == "most" else -1)
            for tried, refused in ((near, False), (beyond, True)):
                if known["ge"] <= tried <= known["le"]:
                    try:
                        cls(**{**dials, field: tried})
                        told = None
                    except ValidationError as error:
                        told = error.errors()[0]["ctx"]["field"]
                    assert (told == field) == refused, (problem["msg"], tried)


AT_THE_LIMIT = """
    phonebook n_names=8
    mutual n_names=8
    fuzzy_phonebook n_letters=7 n_alphabet=8 n_wrong=3 n_entries=2
    dual_role n_names=9
    neighbours n_families=4 n_values=8
    transfer n_names=8 n_values=8
    dictionary n_vocab=8
    mqar n_tokens=16 n_pairs=7 length=28
    selective_copy n_copied=7
    fuzzy_recall n_longest=1 n_keys=7 n_pairs=7
    induction n_tokens=8
    k_hop n_names=6 n_hops=5 fewest_hops=5
"""


def test_the_last_value_allowed_makes_examples():
    """No dial is refused before it disagrees."""
    for name, *dials in map(str.split, AT_THE_LIMIT.strip().splitlines()):
        given = {dial: int(value) for dial, value in (each.split("=") for each in dials)}
        assert len(TASKS[name](**given).draw(20, seeded(), held_out=False).tokens) == 20


# Examples


def check_numbers(task):
    """Check that the numbers of a task go together, and that plain values make it again."""
    assert 0 <= task.n_source <= task.answers_from < task.n_ctx
    assert 0 < task.chance < 1
    assert task.plateau is None or task.chance < task.plateau < 1
    assert task.loss_to_beat is None or 0 < task.loss_to_beat < math.log(task.n_classes)
    again = type(task)(**task.model_dump())
    assert (again, hash(again)) == (task, hash(task))
    assert all(isinstance(value, (bool, int, float, str)) for value in task.model_dump().values())
    if task.earlier is not None:
        shared = ("d_vocab", "n_ctx", "n_fields", "n_source", "n_classes", "answers_from")
        assert all(getattr(task, name) == getattr(task.earlier, name) for name in shared)
        assert task.earlier.model_dump() == task.model_dump()
        assert task.earlier.name not in TASKS


@every_task
@briefly(8)
@given(st.data())
def test_examples_keep_the_contract(cls, data):
    """A draw has as many examples as asked, promised shapes and ranges, and texts for all of it.

    The task's positions, classes, chance and losses agree; its dials make it again.
    """
    task, held_out = data.draw(configured(cls)), data.draw(st.booleans())
    seed, n = data.draw(st.integers(0, 999)), data.draw(st.integers(1, 9))
    check_numbers(task)
    examples, again = (task.draw(n, seeded(seed), held_out=held_out) for _ in range(2))
    assert all(map(torch.equal, parts(examples), parts(again)))
    tokens, labels, *positions = parts(examples)
    assert tokens.shape == (n, task.n_ctx, task.n_fields)
    assert all(part.shape == (n, task.n_ctx - task.answers_from) for part in (labels, *positions))
    assert all(part.dtype == torch.int64 for part in parts(examples))
    assert 0 <= tokens.min() <= tokens.max() < task.d_vocab
    assert NOTHING <= labels.min() <= labels.max() < task.n_classes
    for position in positions:
        assert NOTHING <= position.min() <= position.max() < task.n_ctx
    asked = labels != NOTHING
    assert asked.any(1).all()
    assert (examples.target[~asked] == NOTHING).all()
    fields = [set(field.unique().tolist()) for field in tokens.unbind(-1)]
    assert sum(map(len, fields)) == len(set.union(*fields)), "an id stands in two fields"
    for shown in map(task.label, tokens.numpy()):
        assert len(shown) == task.n_ctx
        texts = [text for label in shown for text in (label.short, label.query, label.full)]
        assert all(map(str.strip, texts))
        assert all(len(label.short) <= 12 for label in shown)
    answers = {task.answer_text(answer).strip() for answer in range(task.n_classes)}
    assert len(answers - {""}) == task.n_classes
    if task.slice_names:
        assert len({*task.slice_names} - {""}) == len(task.slice_names)
        group = task.slices(examples)
        assert group.shape == labels.shape
        assert 0 <= group[asked].min() <= group[asked].max() < len(task.slice_names)


@every_task
def test_the_generator_is_the_only_randomness(cls):
    """Draws advance it, leave the global state alone, and do not change what was drawn before."""
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    generator = seeded(3)
    first = cls().draw(11, generator, held_out=False)
    kept = [part.clone() for part in parts(first)]
    second = cls().draw(11, generator, held_out=False)
    assert not torch.equal(first.tokens, second.tokens)
    assert not torch.equal(first.tokens, cls().draw(11, seeded(4), held_out=False).tokens)
    second.tokens.zero_()
    assert all(map(torch.equal, parts(first), kept))
    taken = parts(first.take(torch.tensor([4, 1])))
    assert all(torch.equal(some, part[[4, 1]]) for some, part in zip(taken, kept, strict=True))

    fixed, again, other = (cls().fixed_embedding(32, seeded(seed)) for seed in (3, 3, 4))
    if fixed is not None:
        assert all(map(torch.equal, fixed, again))
        assert not torch.allclose(fixed[1], other[1], atol=0.1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


@every_task
def test_no_constant_answer_beats_chance(cls):
    """The commonest class is right no more often than chance, at the usual and the least dials."""
    for task in (cls(), smallest_task(cls)):
        seen, asked = (task.make_examples(1500, seeded(seed)).labels for seed in (1, 2))
        commonest = seen[seen != NOTHING].bincount().argmax()
        n_right, n_asked = ((asked == commonest).sum(1), (asked != NOTHING).sum(1))
        share = n_right.sum() / n_asked.sum()
        spread = (n_right - share * n_asked).std() / n_asked.double().mean()  # between examples
        assert share <= task.chance + 5 * spread / math.sqrt(len(asked)), task


@pytest.mark.parametrize(
    ("n_items", "n_chosen", "draw"),
    [(7, 3, choose), (5, 5, choose), (31, 4, choose_few), (8, 4, choose_few), (5, 1, choose_few)],
)
def test_choices_are_without_replacement_and_even(n_items, n_chosen, draw, seed):
    """First and last items are even together, also after rows are redrawn."""
    rows = draw(20_000, n_items, n_chosen, seeded(seed))
    ordered = rows.sort(1).values
    assert (ordered.diff() > 0).all()
    assert 0 <= ordered.min() <= ordered.max() < n_items
    both = (rows[:, 0] * n_items + rows[:, -1]).bincount(minlength=n_items**2)
    same = torch.eye(n_items, dtype=torch.bool).flatten()
    assert chisquare(both[same if n_chosen == 1 else ~same]).pvalue > 1e-6


def test_a_space_with_one_book_is_too_small():
    """An error names the task if one side of the split has no book."""
    task = Phonebook.model_construct(n_entries=2, n_names=2, n_values=1)
    empty = not is_held_out(task.book(task.make_examples(1, seeded()).tokens)).item()
    task.draw(3, seeded(), held_out=not empty)
    with pytest.raises(ValueError, match="phonebook"):
        task.draw(3, seeded(), held_out=empty)
