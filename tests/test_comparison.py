"""Finished experiments beside each other: every number by hand, and what holds for all."""

import csv
import io
import json
import math

import numpy as np
import pandas as pd
import pytest
from finished import THREE_SEEDS, finished, letters, one_variant
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kinds import tiny
from scipy import stats

from attnkit.analysis.comparison import (
    ABSENT,
    differences_between,
    differences_within,
    evaluation_table,
    n_evaluations,
    settings_table,
    summary_table,
    to_json,
    variants_of,
)
from attnkit.training.snapshot import METRICS
from attnkit.variants import Variant

QKV = Variant("QKV")


def test_last_is_the_mean_of_the_seeds_with_students_interval():
    """Mean 0.7; deviations −0.2, −0.1, 0.3, so that SD² is 0.14 / 2; t of 2 degrees is 4.303."""
    row = summary_table(letters(one_variant(THREE_SEEDS)), "accuracy").iloc[0]
    assert row["last"] == pytest.approx(0.7)
    assert row["sd"] == pytest.approx(math.sqrt(0.07))
    half = stats.t.ppf(0.975, 2) * math.sqrt(0.07 / 3)
    assert (row["low"], row["high"]) == pytest.approx((0.7 - half, 0.7 + half))


def test_best_is_of_any_seed_and_evaluation_and_mean_of_all():
    """Best 1.0; the seeds' means over training are 1.4/3, 1.2/3 and 1.8/3.

    The best loss is the lowest; losses are 1 − accuracy here.
    """
    row = summary_table(letters(one_variant(THREE_SEEDS)), "accuracy").iloc[0]
    assert row["best"] == 1.0
    assert row["mean"] == pytest.approx((1.4 + 1.2 + 1.8) / 9)
    row = summary_table(letters(one_variant(THREE_SEEDS)), "loss").iloc[0]
    assert row["best"] == 0.0
    assert row["last"] == pytest.approx(0.3)


def test_diverged_seeds_are_counted_and_left_out_of_all_else():
    """Not even the best evaluation of a seed that diverged later is told."""
    accuracy = np.array([[0.1, 0.2], [0.9, 0.3], [np.nan, 0.4]])
    experiment = tiny("directed", sharing=["QKV"], n_seeds=2)
    snapshot = finished(experiment, accuracy[:, None], diverged_at=[[8, -1]])
    row = summary_table(letters(snapshot), "accuracy").iloc[0]
    assert row["diverged"] == 1
    assert row["best"] == row["last"] == pytest.approx(0.4)
    assert row["mean"] == pytest.approx(0.3)
    assert np.isnan(row["sd"])


def test_a_variant_that_diverged_with_every_seed_has_no_numbers():
    """Missing, not zero, and no warning on the way."""
    experiment = tiny("directed", sharing=["QKV"], n_seeds=2)
    lost = finished(experiment, [[[0.1, 0.2]], [[np.nan, np.nan]]], diverged_at=[[8, 8]])
    row = summary_table(letters(lost), "accuracy").iloc[0]
    assert row[["last", "low", "high", "sd", "mean", "best"]].isna().all()


def test_steps_to_threshold_are_of_the_solved_seeds_only():
    """Seed 0 is at the threshold from step 2 on, seed 1 never."""
    accuracy = [[0.1, 0.1], [1, 0.5], [1, 0.5], [1, 0.9], [1, 0.9]]
    row = summary_table(letters(one_variant(accuracy)), "accuracy").iloc[0]
    assert (row["solved"], row["seeds"], row["steps_to_threshold"]) == (1, 2, 2)


def test_only_evaluations_of_what_a_variant_becomes_count():
    """Before it is tied at step 4 it is another model, however good."""
    experiment = tiny("directed", sharing=["QKV tie=K=V tie_at=0.5"], n_seeds=1)
    assert experiment.tie_step(experiment.sharing[0]) == 4
    snapshot = finished(experiment, np.array([0.1, 0.9, 0.3, 0.5, 0.4])[:, None, None])
    row = summary_table(letters(snapshot), "accuracy").iloc[0]
    assert row["best"] == pytest.approx(0.5)
    assert row["mean"] == pytest.approx(0.4)


