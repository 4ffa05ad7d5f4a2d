"""Values of a sweep's specification: single values, ranges, and errors that name their key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from attnkit.experiment.experiment import DEFAULT_TASK, settings
from attnkit.foundation.settings import (
    Problem,
    Setting,
    Value,
    allowed_names,
    dial,
    setting_of,
    shown,
)
from attnkit.tasks import TASKS, is_task

NOT_AN_AXIS = ("sharing", "n_seeds", "first_seed", "equal", "longer_test")
"""Settings of an experiment that neither the base nor an axis of a sweep has."""

MOST_VALUES = 1000
"""Largest number of values of an axis."""


class InvalidSweep(ValueError):
    """Error for a sweep that cannot be used; its message names the key and what is allowed.

    Attributes:
        problems: Every wrong value, or a message.
    """

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


class Axis(BaseModel):
    """A range of values of one setting.

    Attributes:
        scale: "linear" for equal differences, "log" for equal ratios between neighbours.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    start: float = dial(..., "From", "First value.", alias="from", ge=-1e9, le=1e9)
    to: float = dial(..., "To", "Last value.", ge=-1e9, le=1e9)
    count: int = dial(..., "Values", "Number of values.", ge=2, le=MOST_VALUES)
    scale: Literal["linear", "log"] = dial("linear", "Scale", "Equal differences or equal ratios.")

    def values(self, *, whole: bool, multiple_of: int = 1) -> tuple[int | float, ...]:
        """Return the values in their order, without repetitions.

        Args:
            whole: Whether the values are rounded to whole numbers.
            multiple_of: Number of which whole values are multiples.

        Raises:
            ValueError: If a logarithmic range does not lie above zero.
        """
        shares = [k / (self.count - 1) for k in range(self.count)]
        if self.scale == "log":
            if min(self.start, self.to) <= 0:
                raise ValueError("numbers above 0 for a logarithmic range")
            ratio = math.log(self.to / self.start)
            exact = [self.start * math.exp(ratio * share) for share in shares]
        else:
            exact = [self.start + (self.to - self.start) * share for share in shares]
        if whole:
            return tuple(dict.fromkeys(multiple_of * round(v / multiple_of) for v in exact))
        return tuple(dict.fromkeys(float(f"{value:.6g}") for value in exact))


def table_of(key: str, value: Any) -> Mapping[str, Any]:
    """Return a value that must be a table.

    Raises:
        InvalidSweep: If it is none.
    """
    if not isinstance(value, Mapping):
        raise InvalidSweep(Problem(key, value, "a table of settings"))
    return value


def read_task(values: Mapping[str, Any]) -> str:
    """Return the task of the base.

    Raises:
        InvalidSweep: If there is no such task.
    """
    task = table_of("base", values.get("base", {})).get("task", DEFAULT_TASK)
    if not is_task(task):
        raise InvalidSweep(Problem("base.task", task, allowed_names(TASKS, shown(task))))
    return task


def known_setting(key: str, name: str, task: str) -> Setting:
    """Return a setting that a sweep may set.

    Raises:
        InvalidSweep: If there is none of this name; the message suggests the nearest.
    """
    known = {n: s for n, s in settings(task).items() if n not in NOT_AN_AXIS}
    if name not in known:
        beside = name in ("sharing", "n_seeds", "first_seed")
        allowed = f"{name} outside of this table" if beside else allowed_names(known, name)
        raise InvalidSweep(f"{key}.{name}: is not a setting here, allowed {allowed}")
    return known[name]


def read_value(key: str, value: Any, setting: Setting) -> Value:
    """Return a value of a setting as its type.

    Raises:
        InvalidSweep: If the value is not allowed.
    """
    try:
        return setting.read(value)
    except ValueError:
        raise InvalidSweep(Problem(key, value, setting.allowed)) from None


def read_axis(name: str, values: Any, task: str) -> tuple[Value, ...]:
    """Return the values of an axis, given as a list or as a range.

    Raises:
        InvalidSweep: If they are not allowed.
    """
    key = f"axes.{name}"
    if name == "task":
        texts = values if isinstance(values, list | tuple) and values else [values]
        for text in texts:
            if not isinstance(text, str) or text not in TASKS:
                raise InvalidSweep(Problem(key, text, allowed_names(TASKS, shown(text))))
        return tuple(dict.fromkeys(texts))
    setting = known_setting("axes", name, task)
    if isinstance(values, Mapping | Axis):
        if setting.kind not in (int, float):
            raise InvalidSweep(Problem(key, "a range", f"a list, each value {setting.allowed}"))
        try:
            axis = values if isinstance(values, Axis) else Axis(**values)
            whole = setting.kind is int
            values = axis.values(whole=whole, multiple_of=setting.multiple_of or 1)
        except ValidationError as error:
            problems = [problem_of(details, Axis, (key,)) for details in error.errors()]
            raise InvalidSweep(*problems) from None
        except ValueError as error:
            raise InvalidSweep(Problem(key, "a range", str(error))) from None
    if not isinstance(values, list | tuple) or not 1 <= len(values) <= MOST_VALUES:
        allowed = f"a list of 1 to {MOST_VALUES} values, or a range {{from, to, count, scale}}"
        raise InvalidSweep(Problem(key, values, allowed))
    return tuple(dict.fromkeys(read_value(key, value, setting) for value in values))


def problem_of(
    details: ErrorDetails, model: type[BaseModel], before: tuple[str, ...] = ()
) -> Problem | str:
    """Return an error of pydantic as a problem with the key of the specification.

    Args:
        details: The error.
        model: The model that raised it.
        before: Keys under which the model stands in the specification.
    """
    error = details.get("ctx", {}).get("error")
    if isinstance(error, InvalidSweep):
        return error.problems[0]
    path = [*before, *map(str, details["loc"])]
    for name in path[len(before) : -1]:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    key, name = ".".join(path), path[-1]
    fields = {info.alias or field: info for field, info in model.model_fields.items()}
    if details["type"] == "extra_forbidden":
        return f"{key}: is not a key of a sweep, allowed {allowed_names(fields, name)}"
    allowed = _ALLOWED.get(details["type"], details["msg"])
    if name in fields and fields[name].title is not None:
        allowed = setting_of(name, fields[name], fields[name].default).allowed
    if details["type"] == "missing":
        return f"{key}: is missing, allowed {allowed}"
    return Problem(key, details["input"], allowed)


_ALLOWED = {
    "float_parsing": "a number",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
"""What fields without bounds allow, by pydantic's type of the error."""
