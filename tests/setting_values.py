"""Settings of all tasks, and values to try them with."""

import pytest

from attnkit.experiment.experiment import DEFAULT_TASK, Experiment, settings
from attnkit.foundation.settings import InvalidExperiment
from attnkit.tasks import TASKS

every_task = pytest.mark.parametrize("task", TASKS)

KNOWN = ["task", "sharing", *settings(DEFAULT_TASK)]

COMPANIONS = {
    "n_entries": {"n_names": 64},
    "n_names": {"n_entries": 4},
    "n_train": {"n_seeds": 1},
    "d_model": {"n_seeds": 1},
    "d_mlp": {"n_seeds": 1},
    "steps": {"evaluate_every": 50},
}
"""Settings to change together with one, so that it can reach its bounds on the default task."""


def every_setting():
    """Return (task, setting) for all settings of the default task and the dials of every other."""
    return [
        (task, setting)
        for task in TASKS
        for setting in settings(task).values()
        if (task == DEFAULT_TASK and setting.name != "earlier_steps")
        or setting.name in TASKS[task].model_fields
    ]


def other_value(setting):
    """Return an allowed value of a setting that is not its default."""
    if setting.kind is bool:
        return not setting.default
    if setting.choices:
        return next(choice for choice in setting.choices if choice != setting.default)
    return setting.high if setting.default != setting.high else setting.low


def with_value(task, setting, value):
    """Return an experiment with one changed setting, and the settings changed together with it.

    The experiment is None if the value disagrees with other settings.
    """
    companions = COMPANIONS.get(setting.name, {}) if task == DEFAULT_TASK else {"n_seeds": 1}
    given = {"task": task, **companions, setting.name: value}
    try:
        return Experiment(**given), companions
    except InvalidExperiment as error:
        if task == DEFAULT_TASK or not all(problem.others for problem in error.problems):
            raise
        return None, companions
