"""Figures of a sweep: phase diagrams, slices through them, and differences of two variants.

They are plain dictionaries in Plotly's schema, with descriptions in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pandas as pd

from attnkit.analysis.boundary import Boundary
from attnkit.figures.panels import Figure

Measure = Literal["accuracy", "steps_to_threshold", "solved"]
"""Column of `cells` that a figure shows."""


def plot_phase(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    measure: Measure = "accuracy",
    boundaries: Sequence[Boundary] = (),
    columns: int = 5,
) -> Figure:
    """Plot a measure over two axes, a panel per variant, with the boundaries of the variants.

    Args:
        table: Cells with one row per variant and point, as `cells` and `slice_at` return them.
        x: Horizontal axis.
        y: Vertical axis; None for a single row of cells.
        measure: Column that the colours show.
        boundaries: Boundaries with the same axes.
        columns: Most panels beside each other.
    """
    return {"data": [], "layout": {}}


def describe_phase(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    measure: Measure = "accuracy",
    boundaries: Sequence[Boundary] = (),
) -> str:
    """Describe in words what `plot_phase` shows."""
    return ""


def plot_slice(table: pd.DataFrame, x: str, measure: Measure = "accuracy") -> Figure:
    """Plot a measure over one axis, a line per variant, with 95% intervals of accuracy.

    Args:
        table: Cells with one row per variant and value of `x`.
        x: Horizontal axis.
        measure: Column of the vertical axis.
    """
    return {"data": [], "layout": {}}


def describe_slice(table: pd.DataFrame, x: str, measure: Measure = "accuracy") -> str:
    """Describe in words what `plot_slice` shows."""
    return ""


def plot_difference(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    names: tuple[str, str],
    measure: Literal["accuracy", "steps_to_threshold"] = "accuracy",
) -> Figure:
    """Plot the differences of two variants over two axes, marked where the interval excludes 0.

    Args:
        table: Rows of `difference`, one per point.
        x: Horizontal axis.
        y: Vertical axis; None for a single row.
        names: Text forms of A and B.
        measure: "accuracy" for points of accuracy, "steps_to_threshold" for factors of steps.
    """
    return {"data": [], "layout": {}}


def describe_difference(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    names: tuple[str, str],
    measure: Literal["accuracy", "steps_to_threshold"] = "accuracy",
) -> str:
    """Describe in words what `plot_difference` shows."""
    return ""
