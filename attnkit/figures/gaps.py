"""Figure of the differences between two variants over the grid of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Literal

import numpy as np
import pandas as pd

from attnkit.analysis.conclusion import label_of, two_digits
from attnkit.figures.capacity import MEASURES, UNKNOWN
from attnkit.figures.grid import Grid, text_of
from attnkit.figures.marks import Mark, words
from attnkit.figures.panels import Figure, Scale, Title, draw
from attnkit.foundation.settings import Value
from attnkit.foundation.words import counted
from attnkit.training.summary import fixed
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import BLUE_RED, REFERENCE, translucent

DifferenceMeasure = Literal["accuracy", "steps_to_threshold"]
"""Column of which two variants are compared."""

_NONE = translucent(REFERENCE, 0.12)
"""Colour of no difference: nearly that of the page, which may be light or dark."""

_DARK = 0.6
"""Share of the largest difference from which numbers are white, not in the colour of text."""


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
        names: Text forms of A and B.
        measure: "accuracy" or "steps_to_threshold".
        values: All values of the axes, where the table still lacks some; default: those it has.
    """
    a, b = (title_of(Variant(name)) for name in names)
    grid = Grid.of(table, x, y, values)
    panel = grid.panel(_marks(table, grid, measure), Title(f"{a} − {b}"), 1)
    return draw([panel], right=10, scale=_scale(table, measure))


def describe_difference(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    names: tuple[str, str],
    measure: DifferenceMeasure = "accuracy",
) -> str:
    """Describe in words what `plot_difference` shows."""
    a, b = (title_of(Variant(name)) for name in names)
    column, clear = _columns(measure)
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


def _columns(measure: DifferenceMeasure) -> tuple[str, str]:
    """Return the columns of `difference` with a measure, and with whether its interval is clear."""
    return ("difference", "clear") if measure == "accuracy" else ("steps_difference", "steps_clear")


def difference_text(value: float, measure: DifferenceMeasure) -> str:
    """Return a difference with its sign: points of accuracy, or the ratio of the steps."""
    if math.isnan(value):
        return "–"
    if measure == "accuracy":
        return fixed(100 * value, 0, "+") if round(100 * value) else "0"
    ratio = 2**value
    return f"×{ratio:.1f}" if 0.95 <= ratio < 9.95 else f"×{two_digits(ratio)}"


def _scale(table: pd.DataFrame, measure: DifferenceMeasure) -> Scale:
    """Return the scale of the colours of rows of `difference`, clear at no difference."""
    title = "Difference of accuracy, percentage points"
    if measure == "steps_to_threshold":
        title = "Ratio of the steps to 99%"
    most = _largest(table, measure)
    ticks = (-most, 0.0, most)
    texts = [difference_text(tick, measure) for tick in ticks]
    return Scale(-most, most, (BLUE_RED[0], _NONE, BLUE_RED[-1]), title, ticks, texts)


def _largest(table: pd.DataFrame, measure: DifferenceMeasure) -> float:
    sizes = table[_columns(measure)[0]].abs()
    largest = sizes.max()
    return float(largest) if largest > 0 else 1.0


def _marks(table: pd.DataFrame, grid: Grid, measure: DifferenceMeasure) -> list[Mark]:
    """Return the cells, grey where there is no difference to take, and the numbers in them."""
    column, clear = _columns(measure)
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
    prefix = "" if measure == "accuracy" else "steps_"
    column, _ = _columns(measure)
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
        text = f"{middle} {what}{interval}" if n_pairs else "no seed with which both reached 99%"
        tips.append(f"{where}<br>{text}<br>{counted(n_pairs, 'pair')} of seeds")
    return tips
