"""The form of a small sweep: task, two settings with their values, variants and seeds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from attnkit.experiment.experiment import Experiment, settings
from attnkit.foundation.settings import InvalidExperiment, Setting, Value, shown
from attnkit.service.server import server_settings
from attnkit.sweeps import Sweep
from attnkit.sweeps.values import NOT_AN_AXIS, InvalidSweep
from attnkit.tasks import TASKS
from attnkit.ui.capacity_choice import text_of
from attnkit.ui.controls import labels_of
from attnkit.ui.live_sweep import parts_of
from attnkit.ui.service import training_service
from attnkit.ui.session import spoken
from attnkit.variants import Variant
from attnkit.variants.sharing import Sharing

MOST_POINTS = 100
"""Largest number of points of a sweep that runs live."""

MOST_VARIANTS = 10
"""Largest number of variants of a sweep that runs live."""

_ALL = tuple(Variant(sharing.value) for sharing in Sharing)


@dataclass
class SweepForm:
    """Form of a sweep as a visitor has filled it in.

    Attributes:
        task: Name of the task.
        first: Name of the setting of the first axis.
        first_values: Its values, as typed.
        second: Name of the setting of the second axis; empty for none.
        second_values: Its values, as typed.
        sharing: The variants.
        n_seeds: Number of seeds.
        steps: Steps of every run, unless they are an axis.
    """

    task: str = "phonebook"
    first: str = "d_head"
    first_values: str = ""
    second: str = ""
    second_values: str = ""
    sharing: list[Variant] = field(default_factory=lambda: list(_ALL))
    n_seeds: int = 3
    steps: int = 0

    def __post_init__(self) -> None:
        values = self.first_values
        self.set_task(self.task)
        self.first_values = values or self.first_values

    def set_task(self, task: str) -> None:
        """Choose a task, keep the settings that it has, too, and suggest their values for it."""
        self.task, present = task, axes_of(task)
        self.steps = present["steps"].default
        own = [name for name in TASKS[task].model_fields if name in present]
        first_own = next((name for name in own if present[name].kind is int), "")
        self.set_axis("first", self.first if self.first in present else "d_head")
        self.set_axis("second", self.second if self.second in present else first_own)

    def set_axis(self, side: str, name: str) -> None:
        """Choose the setting of an axis, "first" or "second", and suggest values."""
        setattr(self, side, name)
        setattr(self, f"{side}_values", suggested(name, self.task) if name else "")

    def sweep(self) -> Sweep:
        """Return the sweep.

        Raises:
            InvalidSweep: If something is not allowed.
        """
        axes: dict[str, list[Value]] = {}
        for name, text in ((self.first, self.first_values), (self.second, self.second_values)):
            if name in axes:
                raise InvalidSweep(f"axes.{name}: is chosen twice, allowed two different settings")
            if name:
                axes[name] = read_values(text, settings(self.task)[name])
        if not self.sharing:
            raise InvalidSweep(f"sharing: is empty, allowed 1 to {MOST_VARIANTS} variants")
        base: dict[str, Value] = {"task": self.task}
        if self.steps != settings(self.task)["steps"].default and "steps" not in axes:
            base["steps"] = self.steps
        sweep = Sweep(base=base, axes=axes, sharing=self.sharing, n_seeds=self.n_seeds)
        if sweep.n_points > MOST_POINTS:
            raise InvalidSweep(
                f"axes: got {sweep.n_points:,} combinations of values, allowed at most "
                f"{MOST_POINTS} here; larger sweeps run from the command line"
            )
        return sweep


def axes_of(task: str) -> dict[str, Setting]:
    """Return the settings of a task that an axis may have, by name."""
    return {
        name: setting
        for name, setting in settings(task).items()
        if name not in (*NOT_AN_AXIS, "task") and (setting.kind is not str or setting.choices)
    }


def suggested(name: str, task: str) -> str:
    """Return values of a setting as a text: all choices, or some around the default of a task.

    Values that do not go with the other defaults of the task are left out.
    """
    setting = settings(task)[name]
    values: list[Value]
    if setting.kind is bool:
        values = [False, True]
    elif setting.choices:
        values = list(setting.choices)
    else:
        default, step = setting.default, setting.multiple_of or 1
        values = [default * factor for factor in (0.25, 0.5, 1, 2)] if default else [0, 1, 2]
        if setting.kind is int:
            values = [step * round(value / step) for value in map(float, values)]
    fitting = [value for value in dict.fromkeys(values) if _fits(task, name, value)]
    return ", ".join(map(text_of, fitting))


def _fits(task: str, name: str, value: Value) -> bool:
    try:
        Experiment(task=task, **{name: value})
    except InvalidExperiment:
        return False
    return True


def read_values(text: str, setting: Setting) -> list[Value]:
    """Read values of a setting: a list as "2, 4, 8", or "2 … 64", in which each value doubles.

    Raises:
        InvalidSweep: If a value is no value of the setting.
    """
    ends = [end.strip() for end in re.split(r"…|\.\.+", text)]
    if len(ends) == 2 and setting.kind in (int, float) and not setting.choices:
        first, last = (_number(end, setting) for end in ends)
        if not 0 < first <= last:
            raise _wrong(setting, text, "two numbers above 0, the smaller one first")
        values = [first]
        while 2 * values[-1] <= last and len(values) <= MOST_POINTS:
            values.append(2 * values[-1])
        return [*values, *([last] if values[-1] < last else [])]
    texts = [part for part in re.split(r"[,;\s]+", text) if part]
    if not texts:
        raise _wrong(setting, text, f"values with commas between them, each {setting.allowed}")
    return list(dict.fromkeys(_value(part, setting) for part in texts))


def _value(text: str, setting: Setting) -> Value:
    if setting.kind is bool:
        words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        if text.lower() not in words:
            raise _wrong(setting, text, setting.allowed)
        return words[text.lower()]
    if setting.kind is str:
        if text not in setting.choices:
            raise _wrong(setting, text, setting.allowed)
        return text
    return _number(text, setting)


def _number(text: str, setting: Setting) -> int | float:
    try:
        value = float(text)
    except ValueError:
        raise _wrong(setting, text, setting.allowed) from None
    return int(value) if setting.kind is int and value.is_integer() else value


def _wrong(setting: Setting, text: str, allowed: str) -> InvalidSweep:
    return InvalidSweep(f"axes.{setting.name}: got {shown(text, quoted=True)}, allowed {allowed}")


def on_screen(error: InvalidSweep, task: str) -> str:
    """Return the message of an error in the words of the page."""
    labels = labels_of(task) | {"axes": "Settings", "base": "Task"}
    sentences = []
    for problem in str(error).split("; "):
        key, colon, rest = problem.partition(": ")
        name = key.rpartition(".")[2]
        rest = re.sub(r"\w+_\w+", lambda match: f"“{labels.get(match[0], match[0])}”", rest)
        sentences.append(f"{labels.get(name, name)}{colon}{rest}")
    text = ". ".join(sentences)
    return f"{text[:1].upper()}{text[1:]}."


@lru_cache(maxsize=64)
def problems_here(sweep: Sweep) -> list[str]:
    """Return why this copy does not train a sweep, in sentences; empty if it does."""
    labels, limits = labels_of(str(sweep.base["task"])), server_settings()
    found = (limits.problems(part.experiment) for part in parts_of(sweep)[0])
    return list(dict.fromkeys(problem.on_screen(labels) for some in found for problem in some))


def estimate_in_words(sweep: Sweep) -> str:
    """Return what will be trained, and about how long that takes if nothing else trains."""
    parts, _ = parts_of(sweep)
    n_runs = sum(part.experiment.n_runs for part in parts)
    seconds = sum(training_service().estimate(part.experiment) for part in parts)
    text = f"{n_runs:,} models at {sweep.n_points} points"
    impossible = sweep.n_runs - n_runs
    if impossible:
        text += f"; {impossible:,} more are impossible with these sizes"
    return f"{text}. That takes about {spoken(seconds)} if nothing else trains here."
