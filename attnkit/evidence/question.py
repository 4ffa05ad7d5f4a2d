"""A question of an online discussion, or our own, and its answer made from evidence.

Verdicts on claims choose the words and records fill in the numbers, so new evidence gives new
answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnkit.claims import Verdict
from attnkit.evidence.record import Evidence
from attnkit.evidence.sentences import Numbers, Sentence, conclusion_of
from attnkit.foundation.display import Displayed


@dataclass(frozen=True, repr=False)
class Question(Displayed):
    """A question and its answer made from evidence; both are shown in a notebook.

    Attributes:
        id: Identifier in links.
        title: The question in a few words.
        asked: Quotation from the thread; empty if the question is our own.
        source: Citation of the thread; empty if the question is our own.
        conclusion: Clauses of the short answer, see `conclusion_of`.
        reason: Reason for the answer, in one or two sentences.
        numbers: Numbers behind the answer.
        claims: Ids of the claims that the answer rests on. The page plots the first one, and
            visitors can run it again.
        guess: Question about the first claim, for a visitor who has not seen the answer.
        guesses: Possible answer to `guess` → the verdict that it predicts.
        sweep: Name of the shipped sweep that says more; empty if there is none.
    """

    id: str
    title: str
    asked: str
    source: str
    conclusion: tuple[Sentence, ...]
    reason: tuple[Sentence, ...]
    numbers: tuple[Numbers, ...]
    claims: tuple[str, ...]
    guess: str
    guesses: Mapping[str, Verdict]
    sweep: str = ""

    def __repr__(self) -> str:
        """Return a short description; the texts for all verdicts would fill a screen."""
        return f"<Question: {self.title}>"


def short_answer(
    question: Question, records: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]
) -> str:
    """Return the answer in one sentence; empty if its claims have no evidence.

    Args:
        question: The question.
        records: Id of the claim → its evidence.
        verdicts: Id of the claim → its verdict.
    """
    return conclusion_of(question.conclusion, records, verdicts)


def reason_sentences(
    question: Question, records: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]
) -> list[str]:
    """Return the reason for an answer, as far as its claims have evidence.

    Arguments are those of `short_answer`.
    """
    return [
        sentence.in_words(records[sentence.claim], verdicts[sentence.claim])
        for sentence in question.reason
        if sentence.claim in records
    ]


def number_sentences(question: Question, records: Mapping[str, Evidence]) -> list[str]:
    """Return the numbers behind an answer, as far as its claims have evidence."""
    return [
        numbers.in_words(records[numbers.claim])
        for numbers in question.numbers
        if numbers.claim in records
    ]
