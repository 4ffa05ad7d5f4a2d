"""Recognition of trainings that failed, so that their results say nothing about sharing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from attnkit.experiment import Experiment
from attnkit.experiment.experiment import default_settings, settings
from attnkit.foundation.language import tr, tr_n
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant
from attnkit.variants.sharing import Sharing

LEAST_LEARNED = 0.15
"""Share of the way from a simple guess to all right, below which a run has not learnt its task.
Trainings at 20 to 200 times the default learning rate ended below 0.13 of it; the best variant of
every default experiment ends above 0.2."""


@dataclass(frozen=True)
class Failure:
    """A training in which no variant has learnt the task, QKV included.

    Attributes:
        setting: Name of the setting to change: "learning_rate" or "steps".
        sentence: What has happened, in one sentence.
        advice: Which setting to change, in one sentence.
    """

    setting: Literal["learning_rate", "steps"]
    sentence: str
    advice: str


def rate_of(experiment: Experiment, variant: Variant) -> float:
    """Return the learning rate of a variant: its own, or else that of the experiment."""
    option = variant.given.get("learning_rate")
    return experiment.training.learning_rate if option is None else float(option.value)


def has_learnt(experiment: Experiment, accuracy: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """Return whether runs are clearly better than a simple guess; diverged runs, NaN, are not.

    If the task has a loss to beat, a run is better if its loss is nearer to that loss than to the
    loss of a guess that gives every answer the same probability.
    """
    task = experiment.task
    clear: np.ndarray
    if task.loss_to_beat is not None:
        clear = loss <= (math.log(task.n_classes) + task.loss_to_beat) / 2
    else:
        clear = accuracy >= task.chance + LEAST_LEARNED * (1 - task.chance)
    return clear


def failure_of(snapshot: Snapshot) -> Failure | None:
    """Return why a training says nothing about sharing; None if it does, or has not ended."""
    last = (snapshot.latest(name) for name in ("accuracy", "loss"))
    return failure(snapshot.experiment, *last, over=snapshot.status == "finished")


def failure(
    experiment: Experiment, accuracy: np.ndarray, loss: np.ndarray, *, over: bool
) -> Failure | None:
    """Return why a training says nothing about sharing; None if it does, or cannot be known yet.

    A training without QKV is not called failed unless every run has diverged: other variants may
    fail by themselves.

    Args:
        experiment: The experiment.
        accuracy: Last accuracy of each run; NaN if it diverged.
        loss: Last loss of each run; NaN if it diverged.
        over: Whether the last step is done.
    """
    references = [variant for variant in experiment.sharing if is_plain(variant)]
    if np.isnan(loss).all():
        references = references or list(experiment.sharing)
    elif not over:
        return None
    if not references or has_learnt(experiment, accuracy, loss).any():
        return None
    defaults, labels = default_settings(experiment.task.name), settings(experiment.task.name)
    rate, steps = min(rate_of(experiment, v) for v in references), experiment.training.steps
    default_rate, default_steps = defaults["learning_rate"], defaults["steps"]
    diverged = bool(np.isnan(loss).all())
    is_too_short = steps < default_steps or rate == default_rate
    if not diverged and rate <= default_rate and is_too_short:
        sentence = tr_n(
            "No variant learnt the task in {n:,} step, so this training says nothing about "
            "sharing.",
            "No variant learnt the task in {n:,} steps, so this training says nothing about "
            "sharing.",
            steps,
        )
        raised = {"setting": tr(labels["steps"].label), "default": default_steps}
        if steps < default_steps:
            advice = tr("Raise “{setting}” (default {default:,}) and train again.", **raised)
        else:
            advice = tr(
                "Raise “{setting}” (default {default:,}), or make the task easier, and train "
                "again.",
                **raised,
            )
        return Failure("steps", sentence, advice)
    if diverged:
        sentence = tr(
            "The training failed, so it says nothing about sharing: every run diverged at a "
            "learning rate of {rate:g}.",
            rate=rate,
        )
    else:
        sentence = tr(
            "The training failed, so it says nothing about sharing: no variant learnt the task at "
            "a learning rate of {rate:g}.",
            rate=rate,
        )
    changed = {"setting": tr(labels["learning_rate"].label), "default": default_rate}
    if rate < default_rate and not diverged:
        advice = tr("Raise “{setting}” (default {default:g}) and train again.", **changed)
    elif rate != default_rate:
        advice = tr("Lower “{setting}” (default {default:g}) and train again.", **changed)
    else:
        advice = tr("Lower “{setting}” and train again.", setting=changed["setting"])
    return Failure("learning_rate", sentence, advice)


def is_plain(variant: Variant) -> bool:
    """Return whether a variant is QKV, at any learning rate and number and width of heads."""
    sizes = {"learning_rate", "n_heads", "d_head"}
    return variant.sharing is Sharing.QKV and not variant.identity and sizes >= {*variant.given}
