"""The Lab: choose variants, press Train, watch them learn side by side."""

import json

import streamlit as st

from attnkit.costs import TOLERANCE
from attnkit.experiment import Experiment, default_settings
from attnkit.figures.curves import accuracy_legend, measures_legend
from attnkit.live.service import Job
from attnkit.results import Snapshot
from attnkit.summary import run_table
from attnkit.tasks import TASKS
from attnkit.ui import components, composer
from attnkit.ui.controls import setting_widgets
from attnkit.ui.routing import require_route
from attnkit.ui.session import MOST_COLUMNS, open_lab
from attnkit.ui.shown import (
    attention_maps,
    finding,
    plot_accuracy,
    plot_attention_measures,
    sharing_table,
)
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

require_route()
TICK_SECONDS = 0.3


def read_settings() -> Experiment | None:
    """The experiment that the widgets describe; None, with a message, if they describe none."""
    with st.sidebar:
        setting_widgets(lab.experiment.task.name)
    problems = lab.read_widgets()
    for problem in problems:
        text = problem.sentence
        if problem.field == "sharing" and not problem.value:
            text = "Choose at least one variant."
        elif problem.field == "sharing" and isinstance(problem.value, int):
            text = (
                f"At most {MOST_COLUMNS} variants fit side by side, but {problem.value} are "
                "chosen: switch some off. The command line and Python take any number."
            )
        st.error(text, icon=":material/error:")
    if problems:
        return None
    lab.write_link()
    return lab.experiment


