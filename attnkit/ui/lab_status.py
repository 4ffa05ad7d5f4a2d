"""The Lab's status line: what is on screen, how far its training is, and what to press."""

from __future__ import annotations

from attnkit.service.jobs import Job
from attnkit.training.joining import can_share_runs
from attnkit.training.snapshot import Snapshot
from attnkit.ui.guess import awaits_guess
from attnkit.ui.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.ui.service import training_service
from attnkit.ui.session import spoken, training_time
from attnkit.ui.words import ROLES
from attnkit.variants.catalogue import title_of


def status_line(lab: Lab, job: Job | None, snapshot: Snapshot | None, *, is_valid: bool) -> str:
    """Return one line about the run on screen; Markdown.

    Args:
        lab: The visitor's Lab.
        job: Job on screen, if there is one.
        snapshot: Snapshot on screen, of the job or of the shipped example.
        is_valid: Whether the widgets describe an experiment.
    """
    if job is None:
        return _line_without_job(lab, snapshot, is_valid=is_valid)
    if job.state == "failed":
        return f"Training failed: {plain(job.error)}. Press **Train** to try again."
    if not job.begun:
        return queue_line(job)
    if job.snapshot is None and job.state == "stopped":
        why = f" {plain(job.error)}" if job.error else ""
        return f"Stopped{why}: Step 0 of {job.experiment.training.steps}."
    if job.snapshot is None:
        return "Starting: the training process is getting ready."
    return _line_of_training(lab, job, job.snapshot, is_valid=is_valid)


def _line_without_job(lab: Lab, snapshot: Snapshot | None, *, is_valid: bool) -> str:
    if not is_valid:
        return "These settings cannot be trained: the reason stands above."
    if snapshot is None:
        guess = "Guess, then press" if awaits_guess(lab) else "Press"
        return f"Not trained yet. {guess} **Train**. It takes {training_time(lab.experiment)}."
    example = (
        f"A finished example: {snapshot.experiment.n_runs} models, "
        f"{snapshot.experiment.training.steps} steps."
    )
    note = _untrained_note(lab, snapshot) or (
        f" Press **Train** to watch it happen. It takes {training_time(lab.experiment)}."
    )
    return f"{example}{note}  \n{ROLES}"


def _untrained_note(lab: Lab, snapshot: Snapshot) -> str:
    """Return which of the chosen variants or settings the columns on screen do not show."""
    if not can_share_runs(snapshot.experiment, lab.experiment):
        return (
            " These columns show the last training, which had other settings. Press **Train** "
            f"to train yours. It takes {training_time(lab.experiment)}."
        )
    lacking = ", ".join(title_of(variant) for variant in lab.lacking(snapshot.experiment))
    if not lacking:
        return ""
    time = training_time(lab.experiment)
    return f" Not trained yet: {plain(lacking)}. Press **Train**. It takes {time}."


def _line_of_training(lab: Lab, job: Job, snapshot: Snapshot, *, is_valid: bool) -> str:
    experiment = snapshot.experiment
    steps, speed = experiment.training.steps, snapshot.model_steps_per_second
    n_runs = experiment.n_runs
    if not job.over:  # finished runs that were taken over do not train
        speed, n_runs = job.model_steps_per_second, job.trains.n_runs
    models = "1 model" if n_runs == 1 else f"{n_runs} models"
    progress = f"Step {snapshot.step} of {steps}, {models}"
    pace = f", {speed:,.0f} model-steps per second" if snapshot.step else ""
    notes = " The training process died and began anew." if job.restarts else ""
    notes += _untrained_note(lab, snapshot)
    if not is_valid:
        notes = " These columns show the last training: your settings cannot be trained."
    if job.state == "finished":
        if job.unstored:
            yet = " yet" if job.tried_again else ""
            notes = f" Not stored{yet}: {plain(job.unstored)}.{notes}"
        if lab.came_finished:
            seconds = f"{snapshot.seconds:.1f} s"
            notes = notes or f" Press **Train** to watch it happen, in {training_time(experiment)}."
            return f"Trained earlier: {steps} steps, {models} in {seconds}.{notes}"
        return f"Finished: {progress} in {snapshot.seconds:.1f} s{pace}.{notes}"
    if job.state in ("paused", "stopped"):
        going = {"paused": "Pausing", "stopped": "Stopping"}[job.state]
        state = job.state.capitalize() if job.settled else going
        why = f" {plain(job.error)}" if job.error else ""
        others = " For others who watch, it goes on." if lab.held is not None else ""
        return f"{state}{why}: {progress}{pace}.{others}{notes}"
    outlook = training_service().outlook(job.id)
    if outlook is not None and outlook.n_active > 1:
        pace = f", about {spoken(outlook.ends)} left: {outlook.n_active} experiments take turns"
    elif speed and snapshot.step and (left := (steps - snapshot.step) * n_runs / speed):
        pace += f", {left:.0f} s left" if left >= 1 else ""
    return f"{progress}{pace}.{notes}"


def queue_line(job: Job) -> str:
    """Return the position in the queue of a job that has not begun, and when it will begin."""
    if job.state == "stopped":
        why = f", {plain(job.error)}" if job.error else ""
        return f"Stopped before its turn came{why}. Press **Train** to queue it again."
    if job.state == "paused":
        return "Paused before its turn came. **Train** takes its place in the queue again."
    outlook = training_service().outlook(job.id)
    if outlook is None or not outlook.place:
        return "Starting: its turn has come."
    if outlook.begins == float("inf"):
        return f"Waiting: place {outlook.place}, behind experiments that are paused."
    n_active = outlook.n_active
    training = "1 experiment trains" if n_active == 1 else f"{n_active} experiments train"
    return (
        f"Waiting: place {outlook.place} in the queue, begins in about "
        f"{spoken(outlook.begins)}. {training} now."
    )


def earlier_task_note(snapshot: Snapshot) -> str:
    """Return which task trains the embedding, for a run that starts on an earlier task."""
    turn = snapshot.experiment.training.earlier_steps
    if not turn:
        return ""
    if snapshot.step < turn:
        return f" Until step {turn} the embedding is trained on the earlier question."
    return f" Since step {turn} the embedding is frozen and all else learns the new question."
