"""Boundaries of variants: known ones are found, bands cover them, and sentences stay true."""

import math
import re

import numpy as np
import pytest
from made_sweeps import ENTRIES, WIDTHS, failed, from_width, logistic, made_sweep, without

from attnkit.analysis.boundary import boundary, mean_ratio, ratios, smallest
from attnkit.analysis.conclusion import conclusion, label_of
from attnkit.analysis.logistic import half_point
from attnkit.sweeps import SweepResult

X, Y = "d_head", "n_entries"
SEPARATED = made_sweep(from_width(QKV=3, KV=6))


def test_a_known_half_point_is_found():
    """From many runs, to within a few percent."""
    values = np.log2(WIDTHS)
    share = 1 / (1 + np.exp(-3 * (values - np.log2(5))))
    found = half_point(values, 1000 * share, np.full(len(values), 1000.0))
    assert 2**found.value == pytest.approx(5, rel=0.03)
    assert found.low < np.log2(5) < found.high
    assert 2 ** (found.high - found.low) < 1.15


def test_bands_cover_the_true_point_about_as_often_as_they_say():
    """Between 180 and 200 of 200 draws with five seeds each are covered."""
    generator, values = np.random.default_rng(0), np.log2(WIDTHS)
    n_covered = 0
    for _ in range(200):
        true = generator.uniform(np.log2(2.5), np.log2(10))
        solved = generator.binomial(5, 1 / (1 + np.exp(-4 * (values - true))))
        found = half_point(values, solved.astype(float), np.full(len(values), 5.0))
        n_covered += found.low <= true <= found.high
    assert 180 <= n_covered <= 200


def test_separated_runs_have_a_band_that_covers_the_gap():
    """Between the last width that fails and the first that succeeds nothing is known."""
    values, solved = np.log2(WIDTHS), np.array([0, 0, 0, 0, 5, 5, 5, 5.0])
    found = half_point(values, solved, np.full(8, 5.0))
    assert 4 < 2**found.value < 6
    assert 3 < 2**found.low < 4.5
    assert 5.5 < 2**found.high < 8


def test_points_outside_of_the_values_are_not_extrapolated():
    """If nobody or everybody succeeds, only one limit is known."""
    for solved, value in ((0.0, math.inf), (5.0, -math.inf)):
        found = half_point(np.log2(WIDTHS), np.full(8, solved), np.full(8, 5.0))
        assert found.value == value
        assert math.isinf(found.low) != math.isinf(found.high)


def test_a_falling_axis_is_the_mirror_of_a_rising_one():
    """The point and its limits change sign with the values."""
    values, solved = np.arange(8.0), np.array([0, 0, 1, 2, 4, 5, 5, 5.0])
    rising = half_point(values, solved, np.full(8, 5.0))
    falling = half_point(-values[::-1], solved[::-1], np.full(8, 5.0), rises=False)
    assert falling.value == pytest.approx(-rising.value, abs=0.1)
    assert falling.low == pytest.approx(-rising.high, abs=0.1)


def test_a_boundary_has_a_point_at_every_value_of_the_other_axis():
    """In the order of the sweep, between widths that fail and succeed; the same every time."""
    found, again = (boundary(SEPARATED, "K=V", X, Y) for _ in range(2))
    assert found.at == list(ENTRIES)
    assert found.rises
    assert ((found.half > 4) & (found.half < 6)).all()
    assert ((found.low < found.half) & (found.half < found.high)).all()
    assert np.array_equal(found.low, again.low)


def test_there_is_no_boundary_where_nothing_separates_runs():
    """If all or none of them solve the task, along texts, or at the one value of a sweep begun."""
    for chance in (0.0, 1.0):
        assert boundary(made_sweep(lambda sharing, point, c=chance: c), "QKV", X, Y) is None
    result = made_sweep(
        lambda sharing, point: float(point["positions"] == "none"),
        axes={"positions": ("none", "learned"), Y: ENTRIES},
    )
    assert boundary(result, "QKV", "positions", Y) is None
    whole = made_sweep(lambda sharing, point: float(point[Y] <= 4))
    begun = SweepResult(whole.sweep, whole.runs[whole.runs[X] == 8].reset_index(drop=True))
    assert boundary(begun, "QKV", X, Y) is None


