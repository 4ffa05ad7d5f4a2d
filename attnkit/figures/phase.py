"""Parts of a phase diagram: cells, their scale of colours, and boundaries with bands."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

from attnkit.analysis.boundary import Boundary, is_number
from attnkit.figures.grid import Grid, GridAxis, cell_texts
from attnkit.figures.marks import Mark, curve, dots
from attnkit.figures.panels import Scale
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


def scale_of(table: pd.DataFrame, measure: Measure) -> Scale:
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


def cell_marks(rows: pd.DataFrame, grid: Grid, measure: Measure) -> list[Mark]:
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


def boundary_marks(found: Boundary, x: GridAxis, y: GridAxis) -> list[Mark]:
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
