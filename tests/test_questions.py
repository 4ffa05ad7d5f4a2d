"""The five threads: three sentences each, for every verdict, with the numbers of the evidence."""

import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from small_claims import MadeUp

from attnkit.claims import CLAIMS, Verdict
from attnkit.evidence.gathering import gather
from attnkit.evidence.questions import QUESTIONS, answer_sentences
from attnkit.evidence.record import load_shipped, verdicts_of

VERDICTS = get_args(Verdict)
EVERY = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
SENTENCES = [
    pytest.param(sentence, verdict, id=f"{question.id} {sentence.claim} {verdict}")
    for question in QUESTIONS
    for sentence in question.answer
    for verdict in VERDICTS
]


@pytest.fixture(scope="module")
def evidence():
    """Return claim's id → made-up evidence with the arms and measures of gathered evidence."""
    named = {name for question in QUESTIONS for name in question.claims}
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


def test_there_are_five_questions():
    """Each with a name of its own, a title and a source."""
    assert len({question.id for question in QUESTIONS}) == 5
    for question in QUESTIONS:
        assert re.fullmatch("[a-z_]+", question.id)
        for text in (question.title, question.asked, question.source, question.guess):
            assert text == text.strip() != ""
        assert question.title.endswith("?")
        assert question.guess.endswith("?")


@EVERY
def test_a_question_is_answered_in_three_sentences(question):
    """Each of which rests on another claim."""
    assert len(question.answer) == 3
    assert len({sentence.claim for sentence in question.answer}) == 3


@EVERY
def test_a_question_names_the_claims_it_rests_on(question):
    """Once each; what is drawn first is part of the answer."""
    assert set(question.claims) <= set(CLAIMS)
    assert len(set(question.claims)) == len(question.claims)
    spoken_of = {sentence.claim for sentence in question.answer}
    assert spoken_of <= set(question.claims)
    assert question.claims[0] in spoken_of


@EVERY
def test_every_outcome_can_be_guessed(question):
    """One guess for each verdict."""
    assert sorted(question.guesses.values()) == sorted(VERDICTS)
    assert all(question.guesses)


@pytest.mark.parametrize(("sentence", "verdict"), SENTENCES)
def test_every_sentence_can_be_told(sentence, verdict, evidence):
    """Whatever comes out, with a number of the evidence in it."""
    told = sentence.in_words(evidence[sentence.claim], verdict)
    assert well_formed(told)
    assert re.search(r"\d", told)
    assert re.search(r"\{[^}]+\}", sentence.template(verdict))


def test_numbers_are_means_over_seeds(evidence):
    """Accuracies in percent, losses and asymmetries as they are."""
    record = evidence["symmetry_follows"]
    one = {
        "accuracy": np.array([[0.5, 0.25, 1.0, 0.25], [0.96, 0.95, 0.25, 0.64]]),
        "asymmetry": np.array([[0.25, 0.5]]),
        "loss": np.array([[1.25, 0.75], [0.5, 0.25]]),
    }
    record = replace(record, scores={"QKV, married": one})
    (first, *_) = QUESTIONS[0].answer
    template = "{QKV, married} and {QKV, married:asymmetry} and {QKV, married:loss}"
    sentence = replace(first, claim="symmetry_follows", held=template)
    assert sentence.in_words(record, "held") == "50% and 0.38 and 1.00"


def test_numbers_are_read_at_multiples_of_the_steps(evidence):
    """Means, solved runs, and whether accuracy still rises at the last step."""
    accuracy = np.array([[0.1, 0.3], [0.2, 0.6], [0.96, 0.7], [1.0, 0.95]])
    record = replace(evidence["direction"], scores={"Q=K": {"accuracy": accuracy}})
    template = "{Q=K}, {Q=K:accuracy@2}, {Q=K:@4}, {Q=K:solved}, {Q=K:solved@4}, {Q=K:rises}"
    (first, *_) = QUESTIONS[0].answer
    sentence = replace(first, claim="direction", undecided=template)
    told = sentence.in_words(record, "undecided")
    assert told == "20%, 40%, 83%, 0 of 2, 1 of 2, and it still rises"
    flat = replace(record, scores={"Q=K": {"accuracy": accuracy[[0, 3, 3, 3]]}})
    assert sentence.in_words(flat, "undecided").endswith("where it no longer rises")


def test_runs_that_diverged_are_told_in_words(evidence):
    """No sentence has a number that is none."""
    sentences = []
    for question in QUESTIONS:
        for sentence in question.answer:
            record = evidence[sentence.claim]
            lost = {
                name: {measure: np.full_like(values, np.nan) for measure, values in own.items()}
                for name, own in record.scores.items()
            }
            sentences.append(sentence.in_words(replace(record, scores=lost), "undecided"))
            assert well_formed(sentences[-1])
    assert any("nothing (diverged)" in told for told in sentences)
    assert any("more steps than we gave" in told for told in sentences)


@EVERY
def test_an_answer_is_told_as_far_as_there_is_evidence(question, evidence):
    """In its order; verdicts decide what each sentence says."""
    verdicts = dict.fromkeys(evidence, "held")
    whole = answer_sentences(question, evidence, verdicts)
    assert len(whole) == 3
    some = {name: one for name, one in evidence.items() if name != question.answer[0].claim}
    assert answer_sentences(question, some, verdicts) == whole[1:]
    assert answer_sentences(question, {}, {}) == []
    other = {**verdicts, question.answer[1].claim: "did not hold"}
    changed = answer_sentences(question, evidence, other)
    assert (changed[0], changed[2]) == (whole[0], whole[2])


@EVERY
def test_the_shipped_answer_reads_well(question):
    """As far as evidence is shipped."""
    shipped = load_shipped()
    assert all(map(well_formed, answer_sentences(question, shipped, verdicts_of(shipped.values()))))


def test_what_is_shipped_as_not_holding_has_a_reason():
    """Or an honest “unknown”."""
    shipped = load_shipped()
    verdicts = verdicts_of(shipped.values())
    without = [
        name
        for name, verdict in verdicts.items()
        if verdict == "did not hold" and not CLAIMS[name].reason
    ]
    assert without == []
