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
EVERY = pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)


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


@EVERY
def test_a_claim_says_all_that_is_shown_of_it(claim):
    """Its prediction begins with the predicted verdict, and it says what had been seen."""
    for text in (claim.title, claim.question, claim.source, claim.says, claim.prediction):
        assert text == text.strip() != ""
    assert claim.expected in get_args(Verdict)
    begins = {"held": "It holds", "did not hold": "It does not hold", "undecided": "Undecided"}
    assert claim.prediction.startswith(begins[claim.expected])
    assert claim.seen in get_args(Seen)
    assert claim.seen_note == claim.seen_note.strip() != ""
    assert claim.question.endswith("?")


@EVERY
def test_a_claim_has_seeds_for_a_headline(claim):
    """At least ten, and no more than an experiment takes; the quick form has half, or six."""
    assert 10 <= claim.n_seeds <= 40
    assert claim.quick_seeds == max(LEAST_SEEDS, claim.n_seeds // 2)


@EVERY
def test_every_arm_makes_an_experiment(claim):
    """An arm is an experiment by itself; no two arms train the same at the same rate."""
    further, _ = claim.confirmation()
    arms = (*claim.arms, *further)
    assert all(one.experiment.n_runs == 1 for one in arms)
    assert len({(one.experiment.hash, one.rate_of) for one in arms}) == len(arms)
    assert len({one.name for one in arms}) == len(arms)


@EVERY
def test_every_statement_wants_a_region_that_leaves_something_out(claim):
    """A claim that nothing could refute says nothing."""
    for statement in claim.statements:
        assert statement.low < statement.high
        assert math.isfinite(statement.low) or math.isfinite(statement.high)
        assert statement.text
        assert (statement.second_left is None) == (statement.second_right is None)


@EVERY
def test_arms_that_are_compared_differ_in_nothing_but_the_variant_or_the_task(claim):
    """Steps, batches and evaluations are the same for both sides of a statement."""
    by_name = {one.name: one for one in claim.arms}
    along = {"accuracy_all_along", "loss_all_along", "steps_to_solve"}
    for statement in claim.statements:
        own = [by_name[name].experiment.training for name in statement.arms]
        assert len({(one.batch_size, one.n_eval) for one in own}) == 1
        assert len({by_name[name].base_steps for name in statement.arms}) == 1
        assert statement.measure not in along or len({one.evaluate_every for one in own}) == 1


@EVERY
def test_the_left_arm_is_trained_for_as_long_as_a_statement_reads_it(claim):
    """The right arm may be shorter: it is then read at its last step."""
    arms, statements = claim.confirmation()
    by_name = {one.name: one for one in (*claim.arms, *arms)}
    for statement in (*claim.statements, *statements):
        assert statement.at <= by_name[statement.left].up_to
        assert statement.at.bit_count() == 1
    assert all(one.up_to.bit_count() == one.tuned_at.bit_count() == 1 for one in by_name.values())


@EVERY
def test_judged_arms_are_those_of_the_statements(claim):
    """They include the arms whose learning rates they use, in the order of the claim."""
    named = {name for statement in claim.statements for name in statement.arms}
    named |= {one.rate_of for one in claim.arms if one.name in named and one.rate_of}
    judged = [one.name for one in claim.judged_arms]
    assert set(judged) == named
    assert judged == [one.name for one in claim.arms if one.name in named]


# confirming an inability


@EVERY
def test_an_inability_is_confirmed(claim):
    """It is confirmed by long runs with a constant rate and with a schedule, on fewer seeds."""
    arms, statements = claim.confirmation()
    unable = [statement for statement in claim.statements if statement.unable]
    assert len(statements) == 2 * len(unable)
    assert {one.left for one in statements} == {one.name for one in arms}
    by_name = {one.name: one for one in (*claim.arms, *arms)}
    for statement, first, second in zip(unable, statements[::2], statements[1::2], strict=True):
        own, constant, scheduled = (by_name[one.left] for one in (statement, first, second))
        for longer in (constant, scheduled):
            training = longer.experiment.training
            assert longer.variant == own.variant
            assert training.steps == LONGEST * own.base_steps
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
            assert (stronger.right, stronger.low, stronger.high, stronger.measure) == (
                statement.right, statement.low, statement.high, statement.measure,
            )  # fmt: skip


def test_one_arm_that_is_unable_twice_is_trained_once_more_only():
    """Two statements about it share the arms that confirm them."""
    twice = (worse("Q=K", "QKV", unable=True), worse("Q=K", "K=V", unable=True))
    arms, statements = small_claim(statements=twice).confirmation()
    assert (len(arms), len(statements)) == (2, 4)


# what is wrong


def test_a_statement_about_no_arm_is_refused():
    """It names the field, the arm and those there are."""
    with pytest.raises(ValueError, match=r"statements: got the arm 'Q=V', allowed Q=K, K=V, QKV"):
        small_claim(statements=(worse("Q=V", "QKV"),))


def test_two_arms_of_one_name_are_refused():
    """It names the field and the name."""
    with pytest.raises(ValueError, match=r"arms: got 'QKV' twice, allowed each name once"):
        small_claim(arms=(arm("QKV", **TINY), arm("Q=K", "QKV", **TINY)))


def test_two_arms_that_train_the_same_are_refused():
    """They would be one run of one experiment."""
    with pytest.raises(ValueError, match=r"arms: got 'again', allowed an arm that differs from"):
        small_claim(arms=(arm("QKV", **TINY), arm("Q=K", **TINY), arm("QKV", "again", **TINY)))


@pytest.mark.parametrize("rate_of", ["Q=V", "K=V", "Q=K"])
def test_a_rate_of_no_arm_that_is_tuned_is_refused(rate_of):
    """Neither of one that is not there, nor of one that takes another's, nor its own."""
    arms = (
        arm("QKV", **TINY),
        arm("K=V", rate_of="QKV", **TINY),
        arm("Q=K", rate_of=rate_of, **TINY),
    )
    with pytest.raises(ValueError, match=f"rate_of: got '{rate_of}', allowed QKV"):
        small_claim(arms=arms)


def test_a_claim_without_statements_is_refused():
    """Nothing would be judged."""
    with pytest.raises(ValueError, match=r"statements: got none, allowed one or more"):
        small_claim(statements=())


def test_an_unknown_measure_is_refused():
    """It names those there are."""
    with pytest.raises(ValueError, match=r"measure: got 'speed', allowed accuracy, "):
        Statement("It is fast", "QKV", measure="speed")


@pytest.mark.parametrize("builder", [worse, better, no_worse])
@pytest.mark.parametrize("measure", ["asymmetry", "speed"])
def test_worse_and_better_need_a_measure_that_has_them(builder, measure):
    """Of a symmetry neither way is better."""
    with pytest.raises(ValueError, match=rf"measure: got '{measure}', allowed accuracy, "):
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


@pytest.mark.parametrize(
    ("changed", "is_another"),
    [
        ({"prediction": "It holds, we think."}, True),
        ({"expected": "undecided"}, True),
        ({"seen": "a prototype"}, True),
        ({"title": "Another", "seen_note": "Much.", "n_seeds": 11, "reason": "Because."}, False),
    ],
)
def test_the_hash_of_the_prediction_depends_on_what_was_predicted(changed, is_another):
    """It also depends on what had been seen, and on nothing else."""
    before, after = small_claim(), small_claim(**changed)
    assert (before.prediction_hash != after.prediction_hash) == is_another


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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("one_matrix", "728991fefba2a219"),
        ("direction", "8e6f38c668cd501d"),
        ("ranking", "ae70c07bc5162bf2"),
    ],
)
def test_hash_of_a_claim_is_that_of_earlier_versions(name, expected):
    """Evidence that was gathered before stays valid wherever the code moves."""
    assert CLAIMS[name].hash == expected
