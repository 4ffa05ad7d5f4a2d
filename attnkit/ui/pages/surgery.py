"""Surgery: tie the matrices of trained models, or switch heads off, and measure the loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnkit.analysis.inspection.request import Inspection, View
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.tying import (
    ALPHAS,
    SAME,
    Recovery,
    TyingResult,
    curve_table,
    percent_of,
    recovery_of,
    tied_variant,
    train_on,
)
from attnkit.experiment.experiment import Experiment, settings
from attnkit.figures.heads import (
    TOLERATED_LOSS,
    ablations_of,
    heads_csv,
    heads_table,
    overall_finding,
)
from attnkit.figures.ties import (
    TieOption,
    mixture_label,
    mixture_text,
    plot_mixtures,
    plot_recovery,
    repairs_table,
    tying_csv,
    tying_results,
    way_in_words,
    ways_csv,
    ways_of,
    ways_table,
)
from attnkit.foundation.settings import InvalidExperiment, as_sentence
from attnkit.foundation.tables import markdown_table
from attnkit.service.jobs import Job
from attnkit.service.server import server_settings
from attnkit.ui import components
from attnkit.ui.inspected_run import (
    InspectedRun,
    choose,
    open_inspected_run,
    remembered,
    result_of,
)
from attnkit.ui.lab.lab import Lab, lab_link, labels_of
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.server.service import training_service
from attnkit.ui.server.turns import fragment
from attnkit.ui.watched_job import WatchedJob, live, moves, show_refusal, status_of
from attnkit.ui.widgets import download
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

LOOK_SECONDS = 1.0
"""Seconds between two checks of a film that grows."""

REPORTED = (
    "Reported, not measured here: a QKV model trained on reversing lists answers 10% right at once "
    "with K=V by keeping W_K, 12% by keeping W_V, and 86% with the average; five epochs of "
    "distillation bring it to 100% (notes in the repository of Kayyam et al. 2026, "
    "[arXiv 2606.04032](https://arxiv.org/abs/2606.04032))."
)


_NO_ANSWER = "tying_no_answer"
"""Key in the session of the last text that came in place of a result, with its run and step."""


@dataclass
class TiedTraining(WatchedJob):
    """Training of one visitor that ties matrices of a run and then continues.

    Attributes:
        run: Experiment of the inspected run, with all its seeds.
        ended: Results of the trainings that have ended, by the variants that are tied in them.
        looked: Whether a training that a dead server has left was looked for.
    """

    lab: Lab
    run: Experiment
    ended: dict[Variant, Recovery] = field(default_factory=dict)
    looked: bool = False

    def begin(self, experiment: Experiment) -> None:
        """Train an experiment; if it is finished or trains for somebody, show that job."""
        service = training_service()
        existing = service.find(experiment, self.watcher)
        if existing is not None and existing.id == self.job_id and not existing.over:
            return
        self.leave()
        if existing is not None and existing.state != "paused":
            self.watch(existing.id)
        else:
            self.submit(experiment)

    def recovery(self, tied: Variant) -> Recovery | None:
        """Return what has come of a variant that was tied here; None before it is tied."""
        job = self.job
        if job is not None and job.snapshot is not None:
            shown = tied_variant(job.experiment)
            recovery = recovery_of(job.snapshot)
            if recovery is not None and job.over:
                self.ended[shown] = recovery
            if shown == tied:
                return recovery
        return self.ended.get(tied)

    def leave(self) -> None:
        """Take the job off the screen; it ends unless others or this visitor's Lab watch it."""
        if self.job_id in (self.lab.job_id, self.lab.filmed_id):
            self.job_id = None
        super().leave()


def _open_tied_training(subject: InspectedRun) -> TiedTraining:
    lab, run = subject.lab, subject.run
    operation: TiedTraining | None = st.session_state.get("operation")
    if operation is None or operation.run != run or operation.lab is not lab:
        if operation is not None:
            operation.leave()
        operation = st.session_state.operation = TiedTraining(lab, run)
    operation.watcher = lab.watcher
    return operation


