"""Sweeps in tables, sentences and figures: cells, costs, the frontier, boundaries, differences."""

import math
import re
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import ENTRIES, WIDTHS, failed, from_width, logistic, made_sweep, without
from plotted import accepted
from test_statistics import expected_of

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
from attnkit.figures.grid import GridAxis, cell_texts
from attnkit.sweeps import SweepResult
from attnkit.variants.palette import COLORS
from attnkit.variants.sharing import Sharing

X, Y = "d_head", "n_entries"
WHOLE = made_sweep(from_width(QKV=3, KV=6))
HOLED = without(made_sweep(logistic({"QKV": 3, "K=V": 6})), d_head=4, sharing="K=V")
HOLED = failed(without(HOLED, d_head=3, sharing="QKV", seed=0), d_head=12, sharing="K=V")
"""A cell was not run at every number of entries, one failed, one lacks a seed."""


def test_a_cell_has_the_statistics_of_its_seeds_its_costs_and_why_it_failed():
    """In the order of the sweep; what was not run has no row, and what failed no numbers."""
    table, sweep = cells(HOLED), HOLED.sweep
    rows = iter(table.to_dict("records"))
    for point, variant in product(sweep.points(), sweep.sharing):
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
        assert row["learning_rate"] == 0.005
    assert next(rows, None) is None
    assert cells(SweepResult.of(WHOLE.sweep, None)).empty  # a table of parts without metrics
    tuned = cells(made_sweep(lambda *_: 1.0, axes={"learning_rate": (0.01, 0.02)}))
    assert tuned["learning_rate"].tolist() == [0.01, 0.01, 0.02, 0.02]


def test_a_slice_keeps_the_index_of_its_rows():
    """The page finds the cell of a row by it; axes that there are not are refused by name."""
    table = cells(WHOLE)
    part = slice_at(table, {"n_entries": 8})
    assert part.index.tolist() == table.index[table["n_entries"] == 8].tolist()
    with pytest.raises(ValueError, match="fixed: got 'd_model'"):
        slice_at(table, {"d_model": 3})
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
    last = matched({100: 0.0, 400: 1.0}, {100: 0.2, 200: 0.7}).iloc[-1]
    assert last["accuracy"] == 1.0
    assert last[["b", "ratio", "high"]].isna().all()
    last = matched({100: 0.0, 400: 0.9}, {100: 0.0, 400: 0.9, 1600: 0.95}, 0.1).iloc[-1]
    assert last["b"] == pytest.approx(400)
    assert 100 < last["b_low"] < 400
    assert last["b_high"] == last["high"] == math.inf
    for a, b in (({}, {100: 0.2}), ({100: 0.2}, {})):
        assert matched(a, b).empty


TABLE = slice_at(cells(failed(WHOLE, d_head=12, sharing="K=V")), {"n_entries": 4})
KV_CACHE = "kv_cache_floats_per_token"
NAMES = ("QKV", "K=V")
OF = {name: TABLE[TABLE["sharing"] == name] for name in NAMES}


def test_the_frontier_and_costs_of_equal_accuracy_are_drawn_and_described():
    """Every cell is a dot with the index of its row; limits may be infinite, or B falls short."""
    trained = TABLE.index[TABLE["accuracy"].notna()]
    for cost in COSTS:
        figure = accepted(plot_frontier(TABLE, cost))
        others, line, best = figure["data"]
        assert sorted(others["customdata"] + best["customdata"]) == sorted(trained)
        assert best["customdata"] == frontier(TABLE, cost).index.tolist()
        assert line["x"] == best["x"] == TABLE.loc[best["customdata"], cost].tolist()
        names = [note["text"] for note in figure["layout"]["annotations"]]
        on_it = frontier(TABLE, cost)["sharing"].tolist()
        assert names == [a for a, b in zip(on_it, [None, *on_it], strict=False) if a != b]
    told = describe_frontier(TABLE, KV_CACHE)
    assert told.endswith(" 3 of 15 cells: QKV 0% for 2, K=V 0% for 2, QKV 100% for 6.")
    matched = matching_cost(OF["QKV"], OF["K=V"], KV_CACHE)
    short = matching_cost(OF["QKV"], OF["K=V"][:4], KV_CACHE)
    endless = matched.copy()
    endless.loc[0, ["high", "low"]] = math.inf, 0.0
    for table, words in (
        (matched, "100%: 2.00 times (2.00 to 2.00)"),
        (matching_cost(OF["QKV"], OF["K=V"], KV_CACHE, 0.5), "K=V needs more"),
        (short, "100%: K=V does not"),
        (endless, ""),
        (matched[:0], "Nothing"),
    ):
        line = accepted(plot_matching(table, KV_CACHE, NAMES))
        assert line["data"][1]["y"] == table["ratio"].dropna().tolist()
        assert words in describe_matching(table, KV_CACHE, NAMES)
    accepted(plot_frontier(TABLE[:0], "parameters"))
    assert describe_frontier(TABLE[:0], "parameters")


