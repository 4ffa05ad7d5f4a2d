"""A job of the training service that one visitor watches, and its status in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.service.jobs import NOBODY, Job, Watcher
from attnkit.service.service import Refused
from attnkit.training.pace import duration_in_words
from attnkit.training.snapshot import Snapshot
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import FIRST_FRAME_SECONDS, training_service
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
            experiment: The experiment.
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
        service.wait(job_id, 0, FIRST_FRAME_SECONDS, self.watcher)
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
        st.warning(f"The experiment was not accepted: {plain(watched.refusal)}.")
        watched.refusal = ""


def moves(job: Job | None) -> bool:
    """Return whether new snapshots of a job come by themselves, without a command."""
    return job is not None and not job.settled


def live(draw: Callable[[], None], jobs: Callable[[], list[Job | None]], seconds: float) -> None:
    """Draw an area again and again while jobs train, and the whole page when one begins or ends.

    Args:
        draw: Draws the area.
        jobs: Returns the jobs as they are now.
        seconds: Seconds between two drawings.
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


def status_of(job: Job, snapshot: Snapshot | None = None, seconds_left: float = 0.0) -> str:
    """Return the status of a job as one sentence in Markdown.

    Args:
        job: The job.
        snapshot: The snapshot on screen; None for the newest of the job.
        seconds_left: Seconds that are left, if the job is one of several; 0 for those of the job.
    """
    snapshot, steps = snapshot or job.snapshot, job.experiment.training.steps
    why = f" {plain(job.error)}" if job.error else ""
    if job.state == "failed":
        return f"Training failed:{why}."
    if not job.begun:
        return _place_in_queue(job)
    if snapshot is None:
        is_stopped = job.state == "stopped"
        starting = "Starting: the training process is getting ready."
        return f"Stopped{why}: Step 0 of {steps}." if is_stopped else starting
    speed, n_runs = snapshot.model_steps_per_second, snapshot.experiment.n_runs
    if not job.over:  # finished runs that were taken over do not train
        speed, n_runs = job.model_steps_per_second, job.trains.n_runs
    models = "1 model" if n_runs == 1 else f"{n_runs} models"
    progress = f"Step {snapshot.step} of {steps}, {models}"
    pace = f", {speed:,.0f} model-steps per second" if snapshot.step else ""
    if job.state == "finished":
        return f"Finished: {progress} in {snapshot.seconds:.1f} s{pace}."
    if job.state in ("paused", "stopped"):
        going = {"paused": "Pausing", "stopped": "Stopping"}[job.state]
        return f"{job.state.capitalize() if job.settled else going}{why}: {progress}{pace}."
    outlook = training_service().outlook(job.id)
    if seconds_left:
        pace = f", about {duration_in_words(seconds_left)} left"
    elif outlook is not None and outlook.n_active > 1:
        left = duration_in_words(outlook.ends)
        pace = f", about {left} left: {outlook.n_active} experiments take turns"
    elif speed and snapshot.step and (left_here := (steps - snapshot.step) * n_runs / speed) >= 1:
        pace += f", about {duration_in_words(left_here)} left"
    return f"{progress}{pace}."


def _place_in_queue(job: Job) -> str:
    """Return the position in the queue of a job that has not begun, and when it will begin."""
    if job.state in ("paused", "stopped"):
        why = f", {plain(job.error)}" if job.error else ""
        return f"{job.state.capitalize()} before its turn came{why}."
    outlook = training_service().outlook(job.id)
    if outlook is None or not outlook.place:
        return "Starting: its turn has come."
    if outlook.begins == float("inf"):
        return f"Waiting: place {outlook.place}, behind experiments that are paused."
    n_active = outlook.n_active
    training = "1 experiment trains" if n_active == 1 else f"{n_active} experiments train"
    return (
        f"Waiting: place {outlook.place} in the queue, begins in about "
        f"{duration_in_words(outlook.begins)}. {training} now."
    )
