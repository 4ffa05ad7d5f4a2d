"""Gathering evidence: the bench, scores, rivals, longer runs, records, and the quick form."""

import json
from dataclasses import asdict, replace
from itertools import pairwise
from math import inf, nan
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from same import assert_same
from small_claims import TINY, MadeUp, about, made_up, small_claim

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import FOLLOWED, LONGEST, arm
from attnkit.claims.measures import measured
from attnkit.claims.statements import better, no_worse, worse
from attnkit.evidence import gathering, record
from attnkit.evidence.gathering import Bench, gather, tune, work_of_claim
from attnkit.evidence.presentation import ClaimInWords
from attnkit.evidence.record import Curve, Evidence, Records, load_shipped, plain, rivals_of
from attnkit.evidence.trials import (
    FIRST_SEED,
    QUICK_SEEDS,
    TWO_MINUTES,
    QuickForm,
    comparing_trials,
)
from attnkit.evidence.tuning import FINALISTS, SHORTENED, TUNING_SEEDS
from attnkit.evidence.verdict import RULE_HASH
from attnkit.evidence.words import followed_in_words
from attnkit.experiment import Experiment, from_text
from attnkit.figures.evidence import describe_evidence
from attnkit.foundation.machine import processor_kind
from attnkit.training import maker, train
from attnkit.training.pace import work_of

ARMS = [arm("QKV", up_to=2, **TINY), arm("Q=K", up_to=2, **TINY)]
THREE = tuple(arm(sharing, **TINY) for sharing in ("Q=K", "K=V", "QKV"))
(ONE,) = comparing_trials(ARMS, {}, 2)
ALIKE, WORSE = MadeUp(QKV=1.0, Q_K=1.0), MadeUp(QKV=1.0, Q_K=0.5)
TWO = small_claim(
    arms=(replace(THREE[0], up_to=2), *THREE[1:]),
    statements=(worse("Q=K", "QKV"), worse("K=V", "QKV")),
    n_seeds=40,
)


def text_of(found):
    """Return everything but the time of a trial's measurements, to the bit."""
    return repr([plain({**asdict(one), "seconds": None}) for one in found.values()])


def names(form):
    """Return the names of the arms of a form."""
    return [one.name for one in form.arms]


@pytest.fixture
def trained(monkeypatch):
    """Record what is trained, in order."""
    found = []

    def recorded(experiment, device="auto", progress=None):
        found.append(experiment)
        return train(experiment, device, progress)

    monkeypatch.setattr(gathering, "train", recorded)
    return found


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
    assert tuned["K=V"].never_learnt
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
    for one, expected in zip((first, second), measured(snapshot, 2), strict=True):
        assert_same(one.scores, expected)
    np.testing.assert_array_equal(first.steps, snapshot.eval_steps)
    np.testing.assert_array_equal(second.accuracy, snapshot.history["accuracy"][:, 2:])
    assert text_of(found) == text_of(again)
    for bench in benches:
        assert bench.model_steps == 4 * 2 * TINY["steps"]
        assert bench.seconds == sum(one.seconds for one in found.values()) > 0


def test_every_variant_of_an_experiment_is_kept_by_itself(tmp_path, trained):
    """Only missing variants are trained; other settings and readings are other files."""
    bench = Bench(tmp_path)
    (shared,) = comparing_trials(ARMS[1:], {}, 2)
    (wider,) = comparing_trials([*ARMS, arm("K=V", up_to=2, **TINY)], {}, 2)
    bench.measure(shared)
    assert bench.work(shared) == 0 < bench.work(wider) < Bench(tmp_path / "other").work(wider)
    found = bench.measure(wider)
    assert [v.value.split()[0] for v in trained[1].sharing] == ["QKV", "K=V"]
    assert text_of(found) == text_of(Bench(tmp_path / "other").measure(wider))
    assert bench.model_steps == (2 + 6) * 2 * TINY["steps"]
    changes = ({"experiment": shared.experiment.replace(first_seed=3)}, {"up_to": 1})
    for n_files, changed in enumerate(changes, 4):
        bench.measure(replace(shared, **changed))
        assert len(list(tmp_path.glob("*.json"))) == n_files, changed


