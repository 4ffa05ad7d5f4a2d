"""Finished experiments beside each other: tables against scipy and by hand, and raw data."""

import csv
import io
import json

import numpy as np
import pytest
from finished import finished, letters, one_variant
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kinds import tiny
from searching import briefly
from test_statistics import expected_of

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
from attnkit.training.metrics import METRICS
from attnkit.variants import Variant

QKV = Variant("QKV")
SHARES = st.floats(0, 1, width=32)


def close(values):
    """Return what numbers of single precision are compared with."""
    return pytest.approx(values, abs=1e-6, nan_ok=True)


@given(hnp.arrays(np.float32, (3, 5), elements=SHARES), st.sets(st.integers(0, 4)))
@briefly(40)
def test_a_summary_has_the_statistics_of_the_seeds_that_did_not_diverge(values, lost):
    """The last evaluation, the mean over training and the best leave diverged seeds out."""
    diverged_at = [[8 if seed in lost else -1 for seed in range(5)]]
    values[2, list(lost)] = np.nan
    experiment = tiny("directed", sharing=["QKV"], n_seeds=5)
    snapshot = finished(experiment, values[:, None], diverged_at=diverged_at)
    kept = np.delete(values, list(lost), axis=1)
    for metric, of, best in (("accuracy", kept, np.max), ("loss", 1 - kept, np.min)):
        row = summary_table(letters(snapshot), metric).iloc[0]
        assert (row["seeds"], row["diverged"]) == (5, len(lost))
        expected = expected_of(of[2].astype(float))
        assert row[["last", "low", "high", "sd"]].tolist() == close(expected)
        over_training = [of.mean(), best(of)] if of.size else [np.nan, np.nan]
        assert row[["mean", "best"]].tolist() == close(over_training)


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
    assert row[["best", "mean"]].tolist() == close([0.5, 0.4])


def test_settings_that_differ_are_told_and_no_others():
    """A dial that the other task lacks differs, too; one alone is told beside the defaults."""
    first = one_variant([[0.1], [0.2]], d_head=3)
    other = one_variant([[0.1], [0.2]], d_head=5, steps=12, self_mask=False)
    table = settings_table(letters(first, other)).set_index("Setting")
    assert table["A"].to_dict() == {"Head width": "3", "Self-mask": "yes", "Steps": "8"}
    assert table["B"].to_dict() == {"Head width": "5", "Self-mask": "no", "Steps": "12"}
    foreign = one_variant([[0.1], [0.2]], kind="reverse")
    told = settings_table(letters(first, foreign)).set_index("Setting")
    assert told.loc["Task"].tolist() == ["Directed relation", "Reverse"]
    assert all(ABSENT in told[letter].tolist() for letter in "AB")
    table = settings_table(letters(first)).set_index("Setting")
    assert list(table.columns) == ["A", "Default"]
    assert table.loc[["Variants", "Steps"], "A"].tolist() == ["QKV", "8"]
    pairs = [["Q=K", "QKV"], ["K=V", "QKV"]]
    both = [finished(tiny("directed", sharing=p, n_seeds=1), np.zeros((2, 2, 1))) for p in pairs]
    assert variants_of(letters(*both)) == [QKV, Variant("Q=K"), Variant("K=V")]


@given(
    hnp.arrays(np.float32, (2, 5), elements=SHARES | st.just(np.nan)),
    st.integers(0, 7),
    st.sampled_from(["directed", "reverse"]),
)
def test_experiments_are_paired_over_the_seeds_that_both_have(last, first_seed, kind):
    """On the same task; a seed that diverged is no pair, and without pairs no number is made up."""
    other = one_variant(last[1:], kind=kind, first_seed=first_seed)
    first, other = letters(one_variant(last[:1]), other)
    gaps = last[1, : max(0, 5 - first_seed)] - last[0, first_seed:]
    gaps = gaps[~np.isnan(gaps)] if kind == "directed" else gaps[:0]
    there = differences_between([first, other], first, "accuracy").iloc[0]
    back = differences_between([first, other], other, "accuracy").iloc[0]
    assert (there["experiment"], back["experiment"]) == ("B", "A")
    assert there["n_pairs"] == back["n_pairs"] == len(gaps)
    expected = expected_of(gaps.astype(float))[:3]
    assert there[["difference", "low", "high"]].tolist() == close(expected)
    assert (-back[["difference", "high", "low"]]).tolist() == close(expected)


def test_variants_are_paired_by_seed_within_an_experiment():
    """Gaps −0.1, −0.3, −0.2, whatever the seeds themselves spread."""
    qkv, tied = np.array([0.3, 0.9, 0.6]), np.array([0.2, 0.6, 0.4])
    experiment = tiny("directed", sharing=["QKV", "Q=K"], n_seeds=3)
    compared = letters(finished(experiment, np.stack([qkv, tied])[None]))
    row = differences_within(compared, QKV, "accuracy").iloc[0]
    assert (row["sharing"], row["n_pairs"]) == ("Q=K", 3)
    expected = expected_of((tied - qkv).astype(float))[:3]
    assert row[["difference", "low", "high"]].tolist() == close(expected)
    assert differences_within(compared, Variant("K=V"), "accuracy").empty


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
    """A column each, so that rows of several experiments can be told apart; JSON has all."""
    first, other = one_variant([[0.1], [0.2]], d_head=3), one_variant([[0.1], [0.2]], d_head=5)
    table = evaluation_table(letters(first, other))
    assert table.groupby("experiment")["d_head"].first().to_dict() == {
        first.experiment.hash: 3,
        other.experiment.hash: 5,
    }
    assert not {"n_values", "steps", "n_seeds"} & set(table.columns)
    assert set(METRICS) <= set(table.columns)
    compared = letters(one_variant([[0.25, np.nan], [0.5, np.nan]], first_seed=3))
    (told,) = json.loads(to_json(compared), parse_constant=pytest.fail)["experiments"]
    assert (told["name"], told["experiment"]["first_seed"]) == ("name A", 3)
    assert told["eval_steps"] == [0, 8]
    assert [run["history"]["accuracy"] for run in told["runs"]] == [[0.25, 0.5], [None, None]]
