"""Parts of figures with a row of panels: curves, bands, levels and axes.

Figures are plain dictionaries in Plotly's schema with arrays packed as float32: a live page sends
them several times a second, and building validated figure objects would cost more than training.
`plotly.graph_objects.Figure(figure)` accepts them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnkit.variants.palette import REFERENCE, translucent

MAX_POINTS = 160
"""Most points of a curve on screen; statistics are never computed from thinned curves."""

Trace = dict[str, Any]
Figure = dict[str, Any]


@dataclass(frozen=True)
class Title:
    """Title of a panel: a name, with a square of the panel's colour if it has one.

    Attributes:
        name: Text of the title.
        second: Text shown on hover.
        color: Colour of the square; empty for none.
    """

    name: str
    second: str = ""
    color: str = ""


def thin(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose at most `MAX_POINTS` evaluations, evenly, the first and the last included.

    Returns:
        Their steps, and their indices in `steps`.
    """
    n_points = min(len(steps), MAX_POINTS)
    indices = np.linspace(0, len(steps) - 1, n_points).round().astype(int)
    return steps[indices], indices


def line(panel: int, x: np.ndarray, y: np.ndarray, **style: Any) -> Trace:
    """Return a line without a hover text."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _packed(x),
        "y": _packed(y),
        "line": style,
        "showlegend": False,
        "hoverinfo": "skip",
        **_axes(panel),
    }


def level(panel: int, span: list[int], height: float, dash: str) -> Trace:
    """Return a horizontal reference line over the whole width of a panel."""
    return line(panel, np.array(span), np.full(2, height), color=REFERENCE, width=1.2, dash=dash)


def band(panel: int, steps: np.ndarray, low: np.ndarray, high: np.ndarray, color: str) -> Trace:
    """Return the area between two limits, where they are not NaN."""
    present = ~np.isnan(low)
    x = np.concatenate([steps[present], steps[present][::-1]])
    y = np.concatenate([high[present], low[present][::-1]])
    return {**line(panel, x, y, width=0), "fill": "toself", "fillcolor": translucent(color, 0.2)}


def mean_line(
    panel: int, x: np.ndarray, y: np.ndarray, color: str, *, low: np.ndarray, high: np.ndarray
) -> Trace:
    """Return the line of a mean, with the mean and its limits as hover text."""
    curve = line(panel, x, y, color=color, width=2.5)
    limits = [f" [{a:.2f}, {b:.2f}]" if a == a else "" for a, b in zip(low, high, strict=True)]
    del curve["hoverinfo"]
    return {**curve, "text": limits, "hovertemplate": "%{y:.2f}%{text}<extra></extra>"}


def panels_layout(
    titles: Sequence[Title], span: list[int], *, revision: str, step: int
) -> dict[str, Any]:
    """Return the layout of a row of panels: axes and titles. The page may wrap the row.

    Args:
        titles: Title of each panel.
        span: First and last step of the horizontal axes.
        revision: Identifier of the content; zoom and hover are kept while it stays the same.
        step: Current step of training.
    """
    n = len(titles)
    gap = 0.03 if n < 10 else 0.0  # The page sets its own gaps when it wraps the row.
    layout: dict[str, Any] = {
        "showlegend": False,
        "hovermode": "x",
        "dragmode": "zoom",
        "uirevision": revision,
        "annotations": [],
        "margin": {"l": 34, "r": 8, "t": 24, "b": 30},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    for panel, title in enumerate(titles):
        axes = _axes(panel)
        x_name, y_name = axes["xaxis"].replace("x", "xaxis"), axes["yaxis"].replace("y", "yaxis")
        width = (1 - gap * (n - 1)) / n
        start = panel * (width + gap)
        layout[x_name] = {
            "domain": [start, min(1.0, start + width)],
            "anchor": axes["yaxis"],
            "range": span,
            "nticks": 3,
            "zeroline": False,
            "showspikes": False,
            **({"matches": "x"} if panel else {}),
        }
        layout[y_name] = {
            "anchor": axes["xaxis"],
            "range": [-0.02, 1.04],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0", "", "½", "", "1"],
            "zeroline": False,
            **({"matches": "y"} if panel else {}),
        }
        square = f'<span style="color:{title.color}">■</span>' if title.color else "<span></span>"
        layout["annotations"].append(
            {
                "text": f"{square} <b>{title.name}</b>",
                "hovertext": title.second,
                "xref": f"{axes['xaxis']} domain",
                "yref": f"{axes['yaxis']} domain",
                "x": 0,
                "y": 1,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
            }
        )
    layout["meta"] = {"panels": n, "step": step}
    return layout


def scale_losses(layout: dict[str, Any], top: float) -> None:
    """Set the range of all vertical axes to 0 to `top`, with ticks for losses."""
    for name, axis in layout.items():
        if name.startswith("yaxis"):
            axis.update(range=[0, top], tickvals=None, ticktext=None, nticks=5)


def _packed(values: np.ndarray) -> dict[str, str]:
    """Return an array in Plotly's form of a typed array."""
    blob = np.ascontiguousarray(values, np.float32).tobytes()
    return {"dtype": "f4", "bdata": base64.b64encode(blob).decode()}


def _axes(panel: int) -> dict[str, str]:
    suffix = "" if panel == 0 else str(panel + 1)
    return {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
