"""Figures of a sweep, with descriptions in words.

Phase diagrams with boundaries, slices, differences of two variants, and accuracy against cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from attnkit.figures.grid import GAP, Grid, GridAxis, cell_texts, titles_in, where_in_words
from attnkit.figures.marks import OUTLINE, SYMBOLS, Mark, curve, dots, limits, text, words
from attnkit.figures.panels import SHARES, Axis, Figure, Panel, Scale, Title, draw
from attnkit.foundation.settings import Value
from attnkit.foundation.words import counted
from attnkit.sweeps import SweepResult
from attnkit.sweeps.boundary import Boundary, boundary, is_number
from attnkit.sweeps.cells import COSTS, Cost, DifferenceMeasure, cells, frontier, slice_at
from attnkit.sweeps.conclusion import label_of, two_digits
from attnkit.training.statistics import Interval
from attnkit.training.summary import fixed, percent
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import BLUE_RED, REFERENCE, VIRIDIS, translucent

Measure = Literal["accuracy", "steps_to_threshold", "solved"]
"""Column of `cells` that a figure shows."""

MEASURES: dict[Measure, str] = {
    "accuracy": "Accuracy",
    "steps_to_threshold": "Steps to 99%",
    "solved": "Share of seeds that solve it",
}

UNKNOWN = translucent(REFERENCE, 0.3)
"""Colour of cells that were trained but have no value of the measure."""

COLUMNS = {0: 5, 1000: 3, 640: 2}
"""Panels beside each other by the largest width of the figure in pixels; 0: at all others."""

MOST_PANELS = 6
"""Number of variants that are shown at first, at most."""

FRONTIER_KEY = (
    "Every dot is a cell. On the grey line stand those that no other cell beats: all others cost "
    "more, or are less accurate."
)
"""How to read `plot_frontier`."""


def plot_phase(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    measure: Measure = "accuracy",
    boundaries: Sequence[Boundary] = (),
    columns: int = 5,
    values: Mapping[str, Sequence[Value]] | None = None,
) -> Figure:
    """Plot a measure over two axes, a panel per variant, with the boundaries of the variants.

    All panels have one scale. `customdata` of a cell is the index of its row in the table, which
    has one row per variant and point. `values` are those of the axes, where it still lacks some.
    """
    grid = Grid(GridAxis.of(table, x, values), GridAxis.of(table, y, values), columns)
    titles = titles_in(table)
    panels = []
    for sharing, title in titles.items():
        marks = _cell_marks(table[table["sharing"] == sharing], grid, measure)
        for one in boundaries:
            marks += _boundary_marks(one, grid.x, grid.y) if one.sharing == sharing else []
        panels.append(grid.panel(marks, title, len(titles)))
    return draw(panels, columns=columns, gap=GAP, right=10, scale=_scale_of(table, measure))


def _scale_of(table: pd.DataFrame, measure: Measure) -> Scale:
    if measure != "steps_to_threshold":
        return Scale(0, 1, VIRIDIS, MEASURES[measure], (0, 0.5, 1), ("0%", "50%", "100%"))
    steps = np.log10(table[measure].dropna().to_numpy(float))
    low, high = (float(steps.min()), float(steps.max())) if len(steps) else (0.0, 1.0)
    high = max(high, low + 0.1)
    ticks = np.linspace(low, high, 3).tolist()
    texts = [f"{float(f'{10**tick:.2g}'):,.0f}" for tick in ticks]
    return Scale(low, high, VIRIDIS[::-1], MEASURES[measure], ticks, texts)


def _cell_marks(rows: pd.DataFrame, grid: Grid, measure: Measure) -> list[Mark]:
    values = rows[measure].to_numpy(float)
    trained = rows["n_seeds"].to_numpy() > 0
    if measure == "steps_to_threshold":
        values = np.log10(values)
    tips = cell_texts(rows, grid.names)
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


def _boundary_marks(line: Boundary, x: GridAxis, y: GridAxis) -> list[Mark]:
    """Return the band of a boundary, a dark line, and a white one on it.

    Rows are connected if they are neighbours and their values are numbers.
    """
    ordered = all(map(is_number, y.values))
    segments: list[list[tuple[int, int]]] = []
    for place, value in enumerate(y.values):
        if value in line.at and line.measured[row := line.at.index(value)]:
            if not (segments and ordered and segments[-1][-1][0] == place - 1):
                segments.append([])
            segments[-1].append((place, row))
    return [mark for segment in segments for mark in _segment(line, segment, x, y)]


def _segment(
    line: Boundary, segment: list[tuple[int, int]], x: GridAxis, y: GridAxis
) -> list[Mark]:
    places, indices = (list(each) for each in zip(*segment, strict=True))
    half, low, high = (
        x.between(np.pad(each[indices], 1, mode="edge"))
        for each in (line.half, line.low, line.high)
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


def phase_key(
    table: pd.DataFrame,
    n_points: int,
    measure: Measure = "accuracy",
    boundaries: Sequence[Boundary] = (),
) -> str:
    """Return how to read `plot_phase`, without the marks that this figure does not have.

    The sweep plans `n_points` cells of each variant.
    """
    trained = table["n_seeds"] > 0
    marks = {
        "On the line, half of the seeds reach 99%; the pale band is its 95% interval.": any(
            one.measured.any() for one in boundaries
        ),
        "Some seeds fail beyond the band, too.": any(_fails_beyond(table, b) for b in boundaries),
        "Grey: no seed reached 99%.": table.loc[trained, measure].isna().any(),
        "×: could not be trained.": not trained.all(),
        "Blank: not trained yet.": len(table) < n_points * table["sharing"].nunique(),
    }
    return " ".join(text for text, is_there in marks.items() if is_there)


def _fails_beyond(table: pd.DataFrame, line: Boundary) -> bool:
    """Return whether a seed fails in a cell that the band of its row leaves on the solved side."""
    rows = table[(table["sharing"] == line.sharing) & (table["n_solved"] < table["n_seeds"])]
    ends = line.high if line.rises else line.low
    drawn = np.where(line.measured, ends, np.inf if line.rises else -np.inf)
    end = rows[line.y].map(dict(zip(line.at, drawn, strict=True))) if line.y else drawn[0]
    beyond = rows[line.x] > end if line.rises else rows[line.x] < end
    return bool(beyond.any())


def with_mark(figure: Figure, index: int) -> Figure:
    """Return a phase diagram with a ring in the cell of a row of its table."""
    for trace in figure["data"]:
        for y, row in zip(trace["y"], trace.get("customdata", ()), strict=False):
            if trace["type"] == "heatmap" and index in row:
                place = {name: trace[name] for name in ("xaxis", "yaxis")}
                place |= {"x": [trace["x"][row.index(index)]], "y": [y]}
                rings = [
                    dots([], [], color, symbol="circle-open", size=11, edge={"width": width}).values
                    for color, width in (("#000000", 5), ("#ffffff", 2))
                ]
                return {**figure, "data": [*figure["data"], *(ring | place for ring in rings)]}
    return figure


def describe_phase(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    measure: Measure = "accuracy",
    boundaries: Sequence[Boundary] = (),
) -> str:
    """Describe in words what `plot_phase` shows."""
    by = f" by {label_of(x)}" + (f" and {label_of(y)}" if y is not None else "")
    texts = []
    for sharing, title in titles_in(table).items():
        rows = table[table["sharing"] == sharing]
        trained, values = rows[rows["n_seeds"] > 0], rows[measure].dropna()
        text = f"{title.name}: {len(trained)} cells"
        if len(values):
            text += f", {_in_words(values.min(), measure)} to {_in_words(values.max(), measure)}"
        n_whole = int((trained["n_solved"] == trained["n_seeds"]).sum())
        text += f", all seeds solve {n_whole} of them"
        for one in boundaries:
            if one.sharing == sharing and one.measured.any():
                inside = one.half[one.measured]
                text += f", boundary at {label_of(x)} {two_digits(inside.min())}"
                text += f" to {two_digits(inside.max())}"
        texts.append(text)
    return f"{MEASURES[measure]}{by}. {'; '.join(texts) or 'Nothing has been trained'}."


def _in_words(value: float, measure: Measure) -> str:
    return f"{value:,.0f}" if measure == "steps_to_threshold" else percent(value)


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
    """A phase diagram: figures by their largest width (0: others), in words, cells, how to read."""

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
    lines = [boundary(result, v, x, y or None, dict(fixed)) for v in trained]
    boundaries = [one for one in lines if one is not None]
    args, axes = (table, x, y or None, measure, boundaries), result.sweep.axes
    figures = {most: plot_phase(*args, columns, axes) for most, columns in COLUMNS.items()}
    finding = describe_phase(*args)
    n_points = math.prod(len(axes[axis]) for axis in (x, y) if axis)
    key = phase_key(table, n_points, measure, boundaries)
    return Phase(figures, finding, csv_table(table), key)


def plot_slice(table: pd.DataFrame, x: str, measure: Measure = "accuracy") -> Figure:
    """Plot a measure over one axis, a line per variant, with 95% intervals of accuracy.

    The table has one row per variant and value of `x`. Lines are moved sideways a little, so that
    equal ones can be seen.
    """
    axis, titles = GridAxis.of(table, x), titles_in(table)
    marks = []
    for index, (sharing, title) in enumerate(titles.items()):
        rows = table[(table["sharing"] == sharing) & (table["n_seeds"] > 0)]
        at_x = np.array(axis.positions_of(rows))
        rows, at_x = rows.iloc[at_x.argsort()], np.sort(at_x)
        shift = 0.4 * (index - (len(titles) - 1) / 2) / max(len(titles), 5)
        values, bars = rows[measure].to_numpy(float), None
        if measure == "accuracy":
            ends = [rows[f"accuracy_{end}"].clip(0, 1).to_numpy(float) for end in ("low", "high")]
            bars = limits(Interval(values, *ends), title.color, 1.5)
        line = curve(
            axis.shifted(at_x, shift),
            values,
            title.color,
            width=2,
            symbol=SYMBOLS[Variant(sharing).sharing],
            size=9,
            edge=OUTLINE,
            name=title.name,
            tips=cell_texts(rows, [x]),
            keys=rows.index.tolist(),
            error_y=bars,
        )
        marks.append(line)
    panel = Panel(axis.axis(600), _upright(table, measure), marks, height=344)
    return draw([panel], legend="above")


def _upright(table: pd.DataFrame, measure: Measure) -> Axis:
    if measure != "steps_to_threshold":
        return replace(SHARES, title=MEASURES[measure])
    steps = table[measure].dropna().to_numpy(float)
    ticks = [k * 10.0**power for power in range(8) for k in (1, 2, 3, 5, 7)]
    low, high = (steps.min() / 1.2, steps.max() * 1.2) if len(steps) else (1.0, 10.0)
    texts = [f"{tick:,.0f}" for tick in ticks]
    return Axis(float(low), float(high), MEASURES[measure], ticks, texts, log=True)


def describe_slice(table: pd.DataFrame, x: str, measure: Measure = "accuracy") -> str:
    """Describe in words what `plot_slice` shows."""
    texts = []
    for sharing, title in titles_in(table).items():
        rows = table[(table["sharing"] == sharing) & (table["n_seeds"] > 0)]
        values = [
            f"{f'{value:g}' if is_number(value) else value}: {_in_words(score, measure)}"
            for value, score in zip(rows[x].tolist(), rows[measure].tolist(), strict=True)
            if not math.isnan(score)
        ]
        texts.append(f"{title.name} {', '.join(values) or 'none'}")
    return f"{MEASURES[measure]} by {label_of(x)}. {'; '.join(texts)}."


_NONE = translucent(REFERENCE, 0.12)
"""Colour of no difference: nearly that of the page, which may be light or dark."""


def plot_difference(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    names: tuple[str, str],
    measure: DifferenceMeasure = "accuracy",
) -> Figure:
    """Plot the differences of two variants, A − B, over two axes, as `difference` returns them.

    Cells whose interval excludes 0 contain the difference: in percentage points of accuracy, or as
    the ratio of the steps. `customdata` of a cell is the index of its row in the table.
    """
    a, b = map(title_of, names)
    grid = Grid(GridAxis.of(table, x), GridAxis.of(table, y))
    largest = table["difference"].abs().max()
    most = float(largest) if largest > 0 else 1.0
    title = "Difference of accuracy, percentage points"
    if measure == "steps_to_threshold":
        title = "Ratio of the steps to 99%"
    ticks = (-most, 0.0, most)
    texts = [difference_text(tick, measure) for tick in ticks]
    scale = Scale(-most, most, (BLUE_RED[0], _NONE, BLUE_RED[-1]), title, ticks, texts)
    values, tips = table["difference"].to_numpy(float), _difference_tips(table, grid, measure)
    unknown = np.where(np.isnan(values), 0.0, np.nan)
    marks = [grid.cells(table, unknown, tips, UNKNOWN), grid.cells(table, values, tips)]
    clear = table[table["clear"].to_numpy(bool)]
    strong = (clear["difference"].abs() > 0.6 * most).to_numpy()
    for rows, color in ((clear[strong], "#ffffff"), (clear[~strong], "")):
        numbers = [difference_text(value, measure) for value in rows["difference"]]
        places = grid.x.positions_of(rows), grid.y.positions_of(rows)
        marks.append(words(*places, numbers, color=color))
    return draw([grid.panel(marks, Title(f"{a} − {b}"), 1)], right=10, scale=scale)


def describe_difference(
    table: pd.DataFrame,
    x: str,
    y: str | None,
    names: tuple[str, str],
    measure: DifferenceMeasure = "accuracy",
) -> str:
    """Describe in words what `plot_difference` shows."""
    a, b = map(title_of, names)
    by = f"{label_of(x)}" + (f" and {label_of(y)}" if y is not None else "")
    known = table["difference"].dropna()
    if known.empty:
        return f"{MEASURES[measure]}, {a} minus {b}, by {by}. No cell has both."
    low, high = (difference_text(end, measure) for end in (known.min(), known.max()))
    signs = np.sign(known[table["clear"]])
    return (
        f"{MEASURES[measure]}, {a} minus {b}, by {by}. {len(known)} cells, {low} to {high}; it is "
        f"clearly higher for {a} in {int((signs > 0).sum())} of them, and for {b} in "
        f"{int((signs < 0).sum())}."
    )


def difference_text(value: float, measure: DifferenceMeasure) -> str:
    """Return a difference with its sign: points of accuracy, or the ratio of the steps."""
    if math.isnan(value):
        return "–"
    if measure == "accuracy":
        return fixed(100 * value, 0, "+") if round(100 * value) else "0"
    ratio = 2**value
    return f"×{ratio:.1f}" if 0.95 <= ratio < 9.95 else f"×{two_digits(ratio)}"


def _difference_tips(table: pd.DataFrame, grid: Grid, measure: DifferenceMeasure) -> list[str]:
    what, tips = "points" if measure == "accuracy" else "the steps", []
    no_pair = "no seed with which both reached 99%"
    for row in table.to_dict("records"):
        ends = (row[name] for name in ("difference", "low", "high"))
        middle, low, high = (difference_text(end, measure) for end in ends)
        interval = f" (95% interval {low} to {high})" if low != "–" else ""
        lines = [
            where_in_words(row, grid.names),
            f"{middle} {what}{interval}" if row["n_pairs"] else no_pair,
            f"{counted(row['n_pairs'], 'pair')} of seeds",
        ]
        tips.append("<br>".join(lines))
    return tips


_HEIGHT, _TOP = 402, 1.25
"""Height of the panel in pixels, and the upper end of its accuracies: names need room."""


def plot_frontier(table: pd.DataFrame, cost: Cost) -> Figure:
    """Plot the accuracy of cells against a cost, with the frontier and the variants on it.

    The cells are of one task, with equal values of all settings that make it harder. `customdata`
    of a dot is the index of its row in the table.
    """
    table = table[table["accuracy"].notna() & table[cost].notna()]
    best = frontier(table, cost)
    colors = {sharing: title.color for sharing, title in titles_in(table).items()}
    marks = [
        _dots(table.drop(best.index), cost, colors, size=7, opacity=0.4),
        curve(best[cost], best["accuracy"], REFERENCE, width=2, shape="hv"),
        _dots(best, cost, colors, size=12, edge=OUTLINE),
        *_names_of(best, cost),
    ]
    y = replace(SHARES, low=-0.03, high=_TOP, title="Accuracy")
    x = _cost_axis(table[cost].to_numpy(float), COSTS[cost])
    return draw([Panel(x, y, marks, height=_HEIGHT)], right=20)


def _dots(rows: pd.DataFrame, cost: Cost, colors: dict[str, str], **look: Any) -> Mark:
    columns = [str(name) for name in rows.columns]
    axes = columns[: columns.index("sharing")]  # as `cells` orders them
    sharings = rows["sharing"].tolist()
    return dots(
        rows[cost],
        rows["accuracy"],
        [colors[sharing] for sharing in sharings],
        symbol=[SYMBOLS[Variant(sharing).sharing] for sharing in sharings],
        tips=cell_texts(rows, axes),
        keys=rows.index.tolist(),
        **look,
    )


def _names_of(best: pd.DataFrame, cost: Cost) -> list[Mark]:
    """Return the names of variants at the first dots of their pieces of the frontier.

    They stand above and to the left of the dots, where no other cell can be, and are moved upwards
    where they would overlap.
    """
    titles = titles_in(best)
    first = best["sharing"].ne(best["sharing"].shift()).to_numpy()
    pixels = _HEIGHT / (_TOP + 0.03)
    above, names = -math.inf, []
    columns = ["sharing", cost, "accuracy"]
    for sharing, at, accuracy in best.loc[first, columns].itertuples(index=False):
        above = max(above + 15, pixels * accuracy + 10)
        pointer = (-8, pixels * accuracy - above)
        name = titles[sharing].name
        names.append(text(name, at, accuracy, x_anchor="right", y_anchor="middle", pointer=pointer))
    return names


def describe_frontier(table: pd.DataFrame, cost: Cost) -> str:
    """Describe in words what `plot_frontier` shows."""
    best = frontier(table, cost)
    if best.empty:
        return f"Accuracy against {COSTS[cost].lower()}. Nothing has been trained."
    names = titles_in(best)
    texts = [
        f"{names[sharing].name} {percent(accuracy)} for {at:,.0f}"
        for sharing, at, accuracy in best[["sharing", cost, "accuracy"]].itertuples(index=False)
    ]
    return (
        f"Accuracy against {COSTS[cost]}. On the frontier stand {len(best)} of "
        f"{table['accuracy'].notna().sum()} cells: "
        f"{', '.join(texts)}."
    )


def _cost_axis(costs: np.ndarray, title: str) -> Axis:
    """Return a logarithmic axis with a few round labels and room at its left.

    It is a linear one if a cost is 0, such as the parameters of attention without matrices.
    """
    if not len(costs) or costs.min() <= 0:
        return Axis(title=title)
    low, high = float(costs.min()), float(costs.max())
    span = max(high / low, 10**0.05)
    ticks = _round_costs(low, high)
    texts = [f"{tick:,.0f}" for tick in ticks]
    return Axis(low / span**0.2, high * span**0.04, title, ticks, texts, log=True)


def _round_costs(low: float, high: float) -> list[float]:
    if high / low > 4:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        of_digits = [(1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)]
        candidates = [[d * 10.0**power for power in powers for d in ds] for ds in of_digits]
    else:
        steps = [digit * 10**power for power in range(12) for digit in (1, 2, 5)]
        candidates = [
            [float(step * k) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
            for step in steps
            if (high - low) / step < 100
        ]
    fitting = [[tick for tick in ticks if low <= tick <= high] for ticks in candidates]
    return next((ticks for ticks in fitting if len(ticks) <= 7), fitting[-1])