FIVE = np.full(8, 5.0)


def wider(**needed):
    """Return a sweep whose variants, without "=", solve the task from a head width on."""
    names = tuple(name.replace("_", "=") for name in needed)
    widths = dict(zip(names, needed.values(), strict=True))
    return made_sweep(lambda sharing, point: float(point[X] >= widths[sharing]), sharing=names)


def test_a_known_half_point_is_found_and_its_band_covers_what_is_not_known():
    """From many runs to within a few percent; bands of 95% cover 180 to 200 of 200 draws."""
    values, generator, n_covered = np.log2(WIDTHS), np.random.default_rng(0), 0
    share = 1 / (1 + np.exp(-3 * (values - np.log2(5))))
    found = half_point(values, 1000 * share, np.full(len(values), 1000.0))
    assert 2**found.value == pytest.approx(5, rel=0.03)
    assert found.low < np.log2(5) < found.high < found.low + np.log2(1.15)
    found = half_point(values, np.repeat([0, 5.0], 4), FIVE)
    assert 3 < 2**found.low < 4.5 < 2**found.value < 5.5 < 2**found.high < 8
    falling = half_point(-values[::-1], np.repeat([5.0, 0], 4), FIVE, rises=False)
    mirrored = [-found.value, -found.high, -found.low]
    assert [falling.value, falling.low, falling.high] == pytest.approx(mirrored, abs=0.1)
    for solved, value in ((0.0, math.inf), (5.0, -math.inf)):
        found = half_point(values, np.full(8, solved), FIVE)
        assert found.value == value
        assert math.isinf(found.low) != math.isinf(found.high)
    for _ in range(200):
        true = generator.uniform(np.log2(2.5), np.log2(10))
        solved = generator.binomial(5, 1 / (1 + np.exp(-4 * (values - true))))
        found = half_point(values, solved.astype(float), FIVE)
        n_covered += found.low <= true <= found.high
    assert 180 <= n_covered <= 200


def test_a_boundary_has_a_point_at_every_value_of_the_other_axis():
    """In the order of the sweep, between widths that fail and succeed; the same every time."""
    found, again = (boundary(WHOLE, "K=V", X, Y) for _ in range(2))
    assert (found.at, found.rises) == (list(ENTRIES), True)
    assert ((found.half > 4) & (found.half < 6)).all()
    assert ((found.low < found.half) & (found.half < found.high)).all()
    assert np.array_equal(found.low, again.low)
    part = boundary(
        failed(without(WHOLE, d_head=12, n_entries=4), d_head=8, n_entries=8), "K=V", X, Y
    )
    assert part.at == found.at
    assert part.half == pytest.approx(found.half, rel=0.1)
    single = WHOLE.runs[(WHOLE.runs[Y] != 4) | (WHOLE.runs[X] == 3)]
    assert boundary(SweepResult(WHOLE.sweep, single), "K=V", X, Y).at == [2, 8, 16]


