"""Parts of figures over the grid of a sweep: axes, cells, panels in rows, and texts of cells."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from attnkit.analysis.boundary import is_logarithmic
from attnkit.analysis.capacity import COSTS
from attnkit.analysis.conclusion import label_of
from attnkit.figures.panels import Figure, Title, Trace
from attnkit.foundation.settings import Value
from attnkit.training.summary import percent, percent_interval
from attnkit.variants import Variant
from attnkit.variants.catalogue import second_line_of, title_of
from attnkit.variants.palette import colors_of

_SPREAD = 4.0
"""Smallest ratio of the largest to the smallest value of a logarithmic axis."""

_LABEL, _LINE = 26, 16
"""Smallest width, and height, in pixels of the label of a tick."""

_TITLE, _TICKS, _AXIS_TITLE, _COLOR_BAR = 26, 26, 22, 70
"""Heights in pixels: title of a panel, its ticks, the title of the axis, and the colour bar."""

_LEFT, _RIGHT, _GAP = 52, 10, 14
"""Widths in pixels: left and right of all panels, and between two of them."""

_WIDTH, _NARROW = 1040, 350
"""Widths in pixels for which labels are chosen: with four columns or more, and with fewer."""


@dataclass(frozen=True)
class GridAxis:
    """An axis of a sweep in a figure.

    It is logarithmic if its values are numbers above 0 that span a factor of four or more. All
    other values stand at equal distances.

    Attributes:
        name: Name of the setting; empty for a figure with one row of cells.
        values: Its values in their order.
    """

    name: str
    values: tuple[Value, ...]

    @classmethod
    def of(
        cls,
        table: pd.DataFrame,
        name: str | None,
        every: Mapping[str, Sequence[Value]] | None = None,
    ) -> GridAxis:
        """Return the axis of a column; numbers are sorted.

        Args:
            table: The table.
            name: Name of the column; None for an axis with one nameless value.
            every: All values of each axis, where the table may lack some.
        """
        if name is None:
            return cls("", ("",))
        values = list(dict.fromkeys([*(every or {}).get(name, ()), *table[name].tolist()]))
        is_text = any(isinstance(value, str | bool) for value in values)
        return cls(name, tuple(values if is_text else sorted(values)))

    @property
    def title(self) -> str:
        """Label of the setting."""
        return escape(label_of(self.name)) if self.name else ""

    @property
    def logarithmic(self) -> bool:
        """Whether equal distances are equal ratios."""
        known = len(self.values) > 1 and is_logarithmic(self.values)
        return known and float(max(self.values)) >= _SPREAD * float(min(self.values))

    @property
    def positions(self) -> np.ndarray:
        """Coordinates of the values."""
        values = self.values if self.logarithmic else range(len(self.values))
        return np.array(values, float)

    def positions_of(self, rows: pd.DataFrame) -> list[float]:
        """Return the coordinates of the rows of a table."""
        places = {value: float(at) for value, at in zip(self.values, self.positions, strict=True)}
        return [places[value] for value in (rows[self.name] if self.name else [""] * len(rows))]

    @property
    def limits(self) -> np.ndarray:
        """Coordinates of the edges of the cells, one more than values."""
        at = np.log10(self.positions) if self.logarithmic else self.positions
        if len(at) < 2:
            return np.array([-0.5, 0.5])
        middles = (at[1:] + at[:-1]) / 2
        limits = np.r_[2 * at[0] - middles[0], middles, 2 * at[-1] - middles[-1]]
        edges: np.ndarray = 10.0**limits if self.logarithmic else limits
        return edges

    @property
    def edges(self) -> tuple[float, float]:
        """Outer edges of the first and the last cell, as coordinates."""
        limits = self.limits
        return float(limits[0]), float(limits[-1])

    def between(self, numbers: np.ndarray) -> np.ndarray:
        """Return the coordinates of numbers that need not be values; beyond the edges if outside.

        The coordinates of numbers outside of the values are the nearest edge or just beyond it.
        """
        low, high = self.edges
        if self.logarithmic:
            clipped: np.ndarray = np.clip(numbers, low / 1.1, high * 1.1)
            return clipped
        values = np.array(self.values, float)
        inside = np.interp(numbers, values, self.positions)
        return np.where(numbers < values[0], low, np.where(numbers > values[-1], high, inside))

    def shifted(self, places: Sequence[int], share: float) -> np.ndarray:
        """Return the coordinates of values by their places, moved by a share of a cell."""
        low, high = self.edges
        at = self.positions[list(places)]
        factor = (high / low) ** (share / len(self.values)) if self.logarithmic else 1.0
        return at * factor if self.logarithmic else at + share

    def layout(self, pixels: float, *, upright: bool = False) -> Figure:
        """Return the axis in Plotly's schema, with as many labels as fit into its length.

        Args:
            pixels: Length of the axis.
            upright: Whether labels stand above each other.
        """
        low, high = self.edges
        ends = [math.log10(low), math.log10(high)] if self.logarithmic else [low, high]
        return {
            "type": "log" if self.logarithmic else "linear",
            "range": ends,
            "tickvals": self.positions.tolist(),
            "ticktext": self._labels(pixels, upright=upright),
            "tickangle": 0,
            "ticks": "",
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        }

    def _labels(self, pixels: float, *, upright: bool) -> list[str]:
        """Return the labels of ticks, empty where there is no room: first for powers of two."""
        low, high = self.edges
        at, ends = self.positions, np.array([low, high])
        if self.logarithmic:
            at, ends = np.log2(at), np.log2(ends)
        at = at / (ends[1] - ends[0]) * pixels
        texts = [text_of(value) for value in self.values]
        powers = [self.logarithmic and math.log2(v).is_integer() for v in self.positions]
        outer = (0, len(texts) - 1)
        shown: list[int] = []
        for index in sorted(range(len(texts)), key=lambda i: (not powers[i], i not in outer, i)):
            room = _LINE if upright else max(_LABEL, 8 * len(texts[index]))
            if all(abs(at[index] - at[other]) >= room for other in shown):
                shown.append(index)
        return [text if index in shown else "" for index, text in enumerate(texts)]


def text_of(value: Value) -> str:
    """Return a value of a setting as a text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(value) if isinstance(value, str) else f"{value:g}"


