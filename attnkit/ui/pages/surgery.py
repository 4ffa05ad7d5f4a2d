"""Surgery: tie the matrices of trained models, or switch heads off, and measure the loss."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from attnkit.analysis.inspection.request import Inspection, View
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.recovery import NEAR, curve_table, recovery_of, repeats, tied_variant
from attnkit.experiment import Experiment
from attnkit.experiment.links import link_params
from attnkit.figures.heads import (
    TOLERATED_LOSS,
    ablations_of,
    heads_csv,
    heads_tables,
    overall_finding,
)
from attnkit.figures.recovery import plot_recovery, recovery_legend
from attnkit.figures.ties import Way, ways_csv, ways_of, ways_table
from attnkit.foundation.settings import as_sentence
from attnkit.service.jobs import Job
from attnkit.training.snapshot import Snapshot
from attnkit.ui import components
from attnkit.ui.inspection import Subject, moves, open_subject
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.service import training_service
from attnkit.ui.tied_training import TiedTraining, open_tied_training
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

LOOK_SECONDS = 1.0
"""Seconds between two checks of a film that grows."""

LOOKS = 10
"""Number of times the models are measured again while they train."""

TICK_SECONDS = 0.4
"""Seconds between two updates while a tied model trains."""

REPORTED = (
    "Reported, not measured here: in notes in the repository of Kayyam et al. 2026 "
    "([arXiv 2606.04032](https://arxiv.org/abs/2606.04032)), a QKV model trained on reversing "
    "lists has an accuracy of .100 at once with K=V keep K, .123 with keep V and .861 with the "
    "average; five epochs of distillation bring it to 1.000."
)


def draw() -> None:
    """Draw the page."""
    require_route()
    subject = open_subject("surgery", "Surgery on trained models")
    operation = open_tied_training(subject.lab)
    grows = moves(subject.ask_for_film())
    look_seconds = LOOK_SECONDS if grows else None

    st.subheader("Tie it now", anchor=False)
    st.markdown(
        "Roles that had a matrix each go on with one. What is lost at once, what comes back?"
    )
    st.fragment(tie_area, run_every=look_seconds)(subject, operation, grows)
    job = operation.job
    trains = job is not None and not job.over
    st.fragment(recovery_area, run_every=TICK_SECONDS if trains else None)(
        subject, operation, trains
    )
    st.caption(REPORTED)

    st.subheader("What if one head is switched off?", anchor=False)
    st.markdown("Which heads does a trained model need, and which could go?")
    st.fragment(heads_area, run_every=look_seconds)(subject, grows)
    components.load_plotly()


def newest_result(subject: Subject, view: View) -> InspectionResult | None:
    """Return what a view measures in the newest frame; None, with a message, if there is none.

    While the models train, a result is reused until a tenth of the steps has passed.
    """
    job, key = subject.ask_for_film(), f"newest_{view}"
    known_job, known_step, known_blob = st.session_state.get(key, ("", 0, b""))
    if job is not None and job.id == known_job and not job.over:
        next_step = known_step + job.experiment.training.steps / LOOKS
        if job.step < next_step:
            return InspectionResult.from_bytes(known_blob)
    blob = subject.inspect(Inspection(view))
    if isinstance(blob, bytes):
        if job is not None:
            st.session_state[key] = (job.id, job.step, blob)
        return InspectionResult.from_bytes(blob)
    if isinstance(blob, str):
        st.error(plain(f"{blob}."), icon=":material/error:")
    elif job is not None and job.state == "failed":
        st.error(f"Training failed: {plain(job.error)}.", icon=":material/error:")
        st.button(
            "Train it again",
            icon=":material/replay:",
            on_click=subject.try_again,
            key=f"again_{view}",
        )
    else:
        st.info("There is no trained model yet: numbers appear as soon as training has begun.")
    return None


def status_line(subject: Subject, job: Job | None) -> str:
    """Return which models are measured, and how far they are trained."""
    seed = subject.experiment.first_seed
    if job is None or job.state == "failed":
        return "Nothing is trained."
    if job.over:
        return f"Trained for {job.step} steps, seed {seed}."
    if not job.begun:
        return "Waiting for a turn to train it."
    steps = subject.experiment.training.steps
    verb = "Paused with" if job.state == "paused" else "Training"
    return f"{verb} seed {seed}: step {job.step} of {steps}. Numbers are of the newest moment."


def redraw_if_changed(subject: Subject, drawn_moving: bool) -> None:
    """Draw the page again if the film has begun or ceased to grow since it was drawn.

    A finished film grows again if it had been forgotten and is trained once more.
    """
    if moves(subject.ask_for_film()) != drawn_moving:
        st.rerun()


def tie_area(subject: Subject, operation: TiedTraining, drawn_moving: bool) -> None:
    """Draw the choice of what to tie and how, and what it costs at once."""
    st.markdown(status_line(subject, subject.ask_for_film()))
    result = newest_result(subject, "ties")
    if result is not None:
        ways = ways_of(result)
        if ways:
            show_ways(subject, operation, result, ways, pick_way(ways))
        else:
            st.info("All matrices of these variants are tied already, so nothing is left to tie.")
    redraw_if_changed(subject, drawn_moving)


def pick_way(ways: list[Way]) -> Way:
    """Let the visitor choose the variant, the roles to tie, and the matrix to go on with."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="ways"):
        variant = pick("Trained model", [way.variant for way in ways], "cut_variant", title)
        ways = [way for way in ways if way.variant == variant]
        tie = pick("Tie", [way.tie for way in ways], "cut_tie")
        ways = [way for way in ways if way.tie == tie]
        how = pick("Go on with", [way.how for way in ways], "cut_by", kept_matrix)
    return next(way for way in ways if way.how == how)


