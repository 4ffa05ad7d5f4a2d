"""Repetition of a sample of a sweep on this machine, to compare processors, versions and bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnkit.sweeps.chunk import train_group
from attnkit.sweeps.planning import Group
from attnkit.sweeps.values import InvalidSweep

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.sweeps.result import SweepResult

COMPARED = ("accuracy", "loss", "steps_to_threshold", "score_symmetry", "learning_rate")
"""Columns that are compared to the bit."""


@dataclass(frozen=True)
class Repetition:
    """Differences between recorded runs and their repetition here.

    Attributes:
        n_cells: Cells that were trained again.
        where: Kind of processor and versions of this machine.
        table: One row per run: `cell`, `sharing`, `seed`, `processor` and `versions` of the record,
            `equal` (whether the columns of `COMPARED` have the same bits), `accuracy_difference`,
            `loss_difference`.
    """

    n_cells: int
    where: str
    table: pd.DataFrame


def repeat_sample(result: SweepResult, n_cells: int, seed: int = 0) -> Repetition:
    """Train random cells of a sweep again and compare them with the record.

    Args:
        result: The recorded sweep.
        n_cells: Number of cells; all if there are fewer.
        seed: Seed of the choice.

    Raises:
        InvalidSweep: If the record has no finished run.
    """
    import pandas as pd

    sweep, recorded = result.sweep, result.runs[result.runs["error"].isna()]
    if recorded.empty:
        raise InvalidSweep("--check: the folder has no finished run, allowed is one that has")
    names = recorded["cell"].unique()
    chosen = np.random.default_rng(seed).permutation(names)[:n_cells]
    positions = {
        name: (point, variant)
        for (point, variant), name in np.ndenumerate(sweep.cell_hashes().astype("U16"))
    }
    tables = []
    for name in chosen:
        point, variant = positions[name]
        seeds = recorded.loc[recorded["cell"] == name, "seed"]
        span = range(int(seeds.min()), int(seeds.max()) + 1)
        tables += train_group(sweep, Group(int(point), (int(variant),), span))
    again = pd.concat(tables, ignore_index=True)
    if again["error"].notna().all():
        raise InvalidSweep(f"--check: nothing can be trained here ({again['error'].iloc[0]})")
    pairs = recorded.merge(again, on=["cell", "seed"], suffixes=("", "_again"))
    before = pairs[[*COMPARED]].to_numpy(float)
    after = pairs[[f"{column}_again" for column in COMPARED]].to_numpy(float)
    table = pairs[["cell", "sharing", "seed", "processor", "versions"]].assign(
        equal=np.where(np.isnan(before), np.isnan(after), before == after).all(1),
        accuracy_difference=(pairs["accuracy_again"] - pairs["accuracy"]).abs(),
        loss_difference=(pairs["loss_again"] - pairs["loss"]).abs(),
    )
    where = ", ".join(again[["processor", "versions"]].dropna().iloc[0])
    return Repetition(len(chosen), where, table)
