"""Figure of how the arms of a claim learn: accuracy or loss against the logarithm of the steps.

Evidence in, a Plotly figure out, as a plain dictionary; a description in words stands beside it.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from attnkit.claims.base import Arm
from attnkit.claims.measures import multiples
from attnkit.evidence.record import Curve, Evidence
from attnkit.evidence.words import rises_in_words
from attnkit.figures.panels import Figure, Trace
from attnkit.figures.strips import arms_of, bare_layout, color_and_symbol
from attnkit.variants.palette import REFERENCE, translucent

LEARNING_KEY = (
    "A line is the mean over seeds, its band the middle half of them, a mark every doubling. The "
    "dashed upright line is the end of a short run; a thin dotted line continues the last value of "
    "an arm that is trained for fewer steps than others."
)
"""How to read `plot_learning`."""

_DASHES = ("solid", "dash", "dashdot", "longdash", "dot")
"""Dashes of lines that have the same colour, in their order."""

_LABEL, _LINE, _GAP = 16, 14, 7
"""Characters in a line of a label; the height of that line, and between labels, in pixels."""

_TOP, _PLOT, _AXIS = 28, 230, 52
"""Heights in pixels: above a panel, the least for the panel itself, and its axis."""


@dataclass(frozen=True, eq=False)
class _Line:
    """The curve of an arm, from an eighth of its base steps on, on the scale that is shown."""

    arm: Arm
    curve: Curve
    dash: str

    def of(self, values: np.ndarray) -> np.ndarray:
        scale = 100.0 if self.curve.by == "accuracy" else 1.0
        return scale * values[self.curve.steps >= self.arm.base_steps / 8]

    @property
    def label(self) -> list[str]:
        lines = textwrap.wrap(self.arm.name, _LABEL, max_lines=4, placeholder="…")
        return [escape(line) for line in lines]


def plot_learning(evidence: Evidence) -> Figure | None:
    """Plot a panel for every task with long runs, a line per arm; None if there are none."""
    panels = _panels_of(evidence)
    heights = [max(_PLOT, sum(_LINE * len(one.label) + _GAP for one in own)) for own in panels]
    total = sum(heights) + (_TOP + _AXIS) * len(panels)
    layout: Figure = {**bare_layout(), "height": total, "shapes": [], "annotations": []}
    layout["margin"] = {"l": 46, "r": 124, "t": 0, "b": 0}
    traces: list[Trace] = []
    below = total
    for place, (lines, height) in enumerate(zip(panels, heights, strict=True)):
        suffix = "" if place == 0 else str(place + 1)
        domain = [(below - _TOP - height) / total, (below - _TOP) / total]
        traces += _panel(layout, lines, suffix, domain, height)
        below -= _TOP + height + _AXIS
    return {"data": traces, "layout": layout} if panels else None


def describe_learning(evidence: Evidence) -> str:
    """Describe in words what `plot_learning` shows."""
    told = []
    for one in (line for lines in _panels_of(evidence) for line in lines):
        by, base, form = one.curve.by, one.arm.base_steps, _form(one.curve)
        means = (
            f"{form(evidence.mean(one.arm.name, by, times))} after {times * base:,}"
            for times in multiples(one.arm.up_to)
        )
        told.append(f"{one.arm.name}: mean {by} {', '.join(means)} steps.")
    return " ".join(["How the arms learn.", *told, rises_in_words(evidence)]).strip()


def _form(curve: Curve) -> Any:
    return "{:.0%}".format if curve.by == "accuracy" else "{:.2f} nats".format


def _panels_of(evidence: Evidence) -> list[list[_Line]]:
    """Return the arms that are trained for long or compared with those, task by task."""
    known = {name: one for name, one in arms_of(evidence).items() if name in evidence.curves}
    long = {name for name, one in known.items() if one.up_to > 1}
    compared = {name for one in evidence.statements if long & {*one.arms} for name in one.arms}
    panels: dict[tuple[str, int], list[_Line]] = {}
    for name, one in known.items():
        if name in long | compared and len(evidence.curves[name].steps):
            lines = panels.setdefault((repr(one.experiment.task), one.base_steps), [])
            alike = sum(color_and_symbol(other.arm) == color_and_symbol(one) for other in lines)
            lines.append(_Line(one, evidence.curves[name], _DASHES[alike % len(_DASHES)]))
    return list(panels.values())


def _panel(
    layout: Figure, lines: list[_Line], suffix: str, domain: list[float], height: int
) -> list[Trace]:
    """Return the traces of a panel; add its axes, levels to compare with, and labels."""
    base, task = lines[0].arm.base_steps, lines[0].arm.experiment.task
    is_loss = lines[0].curve.by == "loss"
    first, last = base / 8, max(float(one.curve.steps[-1]) for one in lines)
    level = task.loss_to_beat if is_loss else 100 * task.chance
    ends = [one.of(values) for one in lines for values in (one.curve.low, one.curve.high)]
    low, high = (min(map(np.min, ends)), max(map(np.max, ends))) if is_loss else (0.0, 100.0)
    low, high = float(min(low, level or low)), float(max(high, level or high))
    low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)
    powers = range(-3, math.floor(math.log2(last / base)) + 1)
    sparse = 1 if len(powers) <= 5 else 2
    grid = {"gridcolor": translucent(REFERENCE, 0.3), "zeroline": False, "fixedrange": True}
    layout[f"xaxis{suffix}"] = grid | {
        "type": "log",
        "range": [math.log10(first), math.log10(last)],
        "tickvals": [base * 2.0**power for power in powers],
        "ticktext": ["" if p % sparse else f"{base * 2.0**p:,.0f}" for p in powers],
        "tickangle": 0,
        "title": {"text": "steps", "font": {"size": 13}, "standoff": 4},
        "anchor": f"y{suffix}",
    }
    levels = [0, 25, 50, 75, 100]
    percent = {"tickvals": levels, "ticktext": [f"{one}%" for one in levels]}
    ticks = {"nticks": 6} if is_loss else percent
    layout[f"yaxis{suffix}"] = grid | ticks | {"range": [low, high], "domain": domain}
    layout[f"yaxis{suffix}"]["anchor"] = f"x{suffix}"
    on = {"xref": f"x{suffix}", "yref": f"y{suffix}"}

    def add_level(dash: str, text: str, below: bool = False, **ends: float) -> None:
        line = {"color": REFERENCE, "width": 1.5, "dash": dash}
        layout["shapes"].append({"type": "line", **on, **ends, "line": line, "layer": "below"})
        start = {"x": math.log10(ends["x0"]), "y": ends["y1"], "xanchor": "left"}
        start |= {"yanchor": "top" if below else "bottom", "showarrow": False, "font": {"size": 12}}
        layout["annotations"].append({"text": text, **on, **start})

    corner = {"x": 0, "y": 1, "xshift": -42, "xanchor": "left", "yanchor": "bottom"}
    corner |= {"xref": f"x{suffix} domain", "yref": f"y{suffix} domain", "showarrow": False}
    name = {"text": "loss, nats" if is_loss else "accuracy", "font": {"size": 12}}
    layout["annotations"].append(name | corner)
    add_level("dash", f"{base:,} steps", x0=base, x1=base, y0=low, y1=high)
    if level is not None:
        text = f"{task.simple_model} {level:.2f}" if is_loss else f"chance {level:.3g}%"
        below = is_loss or level > 10  # Curves rise from chance, and losses fall from above.
        add_level("dot", text, below, x0=first, x1=last, y0=level, y1=level)
    tips = [height * (high - float(one.of(one.curve.mean)[-1])) / (high - low) for one in lines]
    middles = _spread(tips, [_LINE * len(one.label) for one in lines], height)
    for one, tip, middle in zip(lines, tips, middles, strict=True):
        place = {"x": math.log10(last), "y": float(one.of(one.curve.mean)[-1]), **on}
        place |= {"ax": 16, "ay": middle - tip, "xanchor": "left", "align": "left"}
        arrow = {"arrowhead": 0, "arrowwidth": 1.5, "arrowcolor": color_and_symbol(one.arm)[0]}
        label = {"text": "<br>".join(one.label), "font": {"size": 12}}
        layout["annotations"].append({**label, **place, **arrow})
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    return [trace | axes for one in lines for trace in _traces_of(one, last)]


def _spread(tips: list[float], heights: list[int], total: int) -> list[float]:
    """Return the middles of labels: in the order of their tips, and as near to these as fits."""
    order = sorted(range(len(tips)), key=tips.__getitem__)
    tops, least, most = [0.0] * len(tips), 0.0, float(total) + _GAP
    for place in order:
        tops[place] = max(least, tips[place] - heights[place] / 2)
        least = tops[place] + heights[place] + _GAP
    for place in reversed(order):
        tops[place] = min(tops[place], most - heights[place] - _GAP)
        most = tops[place]
    return [top + height / 2 for top, height in zip(tops, heights, strict=True)]


def _traces_of(one: _Line, last: float) -> list[Trace]:
    """Return the band of an arm, its line, its marks, and the level of its last value."""
    steps = one.curve.steps[one.curve.steps >= one.arm.base_steps / 8]
    mean, low, high = map(one.of, (one.curve.mean, one.curve.low, one.curve.high))
    (color, symbol), form = color_and_symbol(one.arm), _form(one.curve)
    scale = 0.01 if one.curve.by == "accuracy" else 1.0
    texts = [
        f"{escape(one.arm.name)}<br>{step:,.0f} steps: mean {form(scale * a)}, "
        f"quartiles {form(scale * b)} to {form(scale * c)}"
        for step, a, b, c in zip(steps, mean, low, high, strict=True)
    ]
    marks = [one.arm.base_steps * times for times in multiples(one.arm.up_to)]
    around = {"x": np.r_[steps, steps[::-1]].tolist(), "y": np.r_[high, low[::-1]].tolist()}
    fill = {"fill": "toself", "fillcolor": translucent(color, 0.15), "line": {"width": 0}}
    line = {"color": color, "width": 2.5, "dash": one.dash}
    drawn: list[Trace] = [
        {**around, **fill},
        {"x": steps.tolist(), "y": mean.tolist(), "line": line, "hovertext": texts},
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
        drawn.append({"x": [float(steps[-1]), last], "y": [float(mean[-1])] * 2, "line": thin})
    quiet = {"type": "scatter", "mode": "lines", "showlegend": False}
    return [
        {**quiet, "hoverinfo": "text" if "hovertext" in trace else "skip", **trace}
        for trace in drawn
    ]
