"""Sweeps: tables of cells and costs, the frontier, and boundaries with their sentences."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import ENTRIES, WIDTHS, failed, from_width, logistic, made_sweep, without
from plotted import accepted
from searching import briefly
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
from attnkit.figures.frontier import (
    describe_frontier,
    describe_matching,
    plot_frontier,
    plot_matching,
)
from attnkit.sweeps import SweepResult

X, Y = "d_head", "n_entries"
WHOLE = made_sweep(from_width(QKV=3, KV=6))
HOLED = without(made_sweep(logistic({"QKV": 3, "K=V": 6})), d_head=4, sharing="K=V")
HOLED = failed(without(HOLED, d_head=3, sharing="QKV", seed=0), d_head=12, sharing="K=V")
"""A cell was not run at every number of entries, one failed, one lacks a seed."""


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
            assert found == pytest.approx(expected_of(trained["accuracy"].to_numpy())[:3])
            assert row["solved"] == len(steps) / len(trained)
            assert row["steps_to_threshold"] == pytest.approx(steps.mean(), nan_ok=True)
            assert row["learning_rate"] == 0.005
    assert rows == len(table) < sweep.n_cells
    empty = cells(SweepResult.of(WHOLE.sweep, None))  # a table of parts without metrics
    assert empty.empty
    assert "accuracy" in empty.columns
    tuned = cells(made_sweep(lambda *_: 1.0, axes={"learning_rate": (0.01, 0.02)}))
    assert tuned.columns.tolist().count("learning_rate") == 1
    assert tuned["learning_rate"].tolist() == [0.01, 0.01, 0.02, 0.02]


def test_a_slice_keeps_the_index_of_its_rows():
    """The page finds the cell of a row by it; axes that there are not are refused by name."""
    table = cells(WHOLE)
    part = slice_at(table, {"n_entries": 8})
    assert part.index.tolist() == table.index[table["n_entries"] == 8].tolist()
    with pytest.raises(ValueError, match=r"fixed: got 'd_model', allowed d_head, n_entries"):
        slice_at(table, {"d_model": 3})
    with pytest.raises(ValueError, match="fixed: has no 'n_entries'"):
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
    table = difference(WHOLE, "QKV", "QKV")
    assert not table["clear"].any()
    assert difference(WHOLE, "Q=V", "QKV").empty  # which was not trained


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


def test_the_frontier_is_drawn_with_all_cells_and_described():
    """Every cell is a dot with the index of its row; names stand at changes of the variant."""
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
    assert describe_frontier(TABLE, KV_CACHE) == (
        "Accuracy against KV-cache floats per token. On the frontier stand 3 of 15 cells: "
        "QKV 0% for 2, K=V 0% for 2, QKV 100% for 6."
    )
    accepted(plot_frontier(TABLE[:0], "parameters"))
    assert "Nothing has been trained" in describe_frontier(TABLE[:0], "parameters")


def test_costs_of_equal_accuracy_are_drawn_and_described():
    """Also where limits are infinite and where B never reaches the accuracy."""
    matched = matching_cost(OF["QKV"], OF["K=V"], KV_CACHE)
    endless = matched.copy()
    endless.loc[0, ["high", "low"]] = math.inf, 0.0
    short = matching_cost(OF["QKV"], OF["K=V"][:4], KV_CACHE)
    for table in (matched, short, endless, matched[:0]):
        line = accepted(plot_matching(table, KV_CACHE, NAMES))
        assert line["data"][1]["y"] == table["ratio"].dropna().tolist()
    text = describe_matching(matched, KV_CACHE, NAMES)
    assert text.startswith("It depends on the accuracy.")
    assert "KV-cache floats per token of K=V as a multiple of those of QKV" in text
    assert "100%: 2.00 times (2.00 to 2.00)" in text
    half = matching_cost(OF["QKV"], OF["K=V"], KV_CACHE, 0.5)
    for table, words in (
        (half, "K=V needs more for the same"),
        (short, "100%: K=V does not reach it"),
        (matched[:0], "Nothing has been trained"),
    ):
        assert words in describe_matching(table, KV_CACHE, NAMES)


# boundaries

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


@given(st.lists(st.integers(0, 5), min_size=8, max_size=8))
@briefly(30)
def test_a_falling_axis_is_the_mirror_of_a_rising_one(solved):
    """The point and its limits change sign with the values."""
    values, solved = np.arange(8.0), np.array(solved, float)
    rising = half_point(values, solved, FIVE)
    falling = half_point(-values[::-1], solved[::-1], FIVE, rises=False)
    found, mirrored = ([p.value, p.low, p.high] for p in (falling, rising))
    assert found == pytest.approx([-mirrored[place] for place in (0, 2, 1)], abs=0.1)


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


def test_there_is_no_boundary_where_nothing_separates_runs():
    """If all or none of them solve the task, along texts, or at the one value of a sweep begun."""
    axes = {"positions": ("none", "learned"), Y: ENTRIES}
    texts = made_sweep(lambda _, point: float(point["positions"] == "none"), axes=axes)
    whole = made_sweep(lambda sharing, point: float(point[Y] <= 4))
    begun = SweepResult(whole.sweep, whole.runs[whole.runs[X] == 8].reset_index(drop=True))
    for result, along in (
        *((made_sweep(lambda *_, c=chance: c), X) for chance in (0.0, 1.0)),
        *((texts, "positions"), (begun, X)),
    ):
        assert boundary(result, "QKV", along, Y) is None


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


def test_ratios_are_found_with_their_intervals_against_any_baseline():
    """K=V needs heads twice as wide, whatever the number of entries."""
    result = made_sweep(logistic({"QKV": 3, "K=V": 6, "Q=K": 3}), sharing=("QKV", "K=V", "Q=K"))
    table = ratios(result, X, Y).set_index("sharing")
    assert 1.5 < table.loc["K=V", "low"] < 2 < table.loc["K=V", "high"]
    assert table.loc["Q=K", "low"] < 1 < table.loc["Q=K", "high"]
    assert table["n_compared"].tolist() == [4, 4]
    there, back = table.loc["K=V"], ratios(result, X, Y, baseline="K=V").iloc[0]
    expected = [1 / back[end] for end in ("ratio", "high", "low")]
    assert [there[end] for end in ("ratio", "low", "high")] == pytest.approx(expected)
    table = ratios(WHOLE, X, Y, baseline="Q=V")
    assert table["ratio"].isna().all()
    assert table["sharing"].tolist() == ["QKV", "K=V"]


def test_a_mean_ratio_has_the_intervals_of_both_boundaries():
    """As Zou and Donner add them: log₂ ratios of 1 and 3, with limits 1 below and 2 above."""
    limits = [2.0, 4.0, 8.0], [1.0, 2.0, 4.0], [8.0, 16.0, 32.0]
    b = Boundary("QKV", X, Y, [2, 4, 8], *map(np.array, limits), rises=True, has_ratios=True)
    factors = np.array([2.0, 8.0, math.inf])
    a = replace(b, half=b.half * factors, low=b.low * factors, high=b.high * factors)
    found, half = mean_ratio(a, b), math.sqrt(2 * (1 + 4)) / 2
    assert found == pytest.approx((4, 2 ** (2 - half), 2 ** (2 + half), 2))
    assert found.is_clear
    assert not mean_ratio(b, b).is_clear


# sentences


def concluded(result, *axes):
    """Return the conclusion of a sweep of the phone book, without the name of the task."""
    text = conclusion(result, *(axes or (X, Y))).text
    assert text.startswith("On “Phone book”: ")
    return text.removeprefix("On “Phone book”: ")


def test_the_conclusion_says_which_variant_needs_the_most_and_by_how_much():
    """Only what is clear; what always or never solves the task is named, with no boundary."""
    share = "Share of the runs that solve the task: QKV {0}, K=V {0}.".format
    for result, pattern in (
        (
            wider(QKV=3, Q_K=3, K_V=6, Q_V=4, Q_K_V=12),
            r"Q=K=V needs the widest heads: about 4\.0 times as wide as QKV \(95% interval \d\.\d "
            r"to \d\.\d\)\. K=V needs heads about 2\.0 times as wide as QKV \(.*\); "
            r"Q=V: 1\.\d times \(.*\)\. Not clearly different from QKV: Q=K \(1\.0 times, .*\)\.",
        ),
        (  # two that do not differ: neither needs the widest
            wider(QKV=3, K_V=6, Q_V=6),
            r"K=V needs heads about 2\.0 times as wide as QKV \([^)]*\); Q=V: 2\.0 times [^)]*\)\.",
        ),
        (wider(QKV=3, K_V=6, Q_V=math.inf), "Q=V solves the task in no run. K=V needs heads .*"),
        (wider(Q_K=3, K_V=12), "K=V needs the widest heads: about 4.0 times as wide as Q=K .*"),
        (wider(QKV=3), "Half of the seeds of QKV solve the task at “Head width” 2.5 or more."),
        (wider(QKV=1, K_V=6), ".*Half of the seeds of K=V.* QKV solves the task in every run."),
        (
            made_sweep(lambda *_: 0.0),
            r"No run solves the task\. Mean accuracy: QKV \d+%, K=V \d+%\.",
        ),
        (made_sweep(lambda *_: 1.0), share("100%")),
    ):
        text = concluded(result)
        assert re.fullmatch(pattern, text), text
        assert ("widest" in text) == ("widest" in pattern), text
    texts = made_sweep(
        lambda sharing, point: float(point["positions"] == "none"),
        axes={"positions": ("none", "learned")},
    )
    assert concluded(texts, "positions") == share("50%")
    falling = made_sweep(
        lambda sharing, point: float(point[Y] <= {"QKV": 16, "K=V": 4}[sharing]),
        axes={Y: (2, 4, 8, 16, 32), X: (4, 8)},
    )
    begins = "K=V fails first as “Entries” grows: at about 0.25 times the value of "
    assert concluded(falling, Y, X).startswith(begins)
    nothing = SweepResult(WHOLE.sweep, WHOLE.runs[:0])
    assert conclusion(nothing, X, Y).text == "Nothing has been trained here yet."


def test_a_sentence_names_few_of_many_variants_and_the_rows_that_ratios_leave_out():
    """The others are counted. A variant that fails more rows is not less demanding."""
    names = ("QKV", *(f"QKV d_mlp={4 * k}" for k in range(1, 9)))
    many = made_sweep(
        lambda sharing, point: float(point[X] >= (3 if sharing == "QKV" else 8)), sharing=names
    )
    assert concluded(many).count("times (") == 3
    assert concluded(many).endswith("4 others.")

    def solves(sharing, point):
        return float(point[X] >= 3 and (sharing == "QKV" or (point[X] >= 6 and point[Y] <= 4)))

    assert concluded(made_sweep(solves)).endswith(
        "Values of “Entries” where the boundary lies outside of the values of “Head width” are not "
        "counted: K=V at 8 and 16."
    )

    def solves_few(sharing, point):
        return float(point[X] >= {"QKV": 2, "Q=V": 8, "K=V": 3 if point[Y] == 2 else 99}[sharing])

    assert "widest" not in concluded(made_sweep(solves_few, sharing=("QKV", "K=V", "Q=V")))
