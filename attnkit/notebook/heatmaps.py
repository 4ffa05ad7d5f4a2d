"""Interactive attention maps and scores of the probe example, one panel per variant."""

from __future__ import annotations

from base64 import b64decode
from html import escape
from typing import Any

import numpy as np

from attnkit.analysis.attention_map import (
    MapLayout,
    axes_of,
    example_of,
    lacking_note,
    map_layout_of,
    telling_layer,
)
from attnkit.figures.maps import attention_maps
from attnkit.figures.panels import Figure
from attnkit.foundation.settings import shown
from attnkit.training.snapshot import Snapshot
from attnkit.variants.catalogue import title_of
from attnkit.variants.palette import BLUE_RED, VIRIDIS, colors_of

_PER_ROW, _GAP = 5, 0.04
"""Most panels in a row, and the gap between two of them as a share of the width."""

_CELL, _LEAST, _TITLE = 22, 150, 26
"""Heights in pixels: a row of cells, the lowest panel, and a panel's title."""

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
    chosen = _chosen(snapshot, seed, layer, head)
    maps = attention_maps(snapshot, *chosen)
    shape = len(maps["rows"]), len(maps["columns"])
    panels = []
    for panel in maps["panels"]:
        levels = np.frombuffer(b64decode(panel["cells"]), np.uint8).reshape(shape)
        note = panel["lacking"] or panel["summary"]
        panels.append((panel["name"], note, None if panel["lacking"] else levels / 255))
    colors = {"cmin": 0, "cmax": 1, "colorscale": _scale(VIRIDIS)}
    figure = _heatmaps(snapshot, maps, panels, colors)
    title = f"{snapshot.experiment.task.title}: attention{_where(snapshot, chosen)}"
    reading = "Each row looks at the brighter columns. Frame: the right one. "
    circles = "Circle: the entry that points back. " if max(maps["reverse"]) >= 0 else ""
    return figure, title, f"{reading}{circles}{maps['cut']}"


def plot_scores(
    snapshot: Snapshot, seed: int | None = None, layer: int | None = None, head: int | str = 0
) -> tuple[Figure, str, str]:
    """Plot the scaled scores of the probe example before mask and softmax.

    Arguments and errors are those of `plot_attention`.
    """
    seed, layer, of_head = chosen = _chosen(snapshot, seed, layer, head)
    experiment, probe = snapshot.experiment, snapshot.probe
    if probe.scores is None:
        raise ValueError("kind: got 'scores', allowed other kinds: this result has no scores")
    example = example_of(snapshot)
    frame = map_layout_of(experiment.task, experiment.layer_specs[layer], example)
    frame = MapLayout(**{**vars(frame), "rest": False})
    axes = axes_of(experiment.task.label(probe.tokens), frame, example)
    by_variant = snapshot.per_sharing(np.moveaxis(probe.scores[:, layer], 0, -1))
    by_variant = by_variant[..., experiment.seeds.index(seed)].astype(np.float64)
    panels: list[tuple[str, str, np.ndarray | None]] = []
    for i, variant in enumerate(experiment.sharing):
        n_heads = experiment.wiring(variant).sizes.n_heads
        if of_head is not None and of_head >= n_heads:
            panels.append((title_of(variant), lacking_note(n_heads), None))
            continue
        heads = by_variant[:n_heads, :, :, i]
        values = heads.mean(0) if of_head is None else heads[of_head]
        panels.append((title_of(variant), "", values[frame.rows][:, frame.columns]))
    finite = [np.abs(v[np.isfinite(v)]).max(initial=0.0) for _, _, v in panels if v is not None]
    most = float(max(finite, default=0.0)) or 1.0
    colors = {"cmin": -most, "cmax": most, "colorscale": _scale(BLUE_RED)}
    figure = _heatmaps(snapshot, axes, panels, colors)
    title = f"{experiment.task.title}: scores before softmax{_where(snapshot, chosen)}"
    return figure, title, f"Blue below 0, red above. Frame: the right column. {axes['cut']}"


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


def _where(snapshot: Snapshot, chosen: tuple[int, int, int | None]) -> str:
    """Return seed, layer and head in words, the latter two only where there are several."""
    experiment, (seed, layer, head) = snapshot.experiment, chosen
    parts = [f"seed {seed}"]
    if len(experiment.layer_specs) > 1:
        parts.append(experiment.layer_specs[layer].title.lower())
    if experiment.n_heads > 1:
        parts.append("mean of heads" if head is None else f"head {head + 1}")
    return f", {', '.join(parts)}"


def _scale(colors: tuple[str, ...]) -> list[list[Any]]:
    return [[i / (len(colors) - 1), color] for i, color in enumerate(colors)]


