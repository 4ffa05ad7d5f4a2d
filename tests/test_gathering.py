"""Gathering evidence: what is trained, what is remembered, and how one goes on."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit.claims.base import arm, better, no_worse, worse
from attnkit.evidence import gathering
from attnkit.evidence.gathering import Bench, Interrupted, gather, tune
from attnkit.evidence.measures import MEASURES
from attnkit.evidence.record import QUICK_SEEDS
from attnkit.evidence.trials import FIRST_SEED, N_TUNING_SEEDS, RATES, TUNING_SEED, rates_of
from attnkit.experiment import Experiment, from_text
from attnkit.results import Result
from attnkit.training import train

ONE = Experiment(**TINY, sharing=["QKV", "Q=K"], n_seeds=2)


@pytest.fixture
def trained(monkeypatch):
    """What is trained, in its order; `trained.stop_after = n` interrupts all that comes later."""

    class Trained(list):
        stop_after = None

        def __call__(self, experiment, device="auto"):
            self.append(experiment)
            result = train(experiment, device)
            if self.stop_after is None or len(self) <= self.stop_after:
                return result
            return Result(replace(result.snapshot, status="stopped"), result.parameters)

    found = Trained()
    monkeypatch.setattr(gathering, "train", found)
    return found


def numbers(evidence):
    """All that does not hang on the clock."""
    return {**evidence.to_dict(), "seconds": None}


def same(one, other):
    """Whether two sets of scores agree to the bit."""
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name], equal_nan=True) for name in one
    )


# the bench


def test_a_bench_measures_what_train_gives(tmp_path):
    """Every measure of the finished experiment, and what it took."""
    bench = Bench(tmp_path)
    found, expected = bench.measure(ONE), train(ONE)
    for name, measure in MEASURES.items():
        np.testing.assert_array_equal(found[name], measure.of(expected.snapshot))
    assert bench.model_steps == 4 * TINY["steps"]
    assert bench.seconds == found["seconds"][0] > 0


def test_what_is_finished_is_not_trained_again(tmp_path, trained):
    """Another bench finds it, to the bit, missing scores too; it counts as if it were trained."""
    first, second = Bench(tmp_path / "new" / "folder"), Bench(tmp_path / "new" / "folder")
    before, after = first.measure(ONE), second.measure(ONE)
    assert trained == [ONE]
    assert np.isnan(before["accuracy_at_tie"]).all()
    assert same(before, after)
    assert (first.seconds, first.model_steps) == (second.seconds, second.model_steps)


def test_another_experiment_is_another_file(tmp_path, trained):
    """Whatever differs."""
    bench = Bench(tmp_path)
    for experiment in (ONE, ONE.replace(steps=7), ONE.replace(first_seed=3)):
        bench.measure(experiment)
    assert len(trained) == len(list(tmp_path.iterdir())) == 3


def test_scores_of_another_engine_are_not_taken_over(tmp_path, trained, monkeypatch):
    """The record names the engine of every number in it."""
    for engine in ("kernel", "torch", "torch"):
        monkeypatch.setenv("ATTNKIT_ENGINE", engine)
        bench = Bench(tmp_path)
        bench.measure(ONE)
        assert bench.engine == engine
    assert trained == [ONE, ONE]


def test_a_fresh_bench_trains_anew_but_each_experiment_once(tmp_path, trained):
    """What lay there is not believed, and is replaced."""
    expected = Bench(tmp_path).measure(ONE)
    (path,) = tmp_path.iterdir()
    told = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**told, "loss": [9.0] * ONE.n_runs}), encoding="utf-8")
    bench = Bench(tmp_path, fresh=True)
    first, second = bench.measure(ONE), bench.measure(ONE)
    assert trained == [ONE, ONE]
    assert same(first, second)
    assert same(Bench(tmp_path).measure(ONE), first)
    assert same({**first, "seconds": []}, {**expected, "seconds": []})
    assert trained == [ONE, ONE]


def cut(text):
    """Half a file."""
    return text[: len(text) // 2]


def without_a_measure(text):
    """As if it were not yet measured then."""
    told = json.loads(text)
    del told["loss"]
    return json.dumps(told)


def with_a_run_less(text):
    """Of another number of seeds."""
    told = json.loads(text)
    return json.dumps({name: values[:-1] for name, values in told.items()})


def with_a_number_for_a_list(text):
    """Of another shape."""
    return json.dumps({**json.loads(text), "loss": 0.5})


def without_seconds(text):
    """A list of none."""
    return json.dumps({**json.loads(text), "seconds": []})


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        without_a_measure,
        with_a_run_less,
        with_a_number_for_a_list,
        without_seconds,
        lambda _: "",
        lambda _: "[]",
        lambda _: "null",
        lambda _: "\x00 no text",
    ],
)
def test_a_file_that_is_not_whole_is_trained_again(tmp_path, trained, damage):
    """And is whole after it."""
    expected = Bench(tmp_path).measure(ONE)
    (path,) = tmp_path.iterdir()
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    for _ in range(2):
        found = Bench(tmp_path).measure(ONE)
        assert all(np.array_equal(found[m], expected[m], equal_nan=True) for m in MEASURES)
    assert len(trained) == 2


def test_what_was_interrupted_is_not_remembered(tmp_path, trained):
    """Its scores are not those of a finished experiment."""
    trained.stop_after = 0
    with pytest.raises(Interrupted):
        Bench(tmp_path).measure(ONE)
    assert list(tmp_path.iterdir()) == []


# tuning


def test_every_arm_is_tuned_on_its_rates():
    """Two seeds each; the chosen one is among them."""
    claim, bench = small_claim(), MadeUp()
    tuned = tune(claim.arms, bench)
    assert {name: tuple(sorted(own.tried)) for name, own in tuned.items()} == {
        one.name: rates_of(one) for one in claim.arms
    }
    assert all(own.rate in own.tried for own in tuned.values())
    n_runs = sum(experiment.n_runs for experiment in bench.measured)
    assert n_runs == len(claim.arms) * len(RATES) * N_TUNING_SEEDS


def test_an_arm_that_takes_another_s_rate_is_not_tuned():
    """It has that arm's record of tuning; nothing is trained for it."""
    own, bench = [arm("Q=K", **TINY), arm("QKV", "free", **TINY)], MadeUp()
    tuned = tune([arm("QKV tie=K=V", "tied later", rate_of="free", **TINY), *own], bench)
    assert tuned["tied later"] == tuned["free"] != tuned["Q=K"]
    n_runs = sum(experiment.n_runs for experiment in bench.measured)
    assert n_runs == len(own) * len(RATES) * N_TUNING_SEEDS