def test_scores_of_another_maker_are_not_taken_over(tmp_path, trained, monkeypatch):
    """They are trained anew, so that the record names the right maker; a line names both."""
    lines, makers = [], []
    for engine, version in (("kernel", "2.13"), ("torch", "2.13"), *[("torch", "2.14")] * 2):
        monkeypatch.setenv("ATTNKIT_ENGINE", engine)
        monkeypatch.setattr(maker, "versions_of", lambda _, v=version: f"torch {v}")
        bench = Bench(tmp_path, say=lines.append)
        bench.measure(ONE)
        makers.append(bench.maker)
    assert trained == [ONE.experiment] * 3
    for line, pair in zip(lines, pairwise(makers[:3]), strict=True):
        assert all(str(one) in line for one in pair)


def test_a_file_that_is_not_whole_is_trained_again(tmp_path, trained):
    """This happens once; a fresh bench replaces whole files, too, but only once."""
    (one,) = comparing_trials(ARMS[:1], {}, 1)
    expected = text_of(Bench(tmp_path).measure(one))
    (path,) = tmp_path.iterdir()
    text = path.read_text(encoding="utf-8")
    document = json.loads(text)
    scores = document["scores"]
    older = {name: rows for name, rows in scores.items() if name != "loss"}
    other = scores | {"loss": [[9.0], [9.0]]}
    made = [json.dumps(document | {"scores": one}) for one in (other, older)]
    whole, *wrong = [*made, "[]", "\x00 no text", text[: len(text) // 2]]
    for n, damaged in enumerate(wrong, 2):
        path.write_text(damaged, encoding="utf-8")
        for _ in range(2):
            assert text_of(Bench(tmp_path).measure(one)) == expected, damaged
        assert len(trained) == n, damaged
    path.write_text(whole, encoding="utf-8")
    fresh = Bench(tmp_path, fresh=True)
    for bench in (fresh, fresh, Bench(tmp_path)):
        assert text_of(bench.measure(one)) == expected
        assert len(trained) == len(wrong) + 2


def test_prediction_and_rule_are_written_down_when_the_first_run_begins(tmp_path, monkeypatch):
    """Later changes of either are named; a claim with another test begins anew."""
    monkeypatch.setattr(Bench, "measure", MadeUp().measure)
    claim = small_claim()
    (quick,) = gather([claim], Bench(tmp_path), quick=True)
    assert (quick.first_run.date, [*tmp_path.iterdir()]) == ("", [])
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
    told = [ClaimInWords(one.claim, one).seen for one in (before, after)]
    assert ["prediction has been changed" in text for text in told] == [False, True]


def test_evidence_holds_the_scores_of_every_arm(tmp_path):
    """They and the curves are those of the experiments that its links name."""
    claim = small_claim(n_seeds=3)
    (evidence,) = gather([claim], Bench(tmp_path), first_seed=5)
    assert (list(evidence.seeds), evidence.hash, evidence.quick) == ([5, 6, 7], claim.hash, False)
    snapshots = [train(from_text(link)).snapshot for link in evidence.experiments]
    by_schedule = {one.experiment.training.schedule: one for one in snapshots}
    for one in claim.arms:
        tuned, curve = evidence.tuned[one.name], evidence.curves[one.name]
        snapshot = by_schedule[tuned.schedule]
        name = f"{one.variant} learning_rate={tuned.rate:g}"
        runs = [run for run, (own, _) in enumerate(snapshot.experiment.runs) if own == name]
        for measure in ("accuracy", "loss"):
            expected = snapshot.history[measure][-1, runs]
            np.testing.assert_array_equal(evidence.scores_at(measure)[one.name], expected)
        accuracy = snapshot.history["accuracy"][:, runs]
        np.testing.assert_array_equal(curve.steps, snapshot.eval_steps)
        np.testing.assert_allclose(curve.mean, accuracy.mean(1))
        quartiles = np.quantile(accuracy, (0.25, 0.75), axis=1)
        np.testing.assert_allclose([curve.low, curve.high], quartiles)
        assert curve.by == "accuracy"
    values = np.array([[0.5, 0.7], [0.96, np.nan], [np.nan, np.nan]])
    curve = Curve.of(np.array([1, 2, 4]), values, "accuracy")  # runs that diverged are left out
    assert (curve.steps.tolist(), curve.mean.tolist()) == ([1, 2], [0.6, 0.96])
    assert curve.solved.tolist() == [0, 0.5]  # of all seeds


def test_evidence_tells_texts_measures_and_costs():
    """Texts that were read are named, judged measures recorded, and all model-steps count."""
    read, along = {"task": "language", "steps": 4}, {"measure": "loss_all_along"}
    arms, judged = (arm("Q=K", **read), arm("QKV", **read)), better("Q=K", "QKV", **along)
    evidence = made_up(small_claim(arms=arms, statements=(judged,)))
    assert evidence.texts == {"language": Experiment(task="language").task.fingerprint}
    assert {*map(tuple, evidence.scores.values())} == {("accuracy", "loss", "loss_all_along")}
    lines, bench = [], MadeUp(lambda line: lines.append((line, len(bench.measured))), Q_K=0.5)
    first, second = gather([small_claim("first"), small_claim("second")], bench)
    assert lines == [("1/2 first", 0), ("2/2 second", len(bench.measured) / 2)]  # before it begins
    trained = sum(one.n_runs * one.training.steps for one in bench.measured)
    assert first.model_steps == second.model_steps == trained / 2
    assert (first.texts, first.seeds) == ({}, range(FIRST_SEED, FIRST_SEED + 17))


def test_an_arm_is_worse_only_with_each_of_its_best_recipes():
    """An arm loses on either side of a statement; means are compared with best recipes alone."""
    statements = (worse("Q=K", "QKV"), better("QKV", "K=V"), no_worse("K=V", "QKV"))
    claim = small_claim(statements=statements, followed=1)
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5, K_V=0.5))
    assert list(evidence.losers) == ["Q=K", "K=V"]
    assert len({one.name for one in evidence.rivals}) == 2 * (FINALISTS - 1)
    assert {one.verdict for one in evidence.findings} == {"held", "did not hold"}
    for name in ("Q=K", "K=V"):
        for rival, recipe in rivals_of(name, evidence.tuned).items():
            assert evidence.tuned[rival].recipe == recipe != evidence.tuned[name].recipe
            good = {**evidence.scores[rival], "accuracy": np.ones((1, claim.n_seeds))}
            again = replace(evidence, scores={**evidence.scores, rival: good})
            changed = [one.verdict == "undecided" for one in again.findings]
            assert changed == ([True, False, False] if name == "Q=K" else [False, True, True])


