"""Figures of accuracy against cost: the frontier of all cells, and costs of equal accuracy.

They are plain dictionaries in Plotly's schema, with descriptions in words.
"""

from __future__ import annotations

import math
from html import escape

import numpy as np
import pandas as pd

from attnkit.analysis.capacity import COSTS, Cost, frontier
from attnkit.figures.grid import cell_texts, titles_of, variants_in
from attnkit.figures.panels import Figure, Trace
from attnkit.figures.strips import OUTLINE, SYMBOLS, bare_layout
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import REFERENCE, translucent

FRONTIER_KEY = (
    "Every dot is a cell. On the grey line stand those that no other cell beats: all others cost "
    "more, or are less accurate."
)
"""How to read `plot_frontier`."""

_HEIGHT, _TOP = 460, 1.25
"""Height of `plot_frontier` in pixels, and the upper end of its accuracies: names need room."""

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
    sharings = variants_in(table)
    colors = {s: title.color for s, title in zip(sharings, titles_of(sharings), strict=True)}
    others = table.drop(best.index)
    steps: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": best[cost].tolist(),
        "y": best["accuracy"].round(5).tolist(),
        "line": {"color": REFERENCE, "width": 2, "shape": "hv"},
        "hoverinfo": "skip",
    }
    layout = {
        **bare_layout(),
        "margin": {"l": 56, "r": 20, "t": 10, "b": 48},
        "height": _HEIGHT,
        "xaxis": _cost_axis(table[cost].to_numpy(float), COSTS[cost]),
        "yaxis": {
            **_axis("Accuracy"),
            "range": [-0.03, _TOP],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0%", "25%", "50%", "75%", "100%"],
        },
        "annotations": _names_of(best, cost),
    }
    dots = [_dots(others, cost, colors, on_frontier=False), _dots(best, cost, colors)]
    return {"data": [dots[0], steps, dots[1]], "layout": layout}


def _dots(
    rows: pd.DataFrame, cost: Cost, colors: dict[str, str], *, on_frontier: bool = True
) -> Trace:
    """Return cells as dots, those on the frontier large."""
    sharings = rows["sharing"].tolist()
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rows[cost].tolist(),
        "y": rows["accuracy"].round(5).tolist(),
        "marker": {
            "symbol": [SYMBOLS[Variant(sharing).sharing] for sharing in sharings],
            "color": [colors[sharing] for sharing in sharings],
            "size": 12 if on_frontier else 7,
            "opacity": 1 if on_frontier else 0.4,
            "line": OUTLINE if on_frontier else {"width": 0},
        },
        "hoverinfo": "text",
        "hovertext": cell_texts(rows, axes_of(rows)),
        "customdata": rows.index.tolist(),
        "cliponaxis": False,
    }


def _names_of(best: pd.DataFrame, cost: Cost) -> list[Figure]:
    """Return the names of variants at the first dots of their pieces of the frontier.

    They stand above and to the left of the dots, where no other cell can be, and are moved upwards
    where they would overlap.
    """
    sharings = variants_in(best)
    names = dict(zip(sharings, titles_of(sharings), strict=True))
    first = best["sharing"].ne(best["sharing"].shift()).to_numpy()
    pixels = (_HEIGHT - 58) / (_TOP + 0.03)
    above, notes = -math.inf, []
    columns = ["sharing", cost, "accuracy"]
    for sharing, at, accuracy in best.loc[first, columns].itertuples(index=False):
        above = max(above + _LINE, pixels * accuracy + 10)
        notes.append(
            {
                "text": escape(names[sharing].name),
                "x": math.log10(at),
                "y": accuracy,
                "ax": -8,
                "ay": pixels * accuracy - above,
                "xanchor": "right",
                "yanchor": "middle",
                "arrowhead": 0,
                "arrowwidth": 1,
                "arrowcolor": REFERENCE,
                "font": {"size": 12},
            }
        )
    return notes


def describe_frontier(table: pd.DataFrame, cost: Cost) -> str:
    """Describe in words what `plot_frontier` shows."""
    best = frontier(table, cost)
    if best.empty:
        return f"Accuracy against {COSTS[cost].lower()}. Nothing has been trained."
    names = dict(zip(variants_in(best), titles_of(variants_in(best)), strict=True))
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
    a, b = titles_of(names)
    known = table[table["ratio"].notna()]
    accuracy = known["accuracy"].to_numpy(float)
    ratio, low, high = (known[name].to_numpy(float) for name in ("ratio", "low", "high"))
    ends = np.r_[ratio, low[low > 0], high[np.isfinite(high)], 1.0]
    span = math.log10(ends.max() / ends.min()) or 0.3
    bottom, top = math.log10(ends.min()) - 0.1 * span, math.log10(ends.max()) + 0.1 * span
    outline_y = np.clip(np.r_[high, low[::-1]], 10**bottom, 10**top)
    style: Trace = {"type": "scatter", "hoverinfo": "skip", "mode": "lines"}
    traces: list[Trace] = [
        {
            **style,
            "x": np.r_[accuracy, accuracy[::-1]].tolist(),
            "y": outline_y.tolist(),
            "fill": "toself",
            "fillcolor": translucent(b.color, 0.2),
            "line": {"width": 0},
        },
        {
            **style,
            "mode": "lines+markers",
            "x": accuracy.tolist(),
            "y": ratio.tolist(),
            "line": {"color": b.color, "width": 2.5},
            "marker": {"symbol": SYMBOLS[Variant(names[1]).sharing], "size": 8, "color": b.color},
            "hoverinfo": "text",
            "hovertext": [_matching_text(row, a.name, b.name) for row in known.to_dict("records")],
            "cliponaxis": False,
        },
    ]
    note = _note(f"{COSTS[cost]}: {b.name} as a multiple of {a.name}")
    return {"data": traces, "layout": _matching_layout(bottom, top, note)}


