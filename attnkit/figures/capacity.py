"""Figures of a sweep: phase diagrams with boundaries, and slices; with descriptions in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from attnkit.analysis.boundary import Boundary
from attnkit.analysis.conclusion import label_of, two_digits
from attnkit.figures.grid import GAP, Grid, GridAxis, cell_texts, titles_in
from attnkit.figures.marks import OUTLINE, Mark, curve, dots, limits
from attnkit.figures.panels import SHARES, Axis, Figure, Panel, Title, draw
from attnkit.figures.phase import MEASURES, Measure, boundary_marks, cell_marks, scale_of
from attnkit.figures.strips import SYMBOLS
from attnkit.foundation.settings import Value
from attnkit.training.statistics import Interval
from attnkit.training.summary import percent
from attnkit.variants import Variant


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
        marks = cell_marks(table[table["sharing"] == sharing], grid, measure)
        for one in boundaries:
            if (one.sharing, one.x, one.y) == (sharing, x, y):
                marks += boundary_marks(one, grid.x, grid.y)
        panels.append(grid.panel(marks, title, len(titles)))
    return draw(panels, columns=columns, gap=GAP, right=10, scale=scale_of(table, measure))


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
