"""The Lab's status line: what is on screen, how far its training is, and what to press."""

from __future__ import annotations

from attnkit.service.jobs import Job
from attnkit.training.joining import can_share_runs
from attnkit.training.snapshot import Snapshot
from attnkit.ui.lab.guess import awaits_guess
from attnkit.ui.lab.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.ui.server.service import training_time
from attnkit.ui.watched_job import status_of
from attnkit.ui.words import ROLES
from attnkit.variants.catalogue import title_of


def status_line(lab: Lab, job: Job | None, snapshot: Snapshot | None, *, is_valid: bool) -> str:
    """Return one line about the run on screen; Markdown."""
    if job is None:
        return _line_without_job(lab, snapshot, is_valid=is_valid)
    status = status_of(job, snapshot)
    if job.state == "failed":
        return f"{status} Press **Train** to try again."
    if not job.begun:
        advice = {
            "stopped": " Press **Train** to queue it again.",
            "paused": " **Train** takes its place in the queue again.",
        }
        return status + advice.get(job.state, "")
    if snapshot is None or job.snapshot is None:
        return status
    notes = " The training process died and began anew." if job.restarts else ""
    notes += _untrained_note(lab, snapshot)
    if not is_valid:
        notes = " These columns show the last training: your settings cannot be trained."
    if job.unstored:
        yet = " yet" if job.tried_again else ""
        notes = f" Not stored{yet}: {plain(job.unstored)}.{notes}"
    if job.state == "finished" and lab.came_finished:
        time = training_time(snapshot.experiment, reuse=False)
        notes = notes or f" Press **Train** to watch it happen, in {time}."
        status = status.replace("Finished: ", "Trained earlier: ")
    others = " For others who watch, it goes on." if lab.private_state is not None else ""
    return f"{status}{others}{notes}"


def _line_without_job(lab: Lab, snapshot: Snapshot | None, *, is_valid: bool) -> str:
    if not is_valid:
        return "These settings cannot be trained: the reason stands above."
    if snapshot is None:
        guess = "Guess, then press" if awaits_guess(lab) else "Press"
        return f"Not trained yet. {guess} **Train**. It takes {_time_of_settings(lab)}."
    example = (
        f"A finished example: {snapshot.experiment.n_runs} models, "
        f"{snapshot.experiment.training.steps} steps."
    )
    note = _untrained_note(lab, snapshot) or (
        f" Press **Train** to watch it happen. It takes {_time_of_settings(lab)}."
    )
    return f"{example}{note}  \n{ROLES}"


def _time_of_settings(lab: Lab) -> str:
    """Return about how long Train will take for the Lab's settings."""
    return training_time(lab.experiment, reuse=not lab.opens_untrained)


def _untrained_note(lab: Lab, snapshot: Snapshot) -> str:
    """Return which of the chosen variants or settings the columns on screen do not show."""
    if not can_share_runs(snapshot.experiment, lab.experiment):
        return (
            " These columns show the last training, which had other settings. Press **Train** "
            f"to train yours. It takes {_time_of_settings(lab)}."
        )
    lacking = ", ".join(title_of(variant) for variant in lab.lacking(snapshot.experiment))
    if not lacking:
        return ""
    time = _time_of_settings(lab)
    return f" Not trained yet: {plain(lacking)}. Press **Train**. It takes {time}."


def earlier_task_note(snapshot: Snapshot) -> str:
    """Return which task trains the embedding, for a run that starts on an earlier task."""
    turn = snapshot.experiment.training.earlier_steps
    if not turn:
        return ""
    if snapshot.step < turn:
        return f" Until step {turn} the embedding is trained on the earlier question."
    return f" Since step {turn} the embedding is frozen and all else learns the new question."
