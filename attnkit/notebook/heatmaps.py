"""Interactive attention maps and scores of the probe example, one panel per variant."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from attnkit.analysis.attention_map import example_of, map_layout_of, shown_columns, telling_layer
from attnkit.figures.maps import attention_maps, of_head, where_in_words
from attnkit.figures.marks import Mark, cells, dots, frame
from attnkit.figures.panels import Axis, Figure, Panel, Scale, Title, draw, row_axis
from attnkit.foundation.settings import shown
from attnkit.training.snapshot import Snapshot
from attnkit.variants.palette import BLUE_RED, VIRIDIS, colors_of

_CELL, _LEAST, _LETTER = 22, 150, 7
"""Heights in pixels: a row of cells, the lowest panel, and a letter of the upright names below."""

_INSET, _CIRCLE = 0.42, 12
"""Distance of a frame from the middle of a cell in cells; diameter of a circle in pixels."""

_MARK = (("rgba(0,0,0,0.75)", 4), ("#ffffff", 1.8))
"""Colour and width of the lines of a mark: a dark halo below white."""

_MEAN = "mean"
"""Value of the option `head` that stands for the mean over the heads of a variant."""


def plot_attention(
    snapshot: Snapshot, seed: int | None = None, layer: int | None = None, head: int | str = 0
) -> tuple[Figure, str, str]:
    """Plot the attention of the probe example: rows are queries, columns are keys.

    Args:
        snapshot: The snapshot.
        seed: One of the seeds; None for the first one.
        layer: Index of the layer, from 0; None for the last one. Titles count from 1.
        head: Index of the head, from 0; or "mean" for the mean over heads. Titles count from 1.

    Raises:
        ValueError: If there is no such seed, layer or head.
    """
    texts, values, where = _maps(snapshot, snapshot.probe.pattern, seed, layer, head)
    notes = [panel["lacking"] or panel["summary"] for panel in texts["panels"]]
    figure = _drawn(snapshot, texts, values, notes, Scale(0, 1, VIRIDIS))
    title = f"{snapshot.experiment.task.title}: attention, {where}"
    circles = "Circle: the entry that points back. " if max(texts["reverse"]) >= 0 else ""
    reading = f"Each row looks at the brighter columns. Frame: the right one. {circles}"
    return figure, title, f"{reading}{texts['cut']}"


def plot_scores(
    snapshot: Snapshot, seed: int | None = None, layer: int | None = None, head: int | str = 0
) -> tuple[Figure, str, str]:
    """Plot the scaled scores of the probe example before mask and softmax.

    Arguments and errors are those of `plot_attention`.
    """
    if snapshot.probe.scores is None:
        raise ValueError("kind: got 'scores', allowed other kinds: this result has no scores")
    texts, values, where = _maps(snapshot, snapshot.probe.scores, seed, layer, head, rest=False)
    finite = [np.abs(v[np.isfinite(v)]).max(initial=0.0) for v in values if v is not None]
    most = float(max(finite, default=0.0)) or 1.0
    notes = [panel["lacking"] for panel in texts["panels"]]
    figure = _drawn(snapshot, texts, values, notes, Scale(-most, most, BLUE_RED))
    title = f"{snapshot.experiment.task.title}: scores before softmax, {where}"
    return figure, title, f"Blue below 0, red above. Frame: the right column. {texts['cut']}"


def _maps(
    snapshot: Snapshot,
    recorded: np.ndarray,
    seed: int | None,
    layer: int | None,
    head: int | str,
    *,
    rest: bool = True,
) -> tuple[dict[str, Any], list[np.ndarray | None], str]:
    """Return the maps of all variants.

    Args:
        snapshot: The snapshot.
        recorded: Patterns or scores of the probe example; see `of_head`.
        seed: See `plot_attention`.
        layer: See `plot_attention`.
        head: See `plot_attention`.
        rest: Whether a column may hold the sum over all positions that have none.

    Returns:
        Their texts and marked entries, from `attention_maps`; the (rows, columns) numbers of each
        variant, None for one that lacks the head; and seed, layer and head in words.
    """
    chosen, experiment = _chosen(snapshot, seed, layer, head), snapshot.experiment
    spec = experiment.layer_specs[chosen[1]]
    layout = map_layout_of(experiment.task, spec, example_of(snapshot))
    layout = layout if rest else replace(layout, rest=False)
    values = [
        None if of_one is None else shown_columns(of_one[layout.rows], layout)
        for of_one in of_head(snapshot, recorded, *chosen)
    ]
    texts = attention_maps(snapshot, *chosen, layout)
    return texts, values, where_in_words(experiment, *chosen)


def _chosen(
    snapshot: Snapshot, seed: int | None, layer: int | None, head: int | str
) -> tuple[int, int, int | None]:
    """Return seed, layer and head after checking them; the head is None for the mean."""
    experiment = snapshot.experiment
    seed = experiment.first_seed if seed is None else seed
    layer = telling_layer(experiment.layer_specs) if layer is None else layer
    limits = {
        "seed": (seed, experiment.seeds),
        "layer": (layer, range(len(experiment.layer_specs))),
        "head": (head, range(experiment.n_heads)),
    }
    for name, (value, allowed) in limits.items():
        if name == "head" and value == _MEAN:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
            first, last = allowed[0], allowed[-1]
            words = str(first) if first == last else f"{first} to {last}"
            words += f' or "{_MEAN}"' if name == "head" else ""
            raise ValueError(f"{name}: got {shown(value, quoted=True)}, allowed {words}")
    return seed, layer, head if isinstance(head, int) else None


def _drawn(
    snapshot: Snapshot,
    texts: dict[str, Any],
    values: list[np.ndarray | None],
    notes: list[str],
    scale: Scale,
) -> Figure:
    """Return a panel per variant with a note after its name; see `_maps`."""
    names = (panel["name"] for panel in texts["panels"])
    looks = zip(names, colors_of(snapshot.experiment.sharing), notes, values, strict=True)
    panels = [
        _panel(texts, of_one, Title(name, "", color, note)) for name, color, note, of_one in looks
    ]
    below = 14 + _LETTER * max(map(len, texts["columns"]))
    return draw(panels, columns=5, right=30, bottom=below, scale=scale)


def _panel(texts: dict[str, Any], values: np.ndarray | None, title: Title) -> Panel:
    """Return the map of a variant: cells, frames around right entries, and circles."""
    rows, columns = texts["rows"], texts["columns"]
    at_x, at_y = range(len(columns)), range(len(rows))
    angle = -90 if any(len(name) > 1 for name in columns) else 0
    x_names, y_names = ([escape(name) for name in names] for names in (columns, rows))
    x = Axis(-0.5, len(columns) - 0.5, "", at_x, x_names, grid=False, angle=angle)
    y = row_axis(y_names)
    marks: list[Mark] = []
    if values is not None:
        tips = [
            [
                f"{escape(f'{title.name}: “{row}” to “{column}”')}: {value:.2f}"
                for column, value in zip(texts["column_titles"], of_row, strict=True)
            ]
            for row, of_row in zip(rows, values, strict=True)
        ]
        numbers = np.round(values.astype(np.float64), 4)
        marks = [cells(at_x, at_y, numbers, tips=tips)]
        marks += _frames(texts["target"]) + _circles(texts["reverse"])
    return Panel(x, y, marks, title, max(_LEAST, _CELL * len(rows)))


def _frames(columns: list[int]) -> list[Mark]:
    """Return frames around one column of each row, none where it is negative."""
    return [
        frame((column - _INSET, column + _INSET), (row - _INSET, row + _INSET), color, width)
        for row, column in enumerate(columns)
        if column >= 0
        for color, width in _MARK
    ]


def _circles(columns: list[int]) -> list[Mark]:
    """Return circles in one column of each row, none where it is negative.

    They are points and not shapes, which would be ellipses in cells that are no squares.
    """
    rows = [row for row, column in enumerate(columns) if column >= 0]
    x = [columns[row] for row in rows]
    return [
        dots(x, rows, color, symbol="circle-open", size=_CIRCLE, edge={"width": width})
        for color, width in _MARK
        if rows
    ]
