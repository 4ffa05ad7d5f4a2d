"""Parts of the figures of evidence: marks of seeds, marks of means, and the axis they stand on."""

from __future__ import annotations

import math
from html import escape

from attnkit.claims.base import Arm
from attnkit.claims.measures import Measure
from attnkit.evidence.record import Evidence
from attnkit.figures.panels import Figure, Trace
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
"""Symbol of each sharing, so that nobody needs to tell colours apart."""

STRIPE = translucent(REFERENCE, 0.09)
"""Colour behind every other row."""

OUTLINE = {"color": REFERENCE, "width": 1}
"""Outline of large marks: without it blue is hard to see on a dark page."""

LINE = 16
"""Height of a line of text in pixels."""


def bare_layout() -> Figure:
    """Return the layout of a figure that is read, not zoomed, on the background of the page."""
    return {
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }


def x_axis(low: float, high: float, title: str) -> Figure:
    """Return a horizontal axis from one number to another."""
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
    """Return a large mark, with a bar where there are limits."""
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
            "width": 0,  # caps would hide the shape of a mark with a short bar
        }
    return trace


def spread(n: int) -> list[float]:
    """Return n shares of a row's height, spread evenly and always the same."""
    return [(0.618034 * (place + 1)) % 1 for place in range(n)]


def look_of(arm: Arm | None) -> tuple[str, str]:
    """Return colour and symbol of the sharing of an arm."""
    if arm is None:
        return REFERENCE, "x"
    sharing = Variant(arm.variant).sharing
    return COLORS[sharing], SYMBOLS[sharing]


def arms_of(evidence: Evidence) -> dict[str, Arm]:
    """Return the arms that a claim may have by name, confirming arms last."""
    return {arm.name: arm for arm in (*evidence.claim.arms, *evidence.claim.confirmation()[0])}


def axis_title(measure: Measure) -> str:
    """Return the title of an axis: a measure with its unit."""
    unit = {"points": "percent", "doublings": ""}.get(measure.unit, measure.unit)
    return f"{measure.title}, {unit}" if unit else measure.title


def scale_of(measure: Measure) -> float:
    """Return the factor by which values of a measure are multiplied: shares become percent."""
    return 100.0 if measure.unit == "points" else 1.0


def digits_of(measure: Measure) -> int:
    """Return the number of digits after the point."""
    return 1 if measure.unit in ("points", "doublings") else 3


def value_in_words(value: float, measure: Measure) -> str:
    """Return a value on the scale that is shown, with its unit."""
    if measure.unit == "doublings":
        return f"{2**value:,.0f} steps"
    number = f"{value:z.{digits_of(measure)}f}".replace("-", "−")
    return f"{number}%" if measure.unit == "points" else f"{number} {measure.unit}".rstrip()
