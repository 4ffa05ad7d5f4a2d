"""Interactive figures of results, evidence and trained models, as Plotly figures.

They are the figures of the pages, with titles, legends in words and a colour of texts that is
readable on light and on dark backgrounds.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.io import renderers

from attnkit.claims import Claim
from attnkit.evidence.record import Evidence, load_shipped
from attnkit.figures.atlas import describe_scatter, plot_distribution, plot_scatter
from attnkit.figures.curves import (
    legend_in_words,
    plot_attention_measures,
    plot_metric,
)
from attnkit.figures.evidence import (
    DIFFERENCES_KEY,
    EVIDENCE_KEY,
    plot_differences,
    plot_evidence,
)
from attnkit.figures.groups import groups_of, heads_in
from attnkit.figures.learning import LEARNING_KEY, plot_learning
from attnkit.figures.panels import Figure
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
from attnkit.notebook.heatmaps import plot_attention, plot_scores
from attnkit.realmodels.atlas import Atlas, MeasuredHead
from attnkit.realmodels.measures import MEASURES, Measure
from attnkit.realmodels.portraits import Portrait
from attnkit.realmodels.revisions import describe_training, over_training
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot

if renderers.default == "plotly_mimetype" and "PLOTLY_RENDERER" not in os.environ:
    renderers.default = "plotly_mimetype+notebook"  # so that exported notebooks have figures, too

THEMES = {"": "#767676", "light": "#222222", "dark": "#eeeeee"}
"""Colour of texts for a theme; the first one is readable on light and on dark."""

_TOP, _LINE = 34, 17
"""Heights in pixels of the title and of a line below it."""

_LEGEND = {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}
"""Place of a legend: on the right, where no title is."""

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
        raise ValueError(f"kind: got {_quoted(kind)}, allowed {allowed_names(kinds, str(kind))}")
    if theme is not None and (not theme or theme not in list(THEMES)):
        raise ValueError(f"theme: got {_quoted(theme)}, allowed light, dark or None")
    draw = kinds[kind]
    known = list(inspect.signature(draw).parameters)[1:]
    for name in options:
        if name not in known:
            allowed = allowed_names(["theme", *known], name)
            raise ValueError(f"{name}: got {_quoted(options[name])}, allowed options {allowed}")
    figure, title, reading = draw(value, **options)
    return finished(figure, title, reading, THEMES[theme or ""])


def figures_of(value: Displayed) -> str:
    """Return a line that says which figures a value has."""
    calls = (f'plot("{kind}")' for kind in _kinds_of(value))
    return f"Figures: {', '.join(calls)}."


def _kinds_of(value: Displayed) -> dict[str, Draw]:
    return next(_KINDS[base.__name__] for base in type(value).__mro__ if base.__name__ in _KINDS)


def _quoted(value: Any) -> str:
    return shown(value, quoted=True)


def finished(figure: Figure, title: str, reading: str, ink: str = THEMES[""]) -> go.Figure:
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


def _curves(plot: Callable[[Snapshot], Figure], words: str, snapshot: Snapshot) -> Titled:
    """Plot curves, with their legend in words."""
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
    """Plot a record, or the shipped record of a claim."""
    evidence = _evidence(value)
    figure = plot(evidence)
    if figure is None:
        raise ValueError(
            "kind: got 'learning', allowed scores, differences: this claim has no long runs"
        )
    return figure, evidence.claim.title, reading


def _evidence(value: Claim | Evidence) -> Evidence:
    """Return a record, or the shipped record of a claim.

    Raises:
        ValueError: If no record of the claim ships.
    """
    if isinstance(value, Evidence):
        return value
    record = load_shipped().get(value.id)
    if record is None or record.claim != value:
        raise NoFigure(f"claim: got {value.id!r}, allowed one whose record ships, or a record")
    return record


def _split(head: MeasuredHead) -> Titled:
    """Plot the symmetric and the skew part of W_Q W_Kᵀ."""
    portrait = _portrait(head)
    title = f"{head.in_words}: W_Q W_Kᵀ in two parts"
    return plot_split(portrait), title, describe_split(portrait)


def _spectra(head: MeasuredHead) -> Titled:
    """Plot the spectra of W_Q W_Kᵀ and of its two parts."""
    portrait = _portrait(head)
    return plot_spectra(portrait), f"{head.in_words}: spectra", describe_spectra(portrait)


def _angles(head: MeasuredHead) -> Titled:
    """Plot the angles between what Q, K and V read."""
    portrait, d_model = _portrait(head), int(head.row["d_model"])
    title = f"{head.in_words}: do Q, K and V read the same directions?"
    return plot_angles(portrait, d_model), title, describe_angles(portrait, d_model)


def _portrait(head: MeasuredHead) -> Portrait:
    if head.portrait is None:
        raise NoFigure(f"head: got {head.in_words!r}, allowed one whose portrait was kept")
    return head.portrait


def _distribution(atlas: Atlas, measure: str = "overlap_qk") -> Titled:
    """Plot a dot per head, a row per model and kind of layer, beside random matrices."""
    chosen = _measure("measure", measure)
    heads = heads_in(atlas.table, fold=False, offset=0)
    reading = "A dot is a head, the large mark the median. Grey: random matrices of this shape."
    return plot_distribution(groups_of(heads, chosen.name), chosen), chosen.title, reading


def _scatter(atlas: Atlas, x: str = "overlap_qk", y: str = "symmetry") -> Titled:
    """Plot two measures against each other, a dot per head."""
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
    """Return the figure of one model's revisions, with what it shows in words."""
    title = f"{rows['training'].iloc[0]} over its training"
    return plot_revisions(rows), title, " ".join(describe_training(rows))


def training_figure(rows: pd.DataFrame) -> go.Figure:
    """Return the figure of the rows of `over_training` of one model."""
    return finished(*_titled(rows))


def _measure(field: str, name: str) -> Measure:
    """Return the measure of a name.

    Raises:
        ValueError: If there is none; the message names the field.
    """
    if name not in list(MEASURES):
        allowed = allowed_names(MEASURES, str(name))
        raise ValueError(f"{field}: got {shown(name, quoted=True)}, allowed {allowed}")
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
    "MeasuredHead": {"split": _split, "spectra": _spectra, "angles": _angles},
}
"""Figures by the name of a type and their own name; the first one is drawn by default."""
