"""The five threads: a short answer, its reason and numbers, for every verdict."""

import re
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import pytest
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import arm
from attnkit.claims.statements import no_worse, worse
from attnkit.evidence.gathering import gather
from attnkit.evidence.question import (
    number_sentences,
    reason_sentences,
    short_answer,
)
from attnkit.evidence.questions import QUESTIONS
from attnkit.evidence.record import load_shipped, verdicts_of
from attnkit.evidence.sentences import Numbers, Sentence, conclusion_of

VERDICTS = get_args(Verdict)
ANSWERS = ("Yes", "No", "It depends", "Not decided", "Probably yes", "Probably not")
"""Words with which a short answer may begin."""

MOST_WORDS = 20
"""Words of a short answer."""


@pytest.fixture(scope="module")
def evidence():
    """Return claim's id → made-up evidence with the arms and measures of gathered evidence."""
    named = {name for question in QUESTIONS.values() for name in question.claims}
    found = gather(
        [CLAIMS[name] for name in named], MadeUp(QKV=1.0, K_V=0.5)
    )  # so that long arms confirm it
    return {one.claim.id: one for one in found}


def well_formed(sentence):
    """Whether it reads as one: nothing unfilled, nothing missing."""
    assert not re.search(r"[{}]|\bnan\b|  ", sentence), sentence
    assert sentence[0].isupper()
    assert sentence.endswith((".", "?"))
    return True


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda question: question.id)
def test_a_question_can_be_asked_guessed_and_answered(question, evidence):
    """It has a title, a source and a guess for each verdict, and names its claims once each.

    What is drawn first is part of the answer. Every clause and reason has a text for every verdict:
    a clause begins with its answer, a reason is a whole sentence, and neither has numbers. The
    short answer begins with its verdict word, whatever the verdicts are. Numbers are those of the
    evidence, each claim's told once. It is told as far as there is evidence, in its order.
    """
    assert re.fullmatch("[a-z_]+", question.id)
    for text in (question.title, question.asked, question.source, question.guess):
        assert text == text.strip() != ""
    assert question.title.endswith("?")
    assert question.guess.endswith("?")
    assert sorted(question.guesses.values()) == sorted(VERDICTS)
    assert all(question.guesses)

    assert set(question.claims) <= set(CLAIMS)
    assert len(set(question.claims)) == len(question.claims)
    parts = (*question.conclusion, *question.reason, *question.numbers)
    assert {part.claim for part in parts} <= set(question.claims)
    assert question.claims[0] in {part.claim for part in question.conclusion}
    assert question.claims[0] in {part.claim for part in question.numbers}

    for verdict in VERDICTS:
        for clause in question.conclusion:
            text = clause.text(verdict)
            assert re.match(r"(yes|no|not decided)\b", text)
            assert text.startswith("not decided") == (verdict == "undecided")
            assert not re.search(r"\d|\.$", text)
        for sentence in question.reason:
            assert well_formed(sentence.text(verdict))
            assert not re.search(r"\d", sentence.text(verdict))
    for verdicts in product(VERDICTS, repeat=len(question.conclusion)):
        told = said_by(question, verdicts)
        assert well_formed(told)
        assert told.startswith(ANSWERS)
        assert len(told.split()) <= MOST_WORDS + 2

    whole = number_sentences(question, evidence)
    assert len(whole) == len({numbers.claim for numbers in question.numbers}) in (3, 4)
    for text in whole:
        assert well_formed(text)
        assert re.search(r"\d", text)
        assert "not run" not in text
    assert all("{" in numbers.template for numbers in question.numbers)
    missing = question.numbers[0].claim
    some = {name: one for name, one in evidence.items() if name != missing}
    assert number_sentences(question, some) == whole[1:]
    reasons = reason_sentences(question, evidence, dict.fromkeys(evidence, "undecided"))
    assert len(reasons) == len(question.reason)
    assert reason_sentences(question, {}, {}) == number_sentences(question, {}) == []
    assert short_answer(question, {}, {}) == ""


def said_by(question, verdicts):
    """Return the clauses of a question with these verdicts, joined as the page joins them."""
    texts = [c.text(v) for c, v in zip(question.conclusion, verdicts, strict=True)]
    claims = [
        Sentence(f"claim_{i}", held=text, failed=text, undecided=text)
        for i, text in enumerate(texts)
    ]
    records = {one.claim: made_up(small_claim(one.claim)) for one in claims}
    read = {name: record.judgement.verdict for name, record in records.items()}
    return conclusion_of(claims, records, read)


BY_SHARING = small_claim(
    arms=(arm("QKV", **TINY), arm("Q=K", **TINY), arm("K=V", **TINY)),
    statements=(worse("Q=K", "QKV"), no_worse("K=V", "QKV")),
    n_seeds=40,
)
"""Q=K falls behind, and K=V does not."""


def clause(statement, subject):
    """Return a clause on one of its statements."""
    texts = (f"{answer} for {subject}" for answer in ("yes", "no", "not decided"))
    return Sentence(BY_SHARING.id, *texts, statement)