def pick(label: str, options: list[str], key: str, text_of: Callable[[str], str] = str) -> str:
    """Let the visitor choose one of several texts; the last choice stands if it is among them."""
    different = list(dict.fromkeys(options))
    last = st.session_state.get(f"last_{key}")
    chosen = st.segmented_control(
        label,
        different,
        default=last if last in different else different[0],
        required=True,
        format_func=text_of,
        key=f"{key}_{'_'.join(different)}",
        wrap=True,
    )
    chosen = chosen if chosen in different else different[0]
    st.session_state[f"last_{key}"] = chosen
    return chosen


def title(text: str) -> str:
    """Return the title of a variant's text form."""
    return title_of(Variant(text))


def kept_matrix(how: str) -> str:
    """Return the matrix that a way of tying keeps, as on a button."""
    return "the average" if how == "average" else f"W_{how[-1]} ({how})"


def show_ways(
    subject: Subject,
    operation: TiedTraining,
    result: InspectionResult,
    ways: list[Way],
    chosen: Way,
) -> None:
    """Draw the finding, all ways to tie the chosen variant, and the buttons that train on."""
    with st.container(key="tie_finding"):
        st.markdown(f"**{plain(f'{title(chosen.variant)}: {chosen.finding}')}**")
    of_variant = [way for way in ways if way.variant == chosen.variant]
    components.markup(ways_table(of_variant, chosen, result.header["chance"]), key="ways_table")
    st.caption(
        f"Accuracy right after tying, without a further step, on {result.header['n_examples']} "
        f"held-out examples after step {result.header['step']}."
    )
    plan, problem = plan_of(subject, operation, chosen)
    job = operation.job
    training = None if job is None or job.over else job.experiment
    with st.container(horizontal=True, vertical_alignment="center", key="operate"):
        # No callbacks: a button that its own press disables would not report the press.
        if st.button(
            "Train on",
            type="primary",
            icon=":material/play_arrow:",
            disabled=plan is None or training == plan,
            key="train_on",
        ):
            assert plan is not None
            operation.begin(plan)
            st.rerun()
        if training is not None and st.button(
            "Stop", icon=":material/stop:", key="stop_trained_on"
        ):
            operation.stop()
            st.rerun()
        st.download_button(
            "Accuracies as CSV",
            ways_csv(ways),
            f"attnkit-{subject.experiment.hash}-tied.csv",
            "text/csv",
            icon=":material/download:",
            on_click="ignore",
            key="ways_csv",
        )
    st.caption(plain(problem if plan is None else plan_text(operation, plan)))


def plan_of(subject: Subject, operation: TiedTraining, way: Way) -> tuple[Experiment | None, str]:
    """Return the experiment that ties in this way and trains on, or the reason why none can."""
    if way.refusal:
        return None, way.refusal
    if not way.text:
        return None, "It has been tied during training already: only what it loses is shown."
    try:
        return operation.plan(subject.experiment.first_seed, way.variant, way.text), ""
    except ValueError as error:
        return None, f"It cannot be trained on. {as_sentence(str(error))}"


