"""Jobs as the training process sees them."""

from __future__ import annotations

from dataclasses import dataclass

from attnkit.training.camera import Camera
from attnkit.training.training import Training


@dataclass
class TrainingJob:
    """One job with its training, its film, and its place among the other jobs.

    Attributes:
        paused: Whether it takes no turns.
        steps_left: Number of steps before it pauses again; None: no limit.
        obeyed: Number of the last command.
        next_at: Time from which the next snapshot may be sent.
        pace: Seconds per step, as measured in the last turn.
        max_seconds: Training time after which it is stopped.
        quiet_until: Step that it had reached before; no snapshots of earlier steps are sent.
        address: Jobs of the same address share its turns.
        served: Training time received, not counted from 0 but as `Worker._enter` does.
    """

    training: Training
    camera: Camera
    paused: bool = False
    steps_left: int | None = None
    obeyed: int = 0
    next_at: float = 0.0
    pace: float = 0.05
    max_seconds: float = float("inf")
    quiet_until: int = 0
    address: str = ""
    served: float = 0.0

    @property
    def n_steps_to_evaluation(self) -> int:
        """Number of steps to the evaluation after the last step that pages have seen."""
        evaluate_every = self.training.experiment.training.evaluate_every
        seen = max(self.training.step, self.quiet_until)
        return seen + evaluate_every - seen % evaluate_every - self.training.step
