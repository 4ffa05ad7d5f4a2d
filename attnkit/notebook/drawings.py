"""Small SVG drawings for notebooks: curves with intervals, and attention maps.

Coordinates are pixels at the natural width of a drawing, which scales with its container. Curves
are written in tenths of pixels, relative to the point before, which takes half of the bytes.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from PIL import Image

from attnkit.variants.palette import BLUE_RED, VIRIDIS

MOST_POINTS = 48
"""Most points of a curve; statistics are never computed from thinned curves."""

_LETTER, _AXIS, _RIGHT = 6.2, 15, 4
"""Width of a letter, height of the horizontal axis, and right margin, in pixels."""

_DASHES = {"dot": "2 3", "dash": "6 4", "longdashdot": "9 3 2 3"}

LEFT = 34
"""Width of the labels beside a chart, in pixels."""


@dataclass(frozen=True, eq=False)
class Chart:
    """Axes of a small chart over steps.

    Attributes:
        width: Width in pixels.
        height: Height in pixels.
        last_step: Right end of the horizontal axis, which begins at 0.
        top: Upper end of the vertical axis, which begins at 0.
        as_percent: Whether the vertical axis is labelled in percent.
    """

    width: int
    height: int
    last_step: int
    top: float = 1.0
    as_percent: bool = False

    def draw(self, parts: Sequence[str], label: str) -> str:
        """Return the chart with its axes and some parts.

        Args:
            parts: Parts as SVG: `curve`, `band`, `level`.
            label: Description for screen readers.
        """
        right = self.width - _RIGHT
        texts, rules = [], ""
        for value in (0.0, self.top / 2, self.top):
            y = self._y(np.array(value)) / 10
            rules += f"M{LEFT} {y:g}H{right}"
            shift = 7 if value == self.top else 4
            text = f"{value:.0%}" if self.as_percent else f"{value:.1f}" if value else "0"
            texts.append(f'<text class="end" x="{LEFT - 4}" y="{y + shift:g}">{text}</text>')
        texts.append(f'<text x="{LEFT}" y="{self.height - 3}">0</text>')
        texts.append(
            f'<text class="end" x="{right}" y="{self.height - 3}">{self.last_step:,} steps</text>'
        )
        return (
            f'<svg class="plot" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(label, quote=True)}"><path class="rule" d="{rules}"/>'
            f'{"".join(texts)}<g transform="scale(.1)">{"".join(parts)}</g></svg>'
        )

    def curve(self, steps: np.ndarray, values: np.ndarray, color: str, css_class: str) -> str:
        """Return the line of values, with gaps where they are not finite."""
        line = self._path(steps, values)
        return f'<path class="{css_class}" style="stroke:{color}" d="{line}"/>' if line else ""

    def band(self, steps: np.ndarray, low: np.ndarray, high: np.ndarray, color: str) -> str:
        """Return the area between two limits, where they are finite."""
        known = np.isfinite(low) & np.isfinite(high)
        if not known.any():
            return ""
        x = np.concatenate([steps[known], steps[known][::-1]])
        y = np.concatenate([high[known], low[known][::-1]])
        return f'<path class="band" style="fill:{color}" d="{self._path(x, y)}z"/>'

    def level(self, value: float, dash: str) -> str:
        """Return a horizontal line over the whole width."""
        pattern = f' stroke-dasharray="{_DASHES[dash]}"' if dash in _DASHES else ""
        ends = np.array([0, self.last_step])
        return f'<path class="level"{pattern} d="{self._path(ends, np.full(2, value))}"/>'

    def upright(self, step: int) -> str:
        """Return a vertical line over the whole height."""
        ends = np.array([0.0, self.top])
        return f'<path class="level" d="{self._path(np.full(2, step), ends)}"/>'

    def _x(self, steps: np.ndarray) -> np.ndarray:
        span = self.width - _RIGHT - LEFT
        x: np.ndarray = np.rint(10 * (LEFT + span * np.asarray(steps) / max(self.last_step, 1)))
        return x

    def _y(self, values: np.ndarray) -> np.ndarray:
        bottom = self.height - _AXIS
        shares = np.clip(np.asarray(values, np.float64) / self.top, 0, 1)
        y: np.ndarray = np.rint(10 * (bottom - (bottom - 6) * shares))
        return y

    def _path(self, steps: np.ndarray, values: np.ndarray) -> str:
        """Return a path through the points whose values are finite."""
        known = np.isfinite(values)
        x, y = self._x(steps), self._y(values)
        text, before = "", None
        for i in np.flatnonzero(known):
            if before != i - 1:
                text += f"M{x[i]:.0f} {y[i]:.0f}"
            else:
                text += f"l{x[i] - x[i - 1]:.0f} {y[i] - y[i - 1]:.0f}"
            before = i
        return text.replace("-0", "0").replace(" -", "-")


def thin(steps: np.ndarray) -> np.ndarray:
    """Return the indices of at most `MOST_POINTS` evaluations, first and last included."""
    n_points = min(len(steps), MOST_POINTS)
    indices: np.ndarray = np.linspace(0, len(steps) - 1, n_points).round().astype(int)
    return indices


def attention_map(
    axes: dict[str, Any],
    panel: dict[str, Any],
    levels: np.ndarray,
    mark: dict[str, int] | None,
    width: int,
) -> str:
    """Return the attention map of one variant: rows are queries, columns are keys.

    Args:
        axes: Texts and marked entries, as in `attnkit.figures.maps.attention_maps`.
        panel: Answers of the variant, as in the panels of that function.
        levels: Attention from 0 to 255, (rows, columns).
        mark: Marked pair and its mirror, as on `attnkit.figures.board.board`; None to mark the
            mirrored entries of all rows.
        width: Width of the drawing in pixels.
    """
    rows = axes["short_rows"] if axes.get("short_rows") and width < 260 else axes["rows"]
    columns = axes["columns"]
    left = max(LEFT, 8 + round(_LETTER * max(map(len, rows))))
    right = 22 + round(_LETTER * axes["answer_letters"])
    single = all(len(text) == 1 for text in columns)
    top = 16 if single else 8 + round(_LETTER * max(map(len, columns)))
    w = max(4.0, min((width - left - right) / len(columns), 22.0))
    h = max(12.0, min(16.0, 1.25 * w))
    end, height = left + w * len(columns), top + h * len(rows) + 2
    parts = [_image(_quantised(levels / 255), _VIRIDIS, left, top, end - left, h * len(rows))]
    for j, text in enumerate(columns):
        x, y = left + (j + 0.5) * w, top - 5
        place = f'class="middle" x="{x:g}" y="{y}"'
        if not single:
            place = f'transform="translate({x + 4:g} {y})rotate(-90)"'
        parts.append(f"<text {place}>{escape(text)}</text>")
    for i, text in enumerate(rows):
        y = top + (i + 0.5) * h + 4
        parts.append(f'<text class="end" x="{left - 5}" y="{y:g}">{escape(text)}</text>')
        if panel["right"][i] is not None:
            answer = f"{panel['answers'][i]} {'✓' if panel['right'][i] else '✗'}"
            parts.append(f'<text x="{end + 5:g}" y="{y:g}">{escape(answer)}</text>')
    parts.append(_marks(axes, mark, left, top, w, h))
    label = f"Attention map of {panel['name']}: {panel['summary']}"
    natural = max(width, round(end + right))
    return (
        f'<svg class="plot" viewBox="0 0 {natural} {height:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def _marks(
    axes: dict[str, Any], mark: dict[str, int] | None, left: float, top: float, w: float, h: float
) -> str:
    """Return frames around right entries, and circles around mirrored ones."""

    def centre(row: int, column: int) -> tuple[float, float]:
        return left + (column + 0.5) * w, top + (row + 0.5) * h

    d = ""
    for i, column in enumerate(axes["target"]):
        if column >= 0:
            x, y = centre(i, column)
            d += f"M{x - w / 2 + 1:.1f} {y - h / 2 + 1:.1f}h{w - 2:.1f}v{h - 2:.1f}h{2 - w:.1f}z"
    mirrored = [(i, column) for i, column in enumerate(axes["reverse"]) if column >= 0]
    if mark is not None:
        mirrored = [(mark["mirror_row"], mark["mirror_column"])]
        x0, y0 = centre(mark["row"], mark["column"])
        x1, y1 = centre(*mirrored[0])
        bend = f"{(x0 + x1) / 2 + (y1 - y0) / 4:.1f} {(y0 + y1) / 2 - (x1 - x0) / 4:.1f}"
        d += f"M{x0:.1f} {y0:.1f}Q{bend} {x1:.1f} {y1:.1f}"
    r = max(2.0, min(w, h) / 2 - 3)
    for row, column in mirrored:
        x, y = centre(row, column)
        d += f"M{x - r:.1f} {y:.1f}a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0"
        d += f"a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0"
    return f'<path class="halo" d="{d}"/><path class="mark" d="{d}"/>' if d else ""


def signed_map(values: np.ndarray, limit: float, label: str) -> str:
    """Return a map of signed numbers: blue below 0, red above.

    Args:
        values: Numbers, (rows, columns).
        limit: Number with the strongest colour.
        label: Description for screen readers.
    """
    side = 200
    image = _image(_quantised((values / limit + 1) / 2), _BLUE_RED, 0, 0, side, side)
    return (
        f'<svg class="plot map" viewBox="0 0 {side} {side}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{image}</svg>'
    )


def interval(
    mean: float, low: float, high: float, *, region: tuple[float, float], label: str
) -> str:
    """Return a mean with its interval, the region in which a statement holds, and zero.

    Args:
        mean: The mean.
        low: Lower limit; NaN for no interval.
        high: Upper limit.
        region: Limits of the region, which can be infinite.
        label: Description for screen readers.
    """
    width, height = 150, 22
    ends = [abs(v) for v in (mean, low, high, *region) if np.isfinite(v)]
    reach = 1.15 * max(ends, default=1.0) or 1.0

    def x(value: float) -> float:
        return float(np.clip((value / reach + 1) / 2, 0, 1)) * (width - 10) + 5

    left, right = (x(limit) for limit in region)
    bar = f"M{x(low):.1f} 11H{x(high):.1f}" if np.isfinite(low) else ""
    return (
        f'<svg class="plot" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label, quote=True)}">'
        f'<rect class="region" x="{left:.1f}" y="2" width="{right - left:.1f}" height="18"/>'
        f'<path class="level" d="M{x(0):.1f} 2V20"/><path class="line" d="{bar}"/>'
        f'<path class="dot" d="M{x(mean):.1f} 5l6 6l-6 6l-6 -6z"/></svg>'
    )


def _quantised(shares: np.ndarray) -> np.ndarray:
    """Return numbers from 0 to 1 as indices of colours."""
    whole = np.rint(np.nan_to_num(shares).clip(0, 1) * (_N_COLORS - 1))
    indices: np.ndarray = whole.astype(np.uint8)
    return indices


def _image(
    indices: np.ndarray, palette: bytes, x: float, y: float, width: float, height: float
) -> str:
    source = f"data:image/png;base64,{b64encode(_png(indices, palette)).decode()}"
    return (
        f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'preserveAspectRatio="none" href="{source}"/>'
    )


def _png(indices: np.ndarray, palette: bytes) -> bytes:
    """Return indices of colours, (rows, columns), as a PNG."""
    image = Image.fromarray(indices, "P")
    image.putpalette(palette)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


_N_COLORS = 64
"""Number of colours in a map, few enough for a short palette."""


def _palette(colors: Sequence[str]) -> bytes:
    """Return the colours of a scale for a PNG, three bytes each."""
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colors])
    places = np.linspace(0, len(stops) - 1, _N_COLORS)
    channels = [np.interp(places, np.arange(len(stops)), channel) for channel in stops.T]
    packed: bytes = np.rint(np.stack(channels, 1)).astype(np.uint8).tobytes()
    return packed


_VIRIDIS, _BLUE_RED = _palette(VIRIDIS), _palette(BLUE_RED)
