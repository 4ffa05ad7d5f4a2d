"""Export of a result as files, and of an experiment as a short program or a command line.

The program and the command contain only settings that differ from the defaults of the task. Data
of one's own are a file beside them.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from attnkit.analysis.module_code import WIDTH, linear_weights, module_code
from attnkit.experiment.experiment import Experiment, default_settings, text_of
from attnkit.tasks import OwnData, Text
from attnkit.tasks.own_files import ROLES
from attnkit.variants import Variant
from attnkit.variants.module import OWN_MODULES

if TYPE_CHECKING:
    from attnkit.training.results import Result

__all__ = [
    "command_line",
    "experiment_code",
    "export_files",
    "folder_of",
    "module_code",
    "module_weights",
]


def experiment_code(experiment: Experiment) -> str:
    """Return a Python program that trains an experiment and prints its table of results."""
    values, task = _settings(experiment), experiment.task
    arguments = []
    if isinstance(task, OwnData):
        names = ("task", *type(task).model_fields)
        own = {name: values.pop(name) for name in names if name in values}
        kind = "Text" if isinstance(task, Text) else "Table"
        dials = [f"{n}={_literal(v)}" for n, v in own.items() if n not in ("task", "data")]
        given = [f'"{data_file(task)}"', *dials]
        arguments = [f"task=ak.{kind}.read({', '.join(given)})"]
    arguments += [f"{name}={_literal(value)}" for name, value in values.items()]
    line = f"experiment = ak.Experiment({', '.join(arguments)})"
    if len(line) > WIDTH:
        lines = "".join(f"    {argument},\n" for argument in arguments)
        line = f"experiment = ak.Experiment(\n{lines})"
    columns = '["sharing", "seed", "accuracy", "asymmetry"]'  # all columns would not fit a line
    shown = f"print(result.table[{columns}].to_string(index=False))"
    return f"import attnkit as ak\n\n{line}\nresult = ak.train(experiment)\n{shown}\n"


def data_file(task: OwnData) -> str:
    """Return the name of the file with data of one's own, beside an exported program."""
    return "data.txt" if isinstance(task, Text) else "data.tsv"


def _data_content(task: OwnData) -> str:
    if isinstance(task, Text):
        return task.data
    rows = [line.split("\t") for line in task.data.split("\n")]
    heading = ROLES[len(rows[0])]
    content = io.StringIO()
    csv.writer(content, delimiter="\t", lineterminator="\n").writerows([heading, *rows])
    return content.getvalue()


def command_line(experiment: Experiment) -> str:
    """Return the command that trains an experiment and prints its table of results."""
    values = {name: text_of(value) for name, value in _settings(experiment).items()}
    words = ["python", "-m", "attnkit", "train"]
    if isinstance(experiment.task, OwnData):
        del values["task"], values["data"]
        words += ["--data", data_file(experiment.task)]
    files = {variant: file for variant in experiment.sharing if (file := own_file(variant))}
    if files:
        values["sharing"] = text_of([v.value for v in experiment.sharing if v not in files])
        words += [word for file in files.values() for word in ("--attention", file)]
    for name, option in _OPTIONS.items():
        if values.get(name):
            words += [option, values.pop(name)]
    for name, value in values.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)


def own_file(variant: Variant) -> str:
    """Return "FILE.py:CLASS" of a variant that a PyTorch module computes; empty for others."""
    option = variant.given.get("module")
    return (
        ""
        if option is None
        else f"{OWN_MODULES[option.value].origin}:{OWN_MODULES[option.value].name}"
    )


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
    if isinstance(value, str) and " module=" in value:
        return f'ak.variant("{own_file(Variant(value))}")'
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and '"' not in text else text


def export_files(result: Result) -> dict[str, bytes]:
    """Return the experiment as code, and a folder per variant with its module and its weights.

    Returns:
        Path → content, with `/` between folders. There is one file of weights per seed.

    Raises:
        ValueError: If a variant cannot be written as a module, or was not yet tied.
    """
    experiment = result.experiment
    program = f"# {command_line(experiment)}\n{experiment_code(experiment)}"
    files = {"experiment.py": program.encode()}
    if isinstance(experiment.task, OwnData):
        files[data_file(experiment.task)] = _data_content(experiment.task).encode()
    for (variant, seed), parameters in zip(experiment.runs, result.parameters, strict=True):
        folder = folder_of(variant)
        files[f"{folder}/module.py"] = module_code(experiment, variant).encode()
        weights = module_weights(experiment, variant, parameters)
        files[f"{folder}/seed_{seed}/weights.safetensors"] = weights
    return files


def folder_of(variant: Variant) -> str:
    """Return a file name for a variant: its text form without spaces, slashes and the like."""
    return re.sub(r"[^A-Za-z0-9=._-]+", "_", variant.value)


def module_weights(
    experiment: Experiment, variant: str, parameters: Mapping[str, np.ndarray]
) -> bytes:
    """Return a safetensors file with the parameters of one run as the state dict of its module.

    `0.W_Q` becomes `layers.0.W_Q.weight`, transposed for `nn.Linear`; `0.b_Q` becomes
    `layers.0.W_Q.bias`, `0.ln1.w` becomes `layers.0.ln1.weight`, `0.D_K` becomes `layers.0.D_K`.
    Parameters that layers share are repeated for each of them.

    Args:
        experiment: The trained experiment.
        variant: Variant of the run.
        parameters: Parameters of the run, from `Result.parameters`.

    Raises:
        ValueError: If a parameter is missing, as in a run that was stopped before it was tied.
    """
    wiring = experiment.wiring(Variant(variant))
    linear = {*linear_weights(wiring), "W_in", "W_out", "W_U"}
    roles = {*wiring.weights, *experiment.wiring(Variant(variant).stages[0]).weights}
    sources = {name: name for name in parameters if name.partition(".")[2] not in roles}
    for layer in range(len(experiment.layer_specs)):
        sources |= {f"{layer}.{own}": name for own, name in wiring.names(layer).items()}
    state_dict = {}
    for place, name in sources.items():
        if name not in parameters:
            raise ValueError(f"parameters: {name} is missing, allowed those of trained {variant}")
        value, own = parameters[name], place.lstrip("0123456789.")
        key = own.replace(".w", ".weight").replace(".b", ".bias")  # of norms
        if own in linear or own == "W_E":
            key += ".weight"
        elif own.startswith("b_") and f"W_{own[2:]}" in linear:
            key = f"W_{own[2:]}.bias"
        prefix = "" if place == own else f"layers.{place.removesuffix(own)}"
        value = value.T if own in linear else value
        state_dict[prefix + key] = np.ascontiguousarray(value, np.float32)
    return save(state_dict)
