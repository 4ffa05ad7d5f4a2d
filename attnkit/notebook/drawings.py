"""Panels as small SVG drawings, for cards, which have no script.

Coordinates are pixels at the natural width of a drawing, which scales with its container. Marks are
written in tenths of pixels, and curves relative to the point before, which takes half of the bytes.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import Any

import numpy as np
from PIL import Image

from attnkit.figures.marks import WHOLE, Mark, cells, curve, dots, level, region
from attnkit.figures.panels import Axis, Panel
from attnkit.variants.palette import BLUE_RED, REFERENCE, VIRIDIS, translucent

MOST_POINTS = 48
"""Most points of a curve; statistics are never computed from thinned curves."""

_LETTER, _TICKS, _LEFT, _RIGHT, _TOP = 6.2, 15, 34, 4, 6
"""Width of a letter, height of the labels below, and margins, in pixels."""

_DASHES = {"dot": "2 3", "dash": "6 4", "longdashdot": "9 3 2 3"}

INK = "currentColor"
"""Colour of the text around a drawing."""

_N_COLORS = 64
"""Number of colours in a map, few enough for a short palette."""


def drawing(
    panel: Panel, width: int, label: str, colors: Sequence[str] = VIRIDIS, low: float = 0.0
) -> str:
    """Return a panel with linear axes as an SVG.

    Args:
        panel: The panel; its title is left out.
        width: Width in pixels.
        label: Description for screen readers.
        colors: Colours of cells at equal distances.
        low: Number of the first colour; that of the last one is 1.
    """
    canvas = _Canvas(panel, width)
    marks = "".join(canvas.mark(mark, colors, low) for mark in panel.marks)
    return (
        f'<svg class="plot" viewBox="0 0 {width} {canvas.bottom + canvas.below:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{canvas.axes()}'
        f'<g transform="scale(.1)">{marks}</g></svg>'
    )


def signed_map(values: np.ndarray, limit: float, label: str) -> str:
    """Return a map of signed numbers from −`limit` to `limit`: blue below 0, red above."""
    n_rows, n_columns = values.shape
    marks = [cells(range(n_columns), range(n_rows), values / limit, tips=[])]
    x = Axis(-0.5, n_columns - 0.5, visible=False)
    panel = Panel(x, Axis(n_rows - 0.5, -0.5, visible=False), marks, height=200)
    return f'<div class="map">{drawing(panel, 200, label, BLUE_RED, -1.0)}</div>'


def interval(
    mean: float, low: float, high: float, *, holds: tuple[float, float], label: str
) -> str:
    """Return a mean with its interval, the region in which a statement holds, and zero.

    Args:
        mean: The mean.
        low: Lower limit; NaN for no interval.
        high: Upper limit.
        holds: Limits of the region, which can be infinite.
        label: Description for screen readers.
    """
    ends = [abs(v) for v in (mean, low, high, *holds) if np.isfinite(v)]
    reach = 1.15 * max(ends, default=1.0) or 1.0
    inside = (max(holds[0], -reach), min(holds[1], reach))
    marks = [
        region(inside, None, translucent(REFERENCE, 0.4)),
        level(0.0, "solid", upright=True, color=INK, width=1.2),
        curve([low, high], [0, 0], INK),
        dots([mean], [0], INK, size=10),
    ]
    x = Axis(-reach, reach, visible=False)
    return drawing(Panel(x, Axis(-1, 1, visible=False), marks, height=16), 150, label)


@dataclass(frozen=True, eq=False)
class _Canvas:
    """Pixel coordinates of a panel in a drawing."""

    panel: Panel
    width: int

    @property
    def left(self) -> float:
        """Left end of the horizontal axis."""
        if not self.panel.y.visible:
            return 2.0
        return max(_LEFT, 8 + _LETTER * max(len(text) for _, text in self._ticks(self.panel.y)))

    @property
    def right(self) -> float:
        """Right end of the horizontal axis; answers stand at the right of it."""
        texts = [mark.values["text"] for mark in self.panel.marks if mark.part == "annotations"]
        return self.width - _RIGHT - _LETTER * max(map(len, texts), default=0)

    @property
    def bottom(self) -> float:
        """Lower end of the vertical axis."""
        return self.panel.height + _TOP

    @property
    def below(self) -> float:
        """Height of the labels below the panel."""
        if not self.panel.x.visible:
            return 2.0
        names = [text for _, text in self._ticks(self.panel.x)]
        return 8 + _LETTER * max(map(len, names)) if self.panel.x.angle else _TICKS

    def _ticks(self, axis: Axis) -> list[tuple[float, str]]:
        """Return places and plain texts of the labels of an axis."""
        if axis.ticks is not None and axis.texts is not None:
            texts = [unescape(text) for text in axis.texts]
            return list(zip(axis.ticks, texts, strict=True))
        ends = axis.ends
        if axis is self.panel.x:
            return [(ends[0], f"{ends[0]:,.0f}"), (ends[1], f"{ends[1]:,.0f} {axis.title}")]
        return [(v, f"{v:.1f}" if v else "0") for v in (ends[0], sum(ends) / 2, ends[1])]

    def _tenths(self, values: Any, axis: Axis, start: float, end: float) -> np.ndarray:
        """Return numbers on an axis, or shares of it, as tenths of pixels."""
        low, high = axis.ends
        shares = (np.asarray(values, np.float64) - low) / (high - low)
        tenths: np.ndarray = np.rint(10 * (start + (end - start) * shares.clip(0, 1)))
        return tenths

    def x(self, values: Any) -> np.ndarray:
        """Return horizontal places in tenths of pixels."""
        return self._tenths(values, self.panel.x, self.left, self.right)

    def y(self, values: Any) -> np.ndarray:
        """Return vertical places in tenths of pixels."""
        return self._tenths(values, self.panel.y, self.bottom, _TOP)

    def axes(self) -> str:
        """Return labels of both axes, and lines across the panel."""
        x_axis, y_axis, parts, rules = self.panel.x, self.panel.y, [], ""
        for value, text in self._ticks(y_axis) if y_axis.visible else ():
            y = self.y(value) / 10
            rules += f"M{self.left:g} {y:g}H{self.right:g}" if y_axis.grid else ""
            place = f'x="{self.left - 4:g}" y="{y + 4:g}"'
            parts.append(f'<text class="end" {place}>{escape(text)}</text>' if text else "")
        for value, text in self._ticks(x_axis) if x_axis.visible else ():
            x, css = self.x(value) / 10, "middle"
            place = f'x="{x:g}" y="{self.bottom + 12:g}"'
            if x_axis.angle:
                place, css = (
                    f'transform="translate({x + 4:g} {self.bottom + 5:g})rotate(-90)"',
                    "end",
                )
            elif x_axis.ticks is None:
                css = "end" if value == x_axis.high else ""
            parts.append(f'<text class="{css}" {place}>{escape(text)}</text>')
        return (f'<path class="rule" d="{rules}"/>' if rules else "") + "".join(parts)

    def mark(self, mark: Mark, colors: Sequence[str], low: float) -> str:
        """Return a mark; nothing for one without known points."""
        values = mark.values
        if mark.part == "annotations":
            x, y = (float(v) for v in (self.x(values["x"]) + 50, self.y(values["y"]) + 40))
            return f'<text transform="translate({x:g} {y:g})scale(10)">{values["text"]}</text>'
        if mark.part == "shapes":
            return self._shape(values) if mark.known else ""
        if values["type"] == "heatmap":
            return self._cells(values, colors, low)
        if values["mode"] == "markers":
            return self._dots(values)
        path = self._path(self.x(values["x"]), self.y(values["y"]), values["y"])
        if "fill" in values:
            return f'<path class="band" fill="{values["fillcolor"]}" d="{path}z"/>' if path else ""
        return f'<path {_stroke(values["line"])} d="{path}"/>' if path else ""

    def _shape(self, values: dict[str, Any]) -> str:
        x_ends, y_ends = (
            axis.ends
            if values.get(f"{letter}ref") == WHOLE
            else (values[f"{letter}0"], values[f"{letter}1"])
            for letter, axis in (("x", self.panel.x), ("y", self.panel.y))
        )
        (x0, x1), (y0, y1) = self.x(x_ends), self.y(y_ends)
        if values["type"] == "line":
            return f'<path {_stroke(values["line"])} d="M{x0:g} {y0:g}L{x1:g} {y1:g}"/>'
        fill = f'fill="{values["fillcolor"]}"' if "fillcolor" in values else _stroke(values["line"])
        return f'<path {fill} d="M{x0:g} {y0:g}H{x1:g}V{y1:g}H{x0:g}z"/>'

    def _dots(self, values: dict[str, Any]) -> str:
        """Return circles, whatever the symbol."""
        marker = values["marker"]
        r = 5 * min(marker["size"], 0.7 * self.panel.height / self._n_rows)
        path = "".join(
            f"M{x - r:g} {y:g}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0"
            for x, y in zip(self.x(values["x"]), self.y(values["y"]), strict=True)
        )
        look = f'fill="{marker["color"]}"'
        if marker["symbol"] == "circle-open":
            look = _stroke({"color": marker["color"], **marker["line"]})
        return f'<path {look} d="{path}"/>' if path else ""

    @property
    def _n_rows(self) -> int:
        """Number of labelled rows."""
        return len(self._ticks(self.panel.y)) if self.panel.y.visible else 1

    def _path(self, x: np.ndarray, y: np.ndarray, values: np.ndarray) -> str:
        """Return a path through the points whose values are finite."""
        text, before = "", None
        for i in np.flatnonzero(np.isfinite(values)):
            if before != i - 1:
                text += f"M{x[i]:.0f} {y[i]:.0f}"
            else:
                text += f"l{x[i] - x[i - 1]:.0f} {y[i] - y[i - 1]:.0f}"
            before = i
        return text.replace("-0", "0").replace(" -", "-")

    def _cells(self, values: dict[str, Any], colors: Sequence[str], low: float) -> str:
        """Return cells as a picture with a pixel for each of them."""
        shares = (np.array(values["z"], np.float64) - low) / (1 - low)
        indices = np.rint(np.nan_to_num(shares).clip(0, 1) * (_N_COLORS - 1)).astype(np.uint8)
        stops = np.array([[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in colors])
        places = np.linspace(0, len(stops) - 1, _N_COLORS)
        channels = [np.interp(places, np.arange(len(stops)), channel) for channel in stops.T]
        image = Image.fromarray(indices, "P")
        image.putpalette(np.rint(np.stack(channels, 1)).astype(np.uint8).tobytes())
        file = io.BytesIO()
        image.save(file, "PNG", optimize=True)
        left, top, size = 10 * self.left, 10 * _TOP, 10 * self.panel.height
        return (
            f'<image x="{left:g}" y="{top}" width="{10 * self.right - left:g}" height="{size}" '
            'preserveAspectRatio="none" '
            f'href="data:image/png;base64,{b64encode(file.getvalue()).decode()}"/>'
        )


def _stroke(line: dict[str, Any]) -> str:
    """Return the attributes of a line; one without a colour has that of the text."""
    dash = _DASHES.get(line.get("dash", ""))
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{line.get("color", INK)}" stroke-width="{line["width"]}"{pattern}'
