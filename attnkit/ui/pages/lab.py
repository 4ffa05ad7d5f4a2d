"""The Lab: choose variants, press Train, watch them learn side by side.

This module arranges the page, and draws its status line and buttons. `attnkit.ui.lab.lab` keeps
the visitor's settings and the run on screen between two runs of the page; the other modules of that
folder draw the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st
from streamlit.elements.lib.mutable_popover_container import PopoverContainer

from attnkit.analysis.custom_phone_book import is_phone_book
from attnkit.experiment.experiment import Experiment, full_size
from attnkit.experiment.links import problems_in_words
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.service.jobs import Job
from attnkit.tasks import TASKS, OwnData
from attnkit.training.joining import can_share_runs
from attnkit.training.pace import duration_in_words
from attnkit.training.snapshot import Snapshot
from attnkit.ui import components, words
from attnkit.ui.cache import board, finding, measures_finding, planned_board
from attnkit.ui.lab import classroom, composer, share
from attnkit.ui.lab.board import (
    explain_result,
    larger_charts,
    numbers,
    pick_view,
)
from attnkit.ui.lab.custom_phone_book import custom_phone_book_area
from attnkit.ui.lab.guess import awaits_guess, follow_class, guess_area, quiet_switch
from attnkit.ui.lab.lab import (
    MOST_COLUMNS,
    Lab,
    change_task,
    default_examples,
    labels_of,
    open_lab,
    setting_key,
    setting_widgets,
)
from attnkit.ui.lab.own_data import ask_for_data, own_data_area, use_requested_data
from attnkit.ui.lab.presets import tour_area
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.server.service import training_service, training_time
from attnkit.ui.server.turns import fragment
from attnkit.ui.watched_job import moves, show_refusal, status_of
from attnkit.ui.widgets import bound
from attnkit.variants.catalogue import title_of

TICK_SECONDS = 0.3
"""Seconds between two updates of the live area while at most three experiments train."""

FIRST_WORDS = {
    *("Q, K, V, W", "QKV, Q=K, K=V, Q=V, Q=K=V", "V=I, K=I", "token", "score", "attention"),
    *("accuracy", "loss", "solved", "95% interval", "seed", "step", "learning rate", "chance"),
    *("untrained", "guess between two entries", "self-mask", "asymmetry", "symmetric", "softmax"),
    *("right entry", "mirrored entry", "head", "head width", "layer", "MLP"),
    "numbers kept per token (KV cache)",
}
"""Terms that the board, its findings and the first settings use."""

_TITLE = mark("Why do Q, K and V need different matrices?")

REQUESTED_TASK = "requested_task"
"""Key in the session of the task whose card was pressed."""


def draw() -> None:
    """Draw the Lab.

    Callbacks of pressed buttons, and of the task gallery, have run before this function. Popovers
    and the row of buttons get their places first, and their contents once the settings are read.
    """
    require_route()
    # A component's code is sent with every change of its data, and the code that draws the board is
    # much larger than the data of a tick.
    components.component("lab", "lab", "board")(key="board_js", height=0)
    if classroom.names_no_lesson():  # the first task would be another one than the lesson's
        with st.container(horizontal=True, key="bar"):
            st.title(tr(_TITLE), anchor=False)
        st.warning(classroom.reason_for_none())
        return
    lab = open_lab()
    requested_task = st.session_state.pop(REQUESTED_TASK, None)
    if requested_task == components.OWN_DATA:
        ask_for_data()
    elif requested_task in TASKS:
        change_task(lab, requested_task)
    use_requested_data(lab)
    follow_class(lab)
    # The keys of containers are class names for the style sheets, for the tour and for tests.
    bar = st.container(horizontal=True, vertical_alignment="center", key="bar")
    bringing = st.container()
    chooser = st.container(horizontal=True, vertical_alignment="center", key="chooser")
    messages = lab.problems, lab.lost, lab.refusal

    def redraw() -> None:
        """Draw the page again without an action of the visitor, with the same messages.

        They are cleared when they are shown, so that the visitor's next action removes them.
        """
        lab.problems, lab.lost, lab.refusal = messages
        st.rerun()

    _show_messages(lab)

    examples = default_examples()
    some_missing = None in examples.values()
    with bar:
        st.title(tr(_TITLE), anchor=False, width="content")
        task = lab.experiment.task
        if "task" in lab.hidden:
            st.markdown(f"**{tr(task.title)}**  \n{tr(task.question)}")
        else:
            components.task_gallery(task.name, examples, _request_task, key="gallery")
        buttons = st.container(horizontal=True, key="actions", width="content")
        linking = st.popover(
            tr("Share"), icon=":material/share:", key=share.OPEN, on_change="rerun"
        )
    with chooser:
        adding = _pick_variants(lab)
        explaining = st.popover(
            tr("What the words mean"),
            icon=":material/menu_book:",
            key=words.OPEN,
            on_change="rerun",
        )
        tour_area()
    experiment = _read_settings(lab)
    if experiment is not None:
        with chooser:
            _full_size_button(lab)
    example = lab.example_of_maps()
    with bringing:
        own_data_area(lab, experiment)
    _fill(adding, partial(composer.variant_form, lab))
    _fill(explaining, _explain_words)
    _fill(linking, partial(share.share_form, lab, experiment is not None))
    job = lab.job
    if experiment is not None and experiment.unequal_costs:
        st.warning(plain(experiment.unequal_costs))
    composer.changed_files(lab)
    guess_area(lab)
    with buttons:
        training_buttons(lab, experiment, job)
    show_refusal(lab)

    # Streamlit runs a fragment again by itself, without the rest of the page. What it takes from
    # this function, such as `moving`, is then as the rest of the page was drawn.
    moving, tick = moves(job), _tick_seconds()

    @partial(fragment, run_every=tick if moving else None)
    def live() -> None:
        now = lab.job
        _live_area(lab, now, is_valid=experiment is not None)
        has_other_pace = not 0.5 < _tick_seconds() / tick < 2
        if moving and (not moves(now) or has_other_pace):
            redraw()

    live()
    components.example(lab.experiment, example, key="example")
    book = st.container()
    numbers(lab, job)
    if example is None or some_missing:

        @partial(fragment, run_every=0.5)
        def await_examples() -> None:
            if example is None:
                has_come = lab.example_of_maps() is not None
            else:
                has_come = None not in default_examples().values()
            if has_come:
                redraw()

        await_examples()
    if is_phone_book(lab.experiment.task):
        with book:  # drawn last: it waits for the training process
            fragment(custom_phone_book_area)(lab)


def _show_messages(lab: Lab) -> None:
    if lab.problems:
        details = plain(problems_in_words(lab.problems))
        st.warning(
            tr(
                "The link was not fully understood. {details} All else is as it says.",
                details=details,
            )
        )
        lab.problems = []
    if lab.lost:
        variants = [p for p in lab.lost if p.field == "sharing"]
        if settings := [p for p in lab.lost if p.field != "sharing"]:
            details = plain(problems_in_words(settings))
            why = tr("Set back, because they do not go with this task.")
            st.warning(f"{why} {details}")
        if variants:
            details = plain(" ".join(f"{p.value}: {p.reason}." for p in variants))
            why = tr("Switched off, because they do not go with this task's sizes.")
            st.warning(f"{why} {details}")
        lab.lost = []


def _request_task() -> None:
    st.session_state[REQUESTED_TASK] = components.reported("gallery", "chosen", str)


def _pick_variants(lab: Lab) -> PopoverContainer | None:
    if composer.take_loaded(lab):
        st.session_state[composer.OPEN] = False
    if "sharing" not in lab.hidden:
        st.pills(
            tr("Who shares a matrix"),
            lab.columns,
            format_func=title_of,
            selection_mode="multi",
            key=setting_key("sharing"),
            wrap=True,
            label_visibility="collapsed",
        )
    if {"sharing", "add_variant"} & set(lab.hidden):
        return None
    return st.popover(
        tr("Add a variant"), icon=":material/add:", key=composer.OPEN, on_change="rerun"
    )


def _read_settings(lab: Lab) -> Experiment | None:
    """Draw the widgets of the settings and return their experiment.

    Their values are read first, from the session's state, because every widget shows what is wrong
    with its value. If they describe no experiment, the problems are shown, and None is returned.
    Changed settings that are finished are put on the screen, and fast ones begin to train here, see
    `Lab.follow_settings`.
    """
    problems = lab.read_widgets()
    task = lab.experiment.task.name
    with st.sidebar:
        if "buttons" not in lab.hidden:
            st.toggle(
                tr("Train automatically"),
                **bound(lab, "automatic", "train_automatically"),
                help=tr("Changed settings train at once if that takes less than two seconds."),
            )
            quiet_switch(lab)
        setting_widgets(lab.experiment.task, lab.hidden, problems)
    for problem in problems:
        text = problem.on_screen(labels_of(task))
        if problem.field == "sharing" and not problem.value:
            text = tr("Choose at least one variant.")
        elif problem.field == "sharing" and isinstance(problem.value, int):
            text = tr(
                "At most {most} variants fit side by side, but {chosen} are chosen: switch some "
                "off. The command line and Python take any number.",
                most=MOST_COLUMNS,
                chosen=problem.value,
            )
        st.error(plain(text), icon=":material/error:")
    if problems:
        return None
    lab.write_link()
    lab.follow_settings()
    return lab.experiment


def _fill(popover: PopoverContainer | None, draw: Callable[[], None]) -> None:
    if popover is not None and popover.open:
        with popover:
            draw()


def _explain_words() -> None:
    page_link("guide", tr("More in the Guide"))  # keys scroll from here
    words.glossary(FIRST_WORDS, "first")
    with st.expander(tr("Further words")):
        words.glossary(words.WORDS.keys() - FIRST_WORDS, "further")


def _full_size_button(lab: Lab) -> None:
    """Draw the button that sets up the task at full size.

    There is none if the defaults are the full size, if it is set up already, or if a class link
    hides the settings.
    """
    task = lab.experiment.task
    if not task.full_size or not {"sharing", "add_variant", "buttons"}.issuperset(lab.hidden):
        return
    own = {"data": task.data} if isinstance(task, OwnData) else {}
    full = full_size(task.name, **own)
    if full == lab.experiment:
        return
    seconds = training_service().estimate(full, lab.watcher, reuse=not lab.opens_untrained)
    st.button(
        tr("Full size: about {time}", time=duration_in_words(seconds)),
        icon=":material/open_in_full:",
        type="tertiary",
        on_click=lab.set,
        args=(full,),
        key="full_size",
        help=tr(
            "The sizes that papers or our claims use for this task. The defaults are smaller, so "
            "that training is fast. All other settings go back to their defaults."
        ),
    )


def _tick_seconds() -> float:
    """Return the seconds between two updates: the more experiments take turns, the more seconds."""
    return TICK_SECONDS * min(max(training_service().n_active / 3, 1.0), 10)


def _live_area(lab: Lab, job: Job | None, *, is_valid: bool) -> None:
    snapshot = lab.shown(job)
    status = status_line(lab, job, snapshot, is_valid=is_valid)
    with st.container(key="live"):
        st.progress(snapshot.step / snapshot.experiment.training.steps if snapshot else 0.0)
        reason = st.container(key="why")
        state = st.container(horizontal=True, vertical_alignment="center", key="state")
        if snapshot is None:
            appears = tr("Untrained: curves and attention maps appear here.")
            reason.markdown(f"{tr(words.ROLES)}  \n{appears}")
            state.markdown(status)
            columns = lab.experiment
            alt = tr_n(
                "{n} variant. Nothing is trained yet.",
                "{n} variants. Nothing is trained yet.",
                len(columns.sharing),
            )
            drawing = planned_board(columns)
        else:
            with state:
                st.markdown(f"{status} {_earlier_task_note(snapshot)}".strip(), width="stretch")
                seed, layer, head = pick_view(snapshot.experiment)
            with reason:
                explain_result(snapshot, seed)
            # Where runs can be shared, chosen variants that are not trained yet have columns, too.
            is_comparable = can_share_runs(snapshot.experiment, lab.experiment)
            columns = (lab if is_comparable else snapshot).experiment
            alt = f"{finding(snapshot)} {measures_finding(snapshot)}"
            drawing = board(snapshot, columns, seed, layer, head, lab.previous)
        components.board(drawing, key="board", alt=alt)
    if snapshot is not None:
        larger_charts(lab, snapshot)


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
        reason = plain(tr(job.unstored))
        unstored = tr("Not stored: {reason}.", reason=reason)
        if job.tried_again:
            unstored = tr("Not stored yet: {reason}.", reason=reason)
        notes.insert(0, unstored)
    if came_finished and not notes:
        time = training_time(snapshot.experiment, reuse=False)
        notes = [tr("Press **Train** to watch it happen, in {time}.", time=time)]
    others = [tr("For others who watch, it goes on.")] if lab.private_state is not None else []
    return " ".join([status, *others, *notes])


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
    watching = [tr("Press **Train** to watch it happen."), _time_it_takes(lab)]
    notes = _untrained_note(lab, snapshot) or watching
    return f"{' '.join([example, *notes])}  \n{tr(words.ROLES)}"


def _time_it_takes(lab: Lab) -> str:
    return tr("It takes {time}.", time=training_time(lab.experiment, reuse=not lab.opens_untrained))


def _untrained_note(lab: Lab, snapshot: Snapshot) -> list[str]:
    if not can_share_runs(snapshot.experiment, lab.experiment):
        note = tr(
            "These columns show the last training, which had other settings. Press **Train** to "
            "train yours."
        )
        return [note, _time_it_takes(lab)]
    names = ", ".join(title_of(variant) for variant in lab.lacking(snapshot.experiment))
    note = tr("Not trained yet: {names}. Press **Train**.", names=plain(names))
    return [note, _time_it_takes(lab)] if names else []


def _earlier_task_note(snapshot: Snapshot) -> str:
    turn = snapshot.experiment.training.earlier_steps
    if not turn:
        return ""
    if snapshot.step < turn:
        return tr("Until step {step} the embedding is trained on the earlier question.", step=turn)
    return tr(
        "Since step {step} the embedding is frozen and all else learns the new question.",
        step=turn,
    )


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


def _train_label(lab: Lab, job: Job | None, *, fits: bool) -> str:
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
    if job.state == "finished" and not lab.came_finished:  # the visitor has seen it train
        return tr("Train again")
    has_steps = job.snapshot is not None and job.snapshot.step > 0
    return tr("Resume") if job.state in ("paused", "stopped") and has_steps else train