def test_settings_that_differ_are_told_and_no_others():
    """Width and steps differ; a dial that the other task lacks differs, too."""
    first = one_variant([[0.1], [0.2]], d_head=3)
    other = one_variant([[0.1], [0.2]], d_head=5, steps=12, self_mask=False)
    table = settings_table(letters(first, other)).set_index("Setting")
    assert table["A"].to_dict() == {"Head width": "3", "Self-mask": "yes", "Steps": "8"}
    assert table["B"].to_dict() == {"Head width": "5", "Self-mask": "no", "Steps": "12"}
    foreign = one_variant([[0.1], [0.2]], kind="reverse")
    told = settings_table(letters(first, foreign)).set_index("Setting")
    assert told.loc["Task"].tolist() == ["Directed relation", "Reverse"]
    assert ABSENT in told["A"].tolist()
    assert ABSENT in told["B"].tolist()


def test_a_single_experiment_is_told_by_what_is_not_default():
    """With the default beside it."""
    table = settings_table(letters(one_variant([[0.1], [0.2]], d_head=3))).set_index("Setting")
    assert list(table.columns) == ["A", "Default"]
    assert table.loc["Variants", "A"] == "QKV"
    assert table.loc["Steps", "A"] == "8"


def test_variants_are_those_of_any_in_order():
    """The first that has one decides its place."""
    first = finished(tiny("directed", sharing=["Q=K", "QKV"], n_seeds=1), np.zeros((2, 2, 1)))
    other = finished(tiny("directed", sharing=["K=V", "QKV"], n_seeds=1), np.zeros((2, 2, 1)))
    known = variants_of(letters(first, other))
    assert known == [*first.experiment.sharing, Variant("K=V")]


def test_variants_are_paired_by_seed_within_an_experiment():
    """Gaps −0.1, −0.3, −0.2: mean −0.2, SD 0.1, whatever the seeds themselves spread."""
    qkv, tied = np.array([0.3, 0.9, 0.6]), np.array([0.2, 0.6, 0.4])
    experiment = tiny("directed", sharing=["QKV", "Q=K"], n_seeds=3)
    compared = letters(finished(experiment, np.stack([qkv, tied])[None]))
    row = differences_within(compared, QKV, "accuracy").iloc[0]
    half = stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert (row["sharing"], row["n_pairs"]) == ("Q=K", 3)
    assert row["difference"] == pytest.approx(-0.2)
    assert (row["low"], row["high"]) == pytest.approx((-0.2 - half, -0.2 + half), abs=1e-6)
    assert differences_within(compared, Variant("K=V"), "accuracy").empty


def test_experiments_are_paired_over_the_seeds_that_both_have():
    """Seeds 3, 4, 5, 6, 7 and 5, 6, 7: gaps 0.1, 0.2, 0.3 for the common ones."""
    first = one_variant([[0.9, 0.9, 0.1, 0.2, 0.3]], first_seed=3)
    other = one_variant([[0.2, 0.4, 0.6]], first_seed=5)
    first, other = letters(first, other)
    row = differences_between([first, other], first, "accuracy").iloc[0]
    assert (row["experiment"], row["n_pairs"]) == ("B", 3)
    assert row["difference"] == pytest.approx(0.2)
    back = differences_between([first, other], other, "accuracy").iloc[0]
    assert back["difference"] == pytest.approx(-0.2)


def test_without_common_seeds_or_task_there_are_no_pairs():
    """No number is made up; a single pair has no interval, and a seed that diverged is no pair."""
    values = ["difference", "low", "high"]
    for settings in ({"first_seed": 7}, {"kind": "reverse"}):
        first, other = letters(one_variant([[0.1, 0.2]]), one_variant([[0.2, 0.4]], **settings))
        row = differences_between([first, other], first, "accuracy").iloc[0]
        assert row["n_pairs"] == 0
        assert row[values].isna().all()
    for lost, n_pairs, gap in ((1, 2, 0.05), (slice(1, 3), 1, 0.1)):
        accuracy = np.array([[0.2, 0.2, 0.3]])
        accuracy[0, lost] = np.nan
        first, other = letters(one_variant([[0.1, 0.2, 0.3]]), one_variant(accuracy))
        row = differences_between([first, other], first, "accuracy").iloc[0]
        assert (row["n_pairs"], row["difference"]) == (n_pairs, pytest.approx(gap))
        assert np.isnan(row["low"]) == (n_pairs == 1)


