"""The five threads that ask why the projections differ, each answered by claims.

An answer's sentences hang on verdicts: each says one thing if its claim is supported, another if it
is contradicted, and that it is not known if it is inconclusive. Numbers in them are those of the
evidence, so new evidence writes new answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnkit.claims import Verdict
from attnkit.evidence.record import Evidence
from attnkit.summary import percent


@dataclass(frozen=True)
class Sentence:
    """A sentence of an answer.

    Attributes:
        claim: whose verdict decides.
        supported, contradicted, inconclusive: what is said then. `{arm}` is its mean accuracy in
            percent, `{arm:loss}` its mean of another measure.
    """

    claim: str
    supported: str
    contradicted: str
    inconclusive: str

    def told(self, evidence: Evidence, verdict: Verdict) -> str:
        """The sentence with its numbers."""
        template: str = getattr(self, verdict)
        return template.format_map(_Numbers(evidence))


@dataclass(frozen=True)
class Question:
    """One thread.

    Attributes:
        id: as in links. title: a few words. asked: in the asker's words. source: where.
        answer: three sentences.
        claims: those that it rests on; the first is the one that is drawn and run again.
        guess: what is asked before it is run. guesses: what can be answered; `right` is the place
            of the one that the shipped evidence bears out.
    """

    id: str
    title: str
    asked: str
    source: str
    answer: tuple[Sentence, ...]
    claims: tuple[str, ...]
    guess: str
    guesses: tuple[str, ...]


class _Numbers(dict[str, "_Number"]):
    """What templates may name: every arm of the evidence."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__({name: _Number(evidence, name) for name in evidence.scores})


@dataclass(frozen=True)
class _Number:
    evidence: Evidence
    arm: str

    def __format__(self, measure: str) -> str:
        mean = self.evidence.mean(self.arm, measure or "accuracy")
        if np.isnan(mean):
            return "nothing (diverged)"
        return f"{mean:.2f}" if measure in ("loss", "asymmetry") else percent(mean)


def answered(
    question: Question, shipped: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]
) -> list[str]:
    """The sentences of an answer, of those whose claims have evidence."""
    return [
        one.told(shipped[one.claim], verdicts[one.claim])
        for one in question.answer
        if one.claim in shipped
    ]


QUESTIONS: tuple[Question, ...] = ()
