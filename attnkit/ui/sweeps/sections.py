"""What the page Capacity shows below its phase diagram: the chosen cell, and the open section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.analysis.capacity import COSTS, difference, matching_cost, slice_at
from attnkit.analysis.conclusion import label_of
from attnkit.experiment import Experiment
from attnkit.figures.capacity import MEASURES, describe_slice, plot_slice
from attnkit.figures.frontier import (
    FRONTIER_KEY,
    describe_frontier,
    describe_matching,
    plot_frontier,
    plot_matching,
)
from attnkit.figures.gaps import DifferenceMeasure, describe_difference, plot_difference
from attnkit.figures.panels import Figure
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.tables import csv_of_frame
from attnkit.foundation.words import numbers_kept
from attnkit.service.service import Refused
from attnkit.sweeps import SweepResult
from attnkit.training.metrics import asymmetry
from attnkit.training.summary import percent, percent_limits
from attnkit.ui import components
from attnkit.ui.markdown import plain
from attnkit.ui.server.presence import watcher
from attnkit.ui.server.service import training_service
from attnkit.ui.session import with_hidden
from attnkit.ui.sweeps.choice import BASELINE, CapacityChoice, Cell, cells_of, text_of
from attnkit.ui.sweeps.live_sweep_area import on_the_command_line
from attnkit.ui.sweeps.phase import csv_table, shown_cells, table_of
from attnkit.ui.widgets import bound, download
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

Mark = components.Index | list[components.Index]
"""What a mark reports: the index of its row, alone or as the first of a list."""

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


def take_mark(choice: CapacityChoice, result: SweepResult, mark: int | list[int] | None) -> None:
    """Choose the cell of a mark that was pressed."""
    index = next(iter(mark), None) if isinstance(mark, list) else mark
    table = table_of(result)
    if index is not None and index in table.index:
        row, axes = table.loc[[index]].iloc[0], result.sweep.axes.items()
        values = (next(v for v in values if v == row[name]) for name, values in axes)
        choice.cell = Cell(tuple(values), Variant(row["sharing"]))


def row_of(result: SweepResult, cell: Cell) -> pd.Series[Any] | None:
    """Return the row of a cell; None if it was not run."""
    table = table_of(result)
    table = table[table["sharing"] == cell.variant]
    for name, value in cell.values_in(result.sweep).items():
        table = table[table[name] == value]
    return table.iloc[0] if len(table) else None


def show_card(choice: CapacityChoice, result: SweepResult) -> None:
    """Draw a list of all cells of the diagram, the numbers of the chosen one, and its button."""
    sweep = result.sweep
    beside = choice.beside.items()
    cells = [
        cell
        for cell in cells_of(sweep)
        if cell.variant in choice.variants and beside <= cell.values_in(sweep).items()
    ]
    if choice.cell is not None and choice.cell not in cells:
        cells.append(choice.cell)
    with st.container(border=True, key="capacity_cell"):
        st.selectbox(
            "One cell",
            cells,
            format_func=lambda cell: cell.in_words(sweep),
            placeholder="Press a cell of the diagram, or choose one here",
            **bound(choice, "cell", "capacity_pick"),
        )
        if choice.cell is not None:
            show_cell(result, choice.cell)


def show_cell(result: SweepResult, cell: Cell) -> None:
    """Draw the numbers of a cell, and the button that trains it in the Lab."""
    row = row_of(result, cell)
    st.markdown(numbers_of(result, row))
    try:
        experiment = lab_experiment(result, cell)
    except InvalidExperiment as error:
        st.caption(plain(f"It cannot be trained: {error}."))
        return
    n_runs = f"{experiment.n_runs} models"
    beside = "" if len(experiment.sharing) == 1 else f", {title_of(BASELINE)} beside it"
    if st.button(
        "Train it in the Lab",
        icon=":material/science:",
        key="capacity_lab",
        help=f"The Lab opens and trains these {n_runs} again{beside}.",
    ):
        try:
            training_service().submit(experiment, watcher=watcher(), reuse=True)
        except Refused as error:
            st.toast(f"The Lab opens, but does not train yet: {plain(str(error))}.")
        st.switch_page("pages/lab.py", query_params=with_hidden(experiment.to_params()))


def numbers_of(result: SweepResult, row: pd.Series[Any] | None) -> str:
    """Return the numbers of a cell as a list; Markdown."""
    if row is None:
        return "Not run." if not result.n_missing else "Not run yet."
    if row["error"] is not None and not row["n_seeds"]:
        return plain(f"It could not be trained: {row['error']}.")
    ends = row["accuracy_low"], row["accuracy_high"]
    interval = percent_limits(*ends, " (95% interval {})")
    seeds = int(row["n_seeds"])
    solved = f"solved by {int(row['n_solved'])} of {seeds} seeds"
    steps = row["steps_to_threshold"]
    after = "" if pd.isna(steps) else f", these after {steps:,.0f} steps on average"
    tuned = " (tuned)" if result.sweep.rates.tunes else ""
    cache = None if pd.isna(row["kv_cache_floats_per_token"]) else row["kv_cache_floats_per_token"]
    lines = (
        f"**Accuracy {percent(row['accuracy'])}**{plain(interval)}, {solved}{after}",
        f"{int(row['parameters']):,} parameters, {numbers_kept(cache)} numbers "
        f"in the KV cache per token, {int(row['multiply_adds_per_token']):,} multiply-adds per "
        "token",
        f"Learning rate {row['learning_rate']:g}{tuned}",
    )
    return "\n".join(f"- {line}" for line in lines)


def lab_experiment(result: SweepResult, cell: Cell) -> Experiment:
    """Return the experiment of a cell with all its seeds, and QKV beside it where it was run.

    Both have the learning rates that they had in the sweep.

    Raises:
        InvalidExperiment: If the cell is impossible.
    """
    variant, row = cell.variant, row_of(result, cell)
    experiment = result.sweep.experiment(cell.values_in(result.sweep), [variant])
    base = None if variant == BASELINE else row_of(result, cell._replace(variant=BASELINE))
    rate = experiment.training.learning_rate if row is None else float(row["learning_rate"])
    if base is None or base["error"] is not None:
        return experiment.replace(learning_rate=rate)
    base_rate = float(base["learning_rate"])
    if rate != base_rate:
        variant = Variant(f"{variant} learning_rate={rate:g}")
    return experiment.replace(learning_rate=base_rate, sharing=[BASELINE, variant])


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
