"""Records of evidence: as JSON and back, as tables, and the words for a finding."""

import json
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch
from small_claims import MadeUp, made_up, small_claim

from attnkit.claims import CLAIMS
from attnkit.claims.base import Statement, better, worse
from attnkit.evidence import record
from attnkit.evidence.record import (
    Evidence,
    load_shipped,
    readable,
    to_json,
    to_markdown,
    told,
    verdicts_of,
)
from attnkit.evidence.verdict import find
from attnkit.machine import processor_kind

PROMISED = {"id", "source", "prediction", "verdict", "effect", "interval", "seeds"}
"""What design.md promises of every claim in `claims --json`."""


@pytest.fixture
def known(monkeypatch):
    """A small claim that is registered."""
    claim = small_claim()
    monkeypatch.setitem(CLAIMS, claim.id, claim)
    return claim


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Where what is shipped is looked for."""
    path = tmp_path / "shipped.json"
    monkeypatch.setattr(record, "SHIPPED", path)
    load_shipped.cache_clear()
    yield path
    load_shipped.cache_clear()


def unable(claim, **options):
    """Evidence that Q=K is worse."""
    return made_up(claim, MadeUp(QKV=1.0, Q_K=0.5), **options)


def finding(values, **about):
    """What values say about a statement, told."""
    statement = Statement("", "arm", **about)
    return told(statement, find(statement, np.array(values)))


# JSON


@pytest.mark.parametrize("options", [{}, {"quick": True, "first_seed": 13}])
@pytest.mark.parametrize("accuracy", [0.5, 1.0, nan, None])
def test_a_record_is_read_as_it_was_written(known, options, accuracy):
    """Through text; runs that diverged, too."""
    chosen = {} if accuracy is None else {"Q_K": accuracy}
    before = made_up(known, MadeUp(QKV=1.0, **chosen), **options)
    text = json.dumps(before.to_dict(), allow_nan=False)
    after = Evidence.from_dict(json.loads(text))
    assert json.dumps(after.to_dict(), allow_nan=False) == text
    assert after.claim is known
    assert (after.seeds, after.quick, after.hash) == (before.seeds, before.quick, before.hash)
    assert after.judgement == before.judgement
    assert after.experiments == before.experiments
    for name, own in before.scores.items():
        for measure, values in own.items():
            np.testing.assert_allclose(after.scores[name][measure], values, rtol=1e-8)
    for name, tuned in before.tuned.items():
        assert after.tuned[name].rate == pytest.approx(tuned.rate)
        assert after.tuned[name].tried == pytest.approx(tuned.tried, nan_ok=True)


def test_a_record_names_its_engine_and_processor(known, monkeypatch):
    """A record from before they were named is torch's."""
    monkeypatch.setenv("ATTNKIT_ENGINE", "kernel")
    written = made_up(known).to_dict()
    assert written["engine"] == "kernel"
    assert written["processor"] == processor_kind(torch.device("cpu"))
    after = Evidence.from_dict(written)
    assert (after.engine, after.processor) == (written.pop("engine"), written.pop("processor"))
    assert Evidence.from_dict(written).engine == "torch"


def test_json_has_every_promised_key(known):
    """The public interface: a list of claims, plain values."""
    told = json.loads(to_json([unable(known)]))
    (one,) = told["claims"]
    assert one.keys() >= PROMISED
    assert one["id"] == "small"
    assert one["source"] == known.source
    assert one["prediction"] == known.prediction
    assert one["seeds"] == 7
    assert one["effect"] == -0.5
    assert one["interval"] == [-0.5, -0.5]
    assert one["verdict"] == one["verdict_alone"] == "supported"


def test_json_has_a_claim_on_every_line():
    """So that differences of two files can be read."""
    text = to_json(map(unable, (small_claim("first"), small_claim("second"))))
    first, *lines, last = text.splitlines()
    assert (first, last, len(lines)) == ('{"claims": [', "]}", 2)
    assert [json.loads(line.rstrip(","))["id"] for line in lines] == ["first", "second"]


def test_json_of_nothing_can_be_read():
    """An empty list."""
    assert json.loads(to_json([])) == {"claims": []}