@pytest.mark.parametrize(
    ("given", "n_shared"),
    [
        ({"n_seeds": 23}, 20),
        ({"arms": (arm("Q=K", recipe_of="QKV", **TINY), arm("QKV", **TINY))}, 17),
    ],
)
def test_an_inability_that_shows_is_confirmed_by_long_runs(given, n_shared):
    """With a constant rate and with a schedule, tuned for their steps, on at most 20 seeds."""
    claim = small_claim(**given)
    evidence = made_up(claim, WORSE)
    arms, _ = claim.confirmation
    assert evidence.judgement.verdict == "held"
    steps = {from_text(text).training.steps for text in evidence.experiments}
    assert steps == {TINY["steps"], LONGEST * TINY["steps"]}
    for one in arms:
        assert {each.schedule for each in evidence.tuned[one.name].tried} == set(one.schedules)
        assert evidence.tuned[one.name].steps == one.steps
        assert evidence.scores[one.name]["accuracy"].shape == (5, n_shared)
    assert [one.n_pairs for one in evidence.findings] == [claim.n_seeds, n_shared, n_shared]
    assert ("arms" in given) == (evidence.tuned["Q=K"] == evidence.tuned["QKV"])


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
    trained = (*claim.arms, *arms, *evidence.rivals)
    assert set(evidence.scores) == {one.name for one in trained}
    assert evidence.judgement.verdict == words[verdict]


