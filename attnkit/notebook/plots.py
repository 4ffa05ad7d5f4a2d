"""Interactive figures of results, evidence and trained models, as Plotly figures.

They are the figures of the pages, with titles, legends in words and a colour of texts that is
readable on light and on dark backgrounds.
"""

from __future__ import annotations

import inspect
import numbers
import os
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.io import renderers

from attnkit.analysis.attention_map import example_of, map_layout_of, shown_columns, telling_layer
from attnkit.claims import Claim
from attnkit.evidence.record import Evidence, load_shipped
from attnkit.figures.atlas import describe_scatter, plot_distribution, plot_scatter
from attnkit.figures.board import attention_maps, of_head, where_in_words
from attnkit.figures.curves import (
    legend_in_words,
    plot_attention_measures,
    plot_metric,
)
from attnkit.figures.evidence import (
    DIFFERENCES_KEY,
    EVIDENCE_KEY,
    LEARNING_KEY,
    plot_differences,
    plot_evidence,
    plot_learning,
)
from attnkit.figures.groups import groups_of, heads_in
from attnkit.figures.marks import Mark, cells, dots, frame
from attnkit.figures.panels import Axis, Figure, Panel, Scale, Title, draw, row_axis
from attnkit.figures.portrait import (
    describe_angles,
    describe_spectra,
    describe_split,
    plot_angles,
    plot_spectra,
    plot_split,
)
from attnkit.figures.revisions import plot_revisions
from attnkit.foundation.display import Displayed, NoFigure
from attnkit.foundation.settings import allowed_names, shown
from attnkit.realmodels.atlas import Atlas, MeasuredHead
from attnkit.realmodels.measures import MEASURES, Measure
from attnkit.realmodels.portraits import Portrait
from attnkit.realmodels.revisions import describe_training, over_training
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.variants.palette import BLUE_RED, VIRIDIS, colors_of

if renderers.default == "plotly_mimetype" and "PLOTLY_RENDERER" not in os.environ:
    renderers.default = "plotly_mimetype+notebook"  # so that exported notebooks have figures, too

THEMES = {None: "#767676", "light": "#222222", "dark": "#eeeeee"}
"""Colour of texts for a theme; the first one is readable on light and on dark."""

_TOP, _LINE = 34, 17
"""Heights in pixels of the title and of a line below it."""

_LEGEND = {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}
"""Place of a legend: on the right, where no title is."""

_CELL, _LEAST, _LETTER = 22, 150, 7
"""Heights in pixels: a row of cells, the lowest panel, and a letter of the upright names below."""

_INSET, _CIRCLE = 0.42, 12
"""Distance of a frame from the middle of a cell in cells; diameter of a circle in pixels."""

_MARK = (("rgba(0,0,0,0.75)", 4), ("#ffffff", 1.8))
"""Colour and width of the lines of a mark: a dark halo below white."""

Titled = tuple[Figure, str, str]
"""A figure, its title, and a sentence that says how to read it."""

Draw = Callable[..., Titled]
"""Function that draws a value with further options."""


def plot(value: Displayed, kind: str = "", theme: str | None = None, **options: Any) -> go.Figure:
    """Return a figure of a value.

    Args:
        value: A result, snapshot, claim, record of a claim, atlas or head.
        kind: Name of the figure; an empty text stands for the first one.
        theme: "light", "dark", or None for a colour of texts that suits both.
        **options: Further options of the figure.

    Raises:
        ValueError: If the kind, the theme or an option is not allowed.
    """
    value = value.snapshot if isinstance(value, Result) else value
    kinds = _kinds_of(value)
    kind = kind or next(iter(kinds))
    if kind not in list(kinds):
        raise ValueError(f"kind: got {_quoted(kind)}, allowed {allowed_names(kinds, kind)}")
    if theme not in list(THEMES):
        raise ValueError(f"theme: got {_quoted(theme)}, allowed light, dark or None")
    known = list(inspect.signature(kinds[kind]).parameters)[1:]
    for name in options:
        if name not in known:
            allowed = allowed_names(["theme", *known], name)
            raise ValueError(f"{name}: got {_quoted(options[name])}, allowed options {allowed}")
    figure, title, reading = kinds[kind](value, **options)
    return finished(figure, title, reading, THEMES[theme])


