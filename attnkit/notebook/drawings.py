"""Panels as small SVG drawings, for cards, which have no script.

Coordinates are pixels at the natural width of a drawing, which scales with its container. Marks are
written in tenths of pixels, and curves relative to the point before, which takes half of the bytes.
"""

from __future__ import annotations

import io
import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
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

LETTER, _TICKS, _LEFT, _RIGHT, _TOP = 6.2, 15, 34, 4, 6
"""Width of a letter, height of the labels below, and margins, in pixels."""

_DASHES = {"dot": "2 3", "dash": "6 4", "longdashdot": "9 3 2 3"}

INK = "currentColor"
"""Colour of the text around a drawing."""

_CORNERS = {
    "square": (4, 45, 1.2),
    "diamond": (4, 0, 1.2),
    "triangle-up": (3, -90, 1.2),
    "hexagon": (6, 0, 1.2),
    "star": (10, -90, 0.5),
    "cross": (8, 0, 0.4),
    "x": (8, 45, 0.4),
}
"""Symbols of dots: number of corners, direction of the first one in degrees, and distance of every
second one as a multiple of the radius of a circle. All other symbols are circles."""

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
    left, answers = 2.0, [m.values["text"] for m in panel.marks if m.part == "annotations"]
    if panel.y.visible:
        left = max(_LEFT, 8 + LETTER * longest(text for _, text in ticks_of(panel, panel.y)))
    canvas = Canvas(panel, left, width - _RIGHT - LETTER * longest(answers), _TOP)
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


def longest(texts: Iterable[str]) -> int:
    """Return the number of letters of the longest text."""
    return max(map(len, texts), default=0)


def ticks_of(panel: Panel, axis: Axis) -> list[tuple[float, str]]:
    """Return places and plain texts of the labels of an axis."""
    if axis.ticks is not None and axis.texts is not None:
        texts = [unescape(text) for text in axis.texts]
        return list(zip(axis.ticks, texts, strict=True))
    ends = axis.ends
    if axis is panel.x:
        return [(ends[0], f"{ends[0]:,.0f}"), (ends[1], f"{ends[1]:,.0f} {axis.title}")]
    return [(v, f"{v:.1f}" if v else "0") for v in (ends[0], sum(ends) / 2, ends[1])]