def action_bar(experiment: Experiment | None, job: Job | None) -> None:
    """Train, Pause, Step, Stop, Reset, New seeds."""
    fits = job is not None and job.experiment == experiment
    active = job is not None and job.active
    paused = job is not None and job.state == "paused"
    started = job is not None and job.snapshot is not None and job.snapshot.step > 0
    label = "Train"
    if paused and fits and started:
        label = "Resume"
    elif job is not None and not fits:
        label = "Train new settings"
    invalid = experiment is None
    with st.container(horizontal=True, key="actions"):
        st.button(
            label,
            type="primary",
            icon=":material/play_arrow:",
            width=200,  # as wide as its longest label, so that the others stay where they are
            on_click=lab.train,
            disabled=invalid or (active and fits),
            key="train",
        )
        st.button(
            "Pause", icon=":material/pause:", on_click=lab.pause, disabled=not active, key="pause"
        )
        st.button(
            "Step",
            icon=":material/skip_next:",
            on_click=lab.step,
            disabled=invalid or active,
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


def status_line(job: Job | None, snapshot: Snapshot) -> str:
    """What is on screen and how far it is, in one line."""
    experiment = snapshot.experiment
    other = experiment != lab.experiment
    steps, speed = experiment.training.steps, snapshot.model_steps_per_second
    if job is None:
        if other:
            return "Your settings are not trained yet. Press **Train**."
        return (
            f"A finished example: {experiment.n_runs} models, {steps} steps, trained in "
            f"{snapshot.seconds:.0f} s. Press **Train** to watch it happen."
        )
    if job.state == "failed":
        return f"Training failed: {job.error}. Press **Train** to try again."
    if job.snapshot is None:
        return "Starting: the training process is getting ready."
    where = f"Step {snapshot.step} of {steps}, {experiment.n_runs} models"
    pace = f", {speed:,.0f} model-steps per second" if snapshot.step else ""
    notes = " The training process died and began anew." if job.restarts else ""
    notes += " The settings have changed since." if other else ""
    if job.state == "finished":
        return f"Finished: {where} in {snapshot.seconds:.1f} s{pace}.{notes}"
    if job.state in ("paused", "stopped"):
        confirmed = job.state.capitalize()
        asked = {"paused": "Pausing", "stopped": "Stopping"}[job.state]
        return f"{confirmed if job.settled else asked}: {where}{pace}.{notes}"
    left = (steps - snapshot.step) * experiment.n_runs / speed if speed and snapshot.step else 0
    return f"{where}{pace}{f', {left:.0f} s left' if left >= 1 else ''}.{notes}"


def live_area(drawn_moving: bool) -> None:
    """All that changes while models learn; drawn anew at every tick."""
    job = lab.job
    snapshot = lab.shown(job)
    experiment = snapshot.experiment
    foreign = snapshot is lab.example and (job is not None or experiment != lab.experiment)
    st.progress(0.0 if foreign else snapshot.step / experiment.training.steps)
    st.markdown(status_line(job, snapshot))
    summary = finding(snapshot)
    with st.container(key="finding"):  # as high as its longest text, so that nothing below jumps
        if foreign:
            st.markdown("Your columns, untrained. Below them, faded: the example, not yours.")
        else:
            st.markdown(f"**{summary}**" if snapshot.step else "Untrained: nothing is learnt yet.")
    if foreign:
        components.planned_cards(lab.experiment, key="cards")
    else:
        components.variant_cards(snapshot, key="cards")

    st.subheader("Accuracy on held-out books, by training step", anchor=False)
    previous = lab.previous
    components.live_figure(
        plot_accuracy(snapshot, previous),
        accuracy_legend(snapshot, previous),
        key="accuracy",
        faded=foreign,
        alt=f"Accuracy over steps. {summary}",
    )

    st.subheader("Attention on one held-out book", anchor=False)
    seed, layer, head = probe_pickers(snapshot)
    maps = attention_maps(snapshot, seed, layer, head)
    components.attention_maps(
        maps,
        key="maps",
        faded=foreign,
        alt="Attention maps. "
        + " ".join(f"{panel['name']}: {panel['summary']}." for panel in maps["panels"]),
    )

    st.subheader("Symmetry of the scores, direction of the attention", anchor=False)
    components.live_figure(
        plot_attention_measures(snapshot),
        measures_legend(snapshot),
        key="measures",
        faded=foreign,
        alt="Asymmetry of the scores and attention on the right and the reversed entry over steps.",
    )
    if drawn_moving and (job is None or job.settled):
        st.rerun()


def probe_pickers(snapshot: Snapshot) -> tuple[int, int, int | None]:
    """Which of the seeds, layers and heads the maps show."""
    experiment, pattern = snapshot.experiment, snapshot.probe.pattern
    size = experiment.size
    with st.container(horizontal=True, vertical_alignment="bottom", key="probe"):
        seeds = list(experiment.seeds)
        seed = st.selectbox("Seed", seeds, key=f"seed_{seeds[0]}_{len(seeds)}", width=110)
        layer = 0
        if size.n_layers > 1:
            options = range(size.n_layers)
            layer = st.selectbox("Layer", options, format_func=lambda i: str(i + 1), width=110)
        head: int | None = 0
        if experiment.n_heads > 1:
            heads = [None, *range(experiment.n_heads)]
            head = st.selectbox(
                "Head", heads, format_func=lambda i: "mean" if i is None else str(i + 1), width=110
            )
        below_zero = " Weights below 0 are drawn as 0." if (pattern < -0.01).any() else ""
        reversed_too = " Circled: the reversed one." if experiment.task.name == "directed" else ""
        st.caption(
            "One example no model was trained on. Rows ask, columns are looked at, brighter is "
            f"more. Outlined: the right entry.{reversed_too} ✓ and ✗: the number it answered."
            f"{below_zero}"
        )
    return seed, layer, head


def numbers(job: Job | None) -> None:
    """Tables and downloads of what is on screen, while nothing moves."""
    snapshot = lab.shown(job)
    with st.expander("Numbers and downloads"):
        if job is not None and not job.settled:
            st.caption("Tables appear when training ends or is paused.")
            return
        table = sharing_table(snapshot)
        table = table.assign(
            accuracy_low=table.accuracy_low.clip(lower=0),
            accuracy_high=table.accuracy_high.clip(upper=1),
        )
        st.dataframe(table, hide_index=True, alt="Means over seeds for every variant")
        st.caption(
            "Means over seeds; low and high are 95% limits (Student's t). `difference` is accuracy "
            "minus that of QKV, seed by seed. Steps to threshold: mean over the solved seeds only; "
            "diverged seeds are left out of all means."
        )
        runs = run_table(snapshot)
        with st.container(horizontal=True):
            st.download_button(
                "Runs as CSV",
                runs.to_csv(index=False),
                f"attnkit-{snapshot.experiment.hash}.csv",
                "text/csv",
                icon=":material/download:",
                on_click="ignore",
            )
            st.download_button(
                "Experiment as JSON",
                json.dumps(snapshot.experiment.settings(), indent=1, ensure_ascii=False),
                f"attnkit-{snapshot.experiment.hash}.json",
                "application/json",
                icon=":material/download:",
                on_click="ignore",
            )
        st.code(python_code(snapshot.experiment), language="python")


def python_code(experiment: Experiment) -> str:
    """The same experiment as library code."""
    defaults = default_settings(experiment.task.name)
    changed = [
        f"{name}={value!r}"
        for name, value in experiment.settings().items()
        if value != defaults[name]
    ]
    arguments = ", ".join([f'task="{experiment.task.name}"', *changed])
    return f"import attnkit as ak\n\nresult = ak.train(ak.Experiment({arguments}))\nresult.table"


st.title("Why do Q, K and V need different matrices?", anchor=False)
lab = open_lab()
if lab.problems:
    details = " ".join(problem.sentence for problem in lab.problems)
    st.warning(f"The link was not fully understood. {details} All else is as it says.")
    lab.problems = []
if lab.lost:
    details = " ".join(f"{lost.value}: {lost.allowed.removeprefix('but ')}." for lost in lab.lost)
    st.warning(f"Switched off, because they do not go with this task's sizes. {details}")
    lab.lost = []

with st.container(horizontal=True, vertical_alignment="bottom"):
    st.segmented_control(
        "Task",
        list(TASKS),
        format_func=lambda name: TASKS[name].title,
        key="set_task",
        required=True,
        on_change=lambda: lab.change_task(st.session_state.set_task),
        help="What the models must learn.",
    )
    st.pills(
        "Who shares a matrix",
        lab.columns,
        format_func=lambda name: title_of(Variant(name)),
        selection_mode="multi",
        key="set_sharing",
        wrap=True,
        help="Roles joined by = read one and the same matrix. At most six columns.",
    )
    adding = st.popover(
        "Add a variant", icon=":material/add:", key=composer.OPEN, on_change="rerun"
    )
entry = lab.experiment.task.label(lab.example.probe.tokens)[0].full
with st.container(horizontal=True, vertical_alignment="center"):
    st.caption(
        f"{lab.experiment.task.question} Every example is a book of "
        f"{lab.experiment.task.n_entries} entries such as “{entry}”.",
        width="content",
    )
    st.page_link("pages/guide.py", label="What the words mean", icon=":material/menu_book:")
experiment = read_settings()
if adding.open:
    with adding:
        composer.variant_form(lab)
job = lab.job
if experiment is not None:
    unequal = [v for v in experiment.sharing if abs(experiment.adjusted(v).difference) > TOLERANCE]
    if unequal:
        names = ", ".join(title_of(variant) for variant in unequal)
        st.warning(f"No width makes the costs of {names} equal to the others: see the cards.")
action_bar(experiment, job)
moving = job is not None and not job.settled
st.fragment(live_area, run_every=TICK_SECONDS if moving else None)(moving)
numbers(job)
components.load_plotly()
