"""Figure of the evidence for a claim: the scores of all seeds, arm by arm.

Evidence of a run in progress may lack arms and seeds; what is there is plotted.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from html import escape

import numpy as np

from attnkit.claims.base import Arm, arm_title
from attnkit.claims.measures import MEASURES, Measure
from attnkit.claims.statements import Statement
from attnkit.evidence.record import Evidence
from attnkit.figures.marks import Mark, dots, level, row_offsets, stripes, text
from attnkit.figures.panels import Axis, Figure, Panel, draw, row_axis
from attnkit.figures.strips import (
    LINE,
    axis_title,
    color_and_symbol,
    mean_mark,
    scale_of,
    value_in_words,
)
from attnkit.foundation.language import in_language, mark, tr, tr_n
from attnkit.foundation.words import capitalised
from attnkit.training.metrics import SHOWN
from attnkit.training.statistics import mean_interval, median_interval
from attnkit.training.summary import in_percent

EVIDENCE_KEY = mark(
    "A small mark is one seed; the large mark is their median, or the mean of losses and "
    "symmetries; its bar is the 95% interval."
)
"""How to read `plot_evidence`."""

_LABEL = 19
"""Most characters in a line of an arm's name, which leave room for the figure on a phone."""

_INCLUDED = {"asymmetry": (0.0, 0.5), "weight_symmetry": (0.0, 1.0), "mass_on_target": (0.0, 1.0)}
"""Range of values of a measure that the axis always includes."""


def plot_evidence(evidence: Evidence, measure: str | None = None) -> Figure:
    """Plot a row per arm: its seeds, their median or mean, and its 95% interval.

    Args:
        evidence: The evidence. Every arm is read at the step at which its statement reads it.
        measure: Name of a recorded measure, or None for that of the first statement.
    """
    plotted = _measure(evidence, measure)
    rows = _rows_of(evidence, plotted)
    labels = [row.label for row in rows]
    tallest = max((label.count("<br>") + 1 for label in labels), default=1)
    marks = stripes(len(rows)) + (_chance(rows) if plotted.unit == "points" else [])
    marks += [mark for y, row in enumerate(rows) for mark in _row_marks(row, plotted, y)]
    height = max(40, LINE * tallest + 8) * max(1, len(rows))
    return draw([Panel(_axis(plotted, rows), row_axis(labels), marks, height=height)], top=24)


def describe_evidence(evidence: Evidence, measure: str | None = None) -> str:
    """Describe in words what `plot_evidence` shows."""
    plotted = _measure(evidence, measure)
    heading = tr("{measure}, arm by arm.", measure=capitalised(axis_title(plotted)))
    rows = (f"{row.title}: {_row_in_words(row, plotted)}." for row in _rows_of(evidence, plotted))
    return " ".join([heading, *rows])


class _Row:
    """A row of the figure: an arm and the scores of its seeds, on the scale of the axis."""

    def __init__(self, evidence: Evidence, name: str, arm: Arm | None, measure: Measure) -> None:
        times = _read_at(evidence, name)
        values = evidence.scores_at(measure.name, times)[name] * scale_of(measure)
        finite = np.isfinite(values)
        self.values = values[finite]
        self.seeds = [
            seed for seed, is_finite in zip(evidence.seeds, finite, strict=False) if is_finite
        ]
        n_unsolved = int(np.isinf(values).sum())
        # An arm that is never tied has no accuracy when tied; it has not diverged if it has a loss.
        losses = evidence.scores_at("loss", times).get(name, values)
        n_diverged = int(np.isnan(losses).sum())
        n_solved, n_all = evidence.n_solved(name, times) if measure.name == "accuracy" else (0, 0)
        self.failures: list[str] = []
        if n_diverged:
            self.failures.append(tr_n("{n} diverged", "{n} diverged", n_diverged))
        if n_unsolved:
            self.failures.append(tr_n("{n} unsolved", "{n} unsolved", n_unsolved))
        if 0 < n_solved < n_all:
            self.failures.append(
                tr_n("{n} of {total} solves it", "{n} of {total} solve it", n_solved, total=n_all)
            )
        self.rate = evidence.tuned[name].rate if name in evidence.tuned else None
        interval = mean_interval(self.values) if measure.compares_means else median_interval(values)
        self.interval = interval.within(*_bounds(measure))
        self.chance = None if arm is None else 100 * arm.experiment.task.chance
        self.color, self.symbol = color_and_symbol(arm)
        self.name = self.title = arm_title(name)
        self.notes = list(self.failures)
        if arm in evidence.claim.arms and min(times, arm.up_to) > 1:
            steps = tr_n("{n:,} step", "{n:,} steps", min(times, arm.up_to) * arm.base_steps)
            self.title += f", {steps}"
            self.notes.insert(0, steps)

    @property
    def label(self) -> str:
        """Label of the row: name in at most three lines, steps, and numbers of failed seeds."""
        lines = textwrap.wrap(self.name, _LABEL, max_lines=3, placeholder="…")
        return "<br>".join([*map(escape, lines), *self.notes])