def plan_text(operation: TiedTraining, plan: Experiment) -> str:
    """Return a sentence about the training that pressing the button begins."""
    tied = tied_variant(plan)
    seeds = "1 seed" if plan.n_seeds == 1 else f"{plan.n_seeds} seeds"
    same = "the same numbers again"
    if not repeats(operation.run, plan):
        same = "but with a constant learning rate, for this run's own has fallen to zero"
    return (
        f"Repeats the training, {same}, for {plan.training.steps} steps with {seeds}: once "
        f"tied at step {plan.tie_step(tied)}, once never tied."
    )


def recovery_area(subject: Subject, operation: TiedTraining, drawn_moving: bool) -> None:
    """Draw the fall and the recovery of accuracy; drawn again at every tick."""
    job = operation.job
    if operation.refusal:
        st.warning(f"Not taken: {plain(operation.refusal)}.")
        operation.refusal = ""
    if job is None:
        return
    if drawn_moving and job.over:
        st.rerun()
    st.markdown(training_line(job))
    snapshot = job.snapshot
    if snapshot is None:
        return
    recovery = recovery_of(snapshot)
    finding = "Not tied yet: both are one and the same." if recovery is None else recovery.finding
    with st.container(key="recovery_finding"):
        st.markdown(f"**{plain(finding)}**")
    components.live_figure(
        plot_recovery(snapshot),
        recovery_legend(snapshot),
        key="recovery",
        faded=False,
        alt=f"Accuracy on held-out examples over steps. {finding}",
    )
    brackets = "; brackets: 95% interval" * (snapshot.experiment.n_seeds > 1)
    st.caption(
        "Accuracy on held-out examples, by training step. Back: within "
        f"{points(NEAR)} of what it was{brackets}."
    )
    if job.over:
        recovery_downloads(subject, snapshot)


def recovery_downloads(subject: Subject, snapshot: Snapshot) -> None:
    """Draw the link that opens a tied training in the Lab, and the download of its curves."""
    with st.container(horizontal=True, vertical_alignment="center", key="take_away"):
        st.page_link(
            "pages/lab.py",
            label="Open it in the Lab",
            icon=":material/science:",
            query_params=link_params(snapshot.experiment, subject.lab.hidden),
        )
        st.download_button(
            "Curves as CSV",
            curve_table(snapshot),
            f"attnkit-{snapshot.experiment.hash}-recovery.csv",
            "text/csv",
            icon=":material/download:",
            on_click="ignore",
            key="recovery_csv",
        )


def points(share: float) -> str:
    """Return a difference of accuracies in percentage points."""
    return f"{100 * share:g} percentage point{'s' * (share != 0.01)}"


def training_line(job: Job) -> str:
    """Return how far the training of a tied model is."""
    if job.state == "failed":
        return f"Training failed: {plain(job.error)}."
    if job.snapshot is None and job.over:
        return f"Stopped before it began{f', {plain(job.error)}' if job.error else ''}."
    if not job.begun:
        outlook = training_service().outlook(job.id)
        place = f": place {outlook.place} in the queue" if outlook and outlook.place else ""
        return f"Waiting for its turn{place}."
    if job.snapshot is None:
        return "Starting."
    verb = {"finished": "Trained", "stopped": "Stopped"}.get(job.state, "Training")
    why = f" {plain(job.error)}" if job.error else ""
    steps = job.experiment.training.steps
    return f"{verb}{why}: step {job.step} of {steps}, {job.snapshot.seconds:.1f} s of training."


def heads_area(subject: Subject, drawn_moving: bool) -> None:
    """Draw the accuracy without each head."""
    result = newest_result(subject, "heads")
    if result is not None:
        ablations = ablations_of(result)
        st.markdown(f"**{plain(overall_finding(ablations))}**")
        components.markup(heads_tables(ablations), key="heads_table")
        st.caption(
            "Accuracy with that head's output set to zero, all else as trained; the darker, the "
            f"more is lost. On {result.header['n_examples']} held-out examples after step "
            f"{result.header['step']}. A head can go if accuracy falls by at most "
            f"{points(TOLERATED_LOSS)} without it."
        )
        st.download_button(
            "Accuracies as CSV",
            heads_csv(ablations),
            f"attnkit-{subject.experiment.hash}-heads.csv",
            "text/csv",
            icon=":material/download:",
            on_click="ignore",
            key="heads_csv",
        )
    redraw_if_changed(subject, drawn_moving)
