"""Measures that claims compare: one number per run, read from a Snapshot at a step.

A measure defines which direction is better and how two arms are compared. Losses and symmetries
scatter around a mean, so the means over seeds are compared. Accuracies do not: a run has found the
answer or it has not, and near 1 there is no room to scatter, so pairs of seeds are counted. On
tasks that no run solves, `mean_accuracy` compares the means of accuracies. See
`attnkit.evidence.verdict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from attnkit.foundation.language import mark
from attnkit.training.metrics import SHOWN
from attnkit.training.snapshot import Snapshot

SOLVED = 0.95
"""Lowest accuracy of a run that counts as having solved its task, in claims and answers."""

PerRun = Float64[np.ndarray, " r"]


Read = Callable[[Snapshot, int], PerRun]


@dataclass(frozen=True)
class Measure:
    """Definition of a number per run, such as its accuracy or its loss.

    Attributes:
        name: Name in records.
        title: Name on screen.
        read: Function of a snapshot and a step that returns the numbers of all runs, (r,), in the
            order of `Experiment.runs`; NaN where a run has none.
        better: 1 if higher is better, −1 if lower is better, 0 if neither.
        unit: Unit of a difference on screen; "points" are percentage points of a share.
        compares_means: Whether the means over seeds are compared, instead of pairs of seeds.
    """

    name: str
    title: str
    read: Read
    better: int = 1
    unit: str = "points"
    compares_means: bool = False


def _until(snapshot: Snapshot, metric: str, step: int) -> np.ndarray:
    """Return the history of a metric up to a step, (e, r)."""
    end = int(np.searchsorted(snapshot.eval_steps, step, "right"))
    return snapshot.curve(metric)[: max(1, end)].astype(np.float64)


def _at(metric: str) -> Read:
    return lambda snapshot, step: _until(snapshot, metric, step)[-1]


def _all_along(metric: str) -> Read:
    """Return a function that averages a metric over evaluations; NaN if the run diverged."""
    return lambda snapshot, step: _until(snapshot, metric, step).mean(0)


def _at_longest(snapshot: Snapshot, step: int) -> PerRun:
    """Return the accuracy on the longer examples; without a longer test, on the held-out ones."""
    has_longer_test = snapshot.experiment.training.longer_test > 1
    return _at("longer_accuracy" if has_longer_test else "accuracy")(snapshot, step)


def _at_tie(snapshot: Snapshot, step: int) -> PerRun:
    """Return the accuracy at the step at which a run is tied; NaN if that is after `step`."""
    steps = [snapshot.experiment.tie_step(variant) for variant, _ in snapshot.experiment.runs]
    accuracy = snapshot.history["accuracy"].astype(np.float64)
    at_tie = np.full(len(steps), np.nan)
    for run, tie_step in enumerate(steps):
        if tie_step and tie_step <= min(step, snapshot.step):
            at_tie[run] = accuracy[np.searchsorted(snapshot.eval_steps, tie_step), run]
    return at_tie


def _doublings(snapshot: Snapshot, step: int) -> PerRun:
    """Return log₂ of the steps until a run first solves its task; infinite if it has not yet."""
    solved = _until(snapshot, "accuracy", step) >= SOLVED
    first = snapshot.eval_steps[solved.argmax(0)].astype(np.float64)
    doublings: PerRun = np.where(solved.any(0), np.log2(np.maximum(first, 1)), np.inf)
    return doublings


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("accuracy", mark("accuracy"), _at("accuracy")),
        Measure("mean_accuracy", mark("mean accuracy"), _at("accuracy"), compares_means=True),
        Measure(
            "accuracy_all_along", mark("mean accuracy during training"), _all_along("accuracy")
        ),
        Measure("longest_accuracy", mark("accuracy on the longest examples"), _at_longest),
        Measure("accuracy_at_tie", mark("accuracy when it is tied"), _at_tie),
        Measure("steps_to_solve", mark("steps to solve"), _doublings, -1, "doublings"),
        Measure("loss", mark("loss"), _at("loss"), -1, "nats", True),
        Measure(
            "loss_all_along",
            mark("mean loss during training"),
            _all_along("loss"),
            -1,
            "nats",
            True,
        ),
        *(
            Measure(name, SHOWN[name].title, _at(name), better, "", compares_means)
            for name, better, compares_means in (
                ("asymmetry", 0, True),
                ("weight_symmetry", 0, True),
                ("mass_on_target", 1, False),
            )
        ),
    )
}
"""All measures by name."""


def multiples(up_to: int) -> tuple[int, ...]:
    """Return the multiples of the base steps at which long runs are read: 1, 2, 4, ... `up_to`."""
    return tuple(2**power for power in range(up_to.bit_length()))


def measured(snapshot: Snapshot, up_to: int = 1) -> list[dict[str, Float64[np.ndarray, "k s"]]]:
    """Read all measures at 1, 2, 4, ... times the base steps: measure → (k, s) per variant."""
    base = snapshot.experiment.training.steps // up_to
    variants: list[dict[str, np.ndarray]] = [{} for _ in snapshot.experiment.sharing]
    for name, measure in MEASURES.items():
        values = np.stack([measure.read(snapshot, times * base) for times in multiples(up_to)])
        for own, part in zip(variants, np.split(values, len(variants), -1), strict=True):
            own[name] = part
    return variants
