"""Laws of all registered tasks: their texts and numbers, their examples, their dials."""

import itertools
import math
import re
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from random_tasks import configured, dials_of, every_task, parts, seeded, smallest_task
from searching import briefly

from attnkit.examples import load_example
from attnkit.experiment.experiment import Experiment, full_size
from attnkit.experiment.training_settings import TrainingSettings
from attnkit.tasks import FAMILIES, NOTHING, TASKS
from attnkit.tasks.base import is_held_out
from attnkit.tasks.phonebook import Phonebook
from attnkit.training.data import TrainingData, draw_probe, held_out_examples
from attnkit.variants.size import Size


@every_task
def test_a_task_and_its_dials_say_what_they_are(cls):
    """Settings are written flat, so no dial collides; the full size is allowed."""
    assert TASKS[cls.name] is cls
    assert [one for one in TASKS.values() if one.title == cls.title] == [cls]
    assert sorted(TASKS.values(), key=lambda one: FAMILIES.index(one.family)) == [*TASKS.values()]
    assert bool(cls.slice_title) == bool(cls().slice_names)
    others = {*Experiment.model_fields, *Size.model_fields, *TrainingSettings.model_fields}
    assert not others & set(cls.model_fields)
    assert full_size(cls.name).settings().items() >= cls.full_size.items()
    assert (full_size(cls.name) == Experiment(task=cls.name)) == (not cls.full_size)


def problem_of(cls, dials):
    """Return what the error about these dials says; nothing if they are allowed."""
    try:
        cls(**dials)
    except ValidationError as error:
        return error.errors()[0]["ctx"]
    return {"field": None}


@every_task
def test_dials_that_disagree_are_told_the_nearest_value_allowed(cls):
    """The limit that an error tells is not refused for the same reason, and one beyond it is."""
    numbers = {name: dial for name, dial in dials_of(cls).items() if dial.kind is int}
    for start, (name, dial) in itertools.product((cls(), smallest_task(cls)), numbers.items()):
        step = dial.multiple_of or 1
        for value in range(dial.low, min(dial.high, dial.low + 99) + 1, step):
            problem = problem_of(cls, dials := {**start.model_dump(), name: value})
            if field := problem["field"]:
                assert dials[field] == problem["value"]
                limit = re.search(r"at (most|least)\D* (?:\()?(\d+)", problem["allowed"])
                step_of = numbers[field].multiple_of or 1
                near = int(limit[2]) // step_of * step_of
                beyond = near + step_of * (1 if limit[1] == "most" else -1)
                for tried, refused in ((near, False), (beyond, True)):
                    if numbers[field].low <= tried <= numbers[field].high:
                        told = problem_of(cls, {**dials, field: tried})["field"]
                        assert (told == field) == refused, (problem, tried)


def test_a_side_without_any_book_is_an_error_that_names_the_task():
    """Nobody waits for ever for an example that there is not."""
    task = Phonebook.model_construct(n_entries=2, n_names=2, n_values=1)
    empty = not is_held_out(task.book(task.make_examples(1, seeded()).tokens)).item()
    task.draw(3, seeded(), held_out=not empty)
    with pytest.raises(ValueError, match="phonebook"):
        task.draw(3, seeded(), held_out=empty)


