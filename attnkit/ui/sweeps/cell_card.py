"""The chosen cell of a phase diagram: its numbers, and its experiment in the Lab."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.words import numbers_kept
from attnkit.service.service import Refused
from attnkit.sweeps import Sweep, SweepResult
from attnkit.training.summary import percent, percent_limits
from attnkit.ui import components
from attnkit.ui.markdown import plain
from attnkit.ui.server.presence import watcher
from attnkit.ui.server.service import training_service
from attnkit.ui.session import with_hidden
from attnkit.ui.sweeps.choice import BASELINE, CapacityChoice, Cell, cells_of
from attnkit.ui.sweeps.phase import table_of
from attnkit.ui.widgets import bound
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

Mark = components.Index | list[components.Index]
"""What a mark reports: the index of its row, alone or as the first of a list."""


def take_mark(choice: CapacityChoice, result: SweepResult, mark: int | list[int] | None) -> None:
    """Choose the cell of a mark that was pressed."""
    index = next(iter(mark), None) if isinstance(mark, list) else mark
    table = table_of(result)
    if index is not None and index in table.index:
        choice.cell = cell_at(result.sweep, table.loc[[index]].iloc[0])


def cell_at(sweep: Sweep, row: pd.Series[Any]) -> Cell:
    """Return the cell of a row of the table of cells."""
    values = (next(v for v in values if v == row[name]) for name, values in sweep.axes.items())
    return Cell(tuple(values), Variant(row["sharing"]))


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
        open_in_lab(experiment)


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


def open_in_lab(experiment: Experiment) -> None:
    """Train an experiment, and open the Lab, which shows it; or only open it, if it is refused."""
    try:
        training_service().submit(experiment, watcher=watcher(), reuse=True)
    except Refused as error:
        st.toast(f"The Lab opens, but does not train yet: {plain(str(error))}.")
    st.switch_page("pages/lab.py", query_params=with_hidden(experiment.to_params()))
