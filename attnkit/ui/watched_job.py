"""Jobs that one visitor watches, alone or one after the other, and their status in a sentence."""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.service.jobs import NOBODY, Job, Watcher
from attnkit.service.service import MAX_RESTARTS, Refused
from attnkit.training.pace import duration_in_words, training_work
from attnkit.training.snapshot import Snapshot
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_service
from attnkit.ui.server.turns import fragment


@dataclass(kw_only=True)
class WatchedJob:
    """A job that trains for a visitor, who can begin, pause and stop it.

    Attributes:
        watcher: This tab, as last known.
        job_id: The job, if one was begun or found.
        private_state: The job as this visitor has paused or stopped it, while it goes on for
            others; None if it is shown as it is.
        refusal: Reason why the last experiment was refused; shown once.
    """

    watcher: Watcher = NOBODY
    job_id: str | None = None
    private_state: Job | None = None
    refusal: str = ""

    @property
    def job(self) -> Job | None:
        """The job as it is now; None if there is none, or the service has forgotten it."""
        if self.private_state is not None:
            return self.private_state
        return training_service().job(self.job_id, self.watcher) if self.job_id else None

    def submit(self, experiment: Experiment, **options: Any) -> bool:
        """Train an experiment in place of the present job, and return whether it was accepted.

        If it is refused, the present job stays.

        Args:
            options: Further arguments of `TrainingService.submit`.
        """
        service = training_service()
        try:
            job_id = service.submit(
                experiment, watcher=self.watcher, replaces=self.job_id, **options
            )
        except Refused as error:
            self.refusal = str(error)
            return False
        self.watch(job_id)
        service.wait(job_id, 0, 0.3, self.watcher)  # so that a snapshot shows without a tick
        return True

    def watch(self, job_id: str) -> None:
        """Put a job in the place of the present one."""
        if job_id != self.job_id:
            self.leave()
        self.job_id, self.private_state, self.refusal = job_id, None, ""

    def pause(self) -> None:
        """Pause the job; if others watch it, only for this visitor."""
        job = self.job
        if job is not None and self._is_shared:
            self.private_state = replace(job, state="paused", obeyed=job.sent)
        elif job is not None:
            training_service().pause(job.id)

    def stop(self) -> None:
        """Stop the job and keep its last state; it goes on for others who watch it."""
        job = self.job
        if job is not None and self._is_shared:
            self.private_state = replace(job, state="stopped", obeyed=job.sent)
            training_service().stop_watching(job.id, self.watcher)
        elif job is not None:
            self.private_state = None
            training_service().stop(job.id)

    def leave(self) -> None:
        """Take the job off the screen; it ends if nobody else watches it."""
        if self.job_id:
            training_service().stop_watching(self.job_id, self.watcher)
        self.job_id, self.private_state = None, None

    @property
    def _is_shared(self) -> bool:
        """Whether others watch the job, so that this visitor may not pause it for all."""
        return self.job_id is not None and training_service().is_shared(self.job_id, self.watcher)


def show_refusal(watched: WatchedJob) -> None:
    """Show once the reason why an experiment was refused."""
    if watched.refusal:
        refusal = plain(watched.refusal)
        st.warning(tr("The experiment was not accepted: {reason}.", reason=refusal))
        watched.refusal = ""


def moves(job: Job | None) -> bool:
    """Return whether new snapshots of a job come by themselves, without a command."""
    return job is not None and not job.settled


def live(draw: Callable[[], None], jobs: Callable[[], list[Job | None]], seconds: float) -> None:
    """Draw an area again and again while jobs train, and the whole page when one begins or ends.

    Args:
        jobs: Returns the jobs as they are now.
    """

    def state() -> list[tuple[str, bool]]:
        return [(job.id, moves(job)) for job in jobs() if job is not None]

    drawn = state()

    @partial(fragment, run_every=seconds if any(moving for _, moving in drawn) else None)
    def area() -> None:
        draw()
        if state() != drawn:
            st.rerun()

    area()


