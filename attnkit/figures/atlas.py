"""Heads of real models beside each other: grids, strips, scatters, depth.

A table of heads in (`attnkit.realmodels`), plain drawing data out, and in words what it shows.
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
    LEGEND,
    TOY,
    Group,
    colors_of_groups,
    describe_groups,
    entry,
    groups_of,
    random_of,
    real,
)
from attnkit.figures.panels import Figure, Trace
from attnkit.figures.strips import LINE, STRIPE, bare_layout, spread, x_axis
from attnkit.realmodels.measures import Measure
from attnkit.variants.palette import FURTHER, REFERENCE, translucent


def atlas_panels(heads: pd.DataFrame, measure: Measure) -> dict[str, Any]:
    """A grid per group for `atlas.js`: rows are layers, columns heads.

    Colours of a signed measure are blue below 0 and red above, with the same range on both sides;
    others begin at 0. They end where all but the farthest heads are, so that one outlier does not
    take the colour from the rest; `beyond` says whether there are any farther.
    """
    known_heads = heads[np.isfinite(heads[measure.name].to_numpy(float))]
    panels = [
        _panel(model, kind, own, measure.name)
        for (model, kind), own in known_heads.groupby(["model", "kind"], sort=False)
    ]
    trained = known_heads[known_heads["family"] != TOY]  # toys that share have cosines of 1
    most = _end_of_colors(trained if len(trained) else known_heads, measure.name)
    for panel in panels:  # JSON has no NaN
        panel["values"] = [[v if v == v else None for v in row] for row in panel["values"]]
    return {
        "panels": panels,
        "measure": measure.title,
        "low": -most if measure.signed else 0.0,
        "high": most,
        "beyond": bool((known_heads[measure.name].abs() > most).any()),
        "signed": measure.signed,
        "alt": describe_groups(groups_of(heads, measure.name), measure.title),
    }


_SHOWN_SHARE = 0.98
"""Of heads that the colours tell apart."""


def _end_of_colors(heads: pd.DataFrame, measure: str) -> float:
    """Of |value|, and no less than twice the largest deviation of random matrices."""
    sizes = heads[measure].abs().to_numpy(float)
    if not len(sizes):
        return 1.0
    spread = f"{measure}_random_sd"
    sds = heads[spread].to_numpy(float) if spread in heads else np.zeros(1)
    least = 2 * float(np.nan_to_num(sds).max())
    return max(float(np.quantile(sizes, _SHOWN_SHARE)), least) or float(sizes.max()) or 1.0


def _panel(model: str, kind: str, heads: pd.DataFrame, measure: str) -> dict[str, Any]:
    layers = sorted(heads["layer"].unique().tolist())
    columns = sorted(int(head) for head in heads["head"].unique())
    values = np.full((len(layers), len(columns)), np.nan)
    rows = np.searchsorted(layers, heads["layer"])
    places = np.searchsorted(columns, heads["head"].to_numpy(int))
    values[rows, places] = heads[measure].to_numpy(float)
    below = np.zeros(values.shape, bool)
    below[rows, places] = _is_below(heads, measure)
    mean, sd = random_of(heads, measure)
    note = f"random {real(mean)} ± {real(sd)}" if math.isfinite(mean) else ""
    found = heads[measure].to_numpy(float)
    return {
        "model": model,
        "kind": kind,
        "note": note,
        "alt": f"{model}, {kind}, {len(layers)} layers of {len(columns)} heads: median "
        f"{real(float(np.median(found)))}, {real(found.min())} to {real(found.max())}",
        "layers": layers,
        "heads": columns,
        "values": [[float(f"{value:.4g}") for value in row] for row in values],
        "below": [[int(one) for one in row] for row in below],
    }


def _is_below(heads: pd.DataFrame, measure: str) -> np.ndarray:
    """Of every head whether it is below random matrices of its shape by more than two SDs."""
    names = (f"{measure}_random", f"{measure}_random_sd")
    if not all(name in heads for name in names):
        return np.zeros(len(heads), bool)
    mean, sd = (heads[name].to_numpy(float) for name in names)
    below: np.ndarray = heads[measure].to_numpy(float) < mean - 2 * sd  # of NaN it is no
    return below


def plot_distribution(groups: list[Group], measure: Measure) -> Figure:
    """A row per group: every head a dot, their median, and the random level as a grey band."""
    traces = [trace for y, group in enumerate(groups) for trace in _strip(group, y, measure)]
    ends = [end for group in groups for end in (group.values.min(), group.values.max())]
    ends += [mean for group in groups for mean in group.random[:1] if math.isfinite(mean)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    room = 0.04 * (high - low) or 0.1
    layout = {
        **bare_layout(),
        "margin": {"l": 8, "r": 14, "t": 8, "b": 44},
        "height": (2 * LINE + 22) * max(1, len(groups)) + 52,
        "xaxis": x_axis(low - room, high + room, measure.title),
        "yaxis": {
            "range": [len(groups) - 0.5, -0.5],
            "tickvals": list(range(len(groups))),
            "ticktext": [_label(group) for group in groups],
            "automargin": True,
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
        },
        "shapes": [shape for y, group in enumerate(groups) for shape in _behind(group, y)],
    }
    return {"data": traces, "layout": layout}


def _label(group: Group) -> str:
    n = len(group.values)
    name = group.model if len(group.model) <= _LONGEST else f"{group.model[: _LONGEST - 1]}…"
    return f"{escape(name)}<br>{group.kind}, {n} head{'s' * (n > 1)}"


_LONGEST = 22
"""Letters of a model's name beside a row: they leave room for the figure on a phone."""