def test_no_number_of_json_is_none_that_json_has(known):
    """Where all runs diverged there is null, and no verdict."""
    told = json.loads(to_json([made_up(known, MadeUp(QKV=nan, Q_K=nan))]), parse_constant=None)
    (one,) = told["claims"]
    assert one["effect"] is None
    assert one["scores"]["QKV"]["accuracy"] == [None] * 7
    assert one["verdict"] == "inconclusive"
    assert "NaN" not in json.dumps(told)


@pytest.mark.parametrize(
    ("measure", "decided_by"), [("accuracy", "share of pairs"), ("loss", "mean difference")]
)
def test_the_interval_is_that_of_the_effect(measure, decided_by):
    """Whatever decides; the share of pairs that hold stands beside it, with its own."""
    claim = small_claim(statements=(worse("Q=K", "QKV", 0.3, measure=measure),))
    told = made_up(claim).to_dict()
    (main,) = told["statements"]
    assert told["decided_by"] == decided_by
    assert told["interval"] == main["effect_interval"]
    assert told["interval"][0] < told["effect"] < told["interval"][1]
    assert told["share"] == main["holds_in"] / main["of_pairs"]
    assert told["share_interval"] == main["share_interval"]
    assert told["share_interval"][0] <= told["share"] < told["share_interval"][1]


def test_the_text_that_was_trained_on_is_told(known):
    """By its hash, and read again."""
    told = replace(unable(known), texts={"language": "0123abcd"}).to_dict()
    assert told["texts"] == {"language": "0123abcd"}
    assert Evidence.from_dict(json.loads(json.dumps(told))).texts == told["texts"]


def test_a_record_of_no_known_claim_is_refused(known):
    """The claim may have been taken away."""
    told = unable(known).to_dict()
    with pytest.raises(KeyError, match="gone"):
        Evidence.from_dict({**told, "id": "gone"})


# what makes sure


def test_statements_that_make_sure_count_once_they_were_measured(known):
    """One that is refuted by a longer run is refuted."""
    evidence = unable(known)
    longer = evidence.statements[1].left
    ones = {"accuracy": np.ones(7), "loss": np.zeros(7)}
    solved = replace(evidence, scores={**evidence.scores, longer: ones})
    assert len(solved.findings) == 3
    assert evidence.judgement.verdict == "supported"
    assert solved.judgement.verdict == "contradicted"


def test_a_record_is_current_as_long_as_its_claim(known):
    """Another limit makes another claim; other words do not."""
    evidence = unable(known)
    assert evidence.current
    assert replace(evidence, claim=replace(known, title="Another")).current
    assert not replace(evidence, claim=replace(known, n_seeds=11)).current


def test_means_leave_out_what_diverged(known):
    """Unless all did."""
    evidence = unable(known)
    scores = {"QKV": {"accuracy": np.array([0.5, nan, 0.7])}, "Q=K": {"accuracy": np.full(3, nan)}}
    some = replace(evidence, scores=scores)
    assert some.mean("QKV") == pytest.approx(0.6)
    assert np.isnan(some.mean("Q=K"))


# verdicts


def test_full_records_are_read_together():
    """Seven pairs stand alone, and no longer among ten claims."""
    many = [unable(small_claim(f"claim_{n}")) for n in range(10)]
    many[3:] = [made_up(small_claim(f"claim_{n}"), MadeUp(QKV=nan)) for n in range(3, 10)]
    assert verdicts_of(many[:1]) == {"claim_0": "supported"}
    assert {one.judgement.verdict for one in many[:3]} == {"supported"}
    assert set(verdicts_of(many).values()) == {"inconclusive"}


def test_quick_records_are_read_each_alone():
    """So few pairs could hardly stand beside others; nor do they weaken them."""
    many = [unable(small_claim(f"claim_{n}"), quick=True) for n in range(10)]
    full = unable(small_claim("full"))
    verdicts = verdicts_of([*many, full])
    assert set(verdicts.values()) == {"supported"}
    assert list(verdicts) == [one.claim.id for one in (*many, full)]


# words


