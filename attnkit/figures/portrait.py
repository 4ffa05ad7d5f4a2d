"""Figures of one head of a real model: the two parts of W_Q W_Kᵀ, its spectra, principal angles.

They are drawn from a `Portrait` as plain Plotly dictionaries, each with a description in words.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from attnkit.figures.groups import LEGEND, legend_text, number_text
from attnkit.figures.panels import Figure, Trace
from attnkit.figures.strips import bare_layout
from attnkit.realmodels.portraits import Portrait
from attnkit.variants.palette import BLUE_RED, REFERENCE, translucent

BLUE_RED_SCALE = [[index / (len(BLUE_RED) - 1), color] for index, color in enumerate(BLUE_RED)]
"""Colour scale of all maps of signed numbers: blue below 0, red above."""

PAIR_NAMES = {"qk": "Q and K", "qv": "Q and V", "kv": "K and V"}

INK = "#6A7788"
"""Neutral colour that is easy to see on light and on dark pages."""

_PAIR_LOOKS = {
    "qk": ("solid", "circle"),
    "qv": ("dash", "square"),
    "kv": ("longdashdot", "triangle-up"),
}
"""Dash and symbol of each pair, by the suffix of a measure's name; all have one colour."""

_DRAWS = 4
"""Number of random pairs of subspaces that are averaged."""

_MOST_NUMBERS = 2**18
"""Most entries of a random matrix; larger ones are drawn smaller, in the same proportion."""


def parts_of(portrait: Portrait) -> tuple[np.ndarray, np.ndarray]:
    """Return the symmetric and the skew part of the portrait's matrix, W_Q W_Kᵀ."""
    matrix = portrait.matrix
    return (matrix + matrix.T) / 2, (matrix - matrix.T) / 2


def energy_of(portrait: Portrait) -> float:
    """Return the share of the symmetric part in ‖W_Q W_Kᵀ‖², from 0 to 1; NaN if that is 0."""
    symmetric = float((portrait.symmetric**2).sum())
    skew = 2 * float((portrait.skew**2).sum())  # Each value stands for a pair ±iω.
    return symmetric / (symmetric + skew) if symmetric + skew > 0 else math.nan


def plot_split(portrait: Portrait) -> Figure:
    """Plot the symmetric and the skew part of W_Q W_Kᵀ as two maps on one colour scale."""
    limit = float(np.abs(portrait.matrix).max(initial=0.0)) or 1.0
    share = energy_of(portrait)
    n = len(portrait.matrix)
    data: list[Trace] = []
    layout: dict[str, Any] = {
        **bare_layout(),
        "height": 330,
        "margin": {"l": 44, "r": 8, "t": 30, "b": 44},
        "annotations": [],
    }
    titles = (f"symmetric, {_percent(share)} (chance 50%)", f"skew, {_percent(1 - share)}")
    for panel, (part, title) in enumerate(zip(parts_of(portrait), titles, strict=True)):
        suffix = "" if panel == 0 else "2"
        data.append(
            {
                "type": "heatmap",
                "z": [[float(f"{value:.3g}") for value in row] for row in part],
                "x": list(range(1, n + 1)),
                "y": list(range(1, n + 1)),
                "zmin": -limit,
                "zmax": limit,
                "colorscale": BLUE_RED_SCALE,
                "showscale": panel == 1,
                "colorbar": {"thickness": 10, "outlinewidth": 0, "nticks": 5},
                "xaxis": f"x{suffix}",
                "yaxis": f"y{suffix}",
                "hovertemplate": "query %{y}, key %{x}: %{z:.3g}<extra></extra>",
            }
        )
        domain = [0.0, 0.46] if panel == 0 else [0.54, 1.0]
        layout[f"xaxis{suffix}"] = {
            **_map_axis(n),
            "domain": domain,
            "anchor": f"y{suffix}",
            "title": {"text": "direction of keys", "font": {"size": 12}, "standoff": 8},
        }
        layout[f"yaxis{suffix}"] = {
            **_map_axis(n),
            "range": [n + 0.5, 0.5],
            "anchor": f"x{suffix}",
            **(
                {"title": {"text": "direction of queries", "font": {"size": 12}, "standoff": 8}}
                if panel == 0
                else {}
            ),
        }
        layout["annotations"].append(_panel_title(title, domain[0]))
    return {"data": data, "layout": layout}


