"""Claims: what every registered claim holds, and how wrong ones are refused."""

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_claims import TINY, about, small_claim

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
from attnkit.claims.names import named
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.record import load_shipped
from attnkit.foundation.language import Message

FILES = {path.stem for path in Path(attnkit.claims.__path__[0]).glob("*.py")}
FILES -= {"__init__", "base", "measures", "names", "statements"}


# what is registered


BEGINS = {"held": "It holds", "did not hold": "It does not hold", "undecided": "Undecided"}
ALONG = {"accuracy_all_along", "loss_all_along", "steps_to_solve"}
"""Measures that depend on how often a run is evaluated."""


def test_every_claim_can_be_shown_trained_and_judged():
    """Both sides of a statement differ in nothing but the variant or the task."""
    assert set(CLAIMS) == FILES
    assert len({claim.hash for claim in CLAIMS.values()}) == len(CLAIMS)
    families = [claim.family for claim in CLAIMS.values()]
    assert families == sorted(families, key=FAMILIES.index)
    assert set(families) == set(FAMILIES)
    assert len(load_shipped()) > len(CLAIMS) / 2  # whose hashes are known
    for claim in CLAIMS.values():
        with about(claim):
            assert claim.prediction.startswith(BEGINS[claim.expected])
            assert claim.seen in get_args(Seen)
            assert claim.question.endswith("?")
            assert 10 <= claim.n_seeds <= 160
            arms = (*claim.arms, *claim.confirmation[0])
            by_name = {one.name: one for one in arms}
            trained = {(one.experiment.hash, one.recipe_of, one.schedules) for one in arms}
            assert len(trained) == len(arms) == len(by_name)
            assert all(one.up_to.bit_count() == 1 >= one.tuned_at.bit_count() for one in arms)
            for statement in claim.statements:
                assert statement.low < statement.high
                assert math.isfinite(statement.low) or math.isfinite(statement.high)
                assert (statement.second_left is None) == (statement.second_right is None)
                own = [by_name[name].experiment.training for name in statement.arms]
                assert len({(one.batch_size, one.n_eval) for one in own}) == 1
                assert len({by_name[name].base_steps for name in statement.arms}) == 1
                same_rhythm = len({one.evaluate_every for one in own}) == 1
                assert same_rhythm or statement.measure not in ALONG
            for statement in (*claim.statements, *claim.confirmation[1]):
                assert statement.at <= by_name[statement.left].up_to
                assert statement.at.bit_count() == 1
            judged = {name for statement in claim.statements for name in statement.arms}
            judged |= {by_name[name].recipe_of for name in judged} - {""}
            assert claim.judged_arms == tuple(one for one in claim.arms if one.name in judged)


