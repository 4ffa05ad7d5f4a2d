"""Records of evidence: as JSON and back, read at multiples of the steps, and judged together."""

import json
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch
from same import assert_same
from small_claims import MadeUp, about, made_up, small_claim

from attnkit.claims import CLAIMS
from attnkit.claims.statements import better, worse
from attnkit.evidence import record
from attnkit.evidence.record import Evidence, Records, load_shipped
from attnkit.experiment import from_text
from attnkit.foundation.machine import processor_kind

PROMISED = {"id", "source", "prediction", "verdict", "effect", "interval", "seeds"}
"""What design.md promises of every claim in `claims --json`."""


@pytest.fixture
def known(monkeypatch):
    """Register a small claim."""
    claim = small_claim()
    monkeypatch.setitem(CLAIMS, claim.id, claim)
    return claim


def unable(claim, **options):
    """Return evidence that Q=K is worse."""
    return made_up(claim, MadeUp(QKV=1.0, Q_K=0.5), **options)


@pytest.mark.parametrize(
    ("accuracy", "options"), [(0.5, {}), (nan, {"quick": True, "first_seed": 13})]
)
def test_a_record_is_read_as_it_was_written(known, accuracy, options, monkeypatch):
    """Through text; runs that diverged or never solve their task, too."""
    monkeypatch.setenv("ATTNKIT_ENGINE", "kernel")
    before = made_up(known, MadeUp(QKV=1.0, Q_K=accuracy), **options)
    before.scores["QKV"]["steps_to_solve"] = np.array([[inf, nan, 9.25], [10.5, nan, 9.25]])
    before = replace(before, texts={"language": "0123abcd"})
    text = json.dumps(before.to_dict(), allow_nan=False)
    after = Evidence.from_dict(json.loads(text))
    assert json.dumps(after.to_dict(), allow_nan=False) == text
    assert after.claim is known
    for name in ("seeds", "quick", "hash", "experiments", "texts"):
        assert getattr(after, name) == getattr(before, name), name
    assert_same(after.judgement, before.judgement)
    assert (after.engine, after.processor) == ("kernel", processor_kind(torch.device("cpu")))
    for name, own in before.scores.items():
        for measure, values in own.items():
            np.testing.assert_allclose(after.scores[name][measure], values, rtol=1e-8)
    for name, tuned in before.tuned.items():
        assert after.tuned[name].recipe == tuned.recipe
        for old, new in zip(tuned.tried, after.tuned[name].tried, strict=True):
            assert new.mean == pytest.approx(old.mean, nan_ok=True)
            assert replace(new, mean=0.0) == replace(old, mean=0.0)
        assert set(after.tuned[name].curves) == set(tuned.curves)
    assert set(after.curves) == set(before.curves) == set(before.scores)
    for name, curve in before.curves.items():  # as many digits as can be drawn
        for array in ("steps", "mean", "low", "high", "solved"):
            expected = getattr(curve, array)
            np.testing.assert_allclose(getattr(after.curves[name], array), expected, rtol=1e-3)
    with pytest.raises(KeyError, match="gone"):
        Evidence.from_dict({**before.to_dict(), "claim": "gone"})


def test_json_has_every_promised_key(known):
    """The public interface: a list of claims, one on a line, plain values."""
    lost = made_up(small_claim("second"), MadeUp(QKV=nan, Q_K=nan))
    text = Records.of([unable(known), lost]).to_json()
    _, *lines, _ = text.splitlines()
    assert [json.loads(line.rstrip(","))["id"] for line in lines] == ["small", "second"]
    one, other = json.loads(text, parse_constant=pytest.fail)["claims"]
    assert one.keys() >= PROMISED
    expected = {
        "source": known.source,
        "prediction": known.prediction,
        "seeds": 17,
        "effect": -0.5,
        "interval": [-0.5, -0.5],
        "verdict": "held",
        "verdict_alone": "held",
        "seen": "nothing",
        "changed_since": "",
    }
    assert {name: one[name] for name in expected} == expected
    assert one["first_run"]["prediction"] == known.prediction_hash
    assert (other["effect"], other["verdict"]) == (None, "undecided")
    assert other["scores"]["QKV"]["accuracy"] == [[None] * 17]
    assert json.loads(Records().to_json()) == {"claims": []}
    for measure, method in (("accuracy", "pairs"), ("loss", "mean")):
        claim = small_claim(statements=(worse("Q=K", "QKV", 0.3, measure=measure),))
        (told,) = json.loads(Records.of([made_up(claim)]).to_json())["claims"]
        (main,) = told["statements"]
        assert main["method"] == method
        assert told["interval"] == [main["effect_low"], main["effect_high"]]
        assert told["interval"][0] < told["effect"] < told["interval"][1]
        assert main["share_low"] <= main["n_worse"] / main["n_pairs"] <= main["share_high"]
        assert main["n_pairs"] == 17


