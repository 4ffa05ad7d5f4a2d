"""Marks of figures: curves, bands, dots, bars, cells, levels, regions and texts.

A mark is a trace, a shape or an annotation in Plotly's schema that does not know its panel yet.
Sizes, widths and shifts are in pixels; dashes, symbols and shapes of lines have Plotly's names;
texts shown on hover are HTML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np

from attnkit.training.statistics import Interval
from attnkit.variants.palette import REFERENCE, translucent
from attnkit.variants.sharing import Sharing

OUTLINE = {"color": REFERENCE, "width": 1}
"""Outline of large dots, without which blue is hard to see on a dark page."""

STRIPE = translucent(REFERENCE, 0.09)
"""Colour behind every other row."""

SYMBOLS: dict[Sharing, str] = {
    Sharing.QKV: "circle",
    Sharing.Q_K: "square",
    Sharing.K_V: "triangle-up",
    Sharing.Q_V: "triangle-down",
    Sharing.Q_K_V: "pentagon",
}
"""Plotly symbol of each sharing, so that arms differ in more than colour."""

LINE = 16
"""Height of a line of text in pixels."""

WHOLE = "domain"
"""Name of the coordinates from 0 to 1 over a whole panel."""


@dataclass(frozen=True)
class Mark:
    """Something drawn in a panel.

    Attributes:
        part: Part of Plotly's schema to which it belongs.
        values: Its values in Plotly's schema, without the names of the panel's axes.
    """

    part: Literal["data", "shapes", "annotations"]
    values: dict[str, Any]

    @property
    def known(self) -> bool:
        """Whether the mark has a place: a level at NaN is not drawn."""
        if self.part != "shapes":
            return True
        return not any(math.isnan(self.values[place]) for place in ("x0", "y0", "x1", "y1"))


def curve(
    x: Any,
    y: Any,
    color: str = "",
    *,
    width: float = 2.5,
    dash: str = "solid",
    shape: str = "linear",
    symbol: str = "",
    size: int = 8,
    edge: dict[str, Any] | None = None,
    **hovering: Any,
) -> Mark:
    """Return a line through points, NaN for gaps, with dots on them if there is a symbol.

    Without a colour it has that of the text on the page. `hovering` has the arguments of `_points`.
    """
    line = {"width": width, "dash": dash} | ({"color": color} if color else {})
    line |= {"shape": shape} if shape != "linear" else {}
    if not symbol:
        return _points("lines", x, y, line=line, **hovering)
    marker = {"symbol": symbol, "size": size, "color": color, "line": edge or {"width": 0}}
    return _points("lines+markers", x, y, line=line, marker=marker, cliponaxis=False, **hovering)


def dots(
    x: Any,
    y: Any,
    color: str | Sequence[str],
    *,
    symbol: str | Sequence[str] = "circle",
    size: int = 7,
    opacity: float = 1.0,
    edge: dict[str, Any] | None = None,
    **hovering: Any,
) -> Mark:
    """Return dots, all alike or each with a colour and a symbol of its own.

    `edge` is their outline in Plotly's schema; `hovering` has the arguments of `_points`.
    """
    marker = {"symbol": symbol, "size": size, "color": color, "opacity": opacity}
    marker["line"] = edge or {"width": 0}
    return _points("markers", x, y, marker=marker, cliponaxis=False, **hovering)


def words(x: Any, y: Any, texts: Sequence[str], *, color: str = "", below: bool = False) -> Mark:
    """Return texts at points, in the middle of them or below them."""
    font = {"size": 12} | ({"color": color} if color else {})
    place = "bottom center" if below else "middle center"
    return _points("text", x, y, text=list(texts), textfont=font, textposition=place)


def _points(
    mode: str,
    x: Any,
    y: Any,
    *,
    name: str = "",
    tips: Sequence[str] | None = None,
    hover: str = "",
    keys: Sequence[Any] | None = None,
    **values: Any,
) -> Mark:
    """Return points in Plotly's schema.

    Args:
        tips: Texts shown on hover, one per point.
        hover: Template of the text shown on hover, in place of `tips`.
        keys: What a page receives if a point is pressed, one per point.
    """
    if tips is not None:
        values |= {"hoverinfo": "text", "hovertext": list(tips)}
    else:
        values |= {"hovertemplate": f"{hover}<extra></extra>"} if hover else {"hoverinfo": "skip"}
    values |= {} if keys is None else {"customdata": list(keys)}
    # A saved file may be shown in a wider font: names have spare room.
    named = {"name": escape(name) + "\u00a0" * (3 + len(name) // 8)} if name else {}
    places = {"x": np.asarray(x), "y": np.asarray(y)}
    style = {"type": "scatter", "mode": mode, "showlegend": bool(name)}
    return Mark("data", {**style, **places, **named, **values})


def limits(interval: Interval, color: str, thickness: float) -> dict[str, Any]:
    """Return bars from the lower to the upper limit of means, for `error_x` or `error_y` of points.

    They have no caps, which would hide the shape of a dot with a short bar.
    """
    mean, low, high = map(np.atleast_1d, (interval.mean, interval.low, interval.high))
    sizes = {"array": high - mean, "arrayminus": mean - low}
    ends = {name: number_list(np.nan_to_num(size)) for name, size in sizes.items()}
    style = {"color": color, "thickness": thickness, "width": 0}
    return {"type": "data", "symmetric": False, **ends, **style}


def band(
    x: np.ndarray, low: np.ndarray, high: np.ndarray, color: str, opacity: float = 0.2
) -> Mark:
    """Return the area between two limits, where they are not NaN."""
    known = ~np.isnan(low)
    outline_x = np.concatenate([x[known], x[known][::-1]])
    outline_y = np.concatenate([high[known], low[known][::-1]])
    fill = {"fill": "toself", "fillcolor": translucent(color, opacity)}
    return _points("lines", outline_x, outline_y, line={"width": 0}, **fill)


def mean_curve(
    x: np.ndarray,
    interval: Interval,
    color: str,
    *,
    top: float = 1.0,
    dash: str = "solid",
    name: str = "",
) -> tuple[Mark, Mark]:
    """Return the band of an interval, and the line of the mean, which shows its limits on hover.

    Args:
        x: (e,) steps, or other places.
        interval: (e,) mean and limits over seeds.
        color: Colour of both; empty for a line in the colour of the text on the page.
        top: Largest possible value, at which limits end; the smallest one is 0.
        dash: Dash of the line.
        name: Word before the numbers on hover.
    """
    shown = interval.within(0, top)
    ends = zip(shown.low.tolist(), shown.high.tolist(), strict=True)
    texts = [f" [{a:.2f}, {b:.2f}]" if a == a else "" for a, b in ends]
    hover = f"{name} %{{y:.2f}}%{{text}}".strip()
    line = curve(x, interval.mean, color, dash=dash, hover=hover, text=texts)
    return band(x, shown.low, shown.high, color or REFERENCE), line


def bars(x: Any, heights: Any, colors: Sequence[str], hover: str) -> Mark:
    """Return upright bars from 0; `hover` is Plotly's template of the text shown on hover."""
    values = {"type": "bar", "x": np.asarray(x), "y": np.asarray(heights)}
    style = {"marker": {"color": list(colors), "line": {"width": 0}}, "showlegend": False}
    return Mark("data", {**values, **style, "hovertemplate": f"{hover}<extra></extra>"})


