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
from attnkit.claims import CLAIMS, register_claim
from attnkit.claims.base import (
    FOLLOWING_SEEDS,
    LONGEST,
    SCHEDULES,
    Seen,
    arm,
)
from attnkit.claims.measures import MEASURES
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.record import load_shipped


def test_every_claim_can_be_shown_trained_and_judged():
    """Both sides of a statement differ in nothing but the variant or the task."""
    files = {path.stem for path in Path(attnkit.claims.__path__[0]).glob("*.py")}
    assert set(CLAIMS) == files - {"__init__", "base", "measures", "names", "statements"}
    assert len({claim.hash for claim in CLAIMS.values()}) == len(CLAIMS)
    assert len(load_shipped()) > len(CLAIMS) / 2  # whose hashes are known
    begins = {"held": "It holds", "did not hold": "It does not hold", "undecided": "Undecided"}
    along = {"accuracy_all_along", "loss_all_along", "steps_to_solve"}  # hang on evaluations
    for claim in CLAIMS.values():
        with about(claim):
            assert claim.prediction.startswith(begins[claim.expected])
            assert claim.seen in get_args(Seen)
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
                assert same_rhythm or statement.measure not in along
            for statement in (*claim.statements, *claim.confirmation[1]):
                assert statement.at <= by_name[statement.left].up_to
                assert statement.at.bit_count() == 1
                opposite, often = statement.opposite, statement.more_often
                assert len({statement.text, opposite, often}) == 3
                assert ("more often" in often) is not statement.measured.compares_means
                limit = min(abs(statement.low), abs(statement.high))
                if limit and statement.measured.unit != "doublings":
                    number = f"{100 * limit if statement.measured.unit == 'points' else limit:g}"
                    assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", opposite)
            judged = {name for statement in claim.statements for name in statement.arms}
            judged |= {by_name[name].recipe_of for name in judged} - {""}
            assert claim.judged_arms == tuple(one for one in claim.arms if one.name in judged)


def test_long_runs_with_either_schedule_confirm_every_inability():
    """Their statements are those of the claim, and two about one arm share its long runs."""
    twice = (worse("Q=K", "QKV", unable=True), worse("Q=K", "K=V", unable=True))
    for claim in (small_claim(statements=twice), *CLAIMS.values()):
        with about(claim):
            arms, statements = claim.confirmation
            unable = [one for one in claim.statements if one.unable for _ in SCHEDULES]
            assert {one.left for one in statements} == {one.name for one in arms}
            by_name = {one.name: one for one in (*claim.arms, *arms)}
            for place, (short, longer) in enumerate(zip(unable, statements, strict=True)):
                own, long = by_name[short.left], by_name[longer.left]
                assert (long.variant, long.steps) == (own.variant, LONGEST * own.steps)
                assert (long.most_seeds, long.recipe_of, long.tuned_at) == (FOLLOWING_SEEDS, "", 0)
                assert long.schedules == (SCHEDULES[place % 2],)
                at = LONGEST * own.up_to
                texts = {name: getattr(longer, name) for name in ("text", "opposite", "more_often")}
                known = replace(short, left=long.name, unable=False, at=at, **texts)
                assert longer == known
                assert str(short.text) in longer.text
                assert f"{long.steps:,}" in longer.opposite


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
            assert all(f"{2**by:g} times" in text for text in (beyond, within))
            assert beyond.startswith("b needs" if word == "better" else "a needs")
        elif by:
            amount = f"{100 * by if measure.unit == 'points' else by:g} {measure.unit}".strip()
            assert all(word in text and amount in text for text in (beyond, within))
        if by or measure.unit == "doublings":
            assert ("more than" in beyond, "at most" in within) == (True, True)
        elif name in ("loss", "loss_all_along", "mean_accuracy"):
            is_higher = (word == "better") == (measure.better > 0)
            assert ("higher" in beyond, "lower" in within) == (is_higher, is_higher)
        else:
            assert f"{word} than" in beyond
            assert ("at most" if word == "better" else "at least") in within
        often = {"better": "a gets ahead of b", "worse": "a falls behind b"}[word]
        assert statement.more_often.startswith("" if measure.compares_means else often) or not by
        assert bool(statement.more_often) is not measure.compares_means
    assert worse("a, sums", "b, sums").text.startswith("Sums: a is")


