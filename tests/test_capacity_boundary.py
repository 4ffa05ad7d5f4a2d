"""Boundaries of variants: known ones are found, bands cover them, and sentences stay true."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sweeps import ENTRIES, WIDTHS, failed, from_width, logistic, made_sweep, without
from searching import briefly

from attnkit.analysis.boundary import boundary, mean_ratio, ratios, smallest
from attnkit.analysis.conclusion import conclusion, label_of
from attnkit.analysis.logistic import half_point
from attnkit.sweeps import SweepResult

X, Y = "d_head", "n_entries"
SEPARATED = made_sweep(from_width(QKV=3, KV=6))
FIVE = np.full(8, 5.0)


def wider(**needed):
    """Return a sweep whose variants, without "=", solve the task from a head width on."""
    names = tuple(name.replace("_", "=") for name in needed)
    widths = dict(zip(names, needed.values(), strict=True))
    return made_sweep(lambda sharing, point: float(point[X] >= widths[sharing]), sharing=names)


def test_a_known_half_point_is_found_and_its_band_covers_what_is_not_known():
    """From many runs to within a few percent.

    Separated runs leave a gap between the last width that fails and the first that succeeds;
    beyond all values only one limit is known.
    """
    values = np.log2(WIDTHS)
    share = 1 / (1 + np.exp(-3 * (values - np.log2(5))))
    found = half_point(values, 1000 * share, np.full(len(values), 1000.0))
    assert 2**found.value == pytest.approx(5, rel=0.03)
    assert found.low < np.log2(5) < found.high
    assert 2 ** (found.high - found.low) < 1.15
    found = half_point(values, np.repeat([0, 5.0], 4), FIVE)
    assert 4 < 2**found.value < 6
    assert 3 < 2**found.low < 4.5
    assert 5.5 < 2**found.high < 8
    for solved, value in ((0.0, math.inf), (5.0, -math.inf)):
        found = half_point(values, np.full(8, solved), FIVE)
        assert found.value == value
        assert math.isinf(found.low) != math.isinf(found.high)


def test_bands_cover_the_true_point_about_as_often_as_they_say():
    """Between 180 and 200 of 200 draws with five seeds each are covered."""
    generator, values = np.random.default_rng(0), np.log2(WIDTHS)
    n_covered = 0
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
    """In the order of the sweep, between widths that fail and succeed; the same every time.

    Missing and failed cells are left out, and so are rows with a single cell.
    """
    found, again = (boundary(SEPARATED, "K=V", X, Y) for _ in range(2))
    assert found.at == list(ENTRIES)
    assert found.rises
    assert ((found.half > 4) & (found.half < 6)).all()
    assert ((found.low < found.half) & (found.half < found.high)).all()
    assert np.array_equal(found.low, again.low)
    holed = failed(without(SEPARATED, d_head=12, n_entries=4), d_head=8, n_entries=8)
    part = boundary(holed, "K=V", X, Y)
    assert part.at == found.at
    assert part.half == pytest.approx(found.half, rel=0.1)
    runs = SEPARATED.runs
    single = SweepResult(SEPARATED.sweep, runs[(runs[Y] != 4) | (runs[X] == 3)])
    assert boundary(single, "K=V", X, Y).at == [2, 8, 16]


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
    zero = made_sweep(
        lambda sharing, point: float(point["d_mlp"] >= 16),
        axes={"d_mlp": (0, 8, 16, 32), Y: ENTRIES},
    )
    found = boundary(zero, "QKV", "d_mlp", Y)
    assert ((found.half > 8) & (found.half < 16)).all()
    assert not found.has_ratios
    assert mean_ratio(found, found).n_compared == 0


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


def test_the_smallest_width_is_that_from_which_on_all_seeds_succeed():
    """Failures at wider heads count; infinite if the widest fails, with none below the first."""
    table = smallest(SEPARATED, "K=V", X, Y)
    assert table["smallest"].tolist() == [6] * 4
    assert table["below"].tolist() == [4] * 4
    runs = SEPARATED.runs.copy()
    late = (runs["sharing"] == "K=V") & (runs[X] == 8) & (runs[Y] == 4) & (runs["seed"] == 0)
    runs.loc[late, "steps_to_threshold"] = math.nan
    result = SweepResult(SEPARATED.sweep, runs)
    assert smallest(result, "K=V", X, Y)["smallest"].tolist() == [6, 12, 6, 6]
    assert smallest(result, "K=V", X, Y, share=0.8)["smallest"].tolist() == [6] * 4
    extreme = made_sweep(from_width(QKV=1, KV=99))
    table = smallest(extreme, "K=V", X, Y)
    assert table["smallest"].tolist() == [math.inf] * 4
    assert table["below"].tolist() == [16] * 4
    assert smallest(extreme, "QKV", X, Y)["below"].isna().all()


def test_ratios_are_found_with_their_intervals_against_any_baseline():
    """K=V needs heads twice as wide, whatever the number of entries.

    There is none to a variant that is not there: rows are kept, without numbers.
    """
    result = made_sweep(logistic({"QKV": 3, "K=V": 6, "Q=K": 3}), sharing=("QKV", "K=V", "Q=K"))
    table = ratios(result, X, Y).set_index("sharing")
    assert 1.5 < table.loc["K=V", "low"] < 2 < table.loc["K=V", "high"]
    assert table.loc["Q=K", "low"] < 1 < table.loc["Q=K", "high"]
    assert table["n_compared"].tolist() == [4, 4]
    there, back = table.loc["K=V"], ratios(result, X, Y, baseline="K=V").iloc[0]
    assert there["ratio"] == pytest.approx(1 / back["ratio"])
    assert there["low"] == pytest.approx(1 / back["high"])
    table = ratios(SEPARATED, X, Y, baseline="Q=V")
    assert table["ratio"].isna().all()
    assert table["sharing"].tolist() == ["QKV", "K=V"]


def test_intervals_of_ratios_cover_the_true_ratio():
    """In at least 27 of 30 sweeps: runs are independent, as the intervals suppose."""
    n_covered = 0
    for seed in range(30):
        result = made_sweep(logistic({"QKV": 3, "K=V": 6}), seed=seed, axes={X: WIDTHS, Y: (2, 8)})
        row = ratios(result, X, Y).iloc[0]
        n_covered += row["low"] <= 2 <= row["high"]
    assert n_covered >= 27


# sentences


def concluded(result, *axes):
    """Return the conclusion of a sweep of the phone book, without the name of the task."""
    text = conclusion(result, *(axes or (X, Y))).text
    assert text.startswith("On “Phone book”: ")
    return text.removeprefix("On “Phone book”: ")


TEXTS = made_sweep(
    lambda sharing, point: float(point["positions"] == "none"),
    axes={"positions": ("none", "learned")},
)
FALLING = made_sweep(
    lambda sharing, point: float(point[Y] <= {"QKV": 16, "K=V": 4}[sharing]),
    axes={Y: (2, 4, 8, 16, 32), X: (4, 8)},
)
CONCLUSIONS = [  # the sweep, its axes, and a pattern of the whole conclusion
    (  # with the ratio to QKV and its interval; others follow, then those that do not differ
        wider(**{"QKV": 3, "Q_K": 3, "K_V": 6, "Q_V": 4, "Q_K_V": 12}),
        (),
        r"Q=K=V needs the widest heads: about 4\.0 times as wide as QKV \(95% interval \d\.\d to "
        r"\d\.\d times\)\. K=V needs heads about 2\.0 times as wide as QKV \(.* times\), Q=V 1\.\d "
        r"times \(.*\)\. Not clearly different from QKV: Q=K \(1\.0 times, .*\)\.",
    ),
    (  # two that do not differ: neither needs the widest
        wider(QKV=3, K_V=6, Q_V=6),
        (),
        r"K=V needs heads about 2\.0 times as wide as QKV \([^)]*\), Q=V 2\.0 times \([^)]*\)\.",
    ),
    (
        wider(QKV=3, K_V=6, Q_V=math.inf),
        (),
        r"Q=V never solves the task here\. K=V needs heads about .*",
    ),
    (wider(Q_K=3, K_V=12), (), "K=V needs the widest heads: about 4.0 times as wide as Q=K .*"),
    (wider(QKV=3), (), "Half of the seeds of QKV solve the task at “Head width” 2.5 or more."),
    (wider(QKV=1, K_V=6), (), ".*Half of the seeds of K=V.* QKV solves the task in every run."),
    (
        made_sweep(lambda *_: 0.0),
        (),
        "Share of the runs that solve the task: QKV 0%, K=V 0%.",
    ),
    (
        made_sweep(lambda *_: 1.0),
        (),
        "Share of the runs that solve the task: QKV 100%, K=V 100%.",
    ),
    (TEXTS, ("positions",), "Share of the runs that solve the task: QKV 50%, K=V 50%."),
    (FALLING, (Y, X), "K=V fails first as “Entries” grows: at about 0.25 times the value of .*"),
]


def test_the_conclusion_says_which_variant_needs_the_most_and_by_how_much():
    """Only what is clear; what always or never solves the task is named, with no boundary."""
    for result, axes, pattern in CONCLUSIONS:
        text = concluded(result, *axes)
        assert re.fullmatch(pattern, text), text
        assert ("widest" in text) == ("widest" in pattern), text
    nothing = SweepResult(SEPARATED.sweep, SEPARATED.runs[:0])
    assert conclusion(nothing, X, Y).text == "Nothing has been trained here yet."


def test_a_sentence_names_few_of_many_variants_and_the_rows_that_ratios_leave_out():
    """The others are counted. A variant that fails more rows is not less demanding."""
    others = [f"QKV d_mlp={4 * k}" for k in range(1, 9)]
    text = concluded(
        made_sweep(
            lambda sharing, point: float(point[X] >= (3 if sharing == "QKV" else 8)),
            sharing=("QKV", *others),
        )
    )
    assert text.count("times (") == 3
    assert text.endswith("4 others.")

    def solves(sharing, point):
        return float(point[X] >= 3 and (sharing == "QKV" or (point[X] >= 6 and point[Y] <= 4)))

    assert concluded(made_sweep(solves)).endswith(
        "Values of “Entries” where the boundary lies outside of the values of “Head width” are not "
        "counted: K=V at 8 and 16."
    )

    def solves_few(sharing, point):
        widths = {"QKV": 2, "Q=V": 8, "K=V": 3 if point[Y] == 2 else 99}
        return float(point[X] >= widths[sharing])

    assert "widest" not in concluded(made_sweep(solves_few, sharing=("QKV", "K=V", "Q=V")))


def test_settings_have_their_labels():
    """Labels of all tasks are known; a name that is no setting stays as it is."""
    labels = {"d_head": "Head width", "n_hops": "Hops", "task": "Task", "no_such": "no_such"}
    assert {name: label_of(name) for name in labels} == labels
