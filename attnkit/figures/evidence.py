"""The evidence for a claim: every seed of every arm.

Evidence in, a Plotly figure out, as a plain dictionary; what it shows is said in words, too. A run
that is still going on may lack arms and seeds: what is there is drawn.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape

import numpy as np

from attnkit.evidence.measures import MEASURES, Measure
from attnkit.evidence.record import Evidence
from attnkit.figures.differences import DIFFERENCES_KEY, describe_differences, plot_differences
from attnkit.figures.palette import REFERENCE
from attnkit.figures.panels import Figure, Trace
from attnkit.figures.strips import (
    LINE,
    STRIPE,
    arms_of,
    axis_title,
    bare_layout,
    digits_of,
    look_of,
    mean_mark,
    scale_of,
    spread,
    x_axis,
)
from attnkit.statistics import mean_interval

__all__ = [
    "DIFFERENCES_KEY",
    "EVIDENCE_KEY",
    "describe_differences",
    "describe_evidence",
    "plot_differences",
    "plot_evidence",
]

EVIDENCE_KEY = (
    "A small mark is one seed; the large one is the mean of all, its bar the 95% interval "
    "(Student’s t)."
)
"""How to read `plot_evidence`."""

_LABEL = 19
"""Characters of a line of an arm's name: they leave room for the figure on a phone."""

_BOUNDS = {"asymmetry": (0.0, 1.0), "weight_symmetry": (-1.0, 1.0), "mass_on_target": (0.0, 1.0)}
"""Where a measure can lie; accuracies go from 0 to 100%."""

_SHOWN = {"asymmetry": (0.0, 0.5), "weight_symmetry": (0.0, 1.0), "mass_on_target": (0.0, 1.0)}
"""What is always shown of a measure; of losses, what there is."""


def plot_evidence(evidence: Evidence, measure: str | None = None) -> Figure:
    """A row for every arm: its seeds, their mean and its interval.

    Args:
        measure: a name of `MEASURES` that was recorded; that of the first statement, if None.
    """
    shown = _measure(evidence, measure)
    values = _in_order(evidence, shown.name)
    rows = [_Row(evidence, name, own * scale_of(shown)) for name, own in values.items()]
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
    return {"data": traces, "layout": layout}


def describe_evidence(evidence: Evidence, measure: str | None = None) -> str:
    """What `plot_evidence` shows, for those who do not see it."""
    shown = _measure(evidence, measure)
    said = [f"{axis_title(shown)[0].upper()}{axis_title(shown)[1:]}, arm by arm."]
    for name, own in _in_order(evidence, shown.name).items():
        row = _Row(evidence, name, own * scale_of(shown))
        said.append(f"{name}: {_row_told(row, shown)}.")
    return " ".join(said)


class _Row:
    """An arm with its seeds, on the scale that is shown."""

    def __init__(self, evidence: Evidence, name: str, values: np.ndarray) -> None:
        self.name = name
        self.known = values[~np.isnan(values)]
        self.seeds = [
            seed for seed, value in zip(evidence.seeds, values, strict=False) if value == value
        ]
        # Who never ties has no accuracy when tied, and has not diverged: every run has a loss.
        self.lost = int(np.isnan(evidence.scores[name].get("loss", values)).sum())
        self.rate = evidence.tuned[name].rate if name in evidence.tuned else None
        interval = mean_interval(self.known)
        self.mean, self.low, self.high = (
            float(limit) for limit in (interval.mean, interval.low, interval.high)
        )
        arm = arms_of(evidence).get(name)
        self.chance = None if arm is None else 100 * arm.experiment.task.chance
        self.color, self.symbol = look_of(arm)

    @property
    def label(self) -> str:
        """Its name in at most three short lines, and how many of its seeds diverged."""
        lines = textwrap.wrap(self.name, _LABEL, max_lines=3, placeholder="…")
        return "<br>".join([*map(escape, lines), *([f"{self.lost} diverged"] if self.lost else [])])


def _row_traces(row: _Row, measure: Measure, place: float) -> list[Trace]:
    """Its seeds below, their mean above."""
    rate = "" if row.rate is None else f"<br>learning rate {row.rate:g}"
    name = escape(row.name)
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": row.known.tolist(),
        "y": [place + 0.02 + 0.3 * share for share in spread(len(row.known))],
        "marker": {"symbol": row.symbol, "size": 7, "color": row.color, "opacity": 0.75},
        "hoverinfo": "text",
        "hovertext": [
            f"{name}<br>seed {seed}: {_shown(value, measure)}{rate}"
            for seed, value in zip(row.seeds, row.known, strict=True)
        ],
        "showlegend": False,
    }
    if not len(row.known):
        return [dots]
    low, high = _inside(row, measure)
    text = f"{name}<br>{_row_told(row, measure)}{rate}"
    return [dots, mean_mark(row.mean, low, high, place - 0.2, row.color, row.symbol, text, {})]


def _row_told(row: _Row, measure: Measure) -> str:
    lost = f", {row.lost} diverged" if row.lost else ""
    n = len(row.known)
    if not n:
        return f"no value{lost}"
    seeds = f"{n} seeds" if n > 1 else "1 seed"
    low, high = (_shown(limit, measure) for limit in _inside(row, measure))
    limits = "" if math.isnan(row.low) else f" [{low} to {high}]"
    return f"mean {_shown(row.mean, measure)}{limits}, {seeds}{lost}"


def _inside(row: _Row, measure: Measure) -> tuple[float, float]:
    """Limits of the mean, no further than the measure goes."""
    low, high = _bounds(measure)
    return float(np.maximum(low, row.low)), float(np.minimum(high, row.high))  # NaN stays


def _bounds(measure: Measure) -> tuple[float, float]:
    if measure.unit == "points":
        return 0.0, 100.0
    return _BOUNDS.get(measure.name, (-math.inf, math.inf))


def _range(measure: Measure, rows: Sequence[_Row]) -> tuple[float, float]:
    """Of the axis."""
    least, most = _bounds(measure)
    ends = [end for row in rows for end in (*row.known, *_inside(row, measure))]
    ends += [least, most] if measure.unit == "points" else _SHOWN.get(measure.name, ())
    finite = [float(end) for end in ends if math.isfinite(end)] or [0.0, 1.0]
    room = 0.03 * (max(finite) - min(finite)) or 0.1
    return min(finite) - room, max(finite) + room


def _draw_chance(layout: Figure, rows: Sequence[_Row]) -> None:
    """A dotted line through the rows of every task, and how much it is."""
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


def _in_order(evidence: Evidence, measure: str) -> dict[str, np.ndarray]:
    """Arm → (s,) in the claim's order; then arms that it does not know any more."""
    scores = evidence.of(measure)
    return {
        name: scores[name]
        for name in dict.fromkeys((*arms_of(evidence), *scores))
        if name in scores
    }


def _shown(value: float, measure: Measure) -> str:
    number = f"{value:z.{digits_of(measure)}f}".replace("-", "−")
    return f"{number}%" if measure.unit == "points" else f"{number} {measure.unit}".rstrip()


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
