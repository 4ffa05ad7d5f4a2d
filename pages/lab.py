"""The Lab: choose variants, press Train, watch them learn side by side."""

import streamlit as st

from attnkit.analysis.custom_phone_book import is_phone_book
from attnkit.experiment import Experiment
from attnkit.experiment.costs import TOLERANCE
from attnkit.experiment.links import problems_in_words
from attnkit.service.jobs import Job
from attnkit.tasks import TASKS
from attnkit.training.snapshot import Snapshot
from attnkit.ui import components, composer, share, words
from attnkit.ui.board import draw_board, larger_charts, probe_pickers, why
from attnkit.ui.controls import labels_of, setting_widgets
from attnkit.ui.custom_phone_book import custom_book
from attnkit.ui.guess import awaits_guess, guess_area, quiet_switch
from attnkit.ui.markdown import plain
from attnkit.ui.numbers import numbers
from attnkit.ui.render_cache import planned_board
from attnkit.ui.routing import require_route
from attnkit.ui.service import training_service
from attnkit.ui.session import (
    MOST_COLUMNS,
    automatic_switch,
    open_lab,
    spoken,
    thumbnail_examples,
    thumbnails_missing,
)
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

require_route()
TICK_SECONDS = 0.3
MOST_TICKS = 10
AWAIT_SECONDS = 0.5


def take_task() -> None:
    """Remember the card that was pressed, for the run that follows."""
    st.session_state.wanted = st.session_state.gallery.chosen


def await_examples(of_this: bool) -> None:
    """Draw the page again when the task's example has come, or all for thumbnails."""
    if not of_this and not thumbnails_missing():
        redraw()
    if of_this and lab.probe() is not None:
        redraw()


def redraw() -> None:
    """Draw the whole page again, by itself: what it has just said, it says once more."""
    lab.problems, lab.lost, lab.refusal = said
    st.rerun()


def read_settings() -> Experiment | None:
    """The experiment that the widgets describe; None, with a message, if they describe none."""
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