def draw() -> None:
    """Draw the page."""
    require_route()
    subject = open_inspected_run("surgery", "What happens if trained matrices are tied?")
    operation = _open_tied_training(subject)
    live(
        lambda: _tie_area(subject, operation),
        lambda: [subject.ask_for_film(), operation.job],
        0.4 if moves(operation.job) else LOOK_SECONDS,
    )
    st.subheader("Which mixture of W_K and W_V serves both?", anchor=False)
    fragment(_mixtures_area)(subject)
    st.subheader("What if one head is switched off?", anchor=False)
    live(lambda: _heads_area(subject), lambda: [subject.ask_for_film()], LOOK_SECONDS)
    st.caption(REPORTED)
    components.load_plotly()


def _newest_result(subject: InspectedRun, view: View) -> InspectionResult | None:
    # While the models train, a result is reused until a tenth of the steps has passed.
    return result_of(subject, subject.inspect(Inspection(view), 10), view)


def _status_line(subject: InspectedRun, job: Job | None) -> str:
    seed = subject.experiment.first_seed
    if job is None or job.state == "failed":
        return "Nothing is trained."
    if job.over:
        return f"Trained for {job.step} steps, seed {seed}."
    return f"Seed {seed}. {status_of(job)} The numbers are those of the newest step."


def _tie_area(subject: InspectedRun, operation: TiedTraining) -> None:
    conclusion = st.container(key="conclusion")
    st.caption(_status_line(subject, subject.ask_for_film()))
    result = _newest_result(subject, "ties")
    if result is not None:
        ways = ways_of(result)
        if ways:
            _show_ways(subject, operation, result, ways, conclusion)
        else:
            conclusion.markdown("These variants have one matrix for all: nothing is left to tie.")
    show_refusal(operation)


def _take_up(subject: InspectedRun, operation: TiedTraining, ways: list[TieOption]) -> None:
    """Choose the way whose training the server's death has interrupted, and begin it anew."""
    service = training_service()
    lost = {} if operation.looked else service.interrupted(operation.watcher)
    operation.looked = True
    for way in ways if lost else ():
        plan, _ = _plan_of(subject, operation, way)
        if plan is not None and plan.hash in lost:
            job = service.restore(plan, operation.watcher)
            if job is not None:
                operation.watch(job.id)
                chosen = {"cut_variant": way.variant, "cut_tie": way.tie, "cut_method": way.method}
                st.session_state.setdefault("remembered", {}).update(chosen)
            return


def _pick_way(ways: list[TieOption]) -> TieOption:
    with st.container(horizontal=True, vertical_alignment="bottom", key="ways"):
        for name, label in (
            ("variant", "Trained model"),
            ("tie", "Tie to"),
            ("method", "Matrix to use"),
        ):
            options = list(dict.fromkeys(getattr(way, name) for way in ways))
            chosen = choose(label, options, f"cut_{name}", title_of if name == "variant" else str)
            ways = [way for way in ways if getattr(way, name) == chosen]
    return ways[0]


def _show_ways(
    subject: InspectedRun,
    operation: TiedTraining,
    result: InspectionResult,
    ways: list[TieOption],
    conclusion: DeltaGenerator,
) -> None:
    _take_up(subject, operation, ways)
    chosen = _pick_way(ways)
    ways_here = [way for way in ways if way.variant == chosen.variant]
    plan, problem = _plan_of(subject, operation, chosen)
    recovery = None if plan is None else operation.recovery(tied_variant(plan))
    words = chosen.conclusion(title_of(chosen.variant), result.header["chance"])
    if recovery is not None:
        words = f"{words} {recovery.finding}"
    conclusion.markdown(plain(words.strip().replace(" → ", "\u00a0→\u00a0")))
    components.markup(ways_table(ways_here, chosen, result.header["chance"]), key="ways_table")
    st.caption(
        f"Accuracy right after tying, without a further step, on {result.header['n_examples']} "
        f"held-out examples after step {result.header['step']}. Average: the mean of the matrices, "
        "number by number. Keep W_K: all of them become W_K."
    )
    # Each part has a place of its own, which may stay empty. Otherwise the parts below would move
    # when training ends, and an interrupted run of the fragment could leave a button behind.
    with st.container():
        if recovery is None or not recovery.finished:
            st.markdown(plain(problem if plan is None else _plan_text(operation, plan)))
    _train_buttons(subject, operation, ways, plan)
    with st.container():
        _show_recovery(operation)


