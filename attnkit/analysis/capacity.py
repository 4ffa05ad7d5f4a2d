"""Tables of a sweep: its cells, slices, differences of two variants, frontier and equal accuracy.

A cell is a variant at a point of the sweep. All statistics are over seeds; two runs form a pair if
they have the same seed. Where half of the seeds solve the task is in `attnkit.analysis.boundary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from attnkit.foundation.settings import Value
from attnkit.training.statistics import mean_interval, paired_difference

if TYPE_CHECKING:
    import pandas as pd

    from attnkit.variants import Variant

Cost = Literal[
    "attention_parameters", "parameters", "kv_cache_floats_per_token", "multiply_adds_per_token"
]
"""Column with a cost of a cell."""

COSTS: dict[Cost, str] = {
    "attention_parameters": "Attention parameters",
    "parameters": "Parameters of the whole model",
    "kv_cache_floats_per_token": "KV-cache floats per token",
    "multiply_adds_per_token": "Multiply-adds per token",
}
"""Title of each cost."""


class Grid(Protocol):
    """Part of a sweep's specification that these tables read."""

    @property
    def axes(self) -> Mapping[str, Sequence[Value]]:
        """Setting → values."""

    @property
    def sharing(self) -> Sequence[Variant]:
        """Variants in their order."""

    @property
    def task(self) -> str:
        """Name of the task of all cells; empty if they have several."""


class Swept(Protocol):
    """Part of a sweep's result that these tables read."""

    @property
    def sweep(self) -> Grid:
        """Specification of the sweep."""

    @property
    def runs(self) -> pd.DataFrame:
        """One row per run."""


def cells(result: Swept) -> pd.DataFrame:
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
    place = len(keys) + 1
    table.insert(place, "accuracy", interval.mean)
    table.insert(place + 1, "accuracy_low", interval.low)
    table.insert(place + 2, "accuracy_high", interval.high)
    solved = (table["n_solved"] / table["n_seeds"]).where(table["n_seeds"] > 0)
    table.insert(place + 3, "solved", solved)
    errors = table["error"].astype(object)
    table["error"] = errors.where(errors.notna(), None)
    return table


def _by_seed(runs: pd.DataFrame, keys: list[str], name: str) -> pd.DataFrame:
    """Return a column with one row per combination of keys and one column per seed."""
    table: pd.DataFrame = (
        runs.drop_duplicates([*keys, "seed"])
        .set_index([*keys, "seed"])[name]
        .unstack("seed", sort=False)
    )
    return table


def slice_at(table: pd.DataFrame, fixed: Mapping[str, Value]) -> pd.DataFrame:
    """Return the rows of a table at these values of axes; their index stays the same.

    Raises:
        ValueError: If the table has no such column.
    """
    for name, value in fixed.items():
        if name not in table.columns:
            allowed = ", ".join(map(str, table.columns))
            raise ValueError(f"fixed: got {name!r}, allowed {allowed}")
        table = table[table[name] == value]
    return table


def runs_at(
    result: Swept, fixed: Mapping[str, Value], x: str, y: str | None = None
) -> pd.DataFrame:
    """Return the trained runs at fixed values of all axes but `x` and `y`.

    Raises:
        ValueError: If an axis with several values is neither fixed nor shown.
    """
    axes = result.sweep.axes
    for name, values in axes.items():
        if name not in (x, y) and name not in fixed and len(values) > 1:
            raise ValueError(f"fixed: has no {name!r}, allowed a value for every other axis")
    for name in (x, *([y] if y is not None else [])):
        if name not in axes:
            raise ValueError(f"axis: got {name!r}, allowed {', '.join(axes)}")
    others = {name: value for name, value in fixed.items() if name not in (x, y)}
    runs = slice_at(result.runs, others)
    return runs[runs["error"].isna()]


def difference(result: Swept, a: str, b: str) -> pd.DataFrame:
    """Return the paired differences of two variants, a − b, with one row per point of both.

    Columns: the axes; `n_pairs`; `difference` of accuracy with its 95% limits `low` and `high`, and
    `clear`, whether the interval excludes 0; the same for the binary logarithm of the steps to the
    threshold over the `n_steps_pairs` seeds with which both reached it, as `steps_difference`,
    `steps_low`, `steps_high` and `steps_clear`.

    Args:
        result: Result of the sweep.
        a: Text form of a variant.
        b: Text form of the variant that is subtracted.
    """
    import pandas as pd

    axes = list(result.sweep.axes)
    names = {"": "accuracy", "steps_": "steps_to_threshold"}
    runs = result.runs.reindex(columns=[*axes, "sharing", "seed", *names.values(), "error"])
    runs = runs[runs["error"].isna()]
    of_a, of_b = (runs[runs["sharing"] == variant] for variant in (a, b))
    columns: dict[str, np.ndarray] = {}
    for prefix, name in names.items():
        sides = _by_seed(of_a, axes, name), _by_seed(of_b, axes, name)
        one, other = sides[0].align(sides[1], join="inner", axis=0)
        values = np.array([one, other.reindex(columns=one.columns)], float)
        values = np.log2(values) if prefix else values
        interval = paired_difference(*values)
        columns[f"n_{prefix}pairs"] = (~np.isnan(values[0] - values[1])).sum(-1)
        columns[f"{prefix}difference"] = interval.mean
        columns[f"{prefix}low"], columns[f"{prefix}high"] = interval.low, interval.high
        columns[f"{prefix}clear"] = (interval.low > 0) | (interval.high < 0)
    return pd.DataFrame(columns, one.index).reset_index()