def action_bar(experiment: Experiment | None, job: Job | None) -> None:
    """Draw the buttons of training, except those that a class link hides."""
    fits = job is not None and job.experiment == experiment
    active = job is not None and job.active
    paused = job is not None and job.state == "paused"
    started = job is not None and job.snapshot is not None and job.snapshot.step > 0
    label = "Train"
    stopped = job is not None and job.state == "stopped"
    if (paused or stopped) and fits and started:
        label = "Resume"
    elif job is not None and not fits:
        label = "Train what is new" if lab.n_new else "Train new settings"
    if awaits_guess(lab):
        label = "Guess first"
    invalid = experiment is None or awaits_guess(lab)
    calm = "buttons" in lab.hidden
    st.button(
        label,
        type="primary",
        icon=":material/play_arrow:",
        width=168,  # as wide as its longest label, so that the others stay where they are
        on_click=lab.train,
        disabled=invalid or (active and fits),
        key="train",
    )
    if not calm:
        st.button(
            "Pause",
            icon=":material/pause:",
            on_click=lab.pause,
            disabled=not active,
            key="pause",
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
    if not calm:
        st.button(
            "Reset",
            icon=":material/replay:",
            on_click=lab.reset,
            disabled=invalid,
            key="reset",
            help="Back to step 0: the same weights and the same data again.",
        )
        st.button(
            "New seeds",
            icon=":material/casino:",
            on_click=lab.new_seeds,
            disabled=invalid,
            key="new_seeds",
            help="Other weights and other data, same settings; trains at once.",
        )
    if lab.hidden:
        st.button(
            "Show all controls",
            icon=":material/visibility:",
            type="tertiary",
            on_click=lab.show_all,
            key="show_all",
        )


def status_line(job: Job | None, snapshot: Snapshot | None) -> str:
    """What is on screen and how far it is, in one line."""
    if job is None:
        if experiment is None:
            return "These settings cannot be trained: the reason stands above."
        if snapshot is None:
            guess = "Guess, then press" if awaits_guess(lab) else "Press"
            return f"Not trained yet. {guess} **Train**."
        if snapshot.experiment != lab.experiment:
            return "Your settings are not trained yet. Press **Train**."
        return (
            f"A finished example: {snapshot.experiment.n_runs} models, "
            f"{snapshot.experiment.training.steps} steps, trained in {snapshot.seconds:.0f} s. "
            "Press **Train** to watch it happen."
        )
    if job.state == "failed":
        return f"Training failed: {plain(job.error)}. Press **Train** to try again."
    if not job.begun:
        return queue_line(job)
    if job.snapshot is None:
        return "Starting: the training process is getting ready."
    snapshot = job.snapshot
    shown = snapshot.experiment
    steps, speed = shown.training.steps, snapshot.model_steps_per_second
    n_runs = shown.n_runs
    if not job.over:  # finished runs that were taken over do not train
        speed, n_runs = job.model_steps_per_second, job.trains.n_runs
    where = f"Step {snapshot.step} of {steps}, {n_runs} models"
    pace = f", {speed:,.0f} model-steps per second" if snapshot.step else ""
    notes = " The training process died and began anew." if job.restarts else ""
    notes += " The settings have changed since." if shown != lab.experiment else ""
    if job.state == "finished":
        if job.unstored:
            yet = " yet" if job.tried_again else ""
            notes = f" Not stored{yet}: {plain(job.unstored)}.{notes}"
        verb = "Finished" if job.asked_at else "Finished before, from the store"
        return f"{verb}: {where} in {snapshot.seconds:.1f} s{pace}.{notes}"
    if job.state in ("paused", "stopped"):
        confirmed = job.state.capitalize()
        asked = {"paused": "Pausing", "stopped": "Stopping"}[job.state]
        why = f" {plain(job.error)}" if job.error else ""
        others = " For others who watch, it goes on." if lab.held is not None else ""
        return f"{confirmed if job.settled else asked}{why}: {where}{pace}.{others}{notes}"
    outlook = training_service().outlook(job.id)
    if outlook is not None and outlook.n_active > 1:
        pace = f", about {spoken(outlook.ends)} left: {outlook.n_active} experiments take turns"
    elif speed and snapshot.step and (left := (steps - snapshot.step) * n_runs / speed):
        pace += f", {left:.0f} s left" if left >= 1 else ""
    return f"{where}{pace}.{notes}"


def queue_line(job: Job) -> str:
    """The place of a job that waits for its turn."""
    if job.state == "stopped":
        why = f", {plain(job.error)}" if job.error else ""
        return f"Stopped before its turn came{why}. Press **Train** to ask again."
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


def earlier_note(snapshot: Snapshot) -> str:
    """What is trained before, where a task has an earlier one; else nothing."""
    turn = snapshot.experiment.training.earlier_steps
    if not turn:
        return ""
    if snapshot.step < turn:
        return f" Until step {turn} the embedding is trained on the earlier question."
    return f" Since step {turn} the embedding is frozen and all else learns the new question."


def tick_seconds() -> float:
    """Between two looks: the more experiments take turns, the rarer there is news."""
    return TICK_SECONDS * min(max(training_service().n_active / 3, 1.0), MOST_TICKS)


def live_area(drawn_moving: bool, tick: float) -> None:
    """All that changes while models learn; drawn anew at every tick."""
    job = lab.job
    snapshot = lab.shown(job)
    if snapshot is None:
        untrained_area(job)
    else:
        trained_area(job, snapshot)
    other_pace = not 0.5 < tick_seconds() / tick < 2
    if drawn_moving and (job is None or job.settled or other_pace):
        redraw()


def untrained_area(job: Job | None) -> None:
    """Draw the same as far as it goes without a single evaluation."""
    with st.container(key="live"):
        st.progress(0.0)
        with st.container(key="why"):
            st.markdown("Untrained: curves and attention maps appear here.")
        with st.container(horizontal=True, vertical_alignment="center", key="state"):
            st.markdown(status_line(job, None))
        components.board(
            planned_board(lab.experiment),
            key="board",
            faded=False,
            alt=f"{len(lab.experiment.sharing)} variants. Nothing is trained yet.",
        )


def trained_area(job: Job | None, snapshot: Snapshot) -> None:
    """Draw the state of training, the reason and the board of a snapshot."""
    experiment = snapshot.experiment
    foreign = snapshot is lab.example and (job is not None or experiment != lab.experiment)
    with st.container(key="live"):
        st.progress(0.0 if foreign else snapshot.step / experiment.training.steps)
        reason = st.container(key="why")
        with st.container(horizontal=True, vertical_alignment="center", key="state"):
            turn = "" if foreign else earlier_note(snapshot)
            st.markdown(status_line(job, snapshot) + turn, width="stretch")
            place = probe_pickers(experiment)
        with reason:
            why(snapshot, place[0], foreign)
        columns = lab.experiment if foreign or lab.n_new else experiment
        draw_board(snapshot, columns, place, lab.previous, foreign)
    larger_charts(lab, snapshot, foreign)


lab = open_lab()
components.load_board()
wanted = st.session_state.pop("wanted", None)
if wanted in TASKS:
    lab.change_task(wanted)
bar = st.container(horizontal=True, vertical_alignment="center", key="bar")
chooser = st.container(horizontal=True, vertical_alignment="center", key="chooser")
said = lab.problems, lab.lost, lab.refusal
if lab.problems:
    details = plain(problems_in_words(lab.problems))
    st.warning(f"The link was not fully understood. {details} All else is as it says.")
    lab.problems = []
if lab.lost:
    details = " ".join(f"{lost.value}: {lost.allowed.removeprefix('but ')}." for lost in lab.lost)
    st.warning(f"Switched off, because they do not go with this task's sizes. {plain(details)}")
    lab.lost = []

some_lack = thumbnails_missing()  # asked before they are drawn: more may come meanwhile
with bar:
    st.title("Why do Q, K and V need different matrices?", anchor=False, width="content")
    if "task" in lab.hidden:
        st.markdown(f"**{lab.experiment.task.title}**  \n{lab.experiment.task.question}")
    else:
        components.task_gallery(
            lab.experiment.task.name, thumbnail_examples(), take_task, key="gallery"
        )
    buttons = st.container(horizontal=True, key="actions", width="content")
    linking = st.popover("Share", icon=":material/share:", key=share.OPEN, on_change="rerun")
with chooser:
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
    adding = None
    if not {"sharing", "add_variant"} & set(lab.hidden):
        adding = st.popover(
            "Add a variant", icon=":material/add:", key=composer.OPEN, on_change="rerun"
        )
    explaining = st.popover(
        "What the words mean", icon=":material/menu_book:", key=words.OPEN, on_change="rerun"
    )
experiment = read_settings()
with chooser:
    if experiment is not None and lab.quick is not None:
        st.button(
            "Quick preset",
            icon=":material/bolt:",
            type="tertiary",
            on_click=lab.set_quick,
            key="quick_preset",
            help="Smaller and easier settings with which QKV solves this task within a minute. "
            "All others go back to their defaults.",
        )
probe = lab.probe()
if adding is not None and adding.open:
    with adding:
        composer.variant_form(lab)
if explaining.open:
    with explaining:
        st.page_link("pages/guide.py", label="More in the Guide")  # keys scroll from here
        words.glossary()
if linking.open:
    with linking:
        share.share_form(lab, experiment is not None)
job = lab.job
if experiment is not None:
    unequal = [v for v in experiment.sharing if abs(experiment.adjusted(v).difference) > TOLERANCE]
    if unequal:
        names = ", ".join(title_of(variant) for variant in unequal)
        st.warning(
            f"No width makes the costs of {plain(names)} equal to the others: see the board."
        )
guess_area(lab)
with buttons:
    action_bar(experiment, job)
if lab.refusal:
    st.warning(f"Not taken: {plain(lab.refusal)}.")
    lab.refusal = ""
moving = job is not None and not job.settled
tick = tick_seconds()
st.fragment(live_area, run_every=tick if moving else None)(moving, tick)
components.example(lab.experiment, probe, key="example")
book = st.container()
numbers(lab, job)
if probe is None or some_lack:
    st.fragment(await_examples, run_every=AWAIT_SECONDS)(probe is None)
if is_phone_book(lab.experiment.task):
    with book:  # drawn last: it waits for the training process
        st.fragment(custom_book)(lab)
