"""The evidence for a claim: every seed of every arm, and every difference that a statement is about.

Evidence in, Plotly figures out, as plain dictionaries; what they show is said in words, too.
A run that is still going on may lack arms and seeds: what is there is drawn.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from attnkit.claims.base import Arm, Statement
from attnkit.evidence.measures import MEASURES, Measure
from attnkit.evidence.record import Evidence
from attnkit.evidence.verdict import Finding, differences, find
from attnkit.figures.palette import COLORS, REFERENCE, translucent
from attnkit.figures.panels import Figure, Trace
from attnkit.sharing import Sharing
from attnkit.statistics import mean_interval
from attnkit.variants import Variant

EVIDENCE_KEY = (
    "A small mark is one seed; the large one is the mean of all, its bar the 95% interval "
    "(Student’s t)."
)
"""How to read `plot_evidence`."""

DIFFERENCES_KEY = (
    "A dot is the difference of one pair of seeds, filled where the statement holds for it; the "
    "diamond is the mean, its bar the 95% interval (Student’s t). Shaded: where the claim wants it."
)
"""How to read `plot_differences`."""

SYMBOLS: dict[Sharing, str] = {
    Sharing.QKV: "circle",
    Sharing.Q_K: "square",
    Sharing.K_V: "triangle-up",
    Sharing.Q_V: "triangle-down",
    Sharing.Q_K_V: "pentagon",
}
"""Nobody needs to tell colours apart."""

REGION = translucent("#56B4E9", 0.25)
"""Of what a claim wants; readable on light and dark."""

_STRIPE = translucent(REFERENCE, 0.09)

_LABEL = 19
"""Characters of a line of an arm's name: they leave room for the figure on a phone."""

_HEADING = 54
"""Characters of a line above a row of differences."""

_LINE, _STRIP, _AXIS = 16, 34, 58
"""Pixels: a line of text, the dots of a row of differences, an axis with ticks and title."""

_RANGES = {"asymmetry": (0.0, 0.5), "mass_on_target": (0.0, 1.0)}
"""Where a measure can lie, if that is shown whole; accuracies go from 0 to 100%."""


