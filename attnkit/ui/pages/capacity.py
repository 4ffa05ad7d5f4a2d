"""Capacity: how large a model must be for each sharing, and what sharing saves."""

from __future__ import annotations

from functools import partial

import streamlit as st

from attnkit.analysis.conclusion import label_of
from attnkit.figures.capacity import MEASURES, with_mark
from attnkit.sweeps import SweepResult
from attnkit.sweeps.result import SHIPPED, load_shipped
from attnkit.sweeps.specification import InvalidSweep
from attnkit.ui import components
from attnkit.ui.address import open_choice
from attnkit.ui.lab.guess import stop_before_first_run
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.server.presence import watcher
from attnkit.ui.server.turns import fragment
from attnkit.ui.sweeps.choice import OWN, SECTIONS, CapacityChoice, conclusion_of
from attnkit.ui.sweeps.live_sweep import TICK_SECONDS, LiveSweep, open_live_sweep
from attnkit.ui.sweeps.live_sweep_area import live_bar, sweep_form_area
from attnkit.ui.sweeps.phase import phase_of
from attnkit.ui.sweeps.sections import (
    Mark,
    pick,
    pick_values,
    row_of,
    show_card,
    show_difference,
    show_frontier,
    show_matching,
    show_numbers,
    show_slices,
    take_mark,
)
from attnkit.ui.widgets import bound, sections, warn_once
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

PHASE = "capacity_phase"
"""Key of the phase diagram."""


def draw() -> None:
    """Draw the page."""
    require_route()
    choice, live = open_choice("capacity", "capacity_chosen", CapacityChoice), open_live_sweep()
    st.title("How much capacity does sharing need?", anchor=False)
    stop_before_first_run()
    result = result_of(choice, live)
    if result is not None:
        choice.read_for(result.sweep)
    warn_once(choice.problems)
    tick = TICK_SECONDS if is_moving() else None
    if live is not None or result is not None:
        fragment(show_top, run_every=tick)(choice)
    if result is not None:
        controls(choice, result)
        fragment(show_phase, run_every=tick if choice.sweep == OWN else None)(choice)
        show_sections(choice, result)
    else:
        pick(choice, "sweep", "Sweep", list(titles()), titles().__getitem__, width=340)
        st.subheader(SECTIONS["live"], anchor=False)
        sweep_form_area(choice)
    choice.write_link()
    components.load_plotly()


def result_of(choice: CapacityChoice, live: LiveSweep | None) -> SweepResult | None:
    """Return the chosen sweep; None, with a message, if it cannot be read."""
    if choice.sweep == OWN and live is not None:
        return live.result()
    if choice.sweep == OWN:
        choice.sweep = CapacityChoice.sweep
        choice.problems.append(
            "A sweep that somebody has run here is kept only while their page stays open. "
            "Shown is one that comes with this copy."
        )
        choice.forget_link()
    try:
        return load_shipped(choice.sweep)
    except (OSError, InvalidSweep):
        st.error("This sweep cannot be read. Choose another.", icon=":material/error:")
        return None


def is_moving() -> bool:
    """Return whether a sweep of this visitor trains."""
    live = open_live_sweep()
    return live is not None and live.moving


def show_top(choice: CapacityChoice) -> None:
    """Draw what the sweep concludes, and how far the visitor's own one is.

    This also submits the next point of the visitor's sweep, whichever sweep is on screen.
    """
    live, ended = open_live_sweep(), False
    if live is not None:
        live.watcher = watcher()
        moved = live.moving
        live.follow()
        ended = moved and not live.moving
    result = result_of(choice, live)
    text, has_ratios, note = "", False, ""
    if result is not None and result.runs["error"].isna().any():
        fixed = tuple(choice.beside.items())
        text, has_ratios, note = conclusion_of(result, choice.x, choice.y, fixed)
    moves = is_moving() and choice.sweep == OWN
    with st.container(key="conclusion"):  # also without a text: what follows keeps its place
        st.markdown(plain(text or ("Training …" if moves else "Nothing is trained yet.")))
    if result is not None:
        conditions = f"{note} Tiny models. {result.sweep.conditions}.".lstrip()
        if choice.y and has_ratios:
            conditions += f" Factors are averaged over all values of “{label_of(choice.y)}”."
        if live is not None and live.result() is result and not live.finished:
            conditions = f"Not finished yet. {conditions}"
        st.caption(plain(conditions))
    if live is not None and (choice.sweep == OWN or not live.ended):
        live_bar(live)
    if ended:
        st.rerun()  # only now: a button that was pressed in the same moment has been heard


