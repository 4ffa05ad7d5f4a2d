"""Tables of a sweep and their costs: cells, paired differences, the frontier, equal accuracy."""

import json
import math
import random

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import failed, from_width, logistic, made_sweep, without
from reference import DOZEN
from scipy import stats

from attnkit.analysis.capacity import (
    COSTS,
    cells,
    difference,
    frontier,
    matching_cost,
    runs_at,
    slice_at,
)
from attnkit.experiment import Experiment
from attnkit.figures.frontier import (
    describe_frontier,
    describe_matching,
    plot_frontier,
    plot_matching,
)
from attnkit.model.decode import Decoder
from attnkit.model.model import Model
from attnkit.sweeps import SweepResult

EXAMPLE = made_sweep(from_width(QKV=3, KV=6))
HOLED = without(made_sweep(logistic({"QKV": 3, "K=V": 6})), d_head=4, sharing="K=V")
HOLED = failed(without(HOLED, d_head=3, sharing="QKV", seed=0), d_head=12, sharing="K=V")
"""A cell was not run at every number of entries, one failed, one lacks a seed."""


def mean_of(values):
    """Return mean and 95% limits by scipy; without width if all are alike."""
    error = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1) if error else (0, 0)
    return [values.mean(), values.mean() + low * error, values.mean() + high * error]


def test_a_cell_has_the_statistics_of_its_seeds_its_costs_and_why_it_failed():
    """In the order of the sweep; what was not run has no row, and what failed no numbers."""
    table, sweep, rows = cells(HOLED), HOLED.sweep, 0
    for point in sweep.points():
        for variant in sweep.sharing:
            runs = HOLED.runs[HOLED.runs["sharing"] == variant.value]
            runs = slice_at(runs, point)
            if runs.empty:
                continue
            row, rows = table.iloc[rows], rows + 1
            assert {**point, "sharing": variant.value}.items() <= row.to_dict().items()
            assert [row[name] for name in COSTS] == [runs[name].iloc[0] for name in COSTS]
            trained = runs[runs["error"].isna()]
            steps = trained["steps_to_threshold"].dropna()
            assert (row["n_seeds"], row["n_solved"]) == (len(trained), len(steps))
            found = row[["accuracy", "accuracy_low", "accuracy_high"]].tolist()
            if trained.empty:
                assert row["error"].startswith("d_head: got 12")
                assert np.isnan([*found, row["solved"], row["steps_to_threshold"]]).all()
                continue
            assert row["error"] is None
            assert found == pytest.approx(mean_of(trained["accuracy"].to_numpy()))
            assert row["solved"] == len(steps) / len(trained)
            assert row["steps_to_threshold"] == pytest.approx(steps.mean(), nan_ok=True)
            assert row["learning_rate"] == 0.005
    assert rows == len(table) < sweep.n_cells
    empty = cells(SweepResult.of(EXAMPLE.sweep, None))  # a table of parts without metrics
    assert empty.empty
    assert "accuracy" in empty.columns
    tuned = cells(made_sweep(lambda *_: 1.0, axes={"learning_rate": (0.01, 0.02)}))
    assert tuned.columns.tolist().count("learning_rate") == 1
    assert tuned["learning_rate"].tolist() == [0.01, 0.01, 0.02, 0.02]


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
    """In points of accuracy and doublings of steps, over the seeds that both have.

    Points without one of both have none. Equal variants do not differ clearly: an interval of zero
    does not exclude it.
    """
    table = difference(HOLED, "K=V", "QKV")
    trained = HOLED.runs[HOLED.runs["error"].isna()]
    kv, qkv = (trained[trained["sharing"] == one] for one in ("K=V", "QKV"))
    both = kv.merge(qkv, on=["d_head", "n_entries", "seed"])
    groups = dict(iter(both.groupby(["d_head", "n_entries"])))
    assert set(zip(table["d_head"], table["n_entries"], strict=True)) == set(groups)
    assert len(table) == len(groups)
    for row in table.to_dict("records"):
        pairs = groups[row["d_head"], row["n_entries"]]
        gaps = (pairs["accuracy_x"] - pairs["accuracy_y"]).to_numpy()
        assert row["n_pairs"] == len(gaps) == (4 if row["d_head"] == 3 else 5)
        found = [row["difference"], row["low"], row["high"]]
        assert found == pytest.approx(mean_of(gaps))
        assert row["clear"] == (row["low"] > 0 or row["high"] < 0)
        ratios = pairs["steps_to_threshold_x"] / pairs["steps_to_threshold_y"]
        assert row["n_steps_pairs"] == ratios.notna().sum()
        expected = np.log2(ratios).mean()
        assert row["steps_difference"] == pytest.approx(expected, nan_ok=True)
    assert table["clear"].any()
    table = difference(EXAMPLE, "QKV", "QKV")
    assert (table["difference"] == 0).all()
    assert not table["clear"].any()
    table = difference(EXAMPLE, "Q=V", "QKV")  # which was not trained
    assert table.empty
    assert "steps_clear" in table.columns


# the frontier, and costs of equal accuracy


def frame(**columns):
    """Return a table of cells with these columns."""
    limits = {f"accuracy_{end}": columns["accuracy"] for end in ("low", "high")}
    return pd.DataFrame({**limits, "sharing": "QKV", **columns})


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


