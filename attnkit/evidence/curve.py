"""Learning curves of arms, as evidence stores them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnkit.claims.measures import SOLVED
from attnkit.evidence.stored import DrawnArray


@dataclass(frozen=True, eq=False)
class Curve:
    """Learning curve of an arm: statistics over its seeds at every evaluation.

    Attributes:
        steps: (e,) steps of the evaluations.
        mean: (e,) mean over seeds.
        low: (e,) lower quartile of the seeds.
        high: (e,) upper quartile of the seeds.
        solved: (e,) share of seeds that have solved the task.
        by: The metric: "accuracy", or "loss" on text.
    """

    steps: DrawnArray
    mean: DrawnArray
    low: DrawnArray
    high: DrawnArray
    solved: DrawnArray
    by: str = "accuracy"

    @staticmethod
    def of(steps: np.ndarray, values: np.ndarray, by: str) -> Curve:
        """Return the curve of the values of s seeds, (e, s), without runs that diverged."""
        present = ~np.isnan(values).all(1)
        steps, values = steps[present], values[present]
        solved = (values >= SOLVED).mean(1) if by == "accuracy" else np.zeros(len(steps))
        low, high = (
            np.nanquantile(values, q, axis=1) if len(values) else steps for q in (0.25, 0.75)
        )
        return Curve(steps, np.nanmean(values, 1), low, high, solved, by)
