"""Figures that compare the heads of real models: grids, strips, scatters and depth plots.

Every figure is drawn from the table of heads (`attnkit.realmodels`) and has a description in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from attnkit.figures.groups import (
    INKS,
    LEGEND,
    TOY,
    Group,
    describe_groups,
    groups_of,
    legend_text,
    looks_of_groups,
    number_text,
    random_of,
)
from attnkit.figures.panels import Figure, Trace
from attnkit.figures.strips import LINE, STRIPE, bare_layout, row_offsets, x_axis
from attnkit.realmodels.measures import Measure
from attnkit.variants.palette import REFERENCE, translucent


def atlas_panels(heads: pd.DataFrame, measure: Measure) -> dict[str, Any]:
    """Return a grid per group as data for `atlas.js`: rows are layers, columns are heads.

    The colour scale of a signed measure is blue below 0 and red above, with the same range on both
    sides; others begin at 0. The scale ends where most heads lie, so that one outlier does not make
    the others pale; `beyond` says whether a value lies outside it.
    """
    measured = heads[np.isfinite(heads[measure.name].to_numpy(float))]
    panels = [
        _panel(model, kind, rows, measure.name)
        for (model, kind), rows in measured.groupby(["model", "kind"], sort=False)
    ]
    trained = measured[measured["family"] != TOY]  # Toys that share matrices have cosines of 1.
    limit = _color_limit(trained if len(trained) else measured, measure.name)
    return {
        "panels": panels,
        "measure": measure.title,
        "low": -limit if measure.signed else 0.0,
        "high": limit,
        "beyond": bool((measured[measure.name].abs() > limit).any()),
        "signed": measure.signed,
        "alt": describe_groups(groups_of(heads, measure.name), measure.title),
    }


_SHARE_IN_SCALE = 0.98
"""Share of the heads whose values lie within the colour scale."""


def _color_limit(heads: pd.DataFrame, measure: str) -> float:
    """Return the largest |value| of the colour scale: at least two random standard deviations."""
    sizes = heads[measure].abs().to_numpy(float)
    if not len(sizes):
        return 1.0
    sd_column = f"{measure}_random_sd"
    sds = heads[sd_column].to_numpy(float) if sd_column in heads else np.zeros(1)
    least = 2 * float(np.nan_to_num(sds).max())
    return max(float(np.quantile(sizes, _SHARE_IN_SCALE)), least) or float(sizes.max()) or 1.0


def _panel(model: str, kind: str, heads: pd.DataFrame, measure: str) -> dict[str, Any]:
    layers = sorted(heads["layer"].unique().tolist())
    columns = sorted(int(head) for head in heads["head"].unique())
    values = np.full((len(layers), len(columns)), np.nan)
    rows = np.searchsorted(layers, heads["layer"])
    column_indices = np.searchsorted(columns, heads["head"].to_numpy(int))
    of_heads = heads[measure].to_numpy(float)
    values[rows, column_indices] = of_heads
    below = np.zeros(values.shape, bool)
    below[rows, column_indices] = _is_below_random(heads, measure)
    mean, sd = random_of(heads, measure)
    median, low, high = (
        number_text(float(value)) for value in (np.median(of_heads), of_heads.min(), of_heads.max())
    )
    return {
        "model": model,
        "kind": kind,
        "note": f"random {number_text(mean)} ± {number_text(sd)}" if math.isfinite(mean) else "",
        "alt": f"{model}, {kind}, {len(layers)} layers of {len(columns)} heads: median "
        f"{median}, {low} to {high}",
        "layers": layers,
        "heads": columns,
        # JSON has no NaN, which stands where a layer lacks a head that another layer has.
        "values": [[None if np.isnan(v) else float(f"{v:.4g}") for v in row] for row in values],
        "below": below.astype(int).tolist(),
    }


def _is_below_random(heads: pd.DataFrame, measure: str) -> np.ndarray:
    """Return whether each head lies more than two SDs below random matrices of its shape, (n,)."""
    names = (f"{measure}_random", f"{measure}_random_sd")
    if not all(name in heads for name in names):
        return np.zeros(len(heads), bool)
    mean, sd = (heads[name].to_numpy(float) for name in names)
    below: np.ndarray = heads[measure].to_numpy(float) < mean - 2 * sd  # False for NaN
    return below


def plot_distribution(groups: list[Group], measure: Measure) -> Figure:
    """Plot a row per group: a dot per head, their median, and the random level as a grey band."""
    traces = [trace for y, group in enumerate(groups) for trace in _strip(group, y, measure)]
    ends = [end for group in groups for end in (group.values.min(), group.values.max())]
    ends += [mean for group in groups for mean in group.random[:1] if math.isfinite(mean)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = 0.04 * (high - low) or 0.1
    layout = {
        **bare_layout(),
        "margin": {"l": 8, "r": 14, "t": 8, "b": 44},
        "height": (2 * LINE + 22) * max(1, len(groups)) + 52,
        "xaxis": x_axis(low - margin, high + margin, measure.title),
        "yaxis": {
            "range": [len(groups) - 0.5, -0.5],
            "tickvals": list(range(len(groups))),
            "ticktext": [_label(group) for group in groups],
            "automargin": True,
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
        },
        "shapes": [shape for y, group in enumerate(groups) for shape in _background(group, y)],
    }
    return {"data": traces, "layout": layout}


def _label(group: Group) -> str:
    n = len(group.values)
    name = group.model if len(group.model) <= _NAME else f"{group.model[: _NAME - 1]}…"
    return f"{escape(name)}<br>{group.kind}, {n} head{'s' * (n > 1)}"


_NAME = 22
"""Most characters of a model's name beside a row, which leave room for the figure on a phone."""


