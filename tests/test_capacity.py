"""Sweeps in tables, sentences and figures, and the page Capacity that shows them."""

import math
import random
import re
from dataclasses import replace
from functools import cache
from itertools import product
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from idle import link_of, open_page
from plotted import accepted
from searching import briefly
from test_metrics import expected_of
from visiting import drawn, plain_text, press, said, show, turn_to, watch_series

from attnkit.analysis.boundary import Boundary, boundary, mean_ratio, ratios, smallest
from attnkit.analysis.capacity import (
    COSTS,
    cells,
    difference,
    frontier,
    matching_cost,
    runs_at,
    slice_at,
)
from attnkit.analysis.conclusion import conclusion
from attnkit.analysis.logistic import half_point
from attnkit.figures.capacity import (
    describe_phase,
    describe_slice,
    phase_key,
    plot_phase,
    plot_slice,
    with_mark,
)
from attnkit.figures.frontier import (
    describe_frontier,
    describe_matching,
    plot_frontier,
    plot_matching,
)
from attnkit.figures.gaps import describe_difference, difference_text, plot_difference
from attnkit.figures.grid import cell_texts
from attnkit.service.service import Refused, TrainingService
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.values import InvalidSweep
from attnkit.ui.pages import capacity as page
from attnkit.ui.sweeps import sweep_form
from attnkit.ui.sweeps.cell_card import lab_experiment, numbers_of, row_of, take_mark
from attnkit.ui.sweeps.choice import OWN, SECTIONS, CapacityChoice, Cell, cells_of
from attnkit.ui.sweeps.phase import COLUMNS
from attnkit.variants import Variant

WIDTHS, ENTRIES = (1, 2, 3, 4, 6, 8, 12, 16), (2, 4, 8, 16)


def made_sweep(solves, *, sharing=("QKV", "K=V"), axes=None, n_seeds=5, base=None):
    """Return a result whose runs solve the task with the probability `solves(variant, point)`."""
    axes = axes or {"d_head": WIDTHS, "n_entries": ENTRIES}
    base = base or {"task": "phonebook"}
    sweep = Sweep(base=base, axes=axes, sharing=list(sharing), n_seeds=n_seeds)
    generator, rows = np.random.default_rng(0), []
    for point, variant, each in product(sweep.points(), sweep.sharing, sweep.seeds):
        chance, width = solves(variant.value, point), float(point.get("d_head", 8))
        solved = generator.random() < chance
        rows.append(
            {
                **point,
                "sharing": variant.value,
                "seed": each,
                "accuracy": 1.0 if solved else 0.9 * chance,
                "steps_to_threshold": 200.0 + each if solved else math.nan,
                "learning_rate": point.get("learning_rate", 0.005),
                "attention_parameters": int(40 * width),
                "parameters": int(1000 + 40 * width),
                "kv_cache_floats_per_token": int(2 * width),
                "multiply_adds_per_token": int(100 * width),
                "error": None,
            }
        )
    return SweepResult(sweep, pd.DataFrame(rows).astype({"error": object}))


def from_width(**widths):
    """Return a function: 0 below a head width of each variant, and 1 from it on."""
    return lambda name, point: float(point["d_head"] >= widths[name.replace("=", "")])


def logistic(**half):
    """Return a function: probabilities that are one half at a width of each variant."""
    return lambda name, point: 1 / (1 + (half[name.replace("=", "")] / point["d_head"]) ** 5.8)


def cells_where(result, where):
    """Return which runs are those of some cells."""
    return np.logical_and.reduce([result.runs[name] == value for name, value in where.items()])


def without(result, **where):
    """Return a result without the runs of some cells."""
    runs = result.runs[~cells_where(result, where)]
    return SweepResult(result.sweep, runs.reset_index(drop=True))


def failed(result, **where):
    """Return a result in which some cells could not be trained."""
    runs, bad = result.runs.copy(), cells_where(result, where)
    runs.loc[bad, ["accuracy", "steps_to_threshold"]] = math.nan
    runs.loc[bad, "error"] = "d_head: got 12, allowed less <than> that"
    return SweepResult(result.sweep, runs)


X, Y = "d_head", "n_entries"
WHOLE = made_sweep(from_width(QKV=3, KV=6))
HOLED = without(made_sweep(logistic(QKV=3, KV=6)), d_head=4, sharing="K=V")
HOLED = failed(without(HOLED, d_head=3, sharing="QKV", seed=0), d_head=12, sharing="K=V")
"""A cell was not run at every number of entries, one failed, one lacks a seed."""


