"""Gathering evidence: tuning, the scores of a claim, confirmed inabilities, and the quick form."""

from dataclasses import replace

import numpy as np
import pytest
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit.claims.base import arm
from attnkit.claims.statements import better, no_worse, worse
from attnkit.evidence.gathering import Bench, gather, tune
from attnkit.evidence.record import Curve
from attnkit.evidence.trials import (
    FIRST_SEED,
    N_TUNING_SEEDS,
    RATES,
    TUNING_SEED,
    rates_of,
)
from attnkit.experiment import Experiment, from_text
from attnkit.training import train

# tuning


def test_every_arm_is_tuned_on_its_rates():
    """Every arm is tuned on two seeds at each of its rates, and takes one of them."""
    claim, bench = small_claim(), MadeUp()
    tuned = tune(claim.arms, bench)
    assert {name: tuple(sorted(tuning.tried)) for name, tuning in tuned.items()} == {
        one.name: rates_of(one) for one in claim.arms
    }
    assert all(tuning.rate in tuning.tried for tuning in tuned.values())
    n_runs = sum(experiment.n_runs for experiment in bench.measured)
    assert n_runs == len(claim.arms) * len(RATES) * N_TUNING_SEEDS


def test_a_rate_is_chosen_by_the_last_reading_of_long_runs():
    """An arm that is trained for long is tuned on runs of `tuned_at` times the steps."""
    long = replace(arm("QKV", **TINY), up_to=8, tuned_at=4)
    bench = MadeUp()
    tuned = tune([long], bench)["QKV"]
    assert {one.training.steps for one in bench.measured} == {4 * TINY["steps"]}
    assert set(tuned.tried) == set(rates_of(long))


def test_an_arm_that_takes_another_s_rate_is_not_tuned():
    """An arm with `rate_of` takes the tuning of that arm, and trains nothing for it."""
    tuned_arms, bench = [arm("Q=K", **TINY), arm("QKV", "free", **TINY)], MadeUp()
    tuned = tune([arm("QKV tie=K=V", "tied later", rate_of="free", **TINY), *tuned_arms], bench)
    assert tuned["tied later"] == tuned["free"] != tuned["Q=K"]
    n_runs = sum(experiment.n_runs for experiment in bench.measured)
    assert n_runs == len(tuned_arms) * len(RATES) * N_TUNING_SEEDS


def test_a_tuned_rate_is_the_best_of_what_was_trained(tmp_path):
    """The recorded mean at a rate is that of a training with that very rate."""
    one = arm("K=V", **TINY)
    tuned = tune([arm("QKV", **TINY), one], Bench(tmp_path))["K=V"]
    for rate in (min(tuned.tried), max(tuned.tried)):
        alone = one.experiment.replace(
            sharing=[f"K=V learning_rate={rate:g}"], n_seeds=N_TUNING_SEEDS, first_seed=TUNING_SEED
        )
        assert train(alone).snapshot.history["accuracy"][-1].mean() == pytest.approx(
            tuned.tried[rate]
        )


# a claim


def test_evidence_holds_the_scores_of_every_arm(tmp_path):
    """Evidence has the scores and curves of the experiments that its links name."""
    claim = small_claim(n_seeds=3)
    (evidence,) = gather([claim], Bench(tmp_path), first_seed=5)
    assert evidence.seeds == (5, 6, 7)
    assert evidence.hash == claim.hash
    assert not evidence.quick
    (link,) = evidence.experiments
    snapshot = train(from_text(link)).snapshot
    for one in claim.arms:
        rate = evidence.tuned[one.name].rate
        runs = [
            place
            for place, (variant, _) in enumerate(snapshot.experiment.runs)
            if variant == f"{one.variant} learning_rate={rate:g}"
        ]
        for measure in ("accuracy", "loss"):
            expected = snapshot.history[measure][-1, runs]
            np.testing.assert_array_equal(evidence.scores_at(measure)[one.name], expected)
        accuracy = snapshot.history["accuracy"][:, runs]
        curve = evidence.curves[one.name]
        np.testing.assert_array_equal(curve.steps, snapshot.eval_steps)
        np.testing.assert_allclose(curve.mean, accuracy.mean(1))
        np.testing.assert_allclose(curve.high, np.quantile(accuracy, 0.75, axis=1))
        assert curve.by == "accuracy"


