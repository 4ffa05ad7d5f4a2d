"""Figure of the learning curves of a claim's arms: accuracy or loss by logarithm of the steps.

It is a plain dictionary in Plotly's schema, with a description in words.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape

import numpy as np

from attnkit.claims.base import Arm
from attnkit.claims.measures import multiples
from attnkit.claims.statements import Statement
from attnkit.evidence.record import Curve, Evidence
from attnkit.evidence.words import rises_in_words
from attnkit.figures.panels import Figure, Trace
from attnkit.figures.strips import arms_of, bare_layout, color_and_symbol
from attnkit.training.summary import percent
from attnkit.variants.palette import REFERENCE, translucent

LEARNING_KEY = (
    "A line is the mean over seeds, its band the middle half of them; a mark stands at every "
    "doubling of the steps. Dashed upright line: the end of a short run. Thin dotted line: "
    "the last value of an arm that is trained for fewer steps."
)
"""How to read `plot_learning`."""

_DASHES = ("solid", "dash", "dashdot", "longdash", "dot")
"""Dashes of the first, second, … line of the same colour in a panel."""

_LABEL, _LINE, _GAP = 16, 14, 7
"""Most characters in a line of a label; height of such a line and gap between labels in pixels."""

_TOP, _PLOT, _AXIS = 28, 230, 52
"""Heights in pixels: space above a panel, the smallest panel, and its axis with title."""

_NAME = 20
"""Height in pixels of a name in a legend."""

NARROW = 480
"""Width in pixels of a figure up to which the names of arms stand below the panels."""

_SMALL_LABEL, _SMALL_PLOT = 27, 84
"""Most characters in a line of a label, and height of the smallest panel, in `plot_course`."""

COURSE_KEY = "A line is the mean over seeds, its band the middle half of them."
"""How to read `plot_course`."""


@dataclass(frozen=True, eq=False)
class _Line:
    """The curve of an arm, from an eighth of its base steps on."""

    arm: Arm
    curve: Curve
    dash: str
    label_width: int = _LABEL

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
        lines = textwrap.wrap(self.arm.name, self.label_width, max_lines=4, placeholder="…")
        return [escape(line) for line in lines]


def plot_learning(evidence: Evidence, *, narrow: bool = False) -> Figure | None:
    """Plot a panel for every task with long runs, a line per arm; None if there are none.

    Args:
        narrow: Whether the names of the arms stand below the panels instead of beside them.
    """
    panels = _long_panels(evidence)
    return _stacked(panels, _PLOT, narrow) if panels else None


def plot_course(evidence: Evidence, statement: Statement, *, narrow: bool = False) -> Figure | None:
    """Plot a small panel with the arms of a statement's task; None if nothing is recorded.

    Arms that no statement compares are left out, and so are those that confirm an inability, unless
    this statement compares them.

    Args:
        narrow: See `plot_learning`.
    """
    panels = _course_panels(evidence, statement)
    return _stacked(panels, _SMALL_PLOT, narrow) if panels else None


def _stacked(panels: list[list[_Line]], least: int, narrow: bool) -> Figure:
    """Return the figure of panels below each other, each at least so many pixels high."""
    heights = [
        least if narrow else max(least, sum(_LINE * len(line.label) + _GAP for line in lines))
        for lines in panels
    ]
    n_names = sum(map(len, panels)) if narrow else 0
    total = sum(heights) + (_TOP + _AXIS) * len(panels) + _NAME * n_names
    layout: Figure = {**bare_layout(), "height": total, "shapes": [], "annotations": []}
    right = 12 if narrow else 28 + 6 * panels[0][0].label_width
    layout["margin"] = {"l": 46, "r": right, "t": 0, "b": 0}
    layout["legend"] = {"x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom"}
    layout["showlegend"] = narrow
    traces: list[Trace] = []
    below = total
    for index, (lines, height) in enumerate(zip(panels, heights, strict=True)):
        suffix = "" if index == 0 else str(index + 1)
        domain = [(below - _TOP - height) / total, (below - _TOP) / total]
        traces += _Panel(lines, suffix, height).add_to(layout, domain, narrow)
        below -= _TOP + height + _AXIS
    return {"data": traces, "layout": layout}


def describe_learning(evidence: Evidence) -> str:
    """Describe in words what `plot_learning` shows."""
    return " ".join([_in_words(evidence, _long_panels(evidence)), rises_in_words(evidence)]).strip()


def describe_course(evidence: Evidence, statement: Statement) -> str:
    """Describe in words what `plot_course` shows."""
    return _in_words(evidence, _course_panels(evidence, statement))


def _in_words(evidence: Evidence, panels: list[list[_Line]]) -> str:
    texts = ["How the arms learn."]
    for line in (line for lines in panels for line in lines):
        arm, by, form = line.arm, line.curve.by, _form(line.curve)
        means = ", ".join(
            f"{form(evidence.mean(arm.name, by, times))} after {times * arm.base_steps:,}"
            for times in multiples(arm.up_to)
        )
        texts.append(f"{arm.name}: mean {by} {means} steps.")
    return " ".join(texts)


def _form(curve: Curve) -> Callable[[float], str]:
    """Return the function that formats a value of a curve."""
    form = percent if curve.by == "accuracy" else "{:.2f} nats".format
    return lambda value: "diverged" if math.isnan(value) else form(value)


def _long_panels(evidence: Evidence) -> list[list[_Line]]:
    """Return the lines of every panel: arms with long runs, and arms compared with these."""
    arms = {name: arm for name, arm in arms_of(evidence).items() if name in evidence.curves}
    long = {name for name, arm in arms.items() if arm.up_to > 1}
    compared = {
        name
        for statement in evidence.statements
        if long.intersection(statement.arms)
        for name in statement.arms
    }
    return _panels_of(evidence, [arm for name, arm in arms.items() if name in long | compared])


def _course_panels(evidence: Evidence, statement: Statement) -> list[list[_Line]]:
    """Return the one panel of `plot_course` in a list; an empty list if nothing is recorded."""
    compared = {arm.name for arm in evidence.claim.compared_arms}.union(statement.arms)
    arms = [arm for name, arm in arms_of(evidence).items() if name in compared]
    arms = [arm for arm in arms if arm.name in evidence.curves]
    panels = _panels_of(evidence, arms, _SMALL_LABEL)
    return [lines for lines in panels if statement.left in [line.arm.name for line in lines]]


def _panels_of(
    evidence: Evidence, arms: Iterable[Arm], label_width: int = _LABEL
) -> list[list[_Line]]:
    """Return the lines of recorded arms, in a panel for each task and number of base steps."""
    panels: dict[tuple[str, int], list[_Line]] = {}
    for arm in arms:
        curve = evidence.curves[arm.name]
        if len(curve.steps):
            lines = panels.setdefault((repr(arm.experiment.task), arm.base_steps), [])
            n_alike = sum(color_and_symbol(line.arm) == color_and_symbol(arm) for line in lines)
            lines.append(_Line(arm, curve, _DASHES[n_alike % len(_DASHES)], label_width))
    return list(panels.values())


class _Panel:
    """A panel of the figure: lines of one task with the same base steps."""

    def __init__(self, lines: list[_Line], suffix: str, height: int) -> None:
        self.lines, self.suffix, self.height = lines, suffix, height
        self.task, self.base_steps = lines[0].arm.experiment.task, lines[0].arm.base_steps
        self.is_loss = lines[0].curve.by == "loss"
        self.first = self.base_steps / 8
        self.last = max(float(line.curve.steps[-1]) for line in lines)
        self.level = self.task.loss_to_beat if self.is_loss else 100 * self.task.chance
        low, high = 0.0, 100.0
        if self.is_loss:
            ends = [line.scaled(v) for line in lines for v in (line.curve.low, line.curve.high)]
            low, high = float(min(map(np.min, ends))), float(max(map(np.max, ends)))
        low, high = float(min(low, self.level or low)), float(max(high, self.level or high))
        margin = 0.03 * (high - low)
        self.low, self.high = low - margin, high + margin

    def add_to(self, layout: Figure, domain: list[float], narrow: bool) -> list[Trace]:
        """Add axes, levels and, beside the lines, labels to a layout, and return the traces."""
        self._add_axes(layout, domain)
        self._add_levels(layout)
        if not narrow:
            self._add_labels(layout)
        axes = {"xaxis": f"x{self.suffix}", "yaxis": f"y{self.suffix}"}
        return [
            trace | axes for line in self.lines for trace in _traces_of(line, self.last, narrow)
        ]

    def _add_axes(self, layout: Figure, domain: list[float]) -> None:
        powers = range(-3, math.floor(math.log2(self.last / self.base_steps)) + 1)
        labelled_every = 1 if len(powers) <= 5 else 2
        grid = {"gridcolor": translucent(REFERENCE, 0.3), "zeroline": False, "fixedrange": True}
        layout[f"xaxis{self.suffix}"] = grid | {
            "type": "log",
            "range": [math.log10(self.first), math.log10(self.last)],
            "tickvals": [self.base_steps * 2.0**power for power in powers],
            "ticktext": [
                "" if power % labelled_every else f"{self.base_steps * 2.0**power:,.0f}"
                for power in powers
            ],
            "tickangle": 0,
            "title": {"text": "steps", "font": {"size": 13}, "standoff": 4},
            "anchor": f"y{self.suffix}",
        }
        percents = [0, 25, 50, 75, 100]
        percent_ticks = {"tickvals": percents, "ticktext": [f"{value}%" for value in percents]}
        layout[f"yaxis{self.suffix}"] = (
            grid
            | ({"nticks": 6} if self.is_loss else percent_ticks)
            | {"range": [self.low, self.high], "domain": domain, "anchor": f"x{self.suffix}"}
        )

    def _add_levels(self, layout: Figure) -> None:
        """Add the name of the vertical axis, the end of a short run, and the level to beat."""
        refs = {"xref": f"x{self.suffix} domain", "yref": f"y{self.suffix} domain"}
        corner = {"x": 0, "y": 1, "xshift": -42, "xanchor": "left", "yanchor": "bottom"}
        text = "loss, nats" if self.is_loss else "accuracy"
        name = {"text": text, "font": {"size": 12}, "showarrow": False}
        layout["annotations"].append({**name, **corner, **refs})
        base = self.base_steps
        ends = {"x0": base, "x1": base, "y0": self.low, "y1": self.high}
        self._add_level(layout, "dash", f"{base:,} steps", ends)
        if self.level is not None:
            text = f"{self.task.simple_model} {self.level:.2f}"
            if not self.is_loss:
                text = f"chance {self.level:.3g}%"
            below = self.is_loss or self.level > 10  # Curves rise from chance, and losses fall.
            ends = {"x0": self.first, "x1": self.last, "y0": self.level, "y1": self.level}
            self._add_level(layout, "dot", text, ends, below)

    def _add_level(
        self, layout: Figure, dash: str, text: str, ends: dict[str, float], below: bool = False
    ) -> None:
        """Add a grey line between two points, and a text above or below its left or upper end."""
        refs = {"xref": f"x{self.suffix}", "yref": f"y{self.suffix}"}
        line = {"color": REFERENCE, "width": 1.5, "dash": dash}
        layout["shapes"].append({"type": "line", **refs, **ends, "line": line, "layer": "below"})
        point = {"x": math.log10(ends["x0"]), "y": ends["y1"], **refs}
        at_end = ends["x0"] == self.last  # where a text to the right of it would be cut
        anchors = {
            "xanchor": "right" if at_end else "left",
            "yanchor": "top" if below else "bottom",
            "showarrow": False,
        }
        layout["annotations"].append({"text": text, **point, **anchors, "font": {"size": 12}})

    def _add_labels(self, layout: Figure) -> None:
        """Add the names of the arms beside the ends of their lines, without overlaps."""
        ends = [float(line.scaled(line.curve.mean)[-1]) for line in self.lines]
        tips = [self.height * (self.high - end) / (self.high - self.low) for end in ends]
        middles = _spread(tips, [_LINE * len(line.label) for line in self.lines], self.height)
        refs = {"xref": f"x{self.suffix}", "yref": f"y{self.suffix}"}
        for line, end, tip, middle in zip(self.lines, ends, tips, middles, strict=True):
            text = {"text": "<br>".join(line.label), "font": {"size": 12}}
            point = {"x": math.log10(self.last), "y": end, **refs}
            place = {"ax": 16, "ay": middle - tip, "xanchor": "left", "align": "left"}
            color = color_and_symbol(line.arm)[0]
            arrow = {"arrowhead": 0, "arrowwidth": 1.5, "arrowcolor": color}
            layout["annotations"].append({**text, **point, **place, **arrow})


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


def _traces_of(line: _Line, last: float, named: bool) -> list[Trace]:
    """Return the band of an arm, its line, its marks, and a line at its last value until `last`.

    Args:
        named: Whether a legend names the line.
    """
    arm, curve = line.arm, line.curve
    steps = line.drawn(curve.steps)
    mean, low, high = map(line.scaled, (curve.mean, curve.low, curve.high))
    (color, symbol), form = color_and_symbol(arm), _form(curve)
    scale = 0.01 if curve.by == "accuracy" else 1.0
    texts = [
        f"{escape(arm.name)}<br>{step:,.0f} steps: mean {form(scale * a)}, "
        f"quartiles {form(scale * b)} to {form(scale * c)}"
        for step, a, b, c in zip(steps, mean, low, high, strict=True)
    ]
    marks = [arm.base_steps * times for times in multiples(arm.up_to)]
    outline = {"x": np.r_[steps, steps[::-1]].tolist(), "y": np.r_[high, low[::-1]].tolist()}
    fill = {"fill": "toself", "fillcolor": translucent(color, 0.15), "line": {"width": 0}}
    style = {"color": color, "width": 2.5, "dash": line.dash}
    traces: list[Trace] = [
        {**outline, **fill},
        {
            "x": steps.tolist(),
            "y": mean.tolist(),
            "line": style,
            "hovertext": texts,
            "name": escape(arm.name),
            "showlegend": named,
        },
        {
            "x": marks,
            "y": np.interp(marks, steps, mean).tolist(),
            "mode": "markers",
            "marker": {"symbol": symbol, "size": 8, "color": color},
            "cliponaxis": False,
        },
    ]
    if steps[-1] < last:
        thin = {"color": color, "width": 1.2, "dash": "dot"}
        traces.append({"x": [float(steps[-1]), last], "y": [float(mean[-1])] * 2, "line": thin})
    defaults = {"type": "scatter", "mode": "lines", "showlegend": False}
    return [
        {**defaults, "hoverinfo": "text" if "hovertext" in trace else "skip", **trace}
        for trace in traces
    ]
