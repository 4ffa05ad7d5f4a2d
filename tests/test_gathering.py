"""Gathering evidence: tuning, the bench, the scores of a claim, longer runs, the quick form."""

import json
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit.claims.base import FOLLOWED, LONGEST, arm
from attnkit.claims.measures import measured
from attnkit.claims.statements import better, no_worse, worse
from attnkit.evidence import gathering
from attnkit.evidence.curve import Curve
from attnkit.evidence.gathering import Bench, gather, tune
from attnkit.evidence.record import Evidence, rivals_of
from attnkit.evidence.stored import plain
from attnkit.evidence.trials import FIRST_SEED, comparing_trials
from attnkit.evidence.tuning import FINALISTS, SHORTENED, TUNING_SEEDS
from attnkit.evidence.verdict import RULE_HASH
from attnkit.evidence.words import followed_in_words
from attnkit.experiment import Experiment, from_text
from attnkit.training import maker, train

ARMS = [arm("QKV", up_to=2, **TINY), arm("Q=K", up_to=2, **TINY)]

(ONE,) = comparing_trials(ARMS, {}, 2)


@pytest.fixture
def trained(monkeypatch):
    """Record what is trained, in order."""
    found = []

    def recorded(experiment, device="auto", progress=None):
        found.append(experiment)
        return train(experiment, device, progress)

    monkeypatch.setattr(gathering, "train", recorded)
    return found


def text_of(found):
    """Return everything but the time of a trial's measurements, to the bit."""
    return repr([plain({**asdict(one), "seconds": None}) for one in found.values()])


def rivals(evidence):
    """Return the names of arms that have lost, with their next best recipes."""
    return {one.name for one in evidence.rivals}


