"""Phase diagrams of sweeps, which the page Capacity and the static site draw; no Streamlit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pandas as pd

from attnkit.analysis.boundary import boundary
from attnkit.analysis.capacity import cells, slice_at
from attnkit.figures.capacity import Measure, describe_phase, phase_key, plot_phase
from attnkit.figures.panels import Figure
from attnkit.foundation.settings import Value
from attnkit.sweeps import SweepResult
from attnkit.variants import Variant

COLUMNS = {0: 5, 1000: 3, 640: 2}
"""Panels beside each other by the largest width of the figure in pixels; 0: at all others."""

MOST_PANELS = 6
"""Number of variants that are shown at first, at most."""


def middle_of(values: Sequence[Value]) -> Value:
    """Return the default value of an axis that is not drawn, the middle one."""
    return values[len(values) // 2]


@lru_cache(maxsize=16)
def table_of(result: SweepResult) -> pd.DataFrame:
    """Return the cells of a result, which nobody may change; kept for the newest results."""
    return cells(result)


def shown_cells(
    result: SweepResult, variants: Sequence[Variant], fixed: Mapping[str, Value]
) -> pd.DataFrame:
    """Return the cells of some variants at some values of axes."""
    table = slice_at(table_of(result), fixed)
    return table[table["sharing"].isin(variants)]


def csv_table(table: pd.DataFrame) -> Mapping[str, Any]:
    """Return a table as columns and rows for a file of comma-separated values."""
    present = table.astype(object).where(table.notna(), None)
    rows = present.to_numpy().tolist()
    return {"columns": [str(name) for name in table.columns], "rows": rows}


class Phase(NamedTuple):
    """A phase diagram that is ready to be sent.

    Attributes:
        figures: Figure by the largest width in pixels at which it is drawn; 0 for all others.
        finding: What it shows, in words.
        numbers: Its cells, for a file of comma-separated values.
        key: How to read it.
    """

    figures: dict[int, Figure]
    finding: str
    numbers: Mapping[str, Any]
    key: str


@lru_cache(maxsize=32)
def phase_of(
    result: SweepResult,
    x: str,
    y: str,
    measure: Measure,
    variants: tuple[Variant, ...],
    fixed: tuple[tuple[str, Value], ...],
) -> Phase:
    """Return the phase diagram of a sweep; kept for the newest results."""
    table = shown_cells(result, variants, dict(fixed))
    trained = [v for v in variants if (table["n_seeds"][table["sharing"] == v] > 0).any()]
    found = [boundary(result, v, x, y or None, dict(fixed)) for v in trained]
    boundaries = [one for one in found if one is not None]
    figures = {
        most: plot_phase(
            table, x, y or None, measure, boundaries, columns=columns, values=result.sweep.axes
        )
        for most, columns in COLUMNS.items()
    }
    finding = describe_phase(table, x, y or None, measure, boundaries)
    n_points = math.prod(len(result.sweep.axes[axis]) for axis in (x, y) if axis)
    key = phase_key(table, n_points, measure, boundaries)
    return Phase(figures, finding, csv_table(table), key)
