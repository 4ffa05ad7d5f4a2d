"""The commands `tasks` and `variants`: tables of what there is, and of its settings."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from attnkit.command.arguments import Commands, add_command, known_name, say
from attnkit.experiment.experiment import settings
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import OWN_TASKS, TASKS, task_named
from attnkit.training.engine import kernel_knows
from attnkit.variants import CATALOGUE, OPTIONS

if TYPE_CHECKING:
    from attnkit.examples import RecordedAccuracy


def add_to(commands: Commands) -> None:
    """Add the commands to the command line."""
    tasks = add_command(
        commands, "tasks", "list the tasks, or the settings of one task", _run_tasks
    )
    tasks.add_argument("task", nargs="?", metavar="NAME", help="only this task, with all settings")
    tasks.add_argument("--json", action="store_true", help="print JSON")
    variants = add_command(
        commands, "variants", "list the variants, and the options of text forms", _run_variants
    )
    variants.add_argument("--json", action="store_true", help="print JSON")


def _run_tasks(arguments: argparse.Namespace) -> int:
    names = list(TASKS)
    if arguments.task is not None:
        known_name("task", arguments.task, TASKS if arguments.task not in OWN_TASKS else OWN_TASKS)
        names = [arguments.task]
    if arguments.json:
        print(json.dumps({name: _describe(name) for name in names}, indent=1, ensure_ascii=False))
        return 0
    family = ""
    for name in names:
        kind, facts, shown = task_named(name), "", [*settings(name).values()]
        if name in TASKS:
            task = TASKS[name]()
            facts = f" chance {task.chance:.3f}"
            facts += f", loss to beat {task.loss_to_beat:.3f}" if task.loss_to_beat else ""
            facts += f", hash of the text {task.fingerprint}" if task.fingerprint else ""
            facts += "."
        if arguments.task is None:
            shown = [setting for setting in shown if setting.name in kind.model_fields]
            if kind.family != family:
                family = kind.family
                print(f"{family}\n")
        print(f"{name:16} {kind.title}. {kind.question}\n    From: {kind.source}.{facts}")
        for setting in shown:
            default = _value_text(setting.default)
            print(f"    {setting.name:15} {default:>8}   {setting.help} ({setting.allowed})")
        if arguments.task is None:
            print(f"    with {_settings_text(kind.overrides)}")
        if kind.full_size and name in TASKS:
            print(f"    full size: {_settings_text(kind.full_size)}")
        if arguments.task is None:
            print()
    if arguments.task is None:
        print(f"With data of your own (train --data FILE): {', '.join(sorted(OWN_TASKS))}")
    return 0


def _describe(name: str) -> dict[str, Any]:
    kind = task_named(name)
    defaults = {setting.name: setting.default for setting in settings(name).values()}
    if name in OWN_TASKS:
        return {"title": kind.title, "question": kind.question, "settings": defaults}
    task = kind()
    return {
        "title": task.title,
        "question": task.question,
        "family": task.family,
        "source": task.source,
        "chance": task.chance,
        "loss_to_beat": task.loss_to_beat,
        "fingerprint": task.fingerprint,
        "dials": {dial: defaults.pop(dial) for dial in kind.model_fields},
        "settings": defaults,
        "full_size": task.full_size,
    }


def _settings_text(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={_value_text(value)}" for name, value in settings.items())


def _value_text(value: Any) -> str:
    """Return a value as you type it after `--set`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _run_variants(arguments: argparse.Namespace) -> int:
    from attnkit.examples import default_of, load_variants

    recorded = load_variants()
    rows = []
    for named in CATALOGUE.values():
        try:
            experiment = default_of(named.variant)
            costs = experiment.costs(named.variant)
        except InvalidExperiment as error:
            say(f"attnkit: {named.name}: {error}")
            continue
        engine = "kernel" if kernel_knows(experiment, named.variant) else "torch"
        rows.append((named, costs, engine, recorded.accuracy.get(named.variant)))
    if arguments.json:
        listing = [
            {
                "name": named.name,
                "variant": named.variant.value,
                "family": named.family,
                "explanation": named.explanation,
                "source": named.source,
                "parameters": costs.parameters,
                "attention_parameters": costs.attention,
                "kv_cache_floats_per_token": costs.kv_cache,
                "multiply_adds_per_token": costs.multiply_adds,
                "engine": engine,
                "accuracy": None if accuracy is None else accuracy.mean,
            }
            for named, costs, engine, accuracy in rows
        ]
        print(json.dumps(listing, indent=1, ensure_ascii=False))
        return 0
    header = f"{'name':22} {'text form':33} {'param.':>6} {'KV':>4} {'MACs':>6}  {'engine':6}"
    print(f"{header} {'accuracy':>20}  source")
    for named, costs, engine, accuracy in rows:
        print(
            f"{named.name:22} {named.variant.value:33} {costs.parameters:6} {costs.kv_cache:4} "
            f"{costs.multiply_adds:6}  {engine:6} {_accuracy_text(accuracy):>20}  {named.source}"
        )
    n_reached = sum(accuracy is not None and accuracy.reached for *_, accuracy in rows)
    print(
        f"\n{len(rows)} variants; {n_reached} of {len(recorded.accuracy)} measured reach "
        f"{recorded.threshold} (*) on {recorded.task} at its defaults: mean of "
        f"{recorded.n_seeds} seeds after {recorded.steps} steps with its 95% interval. KV: floats "
        "a decoder keeps per token. MACs: multiply-adds per token. Variants that share across "
        "layers have two layers, all others one. Engine: trains the variant on a CPU by default."
        "\n\n"
        "A text form is a sharing (QKV, Q=K, K=V, Q=V, Q=K=V), then roles without a matrix "
        "(V=I), then words:"
    )
    for name, option in OPTIONS.items():
        values = f" ({option.allowed})" if option.allowed else ""
        print(f"    {name:15} {option.help}{values}")
    return 0


def _accuracy_text(accuracy: RecordedAccuracy | None) -> str:
    if accuracy is None:
        return "not measured"
    mark = "*" if accuracy.reached else " "
    return f"{accuracy.mean:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}]{mark}"