def test_a_cell_has_the_statistics_of_its_seeds_its_costs_and_why_it_failed():
    """In the order of the sweep; what was not run has no row, and what failed no numbers."""
    rows = iter(cells(HOLED).to_dict("records"))
    for point, variant in product(HOLED.sweep.points(), HOLED.sweep.sharing):
        runs = slice_at(HOLED.runs[HOLED.runs["sharing"] == variant.value], point)
        if runs.empty:
            continue
        row = next(rows)
        assert {**point, "sharing": variant.value}.items() <= row.items()
        assert [row[name] for name in COSTS] == [runs[name].iloc[0] for name in COSTS]
        trained = runs[runs["error"].isna()]
        steps = trained["steps_to_threshold"].dropna()
        assert (row["n_seeds"], row["n_solved"]) == (len(trained), len(steps))
        found = [row[name] for name in ("accuracy", "accuracy_low", "accuracy_high")]
        if trained.empty:
            assert row["error"].startswith("d_head: got 12")
            assert np.isnan([*found, row["solved"], row["steps_to_threshold"]]).all()
            continue
        assert row["error"] is None
        assert found == pytest.approx(expected_of(trained["accuracy"].to_numpy())[:3])
        assert row["solved"] == len(steps) / len(trained)
        assert row["steps_to_threshold"] == pytest.approx(steps.mean(), nan_ok=True)
    assert next(rows, None) is None
    tuned = cells(made_sweep(lambda *_: 1.0, axes={"learning_rate": (0.01, 0.02)}))
    assert tuned["learning_rate"].tolist() == [0.01, 0.01, 0.02, 0.02]
    with pytest.raises(ValueError, match="fixed: got 'd_model'"):
        slice_at(tuned, {"d_model": 3})
    with pytest.raises(ValueError, match="'n_entries'"):
        runs_at(WHOLE, {}, "d_head")
    assert set(runs_at(WHOLE, {"n_entries": 4}, "d_head")["n_entries"]) == {4}


def test_differences_are_paired_by_seed():
    """In points of accuracy and doublings of steps, over the seeds that both have."""
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
        ratios = np.log2(pairs["steps_to_threshold_x"] / pairs["steps_to_threshold_y"])
        assert row["n_pairs"] == len(gaps) == (4 if row["d_head"] == 3 else 5)
        assert [row["difference"], row["low"], row["high"]] == pytest.approx(expected_of(gaps)[:3])
        assert row["clear"] == (row["low"] > 0 or row["high"] < 0)
        assert row["n_steps_pairs"] == ratios.notna().sum()
        assert row["steps_difference"] == pytest.approx(ratios.mean(), nan_ok=True)
    assert table["clear"].any()
    assert not difference(WHOLE, "QKV", "QKV")["clear"].any()
    assert difference(WHOLE, "Q=V", "QKV").empty  # which was not trained


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
    """On the logarithm of the cost; an accuracy that is never reached has none."""

    def matched(of_a, of_b, spread=0.0):
        a, b = (frame(parameters=list(one), accuracy=list(one.values())) for one in (of_a, of_b))
        b["accuracy_low"], b["accuracy_high"] = b["accuracy"] - spread, b["accuracy"] + spread
        return matching_cost(a, b, "parameters").set_index("accuracy", drop=False)

    table = matched({100: 0.2, 200: 0.6, 400: 1.0}, {200: 0.2, 400: 0.6, 800: 1.0})
    assert table["accuracy"].tolist() == [0.2, 0.6, 1.0]
    assert table[["ratio", "low", "high"]].to_numpy() == pytest.approx(2)
    middle = matched({100: 0.0, 400: 1.0}, {100: 0.0, 150: 0.5, 400: 1.0}).loc[0.5]
    assert [middle["a"], middle["ratio"]] == pytest.approx([200, 0.75])
    assert matched({100: 0.0, 400: 1.0}, {100: 0.2, 200: 0.7}).loc[1.0, ["b", "high"]].isna().all()
    last = matched({100: 0.0, 400: 0.9}, {100: 0.0, 400: 0.9, 1600: 0.95}, 0.1).iloc[-1]
    assert last["b"] == pytest.approx(400)
    assert 100 < last["b_low"] < 400
    assert last["b_high"] == last["high"] == math.inf
    assert matched({}, {100: 0.2}).empty


