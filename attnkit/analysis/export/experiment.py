"""An experiment as code: a program of a few lines, and one line for a terminal.

Both say only what differs from the task's defaults.
"""

from __future__ import annotations

import shlex
from typing import Any

from attnkit.analysis.export.source import WIDTH
from attnkit.experiment.experiment import Experiment, default_settings


def experiment_code(experiment: Experiment) -> str:
    """A program that trains it and prints its table."""
    arguments = [f"{name}={_literal(value)}" for name, value in _told(experiment).items()]
    line = f"experiment = ak.Experiment({', '.join(arguments)})"
    if len(line) > WIDTH:
        listed = "".join(f"    {argument},\n" for argument in arguments)
        line = f"experiment = ak.Experiment(\n{listed})"
    return f"import attnkit as ak\n\n{line}\nresult = ak.train(experiment)\nprint(result.table)\n"


def command_line(experiment: Experiment) -> str:
    """The command that trains it and prints its table."""
    told = {name: _typed(value) for name, value in _told(experiment).items()}
    words = ["python", "-m", "attnkit", "train"]
    for name, flag in _FLAGS.items():
        if name in told:
            words += [flag, told.pop(name)]
    for name, value in told.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)


_FLAGS = {
    "task": "--task",
    "sharing": "--sharing",
    "n_seeds": "--seeds",
    "first_seed": "--first-seed",
    "steps": "--steps",
}
"""Settings that have an option of their own in the command line."""


def _told(experiment: Experiment) -> dict[str, Any]:
    """The task, and all settings that are not its defaults."""
    defaults = default_settings(experiment.task.name)
    return {
        name: value
        for name, value in experiment.settings().items()
        if name == "task" or value != defaults[name]
    }


def _literal(value: Any) -> str:
    """A value as `ruff format` leaves it."""
    if isinstance(value, list):
        line = f"[{', '.join(map(_literal, value))}]"
        if len(line) + 20 <= WIDTH:
            return line
        return "[\n" + "".join(f"        {_literal(item)},\n" for item in value) + "    ]"
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and '"' not in text else text


def _typed(value: Any) -> str:
    """A value as it is typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, list) else str(value)
