"""The frozen, validated Sweep: a base experiment, axes, variants, seeds and learning rates.

A sweep is written in TOML::

    sharing = ["QKV", "K=V"]    # default: the five sharings
    n_seeds = 5

    [base]                      # settings of an experiment; those left out take its task's defaults
    task = "phonebook"
    steps = 600

    [axes]                      # every combination of these values is a point of the sweep
    d_head = {from = 2, to = 32, count = 5, scale = "log"}
    n_entries = [4, 8, 16]

    [rates]                     # default: the learning rate of the base, for every variant
    multiples = [0.5, 1, 2]     # of that learning rate; the best one is chosen for each cell
    tuning_seeds = 2

    [budget]                    # default: none
    core_hours = 2
    price_per_core_hour = 0.04

The field metadata of `Sweep` is the only place with the labels, bounds and help texts. This module
does not import torch, because pages build sweeps.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from attnkit.experiment.experiment import DEFAULT_TASK, Experiment, default_settings, settings
from attnkit.foundation.documents import MOST_TOML_BYTES, BadDocument, parse_toml, read_file
from attnkit.foundation.settings import (
    InvalidExperiment,
    Problem,
    Setting,
    Value,
    allowed_names,
    dial,
    setting_of,
    shown,
)
from attnkit.foundation.words import counted
from attnkit.tasks import TASKS, is_task, task_named
from attnkit.variants import InvalidVariant, Sharing, Variant, read_variants

NOT_AN_AXIS = ("sharing", "n_seeds", "first_seed", "equal", "longer_test")
"""Settings of an experiment that neither the base nor an axis of a sweep has."""

MOST_VALUES = 1000
"""Largest number of values of an axis."""

MOST_CELLS = 10_000_000
"""Largest number of cells of a sweep."""

_FROZEN = ConfigDict(
    frozen=True, extra="forbid", populate_by_name=True, arbitrary_types_allowed=True
)


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

    model_config = _FROZEN

    start: float = dial(..., "From", "First value.", alias="from", ge=-1e9, le=1e9)
    to: float = dial(..., "To", "Last value.", ge=-1e9, le=1e9)
    count: int = dial(..., "Values", "Number of values.", ge=2, le=MOST_VALUES)
    scale: Literal["linear", "log"] = dial("linear", "Scale", "Equal differences or equal ratios.")

    def values(self, *, multiple_of: int | None) -> list[int | float]:
        """Return the values in their order, as multiples of `multiple_of` or with six digits.

        Raises:
            ValueError: If a logarithmic range does not lie above zero.
        """
        if self.scale == "log" and min(self.start, self.to) <= 0:
            raise ValueError("numbers above 0 for a logarithmic range")
        spaced = np.geomspace if self.scale == "log" else np.linspace
        exact = spaced(self.start, self.to, self.count).tolist()
        if multiple_of:
            return [multiple_of * round(value / multiple_of) for value in exact]
        return [float(f"{value:.6g}") for value in exact]


class RateRule(BaseModel):
    """Rule for the learning rate of a cell.

    By default every variant has the learning rate of the base. With several multiples each cell
    is trained at each of them on tuning seeds, and the one with the highest `worth` is chosen, see
    `attnkit.evidence.tuning`, as in claims; the runs that count then have other seeds.
    """

    model_config = _FROZEN

    multiples: Annotated[
        tuple[Annotated[float, Field(gt=0, lt=1000)], ...], Field(min_length=1, max_length=20)
    ] = (1.0,)
    tuning_seeds: int = dial(2, "Tuning seeds", "Seeds on which rates are tried.", ge=1, le=20)

    @field_validator("multiples")
    @classmethod
    def _sorted(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(set(values)))

    @property
    def tunes(self) -> bool:
        """Whether rates are tried; a single multiple is used as it is."""
        return len(self.multiples) > 1


class Budget(BaseModel):
    """Limit and price of a sweep; by default there is no limit."""

    model_config = _FROZEN

    core_hours: float = dial(
        0.0,
        "Core-hours",
        "The sweep does not start if it is estimated to need more. 0: no limit.",
        ge=0.0,
        le=1e9,
    )
    price_per_core_hour: float = dial(
        0.0, "Price per core-hour", "For the estimate of the cost. 0: unknown.", ge=0.0, le=1e6
    )


class Sweep(BaseModel):
    """Settings of a sweep: variants × seeds at every point of a grid of settings.

    Attributes:
        base: Task and settings of the experiments, by name; those left out take the defaults.
        axes: Setting → values, see `read_values`. Every combination of values is a point.
        sharing: Variants, as in an experiment.
        n_seeds: Runs per variant and point.
        first_seed: Seeds count up from here.
        rates: Rule for the learning rate of each cell.
        engine: The engine that trains all runs.
        budget: Limit and price of the computation.

    Raises:
        InvalidSweep: If something is not allowed. The message names the key.
    """

    model_config = _FROZEN

    base: dict[str, Any] = {}
    axes: dict[str, tuple[Value, ...]] = {}
    sharing: tuple[Variant, ...] = tuple(Variant(sharing.value) for sharing in Sharing)
    n_seeds: int = dial(5, "Seeds", "Runs per variant and point.", ge=1, le=40)
    first_seed: int = dial(0, "First seed", "Seeds count up from here.", ge=0, le=800_000)
    rates: RateRule = RateRule()
    engine: Literal["kernel", "torch"] = dial("kernel", "Engine", "What trains all runs.")
    budget: Budget = Budget()

    def __init__(self, /, **values: Any) -> None:
        base, axes = values.get("base", {}), values.get("axes", {})
        for key in ("base", "axes", "rates", "budget"):
            model = {"rates": RateRule, "budget": Budget}.get(key, dict)
            if not isinstance(table := values.get(key, {}), Mapping | model):
                raise InvalidSweep(Problem(key, table, "a table of settings"))
        task = base.get("task", DEFAULT_TASK)
        if not is_task(task):
            raise InvalidSweep(Problem("base.task", task, allowed_names(TASKS, shown(task))))
        values["base"] = {"task": task} | {
            name: _read_value(f"base.{name}", value, _known_setting("base", name, task))
            for name, value in base.items()
            if name != "task"
        }
        values["axes"] = {name: read_values(name, axes[name], task) for name in axes}
        try:
            if "sharing" in values:
                values["sharing"] = read_variants(values["sharing"])
            super().__init__(**values)
        except InvalidVariant as error:
            raise InvalidSweep(Problem("sharing", error.text, f"but {error}")) from None
        except ValidationError as error:
            problems = [_problem_of(one, type(self)) for one in error.errors()[:10]]
            by_field = {getattr(problem, "field", problem): problem for problem in problems}
            raise InvalidSweep(*by_field.values()) from None
        self._check_experiments()

    def _check_experiments(self) -> None:
        """Check every value of every axis while the others have their first value.

        Every value must be possible with some variant, and every variant at some of these points.
        Other combinations may be impossible; their cells then hold the reason.
        """
        if self.n_cells > MOST_CELLS:
            allowed = f"axes with at most {MOST_CELLS:,} cells together"
            raise InvalidSweep(Problem("axes", f"{self.n_cells:,} cells", allowed))
        if self.rates.multiples != (1.0,) and "learning_rate" in self.axes:
            allowed = "[1], because learning_rate is an axis"
            raise InvalidSweep(Problem("rates.multiples", list(self.rates.multiples), allowed))
        for variant in self.sharing:
            if "learning_rate" in variant.given:
                allowed = "a variant without a learning rate; rates or an axis may vary it"
                raise InvalidSweep(Problem("sharing", str(variant), allowed))
        first = self.point(0)
        points = [first]
        points += [{**first, name: v} for name, values in self.axes.items() for v in values[1:]]
        errors = [self.experiments_at(point)[1] for point in points]
        for at_point in errors:
            if len(at_point) == len(self.sharing):
                raise InvalidSweep(*self._with_keys(at_point[self.sharing[0]]))
        for variant in self.sharing:
            if all(variant in at_point for at_point in errors):
                raise InvalidSweep(*self._with_keys(errors[0][variant]))

    def experiments_at(
        self, point: Mapping[str, Value], variants: Sequence[Variant] = ()
    ) -> tuple[list[Experiment], dict[Variant, InvalidExperiment]]:
        """Return the experiments that train variants at a point, and why others are impossible.

        It is one experiment, or one for each variant if they are too large side by side. By default
        the variants are all of the sweep.
        """
        alone, errors = dict[Variant, Experiment](), dict[Variant, InvalidExperiment]()
        variants = variants or self.sharing
        with contextlib.suppress(InvalidExperiment):
            return [self.experiment(point, variants)], errors
        for variant in variants:
            try:
                alone[variant] = self.experiment(point, [variant])
            except InvalidExperiment as error:
                errors[variant] = error
        with contextlib.suppress(InvalidExperiment):
            return [self.experiment(point, list(alone))] if alone else [], errors
        return list(alone.values()), errors

    def _with_keys(self, error: InvalidExperiment) -> list[Problem]:
        """Return the problems of an experiment with the keys of the specification."""
        keys = {name: f"axes.{name}" for name in self.axes}
        keys |= {name: name for name in NOT_AN_AXIS[:3]}
        return [
            replace(problem, field=keys.get(problem.field, f"base.{problem.field}"))
            for problem in error.problems
        ]

    def __hash__(self) -> int:
        return self.hash

    @cached_property
    def hash(self) -> int:
        """Hash of the settings; caches ask for it often."""
        return hash(self.to_json())

    @property
    def n_points(self) -> int:
        """Number of combinations of the axes' values."""
        return math.prod(len(values) for values in self.axes.values())

    @property
    def n_cells(self) -> int:
        """Number of cells: points × variants."""
        return self.n_points * len(self.sharing)

    @property
    def n_runs(self) -> int:
        """Number of runs that count: cells × seeds; runs on tuning seeds come in addition."""
        return self.n_cells * self.n_seeds

    @property
    def n_tuning_runs(self) -> int:
        """Number of runs on tuning seeds for each cell."""
        return self.rates.tuning_seeds * len(self.rates.multiples) * self.rates.tunes

    @property
    def seeds(self) -> range:
        """Seeds of the runs of each cell."""
        return range(self.first_seed, self.first_seed + self.n_seeds)

    @property
    def task(self) -> str:
        """Name of the task of all cells; empty if they have several."""
        return "" if "task" in self.axes else str(self.settings_at(self.point(0))["task"])

    @property
    def conditions(self) -> str:
        """Conditions that all cells have in common: task, steps, seeds, learning rate."""
        common = self.settings_at(self.point(0))
        own_steps = "task" in self.axes and "steps" not in self.base
        parts = {
            "task": task_named(common["task"]).title,
            "steps": "" if own_steps else f"{common['steps']:,} steps",
            "n_seeds": f"{counted(self.n_seeds, 'seed')} for each cell",
            "learning_rate": "the best of "
            f"{len(self.rates.multiples)} learning rates for each cell, chosen on other seeds"
            if self.rates.tunes
            else "the same learning rate for all",
        }
        return ", ".join(text for name, text in parts.items() if text and name not in self.axes)

    def cell_hashes(self) -> np.ndarray:
        """Return the content hashes of all cells, (n_points, n_variants) texts of 16 digits."""
        hashes = np.empty((self.n_points, len(self.sharing)), "S16")
        for index, point in enumerate(self.points()):
            hashes[index] = self.hashes_at(point, self.sharing)
        return hashes

    def hashes_at(self, point: Mapping[str, Value], variants: Iterable[str]) -> list[str]:
        """Return the content hashes of cells: of all that decides their numbers, but the seeds."""
        rule = [self.engine, self.rates.multiples, self.rates.tuning_seeds * self.rates.tunes]
        text = json.dumps([self.settings_at(point), rule], sort_keys=True)
        texts = [f"{text}{variant}".encode() for variant in variants]
        return [hashlib.blake2b(one, digest_size=8).hexdigest() for one in texts]

    def point(self, index: int) -> dict[str, Value]:
        """Return the values of the axes at a point; the last axis varies fastest."""
        values = {}
        for name, choices in reversed(self.axes.items()):
            index, position = divmod(index, len(choices))
            values[name] = choices[position]
        return {name: values[name] for name in self.axes}

    def points(self) -> Iterator[dict[str, Value]]:
        """Yield the values of the axes at every point, in order."""
        return map(self.point, range(self.n_points))

    def settings_at(self, point: Mapping[str, Value]) -> dict[str, Any]:
        """Return all settings of the experiments at a point, without variants and seeds."""
        task = str(point.get("task", self.base["task"]))
        every = {**default_settings(task), **self.base, **point}
        return {name: value for name, value in every.items() if name not in NOT_AN_AXIS}

    def experiment(self, point: Mapping[str, Value], sharing: Sequence[Variant]) -> Experiment:
        """Return the experiment of some variants at a point, at the learning rate of the point.

        Raises:
            InvalidExperiment: If the values do not go together.
        """
        return Experiment(
            **self.settings_at(point),
            sharing=list(sharing),
            n_seeds=self.n_seeds,
            first_seed=self.first_seed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as plain values: `Sweep(**sweep.to_dict()) == sweep`."""
        return {
            "base": self.base,
            "axes": {name: list(values) for name, values in self.axes.items()},
            "sharing": [variant.value for variant in self.sharing],
            "n_seeds": self.n_seeds,
            "first_seed": self.first_seed,
            "rates": {**self.rates.model_dump(), "multiples": list(self.rates.multiples)},
            "engine": self.engine,
            "budget": self.budget.model_dump(),
        }

    def to_json(self) -> str:
        """Return the sweep as a JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_toml(self) -> str:
        """Return the sweep as a TOML text that `from_toml` reads."""
        tables = self.to_dict()
        toml = partial(json.dumps, ensure_ascii=False)  # texts, numbers and lists are as in JSON
        lines = [f"{key} = {toml(v)}" for key, v in tables.items() if not isinstance(v, dict)]
        for key, table in tables.items():
            if isinstance(table, dict) and table:
                lines += ["", f"[{key}]", *(f"{name} = {toml(v)}" for name, v in table.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str | bytes) -> Self:
        """Read a sweep from a TOML text.

        Raises:
            InvalidSweep: If the text is not TOML, or a value is not allowed.
        """
        try:
            values = parse_toml(text)
        except BadDocument as error:
            raise InvalidSweep(f"specification: {error}") from None
        return cls(**values)


def read_sweep(file: str | Path) -> Sweep:
    """Read a sweep from a TOML file.

    Raises:
        OSError: If the file cannot be read.
        InvalidSweep: If its content is not allowed.
    """
    try:
        return Sweep.from_toml(read_file(file, MOST_TOML_BYTES))
    except BadDocument as error:
        raise InvalidSweep(f"specification: {error}") from None


def read_values(name: str, given: Any, task: str) -> tuple[Value, ...]:
    """Return the values of an axis, however they are given: in a file, in Python or on a page.

    Args:
        name: Name of the setting.
        given: A list; a range, as an `Axis` or its table; or a text: values with commas between
            them, such as "2, 4, 8", or two ends, such as "2 … 64", between which values double.
        task: Task whose settings count.

    Raises:
        InvalidSweep: If the values are not allowed.
    """
    key = f"axes.{name}"
    if name == "task":
        if isinstance(given, str):
            given = re.split(r"[,;\s]+", given.strip())
        tasks = given if isinstance(given, list | tuple) and given else [given]
        for one in tasks:
            if not isinstance(one, str) or one not in TASKS:
                raise InvalidSweep(Problem(key, one, allowed_names(TASKS, shown(one))))
        return tuple(dict.fromkeys(tasks))
    setting = _known_setting("axes", name, task)
    if isinstance(given, str):
        given = _values_of_text(key, given, setting)
    elif isinstance(given, Mapping | Axis):
        given = _values_of_range(key, given, setting)
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= MOST_VALUES:
        allowed = (
            f"a list of 1 to {MOST_VALUES} values, a range {{from, to, count, scale}}, or a text"
        )
        raise InvalidSweep(Problem(key, given, allowed))
    return tuple(dict.fromkeys(_read_value(key, value, setting) for value in given))


def _values_of_text(key: str, text: str, setting: Setting) -> list[Any]:
    ends = [end.strip() for end in re.split(r"…|\.\.+", text)]
    if len(ends) == 2 and setting.kind in (int, float) and not setting.choices:
        first, last = (float(_read_value(key, end, setting)) for end in ends)
        if not 0 < first <= last:
            allowed = "two numbers above 0, the smaller one first"
            raise InvalidSweep(Problem(key, text, allowed))
        doubled = [first * 2**k for k in range(int(math.log2(last / first)) + 1)]
        return [setting.kind(value) for value in (*doubled, last)]
    texts = [part for part in re.split(r"[,;\s]+", text) if part]
    if not texts:
        allowed = f"values with commas between them, each {setting.allowed}"
        raise InvalidSweep(Problem(key, text, allowed))
    return texts


def _values_of_range(
    key: str, given: Mapping[str, Any] | Axis, setting: Setting
) -> list[int | float]:
    if setting.kind not in (int, float):
        raise InvalidSweep(Problem(key, "a range", f"a list, each value {setting.allowed}"))
    multiple_of = (setting.multiple_of or 1) if setting.kind is int else None
    try:
        axis = given if isinstance(given, Axis) else Axis(**given)
        return axis.values(multiple_of=multiple_of)
    except ValidationError as error:
        problems = [_problem_of(details, Axis, key) for details in error.errors()]
        raise InvalidSweep(*problems) from None
    except ValueError as error:
        raise InvalidSweep(Problem(key, "a range", str(error))) from None


def _known_setting(key: str, name: str, task: str) -> Setting:
    """Return a setting that the table `key` of a sweep may set."""
    known = {n: s for n, s in settings(task).items() if n not in NOT_AN_AXIS}
    if name not in known:
        beside = name in NOT_AN_AXIS[:3]
        allowed = f"{name} outside of this table" if beside else allowed_names(known, name)
        raise InvalidSweep(f"{key}.{name}: is not a setting here, allowed {allowed}")
    return known[name]


def _read_value(key: str, value: Any, setting: Setting) -> Value:
    try:
        return setting.read(value)
    except ValueError:
        raise InvalidSweep(Problem(key, value, setting.allowed)) from None


def _problem_of(details: ErrorDetails, model: type[BaseModel], before: str = "") -> Problem | str:
    """Return an error of pydantic as a problem with the key of the specification."""
    path = [str(part) for part in details["loc"]]
    key = ".".join([before, *path] if before else path)
    if path[0] in ("rates", "budget") and len(path) > 1:
        model, path = {"rates": RateRule, "budget": Budget}[path[0]], path[1:]
    fields = {info.alias or field: info for field, info in model.model_fields.items()}
    name = path[0]
    if details["type"] == "extra_forbidden" or name not in {*fields, *model.model_fields}:
        return f"{key}: is not a key of a sweep, allowed {allowed_names(fields, name)}"
    field = fields.get(name) or model.model_fields[name]
    allowed = "1 to 20 numbers above 0 and below 1000"  # of `multiples`, which have no title
    if name == "multiples":
        key = key.partition(".multiples")[0] + ".multiples"
    elif field.title is not None:
        allowed = setting_of(name, field, field.default).allowed
    if details["type"] == "missing":
        return f"{key}: is missing, allowed {allowed}"
    return Problem(key, details["input"], allowed)
