"""Vocabulary of all figures: panels with axes and marks, and their form in Plotly's schema.

The module of a figure says what is drawn: its panels, and in each of them curves, bands, dots,
bars, cells, levels, regions and texts. `draw` computes where panels stand. It returns a plain
dictionary, because a live page sends figures several times a second and validated figure objects
would cost more than training; `plotly.graph_objects.Figure` accepts it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np

from attnkit.figures.marks import WHOLE, Mark, number_list, text
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import REFERENCE, colors_of, translucent

MAX_POINTS = 160
"""Most points of a curve on screen; statistics are never computed from thinned curves."""

CLEAR = "rgba(0,0,0,0)"
"""Colour through which the page is seen."""

_GRID = translucent(REFERENCE, 0.3)

_TITLE, _TICKS, _AXIS_TITLE, _SCALE = 26, 26, 22, 70
"""Heights in pixels: title of a panel, ticks, title of an axis, and a scale below the panels."""

_NAME = 20
"""Height in pixels of a name in a legend below the panels."""

Figure = dict[str, Any]
"""A figure in Plotly's schema."""


@dataclass(frozen=True)
class Title:
    """Title of a panel.

    Attributes:
        second: Text shown on hover.
        color: Colour of the square before the name; empty for none.
        note: Text after the name, which is not bold.
    """

    name: str
    second: str = ""
    color: str = ""
    note: str = ""


@dataclass(frozen=True)
class Axis:
    """Axis of a panel.

    Attributes:
        low: Value at the left or lower end; None for an end that suits the marks.
        high: Value at the right or upper end; less than `low` for a reversed axis.
        ticks: Values with labels; None for round ones.
        texts: Labels of `ticks` as HTML; None for their numbers.
        log: Whether equal distances are equal ratios.
        grid: Whether lines cross the panel at the ticks.
        n_ticks: Most ticks if they are round ones.
        angle: Angle of the labels in degrees.
    """

    low: float | None = None
    high: float | None = None
    title: str = ""
    ticks: Sequence[float] | None = None
    texts: Sequence[str] | None = None
    log: bool = False
    grid: bool = True
    n_ticks: int = 6
    visible: bool = True
    angle: int = 0

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends of an axis whose range does not depend on the marks."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high


SHARES = Axis(-0.02, 1.04, "", (0, 0.25, 0.5, 0.75, 1), ("0%", "25%", "50%", "75%", "100%"))
"""Axis of accuracies and other shares."""


def row_axis(labels: Sequence[str]) -> Axis:
    """Return the vertical axis of rows at 0, 1, 2, … from top to bottom, with labels as HTML."""
    return Axis(len(labels) - 0.5, -0.5, "", range(len(labels)), labels, grid=False)


@dataclass(frozen=True)
class Panel:
    """A panel of a figure.

    Attributes:
        marks: What is drawn in it; later marks cover earlier ones.
        height: Height in pixels.
    """

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: Title | None = None
    height: int = 300


@dataclass(frozen=True)
class Scale:
    """Scale of the colours of cells.

    Attributes:
        low: Number with the first colour.
        high: Number with the last colour.
        colors: Colours at equal distances.
        title: Title above the scale, which stands below the panels; empty for a scale without a
            title, on the right of the panels.
        ticks: Numbers with labels; None for round ones.
        texts: Labels of `ticks`; None for their numbers.
    """

    low: float
    high: float
    colors: Sequence[str]
    title: str = ""
    ticks: Sequence[float] | None = None
    texts: Sequence[str] | None = None


class Live(NamedTuple):
    """State of a figure that a page draws again while models train, wraps and can zoom into.

    The legend has dash and text of every style of line, and its colour if no panel has another one.
    Zoom and hover are kept while the revision stays the same.
    """

    legend: Sequence[dict[str, str]]
    revision: str
    step: int