def test_missing_and_failed_cells_are_left_out():
    """The boundary of a row comes from the cells that it has."""
    result = failed(without(SEPARATED, d_head=12, n_entries=4), d_head=8, n_entries=8)
    whole, part = (boundary(each, "K=V", X, Y) for each in (SEPARATED, result))
    assert part.at == whole.at
    assert part.half == pytest.approx(whole.half, rel=0.1)


def test_a_row_with_a_single_cell_has_no_boundary():
    """The other rows keep theirs."""
    runs = SEPARATED.runs
    result = SweepResult(SEPARATED.sweep, runs[(runs[Y] != 4) | (runs[X] == 3)])
    assert boundary(result, "K=V", X, Y).at == [2, 8, 16]


def test_an_axis_along_which_the_task_becomes_harder_has_a_boundary():
    """It is the largest number of entries that half of the seeds solve."""
    result = made_sweep(lambda sharing, point: float(point[Y] <= point[X]))
    found = boundary(result, "QKV", Y, X)
    assert not found.rises
    at = found.at.index(6)
    assert 4 < found.half[at] < 8


def test_a_boundary_at_texts_of_the_other_axis():
    """Each text has its own."""
    result = made_sweep(
        lambda sharing, point: float(point[X] >= (3 if point["positions"] == "none" else 8)),
        axes={X: WIDTHS, "positions": ("none", "learned")},
    )
    found = boundary(result, "QKV", X, "positions")
    assert found.at == ["none", "learned"]
    assert found.half[0] < 3 < 6 < found.half[1]


def test_a_sweep_with_one_axis_has_a_boundary_of_one_point():
    """There is no other axis."""
    result = made_sweep(from_width(QKV=3, KV=6), axes={X: WIDTHS})
    found = boundary(result, "QKV", X)
    assert len(found.half) == 1
    assert 2 < found.half[0] < 3


def test_an_axis_with_zero_has_a_boundary_without_ratios():
    """Its values have no logarithms."""
    result = made_sweep(
        lambda sharing, point: float(point["d_mlp"] >= 16),
        axes={"d_mlp": (0, 8, 16, 32), Y: ENTRIES},
    )
    found = boundary(result, "QKV", "d_mlp", Y)
    assert ((found.half > 8) & (found.half < 16)).all()
    assert not found.has_ratios
    assert mean_ratio(found, found).n_compared == 0


def test_the_smallest_width_is_that_from_which_on_all_seeds_succeed():
    """Failures at wider heads count: the answer is the raw one of the grid."""
    table = smallest(SEPARATED, "K=V", X, Y)
    assert table["smallest"].tolist() == [6] * 4
    assert table["below"].tolist() == [4] * 4
    runs = SEPARATED.runs.copy()
    late = (runs["sharing"] == "K=V") & (runs[X] == 8) & (runs[Y] == 4) & (runs["seed"] == 0)
    runs.loc[late, "steps_to_threshold"] = math.nan
    result = SweepResult(SEPARATED.sweep, runs)
    assert smallest(result, "K=V", X, Y)["smallest"].tolist() == [6, 12, 6, 6]
    assert smallest(result, "K=V", X, Y, share=0.8)["smallest"].tolist() == [6] * 4


def test_no_width_is_the_smallest_if_the_widest_fails():
    """It is infinite then, and there is none below the first."""
    table = smallest(made_sweep(from_width(QKV=1, KV=99)), "K=V", X, Y)
    assert table["smallest"].tolist() == [math.inf] * 4
    assert table["below"].tolist() == [16] * 4
    table = smallest(made_sweep(from_width(QKV=1, KV=99)), "QKV", X, Y)
    assert table["below"].isna().all()


