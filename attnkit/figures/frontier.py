"""Figures of accuracy against cost: the frontier of all cells, and costs of equal accuracy."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from attnkit.analysis.capacity import COSTS, Cost, frontier
from attnkit.figures.grid import cell_texts, titles_in
from attnkit.figures.marks import OUTLINE, Mark, band, curve, dots, level, text
from attnkit.figures.panels import SHARES, Axis, Figure, Panel, draw, titles_of
from attnkit.figures.strips import SYMBOLS
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import REFERENCE

FRONTIER_KEY = (
    "Every dot is a cell. On the grey line stand those that no other cell beats: all others cost "
    "more, or are less accurate."
)
"""How to read `plot_frontier`."""

_HEIGHT, _TOP = 402, 1.25
"""Height of the panel in pixels, and the upper end of its accuracies: names need room."""

_LINE = 15
"""Height of a name in pixels."""


def axes_of(table: pd.DataFrame) -> list[str]:
    """Return the axes of a table of `cells`, which stand before the column of variants."""
    columns = [str(name) for name in table.columns]
    return columns[: columns.index("sharing")]


def plot_frontier(table: pd.DataFrame, cost: Cost) -> Figure:
    """Plot the accuracy of cells against a cost, with the frontier and the variants on it.

    `customdata` of a dot is the index of its row in the table.

    Args:
        table: Cells of one task, with equal values of all settings that make it harder.
        cost: Column of the horizontal axis.
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
    """Return cells as dots."""
    sharings = rows["sharing"].tolist()
    return dots(
        rows[cost],
        rows["accuracy"],
        [colors[sharing] for sharing in sharings],
        symbol=[SYMBOLS[Variant(sharing).sharing] for sharing in sharings],
        tips=cell_texts(rows, axes_of(rows)),
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
        above = max(above + _LINE, pixels * accuracy + 10)
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


def plot_matching(table: pd.DataFrame, cost: Cost, names: tuple[str, str]) -> Figure:
    """Plot the cost of B as a multiple of that of A at the same accuracy.

    The line ends where B does not reach the accuracy.

    Args:
        table: Rows of `matching_cost`.
        cost: Cost that is compared.
        names: Text forms of A and B.
    """
    a, b = titles_of([Variant(name) for name in names])
    known = table[table["ratio"].notna()]
    accuracy = known["accuracy"].to_numpy(float)
    ratio, low, high = (known[name].to_numpy(float) for name in ("ratio", "low", "high"))
    ends = np.r_[ratio, low[low > 0], high[np.isfinite(high)], 1.0]
    margin = (ends.max() / ends.min()) ** 0.1 if ends.max() > ends.min() else 1.07
    bottom, top = float(ends.min() / margin), float(ends.max() * margin)
    tips = [_matching_text(row, a.name, b.name) for row in known.to_dict("records")]
    symbol = SYMBOLS[Variant(names[1]).sharing]
    marks = [
        level(1.0),
        band(accuracy, low.clip(bottom, top), high.clip(bottom, top), b.color),
        curve(accuracy, ratio, b.color, symbol=symbol, tips=tips),
        text(f"{COSTS[cost]}: {b.name} as a multiple of {a.name}", size=13, shift=(-50, 6)),
    ]
    ticks = _round_ticks(bottom, top, finest=0.01)
    y = Axis(bottom, top, "", ticks, [f"×{tick:g}" for tick in ticks], log=True)
    x = replace(SHARES, high=1.02, title="Accuracy that both reach")
    return draw([Panel(x, y, marks, height=298)], left=56, right=20, top=34)


def _matching_text(row: dict[object, float], a: str, b: str) -> str:
    limits = (
        f"{row['low']:.2f} to {row['high']:.2f}"
        if math.isfinite(row["high"])
        else (f"at least {row['low']:.2f}")
    )
    return (
        f"accuracy {percent(row['accuracy'])}<br>{escape(a)} {row['a']:,.0f}, "
        f"{escape(b)} {row['b']:,.0f}<br>{row['ratio']:.2f} times (95% interval {limits})"
    )


def describe_matching(table: pd.DataFrame, cost: Cost, names: tuple[str, str]) -> str:
    """Describe in words what `plot_matching` shows."""
    a, b = (title_of(Variant(name)) for name in names)
    if table.empty:
        return f"{COSTS[cost]} of {b} and {a} at the same accuracy. Nothing has been trained."
    known = table[table["ratio"].notna()]
    if known.empty:
        verdict = f"{b} does not reach the accuracy of {a} here"
    elif (known["low"] > 1).all():
        verdict = f"{b} needs more for the same accuracy"
    elif (known["high"] < 1).all():
        verdict = f"{b} needs less for the same accuracy"
    elif ((known["low"] <= 1) & (known["high"] >= 1)).all():
        verdict = "No clear difference: every interval includes 1"
    else:
        verdict = "It depends on the accuracy"
    if not known.empty and len(known) < len(table):
        verdict += f"; {b} does not reach all accuracies of {a}"
    texts = []
    for row in table.to_dict("records"):
        at = percent(row["accuracy"])
        if math.isnan(row["ratio"]):
            texts.append(f"{at}: {b} does not reach it")
        else:
            limits = f"{row['low']:.2f} to {row['high']:.2f}"
            texts.append(f"{at}: {row['ratio']:.2f} times ({limits})")
    what = f"{COSTS[cost]} of {b} as a multiple of those of {a}, by accuracy, with 95% intervals"
    return f"{verdict}. {what}: {'; '.join(texts)}."


def _cost_axis(costs: np.ndarray, title: str) -> Axis:
    """Return a logarithmic axis of costs with a few round labels, and room at its left."""
    if not len(costs):
        return Axis(title=title)
    low, high = float(costs.min()), float(costs.max())
    span = max(high / low, 10**0.05)
    ticks = _round_ticks(low, high, finest=1.0)
    texts = [f"{tick:,.0f}" for tick in ticks]
    return Axis(low / span**0.2, high * span**0.04, title, ticks, texts, log=True)


def _round_ticks(low: float, high: float, finest: float, most: int = 7) -> list[float]:
    """Return round numbers between two limits: as many as possible, but not more than `most`.

    Args:
        low: Lower limit.
        high: Upper limit.
        finest: Smallest distance of two numbers if they are equally far from each other.
        most: Largest number of ticks.
    """
    if high / low > 4:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        of_digits = [(1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)]
        candidates = [[d * 10.0**power for power in powers for d in ds] for ds in of_digits]
    else:
        steps = [finest * digit * 10.0**power for power in range(12) for digit in (1, 2, 5)]
        candidates = [
            [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
            for step in steps
            if (high - low) / step < 100
        ]
    fitting = [[tick for tick in ticks if low <= tick <= high] for ticks in candidates]
    return next((ticks for ticks in fitting if len(ticks) <= most), fitting[-1])