def test_the_frontier_and_costs_of_equal_accuracy_are_drawn_and_described():
    """Every cell is a dot with the index of its row; limits may be infinite, or B falls short."""
    table = slice_at(cells(failed(WHOLE, d_head=12, sharing="K=V")), {"n_entries": 4})
    cost, names = "kv_cache_floats_per_token", ("QKV", "K=V")
    others, line, best = accepted(plot_frontier(table, cost))["data"]
    trained = table.index[table["accuracy"].notna()]
    assert sorted(others["customdata"] + best["customdata"]) == sorted(trained)
    assert best["customdata"] == frontier(table, cost).index.tolist()
    assert line["x"] == best["x"] == table.loc[best["customdata"], cost].tolist()
    told = describe_frontier(table, cost)
    assert told.endswith(" 3 of 15 cells: QKV 0% for 2, K=V 0% for 2, QKV 100% for 6.")
    qkv, kv = (table[table["sharing"] == name] for name in names)
    for n_cells, words in ((8, "100%: 2.00 times (2.00 to 2.00)"), (4, "100%: K=V does not")):
        found = matching_cost(qkv, kv[:n_cells], cost)
        line = accepted(plot_matching(found, cost, names))
        assert line["data"][1]["y"] == found["ratio"].dropna().tolist()
        assert words in describe_matching(found, cost, names)
    found.loc[0, ["high", "low"]] = math.inf, 0.0
    accepted(plot_matching(found, cost, names))


def test_a_known_half_point_is_found_and_its_band_covers_what_is_not_known():
    """From many runs to within a few percent; bands of 95% cover 90 to 100 of 100 draws."""
    values, generator, n_covered = np.log2(WIDTHS), np.random.default_rng(0), 0
    share, five = 1 / (1 + np.exp(-3 * (values - np.log2(5)))), np.full(8, 5.0)
    found = half_point(values, 1000 * share, np.full(len(values), 1000.0))
    assert 2**found.value == pytest.approx(5, rel=0.03)
    assert found.low < np.log2(5) < found.high < found.low + np.log2(1.15)
    found = half_point(values, np.repeat([0, 5.0], 4), five)
    assert 3 < 2**found.low < 4.5 < 2**found.value < 5.5 < 2**found.high < 8
    falling = half_point(-values[::-1], np.repeat([5.0, 0], 4), five, rises=False)
    mirrored = [-found.value, -found.high, -found.low]
    assert [falling.value, falling.low, falling.high] == pytest.approx(mirrored, abs=0.1)
    for solved, value in ((0.0, math.inf), (5.0, -math.inf)):
        found = half_point(values, np.full(8, solved), five)
        assert found.value == value
        assert math.isinf(found.low) != math.isinf(found.high)
    for _ in range(100):
        true = generator.uniform(np.log2(2.5), np.log2(10))
        solved = generator.binomial(5, 1 / (1 + np.exp(-4 * (values - true))))
        found = half_point(values, solved.astype(float), five)
        n_covered += found.low <= true <= found.high
    assert 90 <= n_covered <= 100


def test_a_boundary_has_a_point_at_every_value_of_the_other_axis():
    """In the order of the sweep, between widths that fail and succeed, on axes of every kind."""
    found, again = (boundary(WHOLE, "K=V", X, Y) for _ in range(2))
    assert (found.at, found.rises) == (list(ENTRIES), True)
    assert ((found.half > 4) & (found.half < 6)).all()
    assert ((found.low < found.half) & (found.half < found.high)).all()
    assert np.array_equal(found.low, again.low)
    lacking = failed(without(WHOLE, d_head=12, n_entries=4), d_head=8, n_entries=8)
    part = boundary(lacking, "K=V", X, Y)
    assert part.at == found.at
    assert part.half == pytest.approx(found.half, rel=0.1)
    single = WHOLE.runs[(WHOLE.runs[Y] != 4) | (WHOLE.runs[X] == 3)]
    assert boundary(SweepResult(WHOLE.sweep, single), "K=V", X, Y).at == [2, 8, 16]
    harder = boundary(made_sweep(lambda _, point: float(point[Y] <= point[X])), "QKV", Y, X)
    assert not harder.rises
    assert 4 < harder.half[harder.at.index(6)] < 8
    (half,) = boundary(made_sweep(from_width(QKV=3, KV=6), axes={X: WIDTHS}), "QKV", X).half
    assert 2 < half < 3
    for chance in (0.0, 1.0):  # nothing separates runs
        assert boundary(made_sweep(lambda *_, c=chance: c), "QKV", X, Y) is None