def test_a_curve_leaves_out_runs_that_diverged():
    """A curve leaves out diverged runs, and its share of solved seeds counts all seeds."""
    nan = float("nan")
    values = np.array([[0.5, 0.7], [0.96, nan], [nan, nan]])
    curve = Curve.of(np.array([1, 2, 4]), values, "accuracy")
    assert curve.steps.tolist() == [1, 2]
    assert curve.mean == pytest.approx([0.6, 0.96])
    assert curve.solved == pytest.approx([0, 0.5])
    assert not Curve.of(np.array([1, 2, 4]), values, "loss").solved.any()
    assert not len(Curve.of(np.array([4]), values[2:], "accuracy").high)


def test_evidence_tells_seeds_texts_and_costs():
    """Seeds begin at `FIRST_SEED`, texts that were read are named, and all model-steps count."""
    read = {"task": "language", "steps": 4, "evaluate_every": 2}
    arms = (arm("Q=K", **read), arm("QKV", **read), arm("K=V", **TINY))
    fingerprint = Experiment(task="language").task.fingerprint
    assert made_up(small_claim(arms=arms)).texts == {"language": fingerprint}
    assert len(fingerprint) > 8

    lines, bench = [], MadeUp(QKV=1.0, Q_K=0.5)
    first, second = gather([small_claim("first"), small_claim("second", n_seeds=17)], bench)
    trained = sum(one.n_runs * one.training.steps for one in bench.measured)
    assert first.model_steps == second.model_steps == trained / 2 == bench.model_steps / 2
    assert first.texts == {}
    assert first.seeds == tuple(range(FIRST_SEED, FIRST_SEED + 17))
    list(gather([small_claim("first"), small_claim("second")], MadeUp(say=lines.append)))
    assert lines == ["1/2 first", "2/2 second"]  # before the claim begins


def test_every_measure_that_is_judged_is_recorded():
    """Every arm records accuracy, loss and the measures of the statements."""
    claim = small_claim(statements=(better("Q=K", "QKV", measure="loss_all_along"),))
    for scores in made_up(claim).scores.values():
        assert set(scores) == {"accuracy", "loss", "loss_all_along"}


# confirming an inability


def test_an_inability_that_shows_is_confirmed():
    """An inability that shows adds long runs with and without a schedule, each tuned."""
    claim = small_claim()
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5))
    arms, _ = claim.confirmation()
    assert set(evidence.scores) == {one.name for one in (*claim.arms, *arms)} == set(evidence.tuned)
    assert set(evidence.curves) == set(evidence.scores)
    assert len(evidence.findings) == 3
    assert evidence.judgement.verdict == "held"
    steps = {from_text(text).training.steps for text in evidence.experiments}
    assert steps == {TINY["steps"], 32 * TINY["steps"]}
    assert all(len(evidence.scores[one.name]["accuracy"]) == 6 for one in arms)


def test_an_inability_that_long_training_overcomes_does_not_hold():
    """An inability that 32 times the steps overcome does not hold."""
    evidence = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=[0.3, 0.4, 0.5, 0.7, 0.9, 1.0]))
    assert evidence.still_rises(evidence.statements[1].left)
    assert [one.verdict for one in evidence.findings] == ["held", "did not hold", "did not hold"]
    assert evidence.judgement.verdict != "held"


def test_an_inability_is_confirmed_whatever_becomes_of_the_claim():
    """An inability is confirmed although another statement stays undecided."""
    open_still, shows = no_worse("K=V", "QKV"), worse("Q=K", "QKV", unable=True)
    claim = small_claim(statements=(open_still, shows))
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5, K_V=float("nan")))
    found = [one.verdict for one in evidence.findings]
    assert found == ["undecided", "held", "held", "held"]
    assert evidence.judgement.verdict == "undecided"
    assert set(evidence.scores) == {one.name for one in (*claim.arms, *claim.confirmation()[0])}