SHARES = st.floats(0, 1, width=32)


@given(hnp.arrays(np.float32, (2, 5), elements=SHARES), st.integers(0, 7))
def test_differences_turn_their_sign_with_the_sides(last, first_seed):
    """A minus B is −(B minus A), over the same pairs, for every offset of the seeds."""
    first, other = letters(one_variant(last[:1]), one_variant(last[1:], first_seed=first_seed))
    there = differences_between([first, other], first, "accuracy").iloc[0]
    back = differences_between([first, other], other, "accuracy").iloc[0]
    assert there["n_pairs"] == back["n_pairs"] == max(0, 5 - first_seed)
    np.testing.assert_allclose(there["difference"], -back["difference"], atol=1e-12)
    np.testing.assert_allclose(there["low"], -back["high"], atol=1e-12)


@given(hnp.arrays(np.float32, (3, 5), elements=SHARES), st.permutations(range(5)))
def test_the_order_of_seeds_changes_no_summary(values, order):
    """Statistics over seeds know no order; limits enclose the mean; best is at least last."""
    given_order = summary_table(letters(one_variant(values)), "accuracy")
    other_order = summary_table(letters(one_variant(values[:, order])), "accuracy")
    pd.testing.assert_frame_equal(given_order, other_order, rtol=1e-9, atol=1e-12)
    row = given_order.iloc[0]
    assert row["low"] <= row["last"] <= row["high"]
    assert row["best"] >= row["last"] - 1e-6


@given(hnp.arrays(np.float32, (7, 2, 3), elements=st.floats(0, 1, width=32) | st.just(np.nan)))
def test_raw_data_as_csv_are_every_number_to_the_last_bit(accuracy):
    """Nothing is thinned or rounded: the file read back is the history."""
    experiment = tiny("directed", sharing=["QKV", "Q=K"], n_seeds=3, first_seed=11)
    compared = letters(finished(experiment, accuracy))
    text = evaluation_table(compared).to_csv(index=False)
    back = list(csv.DictReader(io.StringIO(text)))
    assert len(back) == n_evaluations(compared) == 7 * 6
    for run, (variant, seed) in enumerate(experiment.runs):
        rows = [row for row in back if (row["sharing"], row["seed"]) == (variant.value, str(seed))]
        assert [int(row["step"]) for row in rows] == compared[0].snapshot.eval_steps.tolist()
        found = np.array([row["accuracy"] or "nan" for row in rows], np.float32)
        np.testing.assert_array_equal(found, accuracy.reshape(7, 6)[:, run])


def test_raw_data_tell_the_settings_that_differ():
    """A column each, so that rows of several experiments can be told apart and grouped."""
    first, other = one_variant([[0.1], [0.2]], d_head=3), one_variant([[0.1], [0.2]], d_head=5)
    table = evaluation_table(letters(first, other))
    assert table.groupby("experiment")["d_head"].first().to_dict() == {
        first.experiment.hash: 3,
        other.experiment.hash: 5,
    }
    assert not {"n_values", "steps", "n_seeds"} & set(table.columns)
    assert set(METRICS) <= set(table.columns)


def test_json_holds_settings_runs_and_every_evaluation():
    """What a program needs, strictly JSON: null where a number is missing."""
    compared = letters(one_variant([[0.25, np.nan], [0.5, np.nan]], first_seed=3))
    told = json.loads(to_json(compared), parse_constant=pytest.fail)["experiments"]
    assert told[0]["name"] == "name A"
    assert told[0]["experiment"]["first_seed"] == 3
    assert told[0]["eval_steps"] == [0, 8]
    assert [run["history"]["accuracy"] for run in told[0]["runs"]] == [[0.25, 0.5], [None, None]]
