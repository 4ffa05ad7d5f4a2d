"""Rows of a sweep's results that are the same wherever a cell was trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from attnkit import __version__
from attnkit.foundation.settings import Value
from attnkit.sweeps.specification import Sweep
from attnkit.variants import Variant

if TYPE_CHECKING:
    import pandas as pd


def labelled(
    sweep: Sweep, point: Mapping[str, Value], variant: Variant, rows: pd.DataFrame
) -> pd.DataFrame:
    """Return the rows of a cell with its hash and the versions that trained it."""
    return rows.assign(cell=sweep.cell_hash(point, variant), versions=_versions())


def failed_rows(
    sweep: Sweep, point: Mapping[str, Value], variant: Variant, seeds: Iterable[int], reason: str
) -> pd.DataFrame:
    """Return the rows of a cell that cannot be trained, with the reason."""
    import pandas as pd

    rows = pd.DataFrame({"sharing": variant.value, "seed": list(seeds)})
    rate = sweep.settings_at(point)["learning_rate"]
    rows = rows.assign(learning_rate=rate, seconds=0.0, error=" ".join(reason.split()))
    return labelled(sweep, point, variant, rows)


@cache
def _versions() -> str:
    others = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy"))
    return f"attnkit {__version__}, {others}"
