"""Examples of every task at its default settings: shipped results and drawn thumbnails."""

from __future__ import annotations

from functools import cache

from attnkit.analysis.responses import Example
from attnkit.examples import load_example
from attnkit.experiment import Experiment
from attnkit.tasks import TASKS
from attnkit.training.snapshot import Snapshot
from attnkit.ui.server.service import training_service


@cache
def default_experiment(task: str) -> Experiment:
    """Return the experiment of a task at its default settings."""
    return Experiment(task=task)


@cache
def shipped_example(task: str) -> Snapshot | None:
    """Return the finished default experiment of a task; None if none ships or it is unreadable."""
    try:
        return load_example(task)
    except (OSError, ValueError):
        return None


def thumbnail_examples() -> dict[str, Example]:
    """Return one example by task name, of the tasks whose example has been drawn by now."""
    examples = {name: _default_example(name) for name in TASKS}
    return {name: example for name, example in examples.items() if isinstance(example, Example)}


def thumbnails_missing() -> bool:
    """Return whether examples of some tasks are still being drawn."""
    return any(_default_example(name) is None for name in TASKS)


def _default_example(task: str) -> Example | str | None:
    """Return an example of a task at its defaults, the reason why there is none, or None for now.

    None means that the training process has not answered yet.
    """
    try:
        experiment = default_experiment(task)
    except Exception as error:  # a task of a plugin may raise anything; the others are shown
        return str(error)
    return training_service().example(experiment)