def test_the_smallest_width_is_that_from_which_on_all_seeds_succeed():
    """Failures at wider heads count; infinite if the widest fails, with none below the first."""
    runs = WHOLE.runs.copy()
    late = (runs["sharing"] == "K=V") & (runs[X] == 8) & (runs[Y] == 4) & (runs["seed"] == 0)
    runs.loc[late, "steps_to_threshold"] = math.nan
    result, extreme = SweepResult(WHOLE.sweep, runs), made_sweep(from_width(QKV=1, KV=99))
    for swept, share, expected, below in (
        (WHOLE, 1.0, [6] * 4, [4] * 4),
        (result, 1.0, [6, 12, 6, 6], [4, 8, 4, 4]),
        (result, 0.8, [6] * 4, [4] * 4),
        (extreme, 1.0, [math.inf] * 4, [16] * 4),
    ):
        table = smallest(swept, "K=V", X, Y, share=share)
        assert (table["smallest"].tolist(), table["below"].tolist()) == (expected, below)
    assert smallest(extreme, "QKV", X, Y)["below"].isna().all()


def test_ratios_have_the_intervals_of_both_boundaries_against_any_baseline():
    """As Zou and Donner add them: log₂ ratios of 1 and 3, with limits 1 below and 2 above."""
    result = made_sweep(logistic(QKV=3, KV=6, QK=3), sharing=("QKV", "K=V", "Q=K"))
    table = ratios(result, X, Y).set_index("sharing")
    assert 1.5 < table.loc["K=V", "low"] < 2 < table.loc["K=V", "high"]
    assert table.loc["Q=K", "low"] < 1 < table.loc["Q=K", "high"]
    assert table["n_compared"].tolist() == [4, 4]
    there, back = table.loc["K=V"], ratios(result, X, Y, baseline="K=V").iloc[0]
    expected = [1 / back[end] for end in ("ratio", "high", "low")]
    assert [there[end] for end in ("ratio", "low", "high")] == pytest.approx(expected)
    limits = [2.0, 4.0, 8.0], [1.0, 2.0, 4.0], [8.0, 16.0, 32.0]
    b = Boundary("QKV", X, Y, [2, 4, 8], *map(np.array, limits), rises=True, has_ratios=True)
    factors = np.array([2.0, 8.0, math.inf])
    a = replace(b, half=b.half * factors, low=b.low * factors, high=b.high * factors)
    found, half = mean_ratio(a, b), math.sqrt(2 * (1 + 4)) / 2
    assert found == pytest.approx((4, 2 ** (2 - half), 2 ** (2 + half), 2))
    assert (found.is_clear, mean_ratio(b, b).is_clear) == (True, False)


def test_the_conclusion_says_which_variant_needs_the_most_and_by_how_much():
    """Only what is clear; what always or never solves the task is named, with no boundary."""

    def concluded(result, *axes):
        text = conclusion(result, *(axes or (X, Y))).text
        assert text.startswith("On “Phone book”: ")
        return text.removeprefix("On “Phone book”: ")

    def wider(**needed):
        solves = lambda name, point: float(point[X] >= needed[name])  # noqa: E731
        return made_sweep(solves, sharing=tuple(needed))

    falling = made_sweep(
        lambda sharing, point: float(point[Y] <= {"QKV": 16, "K=V": 4}[sharing]),
        axes={Y: (2, 4, 8, 16, 32), X: (4, 8)},
    )
    assert re.match("K=V fails first .* 0.25 times", concluded(falling, Y, X))
    for result, pattern in (
        (
            wider(**{"QKV": 3, "Q=K": 3, "K=V": 6, "Q=V": 4, "Q=K=V": 12}),
            r"Q=K=V needs the widest .* 4\.0 .* QKV .*\d\.\d to \d\.\d.* K=V .* 2\.0 .*"
            r"Q=V: 1\.\d .* Not .* Q=K \(1\.0 .*",
        ),
        (wider(**{"QKV": 3, "K=V": 6, "Q=V": math.inf}), "Q=V .* no run. K=V needs heads .*"),
        (wider(**{"Q=K": 3, "K=V": 12}), "K=V needs the widest .* 4.0 .* Q=K .*"),
        (wider(**{"QKV": 1, "K=V": 6}), "Half of .* K=V.* QKV .* every run."),
        (made_sweep(lambda *_: 0.0), r"No run .* QKV \d+%, K=V \d+%\."),
        (made_sweep(lambda *_: 1.0), ".* QKV 100%, K=V 100%."),
    ):
        text = concluded(result)
        assert re.fullmatch(pattern, text), text
        assert ("widest" in text) == ("widest" in pattern), text
    assert "Nothing" in conclusion(SweepResult(WHOLE.sweep, WHOLE.runs[:0]), X, Y).text
    many = wider(QKV=3, **{f"QKV d_mlp={4 * k}": 8 for k in range(1, 9)})
    assert (concluded(many).count("times ("), concluded(many)[-9:]) == (3, "4 others.")


