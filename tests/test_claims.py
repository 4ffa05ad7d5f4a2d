"""Claims: what every registered claim holds, and how wrong ones are refused."""

import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_claims import TINY, small_claim

import attnkit.claims
from attnkit.__main__ import main
from attnkit.claims import CLAIMS, FAMILIES, Verdict, register_claim
from attnkit.claims.base import CONFIRMING_SEEDS, LEAST_SEEDS, LONGEST, TUNED_AT, Seen, arm
from attnkit.claims.measures import MEASURES
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.trials import RATES, rates_of

FILES = {path.stem for path in Path(attnkit.claims.__path__[0]).glob("*.py")}
FILES -= {"__init__", "base", "measures", "statements"}
DIRECTED = [name for name, measure in MEASURES.items() if measure.better]


@pytest.fixture
def untouched():
    """Remove what a test registers after it."""
    before = dict(CLAIMS)
    yield
    CLAIMS.clear()
    CLAIMS.update(before)


# what is registered


def test_every_file_holds_the_claim_of_its_name():
    """Files are found by themselves: none is listed by hand."""
    assert set(CLAIMS) == FILES
    assert len(CLAIMS) >= 10


def test_claims_stand_under_their_headings():
    """What people ask comes first."""
    places = [FAMILIES.index(claim.family) for claim in CLAIMS.values()]
    assert places == sorted(places)
    assert set(places) == set(range(len(FAMILIES)))


BEGINS = {"held": "It holds", "did not hold": "It does not hold", "undecided": "Undecided"}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_can_be_shown_trained_and_judged(claim):
    """Its texts are there, its arms are experiments, and its statements can be refuted.

    The prediction begins with the predicted verdict. The quick form has half of the seeds, or six.
    No two arms train the same at the same rate. Both sides of a statement have the same steps,
    batches and evaluations, so that they differ in nothing but the variant or the task. The left
    arm is trained for as long as the statement reads it; the right one may be shorter.
    """
    for text in (claim.title, claim.question, claim.source, claim.says, claim.prediction):
        assert text == text.strip() != ""
    assert claim.expected in get_args(Verdict)
    assert claim.prediction.startswith(BEGINS[claim.expected])
    assert claim.seen in get_args(Seen)
    assert claim.seen_note == claim.seen_note.strip() != ""
    assert claim.question.endswith("?")
    assert 10 <= claim.n_seeds <= 40
    assert claim.quick_seeds == max(LEAST_SEEDS, claim.n_seeds // 2)

    further, confirming = claim.confirmation()
    arms = (*claim.arms, *further)
    by_name = {one.name: one for one in arms}
    assert all(one.experiment.n_runs == 1 for one in arms)
    assert len({(one.experiment.hash, one.rate_of) for one in arms}) == len(arms) == len(by_name)
    assert all(one.up_to.bit_count() == one.tuned_at.bit_count() == 1 for one in arms)

    along = {"accuracy_all_along", "loss_all_along", "steps_to_solve"}
    for statement in claim.statements:
        assert statement.low < statement.high
        assert math.isfinite(statement.low) or math.isfinite(statement.high)
        assert statement.text
        assert (statement.second_left is None) == (statement.second_right is None)
        own = [by_name[name].experiment.training for name in statement.arms]
        assert len({(one.batch_size, one.n_eval) for one in own}) == 1
        assert len({by_name[name].base_steps for name in statement.arms}) == 1
        assert statement.measure not in along or len({one.evaluate_every for one in own}) == 1
    for statement in (*claim.statements, *confirming):
        assert statement.at <= by_name[statement.left].up_to
        assert statement.at.bit_count() == 1

    named = {name for statement in claim.statements for name in statement.arms}
    named |= {one.rate_of for one in claim.arms if one.name in named and one.rate_of}
    judged = [one.name for one in claim.arms if one.name in named]
    assert [one.name for one in claim.judged_arms] == judged
    check_confirmation(claim, further, confirming, by_name)


def check_confirmation(claim, arms, statements, by_name):
    """Hold long runs, with a constant rate and with a schedule, against the inability."""
    unable = [statement for statement in claim.statements if statement.unable]
    assert len(statements) == 2 * len(unable)
    assert {one.left for one in statements} == {one.name for one in arms}
    for statement, first, second in zip(unable, statements[::2], statements[1::2], strict=True):
        own, constant, scheduled = (by_name[one.left] for one in (statement, first, second))
        for longer in (constant, scheduled):
            assert longer.variant == own.variant
            assert longer.experiment.training.steps == LONGEST * own.base_steps
            assert longer.trained_for(longer.tuned_at).training.steps == TUNED_AT * own.base_steps
            assert (longer.most_seeds, longer.rate_of) == (CONFIRMING_SEEDS, "")
        assert rates_of(constant) == rates_of(own)
        assert constant.experiment.training.schedule == own.experiment.training.schedule
        assert scheduled.experiment.training.schedule == "cosine"
        assert len(rates_of(scheduled)) > len(RATES)
        for stronger in (first, second):
            assert not stronger.unable
            assert stronger.at == LONGEST
            assert stronger.text.startswith(statement.text)
            for name in ("right", "low", "high", "measure"):
                assert getattr(stronger, name) == getattr(statement, name)


def test_one_arm_that_is_unable_twice_is_trained_once_more_only():
    """Two statements about it share the arms that confirm them."""
    twice = (worse("Q=K", "QKV", unable=True), worse("Q=K", "K=V", unable=True))
    arms, statements = small_claim(statements=twice).confirmation()
    assert (len(arms), len(statements)) == (2, 4)


# what is wrong


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"statements": (worse("Q=V", "QKV"),)},
            "statements: got the arm 'Q=V', allowed Q=K, K=V, QKV",
        ),
        ({"statements": ()}, "statements: got none, allowed one or more"),
        (
            {"arms": (arm("QKV", **TINY), arm("Q=K", "QKV", **TINY))},
            "arms: got 'QKV' twice, allowed each name once",
        ),
        (  # they would be one run of one experiment
            {"arms": (arm("QKV", **TINY), arm("Q=K", **TINY), arm("QKV", "again", **TINY))},
            "arms: got 'again', allowed an arm that differs from",
        ),
        *(  # neither what is not there, nor what takes another's, nor its own
            (
                {
                    "arms": (
                        arm("QKV", **TINY),
                        arm("K=V", rate_of="QKV", **TINY),
                        arm("Q=K", rate_of=rate_of, **TINY),
                    )
                },
                f"rate_of: got '{rate_of}', allowed QKV",
            )
            for rate_of in ("Q=V", "K=V", "Q=K")
        ),
    ],
)
def test_a_claim_that_cannot_be_judged_is_refused(given, message):
    """The message names the field, what was given and what is allowed."""
    with pytest.raises(ValueError, match=message):
        small_claim(**given)