def _map_axis(n: int) -> dict[str, Any]:
    return {
        "range": [0.5, n + 0.5],
        "tickvals": [1, *range(5, n + 1, 5)],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }


def _panel_title(text: str, x: float) -> dict[str, Any]:
    return {
        "text": f"<b>{text}</b>",
        "x": x,
        "y": 1,
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }


def describe_split(portrait: Portrait) -> str:
    """Describe the shares of the symmetric and the skew part."""
    share = energy_of(portrait)
    return (
        f"{_percent(share)} of the energy of W_Q W_Kᵀ is symmetric, {_percent(1 - share)} skew; "
        "by chance each is 50%. "
        f"Shown are {len(portrait.matrix)} leading directions, which hold "
        f"{_percent(portrait.shown)} of it, turned so that the symmetric part is diagonal."
    )


def plot_spectra(portrait: Portrait) -> Figure:
    """Plot the spectra of W_Q W_Kᵀ, of its symmetric part and of its skew part.

    They are singular values, eigenvalues, and absolute values of the imaginary eigenvalues.
    """
    blue, red = BLUE_RED[0], BLUE_RED[-1]
    symmetric = portrait.symmetric
    panels = [
        ("singular values", portrait.singular, [INK] * len(portrait.singular)),
        ("symmetric part", symmetric, [red if value > 0 else blue for value in symmetric]),
        ("skew part", portrait.skew, [INK] * len(portrait.skew)),
    ]
    top = float(max(np.abs(values).max(initial=0.0) for _, values, _ in panels)) or 1.0
    low = min(0.0, float(symmetric.min(initial=0.0)))
    layout: dict[str, Any] = {
        **bare_layout(),
        "height": 260,
        "bargap": 0.15,
        "margin": {"l": 8, "r": 8, "t": 30, "b": 34},
        "annotations": [],
    }
    data: list[Trace] = []
    for panel, (title, values, colors) in enumerate(panels):
        suffix = "" if panel == 0 else str(panel + 1)
        start = panel * (1 + _GAP) / 3
        data.append(
            {
                "type": "bar",
                "x": list(range(1, len(values) + 1)),
                "y": [float(f"{value:.3g}") for value in values],
                "marker": {"color": colors, "line": {"width": 0}},
                "xaxis": f"x{suffix}",
                "yaxis": f"y{suffix}",
                "hovertemplate": f"{title}, number %{{x}}: %{{y:.3g}}<extra></extra>",
            }
        )
        layout[f"xaxis{suffix}"] = {
            "domain": [start, min(1.0, start + (1 - 2 * _GAP) / 3)],
            "anchor": f"y{suffix}",
            "range": [0.4, len(values) + 0.6],
            "nticks": 4,
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        }
        layout[f"yaxis{suffix}"] = {
            "range": [low * 1.08, top * 1.08],
            "anchor": f"x{suffix}",
            "nticks": 5,
            "showticklabels": panel == 0,
            "automargin": True,
            "gridcolor": translucent(REFERENCE, 0.3),
            "zerolinecolor": REFERENCE,
            "fixedrange": True,
        }
        layout["annotations"].append(_panel_title(title, start))
    return {"data": data, "layout": layout}


_GAP = 0.05
"""Gap between panels, as a share of the figure's width."""


