"""Capacity: how large a model must be for each sharing, and what sharing saves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from attnkit.experiment import Experiment
from attnkit.figures.capacity import (
    FRONTIER_KEY,
    MEASURES,
    csv_table,
    describe_difference,
    describe_frontier,
    describe_slice,
    phase_of,
    plot_difference,
    plot_frontier,
    plot_slice,
    shown_cells,
    table_of,
    with_mark,
)
from attnkit.figures.grid import numbers_of
from attnkit.figures.panels import Figure
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.tables import csv_of_frame
from attnkit.foundation.words import capitalised
from attnkit.service.service import Refused
from attnkit.sweeps import SweepResult
from attnkit.sweeps.cells import COSTS, DifferenceMeasure, difference, slice_at
from attnkit.sweeps.conclusion import label_of
from attnkit.sweeps.result import SHIPPED, load_shipped
from attnkit.sweeps.specification import InvalidSweep
from attnkit.training.metrics import asymmetry
from attnkit.ui import components
from attnkit.ui.address import open_choice
from attnkit.ui.lab.guess import stop_before_first_run
from attnkit.ui.lab.lab import with_hidden
from attnkit.ui.markdown import plain
from attnkit.ui.routing import require_route
from attnkit.ui.server.service import training_service, watcher
from attnkit.ui.server.turns import fragment
from attnkit.ui.sweeps import (
    BASELINE,
    OWN,
    SECTIONS,
    TICK_SECONDS,
    CapacityChoice,
    Cell,
    LiveSweep,
    cells_of,
    conclusion_of,
    live_bar,
    on_the_command_line,
    open_linked_sweep,
    open_live_sweep,
    sweep_form_area,
    text_of,
)
from attnkit.ui.widgets import bound, download, sections, warn_once
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

PHASE = "capacity_phase"
"""Key of the phase diagram."""

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


def draw() -> None:
    """Draw the page."""
    require_route()
    choice = open_choice("capacity", "capacity_chosen", CapacityChoice)
    open_linked_sweep(choice)
    live = open_live_sweep()
    st.title("How much capacity does sharing need?", anchor=False)
    stop_before_first_run()
    result = _result_of(choice, live)
    if result is not None:
        choice.read_for(result.sweep)
    warn_once(choice.problems)
    tick = TICK_SECONDS if live is not None and live.moving else None
    if live is not None or result is not None:
        fragment(_show_top, run_every=tick)(choice)
    if result is not None:
        _controls(choice, result)
        fragment(_show_phase, run_every=tick if choice.sweep == OWN else None)(choice)
        _show_sections(choice, result)
    else:
        _pick(choice, "sweep", "Sweep", list(_titles()), _titles().__getitem__, width=340)
        st.subheader(SECTIONS["live"], anchor=False)
        sweep_form_area(choice)
    choice.write_link()
    components.load_plotly()


def _result_of(choice: CapacityChoice, live: LiveSweep | None) -> SweepResult | None:
    """Return the chosen sweep; None, with a message, if it cannot be read."""
    if choice.sweep == OWN and live is not None:
        return live.result()
    if choice.sweep == OWN:
        choice.sweep = CapacityChoice.sweep
        choice.problems.append(
            "The link has no sweep of your own that can be opened. Shown is one that comes with "
            "this copy."
        )
        choice.unread = {}
    try:
        return load_shipped(choice.sweep)
    except (OSError, InvalidSweep):
        st.error("This sweep cannot be read. Choose another.", icon=":material/error:")
        return None


def _show_top(choice: CapacityChoice) -> None:
    """Draw what the sweep concludes, and how far the visitor's own one is.

    This also submits the next point of the visitor's sweep, whichever sweep is on screen.
    """
    live = open_live_sweep()
    moved = live is not None and live.moving
    if live is not None:
        live.watcher = watcher()
        live.follow()
    result = _result_of(choice, live)
    text, has_ratios, note = "", False, ""
    if result is not None and result.runs["error"].isna().any():
        fixed = tuple(choice.beside.items())
        text, has_ratios, note = conclusion_of(result, choice.x, choice.y, fixed)
    moves = live is not None and live.moving and choice.sweep == OWN
    with st.container(key="conclusion"):  # also without a text: what follows keeps its place
        st.markdown(plain(text or ("Training …" if moves else "Nothing is trained yet.")))
    if result is not None:
        conditions = f"{note} Tiny models. {result.sweep.conditions}.".lstrip()
        if choice.y and has_ratios:
            conditions += f" Factors are averaged over all values of “{label_of(choice.y)}”."
        if live is not None and live.result() is result and not live.finished:
            conditions = f"Not finished yet. {conditions}"
        st.caption(plain(conditions))
    if live is not None and (choice.sweep == OWN or not live.ended):
        live_bar(live)
    if moved and live is not None and not live.moving:
        st.rerun()  # only now: a button that was pressed in the same moment has been heard


def _titles() -> dict[str, str]:
    return SHIPPED | ({OWN: "Your own sweep"} if open_live_sweep() is not None else {})


def _controls(choice: CapacityChoice, result: SweepResult) -> None:
    sweep = result.sweep
    with st.container(horizontal=True, vertical_alignment="bottom", key="capacity_controls"):
        _pick(choice, "sweep", "Sweep", list(_titles()), _titles().__getitem__, width=340)
        _pick(choice, "measure", "Measure", list(MEASURES), MEASURES.__getitem__, width=250)
        with st.popover("Axes and variants", icon=":material/tune:"):
            for side, label in (("x", "Across"), ("y", "Upwards")):
                take = partial(choice.take_axis, side)
                st.selectbox(
                    label,
                    list(sweep.axes),
                    format_func=label_of,
                    **bound(choice, side, f"capacity_{side}", take),
                    disabled=len(sweep.axes) < 2,
                )
            _pick_values(choice, result, choice.beside)
            take_all = partial(choice.take_variants, sweep)
            variants = bound(choice, "variants", "capacity_variants", take_all)
            st.multiselect("Variants", sweep.sharing, format_func=title_of, **variants)


def _show_phase(choice: CapacityChoice) -> None:
    result = _result_of(choice, open_live_sweep())
    if result is None or not result.runs["error"].isna().any():
        return
    fixed = tuple(choice.beside.items())
    phase = phase_of(result, choice.x, choice.y, choice.measure, choice.variants, fixed)
    row = None if choice.cell is None else row_of(result, choice.cell)
    figures = phase.figures
    if row is not None:
        figures = {most: with_mark(one, int(str(row.name))) for most, one in figures.items()}
    components.picture(
        figures[0],
        key=PHASE,
        alt=phase.finding,
        title=f"{MEASURES[choice.measure]}. {_titles()[choice.sweep]}",
        file=f"attnkit-capacity-{choice.sweep}",
        narrower={most: figure for most, figure in figures.items() if most},
        table=phase.numbers,
        picked=lambda: take_mark(choice, result, components.reported(PHASE, "picked", Mark)),
    )
    st.caption(plain(phase.key))
    _show_card(choice, result)
    choice.write_link()


def take_mark(choice: CapacityChoice, result: SweepResult, mark: int | list[int] | None) -> None:
    """Choose the cell of a mark that was pressed."""
    index = next(iter(mark), None) if isinstance(mark, list) else mark
    table = table_of(result)
    if index is not None and index in table.index:
        row, axes = table.loc[[index]].iloc[0], result.sweep.axes.items()
        values = (next(v for v in values if v == row[name]) for name, values in axes)
        choice.cell = Cell(tuple(values), Variant(row["sharing"]))


def row_of(result: SweepResult, cell: Cell) -> pd.Series[Any] | None:
    """Return the row of a cell in the table of its sweep; None if it was not trained."""
    where = {"sharing": str(cell.variant), **cell.values_in(result.sweep)}
    table = slice_at(table_of(result), where)
    return table.iloc[0] if len(table) else None


def _show_card(choice: CapacityChoice, result: SweepResult) -> None:
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
            _show_cell(result, choice.cell)


def _show_cell(result: SweepResult, cell: Cell) -> None:
    row = row_of(result, cell)
    lines = ["not run yet" if result.n_missing else "not run"]
    if row is not None:
        lines = numbers_of(row.to_dict())
    st.markdown("\n".join(f"- {plain(capitalised(line))}" for line in lines))
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


def _show_slices(choice: CapacityChoice, result: SweepResult) -> None:
    with st.container(horizontal=True):
        _pick_values(choice, result, [choice.y])
    table = shown_cells(result, choice.variants, choice.beside_x)
    title = f"{MEASURES[choice.measure]} over {label_of(choice.x).lower()}"
    args = (table, choice.x, choice.measure)
    _figure("slices", plot_slice(*args), describe_slice(*args), title, table)


def _show_difference(choice: CapacityChoice, result: SweepResult) -> None:
    with st.container(horizontal=True):
        for side, label in (("one", "One"), ("other", "minus")):
            _pick(choice, side, label, result.sweep.sharing, title_of, width=180)
    names = (str(choice.one), str(choice.other))
    title = f"{title_of(choice.one)} minus {title_of(choice.other)}"
    measure: DifferenceMeasure = "accuracy"
    if choice.measure == "steps_to_threshold":
        measure = choice.measure
    table = slice_at(difference(result, choice.one, choice.other, measure), choice.beside)
    args = (table, choice.x, choice.y or None, names, measure)
    finding = describe_difference(*args)
    _figure("difference", plot_difference(*args), finding, title, table)
    st.caption(plain(finding))


def _show_frontier(choice: CapacityChoice, result: SweepResult) -> None:
    with st.container(horizontal=True):
        _pick(choice, "cost", "Cost", list(COSTS), COSTS.__getitem__, width=240)
        _pick_values(choice, result, [choice.y])
    table, cost = slice_at(table_of(result), choice.beside_x), choice.cost
    title = f"Accuracy against {COSTS[cost]}"
    _figure("frontier", plot_frontier(table, cost), describe_frontier(table, cost), title, table)
    st.caption(plain(FRONTIER_KEY))


def _show_sections(choice: CapacityChoice, result: SweepResult) -> None:
    figures = {
        "slices": _show_slices,
        "difference": _show_difference,
        "frontier": _show_frontier,
        "numbers": _show_numbers,
    }
    draw = {name: partial(show, choice, result) for name, show in figures.items()}
    draw = {**(draw if len(result.runs) else {}), "live": partial(sweep_form_area, choice)}
    sections(choice, SECTIONS, draw, "capacity_section")


def _show_numbers(choice: CapacityChoice, result: SweepResult) -> None:
    table = shown_cells(result, choice.variants, choice.beside)
    columns = {name: label_of(name) for name in result.sweep.axes} | _TITLES
    columns |= MEASURES | {str(name): title for name, title in COSTS.items()}
    st.dataframe(
        table.drop(columns="solved").rename(columns=columns),
        hide_index=True,
        height=380,
        placeholder="–",
        alt="The cells of the phase diagram",
    )
    st.caption(
        "A row per cell: means over seeds, accuracy with its 95% limits. Steps to 99%: mean of "
        "the seeds that reached it."
    )
    name = f"attnkit-sweep-{choice.sweep}"
    csv, toml = partial(runs_csv, result), result.sweep.to_toml
    with st.container(horizontal=True, key="capacity_downloads"):
        download("Runs as CSV", csv, f"{name}.csv", key="capacity_csv")
        download("Result as Parquet", result.to_bytes, f"{name}.parquet", key="capacity_parquet")
        download("Sweep as TOML", toml, f"{name}.toml", key="capacity_toml")
    on_the_command_line(result.sweep)


def runs_csv(result: SweepResult) -> str:
    """Return all runs of a sweep as CSV, with the score asymmetry that the pages show."""
    runs = result.runs
    if "score_symmetry" in runs:  # it is absent where nothing could be trained
        runs = runs.assign(asymmetry=asymmetry(runs["score_symmetry"]))
    return csv_of_frame(runs)


def _pick_values(choice: CapacityChoice, result: SweepResult, names: Iterable[str]) -> None:
    for name in filter(None, names):
        st.selectbox(
            label_of(name),
            result.sweep.axes[name],
            format_func=text_of,
            width=180,
            **bound(choice.fixed, name, f"capacity_at_{name}"),
        )


def _pick(
    choice: CapacityChoice,
    field: str,
    label: str,
    options: Sequence[Any],
    in_words: Callable[[Any], str],
    *,
    width: int,
) -> None:
    widget = bound(choice, field, f"capacity_{field}")
    st.selectbox(label, options, format_func=in_words, width=width, **widget)


def _figure(name: str, figure: Figure, finding: str, title: str, table: pd.DataFrame) -> None:
    components.picture(
        figure,
        key=f"capacity_{name}_figure",
        alt=finding,
        title=title,
        file=f"attnkit-capacity-{name}",
        table=csv_table(table),
    )
