"""What is found on a statement, in positive words, and the values that show it."""

import numpy as np
import pytest
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.evidence.found import found_in_words, main_found, main_statement, values_in_words


def by_hand(*arms, **given):
    """Return a statement whose text is its author's."""
    return Statement("By hand", *arms, **given)


LOSS, STEPS = (
    {"measure": "loss", "text": "By hand"},
    {"measure": "steps_to_solve", "text": "By hand"},
)
FOUR = {"second_left": "c", "second_right": "d"}
OPPOSITES = [
    (no_worse("a", "b", 0.02, measure="mean_accuracy"), "a is worse than b by more than 2 points"),
    (better("a", "b", 0.1), "a is at most 10 points better than b"),
    (better("a", "b", 0, text="By hand"), "a is at most as good as b"),
    (worse("a", "b", 0, **LOSS), "a is at least as good as b"),
    (
        worse("a", "b", 0.01, measure="loss_all_along", text="By hand"),
        "a is at most 0.01 nats worse than b in mean loss during training",
    ),
    (worse("a", "b", 2, **STEPS), "a needs at most 4 times the steps of b"),
    (no_worse("a", "b", 1, **STEPS), "a needs more than 2 times the steps of b"),
    (better("a", "b", 1, **STEPS), "b needs at most 2 times the steps of a"),
    (
        by_hand("a", "b", measure="asymmetry", low=0.2),
        "The asymmetry of the scores of a is at most 0.2 higher than that of b",
    ),
    (
        by_hand("a", "b", measure="asymmetry", high=-0.2),
        "The asymmetry of the scores of a is at most 0.2 lower than that of b",
    ),
    (
        by_hand("a", "b", measure="asymmetry", high=0),
        "The asymmetry of the scores of a is at least as high as that of b",
    ),
    (by_hand("a", measure="asymmetry", high=0.1), "Asymmetry of the scores of a is above 0.1"),
    (by_hand("a", measure="asymmetry", low=0.1), "Asymmetry of the scores of a is below 0.1"),
    (
        by_hand("a", "b", measure="loss", low=-0.1, high=0.1),
        "The difference in loss between a and b is not within −0.1 nats to 0.1 nats",
    ),
    (
        by_hand("a", "b", measure="loss", high=0.03, **FOUR),
        "The difference between a and b exceeds that between c and d by more than 0.03 nats",
    ),
    (
        by_hand("a", "b", measure="loss", low=0.03, **FOUR),
        "The difference between a and b exceeds that between c and d by at most 0.03 nats",
    ),
    (
        by_hand("a, sums", "b, sums", measure="loss", high=0.5),
        "Sums: a is worse than b by more than 0.5 nats",
    ),
]


@pytest.mark.parametrize(("statement", "opposite"), OPPOSITES)
def test_a_statement_that_did_not_hold_becomes_its_opposite(statement, opposite):
    """No text has a double negative."""
    assert found_in_words(statement, "did not hold") == opposite
    if statement.text == "By hand":
        assert found_in_words(statement, "held") == "By hand"


@pytest.mark.parametrize(
    ("names", "begins"), [(("a", "b"), ""), (("a, sums", "b, sums"), "Sums: ")]
)
def test_worse_and_no_worse_are_opposites(names, begins):
    """In words, too; what both arms have in common stands before them."""
    one, other = worse(*names), no_worse(*names)
    is_worse = f"{begins}a is worse than b by more than 5 points"
    is_no_worse = f"{begins}a is at most 5 points worse than b"
    for statement, held, opposite in ((one, is_worse, is_no_worse), (other, is_no_worse, is_worse)):
        assert found_in_words(statement, "held") == held
        assert found_in_words(statement, "did not hold") == opposite
        undecided = f"The seeds do not decide this: {statement.text}"
        assert found_in_words(statement, "undecided") == undecided


def test_a_statement_can_bring_its_own_words():
    """An empty text stands for words that are made from the names."""
    both = worse("a", "b").worded(held="It is worse", failed="It is no worse")
    assert found_in_words(both, "held") == "It is worse"
    assert found_in_words(both, "did not hold") == "It is no worse"
    one = worse("a", "b").worded(failed="It is no worse")
    assert found_in_words(one, "held") == "a is worse than b by more than 5 points"