@pytest.mark.parametrize(
    ("accuracy", "verdict", "told"),
    [
        ({"Q_K": 0.5, "K_V": 1.0}, "held", "Yes for a, and yes for b."),
        ({"Q_K": 0.5, "K_V": 0.5}, "did not hold", "It depends: probably yes for a, no for b."),
        ({"Q_K": 1.0, "K_V": 0.5}, "did not hold", "No for a, and no for b."),
        ({"Q_K": 0.5, "K_V": 1.0}, "undecided", "Probably yes for a, and probably yes for b."),
        ({"Q_K": 1.0, "K_V": 0.5}, "undecided", "Probably not for a, and probably not for b."),
        ({"QKV": np.nan}, "undecided", "Not decided for a, and not decided for b."),
    ],
)
def test_an_answer_follows_from_statements_and_the_verdict(accuracy, verdict, told):
    """It is only probable where the claim, read with all others, does not have that verdict."""
    record = made_up(BY_SHARING, MadeUp(lambda _: None, **{"QKV": 1.0, **accuracy}))
    clauses = [clause(0, "a"), clause(1, "b")]
    known = {BY_SHARING.id: record}
    assert conclusion_of(clauses, known, {BY_SHARING.id: verdict}) == told
    assert conclusion_of(clauses, {}, {}) == ""


def test_a_reason_is_given_for_a_statement_only_if_its_claim_agrees():
    """Otherwise it says that it is open."""
    record = made_up(BY_SHARING, MadeUp(lambda _: None, QKV=1.0, Q_K=0.5, K_V=1.0))
    whole, part = (Sentence("small", "Yes.", "No.", "Open.", at) for at in (None, 0))
    assert [one.in_words(record, "held") for one in (whole, part)] == ["Yes.", "Yes."]
    assert [one.in_words(record, "undecided") for one in (whole, part)] == ["Open.", "Open."]
    assert whole.in_words(record, "did not hold") == "No."
    assert part.in_words(record, "did not hold") == "Open."


def test_numbers_are_means_over_seeds(evidence):
    """Accuracies in whole percent, losses and asymmetries as they are."""
    record = evidence["symmetry_follows"]
    one = {
        "accuracy": np.array([[0.5, 0.25, 1.0, 0.25], [0.96, 0.95, 0.25, 0.64]]),
        "asymmetry": np.array([[0.25, 0.5]]),
        "loss": np.array([[1.25, 0.75], [0.5, 0.25]]),
    }
    record = replace(record, scores={"QKV, married": one})
    template = "{QKV, married} and {QKV, married:asymmetry} and {QKV, married:loss}"
    assert Numbers("symmetry_follows", template).in_words(record) == "50% and 0.38 and 1.00"
    nearly = {"QKV, married": {"accuracy": np.array([[0.999, 1.0]])}}
    assert Numbers("", "{QKV, married}").in_words(replace(record, scores=nearly)) == "99%"


def test_numbers_are_read_at_multiples_of_the_steps(evidence):
    """Means, solved runs, and whether accuracy still rises at the last step."""
    accuracy = np.array([[0.1, 0.3], [0.2, 0.6], [0.96, 0.7], [1.0, 0.95]])
    record = replace(evidence["direction"], scores={"Q=K": {"accuracy": accuracy}})
    template = "{Q=K}, {Q=K:accuracy@2}, {Q=K:@4}, {Q=K:solved}, {Q=K:solved@4}, {Q=K:rises}"
    numbers = Numbers("direction", template)
    assert numbers.in_words(record) == "20%, 40%, 83%, 0 of 2, 1 of 2, and it still rises"
    flat = replace(record, scores={"Q=K": {"accuracy": accuracy[[0, 3, 3, 3]]}})
    assert numbers.in_words(flat).endswith("where it no longer rises")


def test_runs_that_diverged_are_told_in_words(evidence):
    """No text has a number that is none."""
    told = []
    for question in QUESTIONS.values():
        lost = {
            name: replace(
                record,
                scores={
                    arm: {measure: np.full_like(values, np.nan) for measure, values in own.items()}
                    for arm, own in record.scores.items()
                },
            )
            for name, record in evidence.items()
        }
        told += number_sentences(question, lost)
    assert all(map(well_formed, told))
    assert any("nothing (diverged)" in text for text in told)
    assert any("more than we gave" in text for text in told)


def test_arms_that_the_quick_form_leaves_out_are_told_as_not_run():
    """Evidence of the quick form has only arms that are judged."""
    for name in {name for question in QUESTIONS.values() for name in question.claims}:
        quick = {name: made_up(CLAIMS[name], MadeUp(lambda _: None), quick=True)}
        for question in QUESTIONS.values():
            assert all(map(well_formed, number_sentences(question, quick)))
            assert reason_sentences(question, quick, verdicts_of(quick.values())) is not None


def test_shipped_answers_read_well():
    """As far as evidence is shipped; what does not hold has a reason, or an honest “unknown”."""
    shipped = load_shipped()
    verdicts = verdicts_of(shipped.values())
    for question in QUESTIONS.values():
        answer = short_answer(question, shipped, verdicts)
        assert not shipped or (well_formed(answer) and answer.startswith(ANSWERS))
        assert len(answer.split()) <= MOST_WORDS
        texts = reason_sentences(question, shipped, verdicts) + number_sentences(question, shipped)
        assert all(map(well_formed, texts))
    failed = [name for name, verdict in verdicts.items() if verdict == "did not hold"]
    assert [name for name in failed if not CLAIMS[name].reason] == []
