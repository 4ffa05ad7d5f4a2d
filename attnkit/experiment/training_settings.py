"""Settings of training and evaluation, with their labels, help texts and bounds."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict

from attnkit.foundation.language import mark
from attnkit.foundation.settings import dial
from attnkit.variants.size import ALIGNED

MEASURED_TOGETHER = 512
"""Examples that are evaluated together; attention is measured on the first of these batches."""


class TrainingSettings(BaseModel):
    """Settings of training and evaluation, equal for all runs of an experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = dial(600, mark("Steps"), mark("Optimiser steps per run."), ge=1, le=50_000)
    learning_rate: float = dial(
        5e-3,
        mark("Learning rate"),
        mark("Largest step size of Adam."),
        ge=1e-5,
        le=1.0,
        allow_inf_nan=False,
    )
    schedule: Literal["constant", "cosine"] = dial(
        "constant",
        mark("Schedule"),
        mark(
            "Constant: the learning rate stays the same. Cosine: it falls to zero along half a "
            "cosine."
        ),
        choice_labels=(mark("constant"), mark("cosine")),
    )
    warm_up: float = dial(
        0.0,
        mark("Warm-up"),
        mark("Share of the steps in which the learning rate rises from zero."),
        ge=0.0,
        le=0.5,
        allow_inf_nan=False,
    )
    clip: float = dial(
        0.0,
        mark("Clip gradients"),
        mark("Largest norm of a run's gradient. 0: no limit."),
        ge=0.0,
        le=1000.0,
        allow_inf_nan=False,
    )
    batch_size: int = dial(
        64, mark("Batch"), mark("Examples per step and run."), ge=16, le=512, multiple_of=ALIGNED
    )
    n_train: int = dial(
        0,
        mark("Training examples"),
        mark(
            "Number of different examples, repeated in new orders. 0: new examples in every step."
        ),
        ge=0,
        le=200_000,
        multiple_of=ALIGNED,
    )
    earlier_steps: int = dial(
        0,
        mark("Steps before"),
        mark(
            "How many of the steps are spent on an earlier task. Then its embedding is frozen, and "
            "all other parameters start anew."
        ),
        ge=0,
        le=20_000,
    )
    evaluate_every: int = dial(
        10, mark("Evaluate every"), mark("Steps between evaluations."), ge=1, le=1000
    )
    n_eval: int = dial(
        128,
        mark("Evaluation examples"),
        mark("Held-out examples, fixed per seed."),
        ge=16,
        le=2048,
        multiple_of=ALIGNED,
    )

    longer_test: int = dial(
        1,
        mark("Longer test"),
        mark(
            "Accuracy is measured on examples of this many times the length, too, which are never "
            "trained. 1: it is not."
        ),
        ge=1,
        le=16,
    )

    def learning_rate_factor(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0, as a share of the largest.

        It rises linearly during the warm-up, then stays, or falls to zero along half a cosine.
        """
        n_rising = round(self.warm_up * self.steps)
        if step < n_rising:
            return (step + 1) / n_rising
        if self.schedule == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * (step - n_rising) / (self.steps - n_rising)))