def test_an_arm_that_loses_is_followed_until_it_learns_or_does_not():
    """For eight times its base steps, on 20 seeds; one that was trained as long is not."""
    levels = {"Q_K": [0.3, 0.5, 0.97, 1.0, 1.0, 1.0], "K_V": 0.5, "Q_V": 0.5}
    arms = (*THREE, replace(arm("Q=V", **TINY), up_to=FOLLOWED))
    statements = (no_worse("Q=K", "QKV"), better("QKV", "K=V"), worse("Q=V", "QKV"))
    claim = small_claim(arms=arms, statements=statements, n_seeds=23)
    evidence = made_up(claim, MadeUp(QKV=1.0, **levels))
    followed = dict(evidence.lost)
    assert [*followed] == ["Q=K", "K=V"]
    for one in followed.values():
        assert one.steps == FOLLOWED * TINY["steps"]
        assert evidence.scores[one.name]["steps_to_solve"].shape == (4, 20)
        assert evidence.tuned[one.name].steps == one.steps
    learns, never = followed_in_words(evidence).split("; ")
    assert ("20 of 20" in learns, "no seed of 20" in never) == (True, True)
    assert not followed_in_words(made_up(claim, MadeUp(QKV=1.0, Q_K=1.0, K_V=1.0, Q_V=1.0)))


def test_the_quick_form_trains_judged_arms_on_few_seeds_at_known_learning_rates():
    """Half of the seeds, nothing is confirmed; the full form tunes anew."""
    evidence = made_up(small_claim(), WORSE, quick=True, first_seed=11)
    assert (evidence.quick, evidence.seeds) == (True, range(11, 11 + 8))
    assert set(evidence.scores) == set(evidence.tuned) == {"Q=K", "QKV"}
    known = made_up(small_claim())
    for quick in (True, False):
        bench = MadeUp()
        evidence = made_up(known.claim, bench, quick=quick, records={"small": known})
        assert (len(bench.measured) == 1) == quick
        assert not quick or evidence.tuned == {one: known.tuned[one] for one in ("Q=K", "QKV")}


@pytest.mark.parametrize(
    ("accuracy", "options"), [(0.5, {}), (nan, {"quick": True, "first_seed": 13})]
)
def test_a_record_is_read_as_it_was_written(accuracy, options, monkeypatch):
    """So are runs that diverged or never solve their task."""
    known = small_claim()
    monkeypatch.setitem(CLAIMS, known.id, known)
    monkeypatch.setenv("ATTNKIT_ENGINE", "kernel")
    before = made_up(known, MadeUp(QKV=1.0, Q_K=accuracy), **options)
    before.scores["QKV"]["steps_to_solve"] = np.array([[inf, nan, 9.25], [10.5, nan, 9.25]])
    before = replace(before, texts={"language": "0123abcd"})
    text = json.dumps(before.to_dict(), allow_nan=False)
    after = Evidence.from_dict(json.loads(text))
    assert json.dumps(after.to_dict(), allow_nan=False) == text
    assert after.claim is known
    for name in ("seeds", "quick", "hash", "experiments", "texts", "first_run", "judgement"):
        assert_same(getattr(after, name), getattr(before, name))
    assert (after.engine, after.processor) == ("kernel", processor_kind(torch.device("cpu")))
    for name, own in before.scores.items():
        for measure, values in own.items():
            np.testing.assert_allclose(after.scores[name][measure], values, rtol=1e-8)
    for name, digits in (("tuned", 6), ("curves", 4)):  # of curves as many as can be drawn
        old, new = (getattr(one, name) for one in (before, after))
        for each in old | new:
            assert plain(asdict(new[each]), digits) == plain(asdict(old[each]), digits)