STEPS = "steps_to_threshold"
GAPPY = failed(without(WHOLE, d_head=4, n_entries=8), d_head=12, sharing="K=V", n_entries=4)
CELLS = cells(GAPPY)


def heatmaps(figure, colored=True):
    """Return the traces of cells, those with colours of the scale or the grey ones."""
    traces = [trace for trace in figure["data"] if trace["type"] == "heatmap"]
    return [trace for trace in traces if ("coloraxis" in trace) == colored]


def test_every_cell_stands_in_the_panel_of_its_variant_with_its_value():
    """And with the index of its row, by which the page opens the cell that was clicked."""
    bounds = [boundary(GAPPY, name, X, Y) for name in ("QKV", "K=V")]
    for measure, (x, y) in product(("accuracy", STEPS, "solved"), ((X, Y), (Y, X))):
        figure = accepted(plot_phase(CELLS, x, y, measure, bounds))
        shown = {}
        for trace, sharing in zip(heatmaps(figure), ("QKV", "K=V"), strict=True):
            for (i, upwards), (j, across) in product(enumerate(trace["y"]), enumerate(trace["x"])):
                row = trace["customdata"][i][j]
                if row is not None:
                    cell = CELLS.loc[row]
                    assert (cell[x], cell[y], cell["sharing"]) == (across, upwards, sharing)
                    shown[row] = trace["z"][i][j]
        expected = CELLS[measure].reindex(list(shown)).to_numpy(float)
        found = np.array(list(shown.values()), float)
        assert (np.isnan(found) == np.isnan(expected)).all()
        if measure != STEPS:
            assert found == pytest.approx(expected, abs=1e-4, nan_ok=True)
            scale = figure["layout"]["coloraxis"]
            assert (scale["cmin"], scale["cmax"]) == (0, 1)
        assert len(shown) == len(CELLS)
        edges = [t for t in figure["data"] if t.get("line", {}).get("color") == "#ffffff"]
        if measure == STEPS:
            continue
        assert [trace["xaxis"] for trace in edges] == (["x", "x2"] if x == X else [])
        for trace, bound in zip(edges, bounds, strict=x == X):
            assert trace["x"][1:-1] == pytest.approx(bound.half)
            assert trace["y"][1:-1] == list(ENTRIES)
            assert trace["y"][0] == pytest.approx(2 / math.sqrt(2))
    grey = heatmaps(plot_phase(CELLS, X, Y, STEPS), colored=False)[0]
    assert [line[grey["x"].index(1)] for line in grey["z"]] == [0.0] * len(ENTRIES)


def test_slices_have_a_line_for_each_variant():
    """A slice goes along its axis, without failed cells."""
    table = slice_at(CELLS, {Y: 4})
    for measure in ("accuracy", STEPS, "solved"):
        lines = accepted(plot_slice(table, X, measure))["data"]
        for trace, sharing in zip(lines, ("QKV", "K=V"), strict=True):
            rows = table[(table["sharing"] == sharing) & (table["n_seeds"] > 0)].sort_values(X)
            assert trace["customdata"] == rows.index.tolist()
            assert trace["x"] == sorted(trace["x"])
            shown = np.array(trace["y"], float)
            assert shown == pytest.approx(rows[measure].to_numpy(float), nan_ok=True)
    assert describe_slice(table, X, "accuracy").endswith("8: 100%, 16: 100%.")