def figures_of(value: Displayed) -> str:
    """Return a line that says which figures a value has."""
    calls = (f'plot("{kind}")' for kind in _kinds_of(value))
    return f"Figures: {', '.join(calls)}."


def _kinds_of(value: Displayed) -> dict[str, Draw]:
    return next(_KINDS[base.__name__] for base in type(value).__mro__ if base.__name__ in _KINDS)


def _quoted(value: Any) -> str:
    return shown(value, quoted=True)


def finished(figure: Figure, title: str, reading: str, ink: str = THEMES[None]) -> go.Figure:
    """Return a figure with its title and the colour of its texts."""
    lines = textwrap.wrap(reading, 120)
    small = "<br>".join(f'<span style="font-size:12px">{escape(line)}</span>' for line in lines)
    layout, top = figure["layout"], _TOP + _LINE * len(lines)
    height = layout["height"] + top
    layout = layout | {
        "margin": {**layout["margin"], "t": layout["margin"]["t"] + top},
        "height": height,
        "title": {
            "text": f"<b>{escape(title)}</b><br>{small}",
            "font": {"size": 15},
            "x": 0,
            "xanchor": "left",
            "xref": "paper",
            "y": 1 - 12 / height,
            "yanchor": "top",
            "yref": "container",
        },
        "font": {"color": ink},
        "legend": {**layout.get("legend", {}), **_LEGEND},
        "template": None,
    }
    return go.Figure({"data": figure["data"], "layout": layout})


def plot_attention(
    snapshot: Snapshot, seed: int | None = None, layer: int | None = None, head: int | str = 0
) -> Titled:
    """Plot the attention of the probe example: rows are queries, columns are keys.

    Args:
        snapshot: The snapshot.
        seed: One of the seeds; None for the first one.
        layer: Index of the layer, from 0; None for the last one. Titles count from 1.
        head: Index of the head, from 0; or "mean" for the mean over heads. Titles count from 1.

    Raises:
        ValueError: If there is no such seed, layer or head.
    """
    texts, values, where = _maps(
        snapshot, snapshot.probe.pattern, _chosen(snapshot, seed, layer, head)
    )
    notes = [panel["lacking"] or panel["summary"] for panel in texts["panels"]]
    figure = _drawn(snapshot, texts, values, notes, Scale(0, 1, VIRIDIS))
    title = f"{snapshot.experiment.task.title}: attention, {where}"
    circles = "Circle: the entry that points back. " if max(texts["reverse"]) >= 0 else ""
    reading = f"Each row looks at the brighter columns. Frame: the right one. {circles}"
    return figure, title, f"{reading}{texts['cut']}"


def plot_scores(
    snapshot: Snapshot, seed: int | None = None, layer: int | None = None, head: int | str = 0
) -> Titled:
    """Plot the scaled scores of the probe example before mask and softmax.

    Arguments and errors are those of `plot_attention`.
    """
    if snapshot.probe.scores is None:
        raise ValueError("kind: got 'scores', allowed other kinds: this result has no scores")
    texts, values, where = _maps(
        snapshot, snapshot.probe.scores, _chosen(snapshot, seed, layer, head), rest=False
    )
    finite = [np.abs(v[np.isfinite(v)]).max(initial=0.0) for v in values if v is not None]
    most = float(max(finite, default=0.0)) or 1.0
    notes = [panel["lacking"] for panel in texts["panels"]]
    figure = _drawn(snapshot, texts, values, notes, Scale(-most, most, BLUE_RED))
    title = f"{snapshot.experiment.task.title}: scores before softmax, {where}"
    return figure, title, f"Blue below 0, red above. Frame: the right column. {texts['cut']}"


def _maps(
    snapshot: Snapshot,
    recorded: np.ndarray,
    chosen: tuple[int, int, int | None],
    *,
    rest: bool = True,
) -> tuple[dict[str, Any], list[np.ndarray | None], str]:
    """Return the maps of all variants.

    Args:
        snapshot: The snapshot.
        recorded: Patterns or scores of the probe example; see `of_head`.
        chosen: Seed, layer and head; the head is None for the mean.
        rest: Whether a column may hold the sum over all positions that have none.

    Returns:
        Their texts and marked entries, from `attention_maps`; the (rows, columns) numbers of each
        variant, None for one that lacks the head; and seed, layer and head in words.
    """
    experiment = snapshot.experiment
    spec = experiment.layer_specs[chosen[1]]
    layout = map_layout_of(experiment.task, spec, example_of(snapshot))
    layout = layout if rest else replace(layout, rest=False)
    values = [
        None if of_one is None else shown_columns(of_one[layout.rows], layout)
        for of_one in of_head(snapshot, recorded, *chosen)
    ]
    texts = attention_maps(snapshot, *chosen, layout)
    return texts, values, where_in_words(experiment, *chosen)


