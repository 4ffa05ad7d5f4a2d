"""Figure of where a claim holds: what its arms do in other structures."""

from __future__ import annotations

import math
from html import escape

from attnkit.claims import Claim
from attnkit.claims.base import arm_title
from attnkit.evidence.elsewhere import TITLES, Elsewhere, Place, in_words, value_in_words
from attnkit.figures.marks import OUTLINE, dots, stripes
from attnkit.figures.panels import Axis, Figure, Panel, draw, row_axis
from attnkit.figures.strips import axis_title, color_and_symbol, scale_of
from attnkit.figures.strips import value_in_words as measured_in_words
from attnkit.foundation.language import mark, tr

ELSEWHERE_KEY = mark(
    "Three new seeds in every structure, each variant at the best of three learning rates. "
    "✓ the claim holds, ✗ it does not hold, ~ it holds with some seeds, – no variant learns. "
    "Bold: the structure of the claim, whose title names what a ✗ excludes."
)
"""How to read `plot_elsewhere`."""

_HEIGHT = 19
"""Height of a row in pixels."""


def plot_elsewhere(claim: Claim, result: Elsewhere) -> Figure:
    """Plot a row per structure: its mark, and the value of every arm."""
    measure, places = claim.statements[0].measured, result.places
    known = [
        [v * scale_of(measure) for v in place.values.values() if math.isfinite(v)]
        for place in places
    ]
    ends = [value for values in known for value in values] or [0.0]
    low, high = (0.0, 100.0) if measure.unit == "points" else (min(ends), max(ends))
    margin = 0.05 * (high - low) or 0.5
    marks = stripes(len(places))
    for arm in claim.arms:
        rows = [
            (place.values[arm.name] * scale_of(measure), row)
            for row, place in enumerate(places)
            if math.isfinite(place.values.get(arm.name, math.nan))
        ]
        if rows:
            x, y = zip(*rows, strict=True)
            color, symbol = color_and_symbol(arm)
            tips = [f"{escape(arm_title(arm.name))}: {measured_in_words(v, measure)}" for v in x]
            marks.append(dots(x, y, color, symbol=symbol, size=10, edge=OUTLINE, tips=tips))
    axis = Axis(low - margin, high + margin, axis_title(measure))
    if measure.unit == "doublings":
        ticks = range(math.floor(low), math.ceil(high) + 1)
        axis = Axis(
            low - margin, high + margin, axis_title(measure), ticks, [f"{2**t:,}" for t in ticks]
        )
    rows_axis = row_axis([_label(place) for place in places])
    return draw([Panel(axis, rows_axis, marks, height=_HEIGHT * len(places))], top=6)


def describe_elsewhere(result: Elsewhere) -> str:
    """Describe in words what `plot_elsewhere` shows."""
    return tr("Where it holds. {places}.", places=in_words(result))


def _label(place: Place) -> str:
    text = f"{tr(TITLES[place.side])} {value_in_words(place)} {place.outcome.mark}"
    return f"<b>{escape(text)}</b>" if place.is_own else escape(text)
