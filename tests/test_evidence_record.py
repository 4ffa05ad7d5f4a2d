"""Records of evidence as JSON and back, and the words for findings and predictions."""

import json
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence import record
from attnkit.evidence.record import (
    Evidence,
    load_shipped,
    to_json,
    verdicts_of,
)
from attnkit.evidence.verdict import judge_statement
from attnkit.evidence.words import (
    finding_in_words,
    main_finding,
    readable,
    rises_in_words,
    rows_of,
    score_in_words,
    seen_in_words,
    to_markdown,
)
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


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Return the file in which shipped records are looked for."""
    path = tmp_path / "shipped.json"
    monkeypatch.setattr(record, "SHIPPED", path)
    load_shipped.cache_clear()
    yield path
    load_shipped.cache_clear()


def unable(claim, **options):
    """Return evidence that Q=K is worse."""
    return made_up(claim, MadeUp(QKV=1.0, Q_K=0.5), **options)


# JSON


@pytest.mark.parametrize(
    ("accuracy", "options"), [(0.5, {}), (nan, {"quick": True, "first_seed": 13})]
)
def test_a_record_is_read_as_it_was_written(known, accuracy, options, monkeypatch):
    """Through text; runs that diverged, too. It names engine, processor and texts of its runs."""
    monkeypatch.setenv("ATTNKIT_ENGINE", "kernel")
    before = made_up(known, MadeUp(QKV=1.0, Q_K=accuracy), **options)
    before = replace(before, texts={"language": "0123abcd"})
    text = json.dumps(before.to_dict(), allow_nan=False)
    after = Evidence.from_dict(json.loads(text))
    assert json.dumps(after.to_dict(), allow_nan=False) == text
    assert after.claim is known
    for name in ("seeds", "quick", "hash", "judgement", "experiments", "texts"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.engine, after.processor) == ("kernel", processor_kind(torch.device("cpu")))
    for name, own in before.scores.items():
        for measure, values in own.items():
            np.testing.assert_allclose(after.scores[name][measure], values, rtol=1e-8)
    for name, tuned in before.tuned.items():
        assert after.tuned[name].rate == pytest.approx(tuned.rate)
        assert after.tuned[name].tried == pytest.approx(tuned.tried, nan_ok=True)
    assert set(after.curves) == set(before.curves) == set(before.scores)
    for name, curve in before.curves.items():  # as many digits as can be drawn
        for array in ("steps", "mean", "low", "high", "solved"):
            expected = getattr(curve, array)
            np.testing.assert_allclose(getattr(after.curves[name], array), expected, rtol=1e-3)
    with pytest.raises(KeyError, match="gone"):  # a claim may have been taken away
        Evidence.from_dict({**before.to_dict(), "id": "gone"})


def test_infinite_and_missing_scores_survive_json(known):
    """They are a run that never solves its task and one that diverged."""
    steps = np.array([[inf, nan, 9.25], [10.5, nan, 9.25]])
    own = {"steps_to_solve": steps, "accuracy": np.zeros((2, 3)), "loss": np.ones((2, 3))}
    before = replace(unable(known), scores={"QKV": own, "Q=K": own})
    after = Evidence.from_dict(json.loads(json.dumps(before.to_dict(), allow_nan=False)))
    np.testing.assert_array_equal(after.scores["QKV"]["steps_to_solve"], steps)


def test_json_has_every_promised_key(known):
    """The public interface: a list of claims, one on a line, plain values."""
    text = to_json(map(unable, (known, small_claim("second"))))
    first, *lines, last = text.splitlines()
    assert (first, last, len(lines)) == ('{"claims": [', "]}", 2)
    assert [json.loads(line.rstrip(","))["id"] for line in lines] == ["small", "second"]
    one = json.loads(text)["claims"][0]
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
    assert one["begun"]["prediction"] == known.prediction_hash
    assert json.loads(to_json([])) == {"claims": []}


def test_no_number_of_json_is_none_that_json_has(known):
    """Where all runs diverged there is null, and no verdict."""
    told = json.loads(to_json([made_up(known, MadeUp(QKV=nan, Q_K=nan))]), parse_constant=None)
    (one,) = told["claims"]
    assert one["effect"] is None
    assert one["scores"]["QKV"]["accuracy"] == [[None] * 17]
    assert one["verdict"] == "undecided"
    assert "NaN" not in json.dumps(told)


@pytest.mark.parametrize(
    ("measure", "decided_by"), [("accuracy", "pairs of seeds"), ("loss", "mean difference")]
)
def test_the_interval_is_that_of_the_effect(measure, decided_by):
    """It is so whatever decides; the numbers of pairs stand beside it."""
    claim = small_claim(statements=(worse("Q=K", "QKV", 0.3, measure=measure),))
    told = made_up(claim).to_dict()
    (main,) = told["statements"]
    assert told["decided_by"] == decided_by
    assert told["interval"] == main["effect_interval"]
    assert told["interval"][0] < told["effect"] < told["interval"][1]
    low, high = main["share_interval"]
    assert low <= main["n_worse"] / main["n_pairs"] <= high
    assert main["n_pairs"] == 17


# reading scores


def test_scores_are_read_at_multiples_of_the_base_steps(known):
    """An arm that is trained for less is read at its last step."""
    evidence = made_up(known, MadeUp(QKV=1.0, Q_K=[0.1, 0.2, 0.3, 0.4, 0.5, 0.96]))
    long = known.confirmation()[0][0].name
    for power, accuracy in enumerate((0.1, 0.2, 0.3, 0.4, 0.5, 0.96)):
        assert evidence.mean(long, at=2**power) == pytest.approx(accuracy)
        assert evidence.mean("Q=K", at=2**power) == pytest.approx(0.1)
    assert evidence.n_solved(long, 16) == (0, 17)
    assert evidence.n_solved(long, 32) == (17, 17)
    assert evidence.still_rises(long)
    assert not unable(known).still_rises(long)


def test_statements_that_confirm_count_once_they_were_measured(known):
    """An inability that a longer run refutes is refuted."""
    evidence = unable(known)
    longer = evidence.statements[1].left
    ones = {"accuracy": np.ones((6, 40)), "loss": np.zeros((6, 40))}
    scores = {
        name: {m: np.repeat(v, 3, 1) for m, v in own.items()}
        for name, own in evidence.scores.items()
    }
    solved = replace(evidence, scores={**scores, longer: ones})
    assert len(solved.findings) == 3
    assert evidence.judgement.verdict == "held"
    assert solved.judgement.verdict == "did not hold"


def test_a_record_is_current_as_long_as_its_claim(known):
    """Another limit makes another claim; other words do not."""
    evidence = unable(known)
    assert evidence.current
    assert replace(evidence, claim=replace(known, title="Another")).current
    assert not replace(evidence, claim=replace(known, n_seeds=11)).current


def test_means_leave_out_what_diverged(known):
    """The mean is NaN if all diverged, without a warning."""
    evidence = unable(known)
    scores = {
        "QKV": {"accuracy": np.array([[0.5, nan, 0.7]] * 3)},
        "Q=K": {"accuracy": np.full((3, 3), nan)},
    }
    some = replace(evidence, scores=scores)
    assert some.mean("QKV") == pytest.approx(0.6)
    assert np.isnan(some.mean("Q=K"))
    assert not some.still_rises("Q=K")


# verdicts


def test_full_records_are_read_together_and_quick_ones_alone():
    """Seven pairs stand alone, and no longer among ten claims.

    So few pairs could hardly stand beside others; nor do quick records weaken them.
    """
    claims = [small_claim(f"claim_{n}", n_seeds=7) for n in range(10)]
    many = [unable(claim) for claim in claims[:3]]
    assert {one.judgement.verdict for one in many} == {"held"}
    assert verdicts_of(many[:1]) == {"claim_0": "held"}
    many += [made_up(claim, MadeUp(QKV=nan)) for claim in claims[3:]]
    assert set(verdicts_of(many).values()) == {"undecided"}
    quick = [unable(claim, quick=True) for claim in claims]
    verdicts = verdicts_of([*quick, unable(small_claim("full"))])
    assert set(verdicts.values()) == {"held"}
    assert list(verdicts) == [*(claim.id for claim in claims), "full"]


# words


@pytest.mark.parametrize(
    ("statement", "values", "words"),
    [
        (
            worse("a", "b"),
            [-0.5] * 6 + [0.0] * 3,
            "worse with 6 of 9 seeds, better with 0, alike with 3; median −50.0 points, "
            "mean −33.3 points [−52.6 to −14.1]",
        ),
        (
            better("a", "b", 0, measure="accuracy_all_along"),
            [0.25] * 6 + [-0.25],
            "better with 6 of 7 seeds, worse with 1, alike with 0; median +25.0 points, "
            "mean +17.9 points [+0.4 to +35.3]",
        ),
        (
            no_worse("a", "b"),
            [0.0] * 5 + [-0.5, nan],
            "worse with 1 of 7 seeds, better with 0, alike with 5, diverged with 1; median "
            "+0.0 points, mean −8.3 points [−29.8 to +13.1]",
        ),
        (
            worse("a", "b", 2, measure="steps_to_solve"),
            [inf] * 4 + [3.0, -inf],
            "worse with 5 of 6 seeds, better with 1, alike with 0; median +∞ doublings",
        ),
        (
            no_worse("a", "b", measure="mass_on_target"),
            [0.125] * 6,
            "worse with 0 of 6 seeds, better with 6, alike with 0; median +0.125, "
            "mean +0.125 [+0.125 to +0.125]",
        ),
        (
            worse("a", "b", 0, measure="loss"),
            [0.25, 0.5] * 3,
            "mean difference +0.375 nats [+0.231 to +0.519]",
        ),
        (
            Statement("", "a", measure="asymmetry", high=0),
            [-0.25, -0.5] * 3,
            "mean −0.375 [−0.519 to −0.231]",
        ),
        (
            worse("a", "b", 0, measure="loss"),
            [0.25, nan],
            "mean difference +0.250 nats, diverged with 1 of 2 seeds",
        ),
        (
            worse("a", "b"),
            [nan] * 6,
            "worse with 0 of 6 seeds, better with 0, alike with 0, diverged with 6",
        ),
    ],
)
def test_a_finding_is_told_in_a_few_words(statement, values, words):
    """Counted pairs with median and mean, or a mean with its interval and its unit."""
    assert finding_in_words(statement, judge_statement(statement, np.array(values))) == words


def test_a_statement_is_told_cell_by_cell(known):
    """Failures of both arms, pairs, median, mean, and the verdict."""
    first, longer, _ = rows_of(unable(known))
    assert first.solved == "Q=K: 0 of 17; QKV: 17 of 17"
    assert first.pairs == "worse with 17 of 17 seeds, better with 0, alike with 0"
    assert (first.median, first.verdict) == ("−50.0 points", "held")
    assert longer.solved.startswith("Q=K, 192 steps: 0 of 17; ")
    by_mean = small_claim(statements=(worse("Q=K", "QKV", measure="loss"),))
    (row,) = rows_of(unable(by_mean))
    assert (row.solved, row.pairs, row.median) == ("", "", "+0.500 nats")


def test_it_is_told_whether_accuracy_still_rises(known):
    """Both for the run with a constant rate and for that with a schedule."""
    rising = made_up(known, MadeUp(QKV=1.0, Q_K=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    assert rises_in_words(rising) == (
        "Accuracy: Q=K still rises at 192 steps; Q=K with a schedule still rises at 192 steps."
    )
    assert "Q=K has stopped rising by 192 steps;" in rises_in_words(unable(known))
    assert rises_in_words(unable(known, quick=True)) == ""
    able = small_claim(arms=tuple(arm(v, up_to=8, **TINY) for v in ("Q=K", "QKV", "K=V")))
    assert (
        rises_in_words(unable(able, quick=True)) == "Accuracy: Q=K has stopped rising by 48 steps."
    )
    sure = small_claim(statements=(no_worse("Q=K", "QKV"),))
    assert rises_in_words(unable(sure)) == ""


def test_what_had_been_seen_is_told_with_a_prediction(known):
    """So are the day of the first run, and what was changed since."""
    claim = replace(known, seen="a prototype", seen_note="It had shown Q=K at 0.5.")
    evidence = replace(unable(known), claim=claim)
    assert seen_in_words(claim) == (
        "When it was written, we had seen a prototype of this comparison. It had shown Q=K at 0.5."
    )
    assert seen_in_words(claim, unable(claim, quick=True)) == seen_in_words(claim)
    assert "The first run of the record began on 2026-11-23." in seen_in_words(claim, evidence)
    assert "The prediction has been changed since the first run" in seen_in_words(claim, evidence)
    both = replace(evidence, first_run=replace(evidence.first_run, rule="another"))
    assert "The rule and the prediction have been changed since the" in seen_in_words(claim, both)
    assert "Neither the prediction nor the rule has been changed" in seen_in_words(
        known, unable(known)
    )


def test_the_score_is_told_by_what_had_been_seen():
    """A prediction that is known from an earlier run is worth less."""
    claims = [
        small_claim("first"),
        small_claim("second", seen="a prototype"),
        small_claim("third", seen="a prototype", expected="undecided"),
    ]
    assert score_in_words(list(map(unable, claims))) == (
        "Predictions that came true: 1 of 1 where we had seen nothing, "
        "1 of 2 where we had seen a prototype."
    )
    assert score_in_words([]) == ""


def test_a_table_has_a_line_for_every_claim():
    """It has the prediction where something else came, and says how verdicts are read."""
    right = unable(small_claim("right", n_seeds=40))
    wrong = made_up(small_claim("wrong", n_seeds=40), MadeUp(QKV=1.0, Q_K=1.0))
    head, first, second, empty, last = readable([right, wrong]).splitlines()
    assert head.split() == ["claim", "verdict", "predicted", "seen", "before", "main", "finding"]
    assert first.split()[:4] == ["right", "held", "nothing", "Q=K"]
    assert second.split()[:6] == ["wrong", "did", "not", "hold", "held", "nothing"]
    assert first.endswith(main_finding(right))
    assert empty == ""
    assert last.startswith("Predictions that came true: 1 of 2 where we had seen nothing.")
    assert "read together (Holm)" in last
    assert "read alone" in readable([unable(small_claim(), quick=True)])


def test_the_table_of_claims_is_markdown():
    """It has a row for every claim, with as many cells as its head."""
    right = unable(small_claim("right", n_seeds=40))
    wrong = made_up(small_claim("wrong"), MadeUp(QKV=1.0, Q_K=1.0))
    later = replace(right, claim=small_claim("later", n_seeds=40, prediction="It holds now."))
    others = [made_up(small_claim(name), MadeUp(QKV=nan)) for name in ("one", "two")]
    head, line, *rows, empty, last = to_markdown([right, wrong, later, *others]).splitlines()
    assert {row.count("|") for row in (head, line, *rows)} == {6}
    assert rows[0].startswith("| `right` A small claim | held | held | nothing | Q=K is worse ")
    assert rows[1].startswith("| `wrong` A small claim | undecided (read alone: did not hold) |")
    assert "| held (changed since the first run began) | nothing |" in rows[2]
    assert empty == ""
    assert last.startswith("Predictions that came true: 2 of 5 where we had seen nothing.")


# what is shipped


def test_what_is_shipped_is_read_in_the_order_of_claims(shipped, monkeypatch):
    """The order of the file does not matter; without a file nothing is shipped.

    Claims that are unknown or that have changed since are left out.
    """
    assert load_shipped() == {}
    load_shipped.cache_clear()
    claims = [small_claim(name) for name in ("first", "second", "third", "fourth")]
    shipped.write_text(to_json(map(unable, claims[::-1])), encoding="utf-8")
    changed = replace(claims[2], statements=(better("Q=K", "QKV"),))
    for claim in (*claims[:2], changed):
        monkeypatch.setitem(CLAIMS, claim.id, claim)
    found = load_shipped()
    assert list(found) == ["first", "second"]
    assert found["first"].claim is claims[0]


def test_shipped_records_are_of_the_arms_of_their_claims():
    """Also if a task's defaults have changed since: texts and arms name what is not default."""

    def settings_of(experiment):
        return tuple(map(repr, (experiment.task, experiment.size, experiment.training)))

    for found in load_shipped().values():
        recorded = {settings_of(from_text(text)) for text in found.experiments}
        assert recorded >= {settings_of(arm.experiment) for arm in found.claim.arms}, found.claim.id
