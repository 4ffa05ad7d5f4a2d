"""Parts of a phase diagram: cells, their scale of colours, and boundaries with bands."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from attnkit.analysis.boundary import Boundary, is_number
from attnkit.figures.grid import CellGrid, GridAxis, cell_texts
from attnkit.figures.panels import Figure, Trace
from attnkit.variants.palette import REFERENCE, VIRIDIS, translucent

Measure = Literal["accuracy", "steps_to_threshold", "solved"]
"""Column of `cells` that a figure shows."""

MEASURES: dict[Measure, str] = {
    "accuracy": "Accuracy",
    "steps_to_threshold": "Steps to 99%",
    "solved": "Share of seeds that solve it",
}
"""Title of each measure."""

UNKNOWN: Trace = {
    "colorscale": [[i, translucent(REFERENCE, 0.3)] for i in (0, 1)],
    "showscale": False,
}
"""Style of cells that were trained but have no value of the measure."""


def color_axis(table: pd.DataFrame, measure: Measure, columns: int, height: int) -> Figure:
    """Return the scale of colours, and its bar below the panels.

    Args:
        table: Cells of all panels.
        measure: Column that the colours show.
        columns: Most panels beside each other.
        height: Height of the figure in pixels.
    """
    low, high = 0.0, 1.0
    scale = [[i / (len(VIRIDIS) - 1), color] for i, color in enumerate(VIRIDIS)]
    ticks: Figure = {"tickvals": [0, 0.5, 1], "ticktext": ["0%", "50%", "100%"]}
    if measure == "steps_to_threshold":
        steps = np.log10(table[measure].dropna().to_numpy(float))
        low, high = (float(steps.min()), float(steps.max())) if len(steps) else (0.0, 1.0)
        high = max(high, low + 0.1)
        scale = [[i / (len(VIRIDIS) - 1), color] for i, color in enumerate(VIRIDIS[::-1])]
        values = np.linspace(low, high, 3)
        texts = [f"{float(f'{10**value:.2g}'):,.0f}" for value in values]
        ticks = {"tickvals": values.tolist(), "ticktext": texts}
    return {
        "cmin": low,
        "cmax": high,
        "colorscale": scale,
        "colorbar": {**color_bar(MEASURES[measure], height), "len": 0.3 if columns >= 4 else 0.9}
        | ticks,
    }


def color_bar(title: str, height: int) -> Figure:
    """Return a horizontal bar of colours at the lower edge of a figure.

    Args:
        title: Text above the bar.
        height: Height of the figure in pixels.
    """
    return {
        "orientation": "h",
        "title": {
            "text": f'{title}<br><span style="font-size:3px"> </span>',  # a gap below the title
            "side": "top",
            "font": {"size": 12},
        },
        "thickness": 8,
        "len": 0.5,
        "x": 0.5,
        "xanchor": "center",
        "y": 18 / height,  # room for the labels of its ticks
        "yref": "container",
        "yanchor": "bottom",
        "ypad": 0,
        "outlinewidth": 0,
    }


def cell_traces(rows: pd.DataFrame, x: GridAxis, y: GridAxis, measure: Measure) -> list[Trace]:
    """Return the cells of a panel: grey ones, coloured ones, and marks of those that failed."""
    grid = CellGrid.of(rows, x, y)
    values = rows[measure].to_numpy(float)
    trained = rows["n_seeds"].to_numpy() > 0
    if measure == "steps_to_threshold":
        values = np.log10(values)
    axes = [name for name in (x.name, y.name) if name]
    texts = cell_texts(rows, axes)
    base = grid.heatmap(texts)
    without = np.where(trained & np.isnan(values), 0.0, np.nan)
    traces = []
    if not np.isnan(without).all():
        traces.append({**base, **UNKNOWN, "z": grid.numbers(without)})
    traces.append({**base, "z": grid.numbers(values), "coloraxis": "coloraxis"})
    if not trained.all():
        traces.append(
            _failed(
                rows[~trained], x, y, [t for t, ok in zip(texts, trained, strict=True) if not ok]
            )
        )
    return traces


def _failed(rows: pd.DataFrame, x: GridAxis, y: GridAxis, texts: list[str]) -> Trace:
    """Return crosses at the cells that could not be trained."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x.positions_of(rows),
        "y": y.positions_of(rows),
        "marker": {"symbol": "x-thin", "size": 9, "line": {"color": REFERENCE, "width": 2}},
        "hoverinfo": "text",
        "hovertext": texts,
        "customdata": rows.index.tolist(),
    }


def boundary_traces(found: Boundary, x: GridAxis, y: GridAxis) -> list[Trace]:
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
    return [trace for segment in segments for trace in _segment(found, segment, x, y)]


def _segment(
    found: Boundary, segment: list[tuple[int, int]], x: GridAxis, y: GridAxis
) -> list[Trace]:
    """Return the traces of a boundary in neighbouring rows.

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
    style: Trace = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "showlegend": False}
    outline = {"x": np.r_[low, high[::-1]].tolist(), "y": np.r_[upright, upright[::-1]].tolist()}
    edge = {"color": "rgba(0,0,0,0.35)", "width": 1}
    line = {"x": half.tolist(), "y": upright.tolist()}
    return [
        {**style, **outline, "fill": "toself", "fillcolor": "rgba(255,255,255,0.4)", "line": edge},
        {**style, **line, "line": {"color": "rgba(0,0,0,0.75)", "width": 5}},
        {**style, **line, "line": {"color": "#ffffff", "width": 2.5}},
    ]
