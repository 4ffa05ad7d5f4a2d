"""A question of an online discussion, or our own, and its answer made from evidence.

Verdicts on claims choose the words and records fill in the numbers, so new evidence gives new
answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from attnkit.claims import Verdict
from attnkit.claims.base import LONGEST
from attnkit.evidence.record import Evidence, Records
from attnkit.evidence.verdict import LEVEL
from attnkit.evidence.words import effect_in_words
from attnkit.foundation.display import Displayed
from attnkit.foundation.language import in_language, mark, tr
from attnkit.training.summary import percent


@dataclass(frozen=True)
class Sentence:
    """A sentence without numbers, with one marked text per verdict.

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

    def is_tested(self, records: Records) -> bool:
        """Return whether there is a record of the claim that tests its statement."""
        if self.claim not in records or self.statement is None:
            return self.claim in records
        record = records[self.claim]
        return record.claim.statements[self.statement] in record.own_findings

    def verdict_alone(self, evidence: Evidence) -> Verdict:
        """Return the verdict on the claim, or on its statement, if the evidence is read alone."""
        if self.statement is None:
            return evidence.judgement.verdict
        return evidence.own_findings[evidence.claim.statements[self.statement]].verdict

    def verdict_together(self, records: Records) -> Verdict:
        """Return the verdict if all claims are read together.

        A statement stands if it does so at Holm's strictest level, whatever becomes of its claim.
        """
        if self.statement is None:
            return records.verdicts[self.claim]
        record = records[self.claim]
        finding = record.own_findings[record.claim.statements[self.statement]]
        n_together = 1 if record.quick else records.n_together
        stands = min(finding.p_held, finding.p_not) <= (1 - LEVEL) / n_together
        return finding.verdict if stands else Verdict.UNDECIDED


@dataclass(frozen=True)
class Reply(Sentence):
    """A sentence of a short answer, with further texts for a verdict that is only probable.

    Attributes:
        probably_held: Text if the claim probably held.
        probably_failed: Text if the claim probably did not hold.
    """

    probably_held: str = ""
    probably_failed: str = ""

    def answer(self, alone: Verdict, together: Verdict) -> str:
        """Return the text for the verdicts on the claim, read alone and read with all others."""
        if alone in (Verdict.UNDECIDED, together):
            return self.text(alone)
        return self.probably_held if alone is Verdict.HELD else self.probably_failed


@dataclass(frozen=True)
class Topic:
    """Topic of a question that is answered "yes" or "no", with a marked sentence for each answer.

    Attributes:
        yes: The answer "yes".
        probably_yes: The same if it is only probable.
        no: The answer "no".
        probably_no: The same if it is only probable.
        undecided: The sentence if nothing decides it.
    """

    yes: str
    probably_yes: str
    no: str
    probably_no: str
    undecided: str

    def reply(self, claim: str, held: Literal["yes", "no"], statement: int | None = None) -> Reply:
        """Return the sentence that answers `held` if a claim held, and the opposite if it failed.

        Args:
            claim: Id of the claim.
            held: The answer if the claim held.
            statement: See `Sentence`.
        """
        yes, no = (self.yes, self.probably_yes), (self.no, self.probably_no)
        if_held, if_failed = (yes, no) if held == "yes" else (no, yes)
        return Reply(
            claim,
            held=if_held[0],
            failed=if_failed[0],
            undecided=self.undecided,
            statement=statement,
            probably_held=if_held[1],
            probably_failed=if_failed[1],
        )


