"""Figure of the differences between arms, pair by pair, and the regions of the statements.

It is a plain dictionary in Plotly's schema, with a description in words.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from attnkit.claims.statements import Statement
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
    "A dot is the difference of both arms with one seed, filled in the shaded region, where the "
    "statement holds. A triangle at the edge: one of both runs never solves its task. The diamond "
    "is the mean, its bar the 95% interval."
)
"""How to read `plot_differences`."""

REGION = translucent(REFERENCE, 0.3)
"""Colour of the region in which a statement holds: grey, as colours mean variants."""

_HEADING = 48
"""Most characters in a line of text above a row."""

_STRIP, _AXIS = 34, 52
"""Heights in pixels of the dots of a row, and of an axis with ticks and title."""


def plot_differences(evidence: Evidence) -> Figure:
    """Plot the pairs of every statement in a row, with mean and region; a panel for every unit."""
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
    for panel, rows in enumerate(panels.values()):
        height = sum(row.height for row in rows)
        suffix = "" if panel == 0 else str(panel + 1)
        low, high = _span(rows)
        layout[f"xaxis{suffix}"] = {
            **x_axis(low, high, _title(rows)),
            "anchor": f"y{suffix}",
            "showgrid": False,  # Lines would cross the text above the rows.
        }
        layout[f"yaxis{suffix}"] = {
            "range": [height, 0],  # The unit is one pixel.
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
    """A row of the figure: a statement with the differences of its pairs and its finding."""

    evidence: Evidence
    statement: Statement
    values: np.ndarray
    finding: Finding

    @property
    def scale(self) -> float:
        """Factor from differences to values on the axis."""
        return scale_of(self.statement.measured)

    @property
    def group(self) -> str:
        """Key of the row's panel: its unit, or its measure if it has none."""
        measure = self.statement.measured
        return measure.unit or measure.name

    @property
    def in_words(self) -> str:
        """Verdict, pairs, median and mean in a few words."""
        return f"{self.finding.verdict}: {finding_in_words(self.statement, self.finding)}"

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
        """Return the text above the row as a Plotly annotation."""
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
        """Return the region, its limits, and zero as Plotly shapes."""
        bottom = top + self.height - 10
        upper = bottom - _STRIP
        limits = (self.scale * self.statement.low, self.scale * self.statement.high)
        region = {
            "type": "rect",
            **_rectangle(suffix, max(low, limits[0]), min(high, limits[1]), upper, bottom),
            "fillcolor": REGION,
            "line": {"width": 0},
            "layer": "below",
        }
        strip = {
            "type": "rect",
            **_rectangle(suffix, low, high, upper, bottom),
            "fillcolor": STRIPE,
            "line": {"width": 0},
            "layer": "below",
        }
        lines = [(limit, "solid") for limit in limits if math.isfinite(limit) and limit]
        vertical_lines = [
            {
                "type": "line",
                **_rectangle(suffix, x, x, upper, bottom),
                "line": {"color": REFERENCE, "width": 1.5, "dash": dash},
                "layer": "below",
            }
            for x, dash in (*lines, (0.0, "dot"))
        ]
        return [strip, region, *vertical_lines]

    def traces(self, suffix: str, top: int, low: float, high: float) -> list[Trace]:
        """Return the pairs, with infinite ones at the edge, and their mean with its interval."""
        color = color_and_symbol(arms_of(self.evidence).get(self.statement.left))[0]
        middle = top + self.height - 10 - _STRIP / 2
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        present = ~np.isnan(self.values)
        values = self.values[present]
        low_limit, high_limit = self.statement.low, self.statement.high
        inside = (values > low_limit) | math.isinf(low_limit)
        inside &= (values < high_limit) | math.isinf(high_limit)
        seeds = np.array(self.evidence.seeds)[: len(self.values)][present]
        inset = 0.02 * (high - low)
        edges = {-math.inf: "triangle-left", math.inf: "triangle-right"}
        symbols = [edges.get(value, "circle") for value in values]
        pairs = {
            "type": "scatter",
            "mode": "markers",
            "x": (self.scale * values).clip(low + inset, high - inset).tolist(),
            "y": [middle + 5 + 10 * (offset - 0.5) for offset in row_offsets(len(values))],
            "marker": {
                "symbol": [
                    symbol if is_inside else f"{symbol}-open"
                    for symbol, is_inside in zip(symbols, inside, strict=True)
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
                for seed, value in zip(seeds, values, strict=True)
            ],
            "showlegend": False,
            **axes,
        }
        finding = self.finding
        if math.isnan(finding.effect):
            return [pairs]
        mean, mean_low, mean_high = (
            self.scale * value
            for value in (finding.effect, finding.effect_low, finding.effect_high)
        )
        text = escape(self.in_words)
        return [
            pairs,
            mean_mark(mean, mean_low, mean_high, middle - 9, color, "diamond", text, axes),
        ]


def _differences_of(evidence: Evidence) -> list[_Difference]:
    """Return a row for every statement whose arms were measured."""
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
    """Return the title of a panel's axis."""
    measure = rows[0].statement.measured
    if measure.unit:
        return f"difference in {measure.unit}"
    of_one_arm = [row.statement.right is None for row in rows]
    if all(of_one_arm):
        return axis_title(measure)
    return f"{measure.title}: difference{', or itself' if any(of_one_arm) else ''}"


def _span(rows: Sequence[_Difference]) -> tuple[float, float]:
    """Return the range of an axis, with zero and all finite pairs, intervals and limits."""
    ends = [0.0]
    for row in rows:
        ends += (row.scale * row.values).tolist()
        ends += [row.scale * limit for limit in (row.finding.effect_low, row.finding.effect_high)]
        ends += [row.scale * limit for limit in (row.statement.low, row.statement.high)]
    finite = [end for end in ends if math.isfinite(end)]
    low, high = min(finite), max(finite)
    margin = 0.1 * (high - low) or 1.0
    return low - margin, high + margin


def _rectangle(suffix: str, x0: float, x1: float, y0: float, y1: float) -> dict[str, object]:
    axes = {"xref": f"x{suffix}", "yref": f"y{suffix}"}
    return {**axes, "x0": x0, "x1": x1, "y0": y0, "y1": y1}
