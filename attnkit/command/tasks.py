"""`python -m attnkit tasks`: table of the tasks, or of one task's settings."""

from __future__ import annotations

import argparse
import json
from typing import Any

from attnkit.command.arguments import Commands, known_name
from attnkit.experiment.experiment import settings
from attnkit.tasks import TASKS


def add(commands: Commands) -> None:
    """Add the parser of the command."""
    parser = commands.add_parser("tasks", help="table of the tasks, or of one's settings")
    parser.set_defaults(run=_run, parser=parser)
    parser.add_argument("task", nargs="?", metavar="NAME", help="only this one, with all settings")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _run(given: argparse.Namespace) -> int:
    names = list(TASKS) if given.task is None else [known_name("task", given.task, TASKS)]
    if given.json:
        print(json.dumps({name: _described(name) for name in names}, indent=1, ensure_ascii=False))
        return 0
    family = ""
    for name in names:
        task = TASKS[name]()
        beaten = task.loss_to_beat
        levels = f"chance {task.chance:.3f}" + (f", loss to beat {beaten:.3f}" if beaten else "")
        levels += f", hash of the text {task.fingerprint}" if task.fingerprint else ""
        if given.task is None and task.family != family:
            family = task.family
            print(f"{family}\n")
        print(f"{name:16} {task.title}. {task.question}\n    From: {task.source}. {levels}.")
        for setting in settings(name).values():
            if given.task or setting.name in type(task).model_fields:
                default = _plain(setting.default)
                print(f"    {setting.name:15} {default:>8}   {setting.help} ({setting.allowed})")
        if given.task is None:
            print(f"    with {_as_typed(task.overrides)}")
        if task.preset:
            print(f"    quick preset: {_as_typed(task.preset)}")
        if given.task is None:
            print()
    return 0


def _described(name: str) -> dict[str, Any]:
    """Return the description of a task for JSON."""
    task = TASKS[name]()
    defaults = {setting.name: setting.default for setting in settings(name).values()}
    return {
        "title": task.title,
        "question": task.question,
        "family": task.family,
        "source": task.source,
        "chance": task.chance,
        "loss_to_beat": task.loss_to_beat,
        "fingerprint": task.fingerprint,
        "dials": {own: defaults.pop(own) for own in type(task).model_fields},
        "settings": defaults,
        "preset": task.preset,
    }


def _as_typed(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={_plain(value)}" for name, value in settings.items())


def _plain(value: Any) -> str:
    """Return a value as it is typed after `--set`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