def _strip(group: Group, y: int, measure: Measure) -> Iterator[Trace]:
    n = len(group.values)
    yield {
        "type": "scatter",
        "mode": "markers",
        "x": _rounded(group.values),
        "y": [y - 0.36 + 0.72 * offset for offset in row_offsets(n)],
        "marker": {
            "symbol": group.symbol,
            "size": 7 if n < 100 else 5,
            "color": group.color,
            "opacity": 0.7,
            "line": _edge(group),
        },
        "hoverinfo": "text",
        "hovertext": group.tips(measure.title),
    }
    yield {
        "type": "scatter",
        "mode": "markers",
        "x": [group.median],
        "y": [y],
        "marker": {"symbol": group.symbol, "size": 15, "color": group.color, "line": _MEDIAN_EDGE},
        "hoverinfo": "text",
        "hovertext": [f"{escape(group.name)}<br>{group.in_words}"],
    }


_MEDIAN_EDGE = {"color": "#ffffff", "width": 2}


def _edge(group: Group) -> dict[str, Any]:
    """Return the outline of a small mark: grey, since some inks are dark on a dark page.

    The outline of a hollow mark has the colour of its group.
    """
    return {"width": 1.3} if group.is_toy else {"color": REFERENCE, "width": 0.5}


def _background(group: Group, y: int) -> Iterator[dict[str, Any]]:
    """Yield a stripe for every other row, and the random level as a dotted line in a band."""
    if y % 2 == 0:
        yield {
            "type": "rect",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": y - 0.5,
            "y1": y + 0.5,
            "fillcolor": STRIPE,
            "line": {"width": 0},
            "layer": "below",
        }
    mean, sd = group.random
    if not math.isfinite(mean):
        return
    if math.isfinite(sd):
        yield {
            "type": "rect",
            "x0": mean - sd,
            "x1": mean + sd,
            "y0": y - 0.46,
            "y1": y + 0.46,
            "fillcolor": translucent(REFERENCE, 0.45),
            "line": {"width": 0},
            "layer": "below",
        }
    yield _random_line(x0=mean, x1=mean, y0=y - 0.46, y1=y + 0.46)


def _random_line(color: str = REFERENCE, **ends: Any) -> dict[str, Any]:
    return {
        "type": "line",
        "line": {"color": color, "width": 1.5, "dash": "dot"},
        "layer": "below",
        **ends,
    }


def plot_scatter(heads: pd.DataFrame, x: Measure, y: Measure) -> Figure:
    """Plot two measures against each other, a dot per head.

    Dotted lines are random levels, in a model's colour where they differ.
    """
    pairs = _paired(heads, x, y)
    shapes = [
        *_random_levels([a for a, _ in pairs], "x", "y"),
        *_random_levels([b for _, b in pairs], "y", "x"),
    ]
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": legend_text(a.name),
            "x": _rounded(a.values),
            "y": _rounded(b.values),
            "marker": {
                "symbol": a.symbol,
                "size": 8 if len(a.values) < 100 else 6,
                "color": a.color,
                "opacity": 0.75,
                "line": _edge(a),
            },
            "hoverinfo": "text",
            "hovertext": [
                f"{tip}<br>{escape(y.title)} {number_text(value)}"
                for tip, value in zip(a.tips(x.title), b.values, strict=True)
            ],
        }
        for a, b in pairs
    ]
    layout = {
        **bare_layout(),
        "showlegend": True,
        "legend": dict(LEGEND, itemsizing="constant"),
        "margin": {"l": 8, "r": 14, "t": 8, "b": 44},
        "height": 460,
        "xaxis": _free_axis(x.title),
        "yaxis": {**_free_axis(y.title), "automargin": True},
        "shapes": shapes,
    }
    return {"data": traces, "layout": layout}


