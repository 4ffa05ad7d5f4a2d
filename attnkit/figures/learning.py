"""Figure of the learning curves of a claim's arms, accuracy or loss by logarithm of the steps."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace
from html import escape

import numpy as np

from attnkit.claims.base import Arm, arm_title
from attnkit.claims.measures import multiples
from attnkit.claims.statements import Statement
from attnkit.evidence.record import Evidence
from attnkit.evidence.stored import Curve
from attnkit.evidence.words import longer_in_words
from attnkit.figures.marks import Mark, band, curve, dots, level, text
from attnkit.figures.panels import Axis, Figure, Panel, draw
from attnkit.figures.strips import color_and_symbol
from attnkit.foundation.language import in_language, mark, tr, tr_n
from attnkit.training.summary import in_percent, percent

LEARNING_KEY = mark(
    "A line is the mean over seeds, its band the middle half of them; a mark stands at every "
    "doubling of the steps. Dashed upright line: the end of a short run. Thin dotted line: "
    "the last value of an arm that is trained for fewer steps."
)
"""How to read `plot_learning`."""

COURSE_KEY = mark("A line is the mean over seeds, its band the middle half of them.")
"""How to read `plot_learning` of one statement."""

NARROW = 480
"""Width in pixels of a figure up to which the names of lines stand below the panels."""

_DASHES = ("solid", "dash", "dashdot", "longdash", "dot")
"""Dashes of the first, second, … line of the same colour in a panel."""

_LARGE, _SMALL = (16, 230), (27, 84)
"""Most characters in a line of a label, and height of the smallest panel in pixels: in the figure
of all arms, and in that of one statement."""

_LINE, _GAP = 14, 7
"""Height of a line of a label and gap between labels in pixels."""


def plot_learning(
    evidence: Evidence, statement: Statement | None = None, *, narrow: bool = False
) -> Figure | None:
    """Plot a panel for every task with long runs, a line per arm; None if there is nothing to plot.

    Args:
        evidence: The evidence.
        statement: Statement of whose task a small panel is plotted instead. Arms that no statement
            compares are left out, and so are those that confirm an inability, unless this statement
            compares them.
        narrow: Whether the names of the arms stand below the panels instead of beside them.
    """
    size = _LARGE if statement is None else _SMALL
    panels = [_panel(lines, size, narrow) for lines in _arms_of(evidence, statement)]
    if not panels:
        return None
    right = 12 if narrow else 28 + 6 * size[0]
    return draw(panels, left=46, right=right, top=28, bottom=52, legend="below" if narrow else "")


def describe_learning(evidence: Evidence, statement: Statement | None = None) -> str:
    """Describe in words what `plot_learning` shows."""
    texts = [tr("How the arms learn.")]
    for line in (line for lines in _arms_of(evidence, statement) for line in lines):
        means = ", ".join(
            tr_n(
                "{value} after {n:,} step",
                "{value} after {n:,} steps",
                times * line.arm.base_steps,
                value=line.form(line.scale * evidence.mean(line.arm.name, line.by, times)),
            )
            for times in multiples(line.arm.up_to)
        )
        if line.by == "accuracy":
            texts.append(tr("{arm}: mean accuracy {values}.", arm=line.title, values=means))
        else:
            texts.append(tr("{arm}: mean loss {values}.", arm=line.title, values=means))
    texts.append(longer_in_words(evidence) if statement is None else "")
    return " ".join(filter(None, texts))


class _Line:
    """The curve of an arm, from an eighth of the base steps on, accuracies in percent."""

    def __init__(self, arm: Arm, curve: Curve, dash: str, title: str) -> None:
        self.arm, self.dash, self.title, self.by = arm, dash, title, curve.by
        self.color, self.symbol = color_and_symbol(arm)
        self.scale = 100.0 if curve.by == "accuracy" else 1.0
        shown = curve.steps >= arm.base_steps / 8
        self.steps = curve.steps[shown]
        curves = (curve.mean, curve.low, curve.high)
        self.mean, self.low, self.high = (self.scale * values[shown] for values in curves)

    def form(self, value: float) -> str:
        """Return the text of a value as it is drawn."""
        if math.isnan(value):
            return tr("diverged")
        is_loss = self.by == "loss"
        return tr("{loss:.2f} nats", loss=value) if is_loss else percent(value / 100)

    def label(self, width: int) -> list[str]:
        """Return the name in lines of at most `width` characters."""
        lines = textwrap.wrap(self.title, width, max_lines=4, placeholder="…")
        return [escape(line) for line in lines]


def _arms_of(evidence: Evidence, statement: Statement | None) -> list[list[_Line]]:
    """Return the lines of every panel of `plot_learning`: one for each task and its base steps."""
    rivals = {arm.name for arm in evidence.rivals}
    names = [name for name in evidence.arms if name in evidence.curves and name not in rivals]
    arms = {name: evidence.arms[name] for name in names}
    if statement is None:  # arms with long runs, and arms compared with these
        shown = {name for name, arm in arms.items() if arm.up_to > 1}
        shown.update(name for name, _ in evidence.lost)
        compared = [one.arms for one in evidence.statements if shown.intersection(one.arms)]
        shown = shown.union(*compared)
    else:
        shown = {arm.name for arm in evidence.claim.compared_arms}.union(statement.arms)
    panels: dict[tuple[str, int], list[_Line]] = {}
    for name, arm in arms.items():
        known = evidence.curves[name]
        if name in shown and len(known.steps):
            lines = panels.setdefault((repr(arm.experiment.task), arm.base_steps), [])
            n_alike = sum((one.color, one.symbol) == color_and_symbol(arm) for one in lines)
            dash = _DASHES[n_alike % len(_DASHES)]
            lines.append(_Line(arm, known, dash, arm_title(name)))
    return [
        lines
        for lines in panels.values()
        if statement is None or statement.left in [line.arm.name for line in lines]
    ]


def _panel(lines: list[_Line], size: tuple[int, int], narrow: bool) -> Panel:
    """Return the panel of lines of one task with the same base steps.

    Labels stand beside the lines, or in a legend below a narrow figure.
    """
    task, base = lines[0].arm.experiment.task, lines[0].arm.base_steps
    is_loss = lines[0].by == "loss"
    last = max(float(line.steps[-1]) for line in lines)
    to_beat = task.loss_to_beat if is_loss else 100 * task.chance
    ends = [0.0, 100.0]
    if is_loss:
        drawn = [values for line in lines for values in (line.low, line.high)]
        ends = [float(end) for values in drawn for end in (values.min(), values.max())]
    ends += [] if to_beat is None else [to_beat]
    margin = 0.03 * (max(ends) - min(ends))
    low, high = min(ends) - margin, max(ends) + margin
    y = Axis(low, high)
    if not is_loss:
        ticks = range(0, 101, 25)
        y = replace(y, ticks=ticks, texts=[in_percent(f"{tick}") for tick in ticks])
    powers = range(-3, math.floor(math.log2(last / base)) + 1)
    labelled_every = 1 if len(powers) <= 5 else 2
    places = [base * 2.0**power for power in powers]
    texts = [
        "" if power % labelled_every else in_language(f"{place:,.0f}", place)
        for power, place in zip(powers, places, strict=True)
    ]
    x = Axis(base / 8, last, tr("steps"), places, texts, log=True)
    measure = tr("loss, nats") if is_loss else tr("accuracy")
    end = tr_n("{n:,} step", "{n:,} steps", base)
    marks = [
        text(measure, shift=(-42, 0)),
        level(base, "dash", upright=True),
        text(end, base, high, x_anchor="right" if base == last else "left"),
    ]
    if to_beat is not None:
        name = tr("chance {share}", share=in_percent(f"{to_beat:.3g}"))
        if is_loss:
            name = f"{tr(task.simple_model)} {to_beat:.2f}"
        below = is_loss or to_beat > 10  # Curves rise from chance, and losses fall.
        anchor = "top" if below else "bottom"
        marks += [level(to_beat), text(name, base / 8, to_beat, y_anchor=anchor)]
    width, height = size
    labels = [line.label(width) for line in lines]
    if not narrow:
        height = max(height, sum(_LINE * len(label) + _GAP for label in labels))
    marks += [one for line in lines for one in _marks_of(line, last, narrow)]
    marks += [] if narrow else _labels(lines, labels, (low, high), last, height)
    return Panel(x, y, marks, height=height)


def _labels(
    lines: list[_Line],
    labels: list[list[str]],
    span: tuple[float, float],
    last: float,
    height: int,
) -> list[Mark]:
    """Return the labels beside the ends of their lines, in their order and without overlaps."""
    tips = [float(np.interp(line.mean[-1], span, [height, 0])) for line in lines]
    heights = [_LINE * len(label) for label in labels]
    order = sorted(range(len(tips)), key=tips.__getitem__)
    tops, upper, lower = [0.0] * len(tips), 0.0, float(height) + _GAP
    for index in order:  # from the top: below the previous label
        tops[index] = max(upper, tips[index] - heights[index] / 2)
        upper = tops[index] + heights[index] + _GAP
    for index in reversed(order):  # from the bottom: within the panel
        tops[index] = min(tops[index], lower - heights[index] - _GAP)
        lower = tops[index]
    return [
        text(
            "<br>".join(label),
            last,
            float(line.mean[-1]),
            y_anchor="middle",
            pointer=(16, top + own / 2 - tip),
            color=line.color,
            is_html=True,
        )
        for line, label, tip, top, own in zip(lines, labels, tips, tops, heights, strict=True)
    ]


def _marks_of(line: _Line, last: float, named: bool) -> list[Mark]:
    """Return band, line and dots, and a line at the last value until the end of the panel.

    Args:
        line: The line.
        last: Right end of the panel.
        named: Whether a legend names the line.
    """
    texts = [
        tr_n(
            "{n:,.0f} step: mean {mean}, quartiles {low} to {high}",
            "{n:,.0f} steps: mean {mean}, quartiles {low} to {high}",
            step,
            mean=line.form(mean),
            low=line.form(low),
            high=line.form(high),
        )
        for step, mean, low, high in zip(line.steps, line.mean, line.low, line.high, strict=True)
    ]
    tips = [f"{escape(line.title)}<br>{one}" for one in texts]
    at = [line.arm.base_steps * times for times in multiples(line.arm.up_to)]
    name = line.title if named else ""
    marks = [
        band(line.steps, line.low, line.high, line.color, 0.15),
        curve(line.steps, line.mean, line.color, dash=line.dash, tips=tips, name=name),
        dots(at, np.interp(at, line.steps, line.mean), line.color, symbol=line.symbol, size=8),
    ]
    if line.steps[-1] < last:
        rest = line.mean[[-1, -1]]
        marks.append(curve([line.steps[-1], last], rest, line.color, width=1.2, dash="dot"))
    return marks
