"""The bench of gathering: what is trained, what is kept, and how an interrupted run goes on."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_claims import TINY, small_claim

from attnkit.claims.base import arm
from attnkit.claims.measures import measured
from attnkit.claims.statements import better
from attnkit.evidence import gathering
from attnkit.evidence.gathering import Bench, Interrupted, gather
from attnkit.evidence.record import Evidence
from attnkit.evidence.trials import (
    comparing_trials,
)
from attnkit.evidence.verdict import RULE_HASH
from attnkit.training import train
from attnkit.training.results import Result

ARMS = [arm("QKV", up_to=2, **TINY), arm("Q=K", up_to=2, **TINY)]

(ONE,) = comparing_trials(ARMS, {}, 2)


@pytest.fixture
def trained(monkeypatch):
    """Record what is trained, in order; `stop_after = n` interrupts all later trainings."""

    class Trained(list):
        stop_after = None

        def __call__(self, experiment, device="auto", progress=None):
            self.append(experiment)
            result = train(experiment, device, progress)
            if self.stop_after is None or len(self) <= self.stop_after:
                return result
            return Result(replace(result.snapshot, status="stopped"), result.parameters)

    found = Trained()
    monkeypatch.setattr(gathering, "train", found)
    return found


def numbers(evidence):
    """Return everything that does not depend on the clock."""
    return {**evidence.to_dict(), "seconds": None}


def same(one, other):
    """Return whether two measurements agree to the bit."""
    documents = [{**found.to_dict(), "seconds": None} for found in (one, other)]
    return json.dumps(documents[0]) == json.dumps(documents[1])


def test_a_bench_measures_what_train_gives(tmp_path):
    """A bench returns the scores and curves of `train`, with time and model-steps."""
    bench = Bench(tmp_path)
    found, snapshot = bench.measure(ONE), train(ONE.experiment).snapshot
    for name, expected in measured(snapshot, 2).items():
        np.testing.assert_array_equal(found.scores[name], expected)
    np.testing.assert_array_equal(found.steps, snapshot.eval_steps)
    np.testing.assert_array_equal(found.accuracy, snapshot.history["accuracy"])
    assert found.scores["loss"].shape == (2, 4)
    assert bench.model_steps == 4 * 2 * TINY["steps"]
    assert bench.seconds == found.seconds > 0


def test_what_is_finished_is_not_trained_again(tmp_path, trained):
    """Another bench on the same folder trains nothing, and returns the same bits."""
    first, second = Bench(tmp_path / "new" / "folder"), Bench(tmp_path / "new" / "folder")
    before, after = first.measure(ONE), second.measure(ONE)
    assert trained == [ONE.experiment]
    assert np.isnan(before.scores["accuracy_at_tie"]).all()
    assert np.isinf(before.scores["steps_to_solve"]).any()
    assert same(before, after)
    np.testing.assert_array_equal(before.scores["steps_to_solve"], after.scores["steps_to_solve"])
    assert (first.seconds, first.model_steps) == (second.seconds, second.model_steps)


def test_another_experiment_is_another_file(tmp_path, trained):
    """Every experiment, number of readings and variant has a file of its own."""
    bench = Bench(tmp_path)
    experiment = ONE.experiment
    for changed in (experiment, experiment.replace(steps=14), experiment.replace(first_seed=3)):
        bench.measure(replace(ONE, experiment=changed))
    bench.measure(replace(ONE, up_to=1))
    assert len(trained) == 4
    assert len(list(tmp_path.iterdir())) == 4 * len(ARMS)


def test_only_missing_variants_are_trained(tmp_path, trained):
    """A trial that shares an arm with an earlier trial takes over its numbers, to the bit."""
    bench = Bench(tmp_path)
    (shared,), (wider,) = (
        comparing_trials(arms, {}, 2) for arms in (ARMS[1:], [*ARMS, arm("K=V", up_to=2, **TINY)])
    )
    bench.measure(shared)
    found = bench.measure(wider)
    assert [[v.value for v in one.sharing] for one in trained[1:]] == [
        [f"{name} learning_rate=0.005" for name in ("QKV", "K=V")]
    ]
    alone = Bench(tmp_path / "other").measure(wider)
    assert same(replace(found, seconds=0), replace(alone, seconds=0))
    assert bench.model_steps == (2 + 6) * 2 * TINY["steps"]


def test_scores_of_another_engine_are_not_taken_over(tmp_path, trained, monkeypatch):
    """Scores of another engine are trained anew, so that the record names the right engine."""
    for engine in ("kernel", "torch", "torch"):
        monkeypatch.setenv("ATTNKIT_ENGINE", engine)
        bench = Bench(tmp_path)
        bench.measure(ONE)
        assert bench.engine == engine
    assert trained == [ONE.experiment] * 2


def test_a_fresh_bench_trains_anew_but_each_experiment_once(tmp_path, trained):
    """A fresh bench replaces stored measurements, and trains each experiment once."""
    expected = Bench(tmp_path).measure(ONE)
    path, _ = tmp_path.iterdir()
    document = json.loads(path.read_text(encoding="utf-8"))
    document["scores"]["loss"] = np.full((2, 2), 9.0).tolist()
    path.write_text(json.dumps(document), encoding="utf-8")
    bench = Bench(tmp_path, fresh=True)
    first, second = bench.measure(ONE), bench.measure(ONE)
    assert trained == [ONE.experiment] * 2
    assert all(same(found, expected) for found in (first, second, Bench(tmp_path).measure(ONE)))
    assert trained == [ONE.experiment] * 2


def damaged(text):
    """Yield a file cut short, of another kind, and with arrays that are missing or do not fit."""
    document = json.loads(text)
    scores = document["scores"]
    fewer = {name: [row[:-1] for row in rows] for name, rows in scores.items()}
    yield from ("", "[]", "null", "\x00 no text", text[: len(text) // 2])
    for changes in (
        {"scores": {name: rows for name, rows in scores.items() if name != "loss"}},  # older
        {"scores": fewer},
        {"steps": document["steps"][1:]},
        {"scores": scores | {"loss": 0.5}},
        {"seconds": None},
    ):
        yield json.dumps(document | changes)


def test_a_file_that_is_not_whole_is_trained_again(tmp_path, trained):
    """A damaged file is trained again once, and is whole afterwards."""
    expected = Bench(tmp_path).measure(ONE)
    path, _ = tmp_path.iterdir()
    for n, text in enumerate(damaged(path.read_text(encoding="utf-8")), 2):
        path.write_text(text, encoding="utf-8")
        for _ in range(2):
            assert same(Bench(tmp_path).measure(ONE), expected), text
        assert len(trained) == n, text


def test_what_was_interrupted_is_not_remembered(tmp_path, trained):
    """An interrupted training leaves no file."""
    trained.stop_after = 0
    with pytest.raises(Interrupted):
        Bench(tmp_path).measure(ONE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fresh", [False, True])
def test_an_interrupt_keeps_what_is_finished_and_one_can_go_on(tmp_path, trained, fresh):
    """After an interrupt, gathering goes on and gives the evidence of an undisturbed run."""
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


# predictions and rules of the first run


def test_prediction_and_rule_are_written_down_when_the_first_run_begins(tmp_path, trained):
    """The first run fixes prediction and rule, and later changes of either are named."""
    claim = small_claim(n_seeds=2)
    (before,) = gather([claim], Bench(tmp_path))
    assert (before.first_run.prediction, before.first_run.rule) == (
        claim.prediction_hash,
        RULE_HASH,
    )
    assert len(before.first_run.date) == len("2026-11-23")
    assert before.changed == ""
    again = replace(claim, prediction="Undecided.", expected="undecided")
    (after,) = gather([again], Bench(tmp_path, fresh=True))
    assert after.first_run == before.first_run
    assert after.changed == "the prediction"
    (begun,) = tmp_path.glob("begun-*.json")
    document = json.loads(begun.read_text(encoding="utf-8"))
    begun.write_text(json.dumps({**document, "rule": "another rule"}), encoding="utf-8")
    (both,) = gather([again], Bench(tmp_path))
    assert both.changed == "the rule and the prediction"
    assert Evidence.from_dict({**both.to_dict(), "id": "direction"}).first_run == both.first_run


def test_a_claim_whose_test_is_changed_begins_anew(tmp_path, trained):
    """Another test has a prediction and a first run of its own; the quick form writes none."""
    bench = Bench(tmp_path)
    (evidence,) = gather([small_claim(n_seeds=4)], bench, quick=True)
    assert (evidence.first_run.date, evidence.changed) == ("", "")
    assert not list(tmp_path.glob("begun-*"))
    first = bench.begin(small_claim())
    other = small_claim(statements=(better("Q=K", "QKV"),), prediction="It holds, too.")
    assert bench.begin(other).prediction == other.prediction_hash != first.prediction