def test_long_runs_that_confirm_have_words_of_their_own():
    """The words of a statement tell of its short run only."""
    statement = worse("Q=K", "QKV", unable=True).worded(held="At first it is worse")
    _, (confirming, _) = small_claim(statements=(statement,)).confirmation()
    assert found_in_words(confirming, "held") == confirming.text


def test_every_claim_can_be_found_to_hold_or_not():
    """The texts for its verdicts differ, and none says that something did not hold."""
    for statement in (one for claim in CLAIMS.values() for one in claim.statements):
        texts = [found_in_words(statement, v) for v in ("held", "did not hold", "undecided")]
        assert len(set(texts)) == 3, texts
        assert not any("did not hold" in text for text in texts)


def claim_of(*statements, up_to=1):
    """Return a small claim with other statements."""
    arms = tuple(arm(name, up_to=up_to, **TINY) for name in ("QKV", "Q=K", "K=V"))
    return small_claim(arms=arms, statements=statements)


def values_of(claim, scores=None, **accuracy):
    """Return the values on the first statement of a claim."""
    evidence = made_up(claim, MadeUp(lambda _: None, **accuracy))
    if scores is not None:
        for name, measures in scores.items():
            evidence.scores[name].update(measures)
    return values_in_words(evidence, evidence.statements[0], evidence.findings[0])


def test_values_are_means_in_the_unit_of_the_measure():
    """Shares in whole percent, losses with two decimals."""
    assert values_of(claim_of(worse("Q=K", "QKV")), Q_K=0.5, QKV=0.999) == (
        "50% against 99%, 17 seeds"
    )
    loss = claim_of(worse("Q=K", "QKV", measure="loss"))
    assert values_of(loss, Q_K=0.5, QKV=1.0) == "0.50 against 0.00 nats, 17 seeds"
    alone = claim_of(Statement("By hand", "QKV", measure="mean_accuracy", high=0.5))
    own = {"QKV": {"mean_accuracy": np.ones((1, 17))}}
    assert values_of(alone, own) == "100%, 17 seeds"
    assert values_of(claim_of(worse("Q=K", "QKV")), Q_K=np.nan, QKV=1.0) == (
        "diverged against 100%, 17 seeds"
    )


def test_values_of_steps_are_medians():
    """A median that is infinite is told in a word."""
    claim = claim_of(worse("Q=K", "QKV", 2, measure="steps_to_solve"))
    scores = {
        "Q=K": {"steps_to_solve": np.full((1, 17), np.inf)},
        "QKV": {"steps_to_solve": np.full((1, 17), 10.0)},
    }
    assert values_of(claim, scores) == "never against 1,024 steps, median, 17 seeds"


def test_two_differences_are_told_of_four_arms():
    """They are what the statement compares."""
    statement = Statement(
        "By hand", "Q=K", "QKV", "loss", high=0.1, second_left="K=V", second_right="QKV"
    )
    told = values_of(claim_of(statement), Q_K=0.5, K_V=0.25, QKV=1.0)
    assert told == "0.50 against 0.75 nats, 17 seeds"


def test_the_main_statement_is_the_first_that_decides():
    """So what is found agrees with the verdict."""
    claim = claim_of(no_worse("K=V", "QKV"), no_worse("Q=K", "QKV"))
    evidence = made_up(claim, MadeUp(lambda _: None, QKV=1.0, K_V=1.0, Q_K=0.5))
    assert evidence.judgement.verdict == "did not hold"
    assert main_statement(evidence, "did not hold")[0] is claim.statements[1]
    assert main_statement(evidence, "undecided")[0] is claim.statements[0]
    assert main_found(evidence, "did not hold") == (
        "Q=K is worse than QKV by more than 5 points (50% against 100%, 17 seeds)."
    )


def test_what_only_stands_alone_is_called_probable():
    """With all other claims, the verdict may be stricter."""
    evidence = made_up(claim_of(worse("Q=K", "QKV")), MadeUp(lambda _: None, QKV=1.0, Q_K=0.5))
    alone, together = (main_found(evidence, verdict) for verdict in ("held", "undecided"))
    assert together == f"Probably: {alone}"
    open_ = made_up(claim_of(worse("Q=K", "QKV")), MadeUp(lambda _: None, QKV=np.nan))
    assert main_found(open_, "undecided").startswith("The seeds do not decide this: Q=K is worse")
