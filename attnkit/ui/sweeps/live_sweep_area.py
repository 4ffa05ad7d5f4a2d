"""The form of a sweep that a visitor runs, and its progress while it trains."""

from __future__ import annotations

from functools import partial

import streamlit as st

from attnkit.sweeps import Sweep
from attnkit.sweeps.specification import InvalidSweep
from attnkit.tasks import TASKS, task_named
from attnkit.ui.lab.controls import labels_of
from attnkit.ui.lab.lab import Lab
from attnkit.ui.markdown import plain
from attnkit.ui.server.presence import watcher
from attnkit.ui.server.turns import fragment
from attnkit.ui.sweeps.choice import OWN, CapacityChoice
from attnkit.ui.sweeps.live_sweep import (
    MOST_VARIANTS,
    PAUSED,
    STOPPED,
    LiveSweep,
    SweepForm,
    axes_of,
    begin_live_sweep,
    estimate_in_words,
    on_screen,
    open_live_sweep,
    problems_here,
)
from attnkit.ui.widgets import bound
from attnkit.variants import CATALOGUE, Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.sharing import Sharing

MOST_SEEDS = 10
"""Largest number of seeds of a sweep that runs live."""

MOST_STEPS = 5_000
"""Largest number of steps of a sweep that runs live."""

VALUES_HELP = "A list such as 2, 4, 8; or a range such as 2 … 64, in which each value is doubled."


def sweep_form_area(choice: CapacityChoice) -> None:
    """Draw the form of a sweep of the visitor's own."""
    form: SweepForm = st.session_state.setdefault("sweep_form", SweepForm())
    with st.container(border=True, key="sweep_form_area"):
        fragment(_form_area)(form, choice)


def _form_area(form: SweepForm, choice: CapacityChoice) -> None:
    """Draw the form, what it would train, and the button that trains it."""
    _inputs(form)
    message = ""
    try:
        sweep = form.sweep()
        message = " ".join(problems_here(sweep))
    except InvalidSweep as error:
        sweep, message = None, on_screen(error, form.task)
    if message:
        st.error(plain(message), icon=":material/error:")
    elif sweep is not None:
        source = "are those of the Lab" if form.own else "are the task’s own"
        st.caption(
            f"{estimate_in_words(sweep)} All variants have the task’s own learning rate, seeds "
            f"count up from 0, and all other settings {source}."
        )
    live = open_live_sweep()
    if live is not None and live.moving:
        st.caption("A sweep of yours is training. It stops if you run this one.")
    # No callback: a button that its own press disables would not report the press.
    if st.button(
        "Run it now",
        type="primary",
        icon=":material/play_arrow:",
        disabled=bool(message),
        key="run_sweep",
    ):
        assert sweep is not None
        begin_live_sweep(sweep, watcher())
        choice.sweep, choice.section = OWN, ""  # its diagram comes into sight
        st.rerun()
    if sweep is not None:
        on_the_command_line(sweep)


def _inputs(form: SweepForm) -> None:
    """Draw the fields of the form."""
    lab: Lab | None = st.session_state.get("lab")
    with st.container(horizontal=True):
        st.selectbox(
            "Task",
            form.offer(lab.experiment.task) if lab is not None else list(TASKS),
            format_func=lambda name: task_named(name).title,
            width=260,
            **bound(form, "task", "form_task", form.set_task),
        )
        are_axis = "steps" in (form.first, form.second)
        steps, seeds = bound(form, "steps", "form_steps"), bound(form, "n_seeds", "form_seeds")
        st.number_input("Steps", 1, MOST_STEPS, disabled=are_axis, width=130, **steps)
        st.number_input("Seeds", 1, MOST_SEEDS, width=130, **seeds)
    _axis_inputs(form)
    offered = [Variant(sharing.value) for sharing in Sharing]
    offered += [named.variant for named in CATALOGUE.values()]
    st.multiselect(
        "Variants",
        list(dict.fromkeys(offered)),
        format_func=title_of,
        max_selections=MOST_VARIANTS,
        **bound(form, "sharing", "form_sharing"),
    )


def _axis_inputs(form: SweepForm) -> None:
    """Draw the fields for the settings that change, and for their values."""
    labels, names = labels_of(form.task), list(axes_of(form.task))
    for side, label in (("first", "Change"), ("second", "and also")):
        with st.container(horizontal=True):
            st.selectbox(
                label,
                names if side == "first" else ["", *names],
                format_func=lambda name: labels.get(name, "nothing else"),
                width=260,
                **bound(form, side, f"form_{side}", partial(form.set_axis, side)),
            )
            st.text_input(
                "Values" if side == "first" else "Its values",
                disabled=not getattr(form, side),
                max_chars=400,
                help=VALUES_HELP,
                width=300,
                **bound(form, f"{side}_values", f"form_{side}_values"),
            )


def on_the_command_line(sweep: Sweep) -> None:
    """Draw a sweep as the specification that the command line reads, folded."""
    with st.expander("For programmers: this sweep on the command line"):
        st.markdown(
            "Save this as `sweep.toml`, then `python -m attnkit sweep sweep.toml --out FOLDER` "
            "trains it on all cores."
        )
        st.code(sweep.to_toml(), language="toml", wrap_lines=True)


def live_bar(live: LiveSweep) -> None:
    """Draw how far the visitor's sweep is, and the buttons that pause, resume and stop it."""
    with st.container(border=True, key="live_bar"):
        n_points, n_done = len(live.experiments), live.n_finished
        if live.finished:
            st.markdown(f"**Your sweep** is finished: {n_points} points in {live.seconds:.0f} s.")
            return
        if live.problem:
            text = f"{live.problem} {n_done} of {n_points} points are trained."
            if live.problem == PAUSED:
                text += " The point that was training begins again."
        else:
            text = live.status("Point {n} of {total}: {status}")
        st.markdown(f"**Your sweep.** {plain(text)}")
        st.progress(live.share(live.job))
        with st.container(horizontal=True):
            if live.problem:
                if st.button("Go on", icon=":material/resume:", key="go_on_sweep"):
                    live.watcher = watcher()
                    live.go_on()
                    st.rerun()
            elif st.button("Pause", icon=":material/pause:", key="pause_sweep"):
                live.stop(PAUSED)
                st.rerun()
            if st.button("Stop", icon=":material/stop:", disabled=live.ended, key="stop_sweep"):
                live.stop(STOPPED)
                st.rerun()
