"""Figure of the differences between arms, pair by pair, and the regions of the statements."""

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
from attnkit.evidence.words import difference_in_words, finding_in_words, tested_in_words
from attnkit.figures.marks import STRIPE, Mark, dots, level, region, row_offsets, text
from attnkit.figures.panels import Axis, Figure, Panel, draw
from attnkit.figures.strips import (
    LINE,
    axis_title,
    color_and_symbol,
    mean_mark,
    scale_of,
)
from attnkit.foundation.language import mark, tr
from attnkit.training.statistics import Interval
from attnkit.variants.palette import REFERENCE, translucent

DIFFERENCES_KEY = mark(
    "A dot is the difference of both arms with one seed, filled in the shaded region, where the "
    "statement holds. A triangle at the edge: one of both runs never solves its task. The diamond "
    "is the median of counted pairs, or else the mean; its bar is the 95% interval."
)
"""How to read `plot_differences`."""

REGION = translucent(REFERENCE, 0.3)
"""Colour of the region in which a statement holds: grey, as colours mean variants."""

_HEADING = 48
"""Most characters in a line of text above a row."""

_HEIGHT = 34
"""Height of the dots of a row in pixels."""


def plot_differences(evidence: Evidence) -> Figure:
    """Plot the pairs of every statement in a row, with average and region; a panel per unit."""
    groups: dict[str, list[_Difference]] = {}
    for row in _differences_of(evidence):
        groups.setdefault(row.group, []).append(row)
    return draw([_panel(rows) for rows in groups.values()], right=8, top=6, bottom=46)


def _panel(rows: Sequence[_Difference]) -> Panel:
    """Return the panel of rows with the same unit; the unit of its vertical axis is one pixel."""
    low, high = _span(rows)
    marks, top = [], 0
    for row in rows:
        marks += row.marks(top, low, high)
        top += row.height
    x = Axis(low, high, _title(rows), grid=False)  # Lines would cross the text above the rows.
    return Panel(x, Axis(top, 0, visible=False), marks, height=top)


def describe_differences(evidence: Evidence) -> str:
    """Describe in words what `plot_differences` shows."""
    rows = _differences_of(evidence)
    return " ".join(f"{row.tested}: {row.in_words}." for row in rows) or tr("Nothing yet.")


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
    def tested(self) -> str:
        """The statement in words."""
        return tested_in_words(self.statement, self.finding)

    @property
    def in_words(self) -> str:
        """Verdict, pairs and difference in a few words."""
        verdict = tr(self.finding.verdict)
        return f"{verdict}: {finding_in_words(self.statement, self.finding)}"

    @property
    def lines(self) -> list[str]:
        """Lines of text above the row."""
        bold = [f"<b>{escape(line)}</b>" for line in textwrap.wrap(self.tested, _HEADING)]
        return [*bold, *map(escape, textwrap.wrap(self.in_words, _HEADING + 6))]

    @property
    def height(self) -> int:
        """Height of the row in pixels."""
        return LINE * len(self.lines) + _HEIGHT + 14

    def marks(self, top: int, low: float, high: float) -> list[Mark]:
        """Return the row below `top`: text, region, limits, zero, pairs, and mean with interval.

        Infinite pairs stand at the edges of the axis from `low` to `high`.
        """
        lower = top + self.height - 10
        ends = (lower - _HEIGHT, lower)
        bounds = (self.scale * self.statement.low, self.scale * self.statement.high)
        marks = [
            text("<br>".join(self.lines), None, top, y_anchor="top", is_html=True),
            region(None, ends, STRIPE),
            region((max(low, bounds[0]), min(high, bounds[1])), ends, REGION),
            *(
                level(bound, "solid", upright=True, ends=ends)
                for bound in bounds
                if math.isfinite(bound) and bound
            ),
            level(0.0, upright=True, ends=ends),
        ]
        color = color_and_symbol(self.evidence.arms.get(self.statement.left))[0]
        middle = lower - _HEIGHT / 2
        present = ~np.isnan(self.values)
        values = self.values[present]
        inside = (values > self.statement.low) | math.isinf(self.statement.low)
        inside &= (values < self.statement.high) | math.isinf(self.statement.high)
        seeds = np.array(self.evidence.seeds)[: len(self.values)][present]
        inset = 0.02 * (high - low)
        edges = {-math.inf: "triangle-left", math.inf: "triangle-right"}
        marks.append(
            dots(
                (self.scale * values).clip(low + inset, high - inset),
                [middle + 5 + 10 * (offset - 0.5) for offset in row_offsets(len(values))],
                color,
                symbol=[
                    edges.get(value, "circle") + ("" if is_inside else "-open")
                    for value, is_inside in zip(values, inside, strict=True)
                ],
                size=8,
                opacity=0.8,
                edge={"color": color, "width": 1.5},
                tips=[
                    tr(
                        "seed {seed}: {value}",
                        seed=seed,
                        value=difference_in_words(value, self.statement),
                    )
                    for seed, value in zip(seeds, values, strict=True)
                ],
            )
        )
        found = self.finding
        if math.isfinite(found.effect):
            numbers = np.array([found.effect, found.effect_low, found.effect_high])
            effect = Interval(*(self.scale * numbers))
            marks.append(mean_mark(effect, middle - 9, color, "diamond", escape(self.in_words)))
        return marks


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
        return tr(_TITLES[measure.unit])
    of_one_arm = [row.statement.right is None for row in rows]
    if all(of_one_arm):
        return axis_title(measure)
    if any(of_one_arm):
        # Translators: differences of a measure between two variants, or the measure of one.
        return tr("{measure}: difference, or itself", measure=tr(measure.title))
    return tr("{measure}: difference", measure=tr(measure.title))


_TITLES = {
    "points": mark("difference in points"),
    "doublings": mark("difference in doublings"),
    "nats": mark("difference in nats"),
}
"""Title of the axis of differences by their unit."""


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
