"""Sections of the page Capacity below its phase diagram: each is drawn when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.analysis.capacity import COSTS, difference, matching_cost, slice_at
from attnkit.analysis.conclusion import label_of
from attnkit.figures.capacity import describe_slice, plot_slice
from attnkit.figures.frontier import (
    FRONTIER_KEY,
    describe_frontier,
    describe_matching,
    plot_frontier,
    plot_matching,
)
from attnkit.figures.gaps import DifferenceMeasure, describe_difference, plot_difference
from attnkit.figures.panels import Figure
from attnkit.figures.phase import MEASURES
from attnkit.foundation.tables import csv_of_frame
from attnkit.sweeps import SweepResult
from attnkit.training.metrics import asymmetry
from attnkit.ui import components
from attnkit.ui.markdown import plain
from attnkit.ui.sweeps.choice import CapacityChoice, text_of
from attnkit.ui.sweeps.live_sweep_area import on_the_command_line
from attnkit.ui.sweeps.phase import csv_table, shown_cells, table_of
from attnkit.ui.widgets import bound, download
from attnkit.variants.catalogue import title_of

_TITLES = {
    "sharing": "Variant",
    "n_seeds": "Seeds",
    "accuracy_low": "95% from",
    "accuracy_high": "to",
    "n_solved": "Solved by",
    "learning_rate": "Learning rate",
    "error": "Why not trained",
}
"""Titles of columns of the table of cells, besides axes, measures and costs."""


LEAST_ACCURACY = 0.5
"""Smallest accuracy at which costs are compared: below it, differences are mostly noise."""


def show_slices(choice: CapacityChoice, result: SweepResult) -> None:
    """Draw the measure over one axis, a line per variant."""
    with st.container(horizontal=True):
        pick_values(choice, result, [choice.y])
    table = shown_cells(result, choice.variants, choice.beside_x)
    title = f"{MEASURES[choice.measure]} over {label_of(choice.x).lower()}"
    _figure(
        "slices",
        plot_slice(table, choice.x, choice.measure),
        describe_slice(table, choice.x, choice.measure),
        title,
        table,
    )


def show_difference(choice: CapacityChoice, result: SweepResult) -> None:
    """Draw the differences of two variants, seed by seed, at every point."""
    with st.container(horizontal=True):
        pick_pair(choice, result, ("One", "minus"))
    table = slice_at(difference(result, choice.one, choice.other), choice.beside)
    names = (str(choice.one), str(choice.other))
    title = f"{title_of(choice.one)} minus {title_of(choice.other)}"
    measure: DifferenceMeasure = "accuracy"
    if choice.measure == "steps_to_threshold":
        measure = choice.measure
    args = (table, choice.x, choice.y or None, names, measure)
    finding = describe_difference(*args)
    _figure("difference", plot_difference(*args), finding, title, table)
    st.caption(plain(finding))


def show_frontier(choice: CapacityChoice, result: SweepResult) -> None:
    """Draw the accuracy of all variants against a cost."""
    with st.container(horizontal=True):
        pick_cost(choice)
        pick_values(choice, result, [choice.y])
    table, cost = slice_at(table_of(result), choice.beside_x), choice.cost
    title = f"Accuracy against {COSTS[cost]}"
    _figure("frontier", plot_frontier(table, cost), describe_frontier(table, cost), title, table)
    st.caption(plain(FRONTIER_KEY))


def show_matching(choice: CapacityChoice, result: SweepResult) -> None:
    """Draw how much more one variant must cost to be as accurate as another."""
    with st.container(horizontal=True):
        pick_pair(choice, result, ("The accuracy of", "matched by"))
        pick_cost(choice)
        pick_values(choice, result, [choice.y])
    table, cost = slice_at(table_of(result), choice.beside_x), choice.cost
    one, other = (table[table["sharing"] == variant] for variant in (choice.one, choice.other))
    matching = matching_cost(one, other, cost, LEAST_ACCURACY)
    names = (str(choice.one), str(choice.other))
    title = f"{COSTS[cost]} at which {title_of(choice.other)} matches {title_of(choice.one)}"
    finding = describe_matching(matching, cost, names)
    _figure("matching", plot_matching(matching, cost, names), finding, title, matching)
    st.caption(plain(finding))


def show_numbers(choice: CapacityChoice, result: SweepResult) -> None:
    """Draw the table of the cells, and the downloads of everything."""
    table = shown_cells(result, choice.variants, choice.beside)
    titles = {name: label_of(name) for name in result.sweep.axes} | _TITLES
    titles |= MEASURES | {str(name): title for name, title in COSTS.items()}
    st.dataframe(
        table.drop(columns="solved").rename(columns=titles),
        hide_index=True,
        height=380,
        placeholder="–",
        alt="The cells of the phase diagram",
    )
    st.caption(
        "A row per cell: means over seeds, accuracy with its 95% limits. Steps to 99%: mean of "
        "the seeds that reached it."
    )
    downloads(choice, result)
    on_the_command_line(result.sweep)


def downloads(choice: CapacityChoice, result: SweepResult) -> None:
    """Draw the buttons that download the runs, with the specification of the sweep."""
    name = f"attnkit-sweep-{choice.sweep}"
    csv, toml = partial(runs_csv, result), result.sweep.to_toml
    with st.container(horizontal=True, key="capacity_downloads"):
        download("Runs as CSV", csv, f"{name}.csv", key="capacity_csv")
        download("Result as Parquet", result.to_bytes, f"{name}.parquet", key="capacity_parquet")
        download("Sweep as TOML", toml, f"{name}.toml", key="capacity_toml")


def runs_csv(result: SweepResult) -> str:
    """Return all runs of a sweep as CSV, with the score asymmetry that the pages show."""
    runs = result.runs.assign(asymmetry=asymmetry(result.runs["score_symmetry"]))
    return csv_of_frame(runs)


def pick_values(choice: CapacityChoice, result: SweepResult, names: Iterable[str]) -> None:
    """Let the visitor choose the values of axes that a figure does not draw."""
    for name in filter(None, names):
        st.selectbox(
            label_of(name),
            result.sweep.axes[name],
            format_func=text_of,
            width=180,
            **bound(choice.fixed, name, f"capacity_at_{name}"),
        )


def pick_pair(choice: CapacityChoice, result: SweepResult, labels: tuple[str, str]) -> None:
    """Let the visitor choose the two variants that are compared."""
    for side, label in zip(("one", "other"), labels, strict=True):
        pick(choice, side, label, result.sweep.sharing, title_of, width=180)


def pick_cost(choice: CapacityChoice) -> None:
    """Let the visitor choose a cost."""
    pick(choice, "cost", "Cost", list(COSTS), COSTS.__getitem__, width=240)


def pick(
    choice: CapacityChoice,
    field: str,
    label: str,
    options: Sequence[Any],
    in_words: Callable[[Any], str],
    *,
    width: int,
) -> None:
    """Let the visitor choose the value of a field of their choice from a list."""
    widget = bound(choice, field, f"capacity_{field}")
    st.selectbox(label, options, format_func=in_words, width=width, **widget)


def _figure(name: str, figure: Figure, finding: str, title: str, table: pd.DataFrame) -> None:
    """Draw the figure of a section, with a description for people who do not see it."""
    components.picture(
        figure,
        key=f"capacity_{name}_figure",
        alt=finding,
        title=title,
        file=f"attnkit-capacity-{name}",
        table=csv_table(table),
    )