def test_costs_of_equal_accuracy_are_compared_between_cells_too():
    """On the logarithm of the cost; an accuracy that is never reached has none.

    Limits come from those of the accuracy: none if the lower one never reaches the level.
    """
    a = frame(parameters=[100, 200, 400], accuracy=[0.2, 0.6, 1.0])
    matched = matching_cost(
        a, frame(parameters=[200, 400, 800], accuracy=a["accuracy"]), "parameters"
    )
    assert matched["accuracy"].tolist() == [0.2, 0.6, 1.0]
    for column in ("ratio", "low", "high"):
        assert matched[column].to_numpy() == pytest.approx(2)
    a = frame(parameters=[100, 400], accuracy=[0.0, 1.0])
    b = frame(parameters=[100, 150, 400], accuracy=[0.0, 0.5, 1.0])
    middle = matching_cost(a, b, "parameters").set_index("accuracy").loc[0.5]
    assert [middle["a"], middle["ratio"]] == pytest.approx([200, 0.75])
    last = matching_cost(a, frame(parameters=[100, 200], accuracy=[0.2, 0.7]), "parameters").iloc[
        -1
    ]
    assert last["accuracy"] == 1.0
    assert last[["b", "ratio", "high"]].isna().all()
    a = frame(parameters=[100, 400], accuracy=[0.0, 0.9])
    b = frame(parameters=[100, 400, 1600], accuracy=[0.0, 0.9, 0.95])
    b["accuracy_low"], b["accuracy_high"] = b["accuracy"] - 0.1, b["accuracy"] + 0.1
    last = matching_cost(a, b, "parameters").iloc[-1]
    assert last["b"] == pytest.approx(400)
    assert 100 < last["b_low"] < 400
    assert last["b_high"] == last["high"] == math.inf
    assert matching_cost(a, a[:0], "parameters").empty
    assert matching_cost(a[:0], a, "parameters").empty


TABLE = slice_at(cells(failed(EXAMPLE, d_head=12, sharing="K=V")), {"n_entries": 4})
KV_CACHE = "kv_cache_floats_per_token"
NAMES = ("QKV", "K=V")
OF = {name: TABLE[TABLE["sharing"] == name] for name in NAMES}


def accepted(figure):
    """Return the figure as Plotly reads it; it is plain JSON without NaN."""
    return go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_the_frontier_is_drawn_with_all_cells_and_described():
    """Every cell is a dot with the index of its row; names stand at changes of the variant."""
    for cost in COSTS:
        figure = plot_frontier(TABLE, cost)
        accepted(figure)
        others, line, best = figure["data"]
        trained = TABLE.index[TABLE["accuracy"].notna()]
        assert sorted(others["customdata"] + best["customdata"]) == sorted(trained)
        assert best["customdata"] == frontier(TABLE, cost).index.tolist()
        assert line["x"] == best["x"] == TABLE.loc[best["customdata"], cost].tolist()
        names = [note["text"] for note in figure["layout"]["annotations"]]
        on_it = frontier(TABLE, cost)["sharing"].tolist()
        assert names == [a for a, b in zip(on_it, [None, *on_it], strict=False) if a != b]
    assert describe_frontier(TABLE, KV_CACHE) == (
        "Accuracy against KV-cache floats per token. On the frontier stand 3 of 15 cells: "
        "QKV 0% for 2, K=V 0% for 2, QKV 100% for 6."
    )
    for n_rows in (0, 1):
        accepted(plot_frontier(TABLE[:n_rows], "parameters"))
        text = describe_frontier(TABLE[:n_rows], "parameters")
        assert ("Nothing has been trained" in text) == (n_rows == 0)


def test_costs_of_equal_accuracy_are_drawn_and_described():
    """Also where limits are infinite and where B never reaches the accuracy."""
    for cost in COSTS:
        matched = matching_cost(OF["QKV"], OF["K=V"], cost)
        short = matching_cost(OF["QKV"], OF["K=V"][:4], cost)
        endless = matched.copy()
        endless.loc[0, ["high", "low"]] = math.inf, 0.0
        for table in (matched, short, endless, matched[:0]):
            line = plot_matching(table, cost, NAMES)
            accepted(line)
            assert line["data"][1]["y"] == table["ratio"].dropna().tolist()

    def told(of_b, least=0.0):
        return describe_matching(matching_cost(OF["QKV"], of_b, KV_CACHE, least), KV_CACHE, NAMES)

    text = told(OF["K=V"])
    assert "KV-cache floats per token of K=V as a multiple of those of QKV" in text
    assert "100%: 2.00 times (2.00 to 2.00)" in text
    assert text.startswith("It depends on the accuracy.")
    assert told(OF["K=V"], 0.5).startswith("K=V needs more for the same")
    assert "100%: K=V never reaches it" in told(OF["K=V"][:4])
    assert "Nothing has been trained" in told(OF["K=V"][:0])


def test_costs_are_those_of_a_real_decoder(seed):
    """Floats that a decoder keeps per token and numbers of parameters, at a width that is drawn.

    One variant of every mechanism; of those that are tied later, the tied model counts.
    """
    drawn = random.Random(seed)
    for variant in DOZEN:
        d_head = drawn.choice([4, 6, 16])
        settings = {"n_entries": 4, "n_layers": 2, "d_mlp": 5, "d_head": d_head, "causal": True}
        experiment = Experiment(task="directed", sharing=[variant], n_seeds=1, **settings)
        model = Model(experiment, experiment.seeds, torch.device("cpu"), tied=experiment.sharing)
        decoder = Decoder(model, 0)
        for token in torch.zeros(3, 2, dtype=torch.long):
            decoder.read(token)
        costs = experiment.costs(variant)
        assert decoder.floats_per_token == costs.kv_cache, (variant, d_head)
        numbers = sum(value.numel() for value in model.run_parameters(0).values())
        assert numbers == costs.parameters, (variant, d_head)
