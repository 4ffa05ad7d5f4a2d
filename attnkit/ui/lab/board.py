"""The Lab's board, the pickers of its maps, and larger charts of the same run."""

from __future__ import annotations

import json
from typing import NamedTuple

import streamlit as st

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.comparison import Metric
from attnkit.analysis.export import experiment_code
from attnkit.analysis.inspection.request import Inspection
from attnkit.experiment import Experiment
from attnkit.figures.board import asymmetry_over_steps
from attnkit.figures.panels import Figure
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.tables import csv_of_frame
from attnkit.service.jobs import Job
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import never_solved, run_table
from attnkit.ui import components, words
from attnkit.ui.cache import (
    board,
    finding,
    headline,
    measures_finding,
    planned_board,
    plot_attention_measures,
    plot_metric,
    sharing_table,
    slice_table,
)
from attnkit.ui.inspected_run import ATTENTION_TITLE, InspectedRun, page_as_file
from attnkit.ui.lab.lab import Lab, with_hidden
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.watched_job import moves
from attnkit.ui.widgets import download

_TITLES: dict[Metric, str] = {
    "accuracy": mark("Accuracy on held-out examples, by training step"),
    "loss": mark("Loss on held-out examples, by training step"),
}
"""Titles of the larger charts."""

_ALTS: dict[Metric, str] = {
    "accuracy": mark("Accuracy over steps."),
    "loss": mark("Loss over steps."),
}
"""What the larger charts show, for people who do not see them."""


class BoardView(NamedTuple):
    """Choice of what the maps of the board show: a seed, and the indices of a layer and a head.

    A head of None means the mean of all heads.
    """

    seed: int
    layer: int
    head: int | None


def pick_view(experiment: Experiment) -> BoardView:
    """Draw the pickers of seed, layer and head, where there is a choice."""
    layer_specs, seeds = experiment.layer_specs, list(experiment.seeds)
    with st.container(horizontal=True, vertical_alignment="center", key="probe", width="content"):
        seed = st.selectbox(
            tr("Seed"),
            seeds,
            format_func=lambda seed: tr("seed {seed}", seed=seed),
            key=f"seed_{seeds[0]}_{len(seeds)}",
            width=110,
            label_visibility="collapsed",
        )
        layer = telling_layer(layer_specs)
        if len(layer_specs) > 1:
            layer = st.selectbox(
                tr("Layer"),
                range(len(layer_specs)),
                index=layer,
                format_func=lambda i: layer_specs[i].name,
                key="layer_" + "_".join(f"{spec.kind}{spec.number}" for spec in layer_specs),
                width=130,
                label_visibility="collapsed",
            )
        head: int | None = 0
        if experiment.n_heads > 1:
            head = st.selectbox(
                tr("Head"),
                [None, *range(experiment.n_heads)],
                format_func=_head_title,
                key=f"head_{experiment.n_heads}",
                width=140,
                label_visibility="collapsed",
            )
    return BoardView(seed, layer, head)


def _head_title(head: int | None) -> str:
    return tr("mean of heads") if head is None else tr("head {number}", number=head + 1)


def explain_result(snapshot: Snapshot, seed: int) -> None:
    """Write what the accuracies show over all seeds, and the reason in one seed if it is known.

    Args:
        snapshot: Snapshot on screen.
        seed: Seed for which the reason is given.
    """
    task, rule = snapshot.experiment.task, None
    if snapshot.step and task.loss_to_beat is None:
        rule = f"{tr(words.WORDS['solved'].meaning)} {never_solved(task)}"
    reason = headline(snapshot, seed) if snapshot.step else None
    if reason is not None:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{plain(reason.in_words(snapshot.experiment, seed))}**")
            if reason.page:
                hidden = with_hidden(st.query_params.to_dict())
                page = tr(reason.page.capitalize())  # its title in the navigation
                see = tr("See it on the page {page}", page=page)
                page_link(reason.page, see, query_params=hidden)
                page_link("questions", tr("When must Q, K and V differ?"))
    st.markdown(plain(finding(snapshot)), help=rule)


def draw_board(
    snapshot: Snapshot, experiment: Experiment, view: BoardView, previous: Snapshot | None
) -> None:
    """Draw the board of a snapshot.

    Args:
        snapshot: Snapshot on screen.
        experiment: Experiment whose variants are the columns.
        view: What the maps show.
        previous: Snapshot of the run before, whose curves are drawn in grey.
    """
    drawing = board(snapshot, experiment, *view, previous)
    components.board(drawing, key="board", alt=f"{finding(snapshot)} {measures_finding(snapshot)}")


def draw_planned_board(experiment: Experiment) -> None:
    """Draw the board of settings of which nothing is trained yet."""
    n_variants = len(experiment.sharing)
    alt = tr_n(
        "{n} variant. Nothing is trained yet.", "{n} variants. Nothing is trained yet.", n_variants
    )
    components.board(planned_board(experiment), key="board", alt=alt)