def _train_buttons(
    subject: InspectedRun,
    operation: TiedTraining,
    ways: list[TieOption],
    plan: Experiment | None,
) -> None:
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
        file = f"attnkit-{subject.experiment.task.name}-surgery-tied.csv"
        download("Accuracies as CSV", lambda: ways_csv(ways), file, key="ways_csv")


def _plan_of(
    subject: InspectedRun, operation: TiedTraining, way: TieOption
) -> tuple[Experiment | None, str]:
    """Return the experiment that ties in this way and trains on, or the reason why none can."""
    if way.refusal:
        return None, "This way is not possible, so there is nothing to train on."
    if not way.text:
        return None, "It has been tied during training already: only what it loses is shown."
    run, seed = operation.run, subject.experiment.first_seed
    most_steps = min(settings(run.task.name)["steps"].high or 1, server_settings().max_steps)
    try:
        return train_on(run, seed, way.variant, way.text, int(most_steps)), ""
    except InvalidExperiment as error:
        labels = labels_of(subject.experiment.task.name)
        reasons = " ".join(problem.on_screen(labels) for problem in error.problems)
        return None, f"It cannot be trained on. {reasons}"
    except ValueError as error:
        return None, f"It cannot be trained on. {as_sentence(str(error))}"


def _plan_text(operation: TiedTraining, plan: Experiment) -> str:
    tied_at = plan.tie_step(tied_variant(plan))
    seeds = "1 seed" if plan.n_seeds == 1 else f"{plan.n_seeds} seeds"
    constant = ""
    if operation.run.training.schedule != plan.training.schedule:
        constant = " The learning rate stays constant, because that of the run has fallen to zero."
    return (
        f"Can it recover? “Train on” repeats the training with {seeds}, ties it at step "
        f"{tied_at} and trains {plan.training.steps - tied_at} more steps, beside the same model "
        f"never tied.{constant}"
    )


def _show_recovery(operation: TiedTraining) -> None:
    job = operation.job
    if job is None:
        return
    st.markdown(f"**{plain(way_in_words(tied_variant(job.experiment)))}**. {status_of(job)}")
    snapshot = job.snapshot
    if snapshot is None:
        return
    recovery = recovery_of(snapshot)
    finding = "Not tied yet: both are one and the same." if recovery is None else recovery.finding
    components.live_figure(
        plot_recovery(snapshot),
        key="recovery",
        alt=f"Accuracy on held-out examples over steps. {finding}",
    )
    brackets = "; brackets: 95% interval" * (snapshot.experiment.n_seeds > 1)
    st.caption(
        "Accuracy on held-out examples, by training step. Back: within "
        f"{_points(SAME)} of what it was{brackets}."
    )
    if len(operation.ended) > 1:
        rows = []
        for tied, ended in operation.ended.items():
            accuracies = (ended.before, ended.at_once, ended.now, ended.untied_now)
            label = f"{title_of(tied.stages[0])}: {way_in_words(tied)}"
            rows.append(map(plain, [label, *map(percent_of, accuracies), str(ended.steps_since)]))
        header = ("Tied", "Before", "At once", "Later", "Never tied", "Steps")
        with st.container(key="trials"):
            st.markdown(markdown_table(header, rows, "lrrrrr"))
    if job.over:
        with st.container(horizontal=True, vertical_alignment="center", key="take_away"):
            lab_link("Open it in the Lab", snapshot.experiment.to_params())
            file = f"attnkit-{snapshot.experiment.task.name}-surgery-recovery.csv"
            download("Curves as CSV", curve_table(snapshot), file, key="recovery_csv")