def _chosen(
    snapshot: Snapshot, seed: int | None, layer: int | None, head: int | str
) -> tuple[int, int, int | None]:
    """Return seed, layer and head after checking them; the head is None for the mean."""
    experiment = snapshot.experiment
    seed = experiment.first_seed if seed is None else seed
    layer = telling_layer(experiment.layer_specs) if layer is None else layer
    limits = {
        "seed": (seed, experiment.seeds),
        "layer": (layer, range(len(experiment.layer_specs))),
        "head": (head, range(experiment.n_heads)),
    }
    for name, (value, allowed) in limits.items():
        is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not (is_whole and value in allowed) and (name, value) != ("head", "mean"):
            first, last = allowed[0], allowed[-1]
            words = str(first) if first == last else f"{first} to {last}"
            words += ' or "mean"' if name == "head" else ""
            raise ValueError(f"{name}: got {_quoted(value)}, allowed {words}")
    return seed, layer, None if head == "mean" else int(head)


def _drawn(
    snapshot: Snapshot,
    texts: dict[str, Any],
    values: list[np.ndarray | None],
    notes: list[str],
    scale: Scale,
) -> Figure:
    """Return a panel per variant with a note after its name; see `_maps`."""
    names = (panel["name"] for panel in texts["panels"])
    looks = zip(names, colors_of(snapshot.experiment.sharing), notes, values, strict=True)
    panels = [
        _panel(texts, of_one, Title(name, "", color, note)) for name, color, note, of_one in looks
    ]
    below = 14 + _LETTER * max(map(len, texts["columns"]))
    return draw(panels, columns=5, right=30, bottom=below, scale=scale)


def _panel(texts: dict[str, Any], values: np.ndarray | None, title: Title) -> Panel:
    rows, columns = texts["rows"], texts["columns"]
    at_x, at_y = range(len(columns)), range(len(rows))
    angle = -90 if any(len(name) > 1 for name in columns) else 0
    x_names, y_names = ([escape(name) for name in names] for names in (columns, rows))
    x = Axis(-0.5, len(columns) - 0.5, "", at_x, x_names, grid=False, angle=angle)
    y = row_axis(y_names)
    marks: list[Mark] = []
    if values is not None:
        tips = [
            [
                f"{escape(f'{title.name}: “{row}” to “{column}”')}: {value:.2f}"
                for column, value in zip(texts["column_titles"], of_row, strict=True)
            ]
            for row, of_row in zip(rows, values, strict=True)
        ]
        numbers = np.round(values.astype(np.float64), 4)
        marks = [cells(at_x, at_y, numbers, tips=tips)]
        marks += [
            frame((column - _INSET, column + _INSET), (row - _INSET, row + _INSET), color, width)
            for row, column in enumerate(texts["target"])
            if column >= 0
            for color, width in _MARK
        ]
        reverse = [(row, column) for row, column in enumerate(texts["reverse"]) if column >= 0]
        marks += [  # points and not shapes, which would be ellipses in cells that are no squares
            dots(
                [column for _, column in reverse],
                [row for row, _ in reverse],
                color,
                symbol="circle-open",
                size=_CIRCLE,
                edge={"width": width},
            )
            for color, width in _MARK
            if reverse
        ]
    return Panel(x, y, marks, title, max(_LEAST, _CELL * len(rows)))


def _curves(plot: Callable[[Snapshot], Figure], words: str, snapshot: Snapshot) -> Titled:
    figure = plot(snapshot)
    legend = figure["layout"]["meta"]["legend"]
    task = snapshot.experiment.task
    if task.asks_trained:
        words = words.replace("held-out examples", "all rows")
    title = f"{task.title}: {words}"
    return figure, title, legend_in_words(legend) or "This task has neither."