def test_every_arm_is_tuned_for_its_steps_or_takes_the_recipe_of_another():
    """An arm may be tuned for fewer steps than it is trained for."""
    long = replace(arm("K=V", **TINY), up_to=8)
    brief = replace(arm("Q=K", "brief", **TINY), up_to=32, tuned_at=2)
    tuned_arms = [arm("Q=K", **TINY), arm("QKV", "free", **TINY), long, brief]
    bench = MadeUp(K_V=[0.1, 0.9, 0.7, 0.7])
    tuned = tune([arm("QKV tie=K=V", "tied later", recipe_of="free", **TINY), *tuned_arms], bench)
    for one in tuned_arms:
        assert tuned[one.name].steps == TINY["steps"] * (one.tuned_at or one.up_to)
        assert max(each.n_seeds for each in tuned[one.name].tried) == TUNING_SEEDS
    assert {round(one.mean, 6) for one in tuned["K=V"].tried} == {0.7}
    assert tuned["tied later"] == tuned["free"] != tuned["Q=K"]
    steps = {experiment.training.steps // TINY["steps"] for experiment in bench.measured}
    assert steps == {1, 2, 8 // SHORTENED, 8}


def test_a_bench_measures_what_train_gives_and_nothing_twice(tmp_path, trained):
    """Another bench on the same folder trains nothing, and returns the same bits."""
    benches = [Bench(tmp_path / "new" / "folder") for _ in range(2)]
    found, again = (bench.measure(ONE) for bench in benches)
    assert trained == [ONE.experiment]
    snapshot = train(ONE.experiment).snapshot
    first, second = found.values()
    for name, expected in measured(snapshot, 2).items():
        joined = np.concatenate([first.scores[name], second.scores[name]], -1)
        np.testing.assert_array_equal(joined, expected)
    np.testing.assert_array_equal(first.steps, snapshot.eval_steps)
    np.testing.assert_array_equal(second.accuracy, snapshot.history["accuracy"][:, 2:])
    assert first.scores["loss"].shape == (2, 2)
    assert np.isnan(first.scores["accuracy_at_tie"]).all()
    assert np.isinf(first.scores["steps_to_solve"]).any()
    assert text_of(found) == text_of(again)
    for bench in benches:
        assert bench.model_steps == 4 * 2 * TINY["steps"]
        assert bench.seconds == sum(one.seconds for one in found.values()) > 0


def test_every_variant_of_an_experiment_is_kept_by_itself(tmp_path, trained):
    """Only missing variants are trained; other settings and readings are other files."""
    bench = Bench(tmp_path)
    (shared,), (wider,) = (
        comparing_trials(arms, {}, 2) for arms in (ARMS[1:], [*ARMS, arm("K=V", up_to=2, **TINY)])
    )
    bench.measure(shared)
    found = bench.measure(wider)
    assert [v.value.split()[0] for v in trained[1].sharing] == ["QKV", "K=V"]
    assert text_of(found) == text_of(Bench(tmp_path / "other").measure(wider))
    assert bench.model_steps == (2 + 6) * 2 * TINY["steps"]
    for n_files, changes in enumerate(
        (
            {"experiment": shared.experiment.replace(steps=14)},
            {"experiment": shared.experiment.replace(first_seed=3)},
            {"up_to": 1},
        ),
        4,
    ):
        bench.measure(replace(shared, **changes))
        assert len(list(tmp_path.glob("*.json"))) == n_files, changes


def test_scores_of_another_maker_are_not_taken_over(tmp_path, trained, monkeypatch):
    """They are trained anew, so that the record names the right maker; a line names both."""
    lines, makers = [], []
    for engine, version in (("kernel", "2.13"), ("torch", "2.13"), *[("torch", "2.14")] * 2):
        monkeypatch.setenv("ATTNKIT_ENGINE", engine)
        monkeypatch.setattr(maker, "versions_of", lambda _, v=version: f"torch {v}")
        bench = Bench(tmp_path, say=lines.append)
        bench.measure(ONE)
        makers.append(bench.maker)
        assert bench.maker.engine == engine
    assert trained == [ONE.experiment] * 3
    for line, pair in zip(lines, pairwise(makers[:3]), strict=True):
        assert all(str(one) in line for one in pair)


def test_a_file_that_is_not_whole_is_trained_again(tmp_path, trained):
    """Once, and it is whole afterwards; a fresh bench replaces whole ones, too, but only once."""
    (one,) = comparing_trials(ARMS[:1], {}, 1)
    expected = text_of(Bench(tmp_path).measure(one))
    (path,) = tmp_path.iterdir()
    text = path.read_text(encoding="utf-8")
    document = json.loads(text)
    scores = document["scores"]
    changes = (
        {"scores": {name: rows for name, rows in scores.items() if name != "loss"}},  # older
        {"scores": {name: [row[:-1] for row in rows] for name, rows in scores.items()}},
        {"steps": document["steps"][1:]},
        {"scores": scores | {"loss": 0.5}},
    )
    wrong = ["[]", "\x00 no text", text[: len(text) // 2]]
    wrong += [json.dumps(document | changed) for changed in changes]
    for n, damaged in enumerate(wrong, 2):
        path.write_text(damaged, encoding="utf-8")
        for _ in range(2):
            assert text_of(Bench(tmp_path).measure(one)) == expected, damaged
        assert len(trained) == n, damaged
    path.write_text(
        json.dumps(document | {"scores": scores | {"loss": [[9.0], [9.0]]}}), encoding="utf-8"
    )
    fresh = Bench(tmp_path, fresh=True)
    for bench in (fresh, fresh, Bench(tmp_path)):
        assert text_of(bench.measure(one)) == expected
        assert len(trained) == len(wrong) + 2


def test_prediction_and_rule_are_written_down_when_the_first_run_begins(tmp_path, monkeypatch):
    """Later changes of either are named; a claim with another test begins anew."""
    monkeypatch.setattr(Bench, "measure", MadeUp().measure)
    claim = small_claim()
    (quick,) = gather([claim], Bench(tmp_path), quick=True)
    assert (quick.first_run.date, quick.changed, [*tmp_path.iterdir()]) == ("", "", [])
    (before,) = gather([claim], Bench(tmp_path))
    first = before.first_run
    assert (first.prediction, first.rule) == (claim.prediction_hash, RULE_HASH)
    assert (len(first.date), before.changed) == (len("2026-11-23"), "")
    again = replace(claim, prediction="Undecided.", expected="undecided")
    (after,) = gather([again], Bench(tmp_path, fresh=True))
    assert (after.first_run, after.changed) == (first, "the prediction")
    (begun,) = tmp_path.glob("begun-*.json")
    document = json.loads(begun.read_text(encoding="utf-8"))
    begun.write_text(json.dumps({**document, "rule": "another rule"}), encoding="utf-8")
    (both,) = gather([again], Bench(tmp_path))
    assert both.changed == "the rule and the prediction"
    assert Evidence.from_dict({**both.to_dict(), "claim": "direction"}).first_run == both.first_run
    other = small_claim(statements=(better("Q=K", "QKV"),), prediction="It holds, too.")
    assert Bench(tmp_path).begin(other).prediction == other.prediction_hash != first.prediction


def test_evidence_holds_the_scores_of_every_arm(tmp_path):
    """They and the curves are those of the experiments that its links name."""
    claim = small_claim(n_seeds=3)
    (evidence,) = gather([claim], Bench(tmp_path), first_seed=5)
    assert (list(evidence.seeds), evidence.hash, evidence.quick) == ([5, 6, 7], claim.hash, False)
    snapshots = [train(from_text(link)).snapshot for link in evidence.experiments]
    by_schedule = {one.experiment.training.schedule: one for one in snapshots}
    for one in claim.arms:
        tuned = evidence.tuned[one.name]
        snapshot = by_schedule[tuned.schedule]
        variants = [variant for variant, _ in snapshot.experiment.runs]
        name = f"{one.variant} learning_rate={tuned.rate:g}"
        runs = [place for place, variant in enumerate(variants) if variant == name]
        for measure in ("accuracy", "loss"):
            expected = snapshot.history[measure][-1, runs]
            np.testing.assert_array_equal(evidence.scores_at(measure)[one.name], expected)
        accuracy, curve = snapshot.history["accuracy"][:, runs], evidence.curves[one.name]
        np.testing.assert_array_equal(curve.steps, snapshot.eval_steps)
        np.testing.assert_allclose(curve.mean, accuracy.mean(1))
        np.testing.assert_allclose(curve.low, np.quantile(accuracy, 0.25, axis=1))
        np.testing.assert_allclose(curve.high, np.quantile(accuracy, 0.75, axis=1))
        assert curve.by == "accuracy"


def test_a_curve_leaves_out_runs_that_diverged():
    """Its share of solved seeds counts all seeds."""
    values = np.array([[0.5, 0.7], [0.96, np.nan], [np.nan, np.nan]])
    curve = Curve.of(np.array([1, 2, 4]), values, "accuracy")
    assert curve.steps.tolist() == [1, 2]
    assert curve.mean == pytest.approx([0.6, 0.96])
    assert curve.solved == pytest.approx([0, 0.5])
    assert not Curve.of(np.array([1, 2, 4]), values, "loss").solved.any()
    assert not len(Curve.of(np.array([4]), values[2:], "accuracy").high)


def test_evidence_tells_seeds_texts_measures_and_costs():
    """Texts that were read are named, judged measures recorded, and all model-steps count."""
    read = {"task": "language", "steps": 4, "evaluate_every": 2}
    arms = (arm("Q=K", **read), arm("QKV", **read), arm("K=V", **TINY))
    judged = (better("Q=K", "QKV", measure="loss_all_along"),)
    evidence = made_up(small_claim(arms=arms, statements=judged))
    assert evidence.texts == {"language": Experiment(task="language").task.fingerprint}
    for scores in evidence.scores.values():
        assert set(scores) == {"accuracy", "loss", "loss_all_along"}
    lines, bench = [], MadeUp(lambda line: lines.append((line, len(bench.measured))), Q_K=0.5)
    first, second = gather([small_claim("first"), small_claim("second")], bench)
    half = len(bench.measured) / 2  # a line is said before its claim begins
    assert lines == [("1/2 first", 0), ("2/2 second", half)]
    trained = sum(one.n_runs * one.training.steps for one in bench.measured)
    assert first.model_steps == second.model_steps == trained / 2
    assert (first.texts, first.seeds) == ({}, range(FIRST_SEED, FIRST_SEED + 17))


def test_an_arm_is_worse_only_with_each_of_its_best_recipes():
    """An arm loses on either side of a statement; means are compared with best recipes alone."""
    statements = (worse("Q=K", "QKV"), better("QKV", "K=V"), no_worse("K=V", "QKV"))
    claim = small_claim(statements=statements, followed=1)
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5, K_V=0.5))
    assert evidence.losers == ("Q=K", "K=V")
    assert len(rivals(evidence)) == 2 * (FINALISTS - 1)
    assert {one.verdict for one in evidence.findings} == {"held", "did not hold"}
    for name in ("Q=K", "K=V"):
        for rival, recipe in rivals_of(name, evidence.tuned).items():
            assert evidence.tuned[rival].recipe == recipe != evidence.tuned[name].recipe
            good = {**evidence.scores[rival], "accuracy": np.ones((1, claim.n_seeds))}
            again = replace(evidence, scores={**evidence.scores, rival: good})
            changed = [one.verdict == "undecided" for one in again.findings]
            assert changed == ([True, False, False] if name == "Q=K" else [False, True, True])
    by_mean = small_claim(statements=(worse("Q=K", "QKV", 0, measure="loss"),))
    assert not rivals(made_up(by_mean, MadeUp(QKV=1.0, Q_K=0.5)))


def test_an_inability_that_shows_is_confirmed_by_long_runs():
    """With a constant rate and with a schedule, tuned for their steps, on at most 20 seeds."""
    free = arm("QKV", **TINY)
    for claim, n_shared in (
        (small_claim(n_seeds=23), 20),
        (small_claim(arms=(arm("Q=K", recipe_of="QKV", **TINY), free)), 17),
    ):
        evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5))
        arms, _ = claim.confirmation
        names = {one.name for one in (*claim.arms, *arms)} | rivals(evidence)
        assert names == set(evidence.scores) == set(evidence.tuned) == set(evidence.curves)
        assert evidence.judgement.verdict == "held"
        steps = {from_text(text).training.steps for text in evidence.experiments}
        assert steps == {TINY["steps"], LONGEST * TINY["steps"]}
        for one in arms:
            assert {each.schedule for each in evidence.tuned[one.name].tried} == set(one.schedules)
            assert evidence.tuned[one.name].steps == one.steps
            assert evidence.scores[one.name]["accuracy"].shape == (5, n_shared)
        assert [one.n_pairs for one in evidence.findings] == [claim.n_seeds, n_shared, n_shared]
    assert evidence.tuned["Q=K"] == evidence.tuned["QKV"]