def status_of(
    job: Job,
    snapshot: Snapshot | None = None,
    seconds_left: float = 0.0,
    *,
    came_finished: bool = False,
) -> str:
    """Return the status of a job as one sentence in Markdown.

    Args:
        snapshot: The snapshot on screen; None for the newest of the job.
        seconds_left: Seconds that are left, if the job is one of several; 0 for those of the job.
        came_finished: Whether the job was finished before the visitor could watch it.
    """
    snapshot, steps = snapshot or job.snapshot, job.experiment.training.steps
    if job.state == "failed":
        return tr("Training failed: {reason}.", reason=_reason(job))
    if not job.begun:
        return _place_in_queue(job)
    if snapshot is None:
        if job.state != "stopped":
            return tr("Starting: the training process is getting ready.")
        return _held(job, "stopped", tr("Step 0 of {steps}", steps=steps))
    speed, n_runs = snapshot.model_steps_per_second, snapshot.experiment.n_runs
    if not job.over:  # finished runs that were taken over do not train
        speed, n_runs = job.model_steps_per_second, job.trains.n_runs
    pace = [tr("{speed:,.0f} model-steps per second", speed=speed)] if snapshot.step else []
    if job.state == "finished":
        taken = tr_n(
            "Step {step} of {steps}, {n} model in {seconds:.1f} s",
            "Step {step} of {steps}, {n} models in {seconds:.1f} s",
            n_runs,
            step=snapshot.step,
            steps=steps,
            seconds=snapshot.seconds,
        )
        progress = ", ".join([taken, *pace])
        if came_finished:
            return tr("Trained earlier: {progress}.", progress=progress)
        return tr("Finished: {progress}.", progress=progress)
    progress = tr_n(
        "Step {step} of {steps}, {n} model",
        "Step {step} of {steps}, {n} models",
        n_runs,
        step=snapshot.step,
        steps=steps,
    )
    if job.state in ("paused", "stopped"):
        going = {"paused": "pausing", "stopped": "stopping"}[job.state]
        return _held(job, job.state if job.settled else going, ", ".join([progress, *pace]))
    outlook = training_service().outlook(job.id)
    if seconds_left:
        pace = [tr("about {time} left", time=duration_in_words(seconds_left))]
    elif outlook is not None and outlook.n_active > 1:
        turns = tr_n(
            "about {time} left: {n} experiment takes turns",
            "about {time} left: {n} experiments take turns",
            outlook.n_active,
            time=duration_in_words(outlook.ends),
        )
        pace = [turns]
    elif speed and snapshot.step and (left_here := (steps - snapshot.step) * n_runs / speed) >= 1:
        pace.append(tr("about {time} left", time=duration_in_words(left_here)))
    return f"{', '.join([progress, *pace])}."


def _reason(job: Job) -> str:
    """Return why a job failed or was stopped, in Markdown; empty if its visitor has stopped it."""
    return plain(tr(job.error))


def _held(job: Job, state: str, progress: str) -> str:
    """Return the status of a job that is paused or stopped, or about to be."""
    reason = _reason(job)
    if reason:
        return tr(_HELD_WITH_REASON[state], reason=reason, progress=progress)
    return tr(_HELD[state], progress=progress)


_HELD = {
    "paused": mark("Paused: {progress}."),
    "pausing": mark("Pausing: {progress}."),
    "stopped": mark("Stopped: {progress}."),
    "stopping": mark("Stopping: {progress}."),
}

_HELD_WITH_REASON = {
    # Translators: The reason is one such as "because nobody watched it".
    "paused": mark("Paused {reason}: {progress}."),
    "pausing": mark("Pausing {reason}: {progress}."),
    "stopped": mark("Stopped {reason}: {progress}."),
    "stopping": mark("Stopping {reason}: {progress}."),
}


def _place_in_queue(job: Job) -> str:
    reason = _reason(job)
    if job.state == "paused":
        if reason:
            return tr("Paused before its turn came, {reason}.", reason=reason)
        return tr("Paused before its turn came.")
    if job.state == "stopped":
        if reason:
            return tr("Stopped before its turn came, {reason}.", reason=reason)
        return tr("Stopped before its turn came.")
    outlook = training_service().outlook(job.id)
    if outlook is None or not outlook.place:
        return tr("Starting: its turn has come.")
    place = outlook.place
    if outlook.begins == float("inf"):
        return tr("Waiting: place {place}, behind experiments that are paused.", place=place)
    begins = tr(
        "Waiting: place {place} in the queue, begins in about {time}.",
        place=place,
        time=duration_in_words(outlook.begins),
    )
    training = tr_n("{n} experiment trains now.", "{n} experiments train now.", outlook.n_active)
    return f"{begins} {training}"


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

    @cached_property
    def hash(self) -> str:
        """Hash of the experiments in their order."""
        hashes = "".join(experiment.hash for experiment in self.experiments)
        return hashlib.blake2b(hashes.encode(), digest_size=8).hexdigest()

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
        training_service().note_begin(self.hash, self.watcher)
        if self.submit(self.experiments[self.n_finished], kept=False):
            self._begun_at = time.monotonic()
        else:
            self._end(tr("The experiment was not accepted: {reason}.", reason=self.refusal))

    def _end(self, problem: str = "") -> None:
        self.problem = problem
        training_service().note_end(self.hash)

    def take_up(self) -> None:
        """Begin anew if the server died while the series was trained for this visitor.

        Equal seeds give equal numbers.
        """
        if 0 < training_service().interrupted(self.watcher).get(self.hash, 0) <= MAX_RESTARTS:
            self.go_on()

    def follow(self) -> None:
        """Keep what a finished experiment measured, and submit the next one."""
        if not self.moving:
            return
        job = self.job
        if job is None:
            self._end(tr("What was trained has been forgotten here."))
        elif job.state == "finished" and job.snapshot is not None:
            self.keep(job.snapshot)
            self.seconds += job.snapshot.seconds
            self.n_finished, self.job_id = self.n_finished + 1, None
            if self.finished:
                self._end()
            else:
                self.go_on()
        elif job.state == "failed":
            self._end(tr("Training failed: {reason}.", reason=tr(job.error)))
        elif job.state == "stopped":
            reason = tr(job.error)
            self._end(tr("Stopped {reason}.", reason=reason) if reason else tr("Stopped."))

    def stop(self, reason: str = "") -> None:
        """End training; the finished experiments stay, and `go_on` resumes with the next."""
        self.leave()
        if not self.finished:
            self._end(reason or tr("Stopped."))

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
