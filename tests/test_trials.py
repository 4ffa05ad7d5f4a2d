"""From arms to experiments: what is trained together, and which learning rate is chosen."""

import collections
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_claims import TINY

from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.measures import MEASURES
from attnkit.evidence.trials import (
    AS_GOOD,
    FINER_RATES,
    FIRST_SEED,
    MOST_TOGETHER,
    N_TUNING_SEEDS,
    RATES,
    TUNING_SEED,
    Tuned,
    choose_rate,
    comparing_trials,
    rates_of,
    tuning_measure,
    tuning_trials,
)
from attnkit.experiment import experiment as limits
from attnkit.foundation.settings import InvalidExperiment
from attnkit.training import train
from attnkit.variants import Variant

NAN = float("nan")
MIXED = (
    arm("K=V kv_heads=1 n_heads=2", "K=V, MQA", **TINY),
    arm("Q=K", "symmetric", **TINY),
    arm("QKV", "free", **TINY),
    arm("Q=K=V", "one", **TINY),
    arm("K=V", "tied", **TINY),
)
"""In none of the orders in which experiments have their variants."""


def trained_as(trial, arms):
    """(arm's name, rate) of every variant of an experiment, as its text says."""
    by_text = {
        Variant(f"{one.variant} learning_rate={rate:g}"): (one.name, rate)
        for one in arms
        for rate in {rate for name, rate in trial.cells if name == one.name}
    }
    return tuple(by_text[variant] for variant in trial.experiment.sharing)


# what is trained together


def test_every_claim_trains_its_arms_and_compares_on_seeds_of_their_own():
    """An experiment puts variants into an order of its own, and cells follow it.

    No seed is both tuned on and compared.
    """
    for claim in CLAIMS.values():
        further, _ = claim.confirmation()
        for arms in (claim.arms, claim.judged_arms, further):
            rates = {one.name: 0.001 * (1 + place) for place, one in enumerate(arms)}
            for trial in (*tuning_trials(arms), *comparing_trials(arms, rates, 2)):
                assert trial.cells == trained_as(trial, arms), claim.id
        tuning = {seed for trial in tuning_trials(claim.arms) for seed in trial.experiment.seeds}
        for trial in comparing_trials(claim.arms, {}, claim.n_seeds, first_seed=17):
            assert trial.experiment.seeds == range(17, 17 + trial.experiment.n_seeds)
            assert not tuning & set(trial.experiment.seeds), claim.id


def test_arms_of_one_setting_train_beside_each_other():
    """Arms of another setting are another experiment, as is one at the rate of another arm.

    The two rates may turn out to be the same.
    """
    longer = arm("Q=K", "longer", **{**TINY, "steps": 7})
    arms = (MIXED[1], longer, MIXED[2], arm("Q=K", "borrowing", rate_of="free", **TINY))
    trials = comparing_trials(arms, dict.fromkeys((one.name for one in arms), 0.01), 2)
    steps = {
        frozenset(name for name, _ in trial.cells): trial.experiment.training.steps
        for trial in trials
    }
    together = frozenset({"symmetric", "free"})
    assert steps == {together: 6, frozenset({"longer"}): 7, frozenset({"borrowing"}): 6}


def test_arms_with_fewer_seeds_train_by_themselves():
    """They train the first of the seeds, and as many as all if there are fewer."""
    few = replace(MIXED[2], most_seeds=3)
    for n_seeds, expected in ((5, 3), (2, 2)):
        many, fewer = comparing_trials((MIXED[1], few), {}, n_seeds, first_seed=7)
        assert many.experiment.seeds == range(7, 7 + n_seeds)
        assert fewer.experiment.seeds == range(7, 7 + expected)


def test_long_arms_are_tuned_and_compared_at_multiples_of_their_steps():
    """Each trial knows the multiple, so that it can be read at 1, 2, 4, ... times the steps."""
    long = replace(MIXED[1], up_to=8, tuned_at=4)
    ((tuning, *_), (comparing,)) = tuning_trials([long]), comparing_trials([long], {}, 2)
    assert (tuning.up_to, tuning.experiment.training.steps) == (4, 4 * TINY["steps"])
    assert (comparing.up_to, comparing.experiment.training.steps) == (8, 8 * TINY["steps"])


def test_no_trial_holds_more_than_can_be_lost():
    """Each arm at each of its rates stands in exactly one."""
    trials = tuning_trials(MIXED)
    assert [len(trial.cells) for trial in trials] == [MOST_TOGETHER, MOST_TOGETHER, 5]
    cells = [cell for trial in trials for cell in trial.cells]
    assert sorted(cells) == sorted((one.name, rate) for one in MIXED for rate in rates_of(one))