@pytest.mark.parametrize(
    ("accuracy", "found", "verdict"),
    [
        ({"Q_K": [0.3, 0.4, 0.5, 0.7, 1.0], "K_V": 1.0}, "hh--", "u"),  # overcome by training
        ({"Q_K": 0.5, "K_V": float("nan")}, "uhhh", "u"),
        ({"Q_K": 1.0, "K_V": 1.0}, "h-", "u"),
        ({"Q_K": 0.98, "K_V": 0.5}, "--", "-"),  # a small difference
    ],
)
def test_only_an_inability_is_confirmed_whatever_becomes_of_the_claim(accuracy, found, verdict):
    """One that longer training overcomes does not hold; h: held, u: undecided, -: did not."""
    words = {"h": "held", "u": "undecided", "-": "did not hold"}
    statements = (no_worse("K=V", "QKV"), worse("Q=K", "QKV", unable=True))
    claim = small_claim(statements=statements, followed=1)
    evidence = made_up(claim, MadeUp(QKV=1.0, **accuracy))
    assert [one.verdict for one in evidence.findings] == [words[letter] for letter in found]
    arms = claim.confirmation[0] if len(found) > len(statements) else ()
    trained = {one.name for one in (*claim.arms, *arms)} | rivals(evidence)
    assert set(evidence.scores) == trained
    assert evidence.judgement.verdict == words[verdict]


