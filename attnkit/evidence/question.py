"""A question of an online discussion, or our own, and its answer made from evidence.

Verdicts on claims choose the words and records fill in the numbers, so new evidence gives new
answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnkit.claims import Verdict
from attnkit.claims.base import LONGEST
from attnkit.evidence.record import Evidence, Records
from attnkit.evidence.verdict import LEVEL
from attnkit.evidence.words import effect_in_words
from attnkit.foundation.display import Displayed
from attnkit.foundation.words import capitalised
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
        texts = {
            Verdict.HELD: self.held,
            Verdict.FAILED: self.failed,
            Verdict.UNDECIDED: self.undecided,
        }
        return texts[verdict]

    def verdict_alone(self, evidence: Evidence) -> Verdict:
        """Return the verdict on the claim, or on its statement, if the evidence is read alone."""
        if self.statement is None:
            return evidence.judgement.verdict
        return evidence.findings[self.statement].verdict

    def verdict_together(self, records: Records) -> Verdict:
        """Return the verdict if all claims are read together.

        A statement stands if it does so at Holm's strictest level, whatever becomes of its claim.
        """
        if self.statement is None:
            return records.verdicts[self.claim]
        record = records[self.claim]
        finding = record.findings[self.statement]
        n_together = 1 if record.quick else records.n_together
        stands = min(finding.p_held, finding.p_not) <= (1 - LEVEL) / n_together
        return finding.verdict if stands else Verdict.UNDECIDED


@dataclass(frozen=True)
class Numbers:
    """A text with numbers of the evidence for a claim.

    In the template `{arm}` is the mean accuracy of an arm in percent, `{arm:loss}` its mean of
    another measure, and `{arm:solved}` the number of its runs that have solved the task, all after
    the base steps. `{arm:@8}`, `{arm:loss@8}` and `{arm:solved@8}` are read at 8 times the base
    steps, `{arm:@end}` and the like at the last step. `{arm:after}`, `{arm:after@8}` and
    `{arm:after@end}` are the numbers of these steps. `{arm:steps}` is the median number of steps to
    solve the task, `{arm:half}` that of the evaluation at which half of the runs have solved it,
    and `{arm:rises}` says whether accuracy still rises at the last step. `{arm+}` and the like are
    of the arm that is trained for longer, with the better one of its schedules. `{#1}` is the
    difference of the first statement with its interval.

    Attributes:
        claim: Id of the claim.
        template: The text.
    """

    claim: str
    template: str

    def in_words(self, evidence: Evidence) -> str:
        """Return the text with the numbers of the evidence."""

        def number(field: re.Match[str]) -> str:
            arm, _, form = field[1].partition(":")
            if arm.endswith("+"):
                arm = _longer(evidence, arm[:-1])
            if not arm.startswith("#"):
                return _number(evidence, arm, form)
            at = int(arm[1:]) - 1
            return effect_in_words(evidence.statements[at], evidence.findings[at]) or "unknown"

        return re.sub(r"\{([^}]*)\}", number, self.template)


def _longer(evidence: Evidence, name: str) -> str:
    """Return the name of the arm that is trained for longer; of several, that with the best mean.

    Empty if there is none.
    """
    short = evidence.claim.arm_of(name)
    longer = [
        one
        for one, arm in evidence.arms.items()
        if one in evidence.scores
        and (arm.variant, arm.settings) == (short.variant, short.settings)
        and arm.up_to > short.up_to
    ]
    means = {one: evidence.mean(one, at=LONGEST) for one in longer}
    return max(means, key=lambda one: float(np.nan_to_num(means[one])), default="")


def _number(evidence: Evidence, arm: str, form: str) -> str:
    """Return a result of an arm in words, see `Numbers`."""
    if arm not in evidence.scores:  # the quick form leaves some arms out
        return "not run"
    if form == "rises":
        return "and it still rises" if evidence.still_rises(arm) else "where it no longer rises"
    if form == "steps":
        doublings = evidence.scores[arm]["steps_to_solve"][-1]
        median = np.median(np.where(np.isnan(doublings), np.inf, doublings))
        return f"{2**median:,.0f}" if np.isfinite(median) else "more than we gave"
    if form == "half":
        curve = evidence.curves[arm]
        solved = curve.steps[curve.solved >= 0.5]
        return (
            f"{solved[0]:,.0f}" if len(solved) else f"more than {max(curve.steps, default=0):,.0f}"
        )
    name, _, times = form.partition("@")
    longest = 2 ** (len(evidence.scores[arm]["accuracy"]) - 1)
    measure, at = name or "accuracy", longest if times == "end" else int(times or 1)
    n_solved, n = evidence.n_solved(arm, at)
    if measure == "after":
        return f"{min(at, longest) * evidence.arms[arm].base_steps:,}"
    if measure == "solved":
        return f"{n_solved} of {n}"
    mean = evidence.mean(arm, measure, at)
    if np.isnan(mean):
        return "nothing (diverged)"
    if measure in ("loss", "asymmetry"):
        return f"{mean:.2f}"
    is_split = measure == "accuracy" and 0 < n_solved < n
    return percent(mean) + (f" ({n_solved} of {n} runs solve it)" if is_split else "")


@dataclass(frozen=True, repr=False)
class Question(Displayed):
    """A question and its answer made from evidence; both are shown in a notebook.

    Attributes:
        id: Identifier in links.
        title: The question in a few words.
        asked: Quotation from the thread; empty if the question is our own.
        source: Citation of the thread; empty if the question is our own.
        conclusion: Clauses of the short answer, without a full stop. Each begins with "yes", "no"
            or "not decided" in a question of others.
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


