"""From arms to experiments: what is trained together."""

from dataclasses import replace

import numpy as np
import pytest
from small_claims import TINY

from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.measures import MEASURES
from attnkit.evidence.trials import (
    FIRST_SEED,
    MOST_SEEDS,
    MOST_TOGETHER,
    TUNING_SEED,
    comparing_trials,
    tuning_measure,
    tuning_trials,
)
from attnkit.evidence.tuning import TUNING_SEEDS, Recipe, Search
from attnkit.experiment import memory as limits
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training import train
from attnkit.variants import Variant

MIXED = (
    arm("K=V kv_heads=1 n_heads=2", "K=V, MQA", **TINY),
    arm("Q=K", "symmetric", **TINY),
    arm("QKV", "free", **TINY),
    arm("Q=K=V", "one", **TINY),
    arm("K=V", "tied", **TINY),
)
"""In none of the orders in which experiments have their variants."""


def trained_as(trial, arms):
    """(arm's name, recipe) of every variant of an experiment, as its text says."""
    by_text = {
        Variant(f"{one.variant} learning_rate={recipe.rate:g}"): (one.name, recipe)
        for one in arms
        for recipe in {recipe for name, recipe in trial.cells if name == one.name}
    }
    training = trial.experiment.training
    scheduled = {recipe.schedule for _, recipe in trial.cells} - {None}
    assert scheduled <= {training.schedule}
    assert (training.warm_up, training.clip > 0) == (0.05, True) or "cosine" not in scheduled
    return tuple(by_text[variant] for variant in trial.experiment.sharing)


# What is trained together


def test_every_claim_trains_its_arms_and_compares_on_seeds_of_their_own():
    """An experiment puts variants into an order of its own, and cells follow it.

    No seed is both tuned on and compared.
    """
    for claim in CLAIMS.values():
        further, _ = claim.confirmation
        for arms in (claim.judged_arms, further):
            recipes = {
                one.name: Recipe(0.001 * (1 + place), one.schedules[-1])
                for place, one in enumerate(arms)
            }
            wanted = [(one, request) for one in arms for request in Search(one).wanted()]
            tuning, comparing = tuning_trials(wanted), comparing_trials(arms, recipes, 2)
            for trial in (*tuning, *comparing):
                assert trial.cells == trained_as(trial, arms), claim.id
                assert len(trial.cells) <= MOST_TOGETHER
            seeds = [
                {seed for trial in trials for seed in trial.experiment.seeds}
                for trials in (tuning, comparing)
            ]
            assert not seeds[0] & seeds[1], claim.id
            assert seeds[1] <= {FIRST_SEED, FIRST_SEED + 1}


def test_arms_train_beside_each_other_unless_something_sets_them_apart():
    """Other settings, a rate of another arm, fewer seeds, and more steps make another trial.

    A long trial knows the multiple of its steps, so that it can be read at 1, 2, 4, ... times.
    """
    arms = (
        *MIXED[1:3],
        arm("Q=K", "longer", **{**TINY, "steps": 7}),
        arm("Q=K", "borrowing", recipe_of="free", **TINY),
        replace(MIXED[3], most_seeds=3),
        replace(MIXED[4], up_to=8),
    )
    rates = dict.fromkeys((one.name for one in arms), Recipe(0.01))
    found = [
        ({name for name, _ in trial.cells}, trial.up_to, one.training.steps, one.seeds)
        for trial in comparing_trials(arms, rates, 5, first_seed=7)
        for one in [trial.experiment]
    ]
    assert found == [
        ({"symmetric", "free"}, 1, 6, range(7, 12)),
        ({"longer"}, 1, 7, range(7, 12)),
        ({"borrowing"}, 1, 6, range(7, 12)),
        ({"one"}, 1, 6, range(7, 10)),
        ({"tied"}, 8, 48, range(7, 12)),
    ]
    (few,) = comparing_trials(arms[4:5], {}, 2)
    assert few.experiment.n_seeds == 2


def test_requests_of_a_search_become_trials_on_seeds_of_their_own():
    """Requests with the same schedule, steps and seeds train together, and name their recipes."""
    wanted = [(one, request) for one in MIXED for request in Search(one).wanted()]
    trials = tuning_trials(wanted)
    cells = [cell for trial in trials for cell in trial.cells]
    assert sorted(cells) == sorted((one.name, request.recipe) for one, request in wanted)
    assert [len(trial.cells) for trial in trials] == [MOST_TOGETHER, MOST_TOGETHER, 5] * 2
    seeds = range(TUNING_SEED, TUNING_SEED + TUNING_SEEDS)
    assert all(set(trial.experiment.seeds) < set(seeds) for trial in trials)
    later = wanted[0][1]._replace(first=5, n_seeds=4)
    (trial,) = tuning_trials([(MIXED[0], later)])
    assert trial.experiment.seeds == range(TUNING_SEED + 5, TUNING_SEED + 9)
    own = MIXED[1].experiment.training.learning_rate
    (trial,) = comparing_trials(MIXED[1:3], {"free": Recipe(0.0071)}, 3)
    assert dict(trial.cells) == {"free": Recipe(0.0071), "symmetric": Recipe(own)}


def test_more_seeds_than_an_experiment_has_are_trained_in_several():
    """Each of them has the same cells, and every seed is trained once."""
    trials = comparing_trials(MIXED[1:3], {}, 2 * MOST_SEEDS + 3, first_seed=7)
    seeds = [seed for trial in trials for seed in trial.experiment.seeds]
    assert seeds == [*range(7, 7 + 2 * MOST_SEEDS + 3)]
    assert len({trial.cells for trial in trials}) == 1