def test_a_boundary_is_found_on_axes_of_every_kind():
    """Along one that makes the task harder, at texts, alone, and with 0, which has no ratios."""
    harder = boundary(made_sweep(lambda _, point: float(point[Y] <= point[X])), "QKV", Y, X)
    assert not harder.rises
    assert 4 < harder.half[harder.at.index(6)] < 8
    texts = made_sweep(
        lambda sharing, point: float(point[X] >= (3 if point["positions"] == "none" else 8)),
        axes={X: WIDTHS, "positions": ("none", "learned")},
    )
    found = boundary(texts, "QKV", X, "positions")
    assert found.at == ["none", "learned"]
    assert found.half[0] < 3 < 6 < found.half[1]
    (half,) = boundary(made_sweep(from_width(QKV=3, KV=6), axes={X: WIDTHS}), "QKV", X).half
    assert 2 < half < 3
    axes = {"d_mlp": (0, 8, 16, 32), Y: ENTRIES}
    zero = made_sweep(lambda sharing, point: float(point["d_mlp"] >= 16), axes=axes)
    found = boundary(zero, "QKV", "d_mlp", Y)
    assert ((found.half > 8) & (found.half < 16)).all()
    assert not found.has_ratios
    assert mean_ratio(found, found).n_compared == 0
    axes = {"positions": ("none", "learned"), Y: ENTRIES}
    unequal = made_sweep(lambda _, point: float(point["positions"] == "none"), axes=axes)
    begun = SweepResult(WHOLE.sweep, WHOLE.runs[WHOLE.runs[X] == 8].reset_index(drop=True))
    never, always = (made_sweep(lambda *_, c=chance: c) for chance in (0.0, 1.0))
    for result, along in ((never, X), (always, X), (unequal, "positions"), (begun, X)):
        assert boundary(result, "QKV", along, Y) is None  # nothing separates runs


def test_the_smallest_width_is_that_from_which_on_all_seeds_succeed():
    """Failures at wider heads count; infinite if the widest fails, with none below the first."""
    table = smallest(WHOLE, "K=V", X, Y)
    assert (table["smallest"].tolist(), table["below"].tolist()) == ([6] * 4, [4] * 4)
    runs = WHOLE.runs.copy()
    late = (runs["sharing"] == "K=V") & (runs[X] == 8) & (runs[Y] == 4) & (runs["seed"] == 0)
    runs.loc[late, "steps_to_threshold"] = math.nan
    result = SweepResult(WHOLE.sweep, runs)
    assert smallest(result, "K=V", X, Y)["smallest"].tolist() == [6, 12, 6, 6]
    assert smallest(result, "K=V", X, Y, share=0.8)["smallest"].tolist() == [6] * 4
    extreme = made_sweep(from_width(QKV=1, KV=99))
    table = smallest(extreme, "K=V", X, Y)
    assert (table["smallest"].tolist(), table["below"].tolist()) == ([math.inf] * 4, [16] * 4)
    assert smallest(extreme, "QKV", X, Y)["below"].isna().all()


def test_ratios_have_the_intervals_of_both_boundaries_against_any_baseline():
    """As Zou and Donner add them: log₂ ratios of 1 and 3, with limits 1 below and 2 above."""
    result = made_sweep(logistic({"QKV": 3, "K=V": 6, "Q=K": 3}), sharing=("QKV", "K=V", "Q=K"))
    table = ratios(result, X, Y).set_index("sharing")
    assert 1.5 < table.loc["K=V", "low"] < 2 < table.loc["K=V", "high"]
    assert table.loc["Q=K", "low"] < 1 < table.loc["Q=K", "high"]
    assert table["n_compared"].tolist() == [4, 4]
    there, back = table.loc["K=V"], ratios(result, X, Y, baseline="K=V").iloc[0]
    expected = [1 / back[end] for end in ("ratio", "high", "low")]
    assert [there[end] for end in ("ratio", "low", "high")] == pytest.approx(expected)
    table = ratios(WHOLE, X, Y, baseline="Q=V")
    assert (table["ratio"].isna().all(), table["sharing"].tolist()) == (True, ["QKV", "K=V"])
    limits = [2.0, 4.0, 8.0], [1.0, 2.0, 4.0], [8.0, 16.0, 32.0]
    b = Boundary("QKV", X, Y, [2, 4, 8], *map(np.array, limits), rises=True, has_ratios=True)
    factors = np.array([2.0, 8.0, math.inf])
    a = replace(b, half=b.half * factors, low=b.low * factors, high=b.high * factors)
    found, half = mean_ratio(a, b), math.sqrt(2 * (1 + 4)) / 2
    assert found == pytest.approx((4, 2 ** (2 - half), 2 ** (2 + half), 2))
    assert (found.is_clear, mean_ratio(b, b).is_clear) == (True, False)


def concluded(result, *axes):
    """Return the conclusion of a sweep of the phone book, without the name of the task."""
    text = conclusion(result, *(axes or (X, Y))).text
    assert text.startswith("On “Phone book”: ")
    return text.removeprefix("On “Phone book”: ")