def test_an_inability_at_another_s_rate_is_confirmed_at_rates_of_its_own():
    """Confirming runs are tuned on their own rates, although the arm takes another's rate."""
    free = arm("QKV", **TINY)
    claim = small_claim(arms=(arm("Q=K", rate_of="QKV", **TINY), free))
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5))
    assert evidence.judgement.verdict == "held"
    assert evidence.tuned["Q=K"] == evidence.tuned["QKV"]
    for one in claim.confirmation()[0]:
        assert tuple(sorted(evidence.tuned[one.name].tried)) == rates_of(one)


@pytest.mark.parametrize(
    ("claim", "accuracy", "verdict"),
    [
        (small_claim(), 1.0, "did not hold"),
        (small_claim(), 0.98, "did not hold"),
        (small_claim(statements=(worse("Q=K", "QKV"), no_worse("K=V", "QKV"))), 0.5, "held"),
    ],
)
def test_nothing_else_needs_confirmation(claim, accuracy, verdict):
    """An inability that does not show, and statements other than inabilities, add no runs."""
    bench = MadeUp(QKV=1.0, K_V=1.0, Q_K=accuracy)
    evidence = made_up(claim, bench)
    assert set(evidence.scores) == {one.name for one in claim.arms}
    assert {one.training.steps for one in bench.measured} == {TINY["steps"]}
    assert evidence.judgement.verdict == verdict


def test_arms_with_fewer_seeds_are_compared_on_the_seeds_that_both_have():
    """Confirming arms have at most 20 seeds, and pairs are formed of the seeds in common."""
    claim = small_claim(n_seeds=23)
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5))
    confirming, _ = claim.confirmation()
    assert {len(evidence.scores_at("accuracy")[one.name]) for one in claim.arms} == {23}
    assert {len(evidence.scores_at("accuracy")[one.name]) for one in confirming} == {20}
    assert [one.n_pairs for one in evidence.findings] == [23, 20, 20]


# the quick form


def test_the_quick_form_trains_judged_arms_on_few_seeds():
    """The quick form trains the judged arms on half of the seeds, and confirms nothing."""
    evidence = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=0.5), quick=True, first_seed=11)
    assert evidence.quick
    assert set(evidence.scores) == set(evidence.tuned) == {"Q=K", "QKV"}
    assert evidence.seeds == tuple(range(11, 11 + small_claim().n_seeds // 2))


def test_the_quick_form_tunes_the_arm_whose_rate_is_taken():
    """The quick form tunes an arm whose rate is taken, although no statement judges it."""
    arms = (arm("Q=K", rate_of="K=V", **TINY), arm("K=V", **TINY), arm("QKV", **TINY))
    evidence = made_up(small_claim(arms=arms), quick=True)
    assert evidence.tuned["Q=K"] == evidence.tuned["K=V"] != evidence.tuned["QKV"]


def test_the_quick_form_can_refute_a_claim_of_two_statements():
    """Twenty seeds can refute a claim of two statements, also after Bonferroni's correction."""
    claim = small_claim(statements=(worse("Q=K", "QKV"), worse("K=V", "QKV")), n_seeds=40)
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=1.0, K_V=0.5), quick=True)
    assert evidence.judgement.verdict == "did not hold"


def test_the_quick_form_takes_over_learning_rates_of_the_same_claim():
    """It trains the comparison only; the full form, and a claim that has changed, tune anew."""
    claim = small_claim()
    known = made_up(claim)
    changed = small_claim(statements=(worse("Q=K", "QKV", 0.07, unable=True),))
    stale = replace(made_up(changed), claim=claim)
    assert not stale.current
    for record, quick, tunes in ((known, True, False), (known, False, True), (stale, True, True)):
        bench = MadeUp()
        evidence = made_up(claim, bench, quick=quick, records={claim.id: record})
        assert (len(bench.measured) > 1) == tunes
        if not tunes:
            assert evidence.tuned == {name: known.tuned[name] for name in ("Q=K", "QKV")}
