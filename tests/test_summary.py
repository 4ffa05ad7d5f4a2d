"""Tables and sentences made of a snapshot."""

import dataclasses

import numpy as np
import pytest

from attnkit.examples import load_example
from attnkit.summary import finding, percent, run_table, sharing_table


def with_accuracy(snapshot, accuracy, **changes):
    """The snapshot with the accuracies, (sharing, seed), of all evaluations replaced."""
    last = np.asarray(accuracy, np.float32).ravel()
    history = dict(snapshot.history, accuracy=np.tile(last, (len(snapshot.eval_steps), 1)))
    return dataclasses.replace(snapshot, history=history, **changes)


@pytest.fixture(scope="module")
def example():
    """The shipped directed example: five sharings, five seeds."""
    return load_example("directed")


def test_finding_sorts_sharings_into_solved_and_not(example):
    """All seeds at 0.99 is solved; anything less is given with its interval."""
    accuracy = np.ones((5, 5))
    accuracy[1] = [0.4, 0.5, 0.6, 0.5, 0.5]
    text = finding(with_accuracy(example, accuracy))
    assert text == "Solved with every seed: QKV, K=V, Q=V, Q=K=V. Not solved: Q=K 50% [41 to 59%]."


def test_one_seed_below_the_threshold_is_not_solved(example):
    """A mean above the threshold does not hide a seed below it."""
    accuracy = np.ones((5, 5))
    accuracy[0, 0] = 0.98
    assert "Not solved: QKV 99%" in finding(with_accuracy(example, accuracy))


def test_finding_names_what_diverged(example):
    """A sharing without any number left is called diverged."""
    accuracy = np.ones((5, 5))
    accuracy[4] = accuracy[3, 0] = np.nan
    diverged_at = np.where(np.isnan(accuracy), 10, -1).ravel()
    text = finding(with_accuracy(example, accuracy, diverged_at=diverged_at))
    assert text.endswith("Not solved: Q=V 100% [100 to 100%] (1 of 5 diverged), Q=K=V diverged.")


def test_finding_of_a_running_experiment_says_yet(example):
    """Before the end nothing is final."""
    text = finding(with_accuracy(example, np.zeros((5, 5)), status="running"))
    assert text.startswith("Not solved yet: QKV 0%")


def test_sharing_table_pairs_differences_by_seed(example):
    """The difference from QKV is that of equal seeds, so a common shift leaves no spread."""
    seeds = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    accuracy = np.stack([seeds, seeds - 0.1, seeds, seeds, seeds])
    table = sharing_table(with_accuracy(example, accuracy)).set_index("sharing")
    assert table.loc["Q=K", "difference"] == pytest.approx(-0.1, abs=1e-6)
    assert table.loc["Q=K", "difference_high"] == pytest.approx(-0.1, abs=1e-6)
    assert np.isnan(table.loc["QKV", "difference"])


def test_run_table_has_one_row_per_run_in_order(example):
    """Rows follow Experiment.runs."""
    table = run_table(example)
    expected = [(sharing.value, seed) for sharing, seed in example.experiment.runs]
    assert list(zip(table["sharing"], table["seed"], strict=True)) == expected


def test_run_table_leaves_undefined_values_missing():
    """A mutual relation has no reversed entry."""
    table = run_table(load_example("mutual"))
    assert table["mass_on_reverse"].isna().all()
    assert table["mass_on_target"].notna().all()


@pytest.mark.parametrize(("share", "text"), [(1, "100%"), (0.9996, "99%"), (0.5, "50%")])
def test_only_a_perfect_share_is_a_hundred_percent(share, text):
    """Rounding never claims perfection."""
    assert percent(share) == text