def test_json_has_every_promised_key():
    """The public interface is a list of claims, one on a line, with plain values."""
    known = small_claim()
    lost = made_up(small_claim("second"), MadeUp(QKV=nan, Q_K=nan))
    text = Records.of([made_up(known, WORSE), lost]).to_json()
    _, *lines, _ = text.splitlines()
    assert [json.loads(line.rstrip(","))["id"] for line in lines] == ["small", "second"]
    one, other = json.loads(text, parse_constant=pytest.fail)["claims"]
    expected = {"source": known.source, "prediction": known.prediction, "seeds": 17}
    expected |= {"effect": -0.5, "interval": [-0.5, -0.5], "verdict": "held"}
    expected |= {"verdict_alone": "held", "seen": "nothing", "changed_since": ""}
    assert {name: one[name] for name in expected} == expected
    assert one["first_run"]["prediction"] == known.prediction_hash
    assert (other["effect"], other["verdict"]) == (None, "undecided")
    assert other["scores"]["QKV"]["accuracy"] == [[None] * 17]
    main, *_ = one["statements"]
    assert (main["method"], main["n_pairs"], main["n_worse"]) == ("pairs", 17, 17)
    assert 0.5 < main["share_low"] < main["share_high"] == 1


def test_what_is_shipped_is_read_in_the_order_of_claims_and_together(tmp_path, monkeypatch):
    """Seven pairs stand alone, and no longer among ten claims; quick records are read alone."""
    monkeypatch.setattr(record, "SHIPPED", tmp_path / "shipped.json")
    load = load_shipped.__wrapped__  # without its cache, which other tests share
    assert load() == {}
    claims = [small_claim(f"claim_{n}", n_seeds=7) for n in range(10)]
    held = [made_up(claim, WORSE) for claim in claims[:4]]
    text = Records.of(held[::-1]).to_json(summarised=False)
    record.SHIPPED.write_text(text, encoding="utf-8")
    worded = replace(claims[1], title="Another")
    changed = replace(claims[2], statements=(better("Q=K", "QKV"),))
    for claim in (claims[0], worded, changed):
        monkeypatch.setitem(CLAIMS, claim.id, claim)
    found = load()
    assert list(found) == ["claim_0", "claim_1"]
    assert found["claim_1"].claim is worded
    assert not replace(found["claim_1"], claim=replace(worded, n_seeds=11)).current
    assert Records.of(held[:1]).verdicts == {"claim_0": "held"}
    many = [*held[:3], *(made_up(claim, MadeUp(QKV=nan)) for claim in claims[3:])]
    assert set(Records.of(many).verdicts.values()) == {"undecided"}
    quick = [made_up(claim, WORSE, quick=True) for claim in claims]
    verdicts = Records.of([*quick, made_up(small_claim("full"), WORSE)]).verdicts
    assert verdicts == dict.fromkeys([*(claim.id for claim in claims), "full"], "held")


