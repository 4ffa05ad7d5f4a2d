"""Export of an experiment as a short Python program, and as a command line.

Both contain only settings that differ from the defaults of the task.
"""

from __future__ import annotations

import shlex
from typing import Any

from attnkit.analysis.export.source import WIDTH
from attnkit.experiment.experiment import Experiment, default_settings, text_of


def experiment_code(experiment: Experiment) -> str:
    """Return a Python program that trains an experiment and prints its table of results."""
    arguments = [f"{name}={_literal(value)}" for name, value in _settings(experiment).items()]
    line = f"experiment = ak.Experiment({', '.join(arguments)})"
    if len(line) > WIDTH:
        lines = "".join(f"    {argument},\n" for argument in arguments)
        line = f"experiment = ak.Experiment(\n{lines})"
    columns = '["sharing", "seed", "accuracy", "asymmetry"]'  # all columns would not fit a line
    shown = f"print(result.table[{columns}].to_string(index=False))"
    return f"import attnkit as ak\n\n{line}\nresult = ak.train(experiment)\n{shown}\n"


def command_line(experiment: Experiment) -> str:
    """Return the command that trains an experiment and prints its table of results."""
    values = {name: text_of(value) for name, value in _settings(experiment).items()}
    words = ["python", "-m", "attnkit", "train"]
    for name, option in _OPTIONS.items():
        if name in values:
            words += [option, values.pop(name)]
    for name, value in values.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)


_OPTIONS = {
    "task": "--task",
    "sharing": "--sharing",
    "n_seeds": "--seeds",
    "first_seed": "--first-seed",
    "steps": "--steps",
}
"""Setting → its option on the command line; other settings are passed with `--set`."""


def _settings(experiment: Experiment) -> dict[str, Any]:
    """Return the task, and all settings that differ from its defaults."""
    defaults = default_settings(experiment.task.name)
    return {
        name: value
        for name, value in experiment.settings().items()
        if name == "task" or value != defaults[name]
    }


def _literal(value: Any) -> str:
    """Return a value as Python code in the style of `ruff format`."""
    if isinstance(value, list):
        line = f"[{', '.join(map(_literal, value))}]"
        if len(line) + 20 <= WIDTH:
            return line
        return "[\n" + "".join(f"        {_literal(item)},\n" for item in value) + "    ]"
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and '"' not in text else text
