"""The questions: a short answer, its reason and numbers, for every verdict."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit.claims import CLAIMS, Verdict
from attnkit.claims.base import arm
from attnkit.claims.statements import no_worse, worse
from attnkit.evidence.listing import readable, to_markdown
from attnkit.evidence.question import Answer, Numbers, Reply, Topic
from attnkit.evidence.questions import QUESTIONS, WHY, answers_in_markdown
from attnkit.evidence.record import Curve, Records, load_shipped
from attnkit.figures.evidence_report import to_html
from attnkit.foundation.language import Message

VERDICTS = tuple(Verdict)
ANSWERS = ("Yes", "No", "It depends", "Not decided", "Probably yes", "Probably not")
"""Words with which a short answer may begin."""

MOST_WORDS = 20
"""Words of a short answer."""


def well_formed(*sentences):
    """Whether they read as sentences: nothing unfilled, nothing missing."""
    for sentence in sentences:
        assert not re.search(r"[{}]|\bnan\b|  ", sentence), sentence
        assert sentence[0].isupper()
        assert sentence.endswith((".", "?"))
    return True


def marked(*texts):
    """Whether all texts can be translated."""
    return all(isinstance(text, Message) for text in texts)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda question: question.id)
def test_a_question_can_be_asked_guessed_and_answered(question):
    """Its answer begins with its verdict word; its numbers are told as far as they are known."""
    evidence = load_shipped()
    texts = (question.title, question.asked, question.source, question.guess)
    assert marked(*texts, *question.guesses)
    assert question.title.endswith("?")
    assert question.guess.endswith("?")
    assert sorted(question.guesses.values()) == sorted(VERDICTS)
    parts = (*question.conclusion, *question.reason, *question.numbers)
    assert {part.claim for part in parts} <= set(question.claims) <= set(CLAIMS)
    assert len(set(question.claims)) == len(question.claims)
    assert question.claims[0] in {part.claim for part in question.conclusion}
    assert question.claims[0] in {part.claim for part in question.numbers}
    for verdict in VERDICTS:
        for reply in question.conclusion:
            text = reply.answer(verdict, verdict)
            assert re.match(r"(Yes|No|Not decided)\b", text)
            assert text.startswith("Not decided") == (verdict is Verdict.UNDECIDED)
            probable = reply.answer(verdict, Verdict.UNDECIDED)
            yes_or_no = "Probably yes" if text.startswith("Yes") else "Probably not"
            assert probable.startswith("Not decided" if "Not decided" in text else yes_or_no)
        texts = [sentence.text(verdict) for sentence in (*question.conclusion, *question.reason)]
        assert well_formed(*texts)
        assert marked(*texts)
        assert not re.search(r"\d", " ".join(texts))
    for verdicts in product(VERDICTS, repeat=len(question.conclusion)):
        texts = [one.text(v) for one, v in zip(question.conclusion, verdicts, strict=True)]
        depends = {text.split()[0].strip(",:") for text in texts} >= {"Yes", "No"}
        assert len(" ".join(texts).split()) <= MOST_WORDS + 2 - 2 * depends

    answer = Answer(question, evidence)
    assert answer.conclusion.startswith(ANSWERS)
    assert len(answer.conclusion.split()) <= MOST_WORDS
    whole = answer.numbers
    assert len(whole) == len({numbers.claim for numbers in question.numbers}) in (3, 4)
    assert well_formed(*whole, answer.conclusion, answer.reason)
    assert all(re.search(r"\d", text) and "not run" not in text for text in whole)
    assert marked(*(numbers.template for numbers in question.numbers))
    missing = question.numbers[0].claim
    some = Answer(question, Records({n: one for n, one in evidence.items() if n != missing}))
    assert some.numbers == whole[1:]
    assert missing in some.missing
    nothing = Answer(question, Records())
    assert (nothing.reason, nothing.conclusion, nothing.numbers) == ("", "", [])


def test_why_there_are_three_matrices_has_a_sentence_for_every_verdict():
    """Answers that are only probable say so."""
    for reply in WHY.conclusion:
        texts = [reply.answer(*pair) for pair in product(VERDICTS, repeat=2)]
        assert len(set(texts)) == 5
        assert well_formed(*texts)
        assert marked(*texts)
        assert ["probably" in text for text in texts].count(True) == 4


BY_SHARING = small_claim(
    arms=(arm("QKV", **TINY), arm("Q=K", **TINY), arm("K=V", **TINY)),
    statements=(worse("Q=K", "QKV"), no_worse("K=V", "QKV")),
    n_seeds=40,
)
"""Q=K falls behind, and K=V does not."""


@pytest.mark.parametrize(
    ("accuracy", "n_together", "told"),
    [
        ({"Q_K": 0.5, "K_V": 1.0}, 1, "Yes for a. Yes for b."),
        ({"Q_K": 0.5, "K_V": 0.5}, 1, "It depends. Yes for a. No for b."),
        ({"Q_K": 1.0, "K_V": 0.5}, 1, "No for a. No for b."),
        ({"Q_K": 0.5, "K_V": 1.0}, 10_000, "Yes for a. Probably yes for b."),
        ({"Q_K": 1.0, "K_V": 0.5}, 10_000, "Probably not for a. No for b."),
        ({"QKV": np.nan}, 1, "Not decided for a. Not decided for b."),
    ],
)
def test_an_answer_follows_from_statements_and_the_number_of_claims(accuracy, n_together, told):
    """A statement is only probable where it does not stand at Holm's strictest level."""
    record = made_up(BY_SHARING, MadeUp(**{"QKV": 1.0, **accuracy}))
    begin = ("Yes", "Probably yes", "No", "Probably not", "Not decided")
    replies = [
        Topic(*(f"{one} for {what}." for one in begin)).reply(BY_SHARING.id, "yes", at)
        for at, what in enumerate("ab")
    ]
    others = {f"other {n}": record for n in range(1, n_together)}
    records = Records({BY_SHARING.id: record} | others)
    question = replace(QUESTIONS["value"], conclusion=tuple(replies))
    assert Answer(question, records).conclusion == told
    texts = dict(zip(Verdict, ("Yes.", "No.", "Open."), strict=True))
    for at, clause in ((None, record.judgement), (0, record.findings[0])):
        sentence = Reply(BY_SHARING.id, *texts.values(), at)
        assert sentence.verdict_alone(record) is clause.verdict
        records.verdicts = {BY_SHARING.id: Verdict.UNDECIDED}
        if at is None:
            assert sentence.text(sentence.verdict_together(records)) == "Open."