def _strip(group: Group, y: int, measure: Measure) -> Iterator[Trace]:
    n = len(group.values)
    yield {
        "type": "scatter",
        "mode": "markers",
        "x": _rounded(group.values),
        "y": [y - 0.36 + 0.72 * place for place in spread(n)],
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
    """Of a small mark: blue is dark on dark; a hollow one is nothing but its edge."""
    return {"width": 1.3} if group.ours else {"color": REFERENCE, "width": 0.5}


def _behind(group: Group, y: int) -> Iterator[dict[str, Any]]:
    """A stripe behind every other row, and the random level: a dotted line in a band."""
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
    """A dot per head; dotted lines are random levels, in a model's colour where they differ."""
    pairs = _paired(heads, x, y)
    shapes = [*_levels([a for a, _ in pairs], "x", "y"), *_levels([b for _, b in pairs], "y", "x")]
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": entry(a.name),
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
                f"{tip}<br>{escape(y.title)} {real(value)}"
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


def _levels(groups: list[Group], axis: str, other: str) -> Iterator[dict[str, Any]]:
    """Random levels across a scatter: one grey line where all are about the same."""
    known = [group for group in _not_ours(groups) if math.isfinite(group.random[0])]
    if not known:
        return
    levels = {(group.color, group.random[0]) for group in known}
    middle = float(np.mean([level for _, level in levels]))
    if all(abs(group.random[0] - middle) <= max(_ABOUT, group.random[1]) for group in known):
        levels = {(REFERENCE, middle)}
    for color, level in sorted(levels):
        across = {f"{axis}0": level, f"{axis}1": level, f"{other}0": 0, f"{other}1": 1}
        yield _random_line(color, **across, **{f"{other}ref": "paper"})


def _not_ours(groups: list[Group]) -> list[Group]:
    """Of several groups those of real models; all, if there are no others."""
    return [group for group in groups if not group.ours] or groups


_ABOUT = 0.005
"""Random levels this near to their mean, or a standard deviation, are drawn as one."""


def describe_scatter(heads: pd.DataFrame, x: Measure, y: Measure) -> str:
    """How the two measures go together, real model by real model."""
    pairs = _paired(heads, x, y)
    told = [(a, b) for a, b in pairs if not a.ours] or pairs
    said = [f"{a.name} {real(correlation(a.values, b.values))}" for a, b in told]
    if not said:
        return f"{y.title} against {x.title}: 0 heads have both."
    return f"Correlation of {y.title} and {x.title} over heads: {'; '.join(said)}."


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's; NaN if one of them does not vary."""
    if len(a) < 3 or not a.std() or not b.std():
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def _paired(heads: pd.DataFrame, x: Measure, y: Measure) -> list[tuple[Group, Group]]:
    """Groups of the heads that have both measures, in the colours that they have everywhere."""
    both = heads[np.isfinite(heads[[x.name, y.name]].to_numpy(float)).all(1)]
    colors = colors_of_groups(heads)
    of_x, of_y = (
        [replace(group, color=colors[group.model]) for group in groups_of(both, measure.name)]
        for measure in (x, y)
    )
    return list(zip(of_x, of_y, strict=True))


def plot_depth(a: Group, b: Group, measure: Measure) -> Figure:
    """Heads of two groups by the relative depth of their layers, with medians of layers."""
    traces: list[Trace] = []
    for group, color, dash in _two(a, b):
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
                "name": entry(f"{group.name}: median of a layer"),
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
            for group, color, _ in _two(a, b)
            if math.isfinite(group.random[0])
        ],
    }
    return {"data": traces, "layout": layout}


def _two(a: Group, b: Group) -> Iterator[tuple[Group, str, str]]:
    """Two groups with colours that differ and their dashes."""
    yield a, a.color, "solid"
    yield b, b.color if b.color != a.color else FURTHER[0], "dash"


def describe_depth(a: Group, b: Group, measure: Measure) -> str:
    """Both medians and their difference."""
    return (
        f"{measure.title}, median over heads: {a.name} {real(a.median)}, {b.name} "
        f"{real(b.median)}; difference {real(b.median - a.median)}."
    )


def relative_depth(heads: pd.DataFrame) -> np.ndarray:
    """0 for a model's first layer, 1 for its last; 0 where it has only one."""
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
