"""Diagram of a variant's attention, drawn from its wiring.

Matrices are boxes above, in rows if they are chained, with lines to the roles below that use their
vectors. A role without a matrix is connected to `x`, the token itself. A small mark on a line is an
operation on a role's vectors; options that cannot be drawn are notes in small text.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import NamedTuple

from attnkit.foundation.language import mark, tr, tr_n
from attnkit.foundation.words import listed
from attnkit.variants import Option, Variant, Wiring
from attnkit.variants.sharing import ROLES, Role
from attnkit.variants.wiring import TOKEN

_WIDTH = 120
_ROLE_X: dict[Role, float] = dict(zip(ROLES, (20.0, 60.0, 100.0), strict=True))
_BOX_WIDTH, _BOX_HEIGHT, _RADIUS = 30, 18, 10
_TOP, _ROW, _DROP = 2, 32, 23
"""Heights of the upper margin, of a row of matrices, and of the space between these and roles."""
_NEAREST, _APART = 34, 44
"""Smallest allowed distance of centres of boxes in a row, and their distance if it is smaller."""
_MARK, _LINE = 14, 11
"""Heights of a mark and of a line of small text."""


class _Mark(NamedTuple):
    """Mark for an operation on the vectors of some roles, between their matrices and the scores."""

    sign: str
    roles: tuple[Role, ...]
    words: str


_SCHEMES = {
    "learned": mark("learned"),
    "alibi": "ALiBi",
    "relative": mark("relative"),
    "key_bias": mark("key bias"),
    "plus": "plus",
    "learned_plus": mark("learned plus"),
}
"""Position encodings without a mark, as notes name them."""

_MARKS: dict[str, _Mark] = {
    "scaled": _Mark("D", ROLES, mark("every role scaled by factors of its own")),
    "skew": _Mark("⇄", ("K",), mark("a part of the key exchanged and negated")),
    "signed": _Mark("±D", ("K",), mark("keys times factors of both signs")),
    "qk_norm": _Mark("N", ("Q", "K"), mark("queries and keys normalised")),
    "v_norm": _Mark("N", ("V",), mark("values normalised")),
    "unit_key": _Mark("|1|", ("K",), mark("keys of length 1")),
    "rope": _Mark("↻", ("Q", "K"), mark("queries and keys rotated by position")),
    "rotate_values": _Mark("↻", ("V",), mark("values rotated by position")),
}
"""Marks by name of the option, or of the position encoding."""

_WITHOUT_NOTE = {
    "n_heads", "d_head", "d_k", "d_v", "kv_heads", "kv_rank", "k_rank", "keyless", "d_mlp",
    "kv_residual", "shared_half", "valueless",
    "learning_rate", "tie_by", "tie_at", "positions", *_MARKS,
}  # fmt: skip
"""Options without a note: boxes or marks show them, or they are no part of attention."""

_EVERY: dict[int, str] = {
    # Translators: keys and values are computed in every second layer only.
    2: mark("K, V every 2nd layer"),
    3: mark("K, V every 3rd layer"),
    4: mark("K, V every 4th layer"),
}
"""Note for each value of the option `kv_every`."""

_NOTES: dict[str, Callable[[Option], str]] = {
    "O": lambda option: tr("no output matrix"),
    # Translators: notes under a small drawing, here and below: as short as possible.
    "sum": lambda option: tr("two maps, added"),
    "diff": lambda option: tr("two maps, subtracted"),
    "kv_every": lambda option: tr(_EVERY[option.value]),
    # Translators: the value of the bottom layer and the key of the middle layer are used.
    "kv_from": lambda option: tr("V bottom, K middle layer"),
    # Translators: the matrices are the same in all layers.
    "shared_layers": lambda option: tr("same in all layers"),
    # Translators: the variant starts as another one, such as Q=K.
    "start": lambda option: tr("starts as {sharing}", sharing=option.value.value),
    # Translators: the roles are untied at first, and tied later.
    "tie": lambda option: tr("untied at first"),
    "self_mask": lambda option: tr("no self-mask") if option.value == "no" else tr("self-mask"),
    # Translators: RoPE rotates only the first numbers of each vector.
    "rope_width": lambda option: tr("RoPE: first {width} numbers", width=option.value),
    "rotate_values": lambda option: (
        tr("output not rotated back") if option.value == "only" else tr("output rotated back")
    ),
    # Translators: what a head reads out is orthogonal to the token's own value.
    "exclusive": lambda option: tr("output ⊥ own value"),
    "shaped": lambda option: tr("pattern αI + βA − γC"),
    # Translators: half of each query is the token x, the other half is an MLP of it.
    "query_mlp": lambda option: tr("Q half x, half MLP"),
    "fixed_values": lambda option: tr("random W for V"),
    "temperature": lambda option: tr("scores / {temperature}", temperature=option.written),
}
"""Notes for other options; an option that is missing here is written in its text form."""

_MATRICES = (
    mark("no matrix"),
    mark("one matrix"),
    mark("two matrices"),
    mark("three matrices"),
    mark("four matrices"),
)
"""Small numbers of matrices in words."""

LEGEND = (
    "**W** a matrix, **x** the token itself, **&** two vectors side by side, **D** learnt factors, "
    "**±D** of both signs, **⇄** a part exchanged, **N** normalised, **|1|** scaled to length 1, "
    "**↻** rotated by position, **×4** heads, **d4** numbers per head."
)
"""Meaning of the signs in diagrams; Markdown."""


def variant_diagram(variant: Variant, wiring: Wiring, color: str) -> str:
    """Return an SVG that scales with its container, in the colour of the text around it."""
    if wiring.module is not None:  # nothing is known of it but its name
        name, kind = wiring.module.name, tr("a PyTorch module")
        text = _text(_WIDTH / 2, 8 + _LINE, escape(name), "ak-token")
        note = _text(_WIDTH / 2, 8 + 2 * _LINE, kind, "ak-small")
        return (
            f'<svg viewBox="0 0 {_WIDTH} {16 + 2 * _LINE:g}" role="img" class="ak-diagram" '
            f'aria-label="{escape(f"{name}: {kind}", quote=True)}">{text}{note}</svg>'
        )
    boxes = _box_positions(wiring)
    operations = _operations(variant, wiring)
    present = [_MARKS[name] for name in operations if name in _MARKS]
    marks = {role: [one for one in present if role in one.roles] for role in ROLES}
    last_row = max(y for _, y in boxes.values())
    most_marks = max(map(len, marks.values()))
    line_end = last_row + _BOX_HEIGHT + _DROP + max(0, most_marks * _MARK - 4)
    role_y = line_end + _RADIUS - 1
    notes = [line for note in _notes(variant, wiring) for line in wrap(note, 24)]
    sizes = _role_sizes(wiring)
    text_y = role_y + _RADIUS + 2
    parts: list[str] = []
    for name, (x, y) in boxes.items():
        sources = [source for source in wiring.vectors[name].sources if source != TOKEN]
        parts += [_line(boxes[source], (x, y), last_row, color) for source in sources]
    parts += [
        _line(boxes[wiring.roles[role]], (x, line_end), last_row, color)
        for role, x in _ROLE_X.items()
    ]
    for name, (x, y) in boxes.items():
        vector = wiring.vectors[name]
        sign = "&" if vector.shared_prefix else "x"
        n_in_row = [row for _, row in boxes.values()].count(y)
        width = _box_width(n_in_row)
        box = (
            f'<rect x="{x - width / 2:g}" y="{y:g}" width="{width}" height="{_BOX_HEIGHT}" '
            f'rx="3" fill="{color}"/>{_text(x, y + 13.5, "W", "ak-matrix")}'
        )
        parts.append(box if vector.weight else _text(x, y + 13.5, sign, "ak-token"))
    for role, role_marks in marks.items():
        parts += _mark_nodes(role_marks, boxes[wiring.roles[role]], _ROLE_X[role], line_end, color)
    for role, x in _ROLE_X.items():
        parts.append(
            f'<circle cx="{x:g}" cy="{role_y:g}" r="{_RADIUS}" class="ak-role"/>'
            f'<text x="{x:g}" y="{role_y + 4.5:g}">{role}</text>'
        )
        if sizes:
            parts.append(_text(x, text_y + 8, sizes[role], "ak-small"))
    if sizes:
        text_y += _LINE
    for i, note in enumerate(notes):
        parts.append(_text(_WIDTH / 2, text_y + 8 + i * _LINE, note, "ak-small"))
    height = text_y + len(notes) * _LINE
    label = escape(f"{variant.value}: {_in_words(variant, wiring)}", quote=True)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" class="ak-diagram" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def count_matrices(wiring: Wiring) -> int:
    """Count the matrices between the token and Q, K, V; those of scores once for each map."""
    of_scores = {wiring.roles["Q"], wiring.roles["K"]}
    return sum(
        wiring.n_maps if name in of_scores else 1
        for name, vector in wiring.vectors.items()
        if vector.weight is not None
    )


def _in_words(variant: Variant, wiring: Wiring) -> str:
    count = count_matrices(wiring)
    in_words = tr(_MATRICES[count]) if count < len(_MATRICES) else ""
    parts = [in_words or tr_n("{n} matrix", "{n} matrices", count)]
    for name in dict.fromkeys(wiring.roles.values()):
        vector = wiring.vectors[name]
        members = _roles_with(name, wiring)
        roles = listed(members)
        if vector.weight is None and vector.reads == TOKEN:
            parts.append(
                # Translators: {roles} is letters such as K, or V and K.
                tr_n(
                    "{roles} is the token itself",
                    "{roles} are the token itself",
                    len(members),
                    roles=roles,
                )
            )
        elif len(members) > 1:
            # Translators: {roles} is such as "Q and K", and "one" is one matrix.
            parts.append(tr("{roles} share one", roles=roles))
        if vector.reads != TOKEN:
            parts.append(_source_in_words(name, wiring))
    names = _operations(variant, wiring)
    parts += [tr(one.words) for name, one in _MARKS.items() if name in names]
    if sizes := _role_sizes(wiring):
        parts.append(", ".join(f"{role} {size}" for role, size in sizes.items()))
    return "; ".join([*parts, *_notes(variant, wiring)]) + "."


def _source_in_words(name: str, wiring: Wiring) -> str:
    vector = wiring.vectors[name]
    roles, source = (listed(_roles_with(each, wiring)) for each in (name, vector.reads))
    adds_shared = vector.shared_offset or vector.shared_prefix
    if source and adds_shared:
        # Translators: {roles} and {source} are letters such as K, or V and K.
        return tr(
            "{roles} made from {source} and a vector that all heads share",
            roles=roles,
            source=source,
        )
    if source:
        # Translators: {roles} and {source} are letters such as K, or V and K.
        return tr("{roles} made from {source}", roles=roles, source=source)
    if adds_shared:
        # Translators: {roles} is letters such as K, or V and K.
        return tr(
            "{roles} made from a narrow vector and a vector that all heads share",
            roles=roles,
        )
    # Translators: {roles} is letters such as K, or V and K.
    return tr("{roles} made from a narrow vector", roles=roles)


def _roles_with(name: str, wiring: Wiring) -> list[Role]:
    return [role for role in ROLES if wiring.roles[role] == name]


def _box_positions(wiring: Wiring) -> dict[str, tuple[float, float]]:
    """Return centre and upper edge of every vector's box, above the vectors that read it."""
    readers: dict[str, list[str]] = {name: [] for name in wiring.vectors}
    for name, vector in wiring.vectors.items():
        for source in vector.sources:
            if source != TOKEN:
                readers[source].append(name)

    def height(name: str) -> int:
        return 1 + max(map(height, readers[name]), default=-1)

    heights = {name: height(name) for name in wiring.vectors}
    centres: dict[str, float] = {}
    for name in sorted(wiring.vectors, key=lambda name: heights[name]):
        below = [_ROLE_X[role] for role in ROLES if wiring.roles[role] == name]
        below = below or [centres[reader] for reader in readers[name]] or [_WIDTH / 2]
        centres[name] = sum(below) / len(below)
    highest = max(heights.values())
    boxes: dict[str, tuple[float, float]] = {}
    for row in range(highest + 1):
        names = sorted((n for n in heights if heights[n] == row), key=lambda n: centres[n])
        for name, x in zip(names, _spread([centres[n] for n in names]), strict=True):
            boxes[name] = x, _TOP + (highest - row) * _ROW
    return boxes