def draw(
    panels: Sequence[Panel],
    *,
    columns: int = 1,
    gap: float = 0.04,
    left: int | None = None,
    right: int = 14,
    top: int | None = None,
    bottom: int | None = None,
    legend: Literal["", "above", "below"] = "",
    scale: Scale | None = None,
    live: Live | None = None,
    hover: Literal["closest", "x"] = "closest",
) -> Figure:
    """Return a figure in Plotly's schema: panels in rows, with axes, titles and marks.

    In a row of several panels, only the first one has labels of the vertical axis. The title of the
    horizontal axis stands once below all of them, except in a live figure.

    Args:
        panels: The panels, from left to right and from top to bottom.
        columns: Most panels in a row.
        gap: Gap between two panels of a row, as a share of the width.
        left: Width in pixels left of the panels; None for as much as their labels need.
        right: Width in pixels right of the panels.
        top: Height in pixels above every row; None for as much as its titles need.
        bottom: Height in pixels below every row; None for as much as its axes need.
        legend: Where the names of curves and dots stand; empty for no legend.
        scale: Scale of the colours of all cells.
        live: State of a live figure, whose numbers are packed as float32; None for a still one,
            whose numbers are lists, of which a page makes a file of comma-separated values.
        hover: Whether the nearest mark is explained, or all marks at a place of the x axis.
    """
    few, columns = columns < 4, max(1, min(columns, len(panels)))
    x_title = panels[0].x.title if columns > 1 and not live else ""
    if top is None:
        top = _TITLE if any(panel.title for panel in panels) else 8
    if bottom is None:
        bottom = _TICKS + _AXIS_TITLE * any(panel.x.title and not x_title for panel in panels)
    below = _AXIS_TITLE * bool(x_title) + _SCALE * bool(scale and scale.title)
    if legend == "below":
        below += _NAME * sum("name" in mark.values for panel in panels for mark in panel.marks)
    heights = [
        max(panel.height for panel in panels[first : first + columns])
        for first in range(0, len(panels), columns)
    ]
    total = max(60, sum(heights) + (top + bottom) * len(heights) + below)
    area, width = total - top - bottom - below, (1 - gap * (columns - 1)) / columns
    layout: Figure = {
        "showlegend": bool(legend),
        "hovermode": "x" if live else hover,
        "dragmode": "zoom" if live else False,
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "height": total,
        "margin": {"l": 8 if left is None else left, "r": right, "t": top, "b": bottom + below},
        "annotations": [],
        "shapes": [],
    }
    figure: Figure = {"data": [], "layout": layout}
    if legend:
        layout["legend"] = _LEGENDS[legend]
    if live:
        layout["uirevision"] = live.revision
        layout["meta"] = {"panels": len(panels), "step": live.step, "legend": live.legend}
    if scale:
        layout["coloraxis"] = _color_axis(scale, sum(heights[:1]), total, few=few)
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        suffix = str(index + 1) if index else ""
        start = column * (width + gap)
        upper = 1 - (sum(heights[:row]) + row * (top + bottom)) / area
        layout[f"xaxis{suffix}"] = {
            **_axis(panel.x, "x", live, index, named=not x_title),
            "anchor": f"y{suffix}",
            "domain": [start, min(1.0, start + width)],
        }
        layout[f"yaxis{suffix}"] = {
            **_axis(panel.y, "y", live, index, named=column == 0),
            "anchor": f"x{suffix}",
            "domain": [max(0.0, upper - panel.height / area), upper],
            "showticklabels": column == 0,
            "automargin": left is None and column == 0,
        }
        marks = [_heading(panel.title), *panel.marks] if panel.title else panel.marks
        for mark in marks:
            if mark.known:
                parts = figure["data"] if mark.part == "data" else layout[mark.part]
                parts.append(_placed(mark, panel, suffix, live))
    if x_title:
        name = text(x_title, 0.5, 0, x_anchor="center", y_anchor="top", size=13).values
        page = {"xref": "paper", "yref": "paper", "yshift": -_TICKS}
        layout["annotations"].append({**name, **page})
    return figure


def draw_live(
    panels: Sequence[Panel], legend: Sequence[dict[str, str]], revision: str, step: int
) -> Figure:
    """Return a figure that a page draws again while models train, and arranges in rows itself.

    The arguments are `panels`, whose height is that in a notebook, and the attributes of `Live`.
    """
    panels, live = [replace(panel, height=176) for panel in panels], Live(legend, revision, step)
    return draw(panels, columns=5, gap=0.035, left=34, right=8, top=24, bottom=38, live=live)


