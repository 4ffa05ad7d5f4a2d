"""Rows and columns of the attention map of one example, and the texts on its axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from attnkit.analysis.responses import Example
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.tasks import NOTHING, Label, Task
from attnkit.training.snapshot import Snapshot

MOST_ROWS, MOST_COLUMNS = 16, 32
"""Of longer examples the last ones that are asked are shown, and where their answers stand; or so
many others, a page of rows."""

_REST = "rest"


@dataclass(frozen=True)
class MapLayout:
    """Which positions of an example are rows and columns of its map.

    Attributes:
        rows: positions that ask. columns: positions that are looked at.
        answers: the row's place in the arrays of answers, or −1 if it is asked nothing.
        rest: whether what falls on other positions is summed in one more column.
        n_rows, n_columns: how many there would be without the limits.
    """

    rows: list[int]
    columns: list[int]
    answers: list[int]
    rest: bool
    n_rows: int
    n_columns: int

    @property
    def cut(self) -> bool:
        """Whether there is more than is shown."""
        return len(self.rows) < self.n_rows or len(self.columns) < self.n_columns


def telling_layer(places: tuple[LayerSpec, ...]) -> int:
    """Return the index of the last layer; with two sides it is the last cross-attention."""
    return len(places) - 1


def queries_of(task: Task, place: LayerSpec, example: Example) -> list[int]:
    """The positions that a layer's map has rows for: those that are asked, else all that ask."""
    asked = {task.answers_from + int(i) for i in np.flatnonzero(example.labels != NOTHING)}
    everyone = list(range(*place.query_positions))
    return [position for position in everyone if position in asked] or everyone


def map_layout_of(
    task: Task,
    place: LayerSpec,
    example: Example,
    asking: int | None = None,
    *,
    most_columns: int = MOST_COLUMNS,
) -> MapLayout:
    """Rows and columns of a layer's map of an example.

    Where a task's answers all stand before the questions, the questions are no columns.

    Args:
        asking: the place of a row among `queries_of`, whose page is wanted; None: the last rows.
        most_columns: the most columns, besides the one for the rest.
    """
    looks = range(*place.key_positions)
    first = task.answers_from
    asked = {first + i: i for i, label in enumerate(example.labels) if label != NOTHING}
    rows = queries_of(task, place, example)
    columns = list(looks)
    before = first if place.kind == "layer" and example.target.max(initial=NOTHING) < first else 0
    if before and (example.target >= 0).any():
        columns = columns[:before]
    n_rows, n_columns = len(rows), len(columns)
    start = max(0, n_rows - MOST_ROWS) if asking is None else asking // MOST_ROWS * MOST_ROWS
    rows = rows[start : start + MOST_ROWS]
    answers = [asked.get(row, NOTHING) for row in rows]
    if len(columns) > most_columns:
        places = [i for i in answers if i >= 0]
        held = {int(p) for i in places for p in (example.target[i], example.reverse[i])}
        kept = [position for position in columns if position in held]
        seen = columns if not place.causal else [own for own in columns if own <= rows[-1]]
        others = [position for position in seen if position not in held]
        kept = kept[-most_columns:]
        n_free = most_columns - len(kept)
        columns = sorted(kept + (others[-n_free:] if n_free else []))
    return MapLayout(rows, columns, answers, len(columns) < len(looks), n_rows, n_columns)


def example_of(snapshot: Snapshot) -> Example:
    """The example that a snapshot's models answered."""
    probe = snapshot.probe
    return Example(probe.tokens, probe.labels, probe.target, probe.reverse)


def axes_of(labels: list[Label], frame: MapLayout, example: Example) -> dict[str, Any]:
    """Texts of a map's rows and columns, and where the right and reversed entries stand.

    Args:
        labels: of the example's tokens.
    """
    where = {position: column for column, position in enumerate(frame.columns)}

    def columns_of(positions: np.ndarray) -> list[int]:
        return [where.get(int(positions[a]), NOTHING) if a >= 0 else NOTHING for a in frame.answers]

    is_asked = any(a >= 0 for a in frame.answers)
    return {
        "rows": [labels[row].asking if is_asked else labels[row].short for row in frame.rows],
        "columns": [labels[column].short for column in frame.columns] + [_REST] * frame.rest,
        "column_titles": [labels[column].full for column in frame.columns]
        + ["all others together"] * frame.rest,
        "target": columns_of(example.target),
        "reverse": columns_of(example.reverse),
        "cut": _cut_note(frame),
    }


def shown_columns(
    pattern: Float[np.ndarray, "... j"], frame: MapLayout, first: int = 0
) -> Float[np.ndarray, "... columns"]:
    """The columns of rows of attention that are shown, and the rest summed in one more.

    Args:
        first: the position that the pattern's columns count from.
    """
    shown = pattern[..., [column - first for column in frame.columns]]
    if not frame.rest:
        return shown
    rest = pattern.sum(-1, keepdims=True) - shown.sum(-1, keepdims=True)
    return np.concatenate([shown, rest], -1)


def levels_of(weights: Float[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Weights from 0 to 1 as bytes."""
    levels: np.ndarray = (np.nan_to_num(weights).clip(0, 1) * 255).round().astype(np.uint8)
    return levels


def lacking_note(n_heads: int) -> str:
    """Return the note for a variant that lacks the head that is shown."""
    return f"It has {n_heads} head{'s' * (n_heads > 1)} only."


def _cut_note(frame: MapLayout) -> str:
    if not frame.cut:
        return ""
    parts = []
    if len(frame.rows) < frame.n_rows:
        parts.append(f"the last {len(frame.rows)} of {frame.n_rows} tokens that ask")
    if len(frame.columns) < frame.n_columns:
        parts.append(f"{len(frame.columns)} of {frame.n_columns} that are looked at")
    return f"Shown are {' and '.join(parts)}."