@dataclass(frozen=True)
class PanelGrid:
    """Panels with the same axes, in rows.

    Attributes:
        n_panels: Number of panels.
        columns: Most panels in a row.
        x: Horizontal axis.
        y: Vertical axis.
        below: Height in pixels below the title of the horizontal axis, for a colour bar.
    """

    n_panels: int
    columns: int
    x: GridAxis
    y: GridAxis
    below: int = _COLOR_BAR

    @property
    def panel_height(self) -> int:
        """Height of the cells of a panel in pixels."""
        return int(np.clip(34 * len(self.y.values), 44, 230))

    @property
    def height(self) -> int:
        """Height of the figure in pixels."""
        rows = -(-self.n_panels // self.columns)
        return rows * (_TITLE + self.panel_height + _TICKS) + _AXIS_TITLE + self.below

    def layout(self, titles: Sequence[Title]) -> Figure:
        """Return the layout: axes, titles, margins and height."""
        columns = min(self.columns, self.n_panels)
        width = _WIDTH if self.columns >= 4 else _NARROW
        inner = width - _LEFT - _RIGHT
        cell = (inner - _GAP * (columns - 1)) / columns
        top, bottom = _TITLE, _TICKS + _AXIS_TITLE + self.below
        area = self.height - top - bottom
        step = _TITLE + self.panel_height + _TICKS
        layout: Figure = {
            "showlegend": False,
            "hovermode": "closest",
            "dragmode": False,
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "height": self.height,
            "margin": {"l": _LEFT if self.y.name else _RIGHT, "r": _RIGHT, "t": top, "b": bottom},
            "annotations": [],
        }
        for panel, title in enumerate(titles):
            row, column = divmod(panel, columns)
            suffix = axis_suffix(panel)
            upper = 1 - row * step / area
            start = column * (cell + _GAP) / inner
            layout[f"xaxis{suffix}"] = {
                **self.x.layout(cell),
                "anchor": f"y{suffix}",
                "domain": [start, min(1.0, start + cell / inner)],
            }
            layout[f"yaxis{suffix}"] = {
                **self.y.layout(self.panel_height, upright=True),
                "anchor": f"x{suffix}",
                "domain": [max(0.0, upper - self.panel_height / area), upper],
                "showticklabels": column == 0 and bool(self.y.name),
                "automargin": column == 0,
                "title": {"text": self.y.title if column == 0 else "", "standoff": 4},
            }
            layout["annotations"].append(_heading(title, suffix))
        layout["annotations"].append(
            {
                "text": self.x.title,
                "xref": "paper",
                "yref": "paper",
                "x": 0.5,
                "y": 0,
                "yshift": -_TICKS,
                "yanchor": "top",
                "showarrow": False,
                "font": {"size": 13},
            }
        )
        return layout


def _heading(title: Title, suffix: str) -> Figure:
    """Return the title of a panel as an annotation."""
    square = f'<span style="color:{title.color}">■</span> ' if title.color else ""
    return {
        "text": f"{square}<b>{escape(title.name)}</b>",
        "hovertext": escape(title.second),
        "xref": f"x{suffix} domain",
        "yref": f"y{suffix} domain",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 14},
    }


