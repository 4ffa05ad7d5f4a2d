"""Hypothesis strategies that draw tasks with any dials, and their examples."""

import math
from typing import get_args

import pytest
import torch
from hypothesis import strategies as st
from pydantic import ValidationError

from attnkit.tasks import TASKS

every_task = pytest.mark.parametrize("cls", TASKS.values(), ids=TASKS)


def seeded(seed=0):
    """Return a generator with its own seed."""
    return torch.Generator().manual_seed(seed)


def limits(info):
    """Return a dial's bounds and step, by name."""
    return {
        key: getattr(meta, key)
        for meta in info.metadata
        for key in ("ge", "le", "multiple_of")
        if hasattr(meta, key)
    }


def smallest_value(info):
    """Return a dial's first choice or lowest value."""
    choices, known = get_args(info.annotation), limits(info)
    if choices or info.annotation is bool:
        return choices[0] if choices else False
    step = known.get("multiple_of", 1)
    return known["ge"] if info.annotation is float else math.ceil(known["ge"] / step) * step


def values_of(info):
    """Return a strategy for all values that a dial allows."""
    choices, known = get_args(info.annotation), limits(info)
    if choices or info.annotation is bool:
        return st.sampled_from(choices or (False, True))
    if info.annotation is float:
        return st.floats(known["ge"], known["le"])
    step = known.get("multiple_of", 1)
    return st.integers(math.ceil(known["ge"] / step), known["le"] // step).map(lambda n: n * step)


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
    task = cls()
    for name in draw(st.permutations(list(cls.model_fields))):
        task = changed(task, name, draw(values_of(cls.model_fields[name])))
    return task


def smallest_task(cls):
    """Return the task with every dial as low as it can be."""
    task = cls()
    for name, info in cls.model_fields.items():
        task = changed(task, name, smallest_value(info))
    return task


def parts(examples):
    """Return the tensors of a batch."""
    own = [examples.tokens, examples.labels, examples.target, examples.reverse]
    return [part for part in own if part is not None]