_LEGENDS = {
    place: {"itemclick": False, "itemdoubleclick": False, **values}
    for place, values in {
        "above": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "below": {"x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom", "yref": "container"},
    }.items()
}
"""Legends in Plotly's schema, without reaction to clicks."""


def _axis(axis: Axis, letter: str, live: Live | None, index: int, *, named: bool) -> Figure:
    values: Figure = {
        "zeroline": False,
        "showgrid": axis.grid,
        "gridcolor": _GRID,
        "fixedrange": not live,
        "nticks": axis.n_ticks,
        "tickangle": axis.angle,
        **({} if axis.grid else {"ticks": ""}),
    }
    if axis.low is not None:
        values["range"] = [math.log10(end) for end in axis.ends] if axis.log else list(axis.ends)
    if axis.title and named:
        font = {"size": 12 if live else 13}
        values["title"] = {"text": escape(axis.title), "font": font, "standoff": 2 if live else 6}
    if axis.ticks is not None:
        values["tickvals"] = list(axis.ticks)
        values |= {} if axis.texts is None else {"ticktext": list(axis.texts)}
    values |= {"type": "log"} if axis.log else {}
    values |= {} if axis.visible else {"visible": False}
    return values | ({"matches": letter} if live and index else {})


def _color_axis(scale: Scale, height: int, total: int, *, few: bool) -> Figure:
    bar: Figure = {"thickness": 8, "outlinewidth": 0}
    if scale.title:
        gap = '<br><span style="font-size:3px"> </span>'
        title = {"text": f"{escape(scale.title)}{gap}", "side": "top", "font": {"size": 12}}
        place = {"x": 0.5, "xanchor": "center", "y": 18 / total, "yref": "container"}
        bar |= {"orientation": "h", "title": title, "yanchor": "bottom", "ypad": 0, **place}
        bar["len"] = 0.5 if few else 0.3
    else:
        area = {"lenmode": "pixels", "len": height, "y": 1, "yanchor": "top", "ypad": 0}
        bar |= {"nticks": 5, **area}
    if scale.ticks is not None:
        bar |= {"tickvals": list(scale.ticks), "ticktext": list(scale.texts or scale.ticks)}
    stops = np.linspace(0, 1, len(scale.colors)).tolist()
    colors = [list(stop) for stop in zip(stops, scale.colors, strict=True)]
    return {"cmin": scale.low, "cmax": scale.high, "colorscale": colors, "colorbar": bar}


def _heading(title: Title) -> Mark:
    square = f'<span style="color:{title.color}">■</span>' if title.color else "<span></span>"
    words = f"{square} <b>{escape(title.name)}</b>"
    heading = text(f"{words} {escape(title.note)}" if title.note else words, size=14, is_html=True)
    return Mark("annotations", {**heading.values, "hovertext": escape(title.second)})


def _placed(mark: Mark, panel: Panel, suffix: str, live: Live | None) -> Figure:
    values, axes = mark.values, (("x", panel.x), ("y", panel.y))
    if mark.part == "data":
        written = _packed if live else number_list
        places = {"x": written(values["x"]), "y": written(values["y"])}
        return {**values, **places, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    placed = dict(values)
    for letter, axis in axes:
        of_panel = values.get(f"{letter}ref") == WHOLE
        placed[f"{letter}ref"] = f"{letter}{suffix}{' domain' if of_panel else ''}"
        if mark.part == "annotations" and axis.log and not of_panel:
            placed[letter] = math.log10(values[letter])
    return placed


def _packed(values: np.ndarray) -> dict[str, str]:
    blob = np.ascontiguousarray(values, np.float32).tobytes()
    return {"dtype": "f4", "bdata": base64.b64encode(blob).decode()}


def thin(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose at most `MAX_POINTS` evaluations, evenly spaced, with the first and the last.

    Returns:
        Their steps, and their indices in `steps`.
    """
    indices = np.linspace(0, len(steps) - 1, min(len(steps), MAX_POINTS)).round().astype(int)
    return steps[indices], indices


def titles_of(variants: Sequence[Variant]) -> list[Title]:
    """Return the title of each variant, with its colour."""
    return [
        Title(title_of(variant), second_line_of(variant), color)
        for variant, color in zip(variants, colors_of(variants), strict=True)
    ]
