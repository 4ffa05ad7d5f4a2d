"""Jobs of the training service, and the tabs that watch them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnkit.experiment import Experiment
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

if TYPE_CHECKING:
    from attnkit.service.finished_runs import FinishedRuns

State = Literal["waiting", "running", "paused", "finished", "stopped", "failed"]

Verb = Literal["pause", "resume", "step", "stop"]

Opening = Literal["run", "pause", "step"]
"""Action of a job that begins: train, pause at once, or pause at the next evaluation."""


@dataclass(frozen=True)
class Watcher:
    """A tab that submits or watches jobs, with the visitor and the address that limits apply to.

    Attributes:
        tab: Id of the session.
        visitor: Id of the browser; empty if limits of a visitor do not apply.
        address: Address that the browser connects from; empty if limits of an address do not apply.
            It may change, so two watchers with the same tab and visitor are equal.
    """

    tab: str = ""
    visitor: str = ""
    address: str = field(default="", compare=False)


NOBODY = Watcher()
"""A program without a tab, to which no limits of visitors and addresses apply."""


@dataclass(frozen=True, eq=False)
class Job:
    """One submitted experiment in its present state, immutable.

    Times are seconds on the clock of `time.monotonic`; 0 if it has not happened.

    Attributes:
        filmed: The experiment of the one seed that the film shows.
        visitor: Visitor who submitted it; empty if limits of a visitor do not apply.
        address: Address from which it was submitted.
        state: Requested state until the training process has obeyed all commands, then its state.
        opening: What it does when it begins.
        megabytes: Estimated memory.
        begun: Whether the training process has received it; before that it is queued.
        version: Number of changes so far, for `TrainingService.wait`.
        reused: Finished runs of other jobs that it takes over; None if it trains all its runs.
        resumes: Id of the stopped job that it continues; empty if it begins at step 0.
        parameters: Parameters of every run of a finished job; None if they are too large to keep.
        seconds: Training time of this job.
        n_bytes: Size of the last snapshot and the parameters.
        restarts: Number of times that it began anew because the training process died.
        blamed: How often the training process died in this job's turn.
        sent: Number of commands sent after the start.
        obeyed: Number of commands that the training process has obeyed; −1 if a new one has not
            sent anything yet.
        error: Reason why it failed, or was stopped by others than its visitor.
        kept: Whether its result is stored; not if it is trained for its film only.
        stored: Whether the store has the result.
        unstored: Reason why the store does not have it.
        tried_again: Whether storing will be tried again.
        asked_at: Time of submission.
        begun_at: Time when it began.
        paused_at: Time when it was last paused.
        seen_at: Time when a tab last looked at it.
    """

    id: str
    experiment: Experiment
    filmed: Experiment | None = None
    visitor: str = ""
    address: str = ""
    state: State = "waiting"
    opening: Opening = "run"
    megabytes: float = 0.0
    begun: bool = False
    version: int = 0
    snapshot: Snapshot | None = None
    reused: FinishedRuns | None = None
    resumes: str = ""
    parameters: list[dict[str, np.ndarray]] | None = None
    seconds: float = 0.0
    n_bytes: int = 0
    restarts: int = 0
    blamed: int = 0
    sent: int = 0
    obeyed: int = 0
    error: str = ""
    kept: bool = True
    stored: bool = False
    unstored: str = ""
    tried_again: bool = False
    asked_at: float = 0.0
    begun_at: float = 0.0
    paused_at: float = 0.0
    seen_at: float = 0.0

    @property
    def active(self) -> bool:
        """Whether it trains or waits to train."""
        return self.state in ("waiting", "running")

    @property
    def queued(self) -> bool:
        """Whether it has not begun, because others are first."""
        return not self.begun and not self.over

    @property
    def settled(self) -> bool:
        """Whether no more snapshots come without a command."""
        if self.state in ("finished", "failed"):
            return True
        if self.active or self.obeyed != self.sent:
            return False
        return self.state == "stopped" or self.snapshot is not None  # a paused job sends step 0

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in ("finished", "stopped", "failed")

    @property
    def step(self) -> int:
        """Number of steps in the last snapshot."""
        return 0 if self.snapshot is None else self.snapshot.step

    @property
    def trains(self) -> Experiment:
        """The experiment that this job trains, without variants whose runs it takes over."""
        missing = None if self.reused is None else self.reused.missing
        return missing or self.experiment

    @property
    def trainers(self) -> dict[Variant, str]:
        """Variant → id of the job that has trained it."""
        others = {} if self.reused is None else self.reused.trainers
        return {variant: others.get(variant, self.id) for variant in self.experiment.sharing}

    @property
    def result(self) -> Result | None:
        """The finished result; None if its parameters are not in memory."""
        if self.snapshot is None or self.parameters is None:
            return None
        return Result(self.snapshot, self.parameters)

    @property
    def model_steps_per_second(self) -> float:
        """Optimiser steps of single runs per second of training in this job."""
        return self.trains.n_runs * self.step / self.seconds if self.seconds > 0 else 0.0