def test_an_arm_that_loses_is_followed_until_it_learns_or_does_not():
    """For eight times its base steps, on 20 seeds; one that was trained as long is not."""
    levels = {"Q_K": [0.3, 0.5, 0.97, 1.0, 1.0, 1.0], "K_V": 0.5, "Q_V": 0.5}
    arms = (
        *(arm(sharing, **TINY) for sharing in ("QKV", "Q=K", "K=V")),
        replace(arm("Q=V", **TINY), up_to=FOLLOWED),
    )
    statements = (no_worse("Q=K", "QKV"), better("QKV", "K=V"), worse("Q=V", "QKV"))
    claim = small_claim(arms=arms, statements=statements, n_seeds=23)
    evidence = made_up(claim, MadeUp(QKV=1.0, **levels))
    followed = dict(evidence.lost)
    assert [*followed] == ["Q=K", "K=V"]
    for one in followed.values():
        assert one.steps == FOLLOWED * TINY["steps"]
        assert evidence.scores[one.name]["steps_to_solve"].shape == (4, 20)
        assert evidence.tuned[one.name].steps == one.steps
    assert evidence.statements == statements
    learns, never = followed_in_words(evidence).split("; ")
    assert all(part in learns for part in ("Q=K", "20 of 20", "median"))
    assert all(part in never for part in ("K=V", "no seed of 20", "48 steps (50%)"))
    assert not followed_in_words(made_up(claim, MadeUp(QKV=1.0, Q_K=1.0, K_V=1.0, Q_V=1.0)))
    assert not made_up(replace(claim, followed=1), MadeUp(QKV=1.0, **levels)).lost


