"""Parts of figures over the grid of a sweep: axes with as many labels as fit, cells, and texts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from attnkit.figures.marks import Mark, cells
from attnkit.figures.panels import Axis, Panel, Title, titles_of
from attnkit.foundation.settings import Value
from attnkit.sweeps.boundary import is_logarithmic
from attnkit.sweeps.cells import COSTS
from attnkit.sweeps.conclusion import label_of
from attnkit.training.summary import percent, percent_limits
from attnkit.variants import Variant
from attnkit.variants.catalogue import title_of

GAP = 0.015
"""Gap between two panels, as a share of the width of all of them."""


@dataclass(frozen=True)
class GridAxis:
    """An axis of a sweep in a figure.

    It is logarithmic if its values are numbers above 0 that span a factor of four or more. All
    other values stand at equal distances.

    Attributes:
        name: Name of the setting; empty for a figure with one row of cells.
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
        """Return the axis of a column; numbers are sorted, None has one nameless value."""
        if name is None:
            return cls("", ("",))
        values = list(dict.fromkeys([*(every or {}).get(name, ()), *table[name].tolist()]))
        is_text = any(isinstance(value, str | bool) for value in values)
        return cls(name, tuple(values if is_text else sorted(values)))

    @property
    def logarithmic(self) -> bool:
        """Whether equal distances are equal ratios."""
        known = len(self.values) > 1 and is_logarithmic(self.values)
        return known and float(max(self.values)) >= 4 * float(min(self.values))

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
        return np.asarray(10.0**limits if self.logarithmic else limits)

    @property
    def edges(self) -> tuple[float, float]:
        """Outer edges of the first and the last cell, as coordinates."""
        limits = self.limits
        return float(limits[0]), float(limits[-1])

    def between(self, numbers: np.ndarray) -> np.ndarray:
        """Return the coordinates of numbers; outside of the values the nearest edge or beyond."""
        low, high = self.edges
        if self.logarithmic:
            return np.asarray(np.clip(numbers, low / 1.1, high * 1.1))
        values = np.array(self.values, float)
        inside = np.interp(numbers, values, self.positions)
        return np.where(numbers < values[0], low, np.where(numbers > values[-1], high, inside))

    def shifted(self, at: np.ndarray, share: float) -> np.ndarray:
        """Return coordinates that are moved by a share of a cell."""
        low, high = self.edges
        return at * (high / low) ** (share / len(self.values)) if self.logarithmic else at + share

    def axis(self, pixels: float, *, upright: bool = False) -> Axis:
        """Return the axis of a panel, with as many labels as fit into its length in pixels."""
        labels, title = self._labels(pixels, upright=upright), label_of(self.name)
        positions = self.positions.tolist()
        return Axis(*self.edges, title, positions, labels, self.logarithmic, grid=False)

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
            room = 16 if upright else max(26, 8 * len(texts[index]))
            if all(abs(at[index] - at[other]) >= room for other in shown):
                shown.append(index)
        return [text if index in shown else "" for index, text in enumerate(texts)]


class Grid(NamedTuple):
    """Axes of all panels of a figure, and the most panels in a row."""

    x: GridAxis
    y: GridAxis
    columns: int = 1

    @property
    def names(self) -> list[str]:
        """Names of the axes."""
        return [axis.name for axis in (self.x, self.y) if axis.name]

    def panel(self, marks: Sequence[Mark], title: Title, n_panels: int) -> Panel:
        """Return one of the panels of a figure."""
        width = 978 if self.columns >= 4 else 288  # for which labels are chosen
        n_columns = min(self.columns, n_panels)
        cell = width * (1 - GAP * (n_columns - 1)) / n_columns
        height = int(np.clip(34 * len(self.y.values), 44, 230))
        return Panel(self.x.axis(cell), self.y.axis(height, upright=True), marks, title, height)

    def cells(
        self, rows: pd.DataFrame, values: np.ndarray, tips: Sequence[str], color: str = ""
    ) -> Mark:
        """Return the cells of the rows of a table; a cell's key is the index of its row.

        Each row has a number, NaN for no cell, and a tip as HTML. A colour replaces the scale.
        """
        x, y = self.x.values, self.y.values
        ys = rows[self.y.name].tolist() if self.y.name else [""] * len(rows)
        numbers = np.full((len(y), len(x)), np.nan)
        texts: list[list[str | None]] = [[None] * len(x) for _ in y]
        keys: list[list[int | None]] = [[None] * len(x) for _ in y]
        xs = rows[self.x.name].tolist()
        for at_x, at_y, *cell in zip(xs, ys, values, tips, rows.index.tolist(), strict=True):
            i, j = y.index(at_y), x.index(at_x)
            numbers[i, j], texts[i][j], keys[i][j] = cell
        places = self.x.positions, self.y.positions
        return cells(*places, numbers, tips=texts, keys=keys, color=color)


def titles_in(table: pd.DataFrame) -> dict[str, Title]:
    """Return text form → title for the variants of a table in their order."""
    sharings = list(dict.fromkeys(table["sharing"].tolist()))
    return dict(zip(sharings, titles_of([Variant(one) for one in sharings]), strict=True))


def cell_texts(table: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    """Return the variant, the values of some axes and all numbers of each cell, as HTML."""
    texts = []
    for row in table.to_dict("records"):
        lines = [f"<b>{escape(title_of(row['sharing']))}</b>", where_in_words(row, axes)]
        lines += [escape(part) for line in numbers_of(row) for part in wrap(line, 60)]
        texts.append("<br>".join(lines))
    return texts


def where_in_words(row: Mapping[Hashable, Any], axes: Sequence[str]) -> str:
    """Return the values of some axes in a row, as HTML."""
    return ", ".join(f"{escape(label_of(name))} {text_of(row[name])}" for name in axes)


def numbers_of(row: Mapping[Hashable, Any]) -> list[str]:
    """Return all numbers of a cell, a row of `cells`, in words; or why it was not trained."""
    if not row["n_seeds"]:
        return [f"could not be trained: {row['error']}"]
    interval = percent_limits(row["accuracy_low"], row["accuracy_high"], " (95% interval {})")
    steps = f", after {row['steps_to_threshold']:,.0f} steps on average" if row["n_solved"] else ""
    others = {"learning_rate": ("learning rate", "g")}
    others |= {name: (title, ",.0f") for name, title in COSTS.items()}
    return [
        f"accuracy {percent(row['accuracy'])}{interval}",
        f"{row['n_solved']} of {row['n_seeds']} seeds solve it{steps}",
        *(
            f"{title} {row[name]:{form}}"
            for name, (title, form) in others.items()
            if name in row and row[name] == row[name]
        ),
    ]


def text_of(value: Value) -> str:
    """Return a value of a setting as a text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(value) if isinstance(value, str) else f"{value:g}"