def cells(
    x: Any,
    y: Any,
    numbers: np.ndarray,
    *,
    tips: Sequence[Sequence[str | None]],
    keys: Sequence[Sequence[Any]] | None = None,
    color: str = "",
    gap: int = 1,
) -> Mark:
    """Return (rows, columns) numbers as cells in the colours of the figure's scale, or in one.

    There is no cell at NaN. `tips` are texts shown on hover, and `keys` what a page receives if a
    cell is pressed.
    """
    look: dict[str, Any] = {"coloraxis": "coloraxis"}
    if color:
        look = {"colorscale": [[0, color], [1, color]], "showscale": False}
    values: dict[str, Any] = {
        "type": "heatmap",
        "x": np.asarray(x),
        "y": np.asarray(y),
        "z": number_list(numbers),
    }
    style = {"xgap": gap, "ygap": gap, "hoverongaps": False, "hoverinfo": "text", "hovertext": tips}
    values |= {} if keys is None else {"customdata": keys}
    return Mark("data", {**values, **style, **look})


def level(
    value: float,
    dash: str = "dot",
    *,
    upright: bool = False,
    ends: tuple[float, float] | None = None,
    color: str = REFERENCE,
    width: float = 1.5,
) -> Mark:
    """Return a horizontal or upright reference line below the other marks.

    It stands at `value`, and reaches over the whole panel if it has no `ends`.
    """
    place = {"x": (value, value), "y": ends} if upright else {"x": ends, "y": (value, value)}
    return _shape("line", place["x"], place["y"], {"color": color, "width": width, "dash": dash})