def axis_suffix(panel: int) -> str:
    """Return the suffix of the names of a panel's axes."""
    return "" if panel == 0 else str(panel + 1)


def variants_in(table: pd.DataFrame) -> list[str]:
    """Return the text forms of the variants of a table in their order."""
    return list(dict.fromkeys(table["sharing"].tolist()))


def titles_of(sharings: Sequence[str]) -> list[Title]:
    """Return the title of each variant, with its colour."""
    variants = [Variant(sharing) for sharing in sharings]
    return [
        Title(title_of(variant), second_line_of(variant), color)
        for variant, color in zip(variants, colors_of(variants), strict=True)
    ]


@dataclass(frozen=True, eq=False)
class CellGrid:
    """Rows of a table laid out as a grid of cells.

    Attributes:
        rows: (y, x) numbers of rows of `table`, −1 where there is none.
        table: The table.
        x: Axis from left to right.
        y: Axis upwards.
    """

    rows: np.ndarray
    table: pd.DataFrame
    x: GridAxis
    y: GridAxis

    @classmethod
    def of(cls, table: pd.DataFrame, x: GridAxis, y: GridAxis) -> CellGrid:
        """Lay the rows of a table out."""
        rows = np.full((len(y.values), len(x.values)), -1)
        columns = {value: place for place, value in enumerate(x.values)}
        lines = {value: place for place, value in enumerate(y.values)}
        ys = table[y.name].tolist() if y.name else [""] * len(table)
        for row, (at_x, at_y) in enumerate(zip(table[x.name].tolist(), ys, strict=True)):
            rows[lines[at_y], columns[at_x]] = row
        return cls(rows, table, x, y)

    def numbers(self, values: np.ndarray) -> list[list[float | None]]:
        """Return one number per row of the table as a grid, None where there is none."""
        return self._laid_out([None if v != v else float(f"{v:.5g}") for v in values.tolist()])

    def heatmap(self, texts: Sequence[str]) -> Trace:
        """Return a trace of the cells without their numbers.

        Args:
            texts: What is shown while the pointer is on a cell, one text per row of the table.
        """
        return {
            "type": "heatmap",
            "x": self.x.positions.tolist(),
            "y": self.y.positions.tolist(),
            "xgap": 1,
            "ygap": 1,
            "hoverongaps": False,
            "hoverinfo": "text",
            "hovertext": self._laid_out(texts),
            "customdata": self._laid_out(self.table.index.tolist()),
        }

    def _laid_out(self, values: Sequence[Any]) -> list[list[Any]]:
        return [[values[row] if row >= 0 else None for row in line] for line in self.rows.tolist()]


def cell_texts(table: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    """Return all numbers of each cell as a text for hovering.

    Args:
        table: Rows of `cells`.
        axes: Settings whose values stand in the second line.
    """
    return [_cell_text(row, axes) for row in table.to_dict("records")]


def _cell_text(row: Mapping[Hashable, Any], axes: Sequence[str]) -> str:
    where = ", ".join(f"{escape(label_of(name))} {text_of(row[name])}" for name in axes)
    lines = [f"<b>{escape(title_of(Variant(row['sharing'])))}</b>", where]
    if not row["n_seeds"]:
        return "<br>".join([*lines, "Could not be trained:", *_wrapped(str(row["error"]))])
    limits = percent_interval(row["accuracy_low"], row["accuracy_high"])
    interval = f" (95% interval {limits})" if " to " in limits else ""
    lines.append(f"accuracy {percent(row['accuracy'])}{interval}")
    lines.append(f"{row['n_solved']} of {row['n_seeds']} seeds solve it")
    if row["n_solved"]:
        lines[-1] += f", after {row['steps_to_threshold']:,.0f} steps on average"
    if row.get("learning_rate") == row.get("learning_rate"):
        lines.append(f"learning rate {row['learning_rate']:g}")
    lines += [
        f"{title} {row[name]:,.0f}"
        for name, title in COSTS.items()
        if name in row and row[name] == row[name]
    ]
    return "<br>".join(lines)


def _wrapped(text: str, most: int = 60) -> list[str]:
    words, lines = text.split(), [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) >= most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [escape(line) for line in lines]
