"""A series of experiments that are trained for a visitor, one after the other."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark, tr
from attnkit.service.jobs import Job
from attnkit.training.pace import training_work
from attnkit.training.snapshot import Snapshot
from attnkit.ui.watched_job import WatchedJob, status_of

# Translators: the status of one of several experiments, such as "Step 40 of 300".
STATUS_OF_ONE = mark("{n} of {total}: {status}")
"""Status of one of several experiments."""


@dataclass(kw_only=True)
class Series(WatchedJob, ABC):
    """Experiments of one visitor; the next is submitted when the one before it has finished.

    Attributes:
        n_finished: Number of finished experiments, which is the index of the one that trains.
        problem: Reason in words why training does not go on; empty while it does.
        seconds: Seconds of training of the finished experiments.
    """

    experiments: Sequence[Experiment]
    n_finished: int = 0
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
        """Whether training continues without a press of a button."""
        return not self.finished and not self.problem

    @abstractmethod
    def keep(self, snapshot: Snapshot) -> None:
        """Keep the measurements of the experiment that has just finished."""

    def go_on(self) -> None:
        """Submit the next experiment, and note the problem if it is refused."""
        self.problem = ""
        if self.submit(self.experiments[self.n_finished], kept=False):
            self._begun_at = time.monotonic()
        else:
            self.problem = tr("The experiment was not accepted: {reason}.", reason=self.refusal)

    def follow(self) -> None:
        """Keep what a finished experiment measured, and submit the next one."""
        if not self.moving:
            return
        job = self.job
        if job is None:
            self.problem = tr("What was trained has been forgotten here.")
        elif job.state == "finished" and job.snapshot is not None:
            self.keep(job.snapshot)
            self.seconds += job.snapshot.seconds
            self.n_finished, self.job_id = self.n_finished + 1, None
            if not self.finished:
                self.go_on()
        elif job.state == "failed":
            self.problem = tr("Training failed: {reason}.", reason=tr(job.error))
        elif job.state == "stopped":
            reason = tr(job.error)
            self.problem = tr("Stopped {reason}.", reason=reason) if reason else tr("Stopped.")

    def stop(self, reason: str = "") -> None:
        """End training; the finished experiments stay, and `go_on` resumes with the next."""
        self.leave()
        if not self.finished:
            self.problem = reason or tr("Stopped.")

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
        if job.step >= 20:  # its own speed predicts how long the rest will take
            return (time.monotonic() - max(job.begun_at, self._begun_at)) / done * left
        before = sum(self._work[: self.n_finished])
        return self.seconds / before * left if self.n_finished else None

    def status(self, of_one: str = STATUS_OF_ONE) -> str:
        """Return how far training is, as a sentence."""
        total, job = len(self.experiments), self.job
        status = tr("Waiting.")
        if job is not None:
            status = status_of(job, seconds_left=self.seconds_left(job) or 0.0)
        if total == 1:
            return status
        return tr(of_one, n=self.n_finished + 1, total=total, status=status)


def _share_of_steps(job: Job | None) -> float:
    return 0.0 if job is None else job.step / job.experiment.training.steps
