"""Rows and columns of the attention map of one example, and the texts on its axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from attnkit.analysis.responses import Example
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.tasks import NOTHING, Label, Task
from attnkit.training.snapshot import Snapshot

MOST_ROWS, MOST_COLUMNS = 16, 32
"""Most rows and columns of a map. Of a long example, one page of rows is shown, by default the last
one; columns that hold the answers of these rows take precedence."""

# Translators: the column of a map that holds the sum of all other columns.
_REST = mark("rest")


@dataclass(frozen=True)
class MapLayout:
    """Positions of an example that are rows and columns of an attention map.

    Attributes:
        rows: Query positions.
        columns: Key positions.
        answers: For each row, its index in the arrays of answers, or −1 if it gives no answer.
        first_row: Index of the first row among all rows.
        rest: Whether one more column holds the sum of the attention to all other positions.
        n_rows: Number of rows without the limit.
        n_columns: Number of columns without the limit.
    """

    rows: list[int]
    columns: list[int]
    answers: list[int]
    first_row: int
    rest: bool
    n_rows: int
    n_columns: int

    @property
    def cut(self) -> bool:
        """Whether the map lacks rows or columns because of the limits."""
        return len(self.rows) < self.n_rows or len(self.columns) < self.n_columns


def telling_layer(layer_specs: tuple[LayerSpec, ...]) -> int:
    """Return the index of the last layer; in a decoder it is the last cross-attention."""
    return len(layer_specs) - 1


def query_positions_of(task: Task, spec: LayerSpec, example: Example) -> list[int]:
    """Return the layer's query positions that must answer, or all of them if none must."""
    answering = {task.answers_from + int(i) for i in np.flatnonzero(example.labels != NOTHING)}
    positions = list(range(*spec.query_positions))
    return [position for position in positions if position in answering] or positions


def map_layout_of(
    task: Task,
    spec: LayerSpec,
    example: Example,
    query_index: int | None = None,
    *,
    most_columns: int = MOST_COLUMNS,
) -> MapLayout:
    """Return the rows and columns of a layer's map of an example.

    If all answers of a task stand before its questions, the questions are no columns.

    Args:
        query_index: Index into `query_positions_of`, whose page is shown; None: the last rows.
        most_columns: Most columns, not counting the one for the rest.
    """
    first = task.answers_from
    answer_index = {first + i: i for i, label in enumerate(example.labels) if label != NOTHING}
    rows = query_positions_of(task, spec, example)
    columns = list(range(*spec.key_positions))
    target = example.target
    if spec.kind == "layer" and (target >= 0).any() and target.max() < first:
        columns = columns[:first]
    n_rows, n_columns = len(rows), len(columns)
    start = max(0, n_rows - MOST_ROWS)
    if query_index is not None:
        start = query_index // MOST_ROWS * MOST_ROWS
    rows = rows[start : start + MOST_ROWS]
    answers = [answer_index.get(row, NOTHING) for row in rows]
    if len(columns) > most_columns:
        pairs = [(target[i], example.reverse[i]) for i in answers if i >= 0]
        entries = {int(position) for pair in pairs for position in pair}
        visible = columns if not spec.causal else [j for j in columns if j <= rows[-1]]
        others = [position for position in visible if position not in entries]
        chosen = [position for position in columns if position in entries][-most_columns:]
        n_free = most_columns - len(chosen)
        columns = sorted(chosen + (others[-n_free:] if n_free else []))
    rest = len(columns) < spec.n_keys
    return MapLayout(rows, columns, answers, start, rest, n_rows, n_columns)


def example_of(snapshot: Snapshot) -> Example:
    """Return the example whose attention a snapshot records."""
    probe = snapshot.probe
    return Example(probe.tokens, probe.labels, probe.target, probe.reverse)


def marked_pair(task: Task, example: Example) -> tuple[int, int] | None:
    """Return the pair of entries of the example that maps mark and sentences name.

    It is the first query with an answer and the entry that holds it. The pair depends on the
    example alone, so that it is the same for all variants and seeds and at every step.

    Returns:
        The position of the query, and of the entry that it should attend to. Attending in the
        opposite direction is wrong. None if the task has no such pairs.
    """
    first = task.answers_from
    reverse = {first + a: int(position) for a, position in enumerate(example.reverse)}
    for a, target in enumerate(map(int, example.target)):
        has_answer = target != NOTHING and example.labels[a] != NOTHING
        if has_answer and reverse.get(target) == first + a:
            return first + a, target
    return None


def named_query(task: Task, example: Example) -> int | None:
    """Return the position of the query that sentences about mirrored scores speak of.

    It is the second entry of the marked pair: a variant that scores both directions alike mixes up
    its right entry with the first entry of the pair. None if there is no pair, or no answer to it.
    """
    pair = marked_pair(task, example)
    if pair is None or example.labels[pair[1] - task.answers_from] == NOTHING:
        return None
    return pair[1]


def axes_of(labels: list[Label], layout: MapLayout, example: Example) -> dict[str, Any]:
    """Return the texts of a map's rows and columns, and the columns of right and reversed entries.

    Args:
        labels: Labels of the example's tokens.
    """
    column_at = {position: column for column, position in enumerate(layout.columns)}

    def columns_of(positions: np.ndarray) -> list[int]:
        positions_of_rows = [int(positions[a]) if a >= 0 else NOTHING for a in layout.answers]
        return [column_at.get(position, NOTHING) for position in positions_of_rows]

    is_asked = any(a >= 0 for a in layout.answers)
    return {
        "rows": [labels[row].query if is_asked else labels[row].short for row in layout.rows],
        "columns": [labels[column].short for column in layout.columns] + [tr(_REST)] * layout.rest,
        "column_titles": [labels[column].full for column in layout.columns]
        + [tr("all others together")] * layout.rest,
        "target": columns_of(example.target),
        "reverse": columns_of(example.reverse),
        "cut": _cut_note(layout),
    }


def shown_columns(
    pattern: Float[np.ndarray, "... j"], layout: MapLayout, first: int = 0
) -> Float[np.ndarray, "... columns"]:
    """Return the columns of a layout from rows of attention, and the rest summed in one more.

    Args:
        first: Key position of the pattern's first column.
    """
    shown = pattern[..., [column - first for column in layout.columns]]
    if not layout.rest:
        return shown
    rest = pattern.sum(-1, keepdims=True) - shown.sum(-1, keepdims=True)
    return np.concatenate([shown, rest], -1)


def levels_of(weights: Float[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Return weights from 0 to 1 as whole numbers from 0 to 255; NaN becomes 0."""
    levels: np.ndarray = (np.nan_to_num(weights).clip(0, 1) * 255).round().astype(np.uint8)
    return levels


def lacking_note(n_heads: int) -> str:
    """Return the note for a variant that does not have the selected head."""
    return tr_n("It has {n} head only.", "It has {n} heads only.", n_heads)


def _cut_note(layout: MapLayout) -> str:
    if not layout.cut:
        return ""
    queries = {
        "first": layout.first_row + 1,
        "last": layout.first_row + len(layout.rows),
        "n_queries": layout.n_rows,
    }
    keys = {"n_shown": len(layout.columns), "n_keys": layout.n_columns}
    if len(layout.columns) == layout.n_columns:
        return tr("The map shows queries {first} to {last} of {n_queries}.", **queries)
    if len(layout.rows) == layout.n_rows:
        return tr("The map shows {n_shown} of {n_keys} keys.", **keys)
    return tr(
        "The map shows queries {first} to {last} of {n_queries} and {n_shown} of {n_keys} keys.",
        **queries,
        **keys,
    )