def test_numbers_are_means_over_seeds_at_multiples_of_the_steps():
    """In whole percent, with the solved runs where some are; losses as they are."""
    own = {
        "accuracy": np.array([[0.1, 0.3], [0.2, 0.6], [0.96, 0.7], [1.0, 0.95]]),
        "asymmetry": np.array([[0.25, 0.5]]),
        "loss": np.array([[1.25, 0.75], [0.5, 0.25]]),
    }
    steps = np.array([150.0, 300.0, 450.0])
    accuracy = np.array([[0.1, 0.2], [0.96, 0.2], [1.0, 1.0]])
    record = replace(
        load_shipped()["direction"],
        scores={"Q=K": own, "QKV": own},
        curves={"Q=K": Curve.of(steps, accuracy, "accuracy")},
    )

    def told(template, **changes):
        return Numbers("direction", template).in_words(replace(record, **changes))

    for template, words in {
        "{Q=K} and {Q=K:asymmetry} and {Q=K:loss}": "20% and 0.38 and 1.00",
        "{Q=K:accuracy@2}, {Q=K:loss@2}": "40%, 0.38",
        "{Q=K:@end}, {Q=K:solved@end}, {Q=K:loss@end}": "98%, 2 of 2, 0.38",
        "{Q=K:after}, {Q=K:after@2}, {Q=K:after@8}, {Q=K:after@end}": "600, 1,200, 4,800, 4,800",
        "{Q=K:half}": "300",
        "{Q=K:solved}, {Q=K:solved@4}": "0 of 2, 1 of 2",
        "{K=V}": "not run",
    }.items():
        assert told(template) == words
    assert re.findall(r"\d+%?", told("{Q=K:@4}")) == ["83%", "1", "2"]
    assert "+0.0 points" in told("{#1}")
    flat = {"Q=K": {"accuracy": own["accuracy"][[0, 3, 3, 3]]}}
    rises = [told("{Q=K:rises}"), told("{Q=K:rises}", scores=flat), told("{K=V:rises}")]
    assert ["still" in one for one in rises] == [True, False, False]
    assert len(set(rises)) == 3
    never = {"Q=K": Curve.of(steps, np.zeros((3, 2)), "accuracy")}
    assert told("{Q=K:half}", curves=never).endswith(" 450")
    assert told("{Q=K}", scores={"Q=K": {"accuracy": np.array([[0.999, 1.0]])}}) == "99%"


def test_what_diverged_was_not_run_or_not_tested_is_told_in_words():
    """No text has a number that is none; the quick form has only arms that are judged."""
    lost = Records.of(
        replace(
            record,
            scores={
                arm: {measure: np.full_like(values, np.nan) for measure, values in own.items()}
                for arm, own in record.scores.items()
            },
        )
        for record in load_shipped().values()
    )
    bench, shipped = MadeUp(), load_shipped()
    planned = Records.of(
        made_up(CLAIMS[name], bench, quick=True, records=shipped) for name in shipped
    )
    assert any(len(one.own_findings) < len(one.claim.statements) for one in planned.values())
    for records, parts in (
        (lost, ("(diverged)", "more than we gave")),
        (planned, ("not run",)),
    ):
        answers = [Answer(question, records) for question in QUESTIONS.values()]
        told = [text for answer in answers for text in answer.numbers]
        assert well_formed(*told, *filter(None, (answer.reason for answer in answers)))
        assert all(any(part in text for text in told) for part in parts)
    assert readable(planned).startswith("claim ")
    assert "Quick form" in to_html(planned)
    assert all([to_markdown(planned), answers_in_markdown(planned), planned.to_json()])


def test_what_does_not_hold_has_a_reason_or_an_honest_unknown():
    """As far as evidence is shipped."""
    failed = [name for name, v in load_shipped().verdicts.items() if v is Verdict.FAILED]
    assert [name for name in failed if not CLAIMS[name].reason] == []
