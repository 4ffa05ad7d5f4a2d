"""Measures: what claims compare, one number per run, read from a Snapshot at a step.

A measure says which direction is better, and how two arms are compared. Seeds scatter around a mean
in losses and symmetries, so their means are compared. In accuracies a run has found the answer or
it has not, and near the ceiling there is no room to scatter, so pairs of seeds are counted. On
tasks that no run solves, `mean_accuracy` compares the means of accuracies. See
`attnkit.evidence.verdict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from attnkit.training.snapshot import Snapshot

SOLVED = 0.95
"""Accuracy from which on a run counts as having solved its task, in claims and answers."""

PerRun = Float64[np.ndarray, " r"]


@dataclass(frozen=True)
class Measure:
    """One number of a run.

    Attributes:
        name: Name in records.
        title: Name as shown, after "its".
        better: 1 if higher is better, −1 if lower is better, 0 if neither.
        unit: Unit of a difference, as shown after it; shares are shown in percentage points.
        scatters: Whether seeds scatter around a mean, so that means are compared.
        of: Reads it after a number of steps, in the order of `Experiment.runs`; NaN where a run
            has none.
    """

    name: str
    title: str
    better: int
    unit: str
    scatters: bool
    of: Callable[[Snapshot, int], PerRun]


def _at(metric: str) -> Callable[[Snapshot, int], PerRun]:
    """Return the reader of a metric at the last evaluation up to a step."""

    def of(snapshot: Snapshot, step: int) -> PerRun:
        values: PerRun = _until(snapshot, metric, step)[-1]
        return values

    return of


def _all_along(metric: str) -> Callable[[Snapshot, int], PerRun]:
    """Return the reader of the mean over evaluations: the earlier it is learnt, the better."""

    def of(snapshot: Snapshot, step: int) -> PerRun:
        mean: PerRun = _until(snapshot, metric, step).mean(0)  # NaN if the run diverged
        return mean

    return of


def _until(snapshot: Snapshot, metric: str, step: int) -> np.ndarray:
    """Return the history of a metric up to a step, (e, r)."""
    history = snapshot.asymmetry if metric == "asymmetry" else snapshot.history[metric]
    end = int(np.searchsorted(snapshot.eval_steps, step, "right"))
    return history[: max(1, end)].astype(np.float64)


def _at_tie(snapshot: Snapshot, step: int) -> PerRun:
    """Return the accuracy at the step at which a run is tied; NaN if it has not been by then."""
    steps = [snapshot.experiment.tie_step(variant) for variant, _ in snapshot.experiment.runs]
    accuracy = snapshot.history["accuracy"].astype(np.float64)
    found = np.full(len(steps), np.nan)
    for run, tied in enumerate(steps):
        if tied and tied <= min(step, snapshot.step):
            found[run] = accuracy[np.searchsorted(snapshot.eval_steps, tied), run]
    return found


def _doublings(snapshot: Snapshot, step: int) -> PerRun:
    """Return log₂ of the steps until a run first solves its task; infinite if it has not yet."""
    solved = _until(snapshot, "accuracy", step) >= SOLVED
    first = snapshot.eval_steps[solved.argmax(0)].astype(np.float64)
    found: PerRun = np.where(solved.any(0), np.log2(np.maximum(first, 1)), np.inf)
    return found


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("accuracy", "accuracy", 1, "points", False, _at("accuracy")),
        Measure("mean_accuracy", "mean accuracy", 1, "points", True, _at("accuracy")),
        Measure(
            "accuracy_all_along",
            "mean accuracy during training",
            1,
            "points",
            False,
            _all_along("accuracy"),
        ),
        Measure("accuracy_at_tie", "accuracy when it is tied", 1, "points", False, _at_tie),
        Measure("steps_to_solve", "steps to solve", -1, "doublings", False, _doublings),
        Measure("loss", "loss", -1, "nats", True, _at("loss")),
        Measure(
            "loss_all_along", "mean loss during training", -1, "nats", True, _all_along("loss")
        ),
        Measure("asymmetry", "asymmetry of the scores", 0, "", True, _at("asymmetry")),
        Measure(
            "weight_symmetry",
            "symmetry of W_Q W_Kᵀ",
            0,
            "",
            True,
            _at("weight_symmetry"),
        ),
        Measure(
            "mass_on_target",
            "attention on the right token",
            1,
            "",
            False,
            _at("mass_on_target"),
        ),
    )
}
"""All measures by name."""


def multiples(up_to: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... up to a power of two: the multiples at which long runs are read."""
    return tuple(2**power for power in range(up_to.bit_length()))


def measured(snapshot: Snapshot, up_to: int = 1) -> dict[str, Float64[np.ndarray, "k r"]]:
    """Return measure → (k, r): every measure at 1, 2, 4, ... times the base steps.

    Args:
        up_to: Multiple of the base steps for which the experiment is trained.
    """
    base = snapshot.experiment.training.steps // up_to
    return {
        name: np.stack([measure.of(snapshot, times * base) for times in multiples(up_to)])
        for name, measure in MEASURES.items()
    }
