"""Tables of a sweep: its cells, slices, differences of two variants, and the frontier.

A cell is a variant at a point of the sweep. All statistics are over seeds; two runs form a pair if
they have the same seed. Where half of the seeds solve the task is in `attnkit.sweeps.boundary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnkit.foundation.settings import Value
from attnkit.training.statistics import mean_interval, paired_difference

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.sweeps.result import SweepResult

Cost = Literal[
    "attention_parameters", "parameters", "kv_cache_floats_per_token", "multiply_adds_per_token"
]
"""Column with a cost of a cell."""

DifferenceMeasure = Literal["accuracy", "steps_to_threshold"]
"""Column of which two variants are compared."""

COSTS: dict[Cost, str] = {
    "attention_parameters": "Attention parameters",
    "parameters": "Parameters of the whole model",
    "kv_cache_floats_per_token": "KV-cache floats per token",
    "multiply_adds_per_token": "Multiply-adds per token",
}
"""Title of each cost."""


def cells(result: SweepResult) -> pd.DataFrame:
    """Return one row per cell that was run, in the order of the sweep.

    Columns: the axes and `sharing`; `n_seeds`, the number of seeds that could be trained;
    `accuracy`, the mean over these with its 95% limits `accuracy_low` and `accuracy_high`; `solved`
    and `n_solved`, the share and the number of seeds that reached the threshold;
    `steps_to_threshold`, the mean over the seeds that reached it; `learning_rate`; the costs; and
    `error`, the reason why seeds could not be trained, else None.
    """
    keys = [*result.sweep.axes, "sharing"]
    common = [name for name in ("learning_rate", *COSTS) if name not in keys]
    columns = [*keys, "seed", "accuracy", "steps_to_threshold", *common, "error"]
    runs = result.runs.reindex(columns=columns)
    groups = runs.assign(trained=runs["error"].isna()).groupby(keys, sort=False)
    interval = mean_interval(_by_seed(runs, keys, "accuracy").to_numpy(float))
    table = groups.agg(
        n_seeds=("trained", "sum"),
        n_solved=("steps_to_threshold", "count"),
        steps_to_threshold=("steps_to_threshold", "mean"),
        **{name: (name, "first") for name in common},
        error=("error", "first"),
    ).reset_index()
    table = table.assign(
        accuracy=interval.mean,
        accuracy_low=interval.low,
        accuracy_high=interval.high,
        solved=(table["n_solved"] / table["n_seeds"]).where(table["n_seeds"] > 0),
        error=table["error"].astype(object).where(table["error"].notna(), None),
    )
    means = ["accuracy", "accuracy_low", "accuracy_high", "solved", "n_solved"]
    return table[[*keys, "n_seeds", *means, "steps_to_threshold", *common, "error"]]


def _by_seed(runs: pd.DataFrame, keys: list[str], name: str) -> pd.DataFrame:
    """Return a column with one row per combination of keys and one column per seed."""
    table: pd.DataFrame = runs.set_index([*keys, "seed"])[name].unstack("seed", sort=False)
    return table


def slice_at(table: pd.DataFrame, fixed: Mapping[str, Value]) -> pd.DataFrame:
    """Return the rows of a table at these values of axes; their index stays the same."""
    for name, value in fixed.items():
        table = table[table[name] == value]
    return table


def runs_at(
    result: SweepResult, fixed: Mapping[str, Value], x: str, y: str | None = None
) -> pd.DataFrame:
    """Return the trained runs at fixed values of all axes but `x` and `y`.

    Raises:
        ValueError: If an axis with several values is neither fixed nor shown.
    """
    for name, values in result.sweep.axes.items():
        if name not in (x, y) and name not in fixed and len(values) > 1:
            raise ValueError(f"fixed: has no {name!r}, allowed a value for every other axis")
    others = {name: value for name, value in fixed.items() if name not in (x, y)}
    runs = slice_at(result.runs, others)
    return runs[runs["error"].isna()]


def difference(
    result: SweepResult, a: str, b: str, measure: DifferenceMeasure = "accuracy"
) -> pd.DataFrame:
    """Return the paired differences of two variants, a − b, with one row per point of both.

    Columns: the axes; `n_pairs`, the number of seeds with which both have the measure; `difference`
    with its 95% limits `low` and `high`; and `clear`, whether the interval excludes 0. Steps to the
    threshold are compared by their binary logarithm.
    """
    import pandas as pd

    axes = list(result.sweep.axes)
    runs = result.runs.reindex(columns=[*axes, "sharing", "seed", measure, "error"])
    runs = runs[runs["error"].isna()]
    sides = [_by_seed(runs[runs["sharing"] == variant], axes, measure) for variant in (a, b)]
    one, other = sides[0].align(sides[1], join="inner", axis=0)
    values = np.array([one, other.reindex(columns=one.columns)], float)
    interval = paired_difference(*(values if measure == "accuracy" else np.log2(values)))
    columns = {
        "n_pairs": (~np.isnan(values).any(0)).sum(-1),
        "difference": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "clear": (interval.low > 0) | (interval.high < 0),
    }
    return pd.DataFrame(columns, one.index).reset_index()


def frontier(table: pd.DataFrame, cost: Cost) -> pd.DataFrame:
    """Return the cells that no other cell beats in both accuracy and cost, by rising cost.

    A cell beats another if it is at least as good in both, and better in one. All are of one task,
    with equal values of all settings that make it harder. The index of the rows stays the same.
    """
    known = table[table["accuracy"].notna() & table[cost].notna()]
    known = known.sort_values([cost, "accuracy"], ascending=[True, False], kind="stable")
    accuracy = known["accuracy"].to_numpy(float)
    best_before = np.maximum.accumulate(np.r_[-np.inf, accuracy])[:-1]
    equal = np.r_[False, (np.diff(accuracy) == 0) & (np.diff(known[cost].to_numpy(float)) == 0)]
    kept = accuracy > best_before
    for row in np.flatnonzero(equal):
        kept[row] = kept[row - 1]
    return known[kept]
