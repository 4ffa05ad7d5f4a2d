"""Figure of the evidence for a claim: every seed of every arm.

Evidence in, a Plotly figure out, as a plain dictionary; a description in words stands beside it. A
run that is still going on may lack arms and seeds: whatever is there is drawn.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape

import numpy as np

from attnkit.claims.base import Arm
from attnkit.claims.measures import MEASURES, Measure
from attnkit.evidence.record import Evidence
from attnkit.figures.panels import Figure, Trace
from attnkit.figures.strips import (
    LINE,
    STRIPE,
    arms_of,
    axis_title,
    bare_layout,
    look_of,
    mean_mark,
    scale_of,
    spread,
    value_in_words,
    x_axis,
)
from attnkit.training.statistics import mean_interval
from attnkit.variants.palette import REFERENCE

EVIDENCE_KEY = (
    "A small mark is one seed; the large one is the mean of all, its bar the 95% interval "
    "(Student’s t)."
)
"""How to read `plot_evidence`."""

_LABEL = 19
"""Characters in a line of an arm's name: they leave room for the figure on a phone."""

_BOUNDS = {"asymmetry": (0.0, 1.0), "weight_symmetry": (-1.0, 1.0), "mass_on_target": (0.0, 1.0)}
"""Limits of measures; accuracies go from 0 to 100%."""

_SHOWN = {"asymmetry": (0.0, 0.5), "weight_symmetry": (0.0, 1.0), "mass_on_target": (0.0, 1.0)}
"""Values of a measure that the axis always includes."""


def plot_evidence(evidence: Evidence, measure: str | None = None) -> Figure:
    """Plot a row for every arm: its seeds, their mean and its interval.

    Args:
        evidence: The evidence; every arm is read at the step at which its statement reads it.
        measure: Name of a recorded measure, or None for that of the first statement.
    """
    shown = _measure(evidence, measure)
    rows = _rows_of(evidence, shown)
    traces = [
        trace for place, row in enumerate(rows) for trace in _row_traces(row, shown, float(place))
    ]
    labels = [row.label for row in rows]
    tallest = max((label.count("<br>") + 1 for label in labels), default=1)
    layout = {
        **bare_layout(),
        "margin": {"l": 8, "r": 14, "t": 24, "b": 44},
        "height": max(40, LINE * tallest + 8) * max(1, len(rows)) + 68,
        "xaxis": x_axis(*_range(shown, rows), axis_title(shown)),
        "yaxis": {
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": list(range(len(rows))),
            "ticktext": labels,
            "automargin": True,
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
        },
        "shapes": [_stripe(place) for place in range(0, len(rows), 2)],
    }
    if shown.unit == "points":
        layout["xaxis"] |= {"tickvals": [0, 25, 50, 75, 100]}
        _draw_chance(layout, rows)
    if shown.unit == "doublings":
        low, high = layout["xaxis"]["range"]
        powers = list(range(math.ceil(low), math.floor(high) + 1))
        powers = powers[:: 1 + len(powers) // 6]
        layout["xaxis"] |= {"tickvals": powers, "ticktext": [f"{2**power:,}" for power in powers]}
    return {"data": traces, "layout": layout}


def describe_evidence(evidence: Evidence, measure: str | None = None) -> str:
    """Describe in words what `plot_evidence` shows."""
    shown = _measure(evidence, measure)
    title = axis_title(shown)
    rows = (f"{row.title}: {_row_in_words(row, shown)}." for row in _rows_of(evidence, shown))
    return " ".join([f"{title[0].upper()}{title[1:]}, arm by arm.", *rows])


class _Row:
    """An arm with its seeds, on the scale that is shown."""

    def __init__(self, evidence: Evidence, name: str, arm: Arm | None, measure: Measure) -> None:
        times = _read_at(evidence, name)
        values = evidence.scores_at(measure.name, times)[name] * scale_of(measure)
        known = np.isfinite(values)
        self.known = values[known]
        self.seeds = [
            seed for seed, is_known in zip(evidence.seeds, known, strict=False) if is_known
        ]
        self.unsolved = int(np.isinf(values).sum())
        # An arm that is never tied has no accuracy when tied; it has not diverged if it has a loss.
        losses = evidence.scores_at("loss", times).get(name, values)
        self.lost = int(np.isnan(losses).sum())
        self.rate = evidence.tuned[name].rate if name in evidence.tuned else None
        interval = mean_interval(np.full(1, np.nan) if self.unsolved else self.known)
        self.mean, self.low, self.high = (
            float(limit) for limit in (interval.mean, interval.low, interval.high)
        )
        self.chance = None if arm is None else 100 * arm.experiment.task.chance
        self.color, self.symbol = look_of(arm)
        self.name = self.title = name
        self.further = [f"{self.lost} diverged"] if self.lost else []
        self.further += [f"{self.unsolved} unsolved"] if self.unsolved else []
        if arm in evidence.claim.arms and min(times, arm.up_to) > 1:
            steps = f"{min(times, arm.up_to) * arm.base_steps:,} steps"
            self.title += f", {steps}"
            self.further.insert(0, steps)

    @property
    def label(self) -> str:
        """Its name in at most three short lines, steps, and how many of its seeds diverged."""
        lines = textwrap.wrap(self.name, _LABEL, max_lines=3, placeholder="…")
        return "<br>".join([*map(escape, lines), *self.further])


def _row_traces(row: _Row, measure: Measure, place: float) -> list[Trace]:
    """Return the marks of a row: its seeds below, their mean above."""
    rate = "" if row.rate is None else f"<br>learning rate {row.rate:g}"
    name = escape(row.title)
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": row.known.tolist(),
        "y": [place + 0.02 + 0.3 * share for share in spread(len(row.known))],
        "marker": {"symbol": row.symbol, "size": 7, "color": row.color, "opacity": 0.75},
        "hoverinfo": "text",
        "hovertext": [
            f"{name}<br>seed {seed}: {value_in_words(value, measure)}{rate}"
            for seed, value in zip(row.seeds, row.known, strict=True)
        ],
        "showlegend": False,
    }
    if math.isnan(row.mean):
        return [dots]
    low, high = _inside(row, measure)
    text = f"{name}<br>{_row_in_words(row, measure)}{rate}"
    return [dots, mean_mark(row.mean, low, high, place - 0.2, row.color, row.symbol, text, {})]


