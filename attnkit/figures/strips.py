"""Parts of figures with rows of dots: layout, axis, marks, offsets, and texts of values."""

from __future__ import annotations

import math
from html import escape

from attnkit.claims.base import Arm
from attnkit.claims.measures import Measure
from attnkit.evidence.record import Evidence
from attnkit.figures.panels import Figure, Trace
from attnkit.training.summary import percent
from attnkit.variants import Variant
from attnkit.variants.palette import COLORS, REFERENCE, translucent
from attnkit.variants.sharing import Sharing

SYMBOLS: dict[Sharing, str] = {
    Sharing.QKV: "circle",
    Sharing.Q_K: "square",
    Sharing.K_V: "triangle-up",
    Sharing.Q_V: "triangle-down",
    Sharing.Q_K_V: "pentagon",
}
"""Plotly symbol of each sharing, so that arms differ in more than colour."""

STRIPE = translucent(REFERENCE, 0.09)
"""Background colour of every other row."""

OUTLINE = {"color": REFERENCE, "width": 1}
"""Outline of large marks, without which blue is hard to see on a dark page."""

LINE = 16
"""Height of a line of text in pixels."""


def bare_layout() -> Figure:
    """Return the layout of a figure without zoom and legend, on the background of the page."""
    return {
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }


def x_axis(low: float, high: float, title: str) -> Figure:
    """Return a horizontal axis from `low` to `high`."""
    return {
        "range": [low, high],
        "title": {"text": escape(title), "font": {"size": 13}, "standoff": 6},
        "nticks": 6,
        "zeroline": False,
        "gridcolor": translucent(REFERENCE, 0.3),
        "fixedrange": True,
    }


def mean_mark(
    mean: float,
    low: float,
    high: float,
    y: float,
    color: str,
    symbol: str,
    text: str,
    axes: dict[str, str],
) -> Trace:
    """Return a large mark at a mean, with a bar from `low` to `high` if both are finite."""
    trace: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [mean],
        "y": [y],
        "marker": {"symbol": symbol, "size": 13, "color": color, "line": OUTLINE},
        "hoverinfo": "text",
        "hovertext": [text],
        "cliponaxis": False,
        "showlegend": False,
        **axes,
    }
    if math.isfinite(low) and math.isfinite(high):
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [high - mean],
            "arrayminus": [mean - low],
            "color": color,
            "thickness": 4,
            "width": 0,  # Caps would hide the shape of a mark with a short bar.
        }
    return trace


def row_offsets(n: int) -> list[float]:
    """Return n offsets within a row, from 0 to 1, evenly spread and always the same."""
    return [(0.618034 * (index + 1)) % 1 for index in range(n)]


def color_and_symbol(arm: Arm | None) -> tuple[str, str]:
    """Return colour and symbol of the sharing of an arm; grey and "x" for None."""
    if arm is None:
        return REFERENCE, "x"
    sharing = Variant(arm.variant).sharing
    return COLORS[sharing], SYMBOLS[sharing]


def arms_of(evidence: Evidence) -> dict[str, Arm]:
    """Return name → arm for all arms of a claim, with those that confirm an inability last."""
    return {arm.name: arm for arm in (*evidence.claim.arms, *evidence.claim.confirmation()[0])}


def axis_title(measure: Measure) -> str:
    """Return the title of an axis: the name of a measure with its unit."""
    unit = {"points": "percent", "doublings": ""}.get(measure.unit, measure.unit)
    return f"{measure.title}, {unit}" if unit else measure.title


def scale_of(measure: Measure) -> float:
    """Return the factor from values of a measure to values on screen: shares become percent."""
    return 100.0 if measure.unit == "points" else 1.0


def value_in_words(value: float, measure: Measure) -> str:
    """Return the text of a value that has been multiplied by `scale_of`, with its unit."""
    if measure.unit == "doublings":
        return f"{2**value:,.0f} steps"
    if measure.unit == "points":
        return percent(value / 100)
    return f"{value:z.3f} {measure.unit}".rstrip().replace("-", "−")
