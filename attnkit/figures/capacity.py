"""Figures of a sweep: phase diagrams with boundaries, and slices; with descriptions in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from attnkit.analysis.boundary import Boundary, is_number
from attnkit.analysis.conclusion import label_of, two_digits
from attnkit.figures.grid import GAP, Grid, GridAxis, cell_texts, titles_in
from attnkit.figures.marks import OUTLINE, Mark, curve, dots, limits
from attnkit.figures.panels import SHARES, Axis, Figure, Panel, Scale, Title, draw
from attnkit.figures.strips import SYMBOLS
from attnkit.foundation.settings import Value
from attnkit.training.statistics import Interval
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import REFERENCE, VIRIDIS, translucent

Measure = Literal["accuracy", "steps_to_threshold", "solved"]
"""Column of `cells` that a figure shows."""

MEASURES: dict[Measure, str] = {
    "accuracy": "Accuracy",
    "steps_to_threshold": "Steps to 99%",
    "solved": "Share of seeds that solve it",
}
"""Title of each measure."""

UNKNOWN = translucent(REFERENCE, 0.3)
"""Colour of cells that were trained but have no value of the measure."""


def plot_phase(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    measure: Measure = "accuracy",
    boundaries: Sequence[Boundary] = (),
    columns: int = 5,
    values: Mapping[str, Sequence[Value]] | None = None,
) -> Figure:
    """Plot a measure over two axes, a panel per variant, with the boundaries of the variants.

    All panels have one scale. `customdata` of a cell is the index of its row in the table.

    Args:
        table: Cells with one row per variant and point, as `cells` and `slice_at` return them.
        x: Horizontal axis.
        y: Vertical axis; None for a single row of cells.
        measure: Column that the colours show.
        boundaries: Boundaries with the same axes; others are not drawn.
        columns: Most panels beside each other.
        values: All values of the axes, where the table still lacks some; default: those it has.
    """
    grid, titles = Grid.of(table, x, y, values, columns), titles_in(table)
    panels = []
    for sharing, title in titles.items():
        marks = _cell_marks(table[table["sharing"] == sharing], grid, measure)
        for one in boundaries:
            if (one.sharing, one.x, one.y) == (sharing, x, y):
                marks += _boundary_marks(one, grid.x, grid.y)
        panels.append(grid.panel(marks, title, len(titles)))
    return draw(panels, columns=columns, gap=GAP, right=10, scale=_scale_of(table, measure))


def _scale_of(table: pd.DataFrame, measure: Measure) -> Scale:
    """Return the scale of the colours of the cells of all panels.

    Args:
        table: The cells.
        measure: Column that the colours show.
    """
    if measure != "steps_to_threshold":
        return Scale(0, 1, VIRIDIS, MEASURES[measure], (0, 0.5, 1), ("0%", "50%", "100%"))
    steps = np.log10(table[measure].dropna().to_numpy(float))
    low, high = (float(steps.min()), float(steps.max())) if len(steps) else (0.0, 1.0)
    high = max(high, low + 0.1)
    ticks = np.linspace(low, high, 3).tolist()
    texts = [f"{float(f'{10**tick:.2g}'):,.0f}" for tick in ticks]
    return Scale(low, high, VIRIDIS[::-1], MEASURES[measure], ticks, texts)


def _cell_marks(rows: pd.DataFrame, grid: Grid, measure: Measure) -> list[Mark]:
    """Return the cells of a panel: grey ones, coloured ones, and crosses on those that failed."""
    values = rows[measure].to_numpy(float)
    trained = rows["n_seeds"].to_numpy() > 0
    if measure == "steps_to_threshold":
        values = np.log10(values)
    tips = cell_texts(rows, [axis.name for axis in (grid.x, grid.y) if axis.name])
    without = np.where(trained & np.isnan(values), 0.0, np.nan)
    marks = [grid.cells(rows, values, tips)]
    if not np.isnan(without).all():
        marks.insert(0, grid.cells(rows, without, tips, UNKNOWN))
    if not trained.all():
        failed = rows[~trained]
        marks.append(
            dots(
                grid.x.positions_of(failed),
                grid.y.positions_of(failed),
                REFERENCE,
                symbol="x-thin",
                size=9,
                edge={"color": REFERENCE, "width": 2},
                tips=[tip for tip, is_trained in zip(tips, trained, strict=True) if not is_trained],
                keys=failed.index.tolist(),
            )
        )
    return marks


def _boundary_marks(found: Boundary, x: GridAxis, y: GridAxis) -> list[Mark]:
    """Return the band of a boundary, a dark line, and a white one on it.

    Rows are connected if they are neighbours and their values are numbers.
    """
    ordered = all(map(is_number, y.values))
    rows = [
        (place, found.at.index(value) if found.y else 0)
        for place, value in enumerate(y.values)
        if not found.y or value in found.at
    ]
    segments: list[list[tuple[int, int]]] = []
    for place, row in rows:
        if found.measured[row]:
            if not (segments and ordered and segments[-1][-1][0] == place - 1):
                segments.append([])
            segments[-1].append((place, row))
    return [mark for segment in segments for mark in _segment(found, segment, x, y)]


def _segment(
    found: Boundary, segment: list[tuple[int, int]], x: GridAxis, y: GridAxis
) -> list[Mark]:
    """Return the marks of a boundary in neighbouring rows.

    Args:
        found: The boundary.
        segment: Place of each row on the axis, and its index in the boundary.
        x: Horizontal axis.
        y: Vertical axis.
    """
    places, indices = (list(each) for each in zip(*segment, strict=True))
    half, low, high = (
        x.between(np.pad(each[indices], 1, mode="edge"))
        for each in (found.half, found.low, found.high)
    )
    limits = y.limits
    upright = np.r_[limits[places[0]], y.positions[places], limits[places[-1] + 1]]
    fill: dict[str, Any] = {"fill": "toself", "fillcolor": "rgba(255,255,255,0.4)"}
    outline = np.r_[low, high[::-1]], np.r_[upright, upright[::-1]]
    return [
        curve(*outline, "rgba(0,0,0,0.35)", width=1, **fill),
        curve(half, upright, "rgba(0,0,0,0.75)", width=5),
        curve(half, upright, "#ffffff"),
    ]


def phase_key(
    table: pd.DataFrame,
    n_points: int,
    measure: Measure = "accuracy",
    boundaries: Sequence[Boundary] = (),
) -> str:
    """Return how to read `plot_phase`, without the marks that this figure does not have.

    Args:
        table: The cells that are drawn.
        n_points: Number of cells of each variant that the sweep plans.
        measure: Column that the colours show.
        boundaries: Boundaries that are drawn.
    """
    trained = table["n_seeds"] > 0
    marks = {
        "On the line, half of the seeds reach 99%; the pale band is its 95% interval.": any(
            one.measured.any() for one in boundaries
        ),
        "Some seeds fail beyond the band, too.": any(_fails_beyond(table, b) for b in boundaries),
        "Grey: no seed reached 99%.": table.loc[trained, measure].isna().any(),
        "×: could not be trained.": not trained.all(),
        "Blank: not trained yet.": len(table) < n_points * table["sharing"].nunique(),
    }
    return " ".join(text for text, is_there in marks.items() if is_there)


def _fails_beyond(table: pd.DataFrame, line: Boundary) -> bool:
    """Return whether a seed fails in a cell that the band of its row leaves on the solved side."""
    rows = table[(table["sharing"] == line.sharing) & (table["n_solved"] < table["n_seeds"])]
    ends = line.high if line.rises else line.low
    drawn = np.where(line.measured, ends, np.inf if line.rises else -np.inf)
    end = rows[line.y].map(dict(zip(line.at, drawn, strict=True))) if line.y else drawn[0]
    beyond = rows[line.x] > end if line.rises else rows[line.x] < end
    return bool(beyond.any())


def with_mark(figure: Figure, index: int) -> Figure:
    """Return a phase diagram with a ring in one cell.

    Args:
        figure: The diagram.
        index: Index of the cell's row in the table from which the diagram was drawn.
    """
    for trace in figure["data"]:
        for y, row in zip(trace["y"], trace.get("customdata", ()), strict=False):
            if trace["type"] == "heatmap" and index in row:
                place = {name: trace[name] for name in ("xaxis", "yaxis")}
                place |= {"x": [trace["x"][row.index(index)]], "y": [y]}
                rings = [
                    dots([], [], color, symbol="circle-open", size=11, edge={"width": width}).values
                    for color, width in (("#000000", 5), ("#ffffff", 2))
                ]
                return {**figure, "data": [*figure["data"], *(ring | place for ring in rings)]}
    return figure


def describe_phase(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    measure: Measure = "accuracy",
    boundaries: Sequence[Boundary] = (),
) -> str:
    """Describe in words what `plot_phase` shows."""
    by = f" by {label_of(x)}" + (f" and {label_of(y)}" if y is not None else "")
    texts = []
    for sharing, title in titles_in(table).items():
        rows = table[table["sharing"] == sharing]
        trained, values = rows[rows["n_seeds"] > 0], rows[measure].dropna()
        text = f"{title.name}: {len(trained)} cells"
        if len(values):
            text += f", {_in_words(values.min(), measure)} to {_in_words(values.max(), measure)}"
        n_whole = int((trained["n_solved"] == trained["n_seeds"]).sum())
        text += f", all seeds solve {n_whole} of them"
        for one in boundaries:
            if one.sharing == sharing and one.measured.any():
                inside = one.half[one.measured]
                text += f", boundary at {label_of(x)} {two_digits(inside.min())}"
                text += f" to {two_digits(inside.max())}"
        texts.append(text)
    return f"{MEASURES[measure]}{by}. {'; '.join(texts) or 'Nothing has been trained'}."


def _in_words(value: float, measure: Measure) -> str:
    return f"{value:,.0f}" if measure == "steps_to_threshold" else percent(value)


def plot_slice(table: pd.DataFrame, x: str, measure: Measure = "accuracy") -> Figure:
    """Plot a measure over one axis, a line per variant, with 95% intervals of accuracy.

    Lines are moved sideways a little, so that equal ones can be seen.

    Args:
        table: Cells with one row per variant and value of `x`.
        x: Horizontal axis.
        measure: Column of the vertical axis.
    """
    axis, titles = GridAxis.of(table, x), titles_in(table)
    marks = []
    for index, (sharing, title) in enumerate(titles.items()):
        rows = table[(table["sharing"] == sharing) & (table["n_seeds"] > 0)]
        places = [axis.values.index(value) for value in rows[x].tolist()]
        rows = rows.iloc[np.argsort(places)]
        shift = 0.4 * (index - (len(titles) - 1) / 2) / max(len(titles), 5)
        at_x = axis.shifted(sorted(places), shift)
        marks.append(_line(rows, at_x, x, measure, sharing, title))
    panel = Panel(axis.axis(600), _upright(table, measure), marks, height=344)
    return draw([panel], legend="above")


def _line(
    rows: pd.DataFrame, at_x: np.ndarray, x: str, measure: Measure, sharing: str, title: Title
) -> Mark:
    """Return the line of a variant, with 95% intervals of accuracy."""
    values = rows[measure].to_numpy(float)
    bars = None
    if measure == "accuracy":
        low, high = (rows[f"accuracy_{end}"].clip(0, 1).to_numpy(float) for end in ("low", "high"))
        bars = limits(Interval(values, low, high), title.color, 1.5)
    return curve(
        at_x,
        values,
        title.color,
        width=2,
        symbol=SYMBOLS[Variant(sharing).sharing],
        size=9,
        edge=OUTLINE,
        name=title.name,
        tips=cell_texts(rows, [x]),
        keys=rows.index.tolist(),
        error_y=bars,
    )


def _upright(table: pd.DataFrame, measure: Measure) -> Axis:
    """Return the vertical axis of a measure."""
    if measure != "steps_to_threshold":
        return replace(SHARES, title=MEASURES[measure])
    steps = table[measure].dropna().to_numpy(float)
    ticks = [k * 10.0**power for power in range(8) for k in (1, 2, 3, 5, 7)]
    low, high = (steps.min() / 1.2, steps.max() * 1.2) if len(steps) else (1.0, 10.0)
    texts = [f"{tick:,.0f}" for tick in ticks]
    return Axis(float(low), float(high), MEASURES[measure], ticks, texts, log=True)


def describe_slice(table: pd.DataFrame, x: str, measure: Measure = "accuracy") -> str:
    """Describe in words what `plot_slice` shows."""
    texts = []
    for sharing, title in titles_in(table).items():
        rows = table[(table["sharing"] == sharing) & (table["n_seeds"] > 0)]
        values = [
            f"{value:g}: {_in_words(score, measure)}"
            if isinstance(value, int | float)
            else f"{value}: {_in_words(score, measure)}"
            for value, score in zip(rows[x].tolist(), rows[measure].tolist(), strict=True)
            if not math.isnan(score)
        ]
        texts.append(f"{title.name} {', '.join(values) or 'none'}")
    return f"{MEASURES[measure]} by {label_of(x)}. {'; '.join(texts)}."
