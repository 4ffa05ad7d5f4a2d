"""Tables of a sweep: cells, slices, paired differences, the frontier, costs of equal accuracy."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import failed, from_width, made_sweep, without

from attnkit.analysis.capacity import (
    COSTS,
    cells,
    difference,
    frontier,
    matching_cost,
    runs_at,
    slice_at,
)
from attnkit.sweeps import SweepResult

EXAMPLE = made_sweep(from_width(QKV=3, KV=6))


def test_there_is_one_row_for_each_cell_in_the_order_of_the_sweep():
    """The first axis varies slowest, and variants fastest."""
    table = cells(EXAMPLE)
    assert len(table) == EXAMPLE.sweep.n_cells
    assert table["sharing"].tolist()[:3] == ["QKV", "K=V", "QKV"]
    assert table.iloc[2][["d_head", "n_entries"]].tolist() == [1, 4]


def test_a_cell_has_the_mean_and_interval_of_its_seeds():
    """They are those that one computes by hand."""
    result = made_sweep(lambda sharing, point: 0.5, n_seeds=4, seed=3)
    row = cells(result).iloc[0]
    runs = result.runs.iloc[:4]
    assert row["accuracy"] == pytest.approx(runs["accuracy"].mean())
    half = 3.1824463 * runs["accuracy"].std() / 2  # t of three degrees of freedom
    assert row["accuracy_high"] - row["accuracy"] == pytest.approx(half)
    assert row["accuracy"] - row["accuracy_low"] == pytest.approx(half)
    n_solved = int(runs["steps_to_threshold"].notna().sum())
    assert (row["n_seeds"], row["n_solved"], row["solved"]) == (4, n_solved, n_solved / 4)
    assert row["steps_to_threshold"] == pytest.approx(runs["steps_to_threshold"].mean())


def test_a_cell_has_its_costs_and_its_learning_rate():
    """They are the same for all seeds."""
    row = cells(EXAMPLE).iloc[-1]
    assert row["learning_rate"] == 0.005
    assert [row[cost] for cost in COSTS] == [640, 1640, 32, 1600]


def test_cells_that_were_not_run_are_absent():
    """No row is invented."""
    table = cells(without(EXAMPLE, d_head=4, sharing="K=V"))
    assert len(table) == EXAMPLE.sweep.n_cells - 4
    assert not ((table["d_head"] == 4) & (table["sharing"] == "K=V")).any()


def test_a_cell_that_failed_has_its_reason_and_no_numbers():
    """No seed counts."""
    table = cells(failed(EXAMPLE, d_head=12, sharing="K=V"))
    rows = table[table["error"].notna()]
    assert len(rows) == 4
    assert rows["error"].str.startswith("d_head: got 12").all()
    assert (rows["n_seeds"] == 0).all()
    assert rows[["accuracy", "solved", "steps_to_threshold"]].isna().to_numpy().all()


def test_a_sweep_without_runs_has_no_cells():
    """A table of parts that has no column of metrics is read, too."""
    table = cells(SweepResult.of(EXAMPLE.sweep, None))
    assert table.empty
    assert "accuracy" in table.columns


def test_an_axis_of_learning_rates_is_kept():
    """The column of the axis is not lost among those of the cells."""
    result = made_sweep(lambda sharing, point: 1.0, axes={"learning_rate": (0.01, 0.02)})
    table = cells(result)
    assert table.columns.tolist().count("learning_rate") == 1
    assert table["learning_rate"].tolist() == [0.01, 0.01, 0.02, 0.02]


def test_a_slice_keeps_the_index_of_its_rows():
    """The page finds the cell of a row by it. Axes that there are not are refused by name.

    So are those that are neither fixed nor shown: runs of different tasks would be one cell.
    """
    table = cells(EXAMPLE)
    part = slice_at(table, {"n_entries": 8})
    assert set(part["n_entries"]) == {8}
    assert (table.loc[part.index] == part)["d_head"].all()
    with pytest.raises(ValueError, match=r"fixed: got 'd_model', allowed d_head, n_entries"):
        slice_at(table, {"d_model": 3})
    with pytest.raises(ValueError, match="fixed: has no 'n_entries'"):
        runs_at(EXAMPLE, {}, "d_head")
    assert set(runs_at(EXAMPLE, {"n_entries": 4}, "d_head")["n_entries"]) == {4}


def test_differences_are_paired_by_seed():
    """A variant that is always better by the same amount has an interval without width."""
    result = made_sweep(lambda sharing, point: 0.5, seed=1)
    runs = result.runs.copy()
    of_a = runs["sharing"] == "QKV"
    noise = np.random.default_rng(0).normal(size=int(of_a.sum()))
    runs.loc[of_a, "accuracy"] = noise
    runs.loc[~of_a, "accuracy"] = noise - 0.25
    runs["steps_to_threshold"] = np.where(of_a, 100.0, 400.0)
    table = difference(SweepResult(result.sweep, runs), "K=V", "QKV")
    assert len(table) == result.sweep.n_points
    assert table["difference"].to_numpy() == pytest.approx(-0.25)
    assert table["high"].to_numpy() == pytest.approx(-0.25)
    assert table["clear"].all()
    assert table["steps_difference"].to_numpy() == pytest.approx(2)
    assert (table["n_steps_pairs"] == 5).all()


def test_a_point_without_one_of_both_variants_has_no_difference():
    """Its row is absent; where a seed is missing, fewer pairs count."""
    result = without(without(EXAMPLE, d_head=4, sharing="K=V"), d_head=3, sharing="QKV", seed=0)
    table = difference(result, "K=V", "QKV")
    assert 4 not in table["d_head"].tolist()
    assert set(table.loc[table["d_head"] == 3, "n_pairs"]) == {4}


def test_equal_variants_do_not_differ_clearly():
    """Zero is not excluded by an interval that is zero; what was not trained has no differences."""
    table = difference(EXAMPLE, "QKV", "QKV")
    assert (table["difference"] == 0).all()
    assert not table["clear"].any()
    table = difference(EXAMPLE, "Q=V", "QKV")
    assert table.empty
    assert "steps_clear" in table.columns


def frame(**columns):
    """Return a table of cells with these columns."""
    length = len(columns["accuracy"])
    filled = {"sharing": ["QKV"] * length, **columns}
    limits = {f"accuracy_{end}": columns["accuracy"] for end in ("low", "high")}
    return pd.DataFrame({**limits, **filled})


LEVEL = st.integers(0, 5).map(lambda fifths: fifths / 5) | st.just(math.nan)


@given(st.lists(st.tuples(st.integers(1, 7), LEVEL), min_size=1, max_size=30))
def test_no_other_cell_beats_those_on_the_frontier(drawn):
    """Compared with all pairs, with ties; cells that could not be trained are on none."""
    table = frame(parameters=[cost for cost, _ in drawn], accuracy=[level for _, level in drawn])
    expected = {
        i
        for i, (cost, level) in enumerate(drawn)
        if not math.isnan(level)
        and not any(c <= cost and a >= level and (c, a) != (cost, level) for c, a in drawn)
    }
    assert set(frontier(table, "parameters").index) == expected


def test_a_variant_that_costs_twice_as_much_everywhere_has_the_ratio_two():
    """At every accuracy, also between its cells."""
    a = frame(parameters=[100, 200, 400], accuracy=[0.2, 0.6, 1.0])
    b = frame(parameters=[200, 400, 800], accuracy=[0.2, 0.6, 1.0])
    matched = matching_cost(a, b, "parameters")
    assert matched["accuracy"].tolist() == [0.2, 0.6, 1.0]
    for column in ("ratio", "low", "high"):
        assert matched[column].to_numpy() == pytest.approx(2)


def test_costs_between_two_cells_are_interpolated():
    """On the logarithm of the cost."""
    a = frame(parameters=[100, 400], accuracy=[0.0, 1.0])
    b = frame(parameters=[100, 150, 400], accuracy=[0.0, 0.5, 1.0])
    matched = matching_cost(a, b, "parameters").set_index("accuracy")
    assert matched.loc[0.5, "a"] == pytest.approx(200)
    assert matched.loc[0.5, "ratio"] == pytest.approx(0.75)


def test_an_accuracy_that_is_never_reached_has_no_cost():
    """It is blank instead of extrapolated."""
    a = frame(parameters=[100, 200], accuracy=[0.2, 1.0])
    b = frame(parameters=[100, 200], accuracy=[0.2, 0.7])
    last = matching_cost(a, b, "parameters").iloc[-1]
    assert last["accuracy"] == 1.0
    assert math.isnan(last["b"])
    assert math.isnan(last["ratio"])
    assert math.isnan(last["high"])


def test_the_interval_of_a_cost_comes_from_the_limits_of_the_accuracy():
    """A cost has no upper limit if the lower limit of the accuracy never reaches the level."""
    a = frame(parameters=[100, 400], accuracy=[0.0, 0.9])
    b = frame(parameters=[100, 400, 1600], accuracy=[0.0, 0.9, 0.95])
    b["accuracy_low"], b["accuracy_high"] = b["accuracy"] - 0.1, b["accuracy"] + 0.1
    last = matching_cost(a, b, "parameters").iloc[-1]
    assert last["b"] == pytest.approx(400)
    assert 100 < last["b_low"] < 400
    assert last["b_high"] == math.inf
    assert last["high"] == math.inf


def test_nothing_matches_a_variant_without_cells():
    """The table is empty."""
    a = frame(parameters=[100, 400], accuracy=[0.0, 0.9])
    assert matching_cost(a, a[:0], "parameters").empty
    assert matching_cost(a[:0], a, "parameters").empty