def test_a_claim_that_cannot_be_judged_is_refused():
    """The message names the field, what was given and what is allowed."""
    free, tied = arm("QKV", **TINY), arm("K=V", recipe_of="QKV", **TINY)
    for given_, message in (
        ({"statements": (worse("Q=V", "QKV"),)}, "statements: got the arm 'Q=V'.*K=V"),
        ({"statements": ()}, "statements: got none"),
        ({"expected": "true"}, "expected: got 'true'.*undecided"),
        ({"arms": (free, arm("Q=K", "QKV", **TINY))}, "arms: got 'QKV' twice"),
        *(  # neither what is not there, nor what takes another's, nor its own
            (
                {"arms": (free, tied, arm("Q=K", recipe_of=taken, **TINY))},
                f"recipe_of: got '{taken}', allowed QKV",
            )
            for taken in ("Q=V", "K=V", "Q=K")
        ),
    ):
        with pytest.raises(ValueError, match=message):
            small_claim(**given_)
    for builder, measure in product((worse, better, no_worse), ("asymmetry", "speed")):
        with pytest.raises(ValueError, match=f"measure: got '{measure}', allowed accuracy"):
            builder("Q=K", "QKV", measure=measure)
    for wrong in (
        {"low": 0},
        {"right": "QKV"},
        {"right": "QKV", "low": 0, "second_left": "K=V", "second_right": "Q=K"},
        {"measure": "speed"},
    ):
        with pytest.raises(ValueError, match=r"measure: got .* allowed .*mean_accuracy"):
            Statement("It is so", "It is not so", "Q=K", **wrong)
        Statement("It is so", "It is not so", "Q=K", **{**wrong, "measure": "loss"})


@given(
    by=st.integers(0, 97).map(lambda hundredths: hundredths / 100),
    gain=st.integers(-197, 197).map(lambda steps: steps / 200),
    measure=st.sampled_from([name for name, measure in MEASURES.items() if measure.better]),
)
def test_builders_want_what_they_say(by, gain, measure):
    """A gain is a higher accuracy or a lower loss: beyond the amount, and not at it."""
    difference = MEASURES[measure].better * gain
    for builder, wanted in ((worse, gain < -by), (better, gain > by), (no_worse, gain > -by)):
        statement = builder("a", "b", by, measure=measure)
        assert (statement.left, statement.right, statement.measure) == ("a", "b", measure)
        assert (statement.low < difference < statement.high) == wanted


def test_hashes_tell_what_decides_a_verdict_and_what_was_predicted_but_no_words():
    """Settings, variants, limits, measures and seeds; a prediction has a hash of its own."""
    last = (
        arm("QKV", **{**TINY, "steps": 7}),
        arm("QKV unit_key", "QKV", **TINY),
        arm("QKV", recipe_of="Q=K", **TINY),
        arm("QKV", up_to=2, **TINY),
    )
    same = {"left": "Q=K", "right": "QKV", "unable": True}
    compared = {"by": 0.07, "unable": False, "right": "K=V", "measure": "loss", "at": 2}
    changes = [
        *({"arms": (*small_claim().arms[:2], one)} for one in last),
        *({"statements": (worse(**{**same, name: v}),)} for name, v in compared.items()),
        {"n_seeds": 11},
    ]
    hashes = {small_claim(**changed).hash for changed in (*changes, {})}
    assert len(hashes) == len(changes) + 1
    claim = small_claim()
    texts = ("title", "question", "source", "says", "seen_note", "reason", "family")
    predicted = {"prediction": "None.", "expected": "did not hold", "seen": "an earlier run"}
    words = dict.fromkeys(texts, "Another.")
    words |= {"statements": (replace(claim.statements[0], text="Q=K falls behind"),)}
    assert small_claim(**words, **predicted).hash == claim.hash
    assert small_claim(**words, n_seeds=11).prediction_hash == claim.prediction_hash
    for name, value in predicted.items():
        assert small_claim(**{name: value}).prediction_hash != claim.prediction_hash


@pytest.mark.usefixtures("untouched")
def test_a_claim_of_ones_own_is_listed_and_run(tmp_path, monkeypatch, capsys):
    """Its module is named in the environment; another claim of the same id would hide it."""
    code = f"""
from dataclasses import replace
from attnkit.claims import CLAIMS
from attnkit.claims.base import arm, register_claim
from attnkit.claims.statements import no_worse

arms = (arm("QKV", **{TINY!r}), arm("K=V", **{TINY!r}))
statements = (no_worse("K=V", "QKV"),)
register_claim(replace(CLAIMS["ranking"], id="mine", arms=arms, statements=statements))
"""
    (tmp_path / "my_claims.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ATTNKIT_MODULES", "my_claims")
    assert main(["claims", "--list", "mine"]) == 0
    assert "nothing is shipped for mine" in capsys.readouterr().err
    assert main(["claims", "--quick", "--fresh", "mine"]) == 0
    assert "mine " in capsys.readouterr().out
    with pytest.raises(ValueError, match="id: 'mine' is taken"):
        register_claim(small_claim("mine"))