def _matching_layout(bottom: float, top: float, note: Figure) -> Figure:
    """Return the layout for ratios from 10**bottom to 10**top."""
    ticks = _ratio_ticks(10**bottom, 10**top)
    return {
        **bare_layout(),
        "margin": {"l": 56, "r": 20, "t": 34, "b": 48},
        "height": 380,
        "xaxis": {
            **_axis("Accuracy that both reach"),
            "range": [-0.02, 1.02],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0%", "25%", "50%", "75%", "100%"],
        },
        "yaxis": {
            **_axis(""),
            "type": "log",
            "range": [bottom, top],
            "tickvals": ticks,
            "ticktext": [f"×{tick:g}" for tick in ticks],
        },
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": 1,
                "y1": 1,
                "line": {"color": REFERENCE, "width": 1.5, "dash": "dot"},
                "layer": "below",
            }
        ],
        "annotations": [note],
    }


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


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Return round ratios between two limits: few of them, and 1 among them."""
    for candidates in (
        [1 + 0.01 * k for k in range(-20, 21)],
        [1 + 0.05 * k for k in range(-10, 21)],
        [0.1 * k for k in range(1, 31)],
        [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8],
        [2.0**k for k in range(-10, 11)],
    ):
        inside = [round(tick, 3) for tick in candidates if low <= tick <= high]
        if len(inside) <= 8 and candidates[0] <= low and high <= candidates[-1]:
            return inside
    return [1.0]


def _note(text: str) -> Figure:
    """Return the title of the vertical axis, written above it."""
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": 1, "xshift": -50, "yshift": 6}
    anchor = {"xanchor": "left", "yanchor": "bottom", "showarrow": False}
    return {"text": escape(text), **place, **anchor, "font": {"size": 13}}


def describe_matching(table: pd.DataFrame, cost: Cost, names: tuple[str, str]) -> str:
    """Describe in words what `plot_matching` shows."""
    a, b = (title.name for title in titles_of(names))
    if table.empty:
        return f"{COSTS[cost]} of {b} and {a} at the same accuracy. Nothing has been trained."
    known = table[table["ratio"].notna()]
    if known.empty:
        verdict = f"{b} never reaches the accuracy of {a}"
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
            texts.append(f"{at}: {b} never reaches it")
        else:
            limits = f"{row['low']:.2f} to {row['high']:.2f}"
            texts.append(f"{at}: {row['ratio']:.2f} times ({limits})")
    what = f"{COSTS[cost]} of {b} as a multiple of those of {a}, by accuracy, with 95% intervals"
    return f"{verdict}. {what}: {'; '.join(texts)}."


def _cost_axis(costs: np.ndarray, title: str) -> Figure:
    """Return a logarithmic axis of costs with a few round labels, and room at its left."""
    if not len(costs):
        return _axis(title)
    low, high = float(costs.min()), float(costs.max())
    span = max(math.log10(high / low), 0.05)
    ticks = _round_ticks(low, high)
    return {
        **_axis(title),
        "type": "log",
        "range": [math.log10(low) - 0.2 * span, math.log10(high) + 0.04 * span],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.0f}" for tick in ticks],
    }


def _round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two limits: as many as possible, but not more than `most`."""
    finest = 10.0 ** math.floor(math.log10(high - low + 1) - 1)
    candidates = [
        [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
        for step in (finest * digit for digit in (1, 2, 5, 10, 20, 50))
    ]
    if high / low > 4:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        of_digits = [(1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)]
        candidates = [[d * 10.0**power for power in powers for d in ds] for ds in of_digits]
    fitting = [[tick for tick in ticks if low <= tick <= high] for ticks in candidates]
    return next((ticks for ticks in fitting if len(ticks) <= most), fitting[-1])


def _axis(title: str) -> Figure:
    return {
        "title": {"text": title, "font": {"size": 13}, "standoff": 6},
        "zeroline": False,
        "gridcolor": translucent(REFERENCE, 0.3),
        "fixedrange": True,
        "tickangle": 0,
    }