@dataclass(frozen=True)
class Answer:
    """The answer to a question, as far as its claims have evidence; texts are empty without any.

    Attributes:
        question: The question.
        records: Records of the claims that are read together.
    """

    question: Question
    records: Records

    @property
    def conclusion(self) -> str:
        """The answer in one sentence.

        A clause is called probable if it stands when its claim is read alone, and not when all
        claims are read together. If one clause says yes and another one no, the answer begins with
        "It depends".
        """
        texts, answers = [], set()
        for clause in self.question.conclusion:
            if clause.claim not in self.records:
                continue
            alone = clause.verdict_alone(self.records[clause.claim])
            text = clause.text(alone)
            answers.add(text.split()[0].strip(",:"))
            if alone not in (Verdict.UNDECIDED, clause.verdict_together(self.records)):
                text = "probably " + re.sub(r"^no\b", "not", text)
            texts.append(text)
        if {"yes", "no"} <= answers:
            return f"It depends: {', '.join(texts)}."
        return f"{capitalised(', and '.join(texts))}." if texts else ""

    @property
    def reason(self) -> str:
        """The reason for the answer."""
        return " ".join(
            sentence.text(sentence.verdict_together(self.records))
            for sentence in self.question.reason
            if sentence.claim in self.records
        )

    @property
    def numbers(self) -> list[str]:
        """The numbers behind the answer, in sentences."""
        return [
            numbers.in_words(self.records[numbers.claim])
            for numbers in self.question.numbers
            if numbers.claim in self.records
        ]

    @property
    def missing(self) -> list[str]:
        """Ids of the claims that the answer speaks of and that have no record."""
        question = self.question
        used = [sentence.claim for sentence in (*question.conclusion, *question.reason)]
        used += [numbers.claim for numbers in question.numbers]
        return [name for name in dict.fromkeys(used) if name not in self.records]

    @property
    def asked(self) -> str:
        """Quotation and source of the question; empty if the question is our own."""
        question = self.question
        return f"Asked: “{question.asked}” ({question.source})" if question.asked else ""


def guesses(held: str, failed: str) -> dict[str, Verdict]:
    """Return guess → the verdict that it predicts."""
    undecided = "These seeds will not tell"
    return {held: Verdict.HELD, failed: Verdict.FAILED, undecided: Verdict.UNDECIDED}


def clause(claim: str, held: str, topic: str, statement: int | None = None) -> Sentence:
    """Return a clause that answers "yes" or "no" for a topic if a claim held, or its opposite."""
    failed = "no" if held == "yes" else "yes"
    return Sentence(
        claim, f"{held} {topic}", f"{failed} {topic}", f"not decided {topic}", statement=statement
    )