def test_marks_and_words_of_a_phase_diagram_are_those_of_its_cells():
    """A cross says why a cell failed, a chosen one has a ring; the key explains what is there."""
    figure, n_cells = plot_phase(CELLS, X, Y), len(WIDTHS) * len(ENTRIES)
    (cross,) = [t for t in figure["data"] if t.get("mode") == "markers"]
    assert (cross["x"], cross["y"]) == ([12], [4])
    assert "d_head: got 12, allowed less &lt;than&gt; that" in cross["hovertext"][0]
    assert phase_key(cells(WHOLE), n_cells) == ""
    bounds = [boundary(GAPPY, name, X, Y) for name in ("QKV", "K=V")]
    assert re.findall(r"(\w+|×):", phase_key(CELLS, n_cells, STEPS, bounds)) == [
        "Grey",
        "×",
        "Blank",
    ]
    index = CELLS.index[(CELLS["sharing"] == "K=V") & (CELLS[X] == 2) & (CELLS[Y] == 4)][0]
    *before, dark, pale = with_mark(figure, index)["data"]
    assert before == figure["data"]
    panel = heatmaps(figure)[1]
    for ring in (dark, pale):
        place = [ring[key] for key in ("x", "y", "xaxis", "yaxis")]
        assert place == [[2], [4], panel["xaxis"], panel["yaxis"]]
    text = describe_phase(CELLS, X, Y, "accuracy", bounds)
    assert re.search(r"QKV: 31 cells, 0% to 100%.* 23 .* 2\.5 to 2\.5", text)
    row = CELLS[(CELLS[X] == 16) & (CELLS["sharing"] == "K=V")][:1]
    lines = cell_texts(row, [X, Y])[0].split("<br>")
    assert lines[:3] == ["<b>K=V</b>", "Head width 16, Entries 2", "accuracy 100%"]
    assert all(told in "\n".join(lines) for told in ("5 of 5 seeds", "202 steps", "per token 32"))


def test_differences_have_numbers_where_the_interval_excludes_zero():
    """They are those of the table; zero is in the middle of the scale. Words count clear cells."""
    names, table = ("K=V", "QKV"), difference(GAPPY, "K=V", "QKV")
    accepted(plot_difference(slice_at(table, {Y: 2}), X, None, names, STEPS))
    figure = accepted(plot_difference(table, X, Y, names))
    texts = [trace for trace in figure["data"] if trace.get("mode") == "text"]
    shown = {(x, y) for trace in texts for x, y in zip(trace["x"], trace["y"], strict=True)}
    marked = table[table["clear"]]
    assert shown == set(zip(marked[X], marked[Y], strict=True))
    assert {text for trace in texts for text in trace["text"]} == {"−100"}
    axis = figure["layout"]["coloraxis"]
    assert axis["cmin"] == -axis["cmax"] == -1
    assert [difference_text(value, STEPS) for value in (1.0, -2.0)] == ["×2.0", "×0.25"]
    text = describe_difference(table, X, Y, names)
    assert re.search("30 cells, −100 to 0.* K=V in 0 .* QKV in 7", text)


TINY = {"task": "directed", "n_values": 7, "d_model": 16}
TINY |= {"steps": 6, "evaluate_every": 3, "batch_size": 16, "n_eval": 16}


KV = Variant("K=V")


WIDE, NARROW = Cell((8, 6), KV), Cell((2, 6), KV)


@cache
def made_up(n_axes=2):
    """Return a result in which QKV solves the task in heads 3 wide, K=V 6 wide, Q=K never."""
    axes = {"d_head": [2, 4, 8], "n_entries": [6, 8], "n_layers": [1, 2]}
    needed = {"QKV": 3, "K=V": 6, "Q=K": 100}
    return made_sweep(
        lambda sharing, point: float(point["d_head"] >= needed[sharing]),
        sharing=needed,
        axes=dict(list(axes.items())[:n_axes]),
        n_seeds=2,
        base=TINY,
    )


