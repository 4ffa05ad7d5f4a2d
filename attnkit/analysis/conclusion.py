"""Sentence that answers a sweep: which variant needs the largest value of an axis, by how much."""

from __future__ import annotations

from collections.abc import Mapping

from attnkit.analysis.boundary import ratios
from attnkit.analysis.capacity import Swept, Value


def conclusion(
    result: Swept, x: str, y: str | None = None, fixed: Mapping[str, Value] | None = None
) -> str:
    """Return the conclusion about the boundaries of all variants.

    Args:
        result: Result of the sweep.
        x: Axis that is compared, such as the head width.
        y: Another axis, over whose values ratios are averaged; None for a sweep with one axis.
        fixed: A value for every other axis.
    """
    rows = ratios(result, x, y, fixed).dropna()
    texts = [
        f"{r.sharing} {r.ratio:.1f} times ({r.low:.1f} to {r.high:.1f})" for r in rows.itertuples()
    ]
    return f"Relative to QKV: {', '.join(texts)}."