def test_the_conclusion_says_which_variant_needs_the_most_and_by_how_much():
    """Only what is clear; what always or never solves the task is named, with no boundary."""
    for result, pattern in (
        (
            wider(QKV=3, Q_K=3, K_V=6, Q_V=4, Q_K_V=12),
            r"Q=K=V needs the widest .* 4\.0 .* QKV .*\d\.\d to \d\.\d.* K=V .* 2\.0 .*"
            r"Q=V: 1\.\d .* Not .* Q=K \(1\.0 .*",
        ),
        (wider(QKV=3, K_V=6, Q_V=6), r"K=V needs .* 2\.0 .* QKV .*; Q=V: 2\.0 .*"),
        (wider(QKV=3, K_V=6, Q_V=math.inf), "Q=V .* no run. K=V needs heads .*"),
        (wider(Q_K=3, K_V=12), "K=V needs the widest .* 4.0 .* Q=K .*"),
        (wider(QKV=3), "Half of .* QKV .* 2.5 .*"),
        (wider(QKV=1, K_V=6), "Half of .* K=V.* QKV .* every run."),
        (made_sweep(lambda *_: 0.0), r"No run .* QKV \d+%, K=V \d+%\."),
        (made_sweep(lambda *_: 1.0), ".* QKV 100%, K=V 100%."),
    ):
        text = concluded(result)
        assert re.fullmatch(pattern, text), text
        assert ("widest" in text) == ("widest" in pattern), text
    texts = made_sweep(
        lambda sharing, point: float(point["positions"] == "none"),
        axes={"positions": ("none", "learned")},
    )
    assert concluded(texts, "positions").endswith("QKV 50%, K=V 50%.")
    falling = made_sweep(
        lambda sharing, point: float(point[Y] <= {"QKV": 16, "K=V": 4}[sharing]),
        axes={Y: (2, 4, 8, 16, 32), X: (4, 8)},
    )
    assert re.match("K=V fails first .* 0.25 times", concluded(falling, Y, X))
    assert "Nothing" in conclusion(SweepResult(WHOLE.sweep, WHOLE.runs[:0]), X, Y).text
    names = ("QKV", *(f"QKV d_mlp={4 * k}" for k in range(1, 9)))
    many = made_sweep(
        lambda name, point: float(point[X] >= (3 if name == "QKV" else 8)), sharing=names
    )
    assert (concluded(many).count("times ("), concluded(many)[-9:]) == (3, "4 others.")

    def solves(sharing, point):
        return float(point[X] >= 3 and (sharing == "QKV" or (point[X] >= 6 and point[Y] <= 4)))

    assert concluded(made_sweep(solves)).endswith("K=V at 8 and 16.")  # rows that are not counted

    def solves_few(sharing, point):
        return float(point[X] >= {"QKV": 2, "Q=V": 8, "K=V": 3 if point[Y] == 2 else 99}[sharing])

    assert "widest" not in concluded(made_sweep(solves_few, sharing=("QKV", "K=V", "Q=V")))


STEPS = "steps_to_threshold"
ALL = {X: WIDTHS, Y: ENTRIES}
GAPPY = failed(without(WHOLE, d_head=4, n_entries=8), d_head=12, sharing="K=V", n_entries=4)
CELLS = cells(GAPPY)
BOUNDARIES = [boundary(GAPPY, name, X, Y) for name in ("QKV", "K=V")]
LINE = made_sweep(from_width(QKV=3, KV=6), axes={X: WIDTHS})


def heatmaps(figure, colored=True):
    """Return the traces of cells, those with colours of the scale or the grey ones."""
    traces = [trace for trace in figure["data"] if trace["type"] == "heatmap"]
    return [trace for trace in traces if ("coloraxis" in trace) == colored]


def edges(figure):
    """Return the lines of boundaries."""
    return [t for t in figure["data"] if t.get("line", {}).get("color") == "#ffffff"]