def _row_marks(row: _Row, measure: Measure, y: int) -> list[Mark]:
    """Return the marks of a row at height y: seeds below, their median or mean above."""
    rate = [] if row.rate is None else [tr("learning rate {rate:g}", rate=row.rate)]
    name = escape(row.title)
    texts = [
        tr("seed {seed}: {value}", seed=seed, value=value_in_words(value, measure))
        for seed, value in zip(row.seeds, row.values, strict=True)
    ]
    tips = ["<br>".join([name, one, *rate]) for one in texts]
    places = [y + 0.02 + 0.3 * offset for offset in row_offsets(len(row.values))]
    marks = [dots(row.values, places, row.color, symbol=row.symbol, opacity=0.75, tips=tips)]
    if np.isfinite(row.interval.mean):
        tip = "<br>".join([name, _row_in_words(row, measure), *rate])
        marks.append(mean_mark(row.interval, y - 0.2, row.color, row.symbol, tip))
    return marks


def _row_in_words(row: _Row, measure: Measure) -> str:
    n = len(row.values)
    if not n:
        return ", ".join([tr("no value"), *row.failures])
    average, *ends = (float(number) for number in vars(row.interval).values())
    if not math.isfinite(average):
        median = value_in_words(float(np.median(row.values)), measure)
        words = tr("median of those that solve it {value}", value=median)
    else:
        value = value_in_words(average, measure)
        words = tr(_AVERAGE[measure.compares_means], value=value)
        if np.isfinite(ends).all():
            low, high = (value_in_words(limit, measure) for limit in ends)
            if low != high:
                template = _WITH_INTERVAL[measure.compares_means]
                words = tr(template, value=value, low=low, high=high)
    return ", ".join([words, tr_n("{n} seed", "{n} seeds", n), *row.failures])


_AVERAGE = {True: mark("mean {value}"), False: mark("median {value}")}
_WITH_INTERVAL = {
    True: mark("mean {value} [{low} to {high}]"),
    False: mark("median {value} [{low} to {high}]"),
}
"""Averages with their intervals, by whether they are means."""


def _bounds(measure: Measure) -> tuple[float, float]:
    """Return the range of possible values, where it is known; shares in percent."""
    if measure.unit == "points":
        return 0.0, 100.0
    known = not measure.unit and measure.name in SHOWN
    return SHOWN[measure.name].limits if known else (-math.inf, math.inf)


def _axis(measure: Measure, rows: Sequence[_Row]) -> Axis:
    """Return the horizontal axis."""
    ends = [end for row in rows for end in (*row.values, row.interval.low, row.interval.high)]
    ends += _bounds(measure) if measure.unit == "points" else _INCLUDED.get(measure.name, ())
    finite = [float(end) for end in ends if math.isfinite(end)] or [0.0, 1.0]
    margin = 0.03 * (max(finite) - min(finite)) or 0.1
    axis = Axis(min(finite) - margin, max(finite) + margin, axis_title(measure))
    if measure.unit == "points":
        return replace(axis, ticks=(0, 25, 50, 75, 100))
    if measure.unit != "doublings":
        return axis
    powers = list(range(math.ceil(min(finite) - margin), math.floor(max(finite) + margin) + 1))
    powers = powers[:: 1 + len(powers) // 6]
    texts = [in_language(f"{2**power:,}", 2**power) for power in powers]
    return replace(axis, ticks=powers, texts=texts)


def _chance(rows: Sequence[_Row]) -> list[Mark]:
    """Return a dotted line at the chance level of every row, and its value above them."""
    known = [(y, row.chance) for y, row in enumerate(rows) if row.chance is not None]
    if not known:
        return []
    least, most = (end(chance for _, chance in known) for end in (min, max))
    low, high = f"{least:.3g}", f"{most:.3g}"
    if low == high:
        words = tr("chance {share}", share=in_percent(low))
    else:
        words = tr("chance {low} to {high}", low=low, high=in_percent(high))
    lines = [level(chance, upright=True, ends=(y - 0.5, y + 0.5)) for y, chance in known]
    return [*lines, text(words, least, x_anchor="center" if least > 15 else "left")]


def _measure(evidence: Evidence, name: str | None) -> Measure:
    return MEASURES[_first_statement(evidence).measure if name is None else name]


def _first_statement(evidence: Evidence) -> Statement:
    """Return the first statement that was tested; the claim's first one if none was."""
    return (*evidence.statements, *evidence.claim.statements)[0]


def _rows_of(evidence: Evidence, measure: Measure) -> list[_Row]:
    """Return rows for the claim's arms in their order, then for arms that it no longer has.

    An arm has one row, with its best recipe.
    """
    rivals = {arm.name for arm in evidence.rivals}
    arms, scores = evidence.arms, evidence.scores_at(measure.name)
    return [
        _Row(evidence, name, arms.get(name), measure)
        for name in dict.fromkeys((*arms, *scores))
        if name in scores and name not in rivals
    ]


def _read_at(evidence: Evidence, name: str) -> int:
    """Return the multiple of the base steps at which the first statement on an arm reads it."""
    for statement in evidence.statements:
        if name in statement.arms:
            return statement.at
    followed = {arm.name: arm.up_to for _, arm in evidence.lost}
    return followed.get(name, _first_statement(evidence).at)