def test_a_refuted_claim_is_tested_by_the_cheapest_statement_that_refutes_it():
    """A claim that held or is undecided needs all of them, as does one without a record.

    A claim of which a part was tested never holds, however clear that part is.
    """
    refuted = made_up(TWO, MadeUp(QKV=1.0, Q_K=1.0, K_V=1.0))
    assert names(QuickForm.of(TWO, refuted)) == ["K=V", "QKV"]
    first = made_up(TWO, MadeUp(QKV=1.0, Q_K=1.0, K_V=0.5))
    assert names(QuickForm.of(TWO, first)) == ["Q=K", "QKV"]
    held = made_up(TWO, MadeUp(QKV=1.0, Q_K=0.5, K_V=0.5))
    stale = replace(made_up(small_claim(), ALIKE), claim=TWO)
    for known in (held, stale, None):
        form = QuickForm.of(TWO, known)
        assert (form.arms, form.untuned) == (TWO.arms, known is not held)
        assert form.untuned or set(form.tuned) == {"Q=K", "K=V", "QKV"}
    taken = small_claim(arms=(replace(THREE[0], recipe_of="K=V"), *THREE[1:]))  # over by the record
    form = QuickForm.of(taken, made_up(taken, WORSE))
    assert names(form) == list(form.tuned) == ["Q=K", "QKV"]
    assert names(QuickForm.of(taken, None)) == ["Q=K", "K=V", "QKV"]
    whole = made_up(TWO, MadeUp(QKV=1.0, Q_K=0.5, K_V=1.0))
    for level, verdict in ((0.5, Verdict.UNDECIDED), (1.0, Verdict.FAILED)):
        run = made_up(TWO, MadeUp(QKV=1.0, K_V=level), quick=True, records={TWO.id: whole})
        assert (whole.is_partial, run.is_partial) == (False, True)
        assert list(run.own_findings) == [TWO.statements[1]]
        assert run.judgement.verdict is verdict
        assert describe_evidence(run)


def test_as_many_seeds_are_taken_as_end_in_about_two_minutes():
    """From six to twenty, and no more than the claim has; recorded recipes are used."""
    for n_seeds, untuned, planned in ((6, 6, 6), (14, 7, 14), (60, QUICK_SEEDS, QUICK_SEEDS)):
        claim = small_claim(n_seeds=n_seeds)
        assert QuickForm.of(claim, None).n_seeds == untuned
        assert QuickForm.of(claim, made_up(claim, WORSE)).n_seeds == planned
    for shipped in load_shipped().values():
        claim, form = shipped.claim, QuickForm.of(shipped.claim, shipped)
        arms = [one.experiment for one in form.arms]
        work = form.n_seeds * sum(work_of(one, one.sharing[0]) for one in arms)
        with about(claim):
            assert set(names(form)) == set(form.tuned) <= set(shipped.scores)
            assert form.n_seeds == 6 or (work <= TWO_MINUTES and form.n_seeds <= claim.n_seeds)


@pytest.mark.parametrize(("minutes", "reached"), [(0, 1), (4, 2), (60, 3)])
def test_the_cheapest_claims_come_first_and_none_begins_that_would_end_too_late(
    minutes, reached, monkeypatch
):
    """The pace is that of the claims before; the first claim is tested in any case."""
    now = [0.0]
    monkeypatch.setattr(gathering, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Timed(MadeUp):
        """A bench that trains the short claim in a minute of made-up time."""

        def measure(self, trial):
            now[0] += 60 * self.work(trial) / short
            return super().measure(trial)

    claims = []
    for times, name in ((4, "long"), (1, "short"), (2, "middle")):
        arms = tuple(arm(sharing, **{**TINY, "steps": 6 * times}) for sharing in ("Q=K", "QKV"))
        given = {"arms": arms, "statements": (worse("Q=K", "QKV"),), "n_seeds": 8}
        claims.append(small_claim(name, **given))
    records = {one.id: made_up(one, WORSE) for one in claims}
    bench = Timed(QKV=1.0, Q_K=0.5)
    short, untuned = (work_of_claim(claims[1], bench, one, 7) for one in (records["short"], None))
    assert untuned > 5 * short  # tuning counts
    tested = gather(claims, bench, quick=True, records=records, minutes=minutes)
    assert [one.claim.id for one in tested] == ["short", "middle", "long"][:reached]