def _record(
    plot: Callable[[Evidence], Figure | None], reading: str, value: Claim | Evidence
) -> Titled:
    if isinstance(value, Claim):
        evidence = load_shipped().get(value.id)
        if evidence is None or evidence.claim != value:
            raise NoFigure(f"claim: got {value.id!r}, allowed one whose record ships, or a record")
    else:
        evidence = value
    figure = plot(evidence)
    if figure is None:
        raise ValueError(
            "kind: got 'learning', allowed scores, differences: this claim has no long runs"
        )
    return figure, evidence.claim.title, reading


def _of_head(
    plot: Callable[[Portrait], Figure],
    title: str,
    describe: Callable[[Portrait], str],
    head: MeasuredHead,
) -> Titled:
    if head.portrait is None:
        raise NoFigure(f"head: got {head.in_words!r}, allowed one whose portrait was kept")
    return plot(head.portrait), f"{head.in_words}: {title}", describe(head.portrait)


def _angles(head: MeasuredHead) -> Titled:
    d_model = int(head.row["d_model"])
    return _of_head(
        partial(plot_angles, d_model=d_model),
        "do Q, K and V read the same directions?",
        partial(describe_angles, d_model=d_model),
        head,
    )


def _distribution(atlas: Atlas, measure: str = "overlap_qk") -> Titled:
    chosen = _measure("measure", measure)
    heads = heads_in(atlas.table, fold=False, offset=0)
    reading = "A dot is a head, the large mark the median. Grey: random matrices of this shape."
    return plot_distribution(groups_of(heads, chosen.name), chosen), chosen.title, reading


def _scatter(atlas: Atlas, x: str = "overlap_qk", y: str = "symmetry") -> Titled:
    a, b = _measure("x", x), _measure("y", y)
    heads = heads_in(atlas.table, fold=False, offset=0)
    return plot_scatter(heads, a, b), f"{b.title} against {a.title}", describe_scatter(heads, a, b)


def _training(atlas: Atlas, model: str = "") -> Titled:
    """Plot symmetry, cosine and overlap of every layer over the revisions of a model."""
    rows = over_training(atlas.table)
    names = list(rows["training"].unique())
    if not names:
        raise ValueError(
            "kind: got 'training', allowed distribution, scatter: no model here has several "
            "revisions, such as name@step1000 and name@step4000"
        )
    if model and model not in names:
        raise ValueError(f"model: got {_quoted(model)}, allowed {allowed_names(names, model)}")
    return _titled(rows[rows["training"] == (model or names[0])])


def _titled(rows: pd.DataFrame) -> Titled:
    title = f"{rows['training'].iloc[0]} over its training"
    return plot_revisions(rows), title, " ".join(describe_training(rows))


def training_figure(rows: pd.DataFrame) -> go.Figure:
    """Return the figure of the rows of `over_training` of one model."""
    return finished(*_titled(rows))


def _measure(field: str, name: str) -> Measure:
    if name not in list(MEASURES):
        raise ValueError(f"{field}: got {_quoted(name)}, allowed {allowed_names(MEASURES, name)}")
    return MEASURES[name]


_RUNS: dict[str, Draw] = {
    "accuracy": partial(_curves, plot_metric, "accuracy on held-out examples"),
    "loss": partial(
        _curves, partial(plot_metric, metric="loss"), "loss on held-out examples, nats"
    ),
    "attention": plot_attention,
    "scores": plot_scores,
    "asymmetry": partial(
        _curves, plot_attention_measures, "symmetry of scores, direction of attention"
    ),
}

_CLAIMS: dict[str, Draw] = {
    "scores": partial(_record, plot_evidence, EVIDENCE_KEY),
    "differences": partial(_record, plot_differences, DIFFERENCES_KEY),
    "learning": partial(_record, plot_learning, LEARNING_KEY),
}

_KINDS: dict[str, dict[str, Draw]] = {
    "Snapshot": _RUNS,
    "Claim": _CLAIMS,
    "Evidence": _CLAIMS,
    "Atlas": {"distribution": _distribution, "scatter": _scatter, "training": _training},
    "MeasuredHead": {
        "split": partial(_of_head, plot_split, "W_Q W_Kᵀ in two parts", describe_split),
        "spectra": partial(_of_head, plot_spectra, "spectra", describe_spectra),
        "angles": _angles,
    },
}
"""Figures by the name of a type and their own name; the first one is drawn by default."""