def _random_levels(groups: list[Group], axis: str, other: str) -> Iterator[dict[str, Any]]:
    """Yield lines for random levels across a scatter; one grey line if all are about the same."""
    compared = [group for group in _real_models(groups) if math.isfinite(group.random[0])]
    if not compared:
        return
    levels = {(group.color, group.random[0]) for group in compared}
    middle = float(np.mean([level for _, level in levels]))
    if all(abs(group.random[0] - middle) <= max(_ABOUT, group.random[1]) for group in compared):
        levels = {(REFERENCE, middle)}
    for color, level in sorted(levels):
        across = {f"{axis}0": level, f"{axis}1": level, f"{other}0": 0, f"{other}1": 1}
        yield _random_line(color, **across, **{f"{other}ref": "paper"})


def _real_models(groups: list[Group]) -> list[Group]:
    """Return the groups of real models, or all groups if there are none."""
    return [group for group in groups if not group.is_toy] or groups


_ABOUT = 0.005
"""Random levels within this distance, or one SD, of their mean are drawn as one line."""


def describe_scatter(heads: pd.DataFrame, x: Measure, y: Measure) -> str:
    """Describe the correlation of two measures over the heads of each real model."""
    pairs = _paired(heads, x, y)
    pairs = [(a, b) for a, b in pairs if not a.is_toy] or pairs  # toys if there is nothing else
    texts = [f"{a.name} {number_text(correlation(a.values, b.values))}" for a, b in pairs]
    if not texts:
        return f"{y.title} against {x.title}: 0 heads have both."
    return f"Correlation of {y.title} and {x.title} over heads: {'; '.join(texts)}."


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Pearson's correlation; NaN if one of the arrays does not vary."""
    if len(a) < 3 or not a.std() or not b.std():
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def _paired(heads: pd.DataFrame, x: Measure, y: Measure) -> list[tuple[Group, Group]]:
    """Return the groups of heads that have both measures, with the looks of all figures."""
    both = heads[np.isfinite(heads[[x.name, y.name]].to_numpy(float)).all(1)]
    looks = looks_of_groups(heads)
    of_x, of_y = (
        [
            replace(group, color=color, symbol=symbol)
            for group in groups_of(both, measure.name)
            for color, symbol in [looks[group.model, group.kind]]
        ]
        for measure in (x, y)
    )
    return list(zip(of_x, of_y, strict=True))


def plot_depth(a: Group, b: Group, measure: Measure) -> Figure:
    """Plot the heads of two groups by relative depth, with the median of every layer."""
    traces: list[Trace] = []
    for group, color, dash in _styled(a, b):
        depth = relative_depth(group.heads)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": _rounded(depth),
                "y": _rounded(group.values),
                "marker": {"symbol": group.symbol, "size": 6, "color": color, "opacity": 0.5},
                "hoverinfo": "text",
                "hovertext": group.tips(measure.title),
                "showlegend": False,
            }
        )
        medians = pd.Series(group.values).groupby(depth).median()
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": legend_text(f"{group.name}: median of a layer"),
                "x": _rounded(medians.index.to_numpy()),
                "y": _rounded(medians.to_numpy()),
                "line": {"color": color, "width": 2.5, "dash": dash},
                "marker": {"symbol": group.symbol, "size": 9, "color": color},
                "hovertemplate": f"median {measure.title}: %{{y:.3f}}<extra></extra>",
            }
        )
    layout = {
        **bare_layout(),
        "showlegend": True,
        "legend": LEGEND,
        "margin": {"l": 8, "r": 14, "t": 8, "b": 44},
        "height": 400,
        "xaxis": {
            **x_axis(-0.03, 1.03, "Depth: 0 the first layer, 1 the last"),
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
        },
        "yaxis": {**_free_axis(measure.title), "automargin": True},
        "shapes": [
            _random_line(color, x0=0, x1=1, xref="paper", y0=group.random[0], y1=group.random[0])
            for group, color, _ in _styled(a, b)
            if math.isfinite(group.random[0])
        ],
    }
    return {"data": traces, "layout": layout}


def _styled(a: Group, b: Group) -> Iterator[tuple[Group, str, str]]:
    """Yield two groups with their colours, which differ, and their dashes."""
    yield a, a.color, "solid"
    yield b, b.color if b.color != a.color else INKS[-1], "dash"


def describe_depth(a: Group, b: Group, measure: Measure) -> str:
    """Describe the medians of two groups and their difference."""
    return (
        f"{measure.title}, median over heads: {a.name} {number_text(a.median)}, {b.name} "
        f"{number_text(b.median)}; difference {number_text(b.median - a.median)}."
    )


def relative_depth(heads: pd.DataFrame) -> np.ndarray:
    """Return the relative depth of every head's layer: 0 for the first layer, 1 for the last."""
    layers = heads["layer"].to_numpy(float)
    depth: np.ndarray = layers / max(1.0, float(layers.max(initial=0.0)))
    return depth


def _free_axis(title: str) -> dict[str, Any]:
    return {
        "title": {"text": escape(title), "font": {"size": 13}, "standoff": 6},
        "nticks": 6,
        "zeroline": False,
        "gridcolor": translucent(REFERENCE, 0.3),
        "fixedrange": True,
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
