"""Runs of a claim in its quick form, trained for a visitor on new seeds."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import streamlit as st

from attnkit import __version__
from attnkit.claims import Claim, Verdict
from attnkit.evidence.record import Evidence
from attnkit.evidence.trials import Trial, Tuned, comparing_trials
from attnkit.service.jobs import Job, Watcher
from attnkit.service.service import Refused
from attnkit.training.snapshot import Snapshot
from attnkit.ui.service import FIRST_FRAME_SECONDS, training_service

FIRST_SEED, LAST_SEED = 10_000, 800_000
"""The seeds of visitors' runs, beyond those of shipped evidence and below those of tuning."""

_STEPS_FOR_ESTIMATE = 20
"""Number of steps after which a job's own speed predicts how long the rest will take."""

_Scores = dict[str, dict[str, np.ndarray]]


@dataclass
class ClaimRerun:
    """One claim on new seeds; its experiments train one after the other.

    Attributes:
        claim: The claim.
        trials: The experiments.
        tuned: Tuned learning rate by arm, of the arms whose rate is shipped.
        watcher: The visitor, as last known.
        guess: The verdict that the visitor guessed, if any.
        trial_index: Index of the trial that trains now; their number once all are trained.
        job_id: The job of that trial, if it was accepted.
        problem: Reason in words why training does not go on; empty while it does.
        seconds: Seconds of training of the finished trials.
    """

    claim: Claim
    trials: list[Trial]
    tuned: Mapping[str, Tuned]
    watcher: Watcher
    guess: Verdict | None = None
    trial_index: int = 0
    job_id: str | None = None
    problem: str = ""
    seconds: float = 0.0
    _scores: _Scores = field(default_factory=dict)
    _begun_at: float = 0.0
    _drawn: tuple[object, Evidence] | None = None

    @property
    def finished(self) -> bool:
        """Whether all trials are trained."""
        return self.trial_index == len(self.trials)

    @property
    def moving(self) -> bool:
        """Whether training goes on by itself."""
        return not self.finished and not self.problem

    @property
    def job(self) -> Job | None:
        """The job that trains now."""
        return training_service().look(self.job_id, self.watcher) if self.job_id else None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds; some arms may have only the first of them."""
        return max((tuple(trial.experiment.seeds) for trial in self.trials), key=len)

    @property
    def untuned(self) -> bool:
        """Whether some arm has its task's own learning rate, because none is tuned."""
        return any(arm.name not in self.tuned for arm in self.claim.judged_arms)

    def go_on(self) -> None:
        """Submit the next experiment, and note the problem if it is refused."""
        self.problem, service = "", training_service()
        try:
            self.job_id = service.submit(
                self.trials[self.trial_index].experiment, kept=False, watcher=self.watcher
            )
        except Refused as error:
            self.problem = f"Not accepted: {error}."
            return
        self._begun_at = time.monotonic()
        service.wait(self.job_id, 0, FIRST_FRAME_SECONDS, self.watcher)

    def follow(self) -> None:
        """Take over the scores of a trial that has finished, and submit the next experiment."""
        if not self.moving:
            return
        job = self.job
        if job is None:
            self.problem = "What was trained has been forgotten here."
        elif job.state == "finished" and job.snapshot is not None:
            self._scores |= self.trials[self.trial_index].scores(job.snapshot)
            self.seconds += job.snapshot.seconds
            self.trial_index, self.job_id = self.trial_index + 1, None
            if not self.finished:
                self.go_on()
        elif job.state == "failed":
            self.problem = f"Training failed: {job.error}."
        elif job.state == "stopped":
            self.problem = f"Stopped {job.error}".rstrip() + "."

    def stop(self) -> None:
        """End the run; the finished trials stay."""
        if self.job_id:
            training_service().turn_away(self.job_id, self.watcher)
        if not self.finished:
            self.problem, self.job_id = "Stopped.", None

    def evidence(self) -> Evidence:
        """Return what has been measured by now, including the experiment that trains.

        Arms that are not trained yet lack seeds. The same object is returned until there is more.
        """
        job = None if self.finished else self.job
        if job is None and not self.finished and self._drawn is not None:
            return self._drawn[1]  # the run was stopped, and its job is gone
        snapshot = None if job is None else job.snapshot
        if self._drawn is None or self._drawn[0] != (self.trial_index, id(snapshot)):
            self._drawn = (self.trial_index, id(snapshot)), self._evidence(snapshot)
        return self._drawn[1]

    def _evidence(self, snapshot: Snapshot | None) -> Evidence:
        unfinished = {} if snapshot is None else self.trials[self.trial_index].scores(snapshot)
        measured = {**self._scores, **unfinished}
        measures = sorted({"accuracy", "loss", *(s.measure for s in self.claim.statements)})
        nothing = np.zeros((1, 0))
        return Evidence(
            claim=self.claim,
            version=__version__,
            hash=self.claim.hash,
            quick=True,
            seeds=self.seeds,
            scores={
                arm.name: {name: measured.get(arm.name, {}).get(name, nothing) for name in measures}
                for arm in self.claim.judged_arms
            },
            tuned=self.tuned,
            experiments=tuple(trial.experiment.to_text() for trial in self.trials),
            model_steps=model_steps(self.trials),
            seconds=self.seconds,
        )

    def share(self, job: Job | None) -> float:
        """Return the share of the work that is done, from 0 to 1."""
        work = [_work(trial) for trial in self.trials]
        running = job is not None and not self.finished
        present = work[self.trial_index] * _share_of_steps(job) if running else 0.0
        return (sum(work[: self.trial_index]) + present) / sum(work)

    def seconds_left(self, job: Job | None) -> float | None:
        """Return an estimate of the seconds that are left; None if there is none yet."""
        if job is None or not job.begun or self.finished:
            return None
        work = [_work(trial) for trial in self.trials]
        done = work[self.trial_index] * _share_of_steps(job)
        left = sum(work[self.trial_index :]) - done
        if job.step >= _STEPS_FOR_ESTIMATE:
            return (time.monotonic() - max(job.begun_at, self._begun_at)) / done * left
        return self.seconds / sum(work[: self.trial_index]) * left if self.trial_index else None


