"""Figure of the learning curves of a claim's arms: accuracy or loss by logarithm of the steps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
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

DASHES = ("solid", "dash", "dashdot", "longdash", "dot")
"""Dashes of the first, second, … line of the same colour in a panel."""

_LABEL, _LINE, _GAP = 16, 14, 7
"""Most characters in a line of a label; height of such a line and gap between labels in pixels."""

_PLOT = 230
"""Height of the smallest panel in pixels."""

NARROW = 480
"""Width in pixels of a figure up to which the names of arms stand below the panels."""

SMALL_LABEL, SMALL_PLOT = 27, 84
"""Most characters in a line of a label, and height of the smallest panel, for one statement."""

COURSE_KEY = mark("A line is the mean over seeds, its band the middle half of them.")
"""How to read `plot_learning` of one statement."""


@dataclass(frozen=True, eq=False)
class Line:
    """The curve of an arm, from an eighth of its base steps on.

    Attributes:
        arm: The arm.
        curve: The curve.
        dash: Dash of the line.
        label_width: Most characters in a line of the label.
        title: Name on screen.
    """

    arm: Arm
    curve: Curve
    dash: str
    label_width: int
    title: str

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return the drawn part of an array of the curve, accuracies in percent."""
        scale = 100.0 if self.curve.by == "accuracy" else 1.0
        return scale * self.drawn(values)

    def drawn(self, values: np.ndarray) -> np.ndarray:
        """Return the part of an array of the curve from an eighth of the base steps on."""
        part: np.ndarray = values[self.curve.steps >= self.arm.base_steps / 8]
        return part

    @property
    def label(self) -> list[str]:
        """The name of the line, in lines of text."""
        lines = textwrap.wrap(self.title, self.label_width, max_lines=4, placeholder="…")
        return [escape(line) for line in lines]


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
    panels = _panels_of(evidence, statement)
    if not panels:
        return None
    least = _PLOT if statement is None else SMALL_PLOT
    right = 12 if narrow else 28 + 6 * panels[0][0].label_width
    drawn = [panel_of(lines, least, narrow) for lines in panels]
    return draw(drawn, left=46, right=right, top=28, bottom=52, legend="below" if narrow else "")


def describe_learning(evidence: Evidence, statement: Statement | None = None) -> str:
    """Describe in words what `plot_learning` shows."""
    texts = [tr("How the arms learn.")]
    for line in (line for lines in _panels_of(evidence, statement) for line in lines):
        arm, by, form = line.arm, line.curve.by, _form(line.curve)
        means = ", ".join(
            tr_n(
                "{value} after {n:,} step",
                "{value} after {n:,} steps",
                times * arm.base_steps,
                value=form(evidence.mean(arm.name, by, times)),
            )
            for times in multiples(arm.up_to)
        )
        if by == "accuracy":
            texts.append(tr("{arm}: mean accuracy {values}.", arm=line.title, values=means))
        else:
            texts.append(tr("{arm}: mean loss {values}.", arm=line.title, values=means))
    texts.append(longer_in_words(evidence) if statement is None else "")
    return " ".join(filter(None, texts))


def _form(curve: Curve) -> Callable[[float], str]:
    """Return the function that formats a value of a curve."""
    form = percent if curve.by == "accuracy" else in_nats
    return lambda value: tr("diverged") if math.isnan(value) else form(value)


def in_nats(loss: float) -> str:
    """Return a loss with its unit."""
    return tr("{loss:.2f} nats", loss=loss)


def _panels_of(evidence: Evidence, statement: Statement | None) -> list[list[Line]]:
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
    width = _LABEL if statement is None else SMALL_LABEL
    panels: dict[tuple[str, int], list[Line]] = {}
    for name, arm in arms.items():
        curve = evidence.curves[name]
        if name in shown and len(curve.steps):
            lines = panels.setdefault((repr(arm.experiment.task), arm.base_steps), [])
            n_alike = sum(color_and_symbol(line.arm) == color_and_symbol(arm) for line in lines)
            dash = DASHES[n_alike % len(DASHES)]
            lines.append(Line(arm, curve, dash, width, arm_title(name)))
    return [
        lines
        for lines in panels.values()
        if statement is None or statement.left in [line.arm.name for line in lines]
    ]