def test_scores_are_read_at_multiples_of_the_base_steps(known):
    """An arm that is trained for less is read at its last step; means leave out what diverged."""
    levels = [0.1, 0.2, 0.3, 0.4, 0.96]
    evidence = made_up(known, MadeUp(QKV=1.0, Q_K=levels))
    long = known.confirmation[0][0].name
    for power, accuracy in enumerate(levels):
        assert evidence.mean(long, at=2**power) == pytest.approx(accuracy)
        assert evidence.mean("Q=K", at=2**power) == pytest.approx(0.1)
    assert evidence.n_solved(long, 8) == (0, 17)
    assert evidence.n_solved(long, 16) == (17, 17)
    assert evidence.still_rises(long)
    assert not unable(known).still_rises(long)
    half, lost = np.array([[0.5, nan, 0.7]] * 3), np.full((3, 3), nan)
    some = replace(evidence, scores={"QKV": {"accuracy": half}, "Q=K": {"accuracy": lost}})
    assert some.mean("QKV") == pytest.approx(0.6)
    assert np.isnan(some.mean("Q=K"))
    assert not some.still_rises("Q=K")


def test_full_records_are_read_together_and_quick_ones_alone():
    """Seven pairs stand alone, and no longer among ten claims."""
    claims = [small_claim(f"claim_{n}", n_seeds=7) for n in range(10)]
    many = [unable(claim) for claim in claims[:3]]
    assert {one.judgement.verdict for one in many} == {"held"}
    assert Records.of(many[:1]).verdicts == {"claim_0": "held"}
    many += [made_up(claim, MadeUp(QKV=nan)) for claim in claims[3:]]
    assert set(Records.of(many).verdicts.values()) == {"undecided"}
    quick = [unable(claim, quick=True) for claim in claims]
    verdicts = Records.of([*quick, unable(small_claim("full"))]).verdicts
    assert set(verdicts.values()) == {"held"}
    assert list(verdicts) == [*(claim.id for claim in claims), "full"]


def test_what_is_shipped_is_read_in_the_order_of_claims(tmp_path, monkeypatch):
    """The order of the file does not matter; without a file nothing is shipped."""
    monkeypatch.setattr(record, "SHIPPED", tmp_path / "shipped.json")
    load = load_shipped.__wrapped__  # without its cache, which other tests share
    assert load() == {}
    claims = [small_claim(name) for name in ("first", "second", "third", "fourth")]
    text = Records.of(map(unable, claims[::-1])).to_json(summarised=False)
    record.SHIPPED.write_text(text, encoding="utf-8")
    worded = replace(claims[1], title="Another")
    changed = replace(claims[2], statements=(better("Q=K", "QKV"),))
    for claim in (claims[0], worded, changed):
        monkeypatch.setitem(CLAIMS, claim.id, claim)
    found = load()
    assert list(found) == ["first", "second"]
    assert found["second"].claim is worded
    assert found["second"].current
    assert not replace(found["second"], claim=replace(worded, n_seeds=11)).current


def test_shipped_records_are_of_the_arms_of_their_claims():
    """Also if a task's defaults have changed since: texts and arms name what is not default."""

    def settings_of(experiment):
        return tuple(map(repr, (experiment.task, experiment.size, experiment.training)))

    for found in load_shipped().values():
        recorded = {settings_of(from_text(text)) for text in found.experiments}
        for arm in found.claim.arms:
            trained = arm.trained_for(arm.up_to, found.tuned[arm.name].schedule)
            with about(found.claim):
                assert settings_of(trained) in recorded, arm.name
