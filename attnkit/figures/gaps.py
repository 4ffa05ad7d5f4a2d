"""Parts of the figure of differences between two variants: cells, numbers and scale of colours."""

from __future__ import annotations

import math
from html import escape
from typing import Literal

import numpy as np
import pandas as pd

from attnkit.analysis.conclusion import label_of, two_digits
from attnkit.figures.grid import Grid, text_of
from attnkit.figures.marks import Mark, words
from attnkit.figures.panels import Scale
from attnkit.figures.phase import UNKNOWN
from attnkit.variants.palette import BLUE_RED, REFERENCE, translucent

DifferenceMeasure = Literal["accuracy", "steps_to_threshold"]
"""Column of which two variants are compared."""

_NONE = translucent(REFERENCE, 0.12)
"""Colour of no difference: nearly that of the page, which may be light or dark."""

_DARK = 0.6
"""Share of the largest difference from which numbers are white, not in the colour of text."""


def difference_columns(measure: DifferenceMeasure) -> tuple[str, str]:
    """Return the columns of `difference` with a measure, and with whether its interval is clear."""
    return ("difference", "clear") if measure == "accuracy" else ("steps_difference", "steps_clear")


def difference_text(value: float, measure: DifferenceMeasure) -> str:
    """Return a difference with its sign: points of accuracy, or the ratio of the steps."""
    if math.isnan(value):
        return "–"
    if measure == "accuracy":
        return f"{100 * value:+z.0f}".replace("-", "−") if round(100 * value) else "0"
    ratio = 2**value
    return f"×{ratio:.1f}" if 0.95 <= ratio < 9.95 else f"×{two_digits(ratio)}"


def difference_scale(table: pd.DataFrame, measure: DifferenceMeasure) -> Scale:
    """Return the scale of the colours of rows of `difference`, clear at no difference."""
    title = "Difference of accuracy, percentage points"
    if measure == "steps_to_threshold":
        title = "Ratio of the steps to 99%"
    most = _largest(table, measure)
    ticks = (-most, 0.0, most)
    texts = [difference_text(tick, measure) for tick in ticks]
    return Scale(-most, most, (BLUE_RED[0], _NONE, BLUE_RED[-1]), title, ticks, texts)


def _largest(table: pd.DataFrame, measure: DifferenceMeasure) -> float:
    sizes = table[difference_columns(measure)[0]].abs()
    largest = sizes.max()
    return float(largest) if largest > 0 else 1.0


def difference_marks(table: pd.DataFrame, grid: Grid, measure: DifferenceMeasure) -> list[Mark]:
    """Return the cells, grey where there is no difference to take, and the numbers in them."""
    column, clear = difference_columns(measure)
    values = table[column].to_numpy(float)
    tips = _tips(table, grid, measure)
    unknown = np.where(np.isnan(values), 0.0, np.nan)
    marked = table[table[clear].to_numpy(bool)]
    strong = (marked[column].abs() > _DARK * _largest(table, measure)).to_numpy()
    marks = [grid.cells(table, unknown, tips, UNKNOWN), grid.cells(table, values, tips)]
    for rows, color in ((marked[strong], "#ffffff"), (marked[~strong], "")):
        texts = [difference_text(value, measure) for value in rows[column]]
        places = grid.x.positions_of(rows), grid.y.positions_of(rows)
        marks.append(words(*places, texts, color=color))
    return marks


def _tips(table: pd.DataFrame, grid: Grid, measure: DifferenceMeasure) -> list[str]:
    """Return the texts shown on hover."""
    prefix = "" if measure == "accuracy" else "steps_"
    column, _ = difference_columns(measure)
    tips = []
    for row in table.to_dict("records"):
        where = ", ".join(
            f"{escape(label_of(axis.name))} {text_of(row[axis.name])}"
            for axis in (grid.x, grid.y)
            if axis.name
        )
        middle, low, high = (
            difference_text(row[name], measure)
            for name in (column, f"{prefix}low", f"{prefix}high")
        )
        n_pairs = row[f"n_{prefix}pairs"]
        what = "points" if measure == "accuracy" else "the steps"
        interval = f" (95% interval {low} to {high})" if low != "–" else ""
        said = f"{middle} {what}{interval}" if n_pairs else "no seed with which both reached 99%"
        pairs = f"{n_pairs} pair{'s' * (n_pairs != 1)} of seeds"
        tips.append(f"{where}<br>{said}<br>{pairs}")
    return tips
