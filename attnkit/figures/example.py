"""Drawings of an example of a task: its tokens and answers in cells, and a small thumbnail.

They need an example and its labels alone, so they work for every task, plugins included.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import Any

from attnkit.analysis.responses import Example
from attnkit.foundation.language import tr, tr_n
from attnkit.tasks import NOTHING, Label, Task


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
                "token": _token_text(task, label, len(example.tokens)),
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


def _token_text(task: Task, label: Label, n_tokens: int) -> str:
    """Return the longest label of a token that fits; one of several fields needs all its words."""
    if task.n_fields > 1:
        return label.full if len(label.full) <= 16 else label.query
    fits = n_tokens <= 32 and len(label.full) <= 9
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


MOST_CELLS = 6
"""Most tokens in the strip; longer examples show those around a query and its target."""

WIDTH, HEIGHT = 168, 66

_CELL_TOP, _CELL_HEIGHT = 26, 20
_GAP = 9
"""Width of a gap where tokens are left out or the target side of a translation begins."""


def thumbnail(task: Task, example: Example) -> str:
    """Return an SVG in the colour of the text around it, hidden from screen readers."""
    labels = task.label(example.tokens)
    arcs = _arcs(task, example)
    first_query = task.answers_from + int((example.labels != NOTHING).argmax())
    positions = _shown_positions(len(labels), arcs or [(first_query, 0)])
    gaps = [a for a, b in pairwise(positions) if b > a + 1 or b == task.n_source]
    width = (WIDTH - 2 - _GAP * len(gaps)) / len(positions)
    x, left = dict[int, float](), 1.0
    parts = []
    for position in positions:
        x[position] = left + width / 2
        left += width
        if position in gaps:
            sign = "⋯" if position + 1 not in positions else "⇢"
            parts.append(_text(left + _GAP / 2, _CELL_TOP + 13, sign, 8))
            left += _GAP
    queries = {query for query, _ in arcs}
    targets = {target for _, target in arcs}
    for position in positions:
        index = position - task.answers_from
        is_query = index >= 0 and example.labels[index] != NOTHING
        css_class = "ak-asks" if is_query else "ak-said"
        corner = f'x="{x[position] - width / 2 + 1:.1f}" y="{_CELL_TOP}"'
        size = f'width="{width - 2:.1f}" height="{_CELL_HEIGHT}" rx="3"'
        parts.append(f'<rect {corner} {size} class="{css_class}"/>')
        if position in targets:
            parts.append(f'<rect {corner} {size} class="ak-held"/>')
        text = labels[position].short.removesuffix(" ?") if is_query else labels[position].short
        parts.append(_text(x[position], _CELL_TOP + 13.5, text, width))
        if is_query and (not arcs or position in queries or len(positions) == len(labels)):
            answer = task.answer_text(int(example.labels[index]))
            css_class = "ak-answer" if position in queries or not arcs else "ak-other"
            y = _CELL_TOP + _CELL_HEIGHT + 13
            parts.append(_text(x[position], y, answer, width, css_class))
    for query, target in arcs:
        parts.append(_arc(x[query], x[target]))
    return (
        f'<svg class="ak-thumb" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        + "".join(parts)
        + "</svg>"
    )


def _arcs(task: Task, example: Example) -> list[tuple[int, int]]:
    """Return one or two (query position, target) for arcs; two if the whole example is shown."""
    arcs = [
        (task.answers_from + index, int(target))
        for index, target in enumerate(example.target)
        if target != NOTHING and example.labels[index] != NOTHING
    ]
    if not arcs:
        return []
    first = next((arc for arc in arcs if arc[0] != arc[1]), arcs[0])
    if len(example.tokens) > MOST_CELLS:
        return [first]
    others = [arc for arc in arcs if arc != first]
    return [first, *others[:1]]


def _shown_positions(n_ctx: int, arcs: list[tuple[int, int]]) -> list[int]:
    """Return the positions in the strip: ends of arcs, then their nearest neighbours."""
    positions = dict.fromkeys(position for arc in arcs for position in arc[::-1])
    for distance in range(1, n_ctx):
        for position in list(positions):
            for neighbour in (position + distance, position - distance):
                if 0 <= neighbour < n_ctx and len(positions) < MOST_CELLS:
                    positions[neighbour] = None
        if len(positions) >= min(MOST_CELLS, n_ctx):
            break
    return sorted(positions)


def _text(x: float, y: float, text: str, width: float, css_class: str = "") -> str:
    most = max(1, int(width / 3.6))
    text = text if len(text) <= most else text[: most - 1] + "…"
    size = min(10.5, 1.42 * width / max(len(text), 1))
    attribute = f' class="{css_class}"' if css_class else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:.1f}"{attribute}>{escape(text)}</text>'


def _arc(start: float, end: float) -> str:
    base, peak = _CELL_TOP - 2, max(4.0, _CELL_TOP - 8 - abs(start - end) / 5)
    if abs(start - end) < 1:  # The query is its own target: the arc is a loop.
        path = f"M{start - 5:.1f} {base} C{start - 9:.1f} 8 {start + 9:.1f} 8 {end + 5:.1f} {base}"
        tip = end + 5
    else:
        path = f"M{start:.1f} {base} C{start:.1f} {peak} {end:.1f} {peak} {end:.1f} {base}"
        tip = end
    head = f"M{tip - 3:.1f} {base - 5} L{tip:.1f} {base} L{tip + 3:.1f} {base - 5}"
    return f'<path d="{path}" class="ak-arc"/><path d="{head}" class="ak-arc"/>'
