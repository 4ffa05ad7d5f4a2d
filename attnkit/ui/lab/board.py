"""Around the Lab's board: its reason, the pickers of its maps, charts, tables and downloads."""

from __future__ import annotations

import json

import streamlit as st

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.export import experiment_code
from attnkit.analysis.inspection.request import Inspection
from attnkit.experiment import Experiment
from attnkit.figures.board import asymmetry_over_steps
from attnkit.figures.panels import Figure
from attnkit.foundation.language import mark, tr
from attnkit.foundation.tables import csv_of_frame
from attnkit.service.jobs import Job
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import never_solved, run_table
from attnkit.ui import components, words
from attnkit.ui.cache import (
    finding,
    headline,
    measures_finding,
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


def pick_view(experiment: Experiment) -> tuple[int, int, int | None]:
    """Draw the pickers of what the maps show, where there is a choice; return what is chosen.

    It is a seed, the index of a layer and that of a head, which is None for the mean of all heads.
    """
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
                format_func=lambda head: (
                    tr("mean of heads") if head is None else tr("head {number}", number=head + 1)
                ),
                key=f"head_{experiment.n_heads}",
                width=140,
                label_visibility="collapsed",
            )
    return seed, layer, head


def explain_result(snapshot: Snapshot, seed: int) -> None:
    """Write what the accuracies show over all seeds, and the reason in one seed if it is known."""
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


def larger_charts(lab: Lab, snapshot: Snapshot) -> None:
    """Draw charts that can be zoomed into; they are made only while their expander is open."""
    expander = st.expander(tr("Larger charts"), key="larger", on_change="rerun")
    if not expander.open:
        return
    task, asymmetry = snapshot.experiment.task, asymmetry_over_steps(snapshot)

    def chart(title: str, key: str, figure: Figure, *alt: str) -> None:
        st.subheader(title, anchor=False)
        file, alternative = f"attnkit-{task.name}-{key}", " ".join(alt)
        components.live_figure(figure, key=key, file=file, asymmetry=asymmetry, alt=alternative)

    rows = tr("Accuracy on all rows, by training step") if task.asks_trained else ""
    with expander:
        if task.loss_to_beat is not None:
            title, alt = tr("Loss on held-out examples, by training step"), tr("Loss over steps.")
            figure = plot_metric(snapshot, "loss", lab.previous)
            chart(rows or title, "loss", figure, alt, finding(snapshot))
        title = rows or tr("Accuracy on held-out examples, by training step")
        figure, alt = plot_metric(snapshot, "accuracy", lab.previous), tr("Accuracy over steps.")
        chart(title, "accuracy", figure, alt, finding(snapshot))
        title = tr("Symmetry of the scores, direction of the attention")
        figure, alt = plot_attention_measures(snapshot), tr("Symmetry and attention over steps.")
        chart(title, "measures", figure, alt, measures_finding(snapshot))
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
            by = task.slice_title
            if by in _BY_SLICES:
                title = tr(_BY_SLICES[by])
            else:  # a plugin's task may name any property
                title = tr("Accuracy by {group}", group=f"{by[:1].lower()}{by[1:]}")
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
