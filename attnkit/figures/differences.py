"""Figure of the differences that statements are about, pair by pair, and the region they want.

Evidence in, a Plotly figure out, as a plain dictionary; a description in words stands beside it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from attnkit.claims.base import Statement
from attnkit.evidence.record import Evidence
from attnkit.evidence.verdict import Finding, differences, judge_statement
from attnkit.evidence.words import difference_in_words, finding_in_words
from attnkit.figures.panels import Figure, Trace
from attnkit.figures.strips import (
    LINE,
    STRIPE,
    arms_of,
    axis_title,
    bare_layout,
    color_and_symbol,
    mean_mark,
    row_offsets,
    scale_of,
    x_axis,
)
from attnkit.variants.palette import REFERENCE, translucent

DIFFERENCES_KEY = (
    "A dot is the difference of one pair of seeds, filled inside the shaded region, where the "
    "claim wants it; a triangle at the edge is a pair of which one run never solves its task. The "
    "diamond is the mean, its bar the 95% interval (Student’s t)."
)
"""How to read `plot_differences`."""

REGION = translucent("#56B4E9", 0.2)
"""Colour of the region that a claim wants; readable on light and dark."""

_HEADING = 48
"""Characters in a line above a row."""

_STRIP, _AXIS = 34, 52
"""Heights in pixels: the dots of a row, and an axis with ticks and title."""


def plot_differences(evidence: Evidence) -> Figure:
    """Plot a row for every statement, a panel for every unit: pairs, their mean, the region."""
    panels: dict[str, list[_Difference]] = {}
    for row in _differences_of(evidence):
        panels.setdefault(row.group, []).append(row)
    total = sum(row.height for rows in panels.values() for row in rows) + _AXIS * len(panels)
    layout = {
        **bare_layout(),
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
        layout[f"xaxis{suffix}"] = {
            **x_axis(low, high, _title(rows)),
            "anchor": f"y{suffix}",
            "showgrid": False,  # it would cross the text above the rows
        }
        layout[f"yaxis{suffix}"] = {
            "range": [height, 0],  # a pixel is one
            "domain": [1 - (above + height) / total, 1 - above / total],
            "anchor": f"x{suffix}",
            "visible": False,
            "fixedrange": True,
        }
        top = 0
        for row in rows:
            traces += row.traces(suffix, top, low, high)
            layout["shapes"] += row.shapes(suffix, top, low, high)
            layout["annotations"].append(row.heading(suffix, top))
            top += row.height
        above += height + _AXIS
    return {"data": traces, "layout": layout}


def describe_differences(evidence: Evidence) -> str:
    """Describe in words what `plot_differences` shows."""
    rows = _differences_of(evidence)
    return " ".join(f"{row.statement.text}: {row.in_words}." for row in rows) or "Nothing yet."


@dataclass(frozen=True, eq=False)
class _Difference:
    """A statement with its pairs, on the scale that is shown."""

    evidence: Evidence
    statement: Statement
    values: np.ndarray
    found: Finding

    @property
    def scale(self) -> float:
        """Factor by which a difference is multiplied."""
        return scale_of(self.statement.measured)

    @property
    def group(self) -> str:
        """Name of the panel: rows of one panel have one unit."""
        measured = self.statement.measured
        return measured.unit or measured.name

    @property
    def in_words(self) -> str:
        """Verdict, pairs, median and mean in a few words."""
        return f"{self.found.verdict}: {finding_in_words(self.statement, self.found)}"

    @property
    def lines(self) -> list[str]:
        """Lines of text above the row."""
        bold = [f"<b>{escape(line)}</b>" for line in textwrap.wrap(self.statement.text, _HEADING)]
        return [*bold, *map(escape, textwrap.wrap(self.in_words, _HEADING + 6))]

    @property
    def height(self) -> int:
        """Height of the row in pixels."""
        return LINE * len(self.lines) + _STRIP + 14

    def heading(self, suffix: str, top: int) -> dict[str, object]:
        """Return the text above the row."""
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
        """Return the region, its limits, and zero."""
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
            "fillcolor": STRIPE,
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

    def traces(self, suffix: str, top: int, low: float, high: float) -> list[Trace]:
        """Return the pairs, their mean and its interval; infinite pairs stand at the edge."""
        color = color_and_symbol(arms_of(self.evidence).get(self.statement.left))[0]
        middle = top + self.height - 10 - _STRIP / 2
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        present = ~np.isnan(self.values)
        known = self.values[present]
        low_limit, high_limit = self.statement.low, self.statement.high
        holding = (known > low_limit) | math.isinf(low_limit)
        holding &= (known < high_limit) | math.isinf(high_limit)
        seeds = np.array(self.evidence.seeds)[: len(self.values)][present]
        inset = 0.02 * (high - low)
        edges = {-math.inf: "triangle-left", math.inf: "triangle-right"}
        symbols = [edges.get(value, "circle") for value in known]
        pairs = {
            "type": "scatter",
            "mode": "markers",
            "x": (self.scale * known).clip(low + inset, high - inset).tolist(),
            "y": [middle + 5 + 10 * (share - 0.5) for share in row_offsets(len(known))],
            "marker": {
                "symbol": [
                    symbol if inside else f"{symbol}-open"
                    for symbol, inside in zip(symbols, holding, strict=True)
                ],
                "size": 8,
                "color": color,
                "opacity": 0.8,
                "line": {"color": color, "width": 1.5},
            },
            "cliponaxis": False,
            "hoverinfo": "text",
            "hovertext": [
                f"seed {seed}: {difference_in_words(value, self.statement)}"
                for seed, value in zip(seeds, known, strict=True)
            ],
            "showlegend": False,
            **axes,
        }
        found = self.found
        if math.isnan(found.effect):
            return [pairs]
        mean, least, most = (
            self.scale * value for value in (found.effect, found.effect_low, found.effect_high)
        )
        text = escape(self.in_words)
        return [pairs, mean_mark(mean, least, most, middle - 9, color, "diamond", text, axes)]


def _differences_of(evidence: Evidence) -> list[_Difference]:
    """Return every statement whose arms were measured."""
    rows = []
    for statement in evidence.statements:
        scores = evidence.scores_at(statement.measure, statement.at)
        if all(name in scores for name in statement.arms):
            values = differences(statement, scores)
            rows.append(
                _Difference(evidence, statement, values, judge_statement(statement, values))
            )
    return rows


def _title(rows: Sequence[_Difference]) -> str:
    """Return the title under a panel."""
    measured = rows[0].statement.measured
    if measured.unit:
        return f"difference in {measured.unit}"
    itself = [row.statement.right is None for row in rows]
    if all(itself):
        return axis_title(measured)
    return f"{measured.title}: difference{', or itself' if any(itself) else ''}"


def _span(rows: Sequence[_Difference]) -> tuple[float, float]:
    """Return the range of an axis: all pairs, intervals, limits, zero, some of every region."""
    ends = [0.0]
    for row in rows:
        ends += (row.scale * row.values).tolist()
        ends += [row.scale * limit for limit in (row.found.effect_low, row.found.effect_high)]
        ends += [row.scale * limit for limit in (row.statement.low, row.statement.high)]
    finite = [end for end in ends if math.isfinite(end)]
    low, high = min(finite), max(finite)
    room = 0.1 * (high - low) or 1.0
    return low - room, high + room


def _at(suffix: str, x0: float, x1: float, y0: float, y1: float) -> dict[str, object]:
    axes = {"xref": f"x{suffix}", "yref": f"y{suffix}"}
    return {**axes, "x0": x0, "x1": x1, "y0": y0, "y1": y1}
