"""A task at a glance: a strip of tokens, who asks, where the answer stands, what it is.

Works for every task, also one of your own: all it knows is an example and its labels.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise

from attnkit.analysis.responses import Example
from attnkit.tasks import NOTHING, Task

MOST_CELLS = 6
"""Tokens in the strip; of longer examples those around an asking token and its target."""

WIDTH, HEIGHT = 168, 66

_CELL_TOP, _CELL_HEIGHT = 26, 20
_GAP = 9
"""Where tokens are left out, or the other side begins."""


def thumbnail(task: Task, example: Example) -> str:
    """An SVG that takes its ink from `currentColor`; decoration, hidden from screen readers."""
    labels = task.label(example.tokens)
    arcs = _arcs(task, example)
    first_asked = task.answers_from + int((example.labels != NOTHING).argmax())
    shown = _shown(len(labels), arcs or [(first_asked, 0)])
    gaps = [a for a, b in pairwise(shown) if b > a + 1 or b == task.n_source]
    width = (WIDTH - 2 - _GAP * len(gaps)) / len(shown)
    x, left = dict[int, float](), 1.0
    parts = []
    for position in shown:
        x[position] = left + width / 2
        left += width
        if position in gaps:
            sign = "⋯" if position + 1 not in shown else "⇢"
            parts.append(_text(left + _GAP / 2, _CELL_TOP + 13, sign, 8))
            left += _GAP
    asked_in = {asker for asker, _ in arcs}
    targets = {target for _, target in arcs}
    for position in shown:
        place = position - task.answers_from
        asked = place >= 0 and example.labels[place] != NOTHING
        kind = "ak-asks" if asked else "ak-said"
        corner = f'x="{x[position] - width / 2 + 1:.1f}" y="{_CELL_TOP}"'
        size = f'width="{width - 2:.1f}" height="{_CELL_HEIGHT}" rx="3"'
        parts.append(f'<rect {corner} {size} class="{kind}"/>')
        if position in targets:
            parts.append(f'<rect {corner} {size} class="ak-held"/>')
        text = labels[position].short.removesuffix(" ?") if asked else labels[position].short
        parts.append(_text(x[position], _CELL_TOP + 13.5, text, width))
        if asked and (not arcs or position in asked_in or len(shown) == len(labels)):
            answer = task.answer_text(int(example.labels[place]))
            bold = "ak-answer" if position in asked_in or not arcs else "ak-other"
            parts.append(_text(x[position], _CELL_TOP + _CELL_HEIGHT + 13, answer, width, bold))
    for asker, target in arcs:
        parts.append(_arc(x[asker], x[target]))
    return (
        f'<svg class="ak-thumb" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        + "".join(parts)
        + "</svg>"
    )


def _arcs(task: Task, example: Example) -> list[tuple[int, int]]:
    """One or two (asking position, target), those that are told apart best."""
    found = [
        (task.answers_from + place, int(target))
        for place, target in enumerate(example.target)
        if target != NOTHING and example.labels[place] != NOTHING
    ]
    if not found:
        return []
    first = next((arc for arc in found if arc[0] != arc[1]), found[0])
    near = [arc for arc in found if arc != first and abs(arc[0] - first[0]) < MOST_CELLS]
    small = len(example.tokens) <= MOST_CELLS
    return [first, *near[:1]] if small else [first]


def _shown(n_ctx: int, arcs: list[tuple[int, int]]) -> list[int]:
    """Positions in the strip: those of the arcs, then their neighbours, left and right in turn."""
    shown = dict.fromkeys(position for arc in arcs for position in arc[::-1])
    for distance in range(1, n_ctx):
        for position in list(shown):
            for neighbour in (position + distance, position - distance):
                if 0 <= neighbour < n_ctx and len(shown) < MOST_CELLS:
                    shown[neighbour] = None
        if len(shown) >= min(MOST_CELLS, n_ctx):
            break
    return sorted(shown)


def _text(x: float, y: float, text: str, width: float, kind: str = "") -> str:
    """Text that fits, cut if it would be too small to read."""
    most = max(1, int(width / 3.6))
    text = text if len(text) <= most else text[: most - 1] + "…"
    size = min(10.5, 1.42 * width / max(len(text), 1))
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:.1f}"{mark}>{escape(text)}</text>'


def _arc(asker: float, target: float) -> str:
    top, low = _CELL_TOP - 2, max(4.0, _CELL_TOP - 8 - abs(asker - target) / 5)
    if abs(asker - target) < 1:  # it answers with itself
        loop = f"M{asker - 5:.1f} {top} C{asker - 9:.1f} 8 {asker + 9:.1f} 8 {target + 5:.1f} {top}"
        path, tip = loop, target + 5
    else:
        path = f"M{asker:.1f} {top} C{asker:.1f} {low} {target:.1f} {low} {target:.1f} {top}"
        tip = target
    head = f"M{tip - 3:.1f} {top - 5} L{tip:.1f} {top} L{tip + 3:.1f} {top - 5}"
    return f'<path d="{path}" class="ak-arc"/><path d="{head}" class="ak-arc"/>'
