"""Figures of accuracy against cost: the frontier of all cells, and costs of equal accuracy.

They are plain dictionaries in Plotly's schema, with descriptions in words.
"""

from __future__ import annotations

import pandas as pd

from attnkit.analysis.capacity import Cost
from attnkit.figures.panels import Figure


def plot_frontier(table: pd.DataFrame, cost: Cost) -> Figure:
    """Plot the accuracy of cells against a cost, with the frontier and the variants on it.

    Args:
        table: Cells of one task.
        cost: Column of the horizontal axis.
    """
    return {"data": [], "layout": {}}


def describe_frontier(table: pd.DataFrame, cost: Cost) -> str:
    """Describe in words what `plot_frontier` shows."""
    return ""


def plot_matching(table: pd.DataFrame, cost: Cost, names: tuple[str, str]) -> Figure:
    """Plot the cost of B as a multiple of that of A at the same accuracy.

    Args:
        table: Rows of `matching_cost`.
        cost: Cost that is compared.
        names: Text forms of A and B.
    """
    return {"data": [], "layout": {}}


def describe_matching(table: pd.DataFrame, cost: Cost, names: tuple[str, str]) -> str:
    """Describe in words what `plot_matching` shows."""
    return ""