def test_long_runs_with_either_schedule_confirm_every_inability():
    """Their statements are those of the claim, and two about one arm share its long runs."""
    twice = (worse("Q=K", "QKV", unable=True), worse("Q=K", "K=V", unable=True))
    arms, statements = small_claim(statements=twice).confirmation
    assert (len(arms), len(statements)) == (2, 4)
    for claim in (small_claim(), *CLAIMS.values()):
        with about(claim):
            arms, statements = claim.confirmation
            unable = [statement for statement in claim.statements if statement.unable]
            assert len(statements) == 2 * len(unable)
            assert {one.left for one in statements} == {one.name for one in arms}
            by_name = {one.name: one for one in (*claim.arms, *arms)}
            for place, longer in enumerate(statements):
                short = unable[place // 2]
                own, long = by_name[short.left], by_name[longer.left]
                assert (long.variant, long.steps) == (own.variant, LONGEST * own.steps)
                assert (long.most_seeds, long.recipe_of, long.tuned_at) == (FOLLOWING_SEEDS, "", 0)
                assert long.schedules == (SCHEDULES[place % 2],)
                assert (longer.unable, longer.at) == (False, LONGEST * own.up_to)
                for name in ("right", "low", "high", "measure"):
                    assert getattr(longer, name) == getattr(short, name)
                assert str(short.text) in longer.text
                assert f"{long.steps:,}" in longer.text
                assert f"{long.steps:,}" in longer.opposite
                assert bool(longer.more_often) == bool(short.more_often)


TEXTS = ("title", "question", "source", "says", "prediction", "seen_note", "reason")


def is_marked(text):
    """Return whether a text can be translated, with all texts in it."""
    values = getattr(text, "values", {}).values()
    english = re.search(r"\b[a-z]{2,}\b", text)
    inner = all(is_marked(value) for value in values if isinstance(value, str))
    return inner and (isinstance(text, Message) or not english)


def test_all_texts_of_a_claim_can_be_translated():
    """Names of arms, too: those of longer runs, and their parts inside of sentences."""
    for claim in CLAIMS.values():
        with about(claim):
            texts = [getattr(claim, name) for name in TEXTS]
            assert all(map(is_marked, texts))
            assert all(text == text.strip() != "" for text in texts[:-1])  # a reason may be unknown
            longer = filter(None, (claim.follow_up(one.name) for one in claim.arms))
            for one in (*claim.arms, *claim.confirmation[0], *longer):
                assert named(one.name) == one.name
                assert is_marked(named(one.name)), f"{one.name}: missing in attnkit.claims.names"
            for statement in (*claim.statements, *claim.confirmation[1]):
                texts = (statement.text, statement.opposite, statement.more_often)
                assert all(map(is_marked, texts)), texts


def test_sentences_of_statements_name_the_limit_and_variants_only():
    """A statement and its opposite are one comparison; only pairs can differ more often.

    Names that are no variants, such as "8 entries, 3", never become a part of a sentence.
    """
    for claim in CLAIMS.values():
        for statement in (*claim.statements, *claim.confirmation[1]):
            text, opposite, often = statement.text, statement.opposite, statement.more_often
            with about(claim):
                assert len({text, opposite, often}) == 3
                assert ("more often" in often) is not statement.measured.compares_means
                assert not any(sentence.endswith(".") for sentence in (text, opposite, often))
                limit = min(abs(statement.low), abs(statement.high))
                if statement.measured.unit == "doublings":
                    assert (limit, "four times" in text, "four times" in opposite) == (2, 1, 1)
                elif limit:
                    number = f"{100 * limit if statement.measured.unit == 'points' else limit:g}"
                    assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", opposite)
                if statement not in claim.statements:
                    continue  # a longer run, whose name has its steps
                for one in (text, opposite, often):
                    sentence = getattr(one, "values", {}).get("sentence", one)
                    sides = getattr(sentence, "values", {})
                    for side in {"left", "right"} & sides.keys():
                        (part,) = sides[side].values.values()
                        assert not isinstance(part, Message), one


OFTEN = {"better": "gets ahead of", "worse": "falls behind"}


def test_a_statement_and_its_opposite_say_which_arm_is_better_and_by_how_much():
    """Beyond the amount or within it; without one, means are called higher or lower."""
    directed = {name: measure for name, measure in MEASURES.items() if measure.better}
    builders = ((worse, "worse"), (no_worse, "worse"), (better, "better"))
    for (builder, word), name, by in product(builders, directed, (0.01, 2, 0)):
        statement, measure = builder("a", "b", by, measure=name), MEASURES[name]
        beyond, within = statement.text, statement.opposite
        if builder is no_worse:
            beyond, within = within, beyond
        if measure.unit == "doublings":
            begin, words = "b needs" if word == "better" else "a needs", f"{2**by:g} times"
        elif by:
            begin, amount = "a is", 100 * by if measure.unit == "points" else by
            words = f"{amount:g} {measure.unit}".strip()
            assert word in beyond
            assert word in within
        else:
            begin, words = "a ", " b"
        for text in (beyond, within):
            assert text.startswith(begin)
            assert words in text
        if by or measure.unit == "doublings":
            assert ("more than" in beyond, "at most" in within) == (True, True)
        elif name in ("loss", "loss_all_along", "mean_accuracy"):
            is_higher = (word == "better") == (measure.better > 0)
            assert ("higher" in beyond, "lower" in within) == (is_higher, is_higher)
            assert ("during training" in beyond) == ("along" in name)
        else:
            assert f"{word} than" in beyond
            assert ("at most" if word == "better" else "at least") in within
        named_apart = name not in ("accuracy", "longest_accuracy", "mean_accuracy", "loss")
        assert not named_apart or measure.unit == "doublings" or measure.title in beyond
        often = "" if measure.compares_means else f"a {OFTEN[word]} b more often"
        assert statement.more_often.startswith(often) or not by
        assert bool(statement.more_often) == bool(often)
    assert worse("a, sums", "b, sums").text.startswith("Sums: a is")
    assert worse("a, sums", "b").text.startswith("a, sums is")
    own = {"text": "One", "opposite": "Two", "more_often": "Three"}
    for builder in (worse, better, no_worse):
        statement = builder("a", "b", **own)
        assert {name: getattr(statement, name) for name in own} == own


# what is wrong


def arms_of(*arms):
    """Return QKV and other arms as a claim gets them: a variant, or with name or learning rate."""
    return {"arms": (arm("QKV", **TINY), *(arm(*names, **TINY, **more) for names, more in arms))}


WRONG = [
    ({"statements": (worse("Q=V", "QKV"),)}, "statements: got the arm 'Q=V'.*K=V"),
    ({"statements": ()}, "statements: got none"),
    ({"expected": "true"}, "expected: got 'true'.*undecided"),
    (arms_of((["Q=K", "QKV"], {})), "arms: got 'QKV' twice"),
    (arms_of((["Q=K"], {}), (["QKV", "again"], {})), "arms: got 'again'.*QKV"),
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
    for builder in (worse, better, no_worse):
        for measure in ("asymmetry", "speed"):
            with pytest.raises(ValueError, match=f"measure: got '{measure}', allowed accuracy"):
                builder("Q=K", "QKV", measure=measure)
    for wrong in (
        {"low": 0},
        {"right": "QKV"},
        {"right": "QKV", "low": -1, "high": 1},
        {"right": "QKV", "low": 0, "second_left": "K=V", "second_right": "Q=K"},
        {"measure": "speed"},
    ):
        with pytest.raises(ValueError, match=r"measure: got .* allowed .*mean_accuracy"):
            Statement("It is so", "It is not so", "Q=K", **wrong)
        Statement("It is so", "It is not so", "Q=K", **{**wrong, "measure": "loss"})


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


def test_the_hash_tells_what_decides_the_verdict():
    """Settings, variants, limits, measures and seeds."""
    last = (
        arm("QKV", **{**TINY, "steps": 7}),
        arm("QKV unit_key", "QKV", **TINY),
        arm("QKV", recipe_of="Q=K", **TINY),
        arm("QKV", up_to=2, **TINY),
    )
    compared = {"by": 0.07, "unable": False, "right": "K=V", "measure": "loss", "at": 2}
    changes = [
        *({"arms": (*small_claim().arms[:2], one)} for one in last),
        *({"statements": (worse(**{**STATEMENT, name: v}),)} for name, v in compared.items()),
        {"n_seeds": 11},
    ]
    hashes = {small_claim(**changed).hash for changed in (*changes, {})}
    assert len(hashes) == len(changes) + 1


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
