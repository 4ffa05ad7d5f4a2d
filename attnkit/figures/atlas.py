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
    TOY,
    Group,
    describe_groups,
    groups_of,
    looks_of_groups,
    number_text,
    random_of,
)
from attnkit.figures.marks import LINE, Mark, curve, dots, level, region, row_offsets, stripes
from attnkit.figures.panels import SHARES, Axis, Figure, Panel, draw, row_axis
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
    ends = [end for group in groups for end in (group.values.min(), group.values.max())]
    ends += [mean for group in groups for mean in group.random[:1] if math.isfinite(mean)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = 0.04 * (high - low) or 0.1
    x = Axis(low - margin, high + margin, measure.title)
    marks = stripes(len(groups))
    marks += [mark for y, group in enumerate(groups) for mark in _row(group, y, measure)]
    height = (2 * LINE + 22) * max(1, len(groups))
    return draw([Panel(x, row_axis([_label(group) for group in groups]), marks, height=height)])


def _label(group: Group) -> str:
    name = group.model if len(group.model) <= _NAME else f"{group.model[: _NAME - 1]}…"
    return f"{escape(name)}<br>{group.kind}, {group.count}"


_NAME = 22
"""Most characters of a model's name beside a row, which leave room for the figure on a phone."""


def _row(group: Group, y: int, measure: Measure) -> Iterator[Mark]:
    """Yield the random level as a dotted line in a band, a dot per head, and their median."""
    n, (mean, sd) = len(group.values), group.random
    ends = (y - 0.46, y + 0.46)
    if math.isfinite(mean) and math.isfinite(sd):
        yield region((mean - sd, mean + sd), ends, translucent(REFERENCE, 0.45))
    if math.isfinite(mean):
        yield level(mean, upright=True, ends=ends)
    yield dots(
        group.values,
        [y - 0.36 + 0.72 * offset for offset in row_offsets(n)],
        group.color,
        symbol=group.symbol,
        size=7 if n < _MANY else 5,
        opacity=0.7,
        edge=_edge(group),
        tips=group.tips(measure.title),
    )
    tip = f"{escape(group.name)}<br>{group.in_words}"
    look: dict[str, Any] = {"symbol": group.symbol, "size": 15}
    yield dots([group.median], [y], group.color, **look, edge=_MEDIAN_EDGE, tips=[tip])


_MANY = 100
"""Number of heads from which their dots are smaller."""

_MEDIAN_EDGE = {"color": "#ffffff", "width": 2}


def _edge(group: Group) -> dict[str, Any]:
    """Return the outline of a small mark: grey, since some inks are dark on a dark page.

    The outline of a hollow mark has the colour of its group.
    """
    return {"width": 1.3} if group.is_toy else {"color": REFERENCE, "width": 0.5}


def plot_scatter(heads: pd.DataFrame, x: Measure, y: Measure) -> Figure:
    """Plot two measures against each other, a dot per head.

    Dotted lines are random levels, in a model's colour where they differ.
    """
    pairs = _paired(heads, x, y)
    marks = [*_random_levels([a for a, _ in pairs], upright=True)]
    marks += _random_levels([b for _, b in pairs])
    marks += [
        dots(
            a.values,
            b.values,
            a.color,
            symbol=a.symbol,
            size=8 if len(a.values) < _MANY else 6,
            opacity=0.75,
            edge=_edge(a),
            name=a.name,
            tips=[
                f"{tip}<br>{escape(y.title)} {number_text(value)}"
                for tip, value in zip(a.tips(x.title), b.values, strict=True)
            ],
        )
        for a, b in pairs
    ]
    panel = Panel(Axis(title=x.title), Axis(title=y.title), marks, height=410)
    return draw([panel], legend="above")


def _random_levels(groups: list[Group], *, upright: bool = False) -> Iterator[Mark]:
    """Yield lines for random levels across a scatter; one grey line if all are about the same."""
    compared = [group for group in _real_models(groups) if math.isfinite(group.random[0])]
    if not compared:
        return
    levels = {(group.color, group.random[0]) for group in compared}
    middle = float(np.mean([mean for _, mean in levels]))
    if all(abs(group.random[0] - middle) <= max(_ABOUT, group.random[1]) for group in compared):
        levels = {(REFERENCE, middle)}
    for color, mean in sorted(levels):
        yield level(mean, upright=upright, color=color)


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
    marks: list[Mark] = []
    for group, color, dash in _styled(a, b):
        depth = relative_depth(group.heads)
        medians = pd.Series(group.values).groupby(depth).median()
        if math.isfinite(group.random[0]):
            marks.append(level(group.random[0], color=color))
        look: dict[str, Any] = {"symbol": group.symbol, "size": 6, "opacity": 0.5}
        marks += [
            dots(depth, group.values, color, **look, tips=group.tips(measure.title)),
            curve(
                medians.index,
                medians,
                color,
                dash=dash,
                symbol=group.symbol,
                size=9,
                name=f"{group.name}: median of a layer",
                hover=f"median {escape(measure.title)}: %{{y:.3f}}",
            ),
        ]
    x = Axis(-0.03, 1.03, "Depth: 0 the first layer, 1 the last", SHARES.ticks)
    return draw([Panel(x, Axis(title=measure.title), marks, height=350)], legend="above")


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
