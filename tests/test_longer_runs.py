"""Arms with their next best recipes, inabilities that are confirmed, arms that are followed."""

from dataclasses import replace

import numpy as np
import pytest
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit.claims.base import FOLLOWED, LONGEST, arm
from attnkit.claims.statements import better, no_worse, worse
from attnkit.evidence.record import rivals_of
from attnkit.evidence.tuning import FINALISTS
from attnkit.evidence.words import followed_in_words
from attnkit.experiment import from_text


def rivals(evidence):
    """Return the names of arms that have lost, with their next best recipes."""
    return {one.name for one in evidence.rivals}


def test_an_arm_is_worse_only_with_each_of_its_best_recipes():
    """An arm loses on either side of a statement; means are compared with best recipes alone."""
    statements = (worse("Q=K", "QKV"), better("QKV", "K=V"), no_worse("K=V", "QKV"))
    claim = small_claim(statements=statements, followed=1)
    evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5, K_V=0.5))
    assert evidence.losers == ("Q=K", "K=V")
    assert len(rivals(evidence)) == 2 * (FINALISTS - 1)
    assert {one.verdict for one in evidence.findings} == {"held", "did not hold"}
    for name in ("Q=K", "K=V"):
        for rival, recipe in rivals_of(name, evidence.tuned).items():
            assert evidence.tuned[rival].recipe == recipe != evidence.tuned[name].recipe
            good = {**evidence.scores[rival], "accuracy": np.ones((1, claim.n_seeds))}
            again = replace(evidence, scores={**evidence.scores, rival: good})
            changed = [one.verdict == "undecided" for one in again.findings]
            assert changed == ([True, False, False] if name == "Q=K" else [False, True, True])
    by_mean = small_claim(statements=(worse("Q=K", "QKV", 0, measure="loss"),))
    assert not rivals(made_up(by_mean, MadeUp(QKV=1.0, Q_K=0.5)))


def test_an_inability_that_shows_is_confirmed_by_long_runs():
    """With a constant rate and with a schedule, tuned for their steps, on at most 20 seeds."""
    free = arm("QKV", **TINY)
    for claim, n_shared in (
        (small_claim(n_seeds=23), 20),
        (small_claim(arms=(arm("Q=K", recipe_of="QKV", **TINY), free)), 17),
    ):
        evidence = made_up(claim, MadeUp(QKV=1.0, Q_K=0.5))
        arms, _ = claim.confirmation
        names = {one.name for one in (*claim.arms, *arms)} | rivals(evidence)
        assert names == set(evidence.scores) == set(evidence.tuned) == set(evidence.curves)
        assert evidence.judgement.verdict == "held"
        steps = {from_text(text).training.steps for text in evidence.experiments}
        assert steps == {TINY["steps"], LONGEST * TINY["steps"]}
        for one in arms:
            assert {each.schedule for each in evidence.tuned[one.name].tried} == set(one.schedules)
            assert evidence.tuned[one.name].steps == one.steps
            assert evidence.scores[one.name]["accuracy"].shape == (5, n_shared)
        assert [one.n_pairs for one in evidence.findings] == [claim.n_seeds, n_shared, n_shared]
    assert evidence.tuned["Q=K"] == evidence.tuned["QKV"]


@pytest.mark.parametrize(
    ("statements", "accuracy", "found", "verdict"),
    [
        ((worse("Q=K", "QKV", unable=True),), {"Q_K": [0.3, 0.4, 0.5, 0.7, 1.0]}, "h--", "u"),
        (
            (no_worse("K=V", "QKV"), worse("Q=K", "QKV", unable=True)),
            {"Q_K": 0.5, "K_V": float("nan")},
            "uhhh",
            "u",
        ),
        ((worse("Q=K", "QKV", unable=True),), {"Q_K": 1.0}, "-", "-"),
        (
            (no_worse("K=V", "QKV"), worse("Q=K", "QKV", unable=True)),
            {"Q_K": 1.0, "K_V": 1.0},
            "h-",
            "u",
        ),
        ((worse("Q=K", "QKV", unable=True),), {"Q_K": 0.98}, "-", "-"),
        ((worse("Q=K", "QKV"),), {"Q_K": 0.5}, "h", "h"),
    ],
    ids=[
        "overcome by training",
        "beside an undecided one",
        "absent",
        "absent beside another",
        "small",
        "no inability",
    ],
)
def test_only_an_inability_is_confirmed_whatever_becomes_of_the_claim(
    statements, accuracy, found, verdict
):
    """One that longer training overcomes does not hold; h: held, u: undecided, -: did not."""
    words = {"h": "held", "u": "undecided", "-": "did not hold"}
    claim = small_claim(statements=statements, followed=1)
    evidence = made_up(claim, MadeUp(QKV=1.0, **accuracy))
    assert [one.verdict for one in evidence.findings] == [words[letter] for letter in found]
    confirmed = len(found) > len(statements)
    arms = claim.confirmation[0] if confirmed else ()
    trained = {one.name for one in (*claim.arms, *arms)} | rivals(evidence)
    assert set(evidence.scores) == trained
    assert evidence.judgement.verdict == words[verdict]


def test_an_arm_that_loses_is_followed_until_it_learns_or_does_not():
    """For eight times its base steps, on 20 seeds; one that was trained as long is not."""
    levels = {"Q_K": [0.3, 0.5, 0.97, 1.0, 1.0, 1.0], "K_V": 0.5, "Q_V": 0.5}
    arms = (
        *(arm(sharing, **TINY) for sharing in ("QKV", "Q=K", "K=V")),
        replace(arm("Q=V", **TINY), up_to=FOLLOWED),
    )
    statements = (no_worse("Q=K", "QKV"), better("QKV", "K=V"), worse("Q=V", "QKV"))
    claim = small_claim(arms=arms, statements=statements, n_seeds=23)
    evidence = made_up(claim, MadeUp(QKV=1.0, **levels))
    followed = dict(evidence.lost)
    assert [*followed] == ["Q=K", "K=V"]
    for one in followed.values():
        assert one.steps == FOLLOWED * TINY["steps"]
        assert evidence.scores[one.name]["steps_to_solve"].shape == (4, 20)
        assert evidence.tuned[one.name].steps == one.steps
    assert evidence.statements == statements
    words = followed_in_words(evidence)
    assert "Q=K learns later, 20 of 20 seeds within 48 steps, after a median of" in words
    assert "K=V learns with no seed of 20 within 48 steps (50%)" in words
    assert not followed_in_words(made_up(claim, MadeUp(QKV=1.0, Q_K=1.0, K_V=1.0, Q_V=1.0)))
    assert not made_up(replace(claim, followed=1), MadeUp(QKV=1.0, **levels)).lost
