"""One example of a task as an aligned table: position, token, what is asked, the right answer."""

from __future__ import annotations

from typing import Any

from attnkit.analysis.responses import Example
from attnkit.tasks import NOTHING, Label, Task

MOST_SPELT_OUT = 32
"""Tokens that are labelled in full; in longer examples they are labelled as on an axis."""


def example_cells(task: Task, example: Example) -> dict[str, Any]:
    """Plain drawing data, one cell for every token, and what the cells mean.

    A cell's `target` is the position that holds its answer, `reverse` that of the entry that asks
    for the asker; −1 where there is none. `answer` is empty where nothing is asked.
    """
    cells = []
    for position, label in enumerate(task.label(example.tokens)):
        place = position - task.answers_from
        asked = place >= 0 and example.labels[place] != NOTHING
        cells.append(
            {
                "token": _text(task, label, len(example.tokens)),
                "full": label.full,
                "asked": bool(asked),
                "answer": task.answer_text(int(example.labels[place])) if asked else "",
                "target": int(example.target[place]) if asked else NOTHING,
                "reverse": int(example.reverse[place]) if asked else NOTHING,
            }
        )
    note = _note(cells) + (f" Entries read “{task.label_legend}”." if task.label_legend else "")
    return {"cells": cells, "n_source": task.n_source, "note": note, "message": ""}


def _text(task: Task, label: Label, n_tokens: int) -> str:
    """As much as fits: a token of several fields needs all its words, one of a single id less."""
    if task.n_fields > 1:
        return label.full if len(label.full) <= 16 else label.asking
    fits = n_tokens <= MOST_SPELT_OUT and len(label.full) <= 9
    return label.full if fits else label.short


def _note(cells: list[dict[str, Any]]) -> str:
    n_asked = sum(cell["asked"] for cell in cells)
    everyone = "Every token answers" if n_asked == len(cells) else f"{n_asked} tokens are asked"
    note = f"{everyone}; the right answer stands below."
    if any(cell["target"] >= 0 for cell in cells):
        note += " The arc leads to the token that holds it: point at another token to see its own."
    return note
