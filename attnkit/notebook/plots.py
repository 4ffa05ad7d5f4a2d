"""Interactive figures of results, evidence and trained models, as Plotly figures.

They are the figures of the pages, with titles, legends in words and a colour of texts that is
readable on light and on dark backgrounds.
"""

from __future__ import annotations

import inspect
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

THEMES = {"": "#767676", "light": "#222222", "dark": "#eeeeee"}
"""Colour of texts for a theme; the first one is readable on light and on dark."""

_NAMES = {
    "solid": "line", "thin": "thin", "dot": "dotted", "dash": "dashed", "longdashdot": "dash-dotted"
}  # fmt: skip
"""Names of the styles of lines in a legend."""

_TOP, _LINE = 34, 17
"""Heights in pixels of the title and of a line below it."""

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
    layout, top = figure["layout"], _TOP + _LINE * len(lines)
    height = layout["height"] + top
    layout |= {
        "margin": {**layout["margin"], "t": layout["margin"]["t"] + top},
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
        "font": {"color": ink},
        "legend": {**layout.get("legend", {}), **_LEGEND},
        "template": None,
    }
    return go.Figure({"data": figure["data"], "layout": layout})


def _in_words(legend: Sequence[dict[str, str]]) -> str:
    """Return a legend in words."""
    words = [f"{_NAMES[entry['dash']]}: {entry['text']}" for entry in legend]
    reading = ". ".join(text[0].upper() + text[1:] for text in words)
    return f"{reading}." if reading else ""


def _accuracy(snapshot: Snapshot) -> tuple[Figure, str, str]:
    title = f"{snapshot.experiment.task.title}: accuracy on held-out examples"
    return plot_accuracy(snapshot), title, _in_words(accuracy_legend(snapshot, None))


def _loss(snapshot: Snapshot) -> tuple[Figure, str, str]:
    title = f"{snapshot.experiment.task.title}: loss on held-out examples, nats"
    return plot_loss(snapshot), title, _in_words(loss_legend(snapshot, None))


def _asymmetry(snapshot: Snapshot) -> tuple[Figure, str, str]:
    title = f"{snapshot.experiment.task.title}: symmetry of scores, direction of attention"
    reading = _in_words(measures_legend(snapshot)) or "This task has neither."
    return plot_attention_measures(snapshot), title, reading


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
