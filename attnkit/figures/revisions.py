"""Figure of a model's layers over its training: a curve per layer, a panel per measure."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import numpy as np
import pandas as pd

from attnkit.figures.groups import number_text
from attnkit.figures.marks import Mark, curve, level
from attnkit.figures.panels import Axis, Figure, Panel, Title, draw
from attnkit.realmodels.measures import MEASURES
from attnkit.realmodels.revisions import OVER_TRAINING
from attnkit.variants.palette import FURTHER

DASHES = {"encoder": "solid", "causal": "longdash", "cross": "dashdot"}
"""Dash of the curves of each kind of layer, in a model that has several kinds."""

_FIRST, _LAST = FURTHER[1], FURTHER[3]
"""Colours of the first and the last layer, which can be seen on light and on dark pages."""

_MOST_NAMES, _MOST_TICKS = 4, 8
"""Most layers with a name in the legend, and most revisions with a name on the axis."""


def plot_revisions(rows: pd.DataFrame) -> Figure:
    """Plot symmetry, cosine and overlap of W_Q and W_K in every layer over a model's revisions.

    Revisions stand evenly spaced, in the order of training. Dotted lines are random levels,
    means over layers and revisions of each kind.

    Args:
        rows: Rows of `attnkit.realmodels.revisions.over_training` of one model.
    """
    revisions = rows.drop_duplicates("place").sort_values("place")
    shown = np.linspace(0, len(revisions) - 1, min(len(revisions), _MOST_TICKS)).round().astype(int)
    numbered = bool(revisions["step"].notna().all())
    labels = [
        escape(f"{step:,.0f}" if numbered else _short(label))
        for step, label in zip(revisions["step"], revisions["revision"], strict=True)
    ]
    title = "Step of training, by the names of the revisions" if numbered else "Revision"
    x = Axis(-0.15, len(labels) - 0.85, "", shown.tolist(), [labels[i] for i in shown])
    measured = [name for name in OVER_TRAINING if rows[name].notna().any()]
    panels = [
        Panel(
            replace(x, title=title if name == measured[-1] else ""),
            Axis(n_ticks=5),
            _marks(rows, name, named=name == measured[0]),
            Title(MEASURES[name].title, note=f"({OVER_TRAINING[name]})"),
            height=150,
        )
        for name in measured
    ]
    return draw(panels, legend="below")


def _short(label: str) -> str:
    return label if len(label) <= 12 else f"{label[:11]}…"


def _marks(rows: pd.DataFrame, measure: str, *, named: bool) -> list[Mark]:
    """Return the random levels, and a curve per layer from the first to the last."""
    random = rows.groupby("kind")[f"{measure}_random"].mean().dropna()
    marks = [level(mean) for mean in sorted(set(random.round(3)))]
    places = rows[["kind", "layer"]].drop_duplicates().sort_values(["kind", "layer"])
    kinds = places["kind"].nunique()
    in_legend = np.linspace(0, len(places) - 1, min(len(places), _MOST_NAMES)).round().astype(int)
    for index, (kind, layer) in enumerate(places.itertuples(index=False)):
        of_layer = rows[(rows["kind"] == kind) & (rows["layer"] == layer)].sort_values("place")
        n_layers = places.loc[places["kind"] == kind, "layer"].max()
        name = f"{kind} layer {layer}" if kinds > 1 else f"layer {layer}"
        tips = [
            f"{name}, {escape(revision)}: {escape(MEASURES[measure].title)} {number_text(value)}"
            for revision, value in zip(of_layer["revision"], of_layer[measure], strict=True)
        ]
        marks.append(
            curve(
                of_layer["place"],
                of_layer[measure],
                _color(layer / max(1, n_layers)),
                width=2,
                dash=DASHES.get(kind, "solid") if kinds > 1 else "solid",
                symbol="circle",
                size=6,
                name=name if named and index in in_legend else "",
                tips=tips,
            )
        )
    return marks


def _color(depth: float) -> str:
    """Return the colour of a layer from its depth, from 0 for the first to 1 for the last."""
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in (_FIRST, _LAST)]
    parts = [round(first + depth * (last - first)) for first, last in zip(*ends, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*parts)