@pytest.mark.server
@pytest.mark.usefixtures("pages_service", "shipped")
def test_the_lab_gets_the_experiment_of_a_cell_beside_qkv(monkeypatch):
    """With its seeds, settings and learning rates; it opens even if training is refused."""
    result = made_up()
    lost = failed(result, d_head=8, sharing="K=V")
    assert row_of(without(result, d_head=8, n_entries=6), WIDE) is None
    assert "d_head: got 12" in numbers_of(lost, row_of(lost, WIDE)).replace("\\", "")
    for mark in ([int(row_of(result, WIDE).name)], 10**6, "cell"):
        take_mark(choice := CapacityChoice(cell=WIDE), result, mark)
        assert choice.cell == WIDE
    text = numbers_of(result, row_of(result, WIDE))
    costs = f"{row_of(result, WIDE)['parameters']:,} parameters"
    assert all(told in text for told in ("100%", "2 of 2", "200 steps", costs, "0.005"))
    lab = press(open_page("capacity", cell=str(WIDE)), "capacity_lab").session_state["lab"]
    assert lab.experiment == lab_experiment(made_up(), WIDE)
    assert lab.job.state != "failed"
    full = Mock(side_effect=Refused("12 experiments wait already"))
    monkeypatch.setattr(TrainingService, "submit", full)
    tab = press(open_page("capacity", cell=str(NARROW)), "capacity_lab")
    assert tab.session_state["lab"].experiment == lab_experiment(made_up(), NARROW)
    both = (Variant("QKV"), KV)
    for result in (made_up(), failed(made_up(), d_head=2, sharing="Q=K")):
        experiment = lab_experiment(result, WIDE)
        assert experiment.sharing == both
        assert list(experiment.seeds) == list(result.sweep.seeds)
        assert (experiment.size.d_head, experiment.task.n_entries) == (8, 6)
    assert lab_experiment(failed(made_up(), d_head=8, sharing="QKV"), WIDE).sharing == (KV,)
    runs = made_up().runs.copy()
    runs.loc[runs["sharing"] == "K=V", "learning_rate"] = 0.02
    tuned = lab_experiment(SweepResult(made_up().sweep, runs), WIDE)
    assert tuned.training.learning_rate == 0.005
    assert tuned.sharing == (Variant("QKV"), Variant("K=V learning_rate=0.02"))