def _row_in_words(row: _Row, measure: Measure) -> str:
    further = f", {row.lost} diverged" if row.lost else ""
    further += f", {row.unsolved} never solve it" if row.unsolved else ""
    n = len(row.known)
    if not n:
        return f"no value{further}"
    seeds = f"{n} seeds" if n > 1 else "1 seed"
    if math.isnan(row.mean):
        typical = value_in_words(float(np.median(row.known)), measure)
        return f"median of those that solve it {typical}, {seeds}{further}"
    low, high = (value_in_words(limit, measure) for limit in _inside(row, measure))
    limits = "" if math.isnan(row.low) else f" [{low} to {high}]"
    return f"mean {value_in_words(row.mean, measure)}{limits}, {seeds}{further}"


def _inside(row: _Row, measure: Measure) -> tuple[float, float]:
    """Return the limits of the mean, no further than the measure goes."""
    low, high = _bounds(measure)
    return float(np.maximum(low, row.low)), float(np.minimum(high, row.high))  # NaN stays


def _bounds(measure: Measure) -> tuple[float, float]:
    if measure.unit == "points":
        return 0.0, 100.0
    return _BOUNDS.get(measure.name, (-math.inf, math.inf))


def _range(measure: Measure, rows: Sequence[_Row]) -> tuple[float, float]:
    """Return the range of the axis."""
    least, most = _bounds(measure)
    ends = [end for row in rows for end in (*row.known, *_inside(row, measure))]
    ends += [least, most] if measure.unit == "points" else _SHOWN.get(measure.name, ())
    finite = [float(end) for end in ends if math.isfinite(end)] or [0.0, 1.0]
    room = 0.03 * (max(finite) - min(finite)) or 0.1
    return min(finite) - room, max(finite) + room


def _draw_chance(layout: Figure, rows: Sequence[_Row]) -> None:
    """Draw a dotted line at the chance level of every row, and write how much it is."""
    chances = [row.chance for row in rows if row.chance is not None]
    if not chances:
        return
    for place, row in enumerate(rows):
        if row.chance is not None:
            layout["shapes"].append(
                {
                    "type": "line",
                    "x0": row.chance,
                    "x1": row.chance,
                    "y0": place - 0.5,
                    "y1": place + 0.5,
                    "line": {"color": REFERENCE, "width": 1.5, "dash": "dot"},
                    "layer": "below",
                }
            )
    low, high = (f"{end:.3g}" for end in (min(chances), max(chances)))
    layout["annotations"] = [
        {
            "text": f"chance {low}%" if low == high else f"chance {low} to {high}%",
            "x": min(chances),
            "y": 1,
            "yref": "paper",
            "xanchor": "center" if min(chances) > 15 else "left",
            "yanchor": "bottom",
            "showarrow": False,
            "font": {"size": 12},
        }
    ]


def _measure(evidence: Evidence, name: str | None) -> Measure:
    return MEASURES[evidence.claim.statements[0].measure if name is None else name]


def _rows_of(evidence: Evidence, measure: Measure) -> list[_Row]:
    """Return the arms in the order of the claim, then arms that it does not have any more."""
    arms, present = arms_of(evidence), evidence.scores_at(measure.name)
    return [
        _Row(evidence, name, arms.get(name), measure)
        for name in dict.fromkeys((*arms, *present))
        if name in present
    ]


def _read_at(evidence: Evidence, name: str) -> int:
    """Return the multiple of the base steps at which the first statement on an arm reads it."""
    read = [one.at for one in evidence.statements if name in one.arms]
    return read[0] if read else evidence.claim.statements[0].at


def _stripe(place: int) -> dict[str, object]:
    return {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": place - 0.5,
        "y1": place + 0.5,
        "fillcolor": STRIPE,
        "line": {"width": 0},
        "layer": "below",
    }
