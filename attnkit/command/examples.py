"""The command `examples`: train the example experiments that pages show first."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from attnkit.analysis.custom_phone_book import is_phone_book
from attnkit.command.arguments import BadInput, known_name
from attnkit.command.interrupts import INTERRUPTED, interrupts
from attnkit.command.outputs import Saving
from attnkit.experiment import Experiment
from attnkit.foundation.plugins import PLUGINS
from attnkit.tasks import TASKS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, and the function that runs it."""
    parser.set_defaults(run=_run)
    parser.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK",
        help="only these tasks; without TASK, all tasks and variants",
    )


def _run(arguments: argparse.Namespace) -> int:
    from attnkit.examples import FOLDER, VARIANTS, WEIGHTS, measure_variants, save_weights
    from attnkit.foundation.process import prepare_for_training
    from attnkit.training import train

    if os.environ.get(PLUGINS):
        raise BadInput(f"examples: {PLUGINS} is set, but plugins are not shipped; unset it")
    names = [known_name("task", name, TASKS) for name in arguments.tasks]
    prepare_for_training()
    for name in names or TASKS:
        with interrupts:
            result = train(Experiment(task=name), progress=False)
        if result.snapshot.status != "finished":
            return INTERRUPTED
        _save(FOLDER / f"{name}.safetensors", result.snapshot.to_bytes())
        if is_phone_book(result.experiment.task):
            _save(FOLDER / f"{name}{WEIGHTS}", save_weights(result))
        print(f"{name}.safetensors: {result.seconds:.1f} s")
    if names:
        return 0
    with interrupts:
        measured = measure_variants()
    if measured is None:
        return INTERRUPTED
    _save(FOLDER / VARIANTS, json.dumps(measured, indent=1, ensure_ascii=False) + "\n")
    return 0


def _save(path: Path, content: str | bytes) -> None:
    with Saving() as saving:
        saving.file("examples", str(path), content)