def titles() -> dict[str, str]:
    """Return the titles of the sweeps that this visitor can choose, by name."""
    return SHIPPED | ({OWN: "Your own sweep"} if open_live_sweep() is not None else {})


def controls(choice: CapacityChoice, result: SweepResult) -> None:
    """Draw the widgets that choose the sweep, the measure, the axes and the variants."""
    sweep = result.sweep
    with st.container(horizontal=True, vertical_alignment="bottom", key="capacity_controls"):
        pick(choice, "sweep", "Sweep", list(titles()), titles().__getitem__, width=340)
        pick(choice, "measure", "Measure", list(MEASURES), MEASURES.__getitem__, width=250)
        with st.popover("Axes and variants", icon=":material/tune:"):
            for side, label in (("x", "Across"), ("y", "Upwards")):
                pick_axis(choice, result, side, label)
            pick_values(choice, result, choice.beside)
            take = partial(take_variants, choice, result)
            variants = bound(choice, "variants", "capacity_variants", take)
            st.multiselect("Variants", sweep.sharing, format_func=title_of, **variants)


def pick_axis(choice: CapacityChoice, result: SweepResult, side: str, label: str) -> None:
    """Let the visitor choose the axis of a side; the axis of the other side changes places."""
    st.selectbox(
        label,
        list(result.sweep.axes),
        format_func=label_of,
        **bound(choice, side, f"capacity_{side}", partial(choice.take_axis, side)),
        disabled=len(result.sweep.axes) < 2,
    )


def take_variants(choice: CapacityChoice, result: SweepResult, chosen: list[Variant]) -> None:
    """Show the chosen variants in the order of the sweep; at least one of them stays."""
    choice.variants = tuple(v for v in result.sweep.sharing if v in chosen) or choice.variants


def show_phase(choice: CapacityChoice) -> None:
    """Draw the phase diagram, and the chosen cell below it."""
    result = result_of(choice, open_live_sweep())
    if result is None or not result.runs["error"].isna().any():
        return
    fixed = tuple(choice.beside.items())
    phase = phase_of(result, choice.x, choice.y, choice.measure, choice.variants, fixed)
    row = None if choice.cell is None else row_of(result, choice.cell)
    figures = phase.figures
    if row is not None:
        figures = {most: with_mark(one, int(str(row.name))) for most, one in figures.items()}
    components.picture(
        figures[0],
        key=PHASE,
        alt=phase.finding,
        title=f"{MEASURES[choice.measure]}. {titles()[choice.sweep]}",
        file=f"attnkit-capacity-{choice.sweep}",
        narrower={most: figure for most, figure in figures.items() if most},
        table=phase.numbers,
        picked=lambda: take_mark(choice, result, components.reported(PHASE, "picked", Mark)),
    )
    st.caption(plain(phase.key))
    show_card(choice, result)
    choice.write_link()


def show_sections(choice: CapacityChoice, result: SweepResult) -> None:
    """Draw the buttons that open a section, and the open section."""
    figures = {
        "slices": show_slices,
        "difference": show_difference,
        "frontier": show_frontier,
        "matching": show_matching,
        "numbers": show_numbers,
    }
    draw = {name: partial(show, choice, result) for name, show in figures.items()}
    draw = {**(draw if len(result.runs) else {}), "live": partial(sweep_form_area, choice)}
    sections(choice, SECTIONS, draw, "capacity_section")