def frontier(table: pd.DataFrame, cost: Cost) -> pd.DataFrame:
    """Return the cells that no other cell beats in both accuracy and cost, by rising cost.

    A cell beats another if it is at least as good in both, and better in one. The index of the
    rows stays the same.

    Args:
        table: Cells of one task, with equal values of all settings that make it harder.
        cost: Column with the cost.
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


def matching_cost(
    table_a: pd.DataFrame, table_b: pd.DataFrame, cost: Cost, least: float = 0.0
) -> pd.DataFrame:
    """Return the smallest cost at which A and B reach the same accuracy.

    The accuracies are those of the cells on the frontiers of both. Between neighbouring cells on a
    frontier the logarithm of the cost is interpolated. Intervals come from the seeds: the limits of
    a cost are those at which the upper and the lower 95% limit of the accuracy reach the level.

    Args:
        table_a: Cells of A, at one task.
        table_b: Cells of B, at the same task.
        cost: Column with the cost.
        least: Smallest accuracy. Near chance, small differences of accuracy are large differences
            of cost.

    Returns:
        One row for each accuracy from that of the cheapest cells to the best of A. Columns:
        `accuracy`; `a` and `b`, the costs with limits `a_low`, `a_high`, `b_low` and `b_high`; and
        `ratio`, the cost of B as a multiple of that of A, with limits `low` and `high`. Columns of
        B are NaN where it never reaches the accuracy; limits are infinite where the limit of the
        accuracy never does.
    """
    import pandas as pd

    best_a, best_b = frontier(table_a, cost)["accuracy"], frontier(table_b, cost)["accuracy"]
    lowest = max(best_a.min(), best_b.min(), least) if len(best_a) and len(best_b) else np.inf
    accuracy = np.unique(np.r_[best_a, best_b])
    accuracy = accuracy[(accuracy >= lowest) & (accuracy <= best_a.max())]
    sides = {"a": _costs_at(accuracy, table_a, cost), "b": _costs_at(accuracy, table_b, cost)}
    (a, a_low, a_high), (b, b_low, b_high) = (np.log2(costs) for costs in sides.values())
    ratio = b - a
    below = np.sqrt((b - b_low) ** 2 + (a_high - a) ** 2)
    above = np.sqrt((b_high - b) ** 2 + (a - a_low) ** 2)
    columns = {"accuracy": accuracy}
    for side, (middle, low, high) in sides.items():
        columns |= {side: middle, f"{side}_low": low, f"{side}_high": high}
    columns |= {"ratio": 2**ratio, "low": 2 ** (ratio - below), "high": 2 ** (ratio + above)}
    return pd.DataFrame(columns)


def _costs_at(levels: np.ndarray, table: pd.DataFrame, cost: Cost) -> np.ndarray:
    """Return the smallest cost of each accuracy with its limits, (3, level); NaN where never."""
    middle = _cost_at(levels, table, cost, "accuracy")
    low = _cost_at(levels, table, cost, "accuracy_high")
    high = _cost_at(levels, table, cost, "accuracy_low")
    high = np.where(np.isnan(high), np.inf, high)
    return np.where(np.isnan(middle), np.nan, np.array([middle, low, high]))


def _cost_at(levels: np.ndarray, table: pd.DataFrame, cost: Cost, measure: str) -> np.ndarray:
    """Return the smallest cost at which a measure reaches each level; NaN where it never does."""
    values = table[measure].fillna(table["accuracy"])  # a single seed has no limits
    best = frontier(table.assign(accuracy=values), cost).drop_duplicates("accuracy")
    if best.empty:
        return np.full(levels.shape, np.nan)
    reached, costs = best["accuracy"].to_numpy(float), best[cost].to_numpy(float)
    found = np.exp2(np.interp(levels, reached, np.log2(costs)))
    return np.where(levels <= reached[-1], found, np.nan)