def plot_evidence(evidence: Evidence, measure: str | None = None) -> Figure:
    """A row for every arm: its seeds, their mean and its interval.

    Args:
        measure: a name of `MEASURES` that was recorded; that of the first statement, if None.
    """
    shown = _measure(evidence, measure)
    values = _in_order(evidence, shown.name)
    rows = [_Row(evidence, name, own * _scale(shown)) for name, own in values.items()]
    traces = [
        trace for place, row in enumerate(rows) for trace in _row_traces(row, shown, float(place))
    ]
    labels = [row.label for row in rows]
    tallest = max((label.count("<br>") + 1 for label in labels), default=1)
    layout = {
        **_bare_layout(),
        "margin": {"l": 8, "r": 14, "t": 24, "b": 44},
        "height": max(40, _LINE * tallest + 8) * max(1, len(rows)) + 68,
        "xaxis": _x_axis(*_range(shown, rows), _axis_title(shown)),
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


def plot_differences(evidence: Evidence) -> Figure:
    """A row for every statement, a panel for every unit: the pairs, their mean, the region."""
    panels: dict[str, list[_Difference]] = {}
    for row in _differences_of(evidence):
        panels.setdefault(row.group, []).append(row)
    total = sum(row.height for rows in panels.values() for row in rows) + _AXIS * len(panels)
    layout = {
        **_bare_layout(),
        "margin": {"l": 8, "r": 8, "t": 6, "b": 0},
        "height": max(total, _AXIS) + 6,
        "shapes": [],
        "annotations": [],
    }
    traces: list[Trace] = []
    above = 0
    for place, rows in enumerate(panels.values()):
        height = sum(row.height for row in rows)
        suffix = "" if place == 0 else str(place + 1)
        low, high = _span(rows)
        layout[f"xaxis{suffix}"] = _x_axis(low, high, rows[0].axis) | {"anchor": f"y{suffix}"}
        layout[f"yaxis{suffix}"] = {
            "range": [height, 0],  # a pixel is one
            "domain": [1 - (above + height) / total, 1 - above / total],
            "anchor": f"x{suffix}",
            "visible": False,
            "fixedrange": True,
        }
        top = 0
        for row in rows:
            traces += row.traces(suffix, top)
            layout["shapes"] += row.shapes(suffix, top, low, high)
            layout["annotations"].append(row.heading(suffix, top))
            top += row.height
        above += height + _AXIS
    return {"data": traces, "layout": layout}


def describe_evidence(evidence: Evidence, measure: str | None = None) -> str:
    """What `plot_evidence` shows, for those who do not see it."""
    shown = _measure(evidence, measure)
    said = [f"{_axis_title(shown)[0].upper()}{_axis_title(shown)[1:]}, arm by arm."]
    for name, own in _in_order(evidence, shown.name).items():
        row = _Row(evidence, name, own * _scale(shown))
        said.append(f"{name}: {_row_told(row, shown)}.")
    return " ".join(said)


def describe_differences(evidence: Evidence) -> str:
    """What `plot_differences` shows, for those who do not see it."""
    rows = _differences_of(evidence)
    return " ".join(f"{row.statement.text}: {row.told}." for row in rows) or "Nothing yet."


class _Row:
    """An arm with its seeds, on the scale that is shown."""

    def __init__(self, evidence: Evidence, name: str, values: np.ndarray) -> None:
        self.name = name
        self.known = values[~np.isnan(values)]
        self.seeds = [
            seed for seed, value in zip(evidence.seeds, values, strict=False) if value == value
        ]
        self.lost = len(values) - len(self.known)
        self.rate = evidence.tuned[name].rate if name in evidence.tuned else None
        interval = mean_interval(self.known)
        self.mean, self.low, self.high = (
            float(limit) for limit in (interval.mean, interval.low, interval.high)
        )
        arm = _arms(evidence).get(name)
        self.chance = None if arm is None else 100 * arm.experiment.task.chance
        self.color, self.symbol = _look(arm)

    @property
    def label(self) -> str:
        """Its name in at most three short lines, and how many of its seeds diverged."""
        lines = textwrap.wrap(self.name, _LABEL, max_lines=3, placeholder="…")
        return "<br>".join([*map(escape, lines), *([f"{self.lost} diverged"] if self.lost else [])])


@dataclass(frozen=True, eq=False)
class _Difference:
    """A statement with its pairs, on the scale that is shown."""

    evidence: Evidence
    statement: Statement
    values: np.ndarray
    found: Finding

    @property
    def scale(self) -> float:
        """What a difference is multiplied with."""
        return _scale(self.statement.measured)

    @property
    def group(self) -> str:
        """Rows of one panel have one unit."""
        measured = self.statement.measured
        return measured.unit or measured.name

    @property
    def axis(self) -> str:
        """What stands under its panel."""
        measured = self.statement.measured
        if self.statement.right is None:
            return _axis_title(measured)
        return (
            f"difference in {measured.unit}" if measured.unit else f"difference: {measured.title}"
        )

    @property
    def told(self) -> str:
        """Pairs, mean and verdict in a few words."""
        found, unit = self.found, self.statement.measured.unit
        digits = _digits(self.statement.measured)
        mean, low, high = (
            f"{self.scale * value:+.{digits}f}".replace("-", "−")
            for value in (found.effect, found.effect_low, found.effect_high)
        )
        lost = int(np.isnan(self.values).sum())
        parts = [f"holds in {found.n_holding} of {found.n_pairs} pairs"]
        if lost:
            parts.append(f"{lost} diverged")
        if lost < found.n_pairs:
            limits = "" if math.isnan(found.effect_low) else f" [{low} to {high}]"
            parts.append(f"mean {mean}{f' {unit}' if unit else ''}{limits}")
        return " · ".join([*parts, found.verdict])

    @property
    def lines(self) -> list[str]:
        """What stands above it."""
        bold = [f"<b>{escape(line)}</b>" for line in textwrap.wrap(self.statement.text, _HEADING)]
        return [*bold, *map(escape, textwrap.wrap(self.told, _HEADING + 8))]

    @property
    def height(self) -> int:
        """In pixels."""
        return _LINE * len(self.lines) + _STRIP + 14

    def heading(self, suffix: str, top: int) -> dict[str, object]:
        """The text above it."""
        return {
            "text": "<br>".join(self.lines),
            "xref": f"x{suffix} domain",
            "yref": f"y{suffix}",
            "x": 0,
            "y": top,
            "xanchor": "left",
            "yanchor": "top",
            "align": "left",
            "showarrow": False,
            "font": {"size": 12},
        }

    def shapes(self, suffix: str, top: int, low: float, high: float) -> list[dict[str, object]]:
        """Its region, the limits of it, and zero."""
        bottom = top + self.height - 10
        upper = bottom - _STRIP
        limits = (self.scale * self.statement.low, self.scale * self.statement.high)
        region = {
            "type": "rect",
            **_at(suffix, max(low, limits[0]), min(high, limits[1]), upper, bottom),
            "fillcolor": REGION,
            "line": {"width": 0},
            "layer": "below",
        }
        strip = {
            "type": "rect",
            **_at(suffix, low, high, upper, bottom),
            "fillcolor": _STRIPE,
            "line": {"width": 0},
            "layer": "below",
        }
        lines = [(limit, "solid") for limit in limits if math.isfinite(limit) and limit]
        upright = [
            {
                "type": "line",
                **_at(suffix, x, x, upper, bottom),
                "line": {"color": REFERENCE, "width": 1.5, "dash": dash},
                "layer": "below",
            }
            for x, dash in (*lines, (0.0, "dot"))
        ]
        return [strip, region, *upright]

    def traces(self, suffix: str, top: int) -> list[Trace]:
        """Its pairs, their mean and its interval."""
        color = _look(_arms(self.evidence).get(self.statement.left))[0]
        middle = top + self.height - 10 - _STRIP / 2
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        present = ~np.isnan(self.values)
        known = self.values[present]
        holding = (known > self.statement.low) & (known < self.statement.high)
        seeds = np.array(self.evidence.seeds)[: len(self.values)][present]
        x = (self.scale * known).tolist()
        unit = self.statement.measured.unit
        digits = _digits(self.statement.measured)
        pairs = {
            "type": "scatter",
            "mode": "markers",
            "x": x,
            "y": [middle + 5 + 10 * (share - 0.5) for share in _scatter(len(x))],
            "marker": {
                "symbol": ["circle" if inside else "circle-open" for inside in holding],
                "size": 8,
                "color": color,
                "opacity": 0.6,
                "line": {"color": color, "width": 1.5},
            },
            "hoverinfo": "text",
            "hovertext": [
                f"seed {seed}: {value:+.{digits}f} {unit}".replace("-", "−").rstrip()
                for seed, value in zip(seeds, x, strict=True)
            ],
            "showlegend": False,
            **axes,
        }
        if not x:
            return [pairs]
        found = self.found
        mean, low, high = (
            self.scale * value for value in (found.effect, found.effect_low, found.effect_high)
        )
        return [
            pairs,
            _mean_mark(mean, low, high, middle - 9, color, "diamond", escape(self.told), axes),
        ]


def _differences_of(evidence: Evidence) -> list[_Difference]:
    """Every statement whose arms were measured."""
    rows = []
    for statement in evidence.statements:
        scores = evidence.of(statement.measure)
        if all(name in scores for name in statement.arms):
            values = differences(statement, scores)
            rows.append(_Difference(evidence, statement, values, find(statement, values)))
    return rows


def _span(rows: Sequence[_Difference]) -> tuple[float, float]:
    """Of an axis: all pairs, intervals, limits and zero, and some of every region."""
    ends = [0.0]
    for row in rows:
        ends += (row.scale * row.values).tolist()
        ends += [row.scale * limit for limit in (row.found.effect_low, row.found.effect_high)]
        ends += [row.scale * limit for limit in (row.statement.low, row.statement.high)]
    finite = [end for end in ends if math.isfinite(end)]
    low, high = min(finite), max(finite)
    room = 0.1 * (high - low) or 1.0
    return low - room, high + room


def _row_traces(row: _Row, measure: Measure, place: float) -> list[Trace]:
    """Its seeds below, their mean above."""
    rate = "" if row.rate is None else f"<br>learning rate {row.rate:g}"
    name = escape(row.name)
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": row.known.tolist(),
        "y": [place + 0.02 + 0.3 * share for share in _scatter(len(row.known))],
        "marker": {"symbol": row.symbol, "size": 7, "color": row.color, "opacity": 0.5},
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
    return [dots, _mean_mark(row.mean, low, high, place - 0.2, row.color, row.symbol, text, {})]


def _mean_mark(
    mean: float,
    low: float,
    high: float,
    y: float,
    color: str,
    symbol: str,
    text: str,
    axes: dict[str, str],
) -> Trace:
    """A bold mark, and a bar where there are limits."""
    trace: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [mean],
        "y": [y],
        "marker": {"symbol": symbol, "size": 13, "color": color, "line": {"width": 0}},
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
            "thickness": 3,
            "width": 6,
        }
    return trace


