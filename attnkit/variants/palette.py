"""Colours of variants: each sharing has one Okabe–Ito colour, safe for colour-blind readers."""

from __future__ import annotations

from collections.abc import Sequence

from attnkit.variants import Variant
from attnkit.variants.sharing import Sharing

COLORS: dict[Sharing, str] = {
    Sharing.QKV: "#0072B2",
    Sharing.Q_K: "#D55E00",
    Sharing.K_V: "#009E73",
    Sharing.Q_V: "#CC79A7",
    Sharing.Q_K_V: "#E69F00",
}

FURTHER = ("#56B4E9", "#8C6BB1", "#7F5539", "#6B7A1E")
"""Colours of composed variants, in this order; unused colours of `COLORS` follow."""

REFERENCE = "#8a8f98"
"""Grey of everything that this experiment did not measure, readable on light and on dark."""


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
