"""Figures of one head of a real model: the two parts of W_Q W_Kᵀ, its spectra, principal angles.

They are drawn from a `Portrait`, each with a description in words.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from attnkit.figures.groups import number_text
from attnkit.figures.marks import bars, cells, curve, level
from attnkit.figures.panels import Axis, Figure, Panel, Scale, Title, draw
from attnkit.realmodels.portraits import Portrait
from attnkit.variants.palette import BLUE_RED, REFERENCE

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
    share, numbers = energy_of(portrait), np.arange(1, len(portrait.matrix) + 1)
    end, ticks = len(numbers) + 0.5, [1, *range(5, len(numbers) + 1, 5)]
    x = Axis(0.5, end, "direction of keys", ticks, grid=False)
    y = Axis(end, 0.5, "direction of queries", ticks, grid=False)
    titles = (f"symmetric, {_percent(share)} (chance 50%)", f"skew, {_percent(1 - share)}")
    panels = []
    for part, title in zip(parts_of(portrait), titles, strict=True):
        tips = [
            [
                f"query {query}, key {key}: {value:.3g}"
                for key, value in zip(numbers, row, strict=True)
            ]
            for query, row in zip(numbers, part, strict=True)
        ]
        marks = [cells(numbers, numbers, part, tips=tips, gap=0)]
        panels.append(Panel(x, y, marks, Title(title), 256))
    return draw(panels, columns=2, gap=0.08, right=8, scale=Scale(-limit, limit, BLUE_RED))


def describe_split(portrait: Portrait) -> str:
    """Describe the shares of the symmetric and the skew part."""
    share = energy_of(portrait)
    return (
        f"{_percent(share)} of the energy of W_Q W_Kᵀ is symmetric, {_percent(1 - share)} skew; "
        "by chance each is 50%. "
        f"The map shows {len(portrait.matrix)} leading directions, which hold "
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
    y = Axis(1.08 * min(0.0, float(symmetric.min(initial=0.0))), 1.08 * top, n_ticks=5)
    drawn = [
        Panel(
            Axis(0.4, len(values) + 0.6, n_ticks=4, grid=False),
            y,
            [
                level(0.0, "solid", width=1),
                bars(
                    np.arange(1, len(values) + 1),
                    values,
                    colors,
                    f"{title}, number %{{x}}: %{{y:.3g}}",
                ),
            ],
            Title(title),
            height=200,
        )
        for title, values, colors in panels
    ]
    return draw(drawn, columns=3, gap=0.05, right=8)


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
    chance = random_squares(d_model, len(portrait.angles["qk"]))
    lines = [
        (name, portrait.angles[pair] ** 2, INK, *_PAIR_LOOKS[pair])
        for pair, name in PAIR_NAMES.items()
    ]
    marks = [
        curve(
            np.arange(1, len(squares) + 1),
            squares,
            color,
            width=2,
            dash=dash,
            symbol=symbol,
            size=7,
            name=f"{name}, mean {number_text(float(squares.mean()))}",
            hover=f"{name}, angle %{{x}}: %{{y:.3f}}",
        )
        for name, squares, color, dash, symbol in (*lines, ("random", chance, REFERENCE, "dot", ""))
    ]
    x = Axis(0.5, len(chance) + 0.5, "principal angle, smallest first")
    y = Axis(-0.02, 1.02, "cos²: 1 the same direction")
    return draw([Panel(x, y, marks, height=250)], legend="above")


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
