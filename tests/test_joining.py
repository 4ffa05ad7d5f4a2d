"""Runs trained apart and joined are those of one experiment, to the bit."""

import numpy as np
import pytest
from kinds import SMALL
from same import assert_same

from attnkit.experiment import Experiment
from attnkit.training import Training, train
from attnkit.training.camera import record
from attnkit.training.joining import can_share_runs, join_films, join_results, join_snapshots
from attnkit.training.results import Result

WIDE = "QKV n_heads=2 d_head=2"
"""A variant with another number of heads than the others."""


def experiment(*sharing, **settings):
    """A small experiment of two seeds."""
    given = {**SMALL, "n_seeds": 2, "steps": 33, "evaluate_every": 11, **settings}
    return Experiment(**{**given, "sharing": sharing})


WHOLE = experiment("QKV", "Q=K", "K=V", WIDE)


@pytest.fixture(scope="module")
def whole():
    """Everything trained at once."""
    return train(WHOLE, "cpu")


@pytest.fixture(scope="module")
def parts():
    """Return the same runs of two trainings, with one variant that both have."""
    parts = [("Q=K", WIDE), ("QKV", "K=V", "Q=K")]
    return [train(WHOLE.replace(sharing=part), "cpu") for part in parts]


def test_joined_parts_are_the_whole_and_can_be_cut_again(parts, whole):
    """Also where variants differ in their number of heads, and through the bytes of a store."""
    joined = join_results(WHOLE, parts)
    assert_same(joined, whole, "seconds")
    assert_same(Result.from_blobs(*joined.to_blobs()), joined)
    some = WHOLE.replace(sharing=["QKV", "K=V"])  # without the heads that only the others had
    assert_same(join_results(some, [whole]), train(some, "cpu"), "seconds")


def test_the_time_is_that_of_the_chosen_runs(whole):
    """Model-steps per second stay what they were."""
    some = join_snapshots(WHOLE.replace(sharing=["QKV", "K=V"]), [whole.snapshot])
    speeds = some.model_steps_per_second, whole.model_steps_per_second
    assert np.isclose(*speeds)


def test_runs_that_are_behind_have_no_later_evaluations(whole):
    """Nothing is invented for them, and the latest values are those that there are."""
    training = Training(WHOLE.replace(sharing=[WIDE]))
    training.advance(11)
    joined = join_snapshots(WHOLE, [training.snapshot(), whole.snapshot])
    behind = joined.per_sharing(joined.history["accuracy"])[:, WHOLE.sharing.index(WIDE)]
    assert joined.status == "running"
    assert joined.step == 11
    assert np.isfinite(behind[:2]).all()
    assert np.isnan(behind[2:]).all()
    assert np.isfinite(joined.latest("accuracy")).all()
    assert np.array_equal(whole.snapshot.latest("loss"), whole.snapshot.history["loss"][-1])


def test_joined_films_are_the_film_of_the_whole():
    """Moment by moment."""
    apart = [record(WHOLE.replace(sharing=[v], n_seeds=1), device="cpu") for v in WHOLE.sharing]
    assert_same(join_films(WHOLE.replace(n_seeds=1), apart), record(WHOLE, device="cpu"))


@pytest.mark.parametrize(
    ("other", "can"),
    [
        (WHOLE.replace(sharing=["Q=V"]), True),
        (WHOLE.replace(steps=44), False),
        (WHOLE.replace(first_seed=1), False),
        (WHOLE.replace(n_entries=4), False),
    ],
)
def test_runs_are_shared_where_only_variants_differ(other, can):
    """Every other setting changes what a run does."""
    assert can_share_runs(WHOLE, other) is can


def test_runs_of_equal_cost_depend_on_their_company():
    """Unless the company is the same."""
    equal = experiment("QKV", "Q=K", equal="parameters")
    assert not can_share_runs(equal, equal.replace(sharing=["QKV", "Q=K", "K=V"]))
    assert can_share_runs(equal, equal.replace())
