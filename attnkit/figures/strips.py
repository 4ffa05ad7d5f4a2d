"""Shared parts of the figures of claims: styles of arms, means with intervals, texts of values."""

from __future__ import annotations

import numpy as np

from attnkit.claims.base import Arm
from attnkit.claims.measures import Measure
from attnkit.figures.marks import OUTLINE, Mark, dots, limits
from attnkit.foundation.language import tr, tr_n
from attnkit.training.statistics import Interval
from attnkit.training.summary import fixed, percent
from attnkit.variants import Variant
from attnkit.variants.palette import COLORS, REFERENCE
from attnkit.variants.sharing import Sharing

SYMBOLS: dict[Sharing, str] = {
    Sharing.QKV: "circle",
    Sharing.Q_K: "square",
    Sharing.K_V: "triangle-up",
    Sharing.Q_V: "triangle-down",
    Sharing.Q_K_V: "pentagon",
}
"""Plotly symbol of each sharing, so that arms differ in more than colour."""

LINE = 16
"""Height of a line of text in pixels."""


def mean_mark(interval: Interval, y: float, color: str, symbol: str, tip: str) -> Mark:
    """Return a large mark at a mean, with a bar between its limits if both are finite."""
    known = np.isfinite(interval.low) and np.isfinite(interval.high)
    return dots(
        [interval.mean],
        [y],
        color,
        symbol=symbol,
        size=13,
        edge=OUTLINE,
        error_x=limits(interval, color, 4) if known else None,
        tips=[tip],
    )


def color_and_symbol(arm: Arm | None) -> tuple[str, str]:
    """Return colour and symbol of the sharing of an arm; grey and "x" for None."""
    if arm is None:
        return REFERENCE, "x"
    sharing = Variant(arm.variant).sharing
    return COLORS[sharing], SYMBOLS[sharing]


def axis_title(measure: Measure) -> str:
    """Return the title of an axis: the name of a measure with its unit."""
    title = tr(measure.title)
    if measure.unit == "points":
        return tr("{measure}, percent", measure=title)
    return tr("{measure}, nats", measure=title) if measure.unit == "nats" else title


def scale_of(measure: Measure) -> float:
    """Return the factor from values of a measure to values on screen: shares become percent."""
    return 100.0 if measure.unit == "points" else 1.0


def value_in_words(value: float, measure: Measure) -> str:
    """Return the text of a value that has been multiplied by `scale_of`, with its unit."""
    if measure.unit == "doublings":
        return tr_n("{n:,.0f} step", "{n:,.0f} steps", 2**value)
    if measure.unit == "points":
        return percent(value / 100)
    number = fixed(value, 3)
    return tr("{number} nats", number=number) if measure.unit == "nats" else number