def _spread(centres: list[float]) -> list[float]:
    if all(right - left >= _NEAREST for left, right in pairwise(centres)):
        return centres
    n_gaps, width = len(centres) - 1, _box_width(len(centres))
    step = min(_APART, (_WIDTH - width - 4) / n_gaps)
    first = sum(centres) / len(centres) - step * n_gaps / 2
    first = max(width / 2 + 2, min(first, _WIDTH - width / 2 - 2 - step * n_gaps))
    return [first + step * i for i in range(len(centres))]


def _line(start: tuple[float, float], end: tuple[float, float], last_row: float, color: str) -> str:
    """Return a line from the lower edge of a box to a box or role below.

    A line from an upper row passes beside the boxes of the rows below.
    """
    (x, y), (to_x, to_y) = start, end
    if y < last_row:
        x = max(x - 11, min(x + 11, to_x))
    return (
        f'<path d="M{x:g} {y + _BOX_HEIGHT:g}L{to_x:g} {to_y:g}" stroke="{color}" '
        'stroke-width="2.5"/>'
    )


def _box_width(n_boxes: int) -> int:
    """Return the width of each of some boxes in a row; more than three are narrower."""
    return min(_BOX_WIDTH, (_WIDTH - 4) // n_boxes - 3)


def _text(x: float, y: float, text: str, css_class: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{css_class}">{escape(text)}</text>'


def _mark_nodes(
    marks: list[_Mark], start: tuple[float, float], to_x: float, to_y: float, color: str
) -> list[str]:
    nodes = []
    from_x, from_y = start[0], start[1] + _BOX_HEIGHT
    for i, one in enumerate(reversed(marks)):
        y = to_y - 9 - i * _MARK
        x = to_x + (from_x - to_x) * (to_y - y) / (to_y - from_y)
        width = 8 + 5.5 * len(one.sign)
        nodes.append(
            f'<g class="ak-mark"><rect x="{x - width / 2:g}" y="{y - 6:g}" width="{width:g}" '
            f'height="12" rx="6" stroke="{color}"/><text x="{x:g}" y="{y + 3.2:g}">{one.sign}'
            "</text></g>"
        )
    return nodes


def _operations(variant: Variant, wiring: Wiring) -> list[str]:
    """Return the names of options and of the position encoding, in the order of computation."""
    return [*(option.name for option in variant.options), wiring.sizes.positions]


def _role_sizes(wiring: Wiring) -> dict[Role, str]:
    """Return numbers of heads and widths of the roles as texts, if they differ between roles."""
    vectors = {role: wiring.vectors[wiring.roles[role]] for role in ROLES}
    several_heads = len({vector.n_heads for vector in vectors.values()}) > 1
    several_widths = len({vector.width for vector in vectors.values()}) > 1
    if not several_heads and not several_widths:
        return {}
    return {
        role: " ".join(
            ([f"×{vector.n_heads}"] if several_heads else [])
            + ([f"d{vector.width}"] if several_widths else [])
        )
        for role, vector in vectors.items()
    }


def _notes(variant: Variant, wiring: Wiring) -> list[str]:
    notes = []
    n_heads = wiring.sizes.n_heads
    if n_heads > 1 and len({v.n_heads for v in wiring.vectors.values()}) == 1:
        notes.append(tr_n("{n} head", "{n} heads", n_heads))
    for option in variant.options:
        if option.name in _NOTES:
            notes.append(_NOTES[option.name](option))
        elif option.name not in _WITHOUT_NOTE:
            notes.append(str(option))
    positions = wiring.sizes.positions
    if positions != "none" and positions not in _MARKS:
        notes.append(tr("positions: {scheme}", scheme=_SCHEMES[positions]))
    return notes