def test_every_cell_stands_in_the_panel_of_its_variant_with_its_value():
    """And with the index of its row, by which the page opens the cell that was clicked."""
    for measure, (x, y) in product(("accuracy", STEPS, "solved"), ((X, Y), (Y, X))):
        figure = accepted(plot_phase(CELLS, x, y, measure, BOUNDARIES))
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
    narrow = plot_phase(CELLS[CELLS[X] <= 3], X, Y, values=ALL)
    assert heatmaps(narrow)[0]["x"] == list(WIDTHS)
    grey = heatmaps(plot_phase(CELLS, X, Y, STEPS), colored=False)[0]
    assert [line[grey["x"].index(1)] for line in grey["z"]] == [0.0] * len(ENTRIES)
    assert [line[grey["x"].index(16)] for line in grey["z"]] == [None] * len(ENTRIES)


def test_panels_wrap_without_overlap_and_slices_have_a_line_for_each_variant():
    """Panels of one row have equal heights; a slice goes along its axis, without failed cells."""
    table = cells(made_sweep(lambda *_: 1.0, sharing=[sharing.value for sharing in Sharing]))
    for columns, rows in ((5, 1), (2, 3)):
        layout = plot_phase(table, X, Y, columns=columns)["layout"]
        for sharing, note in zip(Sharing, layout["annotations"], strict=False):
            assert all(part in note["text"] for part in (sharing.value, COLORS[sharing]))
        axes = [axis for name, axis in layout.items() if name.startswith("yaxis")]
        heights = {tuple(np.round(axis["domain"], 4)) for axis in axes}
        assert len(heights) == rows
        assert all(a[1] < b[0] for a, b in pairwise(sorted(heights)))
    table = slice_at(CELLS, {Y: 4})
    for measure in ("accuracy", STEPS, "solved"):
        lines = accepted(plot_slice(table, X, measure))["data"]
        for trace, sharing in zip(lines, ("QKV", "K=V"), strict=True):
            rows = table[(table["sharing"] == sharing) & (table["n_seeds"] > 0)].sort_values(X)
            assert trace["customdata"] == rows.index.tolist()
            assert trace["x"] == sorted(trace["x"])
            shown = np.array(trace["y"], float)
            assert shown == pytest.approx(rows[measure].to_numpy(float), nan_ok=True)
    never = cells(made_sweep(lambda *_: 0.0, axes={"positions": ("none", "learned")}))
    for measure, told in (("accuracy", "K=V none: 0%, learned: 0%."), (STEPS, "K=V none.")):
        accepted(plot_slice(never, "positions", measure))
        assert describe_slice(never, "positions", measure).endswith(told)


def test_marks_are_drawn_where_they_are_and_the_key_explains_only_those():
    """A cross says why a cell failed; one that was not run has none. A chosen cell has a ring."""
    figure, n_cells = plot_phase(CELLS, X, Y), len(WIDTHS) * len(ENTRIES)
    (cross,) = [t for t in figure["data"] if t.get("mode") == "markers"]
    assert (cross["x"], cross["y"]) == ([12], [4])
    assert "d_head: got 12, allowed less &lt;than&gt; that" in cross["hovertext"][0]
    assert CELLS.loc[cross["customdata"][0], "error"] is not None
    assert phase_key(cells(WHOLE), n_cells) == ""
    key = phase_key(CELLS, n_cells, STEPS, BOUNDARIES)
    assert re.findall(r"(\w+|×):", key) == ["Grey", "×", "Blank"]
    unlucky = CELLS.copy()  # a wide head that fails is rare
    unlucky.loc[(CELLS[X] == WIDTHS[-1]) & (CELLS["n_seeds"] > 0), "n_solved"] -= 1
    for table, is_told in ((CELLS, False), (unlucky, True)):
        key = phase_key(table, n_cells, "accuracy", BOUNDARIES)
        assert ("beyond the band" in key) == is_told
    index = CELLS.index[(CELLS["sharing"] == "K=V") & (CELLS[X] == 2) & (CELLS[Y] == 4)][0]
    *before, dark, pale = with_mark(figure, index)["data"]
    assert before == figure["data"]
    panel = heatmaps(figure)[1]
    for ring in (dark, pale):
        place = [ring[key] for key in ("x", "y", "xaxis", "yaxis")]
        assert place == [[2], [4], panel["xaxis"], panel["yaxis"]]
    assert with_mark(figure, -1) == figure