def panel_of(lines: list[Line], least: int, narrow: bool, title: str = "") -> Panel:
    """Return the panel of the lines of one task with the same base steps.

    Args:
        lines: The lines.
        least: Smallest height in pixels.
        narrow: Whether a legend names the lines; otherwise labels stand beside them.
        title: Text above the panel, beside the name of the axis.
    """
    task, base = lines[0].arm.experiment.task, lines[0].arm.base_steps
    is_loss = lines[0].curve.by == "loss"
    last = max(float(line.curve.steps[-1]) for line in lines)
    to_beat = task.loss_to_beat if is_loss else 100 * task.chance
    ends = [0.0, 100.0]
    if is_loss:
        drawn = [line.scaled(v) for line in lines for v in (line.curve.low, line.curve.high)]
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
    room = 35 if base == last else 27  # characters on a phone, left of the number of steps
    above = " · ".join(filter(None, (measure, title)))
    crowded = narrow and len(above) > room  # then this number stands at the lower end of its line
    marks = [
        text(above, shift=(-42, 0)),
        level(base, "dash", upright=True),
        text(end, base, low if crowded else high, x_anchor="right" if base == last else "left"),
    ]
    if to_beat is not None:
        name = tr("chance {share}", share=in_percent(f"{to_beat:.3g}"))
        if is_loss:
            name = f"{tr(task.simple_model)} {to_beat:.2f}"
        below = is_loss or to_beat > 10  # Curves rise from chance, and losses fall.
        anchor = "top" if below else "bottom"
        marks += [level(to_beat), text(name, base / 8, to_beat, y_anchor=anchor)]
    height = max(least, 0 if narrow else sum(_LINE * len(line.label) + _GAP for line in lines))
    marks += [mark for line in lines for mark in _marks_of(line, last, narrow)]
    marks += [] if narrow else _labels(lines, (low, high), last, height)
    return Panel(x, y, marks, height=height)


def _labels(lines: list[Line], span: tuple[float, float], last: float, height: int) -> list[Mark]:
    """Return the names of the arms beside the ends of their lines, without overlaps."""
    ends = [float(line.scaled(line.curve.mean)[-1]) for line in lines]
    tips = [float(np.interp(end, span, [height, 0])) for end in ends]
    middles = _spread(tips, [_LINE * len(line.label) for line in lines], height)
    return [
        text(
            "<br>".join(line.label),
            last,
            end,
            y_anchor="middle",
            pointer=(16, middle - tip),
            color=color_and_symbol(line.arm)[0],
            is_html=True,
        )
        for line, end, tip, middle in zip(lines, ends, tips, middles, strict=True)
    ]


def _spread(tips: list[float], heights: list[int], total: int) -> list[float]:
    """Return the middles of labels, in the order of the tips of their lines and near to these.

    Args:
        tips: Heights at which the lines end, in pixels from the top.
        heights: Heights of the labels.
        total: Height of the panel.
    """
    order = sorted(range(len(tips)), key=tips.__getitem__)
    tops, upper, lower = [0.0] * len(tips), 0.0, float(total) + _GAP
    for index in order:  # from the top: below the previous label
        tops[index] = max(upper, tips[index] - heights[index] / 2)
        upper = tops[index] + heights[index] + _GAP
    for index in reversed(order):  # from the bottom: within the panel
        tops[index] = min(tops[index], lower - heights[index] - _GAP)
        lower = tops[index]
    return [top + height / 2 for top, height in zip(tops, heights, strict=True)]


def _marks_of(line: Line, last: float, named: bool) -> list[Mark]:
    """Return the band of an arm, its line, its dots, and a line at its last value until `last`.

    Args:
        line: The arm.
        last: Right end of the panel.
        named: Whether a legend names the line.
    """
    arm, by_steps = line.arm, line.curve
    steps = line.drawn(by_steps.steps)
    mean, low, high = map(line.scaled, (by_steps.mean, by_steps.low, by_steps.high))
    (color, symbol), form = color_and_symbol(arm), _form(by_steps)
    scale = 0.01 if by_steps.by == "accuracy" else 1.0
    texts = [
        tr_n(
            "{n:,.0f} step: mean {mean}, quartiles {low} to {high}",
            "{n:,.0f} steps: mean {mean}, quartiles {low} to {high}",
            step,
            mean=form(scale * middle),
            low=form(scale * lower),
            high=form(scale * upper),
        )
        for step, middle, lower, upper in zip(steps, mean, low, high, strict=True)
    ]
    tips = [f"{escape(line.title)}<br>{one}" for one in texts]
    at = [arm.base_steps * times for times in multiples(arm.up_to)]
    marks = [
        band(steps, low, high, color, 0.15),
        curve(steps, mean, color, dash=line.dash, tips=tips, name=line.title if named else ""),
        dots(at, np.interp(at, steps, mean), color, symbol=symbol, size=8),
    ]
    if steps[-1] < last:
        marks.append(curve([steps[-1], last], mean[[-1, -1]], color, width=1.2, dash="dot"))
    return marks
