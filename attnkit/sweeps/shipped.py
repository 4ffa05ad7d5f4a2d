"""Finished sweeps that come with the package."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from attnkit.sweeps.result import SweepResult

FOLDER = Path(__file__).parent / "shipped"

SHIPPED = {
    "width_tuned": "Phone book: head width and entries, tuned",
    "width": "Phone book: head width and entries, as in the Lab",
    "direction": "Directed relation (who reports to whom): heads, head width, layers",
    "relations": "Directed relations held in the weights: head width, heads, names",
    "catalogue": "Phone book of 16 entries: 41 variants by head width",
    "sort_steps": "Sort: steps, at twice the learning rate",
}
"""Title of every shipped sweep, by the name of its file and of its specification."""


@cache
def load_shipped(name: str) -> SweepResult:
    """Return a shipped sweep.

    Args:
        name: A name in `SHIPPED`.

    Raises:
        OSError: If its file does not exist.
        InvalidSweep: If its file is damaged.
    """
    return SweepResult.load(FOLDER / f"{name}.parquet")