@every_task
@briefly(8)
@given(st.data())
def test_examples_keep_the_contract(cls, data):
    """A draw has as many examples as asked, promised shapes and ranges, and texts for all of it."""
    task, held_out = data.draw(configured(cls)), data.draw(st.booleans())
    seed, n = data.draw(st.integers(0, 999)), data.draw(st.integers(1, 9))
    assert 0 <= task.n_source <= task.answers_from < task.n_ctx
    assert 0 < task.chance < (task.plateau or 1) <= 1
    assert task.loss_to_beat is None or 0 < task.loss_to_beat < math.log(task.n_classes)
    again = cls(**task.model_dump())
    assert (again, hash(again)) == (task, hash(task))
    if task.earlier is not None:
        for name in ("d_vocab", "n_ctx", "n_fields", "n_source", "n_classes", "answers_from"):
            assert getattr(task, name) == getattr(task.earlier, name), name
        assert task.earlier.model_dump() == task.model_dump()
    examples, again = (task.draw(n, seeded(seed), held_out=held_out) for _ in range(2))
    assert all(map(torch.equal, parts(examples), parts(again)))
    tokens, labels, *positions = parts(examples)
    assert tokens.shape == (n, task.n_ctx, task.n_fields)
    assert all(part.shape == (n, task.n_ctx - task.answers_from) for part in (labels, *positions))
    assert all(part.dtype == torch.int64 for part in parts(examples))
    assert 0 <= tokens.min() <= tokens.max() < task.d_vocab
    ends = [task.n_classes, *[task.n_ctx] * len(positions)]
    for part, end in zip((labels, *positions), ends, strict=True):
        assert NOTHING <= part.min() <= part.max() < end
    asked = labels != NOTHING
    assert asked.any(1).all()
    assert (examples.target[~asked] == NOTHING).all()
    fields = [set(field.unique().tolist()) for field in tokens.unbind(-1)]
    assert sum(map(len, fields)) == len(set.union(*fields)), "an id stands in two fields"
    for shown in map(task.label, tokens.numpy()):
        assert len(shown) == task.n_ctx
        assert all(0 < len(label.short.strip()) <= len(label.short) <= 12 for label in shown)
        assert all(label.query.strip() and label.full.strip() for label in shown)
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
    second, other = (cls().draw(11, each, held_out=False) for each in (generator, seeded(4)))
    assert not torch.equal(first.tokens, second.tokens)
    assert not torch.equal(first.tokens, other.tokens)
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


# Every Python, torch, library and locale draws the same examples.
RECORDED = {
    "phonebook": "0f40524aa0f9e91f", "directed": "dccdb9c72bb88007",
    "mutual": "9dee975a6913522c", "fuzzy_phonebook": "add3bdaa7936095c",
    "neighbours": "e7edec1f0c1b0505", "dual_role": "373d560b94aab205",
    "transfer": "bc97a8e6c6b6abd4", "dictionary": "ba9795c8e0765478",
    "mqar": "73f2eaf3c40727fa", "noisy_recall": "4d2685f38b4f37e6",
    "selective_copy": "9b2b9fb783554d23", "fuzzy_recall": "498c89413e8c98b9",
    "induction": "d8a7f2645fa22782", "k_hop": "579dcd243bd3e75d",
    "reverse": "7c2541b541a0364c", "sort": "74587129e45e9269",
    "swap": "1186b1b676b256b8", "sub": "bbbbd4efae112575",
    "copy": "478404c1c9946838", "language": "d5af912977f57615",
    "translation": "23dd25169db7174b",
}  # fmt: skip


@every_task
def test_the_first_examples_are_the_recorded_ones(cls):
    """Of a task's default, its full size and its choices; the shipped probe is drawn again."""
    kinds, digest = [{}, cls.full_size], blake2b(digest_size=8)
    for name, field in cls.model_fields.items():
        kinds += [{name: choice} for choice in getattr(field.annotation, "__args__", ())]
    for settings in kinds:
        experiment = Experiment(task=cls.name, sharing="QKV", **{"n_eval": 48, **settings})
        seeds, cpu = [0, 1], torch.device("cpu")
        batch = TrainingData(experiment, seeds, cpu).next()
        drawn = [held_out_examples(experiment, seeds, cpu), draw_probe(experiment.task)]
        for array in itertools.chain(batch, *map(parts, drawn)):
            digest.update(np.ascontiguousarray(array.numpy(), "<i8").tobytes())
    assert digest.hexdigest() == RECORDED.get(cls.name)
    snapshot = load_example(cls.name)
    for key, array in vars(draw_probe(snapshot.experiment.task)).items():
        if array is not None and key != "reverse":
            assert np.array_equal(array[0].numpy(), getattr(snapshot.probe, key)), key
