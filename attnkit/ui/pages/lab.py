"""The Lab: choose variants, press Train, watch them learn side by side."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st
from streamlit.elements.lib.mutable_popover_container import PopoverContainer

from attnkit.analysis.custom_phone_book import is_phone_book
from attnkit.experiment import Experiment
from attnkit.experiment.costs import TOLERANCE
from attnkit.experiment.links import problems_in_words
from attnkit.foundation.settings import Problem
from attnkit.tasks import TASKS
from attnkit.training.joining import can_share_runs
from attnkit.training.pace import duration_in_words
from attnkit.training.snapshot import Snapshot
from attnkit.ui import components, words
from attnkit.ui.lab import composer, share, task_examples
from attnkit.ui.lab.board import draw_board, explain_result, larger_charts, probe_pickers
from attnkit.ui.lab.controls import labels_of, setting_widgets
from attnkit.ui.lab.custom_phone_book import custom_phone_book_area
from attnkit.ui.lab.guess import guess_area, quiet_switch
from attnkit.ui.lab.lab import MOST_COLUMNS, Lab
from attnkit.ui.lab.numbers import numbers
from attnkit.ui.lab.status import earlier_task_note, status_line
from attnkit.ui.lab.tour import tour_area
from attnkit.ui.lab.training_buttons import training_buttons
from attnkit.ui.markdown import plain
from attnkit.ui.render_cache import planned_board
from attnkit.ui.routing import require_route
from attnkit.ui.server.service import training_service
from attnkit.ui.session import automatic_switch, open_lab
from attnkit.ui.watched_job import show_refusal
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

TICK_SECONDS = 0.3
"""Seconds between two updates of the live area while at most three experiments train."""

MOST_TICKS = 10
"""Factor by which updates become rarer, at most, while many experiments take turns."""

AWAIT_SECONDS = 0.5
"""Seconds between two checks whether missing examples have been drawn."""


@dataclass(frozen=True)
class _Page:
    """One run of the page.

    Attributes:
        lab: The visitor's Lab.
        link_problems: Problems of the link that this run has shown.
        lost: Reasons for variants that were switched off, which this run has shown.
        refusal: Refusal that this run has shown.
    """

    lab: Lab
    link_problems: list[Problem]
    lost: list[Problem]
    refusal: str

    def redraw(self) -> None:
        """Draw the page again without an action of the visitor, with the same messages."""
        lab = self.lab
        lab.problems, lab.lost, lab.refusal = self.link_problems, self.lost, self.refusal
        st.rerun()


def draw() -> None:
    """Draw the Lab."""
    require_route()
    lab = open_lab()
    components.load_board()
    requested_task = st.session_state.pop("wanted", None)
    if requested_task in TASKS:
        lab.change_task(requested_task)
    bar = st.container(horizontal=True, vertical_alignment="center", key="bar")
    chooser = st.container(horizontal=True, vertical_alignment="center", key="chooser")
    page = _Page(lab, lab.problems, lab.lost, lab.refusal)
    show_messages(lab)

    # Before the thumbnails are drawn: some may come meanwhile, and would be missing on the page.
    some_missing = task_examples.thumbnails_missing()
    with bar:
        show_task(lab)
        buttons = st.container(horizontal=True, key="actions", width="content")
        linking = st.popover("Share", icon=":material/share:", key=share.OPEN, on_change="rerun")
    with chooser:
        adding = pick_variants(lab)
        explaining = st.popover(
            "What the words mean", icon=":material/menu_book:", key=words.OPEN, on_change="rerun"
        )
        tour_area()
    experiment = read_settings(lab)
    with chooser:
        if experiment is not None and lab.full_size is not None:
            full_size_button(lab, lab.full_size)
    probe = lab.probe()
    fill_popovers(lab, adding, explaining, linking, is_valid=experiment is not None)
    job = lab.job
    if experiment is not None:
        warn_of_unequal_costs(experiment)
    guess_area(lab)
    with buttons:
        training_buttons(lab, experiment, job)
    show_refusal(lab)
    moving = job is not None and not job.settled
    tick = tick_seconds()
    st.fragment(live_area, run_every=tick if moving else None)(
        page, moving, tick, is_valid=experiment is not None
    )
    components.example(lab.experiment, probe, key="example")
    book = st.container()
    numbers(lab, job)
    if probe is None or some_missing:
        st.fragment(await_examples, run_every=AWAIT_SECONDS)(page, probe is None)
    if is_phone_book(lab.experiment.task):
        with book:  # drawn last: it waits for the training process
            st.fragment(custom_phone_book_area)(lab)


def show_messages(lab: Lab) -> None:
    """Show once what was wrong with the link, and which variants were switched off."""
    if lab.problems:
        details = plain(problems_in_words(lab.problems))
        st.warning(f"The link was not fully understood. {details} All else is as it says.")
        lab.problems = []
    if lab.lost:
        reasons = [f"{p.value}: {p.allowed.removeprefix('but ')}." for p in lab.lost]
        details = plain(" ".join(reasons))
        st.warning(f"Switched off, because they do not go with this task's sizes. {details}")
        lab.lost = []


def show_task(lab: Lab) -> None:
    """Draw the title, and the gallery of tasks unless a class link hides it."""
    st.title("Why do Q, K and V need different matrices?", anchor=False, width="content")
    task = lab.experiment.task
    if "task" in lab.hidden:
        st.markdown(f"**{task.title}**  \n{task.question}")
    else:
        examples = task_examples.thumbnail_examples()
        components.task_gallery(task.name, examples, request_task, key="gallery")


def request_task() -> None:
    """Remember the task whose card was pressed, for the run that follows."""
    st.session_state.wanted = st.session_state.gallery.chosen


def pick_variants(lab: Lab) -> PopoverContainer | None:
    """Draw the switches of the variants; return the popover that adds one, unless it is hidden."""
    if "sharing" not in lab.hidden:
        st.pills(
            "Who shares a matrix",
            lab.columns,
            format_func=lambda name: title_of(Variant(name)),
            selection_mode="multi",
            key="set_sharing",
            wrap=True,
            label_visibility="collapsed",
        )
    if {"sharing", "add_variant"} & set(lab.hidden):
        return None
    return st.popover("Add a variant", icon=":material/add:", key=composer.OPEN, on_change="rerun")


def read_settings(lab: Lab) -> Experiment | None:
    """Draw the widgets of the settings and return their experiment.

    If they describe none, their problems are shown, and None is returned.
    """
    problems = lab.read_widgets()
    task = lab.experiment.task.name
    with st.sidebar:
        if "buttons" not in lab.hidden:
            automatic_switch(lab)
            quiet_switch(lab)
        setting_widgets(task, lab.hidden, problems)
    for problem in problems:
        text = problem.on_screen(labels_of(task))
        if problem.field == "sharing" and not problem.value:
            text = "Choose at least one variant."
        elif problem.field == "sharing" and isinstance(problem.value, int):
            text = (
                f"At most {MOST_COLUMNS} variants fit side by side, but {problem.value} are "
                "chosen: switch some off. The command line and Python take any number."
            )
        st.error(plain(text), icon=":material/error:")
    if problems:
        return None
    lab.write_link()
    lab.follow_settings()
    return lab.experiment


def fill_popovers(
    lab: Lab,
    adding: PopoverContainer | None,
    explaining: PopoverContainer,
    linking: PopoverContainer,
    *,
    is_valid: bool,
) -> None:
    """Draw the contents of the popovers that are open."""
    if adding is not None and adding.open:
        with adding:
            composer.variant_form(lab)
    if explaining.open:
        with explaining:
            st.page_link("pages/guide.py", label="More in the Guide")  # keys scroll from here
            words.glossary()
    if linking.open:
        with linking:
            share.share_form(lab, is_valid)


def full_size_button(lab: Lab, full: Experiment) -> None:
    """Draw the button that sets up the task at full size."""
    st.button(
        f"Full size: about {duration_in_words(training_service().estimate(full))}",
        icon=":material/open_in_full:",
        type="tertiary",
        on_click=lab.set,
        args=(full,),
        key="full_size",
        help="The sizes that papers or our claims use for this task. The defaults are smaller, so "
        "that training is fast. All other settings go back to their defaults.",
    )


def warn_of_unequal_costs(experiment: Experiment) -> None:
    """Name the variants whose costs no width makes equal to those of the others."""
    unequal = [v for v in experiment.sharing if abs(experiment.adjusted(v).difference) > TOLERANCE]
    if unequal:
        names = ", ".join(title_of(variant) for variant in unequal)
        st.warning(
            f"No width makes the costs of {plain(names)} equal to the others: see the board."
        )


def tick_seconds() -> float:
    """Return the seconds between two updates: the more experiments take turns, the more seconds."""
    return TICK_SECONDS * min(max(training_service().n_active / 3, 1.0), MOST_TICKS)


def await_examples(page: _Page, own_is_missing: bool) -> None:
    """Draw the page again as soon as the missing examples have been drawn."""
    if not own_is_missing and not task_examples.thumbnails_missing():
        page.redraw()
    if own_is_missing and page.lab.probe() is not None:
        page.redraw()


def live_area(page: _Page, drawn_moving: bool, tick: float, *, is_valid: bool) -> None:
    """Draw everything that changes while models learn; drawn again at every tick."""
    lab = page.lab
    job = lab.job
    snapshot = lab.shown(job)
    status = status_line(lab, job, snapshot, is_valid=is_valid)
    if snapshot is None:
        untrained_area(lab, status)
    else:
        trained_area(lab, snapshot, status)
    other_pace = not 0.5 < tick_seconds() / tick < 2
    if drawn_moving and (job is None or job.settled or other_pace):
        page.redraw()


def untrained_area(lab: Lab, status: str) -> None:
    """Draw the status and the planned board of settings that have no evaluation yet."""
    with st.container(key="live"):
        st.progress(0.0)
        with st.container(key="why"):
            st.markdown(f"{words.ROLES}  \nUntrained: curves and attention maps appear here.")
        with st.container(horizontal=True, vertical_alignment="center", key="state"):
            st.markdown(status)
        components.board(
            planned_board(lab.experiment),
            key="board",
            alt=f"{len(lab.experiment.sharing)} variants. Nothing is trained yet.",
        )


def trained_area(lab: Lab, snapshot: Snapshot, status: str) -> None:
    """Draw the state of training, the reason for the result and the board of a snapshot."""
    experiment = snapshot.experiment
    with st.container(key="live"):
        st.progress(snapshot.step / experiment.training.steps)
        reason = st.container(key="why")
        with st.container(horizontal=True, vertical_alignment="center", key="state"):
            st.markdown(status + earlier_task_note(snapshot), width="stretch")
            seed, layer, head = probe_pickers(experiment)
        with reason:
            explain_result(snapshot, seed)
        columns = lab.experiment if can_share_runs(experiment, lab.experiment) else experiment
        draw_board(snapshot, columns, (seed, layer, head), lab.previous)
    larger_charts(lab, snapshot)