@pytest.mark.parametrize(
    ("values", "about", "words"),
    [
        (
            [-0.5] * 6 + [0.0],
            {"high": -0.05},
            "in 6 of 7 pairs of seeds [42% to 100% of all], on average −42.9 points",
        ),
        (
            [0.25] * 7,
            {"low": 0.05, "measure": "accuracy_all_along"},
            "in 7 of 7 pairs of seeds [59% to 100% of all], on average +25.0 points",
        ),
        (
            [0.125] * 6,
            {"low": 0, "measure": "mass_on_target"},
            "in 6 of 6 pairs of seeds [54% to 100% of all], on average +0.125",
        ),
        (
            [0.25, 0.5] * 3,
            {"high": 0, "measure": "loss"},
            "+0.375 nats [+0.231 to +0.519]",
        ),
        (
            [-0.25, -0.5] * 3,
            {"high": 0, "measure": "asymmetry"},
            "−0.375 [−0.519 to −0.231]",
        ),
        (
            [nan] * 6,
            {"low": -inf, "high": 0.1},
            "in 0 of 6 pairs of seeds [0% to 100% of all]; the others diverged",
        ),
    ],
)
def test_a_finding_is_told_in_a_few_words(values, about, words):
    """Counted pairs with the share of all seeds, or a mean with its interval and its unit."""
    assert finding(values, **about) == words


def test_a_table_has_a_line_for_every_claim():
    """With what was foretold where something else came, and how verdicts are read."""
    right = unable(small_claim("right", n_seeds=11))
    wrong = made_up(small_claim("wrong", n_seeds=11), MadeUp(QKV=1.0, Q_K=1.0))
    head, first, second, empty, last = readable([right, wrong]).splitlines()
    assert head.split() == ["claim", "verdict", "foretold", "main", "finding"]
    assert first.split()[:3] == ["right", "supported", "Q=K"]
    assert second.split()[:3] == ["wrong", "contradicted", "supported"]
    assert first.endswith(
        "in 11 of 11 pairs of seeds [72% to 100% of all], on average −50.0 points"
    )
    assert empty == ""
    assert last.startswith("1 of 2 foretold")
    assert "read together (Holm)" in last
    assert "read alone" in readable([unable(small_claim(), quick=True)])


def test_the_readme_s_table_is_markdown():
    """A row for every claim, with as many cells as its head."""
    right = unable(small_claim("right", n_seeds=11))
    wrong = made_up(small_claim("wrong"), MadeUp(QKV=1.0, Q_K=1.0))
    others = [made_up(small_claim(name), MadeUp(QKV=nan)) for name in ("one", "two", "three")]
    head, line, *rows, empty, last = to_markdown([right, wrong, *others]).splitlines()
    assert {row.count("|") for row in (head, line, *rows)} == {5}
    assert rows[0].startswith("| `right` A small claim | supported | supported | Q=K is worse ")
    assert rows[1].startswith(
        "| `wrong` A small claim | inconclusive (read alone: contradicted) | supported |"
    )
    assert empty == ""
    assert last.startswith("1 of 5 were foretold.")


# what is shipped


def test_without_a_file_nothing_is_shipped(shipped):
    """A copy without evidence still runs."""
    assert not shipped.exists()
    assert load_shipped() == {}


def test_what_is_shipped_is_read_in_the_order_of_claims(shipped, monkeypatch):
    """Whatever the order of the file; one that is known no more is left out."""
    claims = [small_claim("first"), small_claim("second"), small_claim("third")]
    shipped.write_text(to_json(map(unable, claims[::-1])), encoding="utf-8")
    for claim in claims[:2]:
        monkeypatch.setitem(CLAIMS, claim.id, claim)
    found = load_shipped()
    assert list(found) == ["first", "second"]
    assert found["first"].claim is claims[0]


def test_what_is_shipped_of_a_claim_that_has_changed_is_not_shown(shipped, known, monkeypatch):
    """It speaks of something else."""
    shipped.write_text(to_json([unable(known)]), encoding="utf-8")
    changed = replace(known, statements=(better("Q=K", "QKV"),))
    monkeypatch.setitem(CLAIMS, known.id, changed)
    assert load_shipped() == {}