def region(x: tuple[float, float] | None, y: tuple[float, float] | None, color: str) -> Mark:
    """Return a filled rectangle below the other marks; None for the whole width or height."""
    return _shape("rect", x, y, {"width": 0}, fillcolor=color)


def frame(x: tuple[float, float], y: tuple[float, float], color: str, width: float) -> Mark:
    """Return an empty rectangle above the other marks."""
    return _shape("rect", x, y, {"color": color, "width": width}, layer="above")


def stripes(n: int) -> list[Mark]:
    """Return a background for every second row, from row 0 on."""
    return [region(None, (row - 0.5, row + 0.5), STRIPE) for row in range(0, n, 2)]


def _shape(
    kind: str,
    x: tuple[float, float] | None,
    y: tuple[float, float] | None,
    line: dict[str, Any],
    **values: Any,
) -> Mark:
    for letter, ends in (("x", x), ("y", y)):
        values |= {} if ends else {f"{letter}ref": WHOLE}
        values[f"{letter}0"], values[f"{letter}1"] = ends or (0, 1)
    return Mark("shapes", {"type": kind, "layer": "below", "line": line, **values})


def text(
    text: str,
    x: float | None = None,
    y: float | None = None,
    *,
    x_anchor: str = "left",
    y_anchor: str = "bottom",
    size: int = 12,
    shift: tuple[float, float] = (0, 0),
    pointer: tuple[float, float] | None = None,
    color: str = REFERENCE,
    is_html: bool = False,
) -> Mark:
    """Return a text.

    Args:
        x: Horizontal place; None for the left edge of the panel.
        y: Vertical place; None for the upper edge of the panel.
        x_anchor: Part of the text that stands at `x`: "left", "center" or "right".
        y_anchor: Part of the text that stands at `y`: "bottom", "middle" or "top".
        shift: Shift to the right and upwards.
        pointer: Shift to the right and downwards, with a line from the place to the text.
        color: Colour of this line.
        is_html: Whether the text is HTML.
    """
    values: dict[str, Any] = {
        "text": text if is_html else escape(text),
        "x": 0 if x is None else x,
        "y": 1 if y is None else y,
        "xanchor": x_anchor,
        "yanchor": y_anchor,
        "align": "left",
        "font": {"size": size},
        "showarrow": pointer is not None,
    }
    values |= {} if x is not None else {"xref": WHOLE}
    values |= {} if y is not None else {"yref": WHOLE}
    values |= {"xshift": shift[0], "yshift": shift[1]} if any(shift) else {}
    if pointer is not None:
        line = {"arrowhead": 0, "arrowwidth": 1.5, "arrowcolor": color}
        values |= {"ax": pointer[0], "ay": pointer[1], **line}
    return Mark("annotations", values)


def colored_name(color: str, name: str) -> str:
    """Return a name after a square in its colour, as HTML."""
    return f'<span style="color:{color}" aria-hidden="true">■</span> {escape(name)}'


def row_offsets(n: int) -> list[float]:
    """Return n offsets within a row, from 0 to 1, evenly spread and always the same."""
    return [(0.618034 * (index + 1)) % 1 for index in range(n)]


def number_list(values: np.ndarray) -> list[Any]:
    """Return numbers with seven digits as a list, None for those that are not finite."""
    if values.ndim > 1:
        return [number_list(row) for row in values]
    if values.dtype.kind != "f":
        numbers: list[Any] = values.tolist()
        return numbers
    return [float(f"{v:.7g}") if math.isfinite(v) else None for v in values.tolist()]