def test_what_takes_too_much_memory_is_split(monkeypatch):
    """Into as many experiments as are needed, none of which leaves anything out."""
    (whole,) = comparing_trials(MIXED, {}, 3)
    at_once, _ = whole.experiment._numbers_per_seed()
    monkeypatch.setattr(limits, "_MOST_AT_ONCE", 3 * at_once // 2)
    parts = comparing_trials(MIXED, {}, 3)
    assert len(parts) > 1
    assert sorted(cell for part in parts for cell in part.cells) == sorted(whole.cells)
    assert all(part.cells == trained_as(part, MIXED) for part in parts)


def test_what_takes_too_much_memory_alone_is_told(monkeypatch):
    """There is nothing to split."""
    (whole,) = comparing_trials(MIXED[:1], {}, 7)
    at_once, _ = whole.experiment._numbers_per_seed()
    monkeypatch.setattr(limits, "_MOST_AT_ONCE", 6 * at_once)
    with pytest.raises(InvalidExperiment, match="n_seeds: got 7, allowed at most 6"):
        comparing_trials(MIXED[:1], {}, 7)


# learning rates


def test_rates_are_multiples_of_the_arm_s_own():
    """More of them if it is tuned finer, on both sides."""
    plain = arm("QKV", **TINY, learning_rate=0.0017)
    for one, factors in ((plain, RATES), (plain.scheduled(), FINER_RATES)):
        assert rates_of(one) == pytest.approx([factor * 0.0017 for factor in factors], rel=5e-3)
    assert min(FINER_RATES) < min(RATES)
    assert list(FINER_RATES) == sorted(FINER_RATES)


def test_every_arm_has_as_many_trials():
    """An equal budget, on seeds of its own; who takes another's rate has none.

    What is compared has seeds that no earlier run has seen: claims and the rule were changed after
    those from 0 and from 100 on. Arms are compared at their own rates, or at the task's.
    """
    after = arm("QKV tie=K=V", "tied later", rate_of="free", **TINY)
    trials = tuning_trials([*MIXED, after])
    for trial in trials:
        assert trial.experiment.seeds == range(TUNING_SEED, TUNING_SEED + N_TUNING_SEEDS)
    cells = [name for trial in trials for name, _ in trial.cells]
    assert collections.Counter(cells) == {one.name: len(RATES) for one in MIXED}
    (trial,) = comparing_trials(MIXED[1:3], {"free": 0.0071}, 3)
    assert trial.experiment.seeds == range(FIRST_SEED, FIRST_SEED + 3)
    assert FIRST_SEED == 2_000
    task_s = MIXED[1].experiment.training.learning_rate
    assert dict(trial.cells) == {"free": 0.0071, "symmetric": task_s}


# scores


def test_arms_that_share_a_rate_are_the_same_run_until_they_are_tied():
    """To the bit; then every way of tying is a run of its own."""
    every_step = {**TINY, "steps": 8, "evaluate_every": 1}
    ways = ("", " tie_by=keep_K", " tie_by=keep_V")
    arms = [arm("QKV", "never", **every_step)] + [
        arm(f"QKV tie=K=V{way}", f"tied{way}", rate_of="never", **every_step) for way in ways
    ]
    trials = comparing_trials(arms, {one.name: 0.01 for one in arms}, 2)
    experiments = [trial.experiment for trial in trials]
    (tied_at,) = {one.tie_step(variant) for one in experiments for variant in one.sharing} - {0}
    histories = [train(one).snapshot.history["loss"] for one in experiments]
    loss = np.concatenate([one.reshape(len(one), -1, 2) for one in histories], axis=1)
    assert loss.shape[1] == len(arms)
    assert (loss[:tied_at] == loss[:tied_at, :1]).all()
    assert all(len(np.unique(seed)) == len(arms) for seed in loss[tied_at].T)


def test_scores_of_a_trial_are_those_of_each_arm_alone():
    """A run does not depend on those beside it, and each goes to its own arm."""
    rates = {"free": 0.013, "tied": 0.002, "one": 0.007}
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
    rates = {"free": 0.013, "symmetric": 0.004}

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


def test_runs_are_split_by_cell_and_seed():
    """Runs stand variant by variant, seeds within."""
    (trial,) = comparing_trials(MIXED[:3], {}, 5)
    split = trial.split({"loss": np.arange(15.0)})
    for place, (name, _) in enumerate(trial.cells):
        assert split[name]["loss"].tolist() == list(range(5 * place, 5 * place + 5))


# the choice


def tried(**by_rate):
    """Rate → accuracy and loss of two seeds, from `_1=(accuracies, losses)`."""
    return {
        float(name[1:]): {"accuracy": np.array(accuracy), "loss": np.array(loss)}
        for name, (accuracy, loss) in by_rate.items()
    }


@pytest.mark.parametrize(("by", "best"), [("accuracy", 2.0), ("loss", 1.0)])
def test_the_best_rate_is_chosen_by_its_measure(by, best):
    """Whatever the other measure says; on text the loss decides."""
    values = tried(_1=([0.5, 0.7], [0.1, 0.3]), _2=([0.7, 0.7], [0.9, 0.9]))
    found = choose_rate(values, by)
    assert (found.rate, found.by) == (best, by)
    assert found.tried == pytest.approx({rate: own[by].mean() for rate, own in values.items()})


@pytest.mark.parametrize("by", ["accuracy", "loss"])
@pytest.mark.parametrize(
    ("behind", "rate"),
    [
        ([0, 0, 0, 0, 0], 4.0),
        ([0.2, 0, 0, 0, 0.2], 4.0),
        ([0.2, 0.2, 0, 0, 0], 8.0),
        ([0.2, 0, 0, 0.2, 0.2], 2.0),  # of two the smaller
        ([0.004, 0.2, 0, 0.2, 0.004], 4.0),
        ([0, 0.004, 0.004, 0.2, 0.2], 2.0),
        ([0, 0.006, 0.006, 0.2, 0.2], 1.0),
        ([0.2, 0.2, 0.2, 0.006, 0], 16.0),
    ],
)
def test_of_rates_that_are_as_good_the_middle_one_is_chosen(by, behind, rate):
    """To within half a point, or so many nats; whatever the other measure says."""
    sign, other = (1, "loss") if by == "accuracy" else (-1, "accuracy")
    many = {
        2.0**place: {by: np.full(2, 0.5 - sign * much), other: np.full(2, place)}
        for place, much in enumerate(behind)
    }
    assert AS_GOOD == 0.005
    assert choose_rate(many, by).rate == rate


@pytest.mark.parametrize("by", ["accuracy", "loss"])
def test_a_rate_at_which_a_run_diverged_is_not_chosen(by):
    """Not even if it is the best otherwise; its mean is none. Of all, the middle one is taken."""
    found = choose_rate(tried(_1=([0.9, NAN], [0.1, NAN]), _2=([0.1, 0.1], [3.0, 3.0])), by)
    assert found.rate == 2.0
    assert np.isnan(found.tried[1.0])
    diverged = ([NAN] * 2,) * 2
    assert choose_rate(tried(_4=diverged, _1=diverged, _2=diverged), by).rate == 2.0


@pytest.mark.parametrize(
    ("rate", "means", "at_edge"),
    [
        (1.0, {1.0: 0.9, 2.0: 0.5, 4.0: 0.3}, True),
        (4.0, {1.0: 0.3, 2.0: 0.5, 4.0: 0.9}, True),
        (2.0, {1.0: 0.3, 2.0: 0.9, 4.0: 0.5}, False),
        (4.0, {1.0: 0.5, 2.0: 0.9, 4.0: 0.9}, True),
        (2.0, {1.0: 0.5, 2.0: 0.9, 4.0: NAN}, False),
        (2.0, {1.0: NAN, 2.0: NAN, 4.0: NAN}, False),
        (1.0, {1.0: 0.9}, False),
        (1.0, {}, False),
    ],
)
def test_a_rate_at_the_edge_of_those_tried_is_told(rate, means, at_edge):
    """Beyond it one might be better still; not where only one was tried."""
    assert Tuned(rate, means).at_edge == at_edge


@given(st.permutations([0.0005, 0.001, 0.002, 0.004]))
def test_the_choice_does_not_hang_on_the_order_of_rates(rates):
    """The best stays the best."""
    values = {r: {"accuracy": np.array([r * 100]), "loss": np.array([1 - r * 100])} for r in rates}
    assert choose_rate(values, "accuracy").rate == choose_rate(values, "loss").rate == 0.004


def test_text_is_tuned_by_loss_and_all_else_by_accuracy():
    """A text's accuracy says little."""
    assert tuning_measure(arm("QKV", task="language")) == "loss"
    assert (
        tuning_measure(MIXED[0])
        == tuning_measure(replace(MIXED[0], finer_rates=True))
        == "accuracy"
    )