def larger_charts(lab: Lab, snapshot: Snapshot) -> None:
    """Draw charts that can be zoomed into; they are made only while their expander is open."""
    expander = st.expander(tr("Larger charts"), key="larger", on_change="rerun")
    if not expander.open:
        return
    task, asymmetry = snapshot.experiment.task, asymmetry_over_steps(snapshot)
    charts: list[tuple[str, str, Figure, str]] = []
    metrics: list[Metric] = ["accuracy"]
    if task.loss_to_beat is not None:
        metrics.insert(0, "loss")
    for metric in metrics:
        figure = plot_metric(snapshot, metric, lab.previous)
        title, alt = tr(_TITLES[metric]), tr(_ALTS[metric])
        if task.asks_trained:
            title = tr("Accuracy on all rows, by training step")
        charts.append((title, metric, figure, f"{alt} {finding(snapshot)}"))
    title = tr("Symmetry of the scores, direction of the attention")
    alt = " ".join([tr("Symmetry and attention over steps."), measures_finding(snapshot)])
    charts.append((title, "measures", plot_attention_measures(snapshot), alt))
    with expander:
        for title, key, figure, alt in charts:
            st.subheader(title, anchor=False)
            file = f"attnkit-{task.name}-{key}"
            components.live_figure(figure, key=key, file=file, asymmetry=asymmetry, alt=alt)
        components.load_plotly()


_BY_SLICES = {
    "": mark("Accuracy by group"),
    "Neighbour": mark("Accuracy by neighbour"),
    "Place": mark("Accuracy by place"),
    "Translation": mark("Accuracy by translation"),
    "Hops": mark("Accuracy by hops"),
    "Earlier occurrences of the key": mark("Accuracy by earlier occurrences of the key"),
    "Tokens of the key": mark("Accuracy by tokens of the key"),
    "Tokens from the key to its query": mark("Accuracy by tokens from the key to its query"),
    "Place among the tokens": mark("Accuracy by place among the tokens"),
}
"""Titles of the table of slices, by the property that groups the answers of a task."""


def numbers(lab: Lab, job: Job | None) -> None:
    """Draw tables and downloads of the run on screen; while it trains, only a note."""
    snapshot = lab.shown(job)
    with st.expander(tr("Numbers and downloads")):
        if snapshot is None:
            st.caption(tr("Tables appear when something is trained."))
            st.code(experiment_code(lab.experiment), language="python", wrap_lines=True)
            return
        if moves(job):
            st.caption(tr("Tables appear when training ends or is paused."))
            return
        table = sharing_table(snapshot)
        table = table.assign(
            accuracy_low=table.accuracy_low.clip(lower=0),
            accuracy_high=table.accuracy_high.clip(upper=1),
        )
        st.dataframe(table, hide_index=True, alt=tr("Means over seeds for every variant"))
        st.caption(
            tr(
                "Trained in {seconds:.1f} s by {engine}.",
                seconds=snapshot.seconds,
                engine=plain(snapshot.trained_by),
            )
        )
        st.caption(
            tr(
                "Means over seeds; low and high are 95% limits (Student's t). `difference` is "
                "accuracy minus that of QKV, seed by seed. Steps to threshold: mean over the "
                "solved seeds only; diverged seeds are left out of all means."
            )
        )
        task = snapshot.experiment.task
        if task.slice_names:
            title = _title_of_slices(task.slice_title)
            st.markdown(f"**{title}**")
            groups = slice_table(snapshot).rename(columns=tr)
            st.dataframe(groups, hide_index=True, alt=title)
        runs = run_table(snapshot)
        row = st.container(horizontal=True)
        with row:
            settings = json.dumps(snapshot.experiment.settings(), indent=1, ensure_ascii=False)
            name = f"attnkit-{task.name}"
            download(tr("Runs as CSV"), csv_of_frame(runs), f"{name}-runs.csv", key="runs_csv")
            download(
                tr("Experiment as JSON"), settings, f"{name}-experiment.json", key="settings_json"
            )
            run = snapshot.experiment
            page_as_file(
                InspectedRun(lab, run.replace(n_seeds=1), run, row),
                Inspection("attention", layer=telling_layer(run.layer_specs)),
                "attention",
                ATTENTION_TITLE,
                label=tr("Attention as HTML"),
                help=tr(
                    "The page Attention as one file that works without a server: one lookup of "
                    "seed {seed} at any moment of training, number by number.",
                    seed=run.first_seed,
                ),
            )
        st.code(experiment_code(snapshot.experiment), language="python", wrap_lines=True)


def _title_of_slices(slice_title: str) -> str:
    """Return the title of the table of slices; a plugin's task may name any property."""
    if slice_title in _BY_SLICES:
        return tr(_BY_SLICES[slice_title])
    return tr("Accuracy by {group}", group=f"{slice_title[:1].lower()}{slice_title[1:]}")