@dataclass(frozen=True)
class Numbers:
    """A marked text with numbers of the evidence for a claim.

    In the template `{arm}` is the mean accuracy of an arm in percent, `{arm:loss}` its mean of
    another measure, and `{arm:solved}` the number of its runs that have solved the task, all after
    the base steps. `{arm:@8}`, `{arm:loss@8}` and `{arm:solved@8}` are read at 8 times the base
    steps, `{arm:@end}` and the like at the last step. `{arm:after}`, `{arm:after@8}` and
    `{arm:after@end}` are the numbers of these steps. `{arm:steps}` is the median number of steps to
    solve the task, `{arm:half}` that of the evaluation at which half of the runs have solved it,
    and `{arm:rises}` is the sentence that its accuracy still rises at the last step, or no longer
    does. `{arm+}` and the like are of the arm that is trained for longer, with the better one of
    its schedules. `{#1}` is the difference of the first statement with its interval.

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
            statement = evidence.claim.statements[at]
            finding = evidence.own_findings.get(statement)
            effect = "" if finding is None else effect_in_words(statement, finding)
            return effect or tr("unknown")

        return re.sub(r"\{([^}]*)\}", number, tr(self.template))


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
    is_known = arm in evidence.scores  # the quick form leaves some arms out
    if form == "rises":
        return _rises(evidence, arm) if is_known else tr("It was not run.")
    if not is_known:
        # Translators: in place of a number.
        return tr("not run")
    if form == "steps":
        doublings = evidence.scores[arm]["steps_to_solve"][-1]
        median = 2 ** np.median(np.where(np.isnan(doublings), np.inf, doublings))
        # Translators: in place of a number of steps: more than we gave for training.
        more = tr("more than we gave")
        return _whole(median) if np.isfinite(median) else more
    if form == "half":
        curve = evidence.curves[arm]
        solved = curve.steps[curve.solved >= 0.5]
        if len(solved):
            return _whole(solved[0])
        return tr("more than {n:,.0f}", n=float(max(curve.steps, default=0)))
    name, _, times = form.partition("@")
    longest = 2 ** (len(evidence.scores[arm]["accuracy"]) - 1)
    measure, at = name or "accuracy", longest if times == "end" else int(times or 1)
    if measure == "after":
        return _whole(min(at, longest) * evidence.arms[arm].base_steps)
    return _mean(evidence, arm, measure, at)


def _rises(evidence: Evidence, arm: str) -> str:
    """Return the sentence on whether the accuracy of an arm still rises."""
    return tr("It still rises.") if evidence.still_rises(arm) else tr("It no longer rises.")


def _whole(number: float) -> str:
    """Return a whole number with groups of digits."""
    return in_language(f"{number:,.0f}", number)


def _mean(evidence: Evidence, arm: str, measure: str, at: int) -> str:
    """Return the mean of a measure, or how many runs have solved the task."""
    n_solved, n = evidence.n_solved(arm, at)
    if measure == "solved":
        return tr("{n} of {all}", n=n_solved, all=n)
    mean = evidence.mean(arm, measure, at)
    if np.isnan(mean):
        # Translators: in place of an accuracy or loss.
        return tr("nothing (diverged)")
    if measure in ("loss", "asymmetry"):
        return f"{mean:.2f}"
    if measure != "accuracy" or n_solved in (0, n):
        return percent(mean)
    return tr("{mean} ({n} of {all} runs solve it)", mean=percent(mean), n=n_solved, all=n)


@dataclass(frozen=True, repr=False)
class Question(Displayed):
    """A question and its answer made from evidence; both are shown in a notebook.

    Attributes:
        id: Identifier in links.
        title: The question in a few words, marked as all texts are.
        asked: Quotation from the thread; empty if the question is our own.
        source: Citation of the thread; empty if the question is our own.
        conclusion: Sentences of the short answer. Each begins with "Yes", "No" or "Not decided" in
            a question of others.
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
    conclusion: tuple[Reply, ...]
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
        """The answer in a sentence or two.

        A sentence is called probable if it stands when its claim is read alone, and not when all
        claims are read together. If one says yes and another one no, the answer begins with "It
        depends".
        """
        texts, answers = [], set()
        for sentence in self.question.conclusion:
            if not sentence.is_tested(self.records):
                continue
            alone = sentence.verdict_alone(self.records[sentence.claim])
            answers.add(sentence.text(alone).split()[0].strip(",:"))  # in English
            texts.append(tr(sentence.answer(alone, sentence.verdict_together(self.records))))
        if {"Yes", "No"} <= answers:
            texts.insert(0, tr("It depends."))
        return " ".join(texts)

    @property
    def reason(self) -> str:
        """The reason for the answer."""
        return " ".join(
            tr(sentence.text(sentence.verdict_together(self.records)))
            for sentence in self.question.reason
            if sentence.is_tested(self.records)
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
        if not question.asked:
            return ""
        return tr(
            "Asked: “{quotation}” ({source})", quotation=question.asked, source=question.source
        )


def guesses(held: str, failed: str) -> dict[str, Verdict]:
    """Return marked guess → the verdict that it predicts."""
    undecided = mark("These seeds will not tell")
    return {held: Verdict.HELD, failed: Verdict.FAILED, undecided: Verdict.UNDECIDED}
