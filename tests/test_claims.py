"""Claims: what every registered claim holds, and how wrong ones are refused."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_claims import TINY, small_claim

import attnkit.claims
from attnkit.__main__ import main
from attnkit.claims import CLAIMS, FAMILIES, register_claim
from attnkit.claims.base import (
    FOLLOWING_SEEDS,
    LONGEST,
    SCHEDULES,
    Seen,
    arm,
)
from attnkit.claims.measures import MEASURES
from attnkit.claims.names import joined, named
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.foundation.language import Message, mark

FILES = {path.stem for path in Path(attnkit.claims.__path__[0]).glob("*.py")}
FILES -= {"__init__", "base", "measures", "names", "statements"}


# what is registered


def test_every_file_holds_the_claim_of_its_name_and_each_stands_under_its_heading():
    """Files are found by themselves, what people ask comes first, and no two test the same."""
    assert set(CLAIMS) == FILES
    assert len({claim.hash for claim in CLAIMS.values()}) == len(CLAIMS)
    families = [claim.family for claim in CLAIMS.values()]
    assert families == sorted(families, key=FAMILIES.index)
    assert set(families) == set(FAMILIES)
    known = {"one_matrix": "67c3a0ff7b0f6598", "direction": "138beb5c15b5fb07"}
    assert {name: CLAIMS[name].hash for name in known} == known


BEGINS = {"held": "It holds", "did not hold": "It does not hold", "undecided": "Undecided"}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_can_be_shown_trained_and_judged(claim):
    """Both sides of a statement differ in nothing but the variant or the task."""
    texts = (claim.title, claim.question, claim.source, claim.says, claim.prediction)
    assert all(text == text.strip() != "" for text in (*texts, claim.seen_note))
    assert claim.prediction.startswith(BEGINS[claim.expected])
    assert claim.seen in get_args(Seen)
    assert claim.question.endswith("?")
    assert 10 <= claim.n_seeds <= 160

    further, confirming = claim.confirmation
    arms = (*claim.arms, *further)
    by_name = {one.name: one for one in arms}
    assert all(one.experiment.n_runs == 1 for one in arms)
    trained = {(one.experiment.hash, one.recipe_of, one.schedules) for one in arms}
    assert len(trained) == len(arms) == len(by_name)
    assert all(one.up_to.bit_count() == 1 >= one.tuned_at.bit_count() for one in arms)

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
    named |= {one.recipe_of for one in claim.arms if one.name in named and one.recipe_of}
    assert claim.judged_arms == tuple(one for one in claim.arms if one.name in named)
    check_confirmation(claim, further, confirming, by_name)


def check_confirmation(claim, arms, statements, by_name):
    """Hold long runs, with a constant rate and with a schedule, against the inability."""
    unable = [statement for statement in claim.statements if statement.unable]
    assert len(statements) == 2 * len(unable)
    assert {one.left for one in statements} == {one.name for one in arms}
    for statement, first, second in zip(unable, statements[::2], statements[1::2], strict=True):
        own, constant, scheduled = (by_name[one.left] for one in (statement, first, second))
        for longer, schedule in zip((constant, scheduled), SCHEDULES, strict=True):
            assert longer.variant == own.variant
            assert longer.steps == LONGEST * own.steps
            assert (longer.most_seeds, longer.recipe_of) == (FOLLOWING_SEEDS, "")
            assert (longer.schedules, longer.tuned_at) == ((schedule,), 0)
        for stronger in (first, second):
            assert (stronger.unable, stronger.at) == (False, LONGEST * own.up_to)
            assert stronger.text.startswith(statement.text)
            for name in ("right", "low", "high", "measure"):
                assert getattr(stronger, name) == getattr(statement, name)


TEXTS = ("title", "question", "source", "says", "prediction", "seen_note", "reason")


def is_marked(text):
    """Return whether a text can be translated, with all texts in it."""
    values = getattr(text, "values", {}).values()
    english = re.search(r"\b[a-z]{2,}\b", text)
    inner = all(is_marked(value) for value in values if isinstance(value, str))
    return inner and (isinstance(text, Message) or not english)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_all_texts_of_a_claim_can_be_translated(claim):
    """Names of arms, too: those of longer runs, and their parts inside of sentences."""
    assert all(is_marked(getattr(claim, name)) for name in TEXTS)
    longer = [claim.follow_up(one.name) for one in claim.arms]
    arms = (*claim.arms, *claim.confirmation[0], *filter(None, longer))
    for name in (one.name for one in arms):
        assert named(name) == name
        assert is_marked(named(name)), f"{name}: a part of it is missing in attnkit.claims.names"
    for statement in (*claim.statements, *claim.confirmation[1]):
        texts = (statement.text, statement.opposite, statement.more_often)
        assert all(map(is_marked, texts)), texts


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_sentences_that_are_written_by_hand_name_the_limit(claim):
    """A statement and its opposite are one comparison; only pairs can differ more often."""
    for statement in (*claim.statements, *claim.confirmation[1]):
        text, opposite, often = statement.text, statement.opposite, statement.more_often
        assert len({text, opposite, often}) == 3
        assert ("more often" in often) is not statement.measured.compares_means
        limit = min(abs(statement.low), abs(statement.high))
        if statement.measured.unit == "doublings":
            assert (limit, "four times" in text, "four times" in opposite) == (2, True, True)
        elif limit:
            number = f"{100 * limit if statement.measured.unit == 'points' else limit:g}"
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", opposite), opposite
        assert not any(sentence.endswith(".") for sentence in (text, opposite, often))


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_sentences_that_are_made_from_names_name_variants_only(claim):
    """Names that are no variants, such as "8 entries, 3", never become a part of a sentence."""
    for statement in claim.statements:
        for text in (statement.text, statement.opposite, statement.more_often):
            values = getattr(text, "values", {})
            sentence = values.get("sentence", text)
            for side in {"left", "right"} & getattr(sentence, "values", {}).keys():
                parts = list(sentence.values[side].values.values())
                assert len(parts) == 1, text
                assert not isinstance(parts[0], Message), text


def test_names_are_put_together_from_marked_parts():
    """Numbers are values; what is no known part stays as it is, whatever stands in it."""
    name = named("K=V, {n} heads, 4 heads, 19,200 steps, cosine rate")
    assert name == "K=V, {n} heads, 4 heads, 19,200 steps, cosine rate"
    parts = list(name.values.values())
    assert parts[:2] == ["K=V", "{n} heads"]
    assert not any(isinstance(part, Message) for part in parts[:2])
    assert [part.values for part in parts[2:]] == [{"n": 4}, {"steps": 19200}, {}]
    assert joined(mark("One."), mark("Two.")).values == {"text_0": "One.", "text_1": "Two."}


def test_one_arm_that_is_unable_twice_is_trained_once_more_only():
    """Two statements about it share the arms that confirm them."""
    twice = (worse("Q=K", "QKV", unable=True), worse("Q=K", "K=V", unable=True))
    arms, statements = small_claim(statements=twice).confirmation
    assert (len(arms), len(statements)) == (2, 4)
    means = worse("Q=K", "QKV", measure="loss", unable=True)
    confirming = small_claim(statements=(means,)).confirmation[1]
    assert [one.more_often for one in confirming] == ["", ""]


# what is wrong


def arms_of(*arms):
    """Return QKV and other arms as a claim gets them: a variant, or with name or learning rate."""
    return {"arms": (arm("QKV", **TINY), *(arm(*names, **TINY, **more) for names, more in arms))}


WRONG = [
    ({"statements": (worse("Q=V", "QKV"),)}, "statements: got the arm 'Q=V', allowed Q=K, K=V"),
    ({"statements": ()}, "statements: got none, allowed one or more"),
    ({"expected": "true"}, "expected: got 'true', allowed held, did not hold, undecided"),
    (arms_of((["Q=K", "QKV"], {})), "arms: got 'QKV' twice, allowed each name once"),
    (arms_of((["Q=K"], {}), (["QKV", "again"], {})), "arms: got 'again', allowed an arm that diff"),
    *(  # neither what is not there, nor what takes another's, nor its own
        (
            arms_of((["K=V"], {"recipe_of": "QKV"}), (["Q=K"], {"recipe_of": recipe_of})),
            f"recipe_of: got '{recipe_of}', allowed QKV",
        )
        for recipe_of in ("Q=V", "K=V", "Q=K")
    ),
]


def test_a_claim_that_cannot_be_judged_is_refused():
    """The message names the field, what was given and what is allowed."""
    for given_, message in WRONG:
        with pytest.raises(ValueError, match=message):
            small_claim(**given_)


def test_an_unknown_measure_is_refused():
    """It names those there are; of a symmetry, neither way is better."""
    with pytest.raises(ValueError, match=r"measure: got 'speed', allowed accuracy, "):
        Statement("It is fast", "It is slow", "QKV", measure="speed")
    for builder in (worse, better, no_worse):
        for measure in ("asymmetry", "speed"):
            with pytest.raises(ValueError, match=rf"measure: got '{measure}', allowed accuracy, "):
                builder("Q=K", "QKV", measure=measure)
    for wrong in (
        {"low": 0},
        {"right": "QKV"},
        {"right": "QKV", "low": -1, "high": 1},
        {"right": "QKV", "low": 0, "second_left": "K=V", "second_right": "Q=K"},
    ):
        with pytest.raises(ValueError, match=r"measure: got 'accuracy'.* allowed otherwise mean_a"):
            Statement("It is so", "It is not so", "Q=K", **wrong)
        Statement("It is so", "It is not so", "Q=K", measure="loss", **wrong)


# builders

AMOUNT = st.integers(0, 97).map(lambda hundredths: hundredths / 100)
GAIN = st.integers(-197, 197).map(lambda steps: steps / 200)


@given(
    by=AMOUNT,
    gain=GAIN,
    measure=st.sampled_from([name for name, measure in MEASURES.items() if measure.better]),
)
def test_builders_want_what_they_say(by, gain, measure):
    """A gain is a higher accuracy or a lower loss: beyond the amount, and not at it."""
    difference = MEASURES[measure].better * gain

    def wants(statement):
        assert (statement.left, statement.right, statement.measure) == ("a", "b", measure)
        return statement.low < difference < statement.high

    assert wants(worse("a", "b", by, measure=measure)) == (gain < -by)
    assert wants(better("a", "b", by, measure=measure)) == (gain > by)
    assert wants(no_worse("a", "b", by, measure=measure)) == (gain > -by)


# hashes

STATEMENT = {"left": "Q=K", "right": "QKV", "unable": True}


@pytest.mark.parametrize(
    "changed",
    [
        *(
            {"arms": (*small_claim().arms[:2], last)}
            for last in (
                arm("QKV", **{**TINY, "steps": 7}),
                arm("QKV unit_key", "QKV", **TINY),
                arm("QKV", recipe_of="Q=K", **TINY),
                arm("QKV", up_to=2, **TINY),
            )
        ),
        *(
            {"statements": (worse(**{**STATEMENT, name: value}),)}
            for name, value in {
                "by": 0.07,
                "unable": False,
                "right": "K=V",
                "measure": "loss",
                "at": 2,
            }.items()
        ),
        {"n_seeds": 11},
    ],
)
def test_the_hash_tells_what_decides_the_verdict(changed):
    """Settings, variants, limits, measures and seeds."""
    assert small_claim(**changed).hash != small_claim().hash


def test_the_hashes_do_not_hang_on_words_nor_on_what_came_out():
    """The hash of a prediction depends on what was predicted and on what had been seen only."""
    claim = small_claim()
    (statement,) = claim.statements
    texts = ("title", "question", "source", "says", "seen_note", "reason", "family")
    predicted = {"prediction": "None.", "expected": "did not hold", "seen": "an earlier run"}
    words = dict.fromkeys(texts, "Another.")
    words |= {"statements": (replace(statement, text="Q=K falls behind"),)}
    assert small_claim(**words, **predicted).hash == claim.hash
    assert small_claim(**words, n_seeds=11).prediction_hash == claim.prediction_hash
    for name, value in predicted.items():
        assert small_claim(**{name: value}).prediction_hash != claim.prediction_hash


# one's own

OWN = f"""
from dataclasses import replace
from attnkit.claims.base import arm, register_claim
from attnkit.claims import CLAIMS
from attnkit.claims.statements import no_worse

arms = (arm("QKV", **{TINY!r}), arm("K=V", **{TINY!r}))
statements = (no_worse("K=V", "QKV"),)
register_claim(replace(CLAIMS["ranking"], id="mine", arms=arms, statements=statements))
"""


@pytest.mark.usefixtures("untouched")
def test_a_claim_of_ones_own_is_listed_and_run(tmp_path, monkeypatch, capsys):
    """Its module is named in the environment; another claim of the same id would hide it."""
    (tmp_path / "my_claims.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ATTNKIT_MODULES", "my_claims")
    assert main(["claims", "--list", "mine"]) == 0
    assert "nothing is shipped for mine" in capsys.readouterr().err
    assert main(["claims", "--quick", "--fresh", "mine"]) == 0
    assert "mine " in capsys.readouterr().out
    with pytest.raises(ValueError, match="id: 'mine' is taken"):
        register_claim(small_claim("mine"))
