"""Changes of the Lab's task, also to one on data of the visitor's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnkit.experiment.experiment import Experiment, default_settings
from attnkit.experiment.links import from_broken_params, with_data
from attnkit.foundation.language import mark
from attnkit.foundation.settings import InvalidExperiment, Problem
from attnkit.service.server import server_settings
from attnkit.tasks import hash_in_link
from attnkit.ui.lab.lab import Lab
from attnkit.variants import Variant


def change_task(lab: Lab, task: str, data: str = "") -> None:
    """Switch the task, and keep the changed settings that the new task has, too.

    The first seed is not kept, so that the new task opens with its finished example.
    Variants that do not go with the new sizes stay on offer, switched off. Settings that do not
    go with the new task are those of the task; with data of one's own, that is told.

    Args:
        task: Name of the task.
        data: Data of one's own, for a task that has them.

    Raises:
        InvalidExperiment: If the data cannot be used, or not on this copy.
    """

    def made(fields: Mapping[str, Any]) -> tuple[Experiment, list[Problem]]:
        fields = {**fields, "task": task}
        return with_data(fields, data) if data else from_broken_params(fields)

    lab.read_widgets()
    defaults = default_settings(task)
    changed = {k: v for k, v in lab.experiment.to_params().items() if k in defaults}
    for name in ("sharing", "first_seed", "data", "n_entries" if data else ""):
        changed.pop(name, None)
    is_default = lab.chosen == defaults["sharing"]
    variants = [] if is_default else [Variant(name) for name in lab.chosen]
    without_variants, _ = made(changed)
    if over := server_settings().data_problems(without_variants):
        raise InvalidExperiment(over)
    fitting: list[Variant] = []
    lab.lost = []
    for variant in variants:
        try:
            without_variants.replace(sharing=[variant])
        except InvalidExperiment as error:
            lab.lost += error.problems
        else:
            fitting.append(variant)
    if fitting:
        changed["sharing"] = ",".join(fitting)
    experiment, problems = made(changed)
    if data:
        lab.lost += problems
    lab.set(experiment)


def use_data(lab: Lab, task: str, data: str) -> None:
    """Set up a task on data of one's own, with the settings of the link that awaits them.

    Raises:
        InvalidExperiment: If the data cannot be used, or not on this copy.
    """
    if not lab.awaited:
        change_task(lab, task, data)
        return
    experiment, problems = with_data({**lab.awaited, "task": task}, data)
    if over := server_settings().data_problems(experiment):
        raise InvalidExperiment(over)
    if lab.awaited.get("data") not in ("", hash_in_link(experiment.settings()["data"])):
        reason = mark("but these are other data; all other settings are those of the link")
        problems.append(Problem("data", lab.awaited["data"], reason))
    lab.problems += problems
    lab.set(experiment)