def test_a_tuned_rate_is_the_best_of_what_was_trained(tmp_path):
    """Each mean is that of the experiment with that very rate."""
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
    """Those of the tuned experiments, which its links name."""
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
            np.testing.assert_array_equal(evidence.scores[one.name][measure], expected)


def test_seeds_count_up_from_where_the_first_pass_did_not_reach():
    """Unless something else is asked for."""
    assert made_up(small_claim(n_seeds=3)).seeds == tuple(range(FIRST_SEED, FIRST_SEED + 3))


def test_evidence_names_the_text_that_it_was_trained_on():
    """A task that makes its own examples has none."""
    task = Experiment(task="language").task
    read = {"task": "language", "steps": 4, "evaluate_every": 2}
    arms = (arm("Q=K", **read), arm("QKV", **read), arm("K=V", **TINY))
    evidence = made_up(small_claim(arms=arms))
    assert evidence.texts == {"language": task.fingerprint}
    assert len(task.fingerprint) > 8
    assert made_up(small_claim()).texts == {}


def test_evidence_tells_what_it_cost():
    """Tuning, comparing and making sure."""
    claim, bench = small_claim(), MadeUp(QKV=1.0, Q_K=0.5)
    evidence = made_up(claim, bench)
    trained = sum(one.n_runs * one.training.steps for one in bench.measured)
    assert evidence.model_steps == trained == bench.model_steps


def test_evidence_of_one_claim_does_not_count_what_another_took():
    """Of two in a row."""
    first, second = gather([small_claim("first"), small_claim("second")], MadeUp())
    assert first.model_steps == second.model_steps


def test_every_measure_that_is_judged_is_recorded():
    """And accuracy and loss in any case, of all arms."""
    claim = small_claim(statements=(better("Q=K", "QKV", measure="loss_all_along"),))
    for own in made_up(claim).scores.values():
        assert set(own) == {"accuracy", "loss", "loss_all_along"}


# to make sure


def test_an_inability_that_shows_is_made_sure_of():
    """Longer and tuned finer, each at a rate of its own, beside those that it is compared with."""
    claim = small_claim()
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5))
    arms, _ = claim.sure()
    assert set(evidence.scores) == {one.name for one in (*claim.arms, *arms)} == set(evidence.tuned)
    assert len(evidence.findings) == 3
    assert evidence.judgement.verdict == "supported"
    steps = {from_text(text).training.steps for text in evidence.experiments}
    assert steps == {TINY["steps"], 3 * TINY["steps"]}


def test_an_inability_is_made_sure_of_whatever_becomes_of_the_claim():
    """Another statement that stays open does not hide that it shows."""
    open_still, shows = no_worse("K=V", "QKV"), worse("Q=K", "QKV", unable=True)
    claim = small_claim(statements=(open_still, shows))
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5, K_V=float("nan")))
    found = [one.verdict for one in evidence.findings]
    assert found == ["inconclusive", "supported", "supported", "supported"]
    assert evidence.judgement.verdict == "inconclusive"
    assert set(evidence.scores) == {one.name for one in (*claim.arms, *claim.sure()[0])}