def test_ratios_are_found_with_their_intervals():
    """K=V needs heads twice as wide, whatever the number of entries."""
    result = made_sweep(logistic({"QKV": 3, "K=V": 6, "Q=K": 3}), sharing=("QKV", "K=V", "Q=K"))
    table = ratios(result, X, Y).set_index("sharing")
    assert table.loc["K=V", "low"] < 2 < table.loc["K=V", "high"]
    assert table.loc["K=V", "low"] > 1.5
    assert table.loc["Q=K", "low"] < 1 < table.loc["Q=K", "high"]
    assert table["n_compared"].tolist() == [4, 4]


def test_intervals_of_ratios_cover_the_true_ratio():
    """In at least 27 of 30 sweeps: runs are independent, as the intervals suppose."""
    n_covered = 0
    for seed in range(30):
        result = made_sweep(logistic({"QKV": 3, "K=V": 6}), seed=seed, axes={X: WIDTHS, Y: (2, 8)})
        row = ratios(result, X, Y).iloc[0]
        n_covered += row["low"] <= 2 <= row["high"]
    assert n_covered >= 27


def test_a_ratio_and_its_inverse_agree():
    """The baseline can be any variant."""
    result = made_sweep(logistic({"QKV": 3, "K=V": 6}))
    a = ratios(result, X, Y).iloc[0]
    b = ratios(result, X, Y, baseline="K=V").iloc[0]
    assert a["ratio"] == pytest.approx(1 / b["ratio"])
    assert a["low"] == pytest.approx(1 / b["high"])


def test_there_is_no_ratio_to_a_variant_that_is_not_there():
    """Rows are kept, without numbers."""
    table = ratios(SEPARATED, X, Y, baseline="Q=V")
    assert table["ratio"].isna().all()
    assert table["sharing"].tolist() == ["QKV", "K=V"]


FIVE = ("QKV", "Q=K", "K=V", "Q=V", "Q=K=V")


def concluded(result, *axes):
    """Return the conclusion of a sweep of the phone book, without the name of the task."""
    text = conclusion(result, *axes).text
    assert text.startswith("On “Phone book”: ")
    return text.removeprefix("On “Phone book”: ")


def test_the_conclusion_names_the_variant_that_needs_the_widest_heads():
    """With the ratio to QKV and its interval; others follow, then those that do not differ."""
    widths = {"QKV": 3, "Q=K": 3, "K=V": 6, "Q=V": 4, "Q=K=V": 12}
    result = made_sweep(lambda sharing, point: float(point[X] >= widths[sharing]), sharing=FIVE)
    text = concluded(result, X, Y)
    assert re.match(
        r"Q=K=V needs the widest heads: about 4\.0 times as wide as QKV \(95% interval \d\.\d to "
        r"\d\.\d times\)\. K=V needs heads about 2\.0 times as wide as QKV \(.* times\), Q=V 1\.\d "
        r"times \(.*\)\. Not clearly different from QKV: Q=K \(1\.0 times, .*\)\.$",
        text,
    )


def concluded_of(**needed):
    """Return the conclusion of a sweep in which variants need these head widths."""
    widths = {name.replace("_", "="): width for name, width in needed.items()}
    solves = made_sweep(
        lambda sharing, point: float(point[X] >= widths[sharing]), sharing=tuple(widths)
    )
    return concluded(solves, X, Y)


def test_no_variant_needs_the_widest_heads_if_two_do_not_differ():
    """Both ratios are still there; what never solves the task is named first."""
    text = concluded_of(QKV=3, K_V=6, Q_V=6)
    assert "widest" not in text
    assert re.match(r"K=V needs heads about 2\.0 times as wide as QKV \(.*\), Q=V 2\.0 times", text)
    text = concluded_of(QKV=3, K_V=6, Q_V=math.inf)
    assert text.startswith("Q=V never solves the task here. K=V needs heads")
    assert "widest" not in text


