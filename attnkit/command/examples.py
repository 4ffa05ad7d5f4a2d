"""`python -m attnkit examples`: make the examples that pages open with."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from attnkit.analysis.custom_phone_book import is_phone_book
from attnkit.command.arguments import BadInput, Commands, known_name
from attnkit.command.interrupts import INTERRUPTED, interrupts
from attnkit.command.outputs import Saving
from attnkit.experiment import Experiment
from attnkit.foundation.plugins import OWN_MODULES
from attnkit.tasks import TASKS


def add(commands: Commands) -> None:
    """Add the parser of the command."""
    parser = commands.add_parser("examples", help="make the examples that pages open with")
    parser.set_defaults(run=_run, parser=parser)
    parser.add_argument(
        "tasks", nargs="*", metavar="TASK", help="only these; without, all tasks and all variants"
    )


def _run(given: argparse.Namespace) -> int:
    from attnkit.examples import FOLDER, VARIANTS, WEIGHTS, measure_variants, save_weights
    from attnkit.foundation.process import prepare_for_training
    from attnkit.training import train

    if os.environ.get(OWN_MODULES):
        raise BadInput(f"examples: {OWN_MODULES} is set, but modules of one's own are not shipped")
    names = [known_name("task", name, TASKS) for name in given.tasks]
    prepare_for_training()
    for name in names or TASKS:
        with interrupts:
            result = train(Experiment(task=name))
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