def describe_spectra(portrait: Portrait) -> str:
    """Describe how many directions hold half of W_Q W_Kᵀ, and the signs of its eigenvalues."""
    singular, symmetric = portrait.singular, portrait.symmetric
    energy = np.cumsum(singular**2)
    half = int(np.searchsorted(energy, energy[-1] / 2)) + 1 if energy[-1] > 0 else 0
    positive = float(symmetric[symmetric > 0].sum())
    total = float(np.abs(symmetric).sum())
    share = positive / total if total > 0 else math.nan
    largest, smallest, largest_skew = (
        number_text(float(value))
        for value in (symmetric.max(), symmetric.min(), portrait.skew.max())
    )
    return (
        f"{half} of {len(singular)} singular values hold half of ‖W_Q W_Kᵀ‖². Of the symmetric "
        f"part’s eigenvalues, {_percent(share)} by size are positive; the largest is "
        f"{largest}, the smallest {smallest}. The largest skew size is {largest_skew}."
    )


def plot_angles(portrait: Portrait, d_model: int) -> Figure:
    """Plot cos² of the principal angles between the subspaces that Q, K and V read.

    A dotted line shows random subspaces of a stream of width `d_model`.
    """
    data: list[Trace] = []
    for pair, name in PAIR_NAMES.items():
        dash, symbol = _PAIR_LOOKS[pair]
        squares = portrait.angles[pair] ** 2
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": legend_text(f"{name}, mean {number_text(float(squares.mean()))}"),
                "x": list(range(1, len(squares) + 1)),
                "y": [float(f"{value:.3g}") for value in squares],
                "line": {"color": INK, "width": 2, "dash": dash},
                "marker": {"color": INK, "symbol": symbol, "size": 7},
                "hovertemplate": f"{name}, angle %{{x}}: %{{y:.3f}}<extra></extra>",
            }
        )
    chance = random_squares(d_model, len(portrait.angles["qk"]))
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": legend_text(f"random, mean {number_text(float(chance.mean()))}"),
            "x": list(range(1, len(chance) + 1)),
            "y": [float(f"{value:.3g}") for value in chance],
            "line": {"color": REFERENCE, "width": 2, "dash": "dot"},
            "hovertemplate": "random, angle %{x}: %{y:.3f}<extra></extra>",
        }
    )
    axis = {"zeroline": False, "fixedrange": True, "gridcolor": translucent(REFERENCE, 0.3)}
    layout = {
        **bare_layout(),
        "showlegend": True,
        "legend": LEGEND,
        "height": 300,
        "margin": {"l": 8, "r": 14, "t": 8, "b": 40},
        "xaxis": {
            **axis,
            "title": {"text": "principal angle, smallest first", "font": {"size": 13}},
            "range": [0.5, len(chance) + 0.5],
            "nticks": 6,
        },
        "yaxis": {
            **axis,
            "title": {"text": "cos²: 1 the same direction", "font": {"size": 13}},
            "range": [-0.02, 1.02],
            "nticks": 6,
            "automargin": True,
        },
    }
    return {"data": data, "layout": layout}


def describe_angles(portrait: Portrait, d_model: int) -> str:
    """Describe the mean cos² of every pair of subspaces, and of random ones."""
    means = ", ".join(
        f"{name} {number_text(float((portrait.angles[pair] ** 2).mean()))}"
        for pair, name in PAIR_NAMES.items()
    )
    chance = float(random_squares(d_model, len(portrait.angles["qk"])).mean())
    return f"Mean cos² of the principal angles: {means}; of random subspaces {number_text(chance)}."


@lru_cache(16)
def random_squares(d_model: int, d_head: int) -> np.ndarray:
    """Return cos² of the principal angles of two random subspaces, (d_head,), largest first.

    It is a mean over draws from a fixed seed.
    """
    shrink = max(1.0, math.sqrt(d_model * d_head / _MOST_NUMBERS))
    rows, columns = round(d_model / shrink), max(1, round(d_head / shrink))
    rng = np.random.default_rng(0)
    squares = np.zeros(columns)
    for _ in range(_DRAWS):
        a, b = (np.linalg.qr(rng.standard_normal((rows, columns)))[0] for _ in range(2))
        squares += np.linalg.svd(a.T @ b, compute_uv=False) ** 2 / _DRAWS
    return np.interp(np.linspace(0, columns - 1, d_head), np.arange(columns), squares)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if math.isfinite(share) else "–"
