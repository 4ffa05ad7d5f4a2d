"""What claims are about: one number per run, read from a finished Snapshot.

A measure says which way is better and whether seeds scatter around a mean. Losses and symmetries
do. Accuracies do not: a run has found the answer or it has not, and near the ceiling there is no
room to scatter. Of those, pairs of seeds are counted; see `attnkit.evidence.verdict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from attnkit.results import Snapshot

PerRun = Float64[np.ndarray, " r"]


@dataclass(frozen=True)
class Measure:
    """One number of a run.

    Attributes:
        name: as in records. title: as shown, after “its”.
        better: 1 if higher is better, −1 if lower is, 0 if neither.
        unit: of a difference, as shown after it; a share is shown in percentage points.
        scatters: whether seeds scatter around a mean, so that Student's interval holds.
        of: reads it, in the order of `Experiment.runs`; NaN where a run has none.
    """

    name: str
    title: str
    better: int
    unit: str
    scatters: bool
    of: Callable[[Snapshot], PerRun]


def _last(metric: str) -> Callable[[Snapshot], PerRun]:
    """At the last evaluation."""

    def of(snapshot: Snapshot) -> PerRun:
        last: PerRun = snapshot.history[metric][-1].astype(np.float64)
        return last

    return of


def _all_along(metric: str) -> Callable[[Snapshot], PerRun]:
    """The mean over all evaluations: the earlier something is learnt, the better."""

    def of(snapshot: Snapshot) -> PerRun:
        history = snapshot.history[metric].astype(np.float64)
        mean: PerRun = history.mean(0)  # NaN if the run diverged
        return mean

    return of


def _at_tie(snapshot: Snapshot) -> PerRun:
    """Accuracy at the very step at which a run is tied; NaN if it never is."""
    steps = [snapshot.experiment.tie_step(variant) for variant, _ in snapshot.experiment.runs]
    accuracy = snapshot.history["accuracy"].astype(np.float64)
    found = np.full(len(steps), np.nan)
    for run, step in enumerate(steps):
        if step and step <= snapshot.step:
            found[run] = accuracy[np.searchsorted(snapshot.eval_steps, step), run]
    return found


def _asymmetry(snapshot: Snapshot) -> PerRun:
    last: PerRun = snapshot.asymmetry[-1].astype(np.float64)
    return last


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("accuracy", "accuracy", 1, "points", False, _last("accuracy")),
        Measure(
            "accuracy_all_along",
            "mean accuracy during training",
            1,
            "points",
            False,
            _all_along("accuracy"),
        ),
        Measure("accuracy_at_tie", "accuracy when it is tied", 1, "points", False, _at_tie),
        Measure("loss", "loss", -1, "nats", True, _last("loss")),
        Measure(
            "loss_all_along", "mean loss during training", -1, "nats", True, _all_along("loss")
        ),
        Measure("asymmetry", "asymmetry of the scores", 0, "", True, _asymmetry),
        Measure(
            "weight_symmetry",
            "symmetry of W_Q W_Kᵀ",
            0,
            "",
            True,
            _last("weight_symmetry"),
        ),
        Measure(
            "mass_on_target",
            "attention on the right token",
            1,
            "",
            False,
            _last("mass_on_target"),
        ),
    )
}
"""All measures by name."""


def measured(snapshot: Snapshot) -> dict[str, PerRun]:
    """Measure → (r,) of a snapshot, of all measures."""
    return {name: measure.of(snapshot) for name, measure in MEASURES.items()}
