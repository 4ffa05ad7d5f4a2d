"""Sentences that follow from evidence: chosen by a verdict, or filled with numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnkit.claims import Verdict
from attnkit.evidence.record import Evidence
from attnkit.training.summary import percent


@dataclass(frozen=True)
class Sentence:
    """A sentence without numbers, with one text per verdict.

    Attributes:
        claim: Id of the claim whose verdict selects the text.
        held: Text if the claim held.
        failed: Text if the claim did not hold.
        undecided: Text if the claim is undecided.
        statement: Index of the statement whose verdict, read alone, selects the text; None for the
            verdict on the claim.
    """

    claim: str
    held: str
    failed: str
    undecided: str
    statement: int | None = None

    def text(self, verdict: Verdict) -> str:
        """Return the text for a verdict."""
        texts: dict[Verdict, str] = {
            "held": self.held,
            "did not hold": self.failed,
            "undecided": self.undecided,
        }
        return texts[verdict]

    def verdict_alone(self, evidence: Evidence) -> Verdict:
        """Return the verdict on the claim, or on its statement, if the evidence is read alone."""
        if self.statement is None:
            return evidence.judgement.verdict
        return evidence.findings[self.statement].verdict

    def in_words(self, evidence: Evidence, verdict: Verdict) -> str:
        """Return the text for evidence; a statement counts if the verdict on the claim agrees.

        Args:
            evidence: Evidence for the claim.
            verdict: Verdict on the claim, read together with all others.
        """
        agrees = self.verdict_alone(evidence) == verdict
        return self.text(verdict if agrees or self.statement is None else "undecided")


def conclusion_of(
    clauses: Sequence[Sentence], records: Mapping[str, Evidence], verdicts: Mapping[str, Verdict]
) -> str:
    """Return a short answer in one sentence, joined from the clauses whose claims have evidence.

    A clause begins with "yes", "no" or "not decided". It is called probable if it stands when its
    claim is read alone, and not when all claims are read together. If one clause says yes and
    another one no, the answer begins with "It depends". It is empty if no claim has evidence.

    Args:
        clauses: Parts of the answer, without a full stop.
        records: Id of the claim → its evidence.
        verdicts: Id of the claim → its verdict.
    """
    texts, answers = [], set()
    for clause in clauses:
        if clause.claim not in records:
            continue
        alone = clause.verdict_alone(records[clause.claim])
        text = clause.text(alone)
        answers.add(text.split()[0].strip(",:"))
        if alone not in ("undecided", verdicts[clause.claim]):
            text = "probably " + re.sub(r"^no\b", "not", text)
        texts.append(text)
    if {"yes", "no"} <= answers:
        return f"It depends: {', '.join(texts)}."
    joined = ", and ".join(texts)
    return f"{joined[0].upper()}{joined[1:]}." if joined else ""


@dataclass(frozen=True)
class Numbers:
    """A text with numbers of the evidence for a claim.

    In the template `{arm}` is the mean accuracy of an arm in percent, `{arm:loss}` its mean of
    another measure, and `{arm:solved}` the number of its runs that have solved the task, all after
    the base steps. `{arm:@8}`, `{arm:loss@8}` and `{arm:solved@8}` are read at 8 times the base
    steps. `{arm:steps}` is the median number of steps to solve the task, and `{arm:rises}` says
    whether accuracy still rises at the last step.

    Attributes:
        claim: Id of the claim.
        template: The text.
    """

    claim: str
    template: str

    def in_words(self, evidence: Evidence) -> str:
        """Return the text with the numbers of the evidence."""
        return self.template.format_map(_Arms(evidence))


class _Arms(dict[str, "_Number"]):
    """Values that templates can name: arms, whether the evidence has them or not."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__()
        self._evidence = evidence

    def __missing__(self, name: str) -> _Number:
        return _Number(self._evidence, name)


@dataclass(frozen=True)
class _Number:
    """Results of an arm, formatted as `Numbers` describes."""

    evidence: Evidence
    arm: str

    def __format__(self, spec: str) -> str:
        if self.arm not in self.evidence.scores:  # the quick form leaves some arms out
            return "not run"
        if spec == "rises":
            rises = self.evidence.still_rises(self.arm)
            return "and it still rises" if rises else "where it no longer rises"
        if spec == "steps":
            doublings = self.evidence.scores[self.arm]["steps_to_solve"][-1]
            median = np.median(np.where(np.isnan(doublings), np.inf, doublings))
            return f"{2**median:,.0f}" if np.isfinite(median) else "more than we gave"
        name, _, times = spec.partition("@")
        measure, at = name or "accuracy", int(times or 1)
        if measure == "solved":
            n_solved, n = self.evidence.n_solved(self.arm, at)
            return f"{n_solved} of {n}"
        mean = self.evidence.mean(self.arm, measure, at)
        if np.isnan(mean):
            return "nothing (diverged)"
        return f"{mean:.2f}" if measure in ("loss", "asymmetry") else percent(mean)