def _points(share: float) -> str:
    return f"{100 * share:g} percentage point{'s' * (share != 0.01)}"


def _mixtures_area(subject: InspectedRun) -> None:
    film = subject.ask_for_film()
    if moves(film):
        st.info("The mixtures appear when the training has ended.")
        return
    # A text in place of a result stays for this run and step: every other drawing of the page
    # would begin the same long computation once more.
    key = [(job.id, job.step) if job is not None else None for job in (subject.lab.job, film)]
    known_key, answer = st.session_state.get(_NO_ANSWER, (None, None))
    if known_key != key:
        answer = subject.inspect_all_seeds(Inspection("tying"))
        if isinstance(answer, str):
            st.session_state[_NO_ANSWER] = (key, answer)
    forget = partial(st.session_state.pop, _NO_ANSWER, None)
    inspected = result_of(subject, answer, "tying", forget)
    if inspected is None:
        return
    results, refusals = tying_results(inspected)
    if results:
        variants = [result.variant for result in results]
        chosen = variants[0]
        if len(results) > 1:
            chosen = choose("Trained model", variants, "tying_variant", title_of)
        result = results[variants.index(chosen)]
        _show_tying(result, subject.experiment.task.name, results)
    else:
        st.markdown("None of these models can be tied in this way.")
    for refusal in refusals:
        st.caption(plain(f"{refusal}."))


def _show_tying(result: TyingResult, name: str, results: list[TyingResult]) -> None:
    with st.container(key="tying_finding"):
        st.markdown(f"**{plain(result.mixture_finding)}**")
    if result.has_diverged:
        return
    curve, repairs = st.columns([3, 2], gap="medium")
    with curve:
        alpha = st.select_slider(
            "α, the share of W_K in the mixture α W_K + (1 − α) W_V",
            ALPHAS,
            format_func=mixture_label,
            **remembered("alpha", ALPHAS, 0.5, "tying_alpha"),
        )
        chosen = mixture_text(result, alpha)
        components.picture(
            plot_mixtures(result, alpha),
            key="mixtures",
            alt=f"Accuracy over α. {result.mixture_finding} {chosen}",
        )
        with st.container(key="tying_chosen"):
            st.markdown(plain(chosen))
    with repairs:
        components.markup(repairs_table(result), key="repairs_table")
        with st.container(key="repair_finding"):
            st.markdown(plain(result.repair_finding))
    st.caption(plain(_method(result)))
    file = f"attnkit-{name}-surgery-mixtures.csv"
    download("Accuracies as CSV", lambda: tying_csv(results), file, key="tying_csv")


def _method(result: TyingResult) -> str:
    first, *others = result.seeds
    examples = f"{result.n_examples} held-out examples"
    runs = f"Seed {first}, {examples}"
    if others:
        runs = f"Mean of {1 + len(others)} seeds, with 95% intervals, {examples} each"
    best = "; best: not shown to be more than one point below the highest mean" * bool(others)
    return (
        f"{runs}, after step {result.step}{best}. The fitted map is the least-squares map from the "
        "keys to the values of training examples, for each head by itself. It becomes part of W_O, "
        "so it costs no parameters and no cache. CKA of keys and values: "
        f"{result.mean_cka:.2f}."
    )


def _heads_area(subject: InspectedRun) -> None:
    result = _newest_result(subject, "heads")
    if result is not None:
        ablations = ablations_of(result)
        st.markdown(f"**{plain(overall_finding(ablations))}**")
        components.markup(heads_table(ablations), key="heads_table")
        st.caption(
            "Accuracy with that head's output set to zero, all else as trained; the stronger the "
            f"grey, the more is lost. On {result.header['n_examples']} held-out examples after "
            f"step {result.header['step']}. A head can go if accuracy falls by at most "
            f"{_points(TOLERATED_LOSS)} without it."
        )
        file = f"attnkit-{subject.experiment.task.name}-surgery-heads.csv"
        download("Accuracies as CSV", lambda: heads_csv(ablations), file, key="heads_csv")
