"""The command `tasks`: list the tasks, or the settings of one task."""

from __future__ import annotations

import argparse
import json
from typing import Any

from attnkit.command.arguments import known_name
from attnkit.experiment.experiment import settings
from attnkit.foundation.settings import Setting
from attnkit.tasks import OWN_TASKS, TASKS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, and the function that runs it."""
    parser.set_defaults(run=_run)
    parser.add_argument("task", nargs="?", metavar="NAME", help="only this task, with all settings")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    names = list(TASKS)
    if arguments.task in OWN_TASKS:
        return _print_own(arguments.task, arguments.json)
    if arguments.task is not None:
        names = [known_name("task", arguments.task, TASKS)]
    if arguments.json:
        print(json.dumps({name: _describe(name) for name in names}, indent=1, ensure_ascii=False))
        return 0
    family = ""
    for name in names:
        task = TASKS[name]()
        loss = task.loss_to_beat
        facts = f"chance {task.chance:.3f}" + (f", loss to beat {loss:.3f}" if loss else "")
        facts += f", hash of the text {task.fingerprint}" if task.fingerprint else ""
        if arguments.task is None and task.family != family:
            family = task.family
            print(f"{family}\n")
        print(f"{name:16} {task.title}. {task.question}\n    From: {task.source}. {facts}.")
        for setting in settings(name).values():
            if arguments.task or setting.name in type(task).model_fields:
                _print_setting(setting)
        if arguments.task is None:
            print(f"    with {_settings_text(task.overrides)}")
        if task.full_size:
            print(f"    full size: {_settings_text(task.full_size)}")
        if arguments.task is None:
            print()
    if arguments.task is None:
        print(f"With data of your own (train --data FILE): {', '.join(sorted(OWN_TASKS))}")
    return 0


def _print_own(name: str, as_json: bool) -> int:
    """Print a task on data of one's own, which has no numbers without the data."""
    task, dials = OWN_TASKS[name], settings(name)
    if as_json:
        defaults = {setting.name: setting.default for setting in dials.values()}
        described = {"title": task.title, "question": task.question, "settings": defaults}
        print(json.dumps({name: described}, indent=1, ensure_ascii=False))
        return 0
    print(f"{name:16} {task.title}. {task.question}\n    From: {task.source}.")
    for setting in dials.values():
        _print_setting(setting)
    return 0


def _print_setting(setting: Setting) -> None:
    default = _value_text(setting.default)
    print(f"    {setting.name:15} {default:>8}   {setting.help} ({setting.allowed})")


def _describe(name: str) -> dict[str, Any]:
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
        "dials": {dial: defaults.pop(dial) for dial in type(task).model_fields},
        "settings": defaults,
        "full_size": task.full_size,
    }


def _settings_text(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={_value_text(value)}" for name, value in settings.items())


def _value_text(value: Any) -> str:
    """Return a value as you type it after `--set`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