def test_variants_that_always_solve_the_task_are_named():
    """They have no boundary."""
    result = made_sweep(from_width(QKV=1, KV=6))
    text = concluded(result, X, Y)
    assert text.endswith("QKV solves the task in every run.")
    assert "Half of the seeds of K=V" in text


def test_without_boundaries_the_conclusion_is_the_share_of_runs():
    """If all or none of the runs solve the task, and along an axis of texts."""
    for chance, share in ((0.0, "0%"), (1.0, "100%")):
        text = concluded(made_sweep(lambda sharing, point, c=chance: c), X, Y)
        assert text == f"Share of the runs that solve the task: QKV {share}, K=V {share}."
    result = made_sweep(
        lambda sharing, point: float(point["positions"] == "none"),
        axes={"positions": ("none", "learned")},
    )
    expected = "Share of the runs that solve the task: QKV 50%, K=V 50%."
    assert concluded(result, "positions") == expected


def test_one_variant_is_described_by_its_boundary():
    """There is nothing to compare it with; without QKV another variant is the baseline."""
    text = concluded_of(QKV=3)
    assert text == "Half of the seeds of QKV solve the task at “Head width” 2.5 or more."
    begins = "K=V needs the widest heads: about 4.0 times as wide as Q=K"
    assert concluded_of(Q_K=3, K_V=12).startswith(begins)


def test_a_sentence_names_few_of_many_variants():
    """The others are counted."""
    others = [f"QKV d_mlp={4 * k}" for k in range(1, 9)]
    result = made_sweep(
        lambda sharing, point: float(point[X] >= (3 if sharing == "QKV" else 8)),
        sharing=("QKV", *others),
    )
    text = concluded(result, X, Y)
    assert text.count("times (") == 3
    assert text.endswith("4 others.")


def test_rows_that_ratios_leave_out_are_named():
    """K=V does not solve large tasks at any width."""

    def solves(sharing, point):
        return float(point[X] >= 3 and (sharing == "QKV" or (point[X] >= 6 and point[Y] <= 4)))

    result = made_sweep(solves)
    text = concluded(result, X, Y)
    assert text.endswith(
        "Values of “Entries” where the boundary lies outside of the values of “Head width” are not "
        "counted: K=V at 8 and 16."
    )


def test_a_variant_that_fails_more_rows_is_not_less_demanding():
    """Q=V needs wider heads where it succeeds, but K=V fails at most numbers of entries."""

    def solves(sharing, point):
        widths = {"QKV": 2, "Q=V": 8, "K=V": 3 if point[Y] == 2 else 99}
        return float(point[X] >= widths[sharing])

    result = made_sweep(solves, sharing=("QKV", "K=V", "Q=V"))
    assert "widest" not in concluded(result, X, Y)


def test_an_axis_that_makes_the_task_harder_is_told_the_other_way_round():
    """The variant with the lowest boundary fails first."""
    most = {"QKV": 16, "K=V": 4}
    result = made_sweep(
        lambda sharing, point: float(point[Y] <= most[sharing]),
        axes={Y: (2, 4, 8, 16, 32), X: (4, 8)},
    )
    text = concluded(result, Y, X)
    assert text.startswith("K=V fails first as “Entries” grows: at about 0.25 times the value of ")


def test_nothing_is_concluded_from_nothing():
    """A sweep that has just begun has no runs."""
    result = SweepResult(SEPARATED.sweep, SEPARATED.runs[:0])
    assert conclusion(result, X, Y).text == "Nothing has been trained here yet."


def test_settings_have_their_labels():
    """Labels of all tasks are known; a name that is no setting stays as it is."""
    assert label_of("d_head") == "Head width"
    assert label_of("n_hops") == "Hops"
    assert label_of("task") == "Task"
    assert label_of("nothing_like_it") == "nothing_like_it"