def test_what_takes_too_much_memory_is_split_and_alone_is_told(monkeypatch):
    """Into as many experiments as are needed, none of which leaves anything out."""
    (whole,) = comparing_trials(MIXED, {}, 3)
    at_once, _ = limits._numbers_per_seed(whole.experiment)
    monkeypatch.setattr(limits, "_MOST_AT_ONCE", 3 * at_once // 2)
    parts = comparing_trials(MIXED, {}, 3)
    assert len(parts) > 1
    assert sorted(cell for part in parts for cell in part.cells) == sorted(whole.cells)
    assert all(part.cells == trained_as(part, MIXED) for part in parts)
    monkeypatch.undo()
    (alone,) = comparing_trials(MIXED[:1], {}, 7)
    at_once, _ = limits._numbers_per_seed(alone.experiment)
    monkeypatch.setattr(limits, "_MOST_AT_ONCE", 6 * at_once)
    seeds = [trial.experiment.seeds for trial in comparing_trials(MIXED[:1], {}, 7, first_seed=5)]
    assert seeds == [range(5, 8), range(8, 12)]
    monkeypatch.setattr(limits, "_MOST_AT_ONCE", 0)
    with pytest.raises(InvalidExperiment):
        comparing_trials(MIXED[:1], {}, 7)


# Scores


def test_arms_that_share_a_rate_are_the_same_run_until_they_are_tied():
    """To the bit; then every way of tying is a run of its own."""
    every_step = {**TINY, "steps": 8, "evaluate_every": 1}
    ways = ("", " tie_by=keep_K", " tie_by=keep_V")
    arms = [arm("QKV", "never", **every_step)] + [
        arm(f"QKV tie=K=V{way}", f"tied{way}", recipe_of="never", **every_step) for way in ways
    ]
    trials = comparing_trials(arms, {one.name: Recipe(0.01) for one in arms}, 2)
    experiments = [trial.experiment for trial in trials]
    (tied_at,) = {one.tie_step(variant) for one in experiments for variant in one.sharing} - {0}
    histories = [train(one).snapshot.history["loss"] for one in experiments]
    loss = np.concatenate([one.reshape(len(one), -1, 2) for one in histories], axis=1)
    assert loss.shape[1] == len(arms)
    assert (loss[:tied_at] == loss[:tied_at, :1]).all()
    assert all(len(np.unique(seed)) == len(arms) for seed in loss[tied_at].T)


def test_scores_of_a_trial_are_those_of_each_arm_alone():
    """A run does not depend on those beside it, and each goes to its own arm."""
    rates = {"free": Recipe(0.013), "tied": Recipe(0.002), "one": Recipe(0.007)}
    (trial,) = comparing_trials(MIXED, rates, 2, first_seed=3)
    together = trial.scores(train(trial.experiment).snapshot)
    assert set(together) == {one.name for one in MIXED}
    for one in (MIXED[0], MIXED[1], MIXED[4]):
        (alone,) = comparing_trials([one], rates, 2, first_seed=3)
        (expected,) = alone.scores(train(alone.experiment).snapshot).values()
        for name in MEASURES:
            assert together[one.name][name] == pytest.approx(expected[name], rel=1e-5, nan_ok=True)
    assert len({own["loss"][-1, 0] for own in together.values()}) == len(MIXED)


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_a_long_run_is_read_as_short_runs_of_the_same_arm(engine, monkeypatch):
    """With a constant rate the first steps are the same, so each reading is a run of its own."""
    monkeypatch.setenv("ATTNKIT_ENGINE", engine)
    arms = [arm("QKV", "free", **TINY), arm("Q=K", "symmetric", **TINY)]
    rates = {"free": Recipe(0.013, "constant"), "symmetric": Recipe(0.004, "constant")}

    def scores(up_to):
        (trial,) = comparing_trials([replace(one, up_to=up_to) for one in arms], rates, 2)
        return trial.scores(train(trial.experiment).snapshot)

    long = scores(8)
    for row, up_to in enumerate((1, 2, 4, 8)):
        for name, own in scores(up_to).items():
            for measure in ("accuracy", "loss", "weight_symmetry"):
                assert long[name][measure].shape == (4, 2)
                np.testing.assert_array_equal(long[name][measure][row], own[measure][-1])


def test_the_steps_to_solve_are_the_logarithm_of_the_first_evaluation_at_the_threshold():
    """They are infinite until the task is solved, and stay although accuracy falls again."""
    (trial,) = comparing_trials([replace(MIXED[1], up_to=4)], {}, 3)
    snapshot = train(trial.experiment).snapshot
    steps = np.array([0, 6, 12, 18, 24])
    accuracy = np.array([[0.1, 0.9, 0.2], [0.96, 0.9, 0.2], [0.5, 0.9, 0.3], [0.5, 0.95, 0.3]])
    accuracy = np.concatenate([accuracy, [[1.0, 0.1, 0.94]]])
    history = {name: values[:5] for name, values in snapshot.history.items()}
    made = replace(snapshot, eval_steps=steps, history={**history, "accuracy": accuracy})
    found = MEASURES["steps_to_solve"].read(made, 24)
    np.testing.assert_allclose(found, [np.log2(6), np.log2(18), np.inf])
    np.testing.assert_allclose(
        MEASURES["steps_to_solve"].read(made, 12), [np.log2(6), np.inf, np.inf]
    )


def test_text_is_tuned_by_loss_and_all_else_by_accuracy():
    """A text's accuracy says little."""
    assert tuning_measure(arm("QKV", task="language")) == "loss"
    assert tuning_measure(replace(MIXED[0], up_to=2)) == "accuracy"