def test_an_unknown_measure_is_refused():
    """It names those there are; of a symmetry, neither way is better."""
    with pytest.raises(ValueError, match=r"measure: got 'speed', allowed accuracy, "):
        Statement("It is fast", "QKV", measure="speed")
    for builder in (worse, better, no_worse):
        for measure in ("asymmetry", "speed"):
            message = rf"measure: got '{measure}', allowed accuracy, "
            with pytest.raises(ValueError, match=message):
                builder("Q=K", "QKV", measure=measure)


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 0},
        {"right": "QKV"},
        {"right": "QKV", "low": -1, "high": 1},
        {"right": "QKV", "low": 0, "second_left": "K=V", "second_right": "Q=K"},
    ],
)
def test_pairs_are_counted_of_two_arms_beyond_one_limit(wrong):
    """Other statements need a measure whose seeds scatter around a mean."""
    with pytest.raises(ValueError, match=r"measure: got 'accuracy'.* allowed otherwise mean_acc"):
        Statement("It is so", "Q=K", **wrong)
    Statement("It is so", "Q=K", measure="loss", **wrong)


@pytest.mark.usefixtures("untouched")
def test_an_id_is_taken_once():
    """Another claim of the same id would hide the first."""
    register_claim(small_claim())
    with pytest.raises(ValueError, match="id: 'small' is taken"):
        register_claim(small_claim())


# builders

AMOUNT = st.integers(0, 97).map(lambda hundredths: hundredths / 100)
GAIN = st.integers(-197, 197).map(lambda steps: steps / 200)


