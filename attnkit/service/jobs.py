"""A job: one experiment that was asked for, as it is at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnkit.experiment import Experiment
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.variants import Variant

if TYPE_CHECKING:
    from attnkit.service.finished_runs import Known

State = Literal["waiting", "running", "paused", "finished", "stopped", "failed"]

Verb = Literal["pause", "resume", "step", "stop"]

Opening = Literal["run", "pause", "step"]
"""What a job does once its turn has come."""


@dataclass(frozen=True)
class Watcher:
    """Who asks and looks: a tab, and the browser and the address that limits count for.

    Attributes:
        tab: One session.
        visitor: One browser; empty if limits of a visitor do not apply.
        address: Where the browser connects from; empty if limits of an address do not apply. It
            may change, so two watchers with the same tab and visitor are equal.
    """

    tab: str = ""
    visitor: str = ""
    address: str = field(default="", compare=False)


NOBODY = Watcher()


@dataclass(frozen=True, eq=False)
class Job:
    """A job as it is now: an immutable view.

    Attributes:
        filmed: the experiment of the one seed that its film shows.
        visitor: who asked for it; empty: nobody whom limits concern.
        address: The address that asked for it.
        megabytes: memory it takes, estimated.
        opening: what it does once its turn has come.
        begun: whether the training process has been given it; until then it stands in the queue.
        version: counts up with every change, for `TrainingService.wait`.
        sent: commands given after the start. obeyed: those the training process has confirmed;
            until all are, the state is what was asked for.
        restarts: how often the training process died under it. blamed: how often in its own turn.
        error: why it failed, or was stopped unasked.
        kept: whether its result is to be stored: not of what was trained only to be filmed.
        stored: whether the store has it. unstored: why not, if it should.
        tried_again: whether it will be tried again.
        known: Finished runs that it takes over from other jobs; None if it trains all its runs.
        resumes: Id of the stopped job that it goes on with; empty if it begins at step 0.
        parameters: Of every run, once it is finished; None if they are too large to be kept here.
        seconds: Time spent training in this job.
        n_bytes: Of the last snapshot and the parameters.
        seen_at: when it was last looked at, on the clock of `time.monotonic`, as the others:
        asked_at: when it was submitted. begun_at: when its turn came. paused_at: when it was
            paused last.
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
    known: Known | None = None
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
        """Whether it trains, or is about to."""
        return self.state in ("waiting", "running")

    @property
    def queued(self) -> bool:
        """Whether others train before it."""
        return not self.begun and not self.over

    @property
    def settled(self) -> bool:
        """Whether no more snapshots come by themselves."""
        if self.state in ("finished", "failed"):
            return True
        if self.active or self.obeyed != self.sent:
            return False
        return self.state == "stopped" or self.snapshot is not None  # step 0 of what is paused

    @property
    def over(self) -> bool:
        """Whether nothing can come any more."""
        return self.state in ("finished", "stopped", "failed")

    @property
    def step(self) -> int:
        """Steps taken."""
        return 0 if self.snapshot is None else self.snapshot.step

    @property
    def trains(self) -> Experiment:
        """The experiment that this job trains: without the variants that are known."""
        missing = None if self.known is None else self.known.missing
        return missing or self.experiment

    @property
    def trainers(self) -> dict[Variant, str]:
        """The id of the job that has trained each variant."""
        known = {} if self.known is None else self.known.trainers
        return {variant: known.get(variant, self.id) for variant in self.experiment.sharing}

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

    @property
    def work(self) -> float:
        """What all its steps cost, in an arbitrary unit that is the same for all experiments."""
        return work_of(self.trains)


def work_of(experiment: Experiment) -> float:
    """Return what the steps of an experiment cost, in the unit of `Job.work`."""
    return experiment.training.steps * experiment.megabytes