def _heatmaps(
    snapshot: Snapshot,
    axes: dict[str, Any],
    panels: list[tuple[str, str, np.ndarray | None]],
    colors: dict[str, Any],
) -> Figure:
    """Return a panel per variant: a heat map, frames around right entries, circles, a title.

    Args:
        snapshot: The snapshot.
        axes: Texts of rows and columns and the marked entries, from `axes_of`.
        panels: Name, note and values (rows, columns) of each variant; None for values that it
            does not have.
        colors: Range and scale of the colours.
    """
    n_columns = min(len(panels), _PER_ROW)
    n_rows = -(-len(panels) // n_columns)
    high = max(_LEAST, _CELL * len(axes["rows"]))
    row_height = high + _TITLE + _below(axes)
    total = n_rows * row_height
    width = (1 - _GAP * (n_columns - 1)) / n_columns
    layout: Figure = {
        "height": total,
        "margin": {"l": 8, "r": 30, "t": 0, "b": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "coloraxis": {**colors, "colorbar": _bar(high, total)},
        "annotations": [],
        "shapes": [],
    }
    traces = []
    inks = colors_of(snapshot.experiment.sharing)
    for i, (name, note, values) in enumerate(panels):
        row, column = divmod(i, n_columns)
        left, top = column * (width + _GAP), 1 - (row * row_height + _TITLE) / total
        across = [left, min(1.0, left + width)]
        upright = [max(0.0, top - high / total), top]
        suffix = "" if i == 0 else str(i + 1)
        _add_axes(layout, axes, suffix, across, upright, named=column == 0)
        square = f'<span style="color:{inks[i]}">■</span>'
        layout["annotations"].append(
            {
                "text": f"{square} <b>{escape(name)}</b> {escape(note)}",
                "x": 0,
                "y": 1,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "xref": f"x{suffix} domain",
                "yref": f"y{suffix} domain",
            }
        )
        if values is not None:
            traces.append(_heatmap(values, axes, name, suffix))
            layout["shapes"] += _frames(axes["target"], suffix)
            traces += _circles(axes["reverse"], suffix)
    return {"data": traces, "layout": layout}


def _below(axes: dict[str, Any]) -> int:
    """Return the height in pixels of the names below a map."""
    return 14 + 7 * max(map(len, axes["columns"]))


def _bar(high: int, total: int) -> Figure:
    """Return the colour bar, which is as high as the first row of maps."""
    return {
        "thickness": 10,
        "outlinewidth": 0,
        "len": high / total,
        "y": 1 - _TITLE / total,
        "yanchor": "top",
    }


def _add_axes(
    layout: Figure,
    axes: dict[str, Any],
    suffix: str,
    across: list[float],
    upright: list[float],
    *,
    named: bool,
) -> None:
    """Add the axes of a panel; rows are named in the first panel of a row only."""
    axis = {"showgrid": False, "zeroline": False, "tickfont": {"size": 11}, "fixedrange": True}
    n_rows, n_columns = len(axes["rows"]), len(axes["columns"])
    layout[f"xaxis{suffix}"] = axis | {
        "domain": across,
        "anchor": f"y{suffix}",
        "tickvals": list(range(n_columns)),
        "ticktext": [escape(text) for text in axes["columns"]],
        "range": [-0.5, n_columns - 0.5],
        "tickangle": -90 if any(len(text) > 1 for text in axes["columns"]) else 0,
    }
    layout[f"yaxis{suffix}"] = axis | {
        "domain": upright,
        "anchor": f"x{suffix}",
        "tickvals": list(range(n_rows)),
        "ticktext": [escape(text) for text in axes["rows"]] if named else [""] * n_rows,
        "range": [n_rows - 0.5, -0.5],
        "automargin": named,
    }


def _heatmap(values: np.ndarray, axes: dict[str, Any], name: str, suffix: str) -> dict[str, Any]:
    tips = [
        [escape(f"{name}: “{row}” to “{title}”") for title in axes["column_titles"]]
        for row in axes["rows"]
    ]
    return {
        "type": "heatmap",
        "z": [[round(float(v), 4) if np.isfinite(v) else None for v in row] for row in values],
        "coloraxis": "coloraxis",
        "text": tips,
        "hovertemplate": "%{text}: %{z:.2f}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
        "xaxis": f"x{suffix}",
        "yaxis": f"y{suffix}",
    }


def _frames(columns: list[int], suffix: str) -> list[dict[str, Any]]:
    """Return frames around one column of each row, none where it is negative."""
    return [
        {
            "type": "rect",
            "xref": f"x{suffix}",
            "yref": f"y{suffix}",
            "x0": column - _INSET,
            "x1": column + _INSET,
            "y0": row - _INSET,
            "y1": row + _INSET,
            "line": {"color": color, "width": width},
        }
        for row, column in enumerate(columns)
        if column >= 0
        for color, width in _MARK
    ]


def _circles(columns: list[int], suffix: str) -> list[dict[str, Any]]:
    """Return circles in one column of each row, none where it is negative.

    They are points and not shapes, which would be ellipses in cells that are no squares.
    """
    places = [(column, row) for row, column in enumerate(columns) if column >= 0]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [column for column, _ in places],
            "y": [row for _, row in places],
            "xaxis": f"x{suffix}",
            "yaxis": f"y{suffix}",
            "marker": {
                "symbol": "circle-open",
                "size": _CIRCLE,
                "color": color,
                "line": {"width": width},
            },
            "hoverinfo": "skip",
            "showlegend": False,
        }
        for color, width in _MARK
        if places
    ]
