"""The Lab's buttons of training: Train, Pause, Step, Stop, Reset and New seeds."""

from __future__ import annotations

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.foundation.language import tr
from attnkit.service.jobs import Job
from attnkit.training.joining import can_share_runs
from attnkit.ui.lab.guess import awaits_guess
from attnkit.ui.lab.lab import Lab


def training_buttons(lab: Lab, experiment: Experiment | None, job: Job | None) -> None:
    """Draw the buttons, except those that a class link hides."""
    fits = job is not None and job.experiment == experiment
    active = job is not None and job.active
    paused = job is not None and job.state == "paused"
    invalid = experiment is None or awaits_guess(lab)
    st.button(
        _train_label(lab, job, fits=fits),
        type="primary",
        icon=":material/play_arrow:",
        width=168,  # as wide as its longest label, so that the others stay where they are
        on_click=lab.train,
        disabled=invalid or (active and fits),
        key="train",
    )
    stepping = invalid or active or (paused and lab.private_state is not None)
    step_help = tr("Train up to the next evaluation, then pause.")
    stop_help = tr("End this run and keep what it reached.")
    reset_help = tr("Back to step 0: the same weights and the same data again.")
    seeds_help = tr("Other weights and other data, same settings; trains at once.")
    for key, label, icon, press, disabled, tip in (
        ("pause", tr("Pause"), "pause", lab.pause, not active, None),
        ("step", tr("Step"), "skip_next", lab.step, stepping, step_help),
        ("stop", tr("Stop"), "stop", lab.stop, not (active or paused), stop_help),
        ("reset", tr("Reset"), "replay", lab.reset, invalid, reset_help),
        ("new_seeds", tr("New seeds"), "casino", lab.new_seeds, invalid, seeds_help),
    ):
        if key == "stop" or "buttons" not in lab.hidden:
            icon = f":material/{icon}:"
            st.button(label, icon=icon, on_click=press, disabled=disabled, key=key, help=tip)
    if lab.hidden or lab.unhidden:
        st.button(
            tr("Show all controls") if lab.hidden else tr("Hide controls again"),
            icon=":material/visibility:" if lab.hidden else ":material/visibility_off:",
            type="tertiary",
            on_click=lab.show_all,
            key="show_all",
        )


def _is_seen(lab: Lab, job: Job | None, *, fits: bool) -> bool:
    """Return whether the visitor has seen how these settings train, up to the end."""
    return fits and job is not None and job.state == "finished" and not lab.came_finished


def _train_label(lab: Lab, job: Job | None, *, fits: bool) -> str:
    """Return the label of the first button, which says what pressing it does."""
    if awaits_guess(lab):
        return tr("Guess first")
    # Translators: Label of the button that begins training; the texts that name it say **Train**.
    train = tr("Train")
    if job is None:
        return train
    if not fits:
        keeps_runs = job.state == "finished" and not lab.opens_untrained
        keeps_runs = keeps_runs and can_share_runs(job.experiment, lab.experiment)
        is_partly_new = keeps_runs and bool(lab.lacking(job.experiment))
        return tr("Train what is new") if is_partly_new else tr("Train new settings")
    if _is_seen(lab, job, fits=fits):
        return tr("Train again")
    has_steps = job.snapshot is not None and job.snapshot.step > 0
    return tr("Resume") if job.state in ("paused", "stopped") and has_steps else train
