"""Figure of where a claim holds: what its arms do in other structures."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape

import numpy as np

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
    "✓ the claim holds, ✗ it does not hold, ~ it holds with some seeds, – no variant learns."
)
"""How to read `plot_elsewhere`."""

_FORMS = ("", "-open", "-open-dot", "-dot")
"""Forms of the symbols of the first, second, … arm with the same sharing."""

_MOST_TICKS = 5
"""Largest number of doublings between the ends of an axis that are all labelled."""

_HEIGHT = 19
"""Height of a row in pixels."""


def plot_elsewhere(claim: Claim, result: Elsewhere) -> Figure:
    """Plot a row for the structure of the claim and for every other one: its mark and the arms."""
    measure = claim.statements[0].measured
    own = next(place for place in result.places if place.is_own)
    places = [own, *(place for place in result.places if not place.is_own)]
    arms = [arm for arm in claim.arms if arm.name in own.values]
    marks, ends = stripes(len(places)), [0.0, 100.0] if measure.unit == "points" else []
    spread = np.linspace(-0.2, 0.2, len(arms)) if len(arms) > 1 else [0.0]
    for arm, offset in zip(arms, spread, strict=True):
        values = np.array([place.values[arm.name] for place in places]) * scale_of(measure)
        known = np.flatnonzero(np.isfinite(values))
        x, y = values[known].tolist(), (known + offset).tolist()
        color, symbol = color_and_symbol(arm)
        n_alike = sum(color_and_symbol(one) == (color, symbol) for one in arms[: arms.index(arm)])
        symbol += _FORMS[n_alike % len(_FORMS)]
        name = escape(arm_title(arm.name))
        tips = [f"{name}: {measured_in_words(value, measure)}" for value in x]
        marks.append(dots(x, y, color, symbol=symbol, size=9, edge=OUTLINE, tips=tips, name=name))
        ends += x
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = 0.05 * (high - low) or 0.5
    axis = Axis(low - margin, high + margin, axis_title(measure))
    if measure.unit == "doublings":
        every = max(1, math.ceil((high - low) / _MOST_TICKS))
        ticks = range(math.ceil(low), math.floor(high) + 1, every)
        axis = replace(axis, ticks=ticks, texts=[f"{2**tick:,}" for tick in ticks])
    # Translators: label of the structure (layers, heads, widths) that a claim has itself.
    as_claimed = tr("as claimed")
    labels = [f"<b>{as_claimed} {own.outcome.mark}</b>", *map(_label, places[1:])]
    return draw(
        [Panel(axis, row_axis(labels), marks, height=_HEIGHT * len(places))], top=6, legend="below"
    )


def describe_elsewhere(result: Elsewhere) -> str:
    """Describe in words what `plot_elsewhere` shows."""
    return tr("Where it holds. {places}.", places=in_words(result))


def _label(place: Place) -> str:
    return escape(f"{tr(TITLES[place.side])} {value_in_words(place)} {place.outcome.mark}")