@given(st.data())
@briefly(50)
def test_a_link_keeps_every_choice_that_is_shown(data):
    """A link of a sweep with one, two or three axes opens the same choice for another visitor."""
    draw, sweep = data.draw, made_up(data.draw(st.sampled_from([1, 2, 3]))).sweep
    sent, found = CapacityChoice(), CapacityChoice()
    sent.read_for(sweep)
    sent.measure = draw(st.sampled_from(["accuracy", "steps_to_threshold", "solved"]))
    sent.section = draw(st.sampled_from(["", *SECTIONS]))
    sent.take_axis("x", draw(st.sampled_from(list(sweep.axes))))
    names = st.sampled_from(sweep.sharing)
    sent.variants = tuple(draw(st.lists(names, min_size=1, unique=True)))
    sent.one, sent.other = draw(st.lists(names, min_size=2, max_size=2, unique=True))
    sent.fixed = {name: draw(st.sampled_from(values)) for name, values in sweep.axes.items()}
    sent.cell = draw(st.none() | st.sampled_from(cells_of(sweep)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CapacityChoice, "set_link", lambda self, link: setattr(self, "link", link))
        sent.write_link()
        found.follow(dict(sent.link))
        found.read_for(sweep)
        assert not found.problems
        for name in ("measure", "section", "x", "y", "beside", "variants", "cell"):
            assert getattr(found, name) == getattr(sent, name), name
        if sent.section in ("difference", "matching"):
            assert (found.one, found.other) == (sent.one, sent.other)
        found.write_link()
    assert found.link == sent.link


def test_what_a_sweep_does_not_have_is_a_default_and_told_if_a_link_asked_for_it():
    """Choosing the axis of the other side exchanges both. Another sweep needs no message."""
    choice = CapacityChoice()
    choice.follow({})
    choice.read_for(made_up().sweep)
    for _ in range(2):
        choice.take_axis("x", "n_entries")
        assert (choice.x, choice.y) == ("n_entries", "d_head")
    choice.cell = WIDE
    other = Sweep(axes={"n_heads": [1, 2]}, sharing=["Q=K", "K=V"])
    choice.read_for(other)
    assert (choice.x, choice.y, choice.cell) == ("n_heads", "", None)
    assert set(choice.variants) <= set(other.sharing) == {choice.one, choice.other}
    assert not choice.problems
    wrong = {"measure": "beauty", "x": "colour", "show": "all", "cost": "gold", "variants": "Q=P"}
    wrong |= {"cell": "3/6/QKV", "one": "Q=P", "n_entries": "7"}
    choice.follow({**wrong, "variants": "QKV,Q=P", "sweep": OWN})
    choice.read_for(made_up().sweep)
    told = [problem.split("'. Allowed: ")[0] for problem in choice.problems]
    assert sorted(told) == sorted(f"The link has {name}='{text}" for name, text in wrong.items())
    assert (choice.x, choice.variants, choice.cell) == ("d_head", (Variant("QKV"),), None)


def chosen(tab):
    """Return the visitor's choices."""
    return tab.session_state["capacity_chosen"]


@pytest.fixture
def shipped(monkeypatch):
    """Ship a made-up sweep."""
    monkeypatch.setattr(page, "load_shipped", lambda _: made_up())


def on_page(test):
    """Mark a test that draws the page, which ships a made-up sweep."""
    return pytest.mark.server(pytest.mark.usefixtures("pages_service", "shipped")(test))


@on_page
def test_a_link_is_followed_kept_while_another_page_is_open_and_repaired_once():
    """The sweep of another visitor is told to be theirs; a shipped one is shown instead."""
    params = {"sweep": CapacityChoice.sweep, "show": "matching", "x": "n_entries", "d_head": "8"}
    params |= {"one": "Q=K", "cell": "8/6/K=V"}
    tab = open_page("capacity", **params, y="d_head", other="K=V")  # the last two are defaults
    assert not tab.warning
    assert link_of(turn_to(turn_to(tab, "guide"), "capacity")) == params
    tab = open_page("capacity", sweep=OWN, measure="beauty", variants="QKV,Q=P")
    assert "measure='beauty'. Allowed: accuracy" in plain_text(tab.warning[0])
    assert chosen(tab).sweep == CapacityChoice.sweep
    assert not show(tab).warning


@on_page
def test_the_page_concludes_shows_a_diagram_and_every_section(monkeypatch, seed):
    """Sections open by a link, with any number of axes; the file of the diagram has all cells."""
    tab = open_page("capacity")
    assert plain_text(tab.markdown[0]) == conclusion(made_up(), "d_head", "n_entries").text
    data = drawn(tab, page.PHASE)
    assert [0, *(narrower["most"] for narrower in data["narrower"])] == list(COLUMNS)
    assert data["picks"]
    assert data["alt"]
    assert len(data["save"]["table"]["rows"]) == made_up().sweep.n_cells
    tab.selectbox(key="capacity_pick").set_value(NARROW)
    assert chosen(show(tab)).cell == NARROW
    assert link_of(tab)["cell"] == "2/6/K=V"
    assert "0 of 2 seeds" in said(tab)
    drawer = random.Random(seed)
    for section in SECTIONS:
        n_axes = drawer.choice((1, 2, 3))
        result = made_up(n_axes=n_axes)
        monkeypatch.setattr(page, "load_shipped", lambda _, result=result: result)
        tab = open_page("capacity", show=section, **({"n_layers": "1"} if n_axes == 3 else {}))
        assert (link_of(tab)["show"], [*tab.warning, *tab.error]) == (section, []), n_axes
    damaged = InvalidSweep("width.parquet: is not the result of a sweep")
    monkeypatch.setattr(page, "load_shipped", Mock(side_effect=damaged))
    tab = open_page("capacity")
    assert tab.error
    assert not tab.button(key="run_sweep").disabled


@on_page
def test_a_sweep_runs_from_the_form_and_fills_the_page(monkeypatch):
    """A wrong value is told and cannot run; it pauses and goes on to its end."""

    def tiny(**given):
        return Sweep(**{**given, "base": {**TINY, "n_names": 11, "task": given["base"]["task"]}})

    monkeypatch.setattr(sweep_form, "Sweep", tiny)
    tab = open_page("capacity", show="live")
    tab.selectbox(key="form_task").set_value("directed")
    tab = show(tab)
    tab.number_input(key="form_seeds").set_value(1)
    tab.text_input(key="form_second_values").set_value("5, 6")
    tab.text_input(key="form_first_values").set_value("wide")
    tab = show(tab)
    assert "Head width" in tab.error[0].value
    assert tab.button(key="run_sweep").disabled
    tab.text_input(key="form_first_values").set_value("3, 5")
    tab = press(press(show(tab), "run_sweep"), "pause_sweep")
    live = tab.session_state["live_sweep"]
    assert not live.moving
    tab = watch_series(press(tab, "go_on_sweep"), live)
    assert live.finished
    assert chosen(tab).sweep == link_of(tab)["sweep"] == OWN
    assert live.result().n_missing == 0
    assert len(drawn(tab, page.PHASE)["save"]["table"]["rows"]) == live.sweep.n_cells
    assert plain_text(tab.markdown[0]) == conclusion(live.result(), "d_head", "n_entries").text