def _row_told(row: _Row, measure: Measure) -> str:
    lost = f", {row.lost} diverged" if row.lost else ""
    n = len(row.known)
    if not n:
        return f"no seed yet{lost}"
    seeds = f"{n} seeds" if n > 1 else "1 seed"
    low, high = (_shown(limit, measure) for limit in _inside(row, measure))
    limits = "" if math.isnan(row.low) else f" [{low} to {high}]"
    return f"mean {_shown(row.mean, measure)}{limits}, {seeds}{lost}"


def _inside(row: _Row, measure: Measure) -> tuple[float, float]:
    """Limits of the mean, no further than the measure goes."""
    low, high = _bounds(measure)
    return max(low, row.low), min(high, row.high)


def _bounds(measure: Measure) -> tuple[float, float]:
    if measure.unit == "points":
        return 0.0, 100.0
    return _RANGES.get(measure.name, (-math.inf, math.inf))


def _range(measure: Measure, rows: Sequence[_Row]) -> tuple[float, float]:
    """Of the axis: all that the measure can be, or all that there is."""
    low, high = _bounds(measure)
    if math.isinf(low):
        ends = [end for row in rows for end in (*row.known, row.low, row.high)]
        finite = [float(end) for end in ends if math.isfinite(end)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
    room = 0.03 * (high - low) or 0.1
    return low - room, high + room


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
    low, high = (f"{end:.0f}" for end in (min(chances), max(chances)))
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


def _arms(evidence: Evidence) -> dict[str, Arm]:
    return {arm.name: arm for arm in (*evidence.claim.arms, *evidence.claim.sure()[0])}


def _in_order(evidence: Evidence, measure: str) -> dict[str, np.ndarray]:
    """Arm → (s,) in the claim's order; then arms that it does not know any more."""
    scores = evidence.of(measure)
    return {
        name: scores[name] for name in dict.fromkeys((*_arms(evidence), *scores)) if name in scores
    }


def _look(arm: Arm | None) -> tuple[str, str]:
    """Colour and symbol of its sharing."""
    if arm is None:
        return REFERENCE, "x"
    sharing = Variant(arm.variant).sharing
    return COLORS[sharing], SYMBOLS[sharing]


def _scatter(n: int) -> list[float]:
    """Shares of a row's height, spread evenly and always the same."""
    return [(0.618034 * (place + 1)) % 1 for place in range(n)]


def _scale(measure: Measure) -> float:
    return 100.0 if measure.unit == "points" else 1.0


def _digits(measure: Measure) -> int:
    return 1 if measure.unit == "points" else 3


def _shown(value: float, measure: Measure) -> str:
    number = f"{value:.{_digits(measure)}f}".replace("-", "−")
    return f"{number}%" if measure.unit == "points" else f"{number} {measure.unit}".rstrip()


def _axis_title(measure: Measure) -> str:
    unit = "percent" if measure.unit == "points" else measure.unit
    return f"{measure.title}, {unit}" if unit else measure.title


def _x_axis(low: float, high: float, title: str) -> Figure:
    return {
        "range": [low, high],
        "title": {"text": escape(title), "font": {"size": 13}, "standoff": 6},
        "nticks": 6,
        "zeroline": False,
        "gridcolor": translucent(REFERENCE, 0.3),
        "fixedrange": True,
    }


def _stripe(place: int) -> dict[str, object]:
    return {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": place - 0.5,
        "y1": place + 0.5,
        "fillcolor": _STRIPE,
        "line": {"width": 0},
        "layer": "below",
    }


def _at(suffix: str, x0: float, x1: float, y0: float, y1: float) -> dict[str, object]:
    axes = {"xref": f"x{suffix}", "yref": f"y{suffix}"}
    return {**axes, "x0": x0, "x1": x1, "y0": y0, "y1": y1}


def _bare_layout() -> Figure:
    return {
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
