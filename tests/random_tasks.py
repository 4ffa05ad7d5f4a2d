"""Hypothesis strategies that draw tasks with any dials, and their examples."""

import pytest
import torch
from hypothesis import strategies as st
from pydantic import ValidationError

from attnkit.experiment.experiment import settings
from attnkit.tasks import TASKS

every_task = pytest.mark.parametrize("cls", TASKS.values(), ids=TASKS)


def seeded(seed=0):
    """Return a generator with its own seed."""
    return torch.Generator().manual_seed(seed)


def dials_of(cls):
    """Return the settings of a task that are its own, by name."""
    known = settings(cls.name.removeprefix("before_"))
    return {name: known[name] for name in cls.model_fields}


def values_of(dial):
    """Return a strategy for all values that a dial allows."""
    if dial.kind is bool or dial.choices:
        return st.sampled_from(dial.choices or (False, True))
    if dial.kind is float:
        return st.floats(dial.low, dial.high)
    step = dial.multiple_of or 1
    return st.integers(0, int(dial.high - dial.low) // step).map(lambda n: dial.low + n * step)


def changed(task, name, value):
    """Return the task with one other dial, or unchanged if the value disagrees with others."""
    try:
        return type(task)(**{**task.model_dump(), name: value})
    except ValidationError as error:
        if {finding["type"] for finding in error.errors()} != {"disagreement"}:
            raise
        return task


@st.composite
def configured(draw, cls):
    """Draw a task with any dials, which are changed one after another in any order."""
    task, dials = cls(), dials_of(cls)
    for name in draw(st.permutations(list(dials))):
        task = changed(task, name, draw(values_of(dials[name])))
    return task


def smallest_task(cls):
    """Return the task with every dial as low as it can be."""
    task = cls()
    for name, dial in dials_of(cls).items():
        lowest = dial.choices[0] if dial.choices else dial.low or dial.kind(0)
        task = changed(task, name, lowest)
    return task


def parts(examples):
    """Return the tensors of a batch."""
    own = [examples.tokens, examples.labels, examples.target, examples.reverse]
    return [part for part in own if part is not None]
