"""A series of experiments that are trained for a visitor, one after the other."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from attnkit.experiment import Experiment
from attnkit.service.jobs import Job, Watcher
from attnkit.service.service import Refused
from attnkit.training.pace import training_work
from attnkit.training.snapshot import Snapshot
from attnkit.ui.service import FIRST_FRAME_SECONDS, training_service

_STEPS_FOR_ESTIMATE = 20
"""Number of steps after which a job's own speed predicts how long the rest will take."""


@dataclass(kw_only=True)
class Series(ABC):
    """Experiments of one visitor; the next is submitted when the one before it has finished.

    Attributes:
        experiments: The experiments.
        watcher: The visitor, as last known.
        n_finished: Number of finished experiments, which is the index of the one that trains.
        job_id: The job of that experiment, if it was accepted.
        problem: Reason in words why training does not go on; empty while it does.
        seconds: Seconds of training of the finished experiments.
    """

    experiments: Sequence[Experiment]
    watcher: Watcher
    n_finished: int = 0
    job_id: str | None = None
    problem: str = ""
    seconds: float = 0.0
    _work: list[float] = field(init=False, repr=False)
    _begun_at: float = 0.0

    def __post_init__(self) -> None:
        self._work = [training_work(one) for one in self.experiments]

    @property
    def finished(self) -> bool:
        """Whether all experiments are trained."""
        return self.n_finished == len(self.experiments)

    @property
    def moving(self) -> bool:
        """Whether training goes on by itself."""
        return not self.finished and not self.problem

    @property
    def job(self) -> Job | None:
        """The job that trains now."""
        return training_service().look(self.job_id, self.watcher) if self.job_id else None

    @abstractmethod
    def keep(self, snapshot: Snapshot) -> None:
        """Take over what is measured of the experiment that has just finished."""

    def go_on(self) -> None:
        """Submit the next experiment, and note the problem if it is refused."""
        self.problem, service = "", training_service()
        try:
            self.job_id = service.submit(
                self.experiments[self.n_finished], kept=False, watcher=self.watcher
            )
        except Refused as error:
            self.problem = f"Not accepted: {error}."
            return
        self._begun_at = time.monotonic()
        service.wait(self.job_id, 0, FIRST_FRAME_SECONDS, self.watcher)

    def follow(self) -> None:
        """Keep what a finished experiment measured, and submit the next one."""
        if not self.moving:
            return
        job = self.job
        if job is None:
            self.problem = "What was trained has been forgotten here."
        elif job.state == "finished" and job.snapshot is not None:
            self.keep(job.snapshot)
            self.seconds += job.snapshot.seconds
            self.n_finished, self.job_id = self.n_finished + 1, None
            if not self.finished:
                self.go_on()
        elif job.state == "failed":
            self.problem = f"Training failed: {job.error}."
        elif job.state == "stopped":
            self.problem = f"Stopped {job.error}".rstrip() + "."

    def stop(self, reason: str = "Stopped.") -> None:
        """End training; the finished experiments stay, and `go_on` resumes with the next."""
        if self.job_id:
            training_service().turn_away(self.job_id, self.watcher)
        if not self.finished:
            self.problem, self.job_id = reason, None

    def share(self, job: Job | None) -> float:
        """Return the share of the work that is done, from 0 to 1."""
        running = job is not None and not self.finished
        present = self._work[self.n_finished] * _share_of_steps(job) if running else 0.0
        return (sum(self._work[: self.n_finished]) + present) / sum(self._work)

    def seconds_left(self, job: Job | None) -> float | None:
        """Return an estimate of the seconds that are left; None if there is none yet."""
        if job is None or not job.begun or self.finished:
            return None
        done = self._work[self.n_finished] * _share_of_steps(job)
        left = sum(self._work[self.n_finished :]) - done
        if job.step >= _STEPS_FOR_ESTIMATE:
            return (time.monotonic() - max(job.begun_at, self._begun_at)) / done * left
        before = sum(self._work[: self.n_finished])
        return self.seconds / before * left if self.n_finished else None

    def status(self, noun: str = "") -> str:
        """Return how far training is, as a sentence.

        Args:
            noun: Word for one experiment of several.
        """
        n_experiments, job = len(self.experiments), self.job
        training = "Training"
        if n_experiments > 1:
            training = " ".join(f"Training {noun} {self.n_finished + 1} of {n_experiments}".split())
        if job is None or not job.begun:
            outlook = training_service().outlook(job.id) if job is not None else None
            place = f": place {outlook.place} in the queue" if outlook and outlook.place else ""
            return f"{training} waits for its turn{place}."
        left = self.seconds_left(job)
        time_left = "" if left is None else f", about {max(left, 1):.0f} s left"
        return f"{training}: step {job.step} of {job.experiment.training.steps}{time_left}."


def _share_of_steps(job: Job | None) -> float:
    return 0.0 if job is None else job.step / job.experiment.training.steps
