"""Figures of a sweep: phase diagrams with boundaries, and slices through them.

They are plain dictionaries in Plotly's schema, with descriptions in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from attnkit.analysis.boundary import Boundary
from attnkit.analysis.conclusion import label_of, two_digits
from attnkit.figures.gaps import (
    DifferenceMeasure,
    difference_axis,
    difference_columns,
    difference_text,
    difference_traces,
)
from attnkit.figures.grid import (
    GridAxis,
    PanelGrid,
    axis_suffix,
    cell_texts,
    titles_of,
    variants_in,
)
from attnkit.figures.groups import LEGEND, legend_text
from attnkit.figures.panels import Figure, Title, Trace
from attnkit.figures.phase import MEASURES, Measure, boundary_traces, cell_traces, color_axis
from attnkit.figures.strips import OUTLINE, SYMBOLS, bare_layout
from attnkit.foundation.settings import Value
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import REFERENCE, translucent


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
    across, upwards = GridAxis.of(table, x, values), GridAxis.of(table, y, values)
    sharings = variants_in(table)
    grid = PanelGrid(max(len(sharings), 1), columns, across, upwards)
    layout = grid.layout(titles_of(sharings))
    layout["coloraxis"] = color_axis(table, measure, columns, grid.height)
    traces: list[Trace] = []
    for panel, sharing in enumerate(sharings):
        axes = {"xaxis": f"x{axis_suffix(panel)}", "yaxis": f"y{axis_suffix(panel)}"}
        rows = table[table["sharing"] == sharing]
        found = [one for one in boundaries if (one.sharing, one.x, one.y) == (sharing, x, y)]
        panel_traces = cell_traces(rows, across, upwards, measure)
        for one in found:
            panel_traces += boundary_traces(one, across, upwards)
        traces += [trace | axes for trace in panel_traces]
    return {"data": traces, "layout": layout}


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


_RING = {"symbol": "circle-open", "size": 11}


def with_mark(figure: Figure, index: int) -> Figure:
    """Return a phase diagram with a ring in one cell.

    Args:
        figure: The diagram.
        index: Index of the cell's row in the table from which the diagram was drawn.
    """
    for trace in figure["data"]:
        for y, row in zip(trace["y"], trace.get("customdata", ()), strict=False):
            if trace["type"] == "heatmap" and index in row:
                ring: Trace = {name: trace[name] for name in ("xaxis", "yaxis")}
                ring |= {"type": "scatter", "mode": "markers", "hoverinfo": "skip"}
                ring |= {"x": [trace["x"][row.index(index)]], "y": [y]}
                rings = [
                    {**ring, "marker": {**_RING, "color": color, "line": {"width": width}}}
                    for color, width in (("#000000", 5), ("#ffffff", 2))
                ]
                return {**figure, "data": [*figure["data"], *rings]}
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
    for sharing, title in zip(variants_in(table), titles_of(variants_in(table)), strict=True):
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
    axis = GridAxis.of(table, x)
    sharings = variants_in(table)
    traces: list[Trace] = []
    for index, (sharing, title) in enumerate(zip(sharings, titles_of(sharings), strict=True)):
        rows = table[(table["sharing"] == sharing) & (table["n_seeds"] > 0)]
        places = [axis.values.index(value) for value in rows[x].tolist()]
        rows = rows.iloc[np.argsort(places)]
        shift = 0.4 * (index - (len(sharings) - 1) / 2) / max(len(sharings), 5)
        at_x = axis.shifted(sorted(places), shift).tolist()
        traces.append({"x": at_x, **_line(rows, x, measure, sharing, title)})
    layout = {
        **bare_layout(),
        "showlegend": True,
        "legend": LEGEND,
        "margin": {"l": 56, "r": 14, "t": 8, "b": 48},
        "height": 400,
        "xaxis": {
            **axis.layout(600),
            "title": {"text": axis.title, "font": {"size": 13}, "standoff": 6},
        },
        "yaxis": _upright(table, measure),
    }
    return {"data": traces, "layout": layout}


def _line(rows: pd.DataFrame, x: str, measure: Measure, sharing: str, title: Title) -> Trace:
    """Return the line of a variant without its places, with 95% intervals of accuracy."""
    values = rows[measure].to_numpy(float)
    trace: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": legend_text(title.name),
        "y": [None if value != value else float(f"{value:.5g}") for value in values],
        "line": {"color": title.color, "width": 2},
        "marker": {
            "symbol": SYMBOLS[Variant(sharing).sharing],
            "size": 9,
            "color": title.color,
            "line": OUTLINE,
        },
        "hoverinfo": "text",
        "hovertext": cell_texts(rows, [x]),
        "customdata": rows.index.tolist(),
        "cliponaxis": False,
    }
    if measure == "accuracy":
        low, high = (rows[f"accuracy_{end}"].clip(0, 1).to_numpy(float) for end in ("low", "high"))
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": np.nan_to_num(high - values).round(5).tolist(),
            "arrayminus": np.nan_to_num(values - low).round(5).tolist(),
            "color": title.color,
            "thickness": 1.5,
            "width": 0,
        }
    return trace


def _upright(table: pd.DataFrame, measure: Measure) -> Figure:
    """Return the vertical axis of a measure."""
    axis: Figure = {
        "title": {"text": MEASURES[measure], "font": {"size": 13}, "standoff": 8},
        "zeroline": False,
        "gridcolor": translucent(REFERENCE, 0.3),
        "fixedrange": True,
    }
    if measure == "steps_to_threshold":
        steps = table[measure].dropna().to_numpy(float)
        ticks = [k * 10.0**power for power in range(8) for k in (1, 2, 3, 5, 7)]
        low, high = (steps.min() / 1.2, steps.max() * 1.2) if len(steps) else (1.0, 10.0)
        ends = {"range": [math.log10(low), math.log10(high)]}
        texts = [f"{tick:,.0f}" for tick in ticks]
        return {**axis, **ends, "type": "log", "tickvals": ticks, "ticktext": texts}
    ticks = [0, 0.25, 0.5, 0.75, 1]
    texts = [f"{tick:.0%}" for tick in ticks]
    return {**axis, "range": [-0.02, 1.04], "tickvals": ticks, "ticktext": texts}


def describe_slice(table: pd.DataFrame, x: str, measure: Measure = "accuracy") -> str:
    """Describe in words what `plot_slice` shows."""
    texts = []
    for sharing, title in zip(variants_in(table), titles_of(variants_in(table)), strict=True):
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


def plot_difference(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    names: tuple[str, str],
    measure: DifferenceMeasure = "accuracy",
    values: Mapping[str, Sequence[Value]] | None = None,
) -> Figure:
    """Plot the differences of two variants over two axes, A − B.

    Cells whose interval excludes 0 contain the difference: in percentage points of accuracy, or as
    the ratio of the steps. `customdata` of a cell is the index of its row in the table.

    Args:
        table: Rows of `difference`, one per point.
        x: Horizontal axis.
        y: Vertical axis; None for a single row.
        names: Text forms of A and B.
        measure: "accuracy" or "steps_to_threshold".
        values: All values of the axes, where the table still lacks some; default: those it has.
    """
    across, upwards = GridAxis.of(table, x, values), GridAxis.of(table, y, values)
    a, b = (title.name for title in titles_of(names))
    grid = PanelGrid(1, 1, across, upwards)
    layout = grid.layout([Title(f"{a} − {b}")])
    return {
        "data": difference_traces(table, across, upwards, measure),
        "layout": {**layout, "coloraxis": difference_axis(table, measure, grid.height)},
    }


def describe_difference(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    names: tuple[str, str],
    measure: DifferenceMeasure = "accuracy",
) -> str:
    """Describe in words what `plot_difference` shows."""
    a, b = (title.name for title in titles_of(names))
    column, clear = difference_columns(measure)
    by = f"{label_of(x)}" + (f" and {label_of(y)}" if y is not None else "")
    known = table[table[column].notna()]
    if known.empty:
        return f"{MEASURES[measure]}, {a} minus {b}, by {by}. No cell has both."
    low, high = (
        difference_text(end, measure) for end in (known[column].min(), known[column].max())
    )
    signs = np.sign(known.loc[known[clear], column])
    return (
        f"{MEASURES[measure]}, {a} minus {b}, by {by}. {len(known)} cells, {low} to {high}; it is "
        f"clearly higher for {a} in {int((signs > 0).sum())} of them, and for {b} in "
        f"{int((signs < 0).sum())}."
    )
