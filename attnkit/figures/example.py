"""Drawing data for an example of a task: its tokens, its queries and the right answers."""

from __future__ import annotations

from typing import Any

from attnkit.analysis.responses import Example
from attnkit.foundation.language import tr, tr_n
from attnkit.tasks import NOTHING, Label, Task

MOST_SPELT_OUT = 32
"""Longest example whose tokens have full labels; longer ones have the short labels of axes."""


def example_cells(task: Task, example: Example) -> dict[str, Any]:
    """Return an example as data for `example.js`: one cell per token, and a note on the cells.

    `target` of a cell is the position of the token with the right answer, and `reverse` that of the
    mirrored entry; −1 where there is none. `answer` is empty where no answer is asked for.
    """
    cells = []
    for position, label in enumerate(task.label(example.tokens)):
        index = position - task.answers_from
        is_query = index >= 0 and example.labels[index] != NOTHING
        cells.append(
            {
                "token": _text(task, label, len(example.tokens)),
                "full": label.full,
                "asked": bool(is_query),
                "answer": task.answer_text(int(example.labels[index])) if is_query else "",
                "target": int(example.target[index]) if is_query else NOTHING,
                "reverse": int(example.reverse[index]) if is_query else NOTHING,
            }
        )
    note = _note(cells)
    if task.label_legend:
        # Translators: {legend} is for example "name: boss".
        entries = tr("Entries read “{legend}”.", legend=tr(task.label_legend))
        note = f"{note} {entries}"
    return {"cells": cells, "n_source": task.n_source, "note": note, "message": ""}


def _text(task: Task, label: Label, n_tokens: int) -> str:
    """Return the longest label of a token that fits; one of several fields needs all its words."""
    if task.n_fields > 1:
        return label.full if len(label.full) <= 16 else label.query
    fits = n_tokens <= MOST_SPELT_OUT and len(label.full) <= 9
    return label.full if fits else label.short


def _note(cells: list[dict[str, Any]]) -> str:
    n_queries = sum(cell["asked"] for cell in cells)
    note = tr_n(
        "{n:,} token must be answered; the right answer stands below.",
        "{n:,} tokens must be answered; the right answer stands below.",
        n_queries,
    )
    if n_queries == len(cells):
        note = tr("Every token answers; the right answer stands below.")
    if not any(cell["target"] >= 0 for cell in cells):
        return note
    arc = tr("The arc leads to the token that holds it.")
    if n_queries > 1:
        arc = tr(
            "The arc leads to the token that holds it. Tap or point at another token in a dashed "
            "frame to see its own."
        )
    return f"{note} {arc}"
