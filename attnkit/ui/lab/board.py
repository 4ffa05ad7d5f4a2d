"""The Lab's board, the pickers of its maps, and larger charts of the same run."""

from __future__ import annotations

from typing import NamedTuple

import streamlit as st

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.comparison import Metric
from attnkit.experiment import Experiment
from attnkit.figures.board import asymmetry_over_steps
from attnkit.figures.panels import Figure
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import never_solved
from attnkit.ui import components, words
from attnkit.ui.lab.lab import Lab
from attnkit.ui.language import page_link
from attnkit.ui.markdown import plain
from attnkit.ui.render_cache import (
    board,
    finding,
    headline,
    measures_finding,
    planned_board,
    plot_attention_measures,
    plot_metric,
)
from attnkit.ui.session import with_hidden

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
