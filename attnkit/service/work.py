"""Work of the training process that takes turns: trainings to build, trainings, and inquiries."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from attnkit.experiment import Experiment, from_text
from attnkit.foundation.slices import SlicedWork
from attnkit.service.allowance import Allowance
from attnkit.service.protocol import Request, Start, Steer
from attnkit.training.engine import Engine
from attnkit.training.maker import Maker
from attnkit.training.recorder import Recorder
from attnkit.training.training import Training, pick_device


@dataclass
class TrainingJob:
    """One job with its training and its film.

    Attributes:
        memory: Memory that it may take.
        address: Jobs and requests of the same address share its turns.
        paused: Whether it trains no further.
        reports: Whether its next turn sends a snapshot, although it may be paused.
        steps_left: Number of steps before it pauses again; None: no limit.
        obeyed: Number of the last command.
        next_at: Time from which the next snapshot may be sent.
        pace: Seconds per step, as measured in the last turn.
        max_seconds: Training time after which it is stopped.
        quiet_until: Step that it had reached before; no snapshots of earlier steps are sent.
    """

    training: Training
    recorder: Recorder
    memory: Allowance
    address: str = ""
    paused: bool = False
    reports: bool = False
    steps_left: int | None = None
    obeyed: int = 0
    next_at: float = 0.0
    pace: float = 0.05
    max_seconds: float = float("inf")
    quiet_until: int = 0

    @property
    def n_steps_to_evaluation(self) -> int:
        """Number of steps to the evaluation after the last step that pages have seen."""
        evaluate_every = self.training.experiment.training.evaluate_every
        seen = max(self.training.step, self.quiet_until)
        return seen + evaluate_every - seen % evaluate_every - self.training.step

    def begin(self, start: Start) -> None:
        """Begin, or continue a stopped job, as a command says."""
        self.paused, self.steps_left, self.obeyed = start.paused, None, 0
        self.max_seconds, self.address = start.seconds, start.address
        self.quiet_until = start.step
        self.reports = self.training.step >= start.step

    def obey(self, command: Steer) -> None:
        """Pause, continue, or train to the next evaluation."""
        self.obeyed = command.number
        self.paused = command.verb == "pause"
        self.steps_left = self.n_steps_to_evaluation if command.verb == "step" else None
        self.reports = self.reports or self.paused

    def n_steps(self, seconds: float) -> int:
        """Return the number of steps of a turn of about this length; they then count as taken."""
        n_steps = max(1, round(seconds / self.pace))
        left = self.recorder.n_steps_left
        if left:  # equal turns up to the next frame, as each turn ends with its slowest cohort
            n_steps = math.ceil(left / max(1, round(left / n_steps)))
        if self.steps_left is not None:
            n_steps = min(n_steps, self.steps_left)
            self.steps_left -= n_steps
        return n_steps


@dataclass
class Build:
    """A job whose training is not built yet.

    Attributes:
        start: The command to train it.
        memory: Memory that it may take; None until its experiment is read.
        work: The building; None until it begins.
        steer: The last command to steer the job; None if there was none.
    """

    start: Start
    memory: Allowance | None = None
    work: SlicedWork[tuple[Training, Recorder]] | None = None
    steer: Steer | None = None

    def experiment(self, engine: Engine) -> Experiment:
        """Return the missing runs, or all runs if another maker has trained the finished ones."""
        start = self.start
        same = tuple(start.maker) == Maker.here(pick_device("auto"), engine)
        return from_text(start.missing if same else start.experiment)


def build(experiment: Experiment, engine: Engine) -> tuple[Training, Recorder]:
    """Return a training at step 0, with its film."""
    training = Training(experiment, engine=engine)
    return training, Recorder(training)


@dataclass
class Inquiry:
    """Equal requests, which share one answer; it is computed in the turns of all their senders.

    Attributes:
        work: The computation of the answer.
        memory: Memory that it may take; None until it begins.
        requests: Requests by id.
    """

    work: SlicedWork[bytes]
    memory: Allowance | None = None
    requests: dict[str, Request] = field(default_factory=dict)