@dataclass(frozen=True, eq=False)
class Canvas:
    """Pixel coordinates of a panel in a drawing.

    Attributes:
        panel: The panel.
        left: Left end of the horizontal axis.
        right: Right end of the horizontal axis; answers stand at the right of it.
        top: Upper end of the vertical axis.
    """

    panel: Panel
    left: float
    right: float
    top: float

    @property
    def bottom(self) -> float:
        """Lower end of the vertical axis."""
        return self.panel.height + self.top

    @property
    def below(self) -> float:
        """Height of the labels below the panel."""
        if not self.panel.x.visible:
            return 2.0
        names = [text for _, text in ticks_of(self.panel, self.panel.x)]
        return 8 + LETTER * longest(names) if self.panel.x.angle else _TICKS

    def _tenths(self, values: Any, axis: Axis, start: float, end: float) -> np.ndarray:
        """Return numbers on an axis, or shares of it, as tenths of pixels."""
        places, (low, high) = np.asarray(values, np.float64), axis.ends
        if axis.log:
            places, low, high = np.log(places), math.log(low), math.log(high)
        shares = (places - low) / (high - low)
        tenths: np.ndarray = np.rint(10 * (start + (end - start) * shares.clip(0, 1)))
        return tenths

    def x(self, values: Any) -> np.ndarray:
        """Return horizontal places in tenths of pixels."""
        return self._tenths(values, self.panel.x, self.left, self.right)

    def y(self, values: Any) -> np.ndarray:
        """Return vertical places in tenths of pixels."""
        return self._tenths(values, self.panel.y, self.bottom, self.top)

    def axes(self) -> str:
        """Return labels of both axes, and lines across the panel."""
        x_axis, y_axis, parts, rules = self.panel.x, self.panel.y, [], ""
        for value, text in ticks_of(self.panel, y_axis) if y_axis.visible else ():
            y = self.y(value) / 10
            rules += f"M{self.left:g} {y:g}H{self.right:g}" if y_axis.grid else ""
            place = f'x="{self.left - 4:g}" y="{y + 4:g}"'
            parts.append(f'<text class="end" {place}>{escape(text)}</text>' if text else "")
        for value, text in ticks_of(self.panel, x_axis) if x_axis.visible else ():
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
        if values["type"] == "bar":
            return self._bars(values)
        path = self._path(self.x(values["x"]), self.y(values["y"]), values["y"])
        if "fill" in values:
            fill = _attribute(values["fillcolor"])
            return f'<path class="band" fill="{fill}" d="{path}z"/>' if path else ""
        has_line = path and "lines" in values["mode"]
        parts = [f'<path {_stroke(values["line"])} d="{path}"/>'] if has_line else []
        limits = {letter: values.get(f"error_{letter}") for letter in "xy"}
        parts += [self._limits(values, one, letter) for letter, one in limits.items() if one]
        return "".join(parts) + (self._dots(values) if "markers" in values["mode"] else "")

    def _bars(self, values: dict[str, Any]) -> str:
        """Return upright bars, which leave a fifth of the space between them free."""
        zero, half = self.y(0), 0.4 * (self.x(1) - self.x(0))
        bars = zip(self.x(values["x"]), self.y(values["y"]), strict=True)
        shapes = [f"M{x - half:g} {zero:g}V{y:g}H{x + half:g}V{zero:g}z" for x, y in bars]
        fills = _each(values["marker"]["color"], len(shapes))
        parts = zip(fills, shapes, strict=True)
        return "".join(f'<path fill="{_attribute(fill)}" d="{shape}"/>' for fill, shape in parts)

    def _limits(self, values: dict[str, Any], limits: dict[str, Any], letter: str) -> str:
        """Return a line from the lower to the upper limit of each point."""
        x, y = ([np.asarray(values[one], np.float64)] * 2 for one in "xy")
        ends = x if letter == "x" else y
        ends[:] = ends[0] - limits["arrayminus"], ends[1] + limits["array"]
        lines = zip(self.x(x[0]), self.y(y[0]), self.x(x[1]), self.y(y[1]), strict=True)
        path = "".join(f"M{a:g} {b:g}L{c:g} {d:g}" for a, b, c, d in lines)
        return f'<path {_stroke({**limits, "width": limits["thickness"]})} d="{path}"/>'

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
        fill = _stroke(values["line"])
        if "fillcolor" in values:
            fill = f'fill="{_attribute(values["fillcolor"])}"'
        return f'<path {fill} d="M{x0:g} {y0:g}H{x1:g}V{y1:g}H{x0:g}z"/>'

    def _dots(self, values: dict[str, Any]) -> str:
        """Return one path for all dots of a colour and a symbol."""
        marker, n = values["marker"], len(values["x"])
        r = 5 * min(marker["size"], 0.7 * self.panel.height / self._n_rows)
        paths: dict[tuple[str, str], str] = {}
        looks = zip(_each(marker["color"], n), _each(marker["symbol"], n), strict=True)
        places = zip(self.x(values["x"]), self.y(values["y"]), strict=True)
        for (x, y), look in zip(places, looks, strict=True):
            paths[look] = paths.get(look, "") + _dot(x, y, r, look[1].removesuffix("-open"))
        edge = max(1, marker["line"]["width"])
        return "".join(
            f'<path {_stroke({"color": color, "width": edge})} d="{path}"/>'
            if symbol.endswith("-open")
            else f'<path fill="{_attribute(color)}" d="{path}"/>'
            for (color, symbol), path in paths.items()
        )

    @property
    def _n_rows(self) -> int:
        """Number of labelled rows."""
        return len(ticks_of(self.panel, self.panel.y)) if self.panel.y.visible else 1

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
        left, top, size = 10 * self.left, 10 * self.top, 10 * self.panel.height
        return (
            f'<image x="{left:g}" y="{top:g}" width="{10 * self.right - left:g}" height="{size}" '
            'preserveAspectRatio="none" '
            f'href="data:image/png;base64,{b64encode(file.getvalue()).decode()}"/>'
        )


def _attribute(value: object) -> str:
    """Return a value as it stands in quotes in an SVG."""
    return escape(str(value), quote=True)


def _each(value: str | Sequence[str], n: int) -> Sequence[str]:
    """Return a colour or a symbol for each of n points."""
    return [value] * n if isinstance(value, str) else value


def _dot(x: float, y: float, r: float, symbol: str) -> str:
    """Return the outline of a dot: a circle, a polygon, or a star."""
    if symbol not in _CORNERS:
        return f"M{x - r:g} {y:g}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0"
    n, turn, inner = _CORNERS[symbol]
    angles = np.radians(turn + 360 / n * np.arange(n))
    radii = np.where(np.arange(n) % 2, inner * r, 1.2 * r)
    corners = zip(x + radii * np.cos(angles), y + radii * np.sin(angles), strict=True)
    return f"M{'L'.join(f'{a:.0f} {b:.0f}' for a, b in corners)}z"


def _stroke(line: dict[str, Any]) -> str:
    """Return the attributes of a line; one without a colour has that of the text."""
    dash = _DASHES.get(line.get("dash", ""))
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    color = _attribute(line.get("color", INK))
    return f'stroke="{color}" stroke-width="{line["width"]}"{pattern}'
