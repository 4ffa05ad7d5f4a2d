"""The Lab's buttons of training: Train, Pause, Step, Stop, Reset and New seeds."""

from __future__ import annotations

import streamlit as st

from attnkit.experiment import Experiment
from attnkit.service.jobs import Job
from attnkit.ui.guess import awaits_guess
from attnkit.ui.lab import Lab


def training_buttons(lab: Lab, experiment: Experiment | None, job: Job | None) -> None:
    """Draw the buttons, except those that a class link hides.

    Args:
        lab: The visitor's Lab.
        experiment: Experiment of the widgets; None if they describe none.
        job: Job on screen, if there is one.
    """
    fits = job is not None and job.experiment == experiment
    active = job is not None and job.active
    paused = job is not None and job.state == "paused"
    invalid = experiment is None or awaits_guess(lab)
    all_buttons = "buttons" not in lab.hidden
    st.button(
        _train_label(lab, job, fits=fits),
        type="primary",
        icon=":material/play_arrow:",
        width=168,  # as wide as its longest label, so that the others stay where they are
        on_click=lab.train,
        disabled=invalid or (active and fits),
        key="train",
    )
    if all_buttons:
        st.button(
            "Pause", icon=":material/pause:", on_click=lab.pause, disabled=not active, key="pause"
        )
        st.button(
            "Step",
            icon=":material/skip_next:",
            on_click=lab.step,
            disabled=invalid or active or (paused and lab.held is not None),
            key="step",
            help="Train up to the next evaluation, then pause.",
        )
    st.button(
        "Stop",
        icon=":material/stop:",
        on_click=lab.stop,
        disabled=not (active or paused),
        key="stop",
        help="End this run and keep what it reached.",
    )
    if all_buttons:
        _restart_buttons(lab, disabled=invalid)
    if lab.hidden:
        st.button(
            "Show all controls",
            icon=":material/visibility:",
            type="tertiary",
            on_click=lab.show_all,
            key="show_all",
        )


def _restart_buttons(lab: Lab, *, disabled: bool) -> None:
    """Draw the buttons that train again from step 0."""
    st.button(
        "Reset",
        icon=":material/replay:",
        on_click=lab.reset,
        disabled=disabled,
        key="reset",
        help="Back to step 0: the same weights and the same data again.",
    )
    st.button(
        "New seeds",
        icon=":material/casino:",
        on_click=lab.new_seeds,
        disabled=disabled,
        key="new_seeds",
        help="Other weights and other data, same settings; trains at once.",
    )


def _train_label(lab: Lab, job: Job | None, *, fits: bool) -> str:
    """Return the label of the first button, which says what pressing it does."""
    if awaits_guess(lab):
        return "Guess first"
    if job is None:
        return "Train"
    if not fits:
        return "Train what is new" if lab.n_new else "Train new settings"
    has_steps = job.snapshot is not None and job.snapshot.step > 0
    return "Resume" if job.state in ("paused", "stopped") and has_steps else "Train"
