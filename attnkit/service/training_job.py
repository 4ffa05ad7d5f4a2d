"""A job in the training process: its training, its film, and how far it goes in a turn."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from attnkit.experiment import from_text
from attnkit.foundation.slices import SlicedWork
from attnkit.service.protocol import Start, Verb
from attnkit.training.engine import Engine
from attnkit.training.loops import Recorder
from attnkit.training.maker import Maker
from attnkit.training.training import Training, pick_device


@dataclass
class TrainingJob:
    """One job with its training and its film, which are built in its first turns.

    Attributes:
        start: The command that has begun it, or has continued it last.
        verb: The last command to steer it.
        building: The building of its training; None until it begins.
        is_built: Whether it has its training and the recorder of its film.
        paused: Whether it trains no further.
        pauses_at: Step at which it pauses again; None: no limit.
        reports: Whether its next turn sends a snapshot, although it may be paused.
        obeyed: Number of the last command.
        next_at: Time from which the next snapshot may be sent.
        pace: Seconds per step, as measured in the last turn.
    """

    start: Start
    verb: Verb
    building: SlicedWork[tuple[Training, Recorder]] | None = None
    is_built: bool = False
    training: Training = field(init=False)
    recorder: Recorder = field(init=False)
    paused: bool = False
    pauses_at: int | None = None
    reports: bool = False
    obeyed: int = 0
    next_at: float = 0.0
    pace: float = 0.05

    def begin(self) -> None:
        """Begin with what was built, or continue a stopped job; then steer it as told last."""
        self.reports = self.training.step >= self.start.step
        self.steer(self.verb)

    def steer(self, verb: Verb) -> None:
        """Pause, continue, or train to the evaluation after the last step that pages have seen."""
        self.verb, self.paused, self.pauses_at = verb, verb == "pause", None
        if self.is_built and verb == "step":
            evaluate_every = self.training.experiment.training.evaluate_every
            seen = max(self.training.step, self.start.step)
            self.pauses_at = seen + evaluate_every - seen % evaluate_every
        self.reports = self.reports or self.paused

    def n_steps(self, seconds: float) -> int:
        """Return the number of steps of a turn of about this length."""
        n_steps = max(1, round(seconds / self.pace))
        left = self.recorder.n_steps_left
        if left:  # equal turns up to the next frame, as each turn ends with its slowest cohort
            n_steps = math.ceil(left / max(1, round(left / n_steps)))
        if self.pauses_at is not None:
            n_steps = min(n_steps, self.pauses_at - self.training.step)
        return n_steps


def build(start: Start, engine: Engine) -> tuple[Training, Recorder]:
    """Return a training at step 0, with its film.

    It has the missing runs, or all runs if another maker has trained the finished ones.
    """
    same = tuple(start.maker) == Maker.here(pick_device("auto"), engine)
    training = Training(from_text(start.missing if same else start.experiment), engine=engine)
    return training, Recorder(training)