def test_boundaries_lie_where_they_are():
    """They end where none was found, in the panel of their variant; other axes have none."""
    white = edges(plot_phase(CELLS, X, Y, "accuracy", BOUNDARIES))
    assert [trace["xaxis"] for trace in white] == ["x", "x2"]
    assert white[0]["x"][1:-1] == pytest.approx(BOUNDARIES[0].half)
    assert white[0]["y"][1:-1] == list(ENTRIES)
    assert white[0]["y"][0] == pytest.approx(2 / math.sqrt(2))
    assert edges(plot_phase(CELLS, Y, X, "accuracy", BOUNDARIES)) == []

    def drawn(result, x, y):
        found = boundary(result, "QKV", x, y)
        return accepted(plot_phase(cells(result), x, y, "accuracy", [found]))

    broken = made_sweep(lambda sharing, point: float(point[X] >= 3 and point[Y] != 4))
    assert [len(trace["x"]) for trace in edges(drawn(broken, X, Y))] == [3, 4]
    (alone,) = edges(drawn(LINE, X, None))
    assert len(set(alone["x"])) == 1
    axes = {"d_mlp": (0, 8, 16, 32), "positions": ("none", "learned")}
    texts = made_sweep(lambda sharing, point: float(point["d_mlp"] >= 16), axes=axes)
    figure = drawn(texts, "d_mlp", "positions")
    ticks = [figure["layout"][axis]["ticktext"] for axis in ("xaxis", "yaxis")]
    assert ticks == [["0", "8", "16", "32"], ["none", "learned"]]
    assert len(edges(figure)) == 2
    assert 1 < edges(figure)[0]["x"][0] < 2


def test_a_phase_diagram_and_its_cells_are_told_in_words():
    """Each variant with its range, its solved cells and its boundary; a cell with its numbers."""
    text = describe_phase(CELLS, X, Y, "accuracy", BOUNDARIES)
    assert re.search(r"QKV: 31 cells, 0% to 100%.* 23 .* 2\.5 to 2\.5", text)
    accepted(plot_phase(CELLS[:0], X, Y, values=ALL))
    assert "Nothing" in describe_phase(CELLS[:0], X, Y)
    row = CELLS[(CELLS[X] == 16) & (CELLS["sharing"] == "K=V")][:1]
    lines = cell_texts(row, [X, Y])[0].split("<br>")
    assert lines[:3] == ["<b>K=V</b>", "Head width 16, Entries 2", "accuracy 100%"]
    for told in ("5 of 5 seeds", "202 steps", "per token 32"):
        assert any(told in line for line in lines)
    labels = GridAxis("d_head", WIDTHS).axis(160).texts  # without room for all
    assert labels == ["1", "2", "", "4", "", "8", "", "16"]


def test_differences_have_numbers_where_the_interval_excludes_zero():
    """They are those of the table; zero is in the middle of the scale. Words count clear cells."""
    table = difference(GAPPY, "K=V", "QKV")
    accepted(plot_difference(difference(LINE, "K=V", "QKV"), X, None, ("K=V", "QKV"), STEPS))
    figure = accepted(plot_difference(table, X, Y, ("K=V", "QKV")))
    texts = [trace for trace in figure["data"] if trace.get("mode") == "text"]
    shown = {(x, y) for trace in texts for x, y in zip(trace["x"], trace["y"], strict=True)}
    marked = table[table["clear"]]
    assert shown == set(zip(marked[X], marked[Y], strict=True))
    assert {text for trace in texts for text in trace["text"]} == {"−100"}
    tips = [tip for line in heatmaps(figure)[0]["hovertext"] for tip in line if tip]
    assert {tip.rpartition("<br>")[2] for tip in tips} == {"5 pairs of seeds"}
    assert sum("−100 points (95% interval −100 to −100)" in tip for tip in tips) == len(marked)
    axis = figure["layout"]["coloraxis"]
    assert axis["cmin"] == -axis["cmax"] == -1
    told = {0.123: "+12", -0.5: "−50", -0.001: "0", math.nan: "–"}
    assert [difference_text(value, "accuracy") for value in told] == list(told.values())
    assert [difference_text(value, STEPS) for value in (1.0, -2.0)] == ["×2.0", "×0.25"]
    text = describe_difference(table, X, Y, ("K=V", "QKV"))
    assert re.search("30 cells, −100 to 0.* K=V in 0 .* QKV in 7", text)
    empty = difference(GAPPY, "Q=V", "QKV")
    assert "No cell" in describe_difference(empty, X, Y, ("Q=V", "QKV"))
