"""Interactive figures of results, evidence and trained models, as Plotly figures.

They are the figures of the pages, with titles, legends in words and a colour of texts that is
readable on light and on dark backgrounds.
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from attnkit.figures.curves import (
    accuracy_legend,
    loss_legend,
    measures_legend,
    plot_accuracy,
    plot_attention_measures,
    plot_loss,
)
from attnkit.figures.panels import Figure
from attnkit.foundation.display import Displayed
from attnkit.foundation.settings import allowed_names, shown
from attnkit.notebook.evidence_plots import plot_arms, plot_long_runs, plot_pairs
from attnkit.notebook.heatmaps import plot_attention, plot_scores
from attnkit.notebook.model_plots import (
    plot_directions,
    plot_measure,
    plot_measures,
    plot_parts,
    plot_values,
)
from attnkit.training.results import Result
from attnkit.training.snapshot import Snapshot
from attnkit.variants.palette import REFERENCE, translucent

THEMES = {"": "#767676", "light": "#222222", "dark": "#eeeeee"}
"""Colour of texts for a theme; the first one is readable on light and on dark."""

_NAMES = {
    "solid": "line", "thin": "thin", "dot": "dotted", "dash": "dashed", "longdashdot": "dash-dotted"
}  # fmt: skip
"""Names of the styles of lines in a legend."""

_PER_ROW, _ROW, _TOP, _LINE = 5, 230, 34, 17
"""Most panels in a row; heights in pixels of a row, of the title and of a line below it."""

_LEGEND = {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}
"""Place of a legend: on the right, where no title is."""

Draw = Callable[..., tuple[Figure, str, str]]
"""Function that returns a figure, its title, and a sentence that says how to read it."""


def plot(value: Displayed, kind: str = "", theme: str | None = None, **options: Any) -> go.Figure:
    """Return a figure of a value.

    Args:
        value: A result, snapshot, claim, record of a claim, atlas or head.
        kind: Name of the figure; an empty text stands for the first one.
        theme: "light", "dark", or None for a colour of texts that suits both.
        **options: Further options of the figure.

    Raises:
        ValueError: If the kind, the theme or an option is not allowed.
    """
    value = value.snapshot if isinstance(value, Result) else value
    kinds = next(_KINDS[base.__name__] for base in type(value).__mro__ if base.__name__ in _KINDS)
    kind = kind or next(iter(kinds))
    if kind not in list(kinds):
        raise ValueError(f"kind: got {_quoted(kind)}, allowed {allowed_names(kinds, str(kind))}")
    if theme is not None and (not theme or theme not in list(THEMES)):
        raise ValueError(f"theme: got {_quoted(theme)}, allowed light, dark or None")
    draw = kinds[kind]
    known = list(inspect.signature(draw).parameters)[1:]
    for name in options:
        if name not in known:
            allowed = allowed_names(["theme", *known], name)
            raise ValueError(f"{name}: got {_quoted(options[name])}, allowed options {allowed}")
    figure, title, reading = draw(value, **options)
    return _finished(figure, title, reading, THEMES[theme or ""])


def _quoted(value: Any) -> str:
    return shown(value, quoted=True)


def _finished(figure: Figure, title: str, reading: str, ink: str) -> go.Figure:
    """Return a figure with its title and the colour of its texts."""
    lines = textwrap.wrap(reading, 120)
    small = "<br>".join(f'<span style="font-size:12px">{escape(line)}</span>' for line in lines)
    layout = dict(figure["layout"])
    margin = dict(layout.get("margin", {}))
    top = _TOP + _LINE * len(lines)
    margin["t"] = margin.get("t", 0) + top
    height = layout.get("height", 400) + top
    layout |= {
        "margin": margin,
        "height": height,
        "title": {
            "text": f"<b>{escape(title)}</b><br>{small}",
            "font": {"size": 15},
            "x": 0,
            "xanchor": "left",
            "xref": "paper",
            "y": 1 - 12 / height,
            "yanchor": "top",
            "yref": "container",
        },
        "font": {**layout.get("font", {}), "color": ink},
        "legend": {**layout.get("legend", {}), **_LEGEND},
        "template": None,
    }
    return go.Figure({"data": figure["data"], "layout": layout})


def wrapped(figure: Figure) -> Figure:
    """Return a figure whose panels stand in rows of at most `_PER_ROW`."""
    layout = figure["layout"]
    n = layout["meta"]["panels"]
    n_columns = min(n, _PER_ROW)
    n_rows = math.ceil(n / n_columns)
    gap_x, gap_y = 0.035, 60 / (n_rows * _ROW)
    width = (1 - gap_x * (n_columns - 1)) / n_columns
    height = (1 - gap_y * (n_rows - 1)) / n_rows
    for panel in range(n):
        row, column = divmod(panel, n_columns)
        suffix = "" if panel == 0 else str(panel + 1)
        left = column * (width + gap_x)
        bottom = max(0.0, 1 - row * (height + gap_y) - height)
        layout[f"xaxis{suffix}"] |= {"domain": [left, min(1.0, left + width)]}
        layout[f"yaxis{suffix}"] |= {"domain": [bottom, min(1.0, bottom + height)]}
    return {**figure, "layout": {**layout, "height": n_rows * _ROW}}


def _curves(figure: Figure, legend: Sequence[dict[str, str]]) -> tuple[Figure, str]:
    """Return a figure of curves in rows, with the x axis named, and its legend in words."""
    for name, axis in figure["layout"].items():
        if name.startswith(("xaxis", "yaxis")):
            axis["gridcolor"] = translucent(REFERENCE, 0.3)
        if name.startswith("xaxis"):
            axis["title"] = {"text": "steps", "font": {"size": 12}, "standoff": 2}
    words = [f"{_NAMES[entry['dash']]}: {entry['text']}" for entry in legend]
    reading = ". ".join(text[0].upper() + text[1:] for text in words)
    return wrapped(figure), f"{reading}." if reading else ""


def _accuracy(snapshot: Snapshot) -> tuple[Figure, str, str]:
    figure, reading = _curves(plot_accuracy(snapshot), accuracy_legend(snapshot, None))
    return figure, f"{snapshot.experiment.task.title}: accuracy on held-out examples", reading


def _loss(snapshot: Snapshot) -> tuple[Figure, str, str]:
    figure, reading = _curves(plot_loss(snapshot), loss_legend(snapshot, None))
    title = f"{snapshot.experiment.task.title}: loss on held-out examples, nats"
    return figure, title, reading


def _asymmetry(snapshot: Snapshot) -> tuple[Figure, str, str]:
    legend = measures_legend(snapshot)
    figure, reading = _curves(plot_attention_measures(snapshot), legend)
    title = f"{snapshot.experiment.task.title}: symmetry of scores, direction of attention"
    return figure, title, reading or "This task has neither."


_RUNS: dict[str, Draw] = {
    "accuracy": _accuracy,
    "loss": _loss,
    "attention": plot_attention,
    "scores": plot_scores,
    "asymmetry": _asymmetry,
}

_CLAIMS: dict[str, Draw] = {
    "scores": plot_arms,
    "differences": plot_pairs,
    "learning": plot_long_runs,
}

_KINDS: dict[str, dict[str, Draw]] = {
    "Snapshot": _RUNS,
    "Claim": _CLAIMS,
    "Evidence": _CLAIMS,
    "Atlas": {"distribution": plot_measure, "scatter": plot_measures},
    "MeasuredHead": {"split": plot_parts, "spectra": plot_values, "angles": plot_directions},
}
"""Figures by the name of a type and their own name; the first one is drawn by default."""
