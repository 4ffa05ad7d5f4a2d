"""One colour per sharing, everywhere and always: Okabe–Ito, safe for colour-blind readers."""

from __future__ import annotations

from attnkit.sharing import Sharing

COLORS: dict[Sharing, str] = {
    Sharing.QKV: "#0072B2",
    Sharing.Q_K: "#D55E00",
    Sharing.K_V: "#009E73",
    Sharing.Q_V: "#CC79A7",
    Sharing.Q_K_V: "#E69F00",
}

REFERENCE = "#8a8f98"
"""Of everything that is not a measurement of this experiment: grey, readable on light and dark."""


def translucent(color: str, opacity: float) -> str:
    """The colour as `rgba(…)`."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