@given(by=AMOUNT, gain=GAIN, measure=st.sampled_from(DIRECTED))
def test_builders_want_what_they_say(by, gain, measure):
    """A gain is a higher accuracy or a lower loss: beyond the amount, and not at it."""
    difference = MEASURES[measure].better * gain

    def wants(statement):
        assert (statement.left, statement.right, statement.measure) == ("a", "b", measure)
        return statement.low < difference < statement.high

    assert wants(worse("a", "b", by, measure=measure)) == (gain < -by)
    assert wants(better("a", "b", by, measure=measure)) == (gain > by)
    assert wants(no_worse("a", "b", by, measure=measure)) == (gain > -by)


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (worse("a", "b"), "a is worse than b by more than 5 points"),
        (better("a", "b", 0.13), "a is better than b by more than 13 points"),
        (no_worse("a", "b", 0.03, measure="loss"), "a is at most 0.03 nats worse than b"),
        (
            worse("a", "b", 0.02, measure="accuracy_all_along"),
            "a is worse than b by more than 2 points of mean accuracy during training",
        ),
        (better("a", "b", text="a wins"), "a wins"),
    ],
)
def test_builders_say_what_they_want(statement, text):
    """Accuracies in points, losses in nats; or in words of one's own."""
    assert statement.text == text


# the hash


@pytest.mark.parametrize(
    "changed",
    [
        {"arms": (*small_claim().arms[:2], arm("QKV", **{**TINY, "steps": 7}))},
        {"arms": (*small_claim().arms[:2], arm("QKV unit_key", "QKV", **TINY))},
        {"arms": (*small_claim().arms[:2], arm("QKV", rate_of="Q=K", **TINY))},
        {"statements": (worse("Q=K", "QKV", 0.07, unable=True),)},
        {"statements": (worse("Q=K", "QKV"),)},
        {"statements": (worse("Q=K", "K=V", unable=True),)},
        {"statements": (worse("Q=K", "QKV", measure="loss", unable=True),)},
        {"statements": (worse("Q=K", "QKV", at=2, unable=True),)},
        {"arms": (*small_claim().arms[:2], arm("QKV", up_to=2, **TINY))},
        {"n_seeds": 11},
    ],
)
def test_the_hash_tells_what_decides_the_verdict(changed):
    """Settings, variants, limits, measures and seeds."""
    assert small_claim(**changed).hash != small_claim().hash


def test_the_hash_does_not_hang_on_words():
    """Nor on what came out."""
    claim = small_claim()
    (statement,) = claim.statements
    worded = small_claim(
        title="Another",
        question="What?",
        source="nobody",
        says="Nothing.",
        prediction="None.",
        expected="did not hold",
        seen="an earlier run",
        seen_note="Much.",
        statements=(replace(statement, text="Q=K falls behind"),),
        reason="unknown",
        family="Our own",
    )
    assert worded.hash == claim.hash
    assert len(claim.hash) == 16


def test_the_hash_of_the_prediction_depends_on_what_was_predicted():
    """It also depends on what had been seen, and on nothing else."""
    others = [{"prediction": "It holds, we think."}, {"expected": "undecided"}]
    for changed in (*others, {"seen": "a prototype"}):
        assert small_claim(**changed).prediction_hash != small_claim().prediction_hash
    words = {"title": "Another", "seen_note": "Much.", "n_seeds": 11, "reason": "Because."}
    assert small_claim(**words).prediction_hash == small_claim().prediction_hash


def test_hashes_of_all_claims_differ():
    """Each is about something of its own."""
    assert len({claim.hash for claim in CLAIMS.values()}) == len(CLAIMS)


# one's own

OWN = f"""
from attnkit.claims.base import Claim, arm, register_claim
from attnkit.claims.statements import no_worse

register_claim(
    Claim(
        id="mine",
        title="My claim",
        question="Is K=V as good?",
        source="me",
        says="K=V is as good.",
        prediction="It holds.",
        expected="held",
        arms=(arm("QKV", **{TINY!r}), arm("K=V", **{TINY!r})),
        statements=(no_worse("K=V", "QKV"),),
        family="Our own",
    )
)
"""


@pytest.mark.usefixtures("untouched")
def test_a_claim_of_ones_own_is_listed_and_run(tmp_path, monkeypatch, capsys):
    """Its module is named in the environment."""
    (tmp_path / "my_claims.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ATTNKIT_MODULES", "my_claims")
    assert main(["claims", "--list", "mine"]) == 0
    assert "nothing is shipped for mine" in capsys.readouterr().err
    assert main(["claims", "--quick", "--fresh", "mine"]) == 0
    assert "mine " in capsys.readouterr().out


def test_hash_of_a_claim_is_that_of_earlier_versions():
    """Evidence that was gathered before stays valid wherever the code moves."""
    names = ("one_matrix", "direction", "ranking")
    known = ["728991fefba2a219", "8e6f38c668cd501d", "ae70c07bc5162bf2"]
    assert [CLAIMS[name].hash for name in names] == known
