"""Runs trained apart and joined are those of one experiment, to the bit."""

import numpy as np
import pytest
from kinds import SMALL
from same import assert_same

from attnkit.experiment import Experiment
from attnkit.training import Training, train
from attnkit.training.joining import can_share_runs, join_films, join_results, join_snapshots
from attnkit.training.loops import record
from attnkit.training.results import Result

WIDE = "QKV n_heads=2 d_head=2"
"""A variant with another number of heads than the others."""

WHOLE = Experiment(**{**SMALL, "sharing": ["QKV", "Q=K", "K=V", WIDE], "n_seeds": 2, "steps": 33})


@pytest.fixture(scope="module")
def whole():
    """Everything trained at once."""
    return train(WHOLE, "cpu")


def test_joined_parts_are_the_whole_and_can_be_cut_again(whole):
    """Also where numbers of heads differ, two parts have a variant, and bytes are stored."""
    parts = [("Q=K", WIDE), ("QKV", "K=V", "Q=K")]
    joined = join_results(WHOLE, [train(WHOLE.replace(sharing=part), "cpu") for part in parts])
    assert_same(joined, whole, "seconds")
    assert_same(Result.from_blobs(*joined.to_blobs()), joined)
    some = WHOLE.replace(sharing=["QKV", "K=V"])  # without the heads that only the others had
    cut = join_results(some, [whole])
    assert_same(cut, train(some, "cpu"), "seconds")
    speeds = cut.snapshot.model_steps_per_second, whole.snapshot.model_steps_per_second
    assert np.isclose(*speeds)  # its time is that of the chosen runs


def test_runs_that_are_behind_have_no_later_evaluations(whole):
    """Nothing is invented for them, and the latest values are those that there are."""
    training = Training(WHOLE.replace(sharing=[WIDE]))
    training.advance(11)
    joined = join_snapshots(WHOLE, [training.snapshot(), whole.snapshot])
    behind = joined.per_sharing(joined.history["accuracy"])[:, WHOLE.sharing.index(WIDE)]
    assert (joined.status, joined.step) == ("running", 11)
    assert np.isfinite(behind[:2]).all()
    assert np.isnan(behind[2:]).all()
    assert np.isfinite(joined.latest("accuracy")).all()
    assert np.array_equal(whole.snapshot.latest("loss"), whole.snapshot.history["loss"][-1])


def test_joined_films_are_the_film_of_the_whole():
    """They are equal moment by moment."""
    apart = [record(WHOLE.replace(sharing=[v], n_seeds=1), device="cpu") for v in WHOLE.sharing]
    assert_same(join_films(WHOLE.replace(n_seeds=1), apart), record(WHOLE, device="cpu"))


def test_runs_are_shared_where_only_variants_differ():
    """Every other setting changes a run; runs of equal cost depend on their company, too."""
    equal = WHOLE.replace(sharing=["QKV", "Q=K"], equal="parameters")
    for one, other, expected in [
        (WHOLE, WHOLE.replace(sharing=["Q=V"]), True),
        (WHOLE, WHOLE.replace(steps=44), False),
        (WHOLE, WHOLE.replace(first_seed=1), False),
        (WHOLE, WHOLE.replace(n_entries=4), False),
        (equal, equal.replace(sharing=["QKV", "Q=K", "K=V"]), False),
        (equal, equal.replace(), True),
    ]:
        assert can_share_runs(one, other) is expected, other
