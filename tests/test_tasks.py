"""Registered tasks: names, dials, texts and numbers, at any allowed dials.

These laws hold for every task, as those of test_tasks_examples.py and test_tasks_split.py do. All
other files test_tasks_….py test one family.
"""

import inspect
import math
import re
import subprocess
import sys
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from random_tasks import a_few, configured, every_task, limits, seeded

from attnkit.experiment.experiment import Experiment, full_size
from attnkit.experiment.training_settings import TrainingSettings
from attnkit.tasks import FAMILIES, TASKS, register_task
from attnkit.tasks.base import NAMES
from attnkit.tasks.phonebook import Phonebook
from attnkit.variants.size import Size


def test_registry_names_are_the_tasks_own():
    """A task is found by its name, and no two tasks share a name or a title."""
    assert all(name == cls.name for name, cls in TASKS.items())
    assert len({cls.title for cls in TASKS.values()}) == len(TASKS)
    assert {"directed", "mutual", "phonebook"} <= set(TASKS)


def test_tasks_are_listed_by_family():
    """Tasks have the order of the families under which they are shown."""
    shown = [FAMILIES.index(cls.family) for cls in TASKS.values()]
    assert shown == sorted(shown)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": None}, "source: Own has none, allowed a text"),
        ({"name": "My task"}, "name: got 'My task', allowed small letters, digits and underscores"),
        (
            {"name": "phonebook"},
            "name: got 'phonebook' from test_tasks.Own, but attnkit.tasks.phonebook.Phonebook has",
        ),
    ],
)
def test_a_task_that_cannot_be_registered_is_told_why(changes, message):
    """A refused task is named with the reason, and the registry is unchanged."""
    before = dict(TASKS)
    body = {"name": "own", "__module__": __name__, "__annotations__": {}, **changes}
    own = type("Own", (Phonebook,), body)
    with pytest.raises(ValueError, match=re.escape(message)):
        register_task(own)
    assert before == TASKS


@every_task
def test_setting_names_do_not_collide(cls):
    """Settings are written flat, so no dial has the name of another setting."""
    others = {*Experiment.model_fields, *Size.model_fields, *TrainingSettings.model_fields}
    assert not others & set(cls.model_fields)
    assert not set(Size.model_fields) & set(TrainingSettings.model_fields)


@every_task
def test_overrides_name_sizes_and_training(cls):
    """Overrides and the full size of a task name existing settings and have allowed values."""
    assert set(cls.overrides) <= {"n_seeds", *Size.model_fields, *TrainingSettings.model_fields}
    assert Experiment(task=cls.name).settings().items() >= cls.overrides.items()
    assert full_size(cls.name).settings().items() >= cls.full_size.items()
    assert (full_size(cls.name) == Experiment(task=cls.name)) == (not cls.full_size)


@every_task
def test_every_dial_says_what_it_is(cls):
    """Every dial has a label and a help text, a number has bounds, and defaults are allowed."""
    for name, info in cls.model_fields.items():
        assert info.title
        assert info.description.endswith(".")
        if info.annotation in (int, float):
            assert {"ge", "le"} <= limits(info).keys()
        else:
            assert info.annotation is bool or get_args(info.annotation)
        assert getattr(cls(**{name: info.default}), name) == info.default


@every_task
def test_a_task_is_frozen(cls):
    """A dial of a task cannot be changed."""
    name, info = next(iter(cls.model_fields.items()))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(cls(), name, info.default)


@every_task
def test_title_question_and_source_are_shown_as_they_are(cls):
    """A title is a phrase, a question is a sentence, and a source has no full stop."""
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
    """Positions, classes, chance and losses of a task do not contradict each other."""
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


@every_task
@a_few
@given(st.data())
def test_dials_are_kept_as_plain_values(cls, data):
    """A task made again from its dials equals the first."""
    task = data.draw(configured(cls))
    again = cls(**task.model_dump())
    assert again == task
    assert hash(again) == hash(task)
    assert all(isinstance(value, (bool, int, float, str)) for value in task.model_dump().values())


@every_task
@a_few
@given(st.data())
def test_an_earlier_task_shares_the_embedding(cls, data):
    """An earlier task has the same tokens and positions, and has no earlier task itself."""
    task = data.draw(configured(cls))
    if task.earlier is not None:
        shared = ("d_vocab", "n_ctx", "n_fields", "n_source")
        assert all(getattr(task, name) == getattr(task.earlier, name) for name in shared)
        assert task.earlier.earlier is None


@every_task
def test_a_fixed_embedding_is_one_row_for_each_of_some_ids(cls):
    """A fixed embedding has one finite row per id, the same for generators of one seed."""
    task = cls()
    fixed, again = (task.fixed_embedding(32, seeded(3)) for _ in range(2))
    if fixed is not None:
        ids, rows = fixed
        assert rows.shape == (len(ids), 32)
        assert rows.isfinite().all()
        assert len(set(ids.tolist())) == len(ids)
        assert 0 <= ids.min() <= ids.max() < task.d_vocab
        assert torch.equal(rows, again[1])
        assert torch.equal(ids, again[0])


def test_names_are_distinct_and_suffice():
    """There are 64 different short names, as many as the largest book needs."""
    assert len(set(NAMES)) == len(NAMES) == 64
    assert all(2 <= len(name) <= 4 and name.isalpha() and name[0].isupper() for name in NAMES)