def _work(trial: Trial) -> float:
    """Return the cost of the steps of a trial, in the unit of `Job.work`."""
    return trial.experiment.training.steps * trial.experiment.megabytes


def _share_of_steps(job: Job | None) -> float:
    return 0.0 if job is None else job.step / job.experiment.training.steps


def model_steps(trials: list[Trial]) -> int:
    """Return the number of optimiser steps of single models in all trials."""
    return sum(t.experiment.n_runs * t.experiment.training.steps for t in trials)


def quick_trials(claim: Claim, shipped: Evidence | None, first_seed: int) -> list[Trial]:
    """Return the trials of a claim's quick form, at shipped learning rates or the tasks' own."""
    rates = {} if shipped is None else {name: tuned.rate for name, tuned in shipped.tuned.items()}
    return comparing_trials(claim.judged_arms, rates, claim.quick_seeds, first_seed)


def fresh_seed(n_seeds: int) -> int:
    """Return the first of `n_seeds` random consecutive seeds, most likely never used before."""
    return FIRST_SEED + n_seeds * secrets.randbelow((LAST_SEED - FIRST_SEED) // n_seeds)


@dataclass
class ClaimReruns:
    """The newest run of every claim of one visitor. At most one trains.

    Attributes:
        known: Newest run by the claim's id.
        moving: The run that trains, if any.
    """

    known: dict[str, ClaimRerun] = field(default_factory=dict)
    moving: ClaimRerun | None = None

    @property
    def job_id(self) -> str | None:
        """The job that trains for this visitor."""
        return None if self.moving is None else self.moving.job_id

    def begin(
        self, claim: Claim, shipped: Evidence | None, watcher: Watcher, guess: Verdict | None
    ) -> None:
        """Train a claim on new seeds, and stop the run that trained for this visitor before."""
        self.stop()
        trials = quick_trials(claim, shipped, fresh_seed(claim.quick_seeds))
        names = {arm.name for arm in claim.judged_arms}
        tuned = {} if shipped is None else {n: t for n, t in shipped.tuned.items() if n in names}
        rerun = self.known[claim.id] = self.moving = ClaimRerun(
            claim, trials, tuned, watcher, guess
        )
        rerun.go_on()

    def follow(self, watcher: Watcher) -> None:
        """Follow the run that trains, whichever claim is on screen."""
        if self.moving is not None:
            self.moving.watcher = watcher
            self.moving.follow()
            if not self.moving.moving:
                self.moving = None

    def go_on(self, rerun: ClaimRerun, watcher: Watcher) -> None:
        """Resume a run that stands still, with the same seeds."""
        if self.moving is not rerun:
            self.stop()
        self.moving, rerun.watcher = rerun, watcher
        rerun.go_on()

    def stop(self) -> None:
        """Stop the run that trains."""
        if self.moving is not None:
            self.moving.stop()
        self.moving = None


def open_reruns() -> ClaimReruns:
    """Return the runs of this visitor."""
    reruns: ClaimReruns = st.session_state.setdefault("reruns", ClaimReruns())
    return reruns