def test_the_quick_form_trains_judged_arms_on_few_seeds():
    """Half of the seeds, nothing is confirmed, and an arm whose rate is taken is tuned, too."""
    evidence = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=0.5), quick=True, first_seed=11)
    assert (evidence.quick, evidence.seeds) == (True, range(11, 11 + 8))
    assert set(evidence.scores) == set(evidence.tuned) == {"Q=K", "QKV"}
    arms = (arm("Q=K", recipe_of="K=V", **TINY), arm("K=V", **TINY), arm("QKV", **TINY))
    evidence = made_up(small_claim(arms=arms), quick=True)
    assert evidence.tuned["Q=K"] == evidence.tuned["K=V"] != evidence.tuned["QKV"]
    two = small_claim(statements=(worse("Q=K", "QKV"), worse("K=V", "QKV")), n_seeds=40)
    refuted = made_up(two, MadeUp(QKV=1.0, Q_K=1.0, K_V=0.5), quick=True)
    assert refuted.judgement.verdict == "did not hold"  # with 20 seeds, after Bonferroni, too


def test_the_quick_form_takes_over_learning_rates_of_the_same_claim():
    """It trains the comparison only; the full form, and a claim that has changed, tune anew."""
    claim = small_claim()
    known = made_up(claim)
    other = small_claim(statements=(worse("Q=K", "QKV", 0.07, unable=True),))
    stale = replace(made_up(other), claim=claim)
    assert not stale.current
    for record, quick, tunes in ((known, True, False), (known, False, True), (stale, True, True)):
        bench = MadeUp()
        evidence = made_up(claim, bench, quick=quick, records={claim.id: record})
        assert (len(bench.measured) > 1) == tunes
        if not tunes:
            assert evidence.tuned == {name: known.tuned[name] for name in ("Q=K", "QKV")}
