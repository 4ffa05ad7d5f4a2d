"""The Lab's status line: what is on screen, how far its training is, and what to press."""

from __future__ import annotations

from attnkit.foundation.language import tr, tr_n
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
    came_finished = job.state == "finished" and lab.came_finished
    status = status_of(job, snapshot, came_finished=came_finished)
    if job.state == "failed":
        return " ".join([status, tr("Press **Train** to try again.")])
    if not job.begun:
        advice = {
            "stopped": tr("Press **Train** to queue it again."),
            "paused": tr("**Train** takes its place in the queue again."),
        }
        return " ".join(filter(None, [status, advice.get(job.state)]))
    if snapshot is None or job.snapshot is None:
        return status
    notes = [tr("The training was interrupted and began anew.")] if job.restarts else []
    notes += _untrained_note(lab, snapshot)
    if not is_valid:
        notes = [tr("These columns show the last training: your settings cannot be trained.")]
    if job.unstored:
        notes.insert(0, _unstored_note(job))
    if came_finished and not notes:
        time = training_time(snapshot.experiment, reuse=False)
        notes = [tr("Press **Train** to watch it happen, in {time}.", time=time)]
    others = [tr("For others who watch, it goes on.")] if lab.private_state is not None else []
    return " ".join([status, *others, *notes])


def _unstored_note(job: Job) -> str:
    """Return why the result of a job is not stored."""
    reason = plain(tr(job.unstored))
    if job.tried_again:
        return tr("Not stored yet: {reason}.", reason=reason)
    return tr("Not stored: {reason}.", reason=reason)


def _line_without_job(lab: Lab, snapshot: Snapshot | None, *, is_valid: bool) -> str:
    if not is_valid:
        return tr("These settings cannot be trained: the reason stands above.")
    if snapshot is None:
        advice = tr("Not trained yet. Press **Train**.")
        if awaits_guess(lab):
            advice = tr("Not trained yet. Guess, then press **Train**.")
        return f"{advice} {_time_it_takes(lab)}"
    example = tr_n(
        "A finished example: {n} model, {steps} steps.",
        "A finished example: {n} models, {steps} steps.",
        snapshot.experiment.n_runs,
        steps=snapshot.experiment.training.steps,
    )
    notes = _untrained_note(lab, snapshot) or [
        tr("Press **Train** to watch it happen."),
        _time_it_takes(lab),
    ]
    return f"{' '.join([example, *notes])}  \n{tr(ROLES)}"


def _time_it_takes(lab: Lab) -> str:
    """Return about how long Train will take for the Lab's settings, as a sentence."""
    return tr("It takes {time}.", time=training_time(lab.experiment, reuse=not lab.opens_untrained))


def _untrained_note(lab: Lab, snapshot: Snapshot) -> list[str]:
    """Return sentences about variants or settings that the columns on screen do not show."""
    if not can_share_runs(snapshot.experiment, lab.experiment):
        note = tr(
            "These columns show the last training, which had other settings. Press **Train** to "
            "train yours."
        )
        return [note, _time_it_takes(lab)]
    lacking = ", ".join(title_of(variant) for variant in lab.lacking(snapshot.experiment))
    if not lacking:
        return []
    note = tr("Not trained yet: {names}. Press **Train**.", names=plain(lacking))
    return [note, _time_it_takes(lab)]


def earlier_task_note(snapshot: Snapshot) -> str:
    """Return which task trains the embedding, for a run that starts on an earlier task."""
    turn = snapshot.experiment.training.earlier_steps
    if not turn:
        return ""
    if snapshot.step < turn:
        return tr("Until step {step} the embedding is trained on the earlier question.", step=turn)
    return tr(
        "Since step {step} the embedding is frozen and all else learns the new question.",
        step=turn,
    )
