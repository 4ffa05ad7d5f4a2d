"""Colours of variants and scales, from `palette.json`, which the pages' JavaScript reads, too.

Each sharing has one Okabe–Ito colour, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

from attnkit.variants import Variant
from attnkit.variants.sharing import Sharing

_PALETTE = json.loads(
    files("attnkit.variants").joinpath("palette.json").read_text(encoding="utf-8")
)

COLORS: dict[Sharing, str] = {Sharing(name): c for name, c in _PALETTE["sharings"].items()}
"""Colour of every sharing."""

FURTHER: tuple[str, ...] = tuple(_PALETTE["further"])
"""Colours of composed variants, in this order; unused colours of `COLORS` follow."""

REFERENCE: str = _PALETTE["reference"]
"""Grey of everything that this experiment did not measure, readable on light and on dark."""

VIRIDIS: tuple[str, ...] = tuple(_PALETTE["viridis"])
"""Colour scale of weights, from 0 to the largest."""

BLUE_RED: tuple[str, ...] = tuple(_PALETTE["blue_red"])
"""Colour scale of signed numbers: blue below 0, red above."""


def colors_of(variants: Sequence[Variant]) -> list[str]:
    """Return a colour for each variant: a plain sharing has its own, others have unused ones."""
    taken = {COLORS[v.sharing] for v in variants if v.is_partition}
    free = [color for color in (*FURTHER, *COLORS.values()) if color not in taken]
    others = iter(free * len(variants))
    return [COLORS[v.sharing] if v.is_partition else next(others) for v in variants]


def translucent(color: str, opacity: float) -> str:
    """Return a hexadecimal colour as `rgba(…)` with this opacity."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