def test_an_inability_at_another_s_rate_is_made_sure_of_at_rates_of_its_own():
    """Longer runs and finer rates are tuned for."""
    free = arm("QKV", **TINY)
    claim = small_claim(arms=(arm("Q=K", rate_of="QKV", **TINY), free))
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5))
    assert evidence.judgement.verdict == "supported"
    assert evidence.tuned["Q=K"] == evidence.tuned["QKV"]
    for one in claim.sure()[0]:
        assert tuple(sorted(evidence.tuned[one.name].tried)) == rates_of(one)


@pytest.mark.parametrize("accuracy", [1.0, 0.98])
def test_what_shows_no_inability_needs_no_more(accuracy):
    """It has been refuted already."""
    claim, bench = small_claim(), MadeUp(QKV=1.0, Q_K=accuracy)
    evidence = made_up(claim, bench)
    assert set(evidence.scores) == {one.name for one in claim.arms}
    assert {one.training.steps for one in bench.measured} == {TINY["steps"]}
    assert evidence.judgement.verdict == "contradicted"


def test_other_statements_need_no_more():
    """Only inabilities are made sure of."""
    claim = small_claim(statements=(worse("Q=K", "QKV"), no_worse("K=V", "QKV")))
    evidence = made_up(claim, MadeUp(QKV=1.0, K_V=1.0, Q_K=0.5))
    assert evidence.judgement.verdict == "supported"
    assert set(evidence.scores) == {one.name for one in claim.arms}


# the quick form


def test_the_quick_form_trains_judged_arms_on_few_seeds():
    """Nothing is made sure of."""
    evidence = made_up(small_claim(), MadeUp(QKV=1.0, Q_K=0.5), quick=True, first_seed=11)
    assert evidence.quick
    assert set(evidence.scores) == set(evidence.tuned) == {"Q=K", "QKV"}
    assert evidence.seeds == tuple(range(11, 11 + QUICK_SEEDS))
    assert QUICK_SEEDS == 8


def test_the_quick_form_tunes_the_arm_whose_rate_is_taken():
    """No statement is about it."""
    arms = (arm("Q=K", rate_of="K=V", **TINY), arm("K=V", **TINY), arm("QKV", **TINY))
    evidence = made_up(small_claim(arms=arms), quick=True)
    assert evidence.tuned["Q=K"] == evidence.tuned["K=V"] != evidence.tuned["QKV"]


def test_the_quick_form_can_contradict_a_claim_of_two_statements():
    """Of six seeds all would be too few."""
    claim = small_claim(statements=(worse("Q=K", "QKV"), worse("K=V", "QKV")))
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=1.0, K_V=0.5), quick=True)
    assert evidence.judgement.verdict == "contradicted"


def test_the_quick_form_takes_over_learning_rates():
    """Only what is compared is trained."""
    claim, bench = small_claim(), MadeUp()
    known = made_up(claim)
    evidence = made_up(claim, bench, quick=True, known={claim.id: known})
    assert len(bench.measured) == 1
    assert evidence.tuned == {name: known.tuned[name] for name in ("Q=K", "QKV")}


def test_the_full_form_tunes_anew():
    """Whatever is known."""
    claim, bench = small_claim(), MadeUp()
    made_up(claim, bench, known={claim.id: made_up(claim)})
    assert len(bench.measured) > 1


def test_learning_rates_of_a_claim_that_has_changed_are_not_taken_over():
    """They were those of something else."""
    claim, bench = small_claim(), MadeUp()
    changed = small_claim(statements=(worse("Q=K", "QKV", 0.07, unable=True),))
    stale = replace(made_up(changed), claim=claim)
    made_up(claim, bench, quick=True, known={claim.id: stale})
    assert not stale.current
    assert len(bench.measured) > 1


# interrupted


@pytest.mark.parametrize("fresh", [False, True])
def test_an_interrupt_keeps_what_is_finished_and_one_can_go_on(tmp_path, trained, fresh):
    """After it the evidence is what it would have been without."""
    claims = [small_claim("first", n_seeds=2), small_claim("second", n_seeds=3)]
    trained.stop_after = 3  # the first claim's two tuning trials and its comparison
    gathered = gather(claims, Bench(tmp_path, fresh=fresh))
    assert next(gathered).claim.id == "first"
    with pytest.raises(Interrupted):
        next(gathered)
    kept = trained[:3]
    trained.clear()
    trained.stop_after = None
    again = list(gather(claims, Bench(tmp_path)))
    assert not {one.hash for one in trained} & {one.hash for one in kept}
    straight = list(gather(claims, Bench(tmp_path / "another")))
    assert list(map(numbers, again)) == list(map(numbers, straight))


def test_what_is_done_is_told():
    """A line for every claim, before it is begun."""
    said = []
    list(gather([small_claim("first"), small_claim("second")], MadeUp(say=said.append)))
    assert said == ["1/2 first", "2/2 second"]
