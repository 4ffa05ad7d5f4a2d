"""Questions of online discussions, and our own one, with answers made from evidence.

The words are data, in questions.toml. Verdicts on claims choose the words and records fill in the
numbers, so new evidence gives new answers.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

import numpy as np

from attnkit.claims import Verdict
from attnkit.claims.base import LONGEST
from attnkit.claims.files import paragraphs
from attnkit.claims.statements import joined
from attnkit.evidence.record import Evidence, Records
from attnkit.evidence.verdict import LEVEL
from attnkit.evidence.words import effect_in_words
from attnkit.foundation.display import Displayed
from attnkit.foundation.language import Message, in_language, mark, tr
from attnkit.training.summary import percent


@dataclass(frozen=True)
class Sentence:
    """A sentence without numbers, with one text per verdict, in the field of the verdict's name.

    A text may have two forms: "{Yes|Probably yes} for a narrow head." is "Yes for a narrow head."
    or, if its verdict is only probable, "Probably yes for a narrow head."

    Attributes:
        claim: Id of the claim whose verdict selects the text.
        always: Text before each of the others.
        statement: Index of the statement whose verdict, read alone, selects the text; None for the
            verdict on the claim.
    """

    claim: str
    held: str
    failed: str
    undecided: str
    always: str = ""
    statement: int | None = None

    def text(self, verdict: Verdict, *, is_probable: bool = False) -> str:
        """Return the marked text for a verdict."""
        form = r"\2" if is_probable else r"\1"
        text = re.sub(r"\{(.*?)\|(.*?)\}", form, getattr(self, verdict.name.lower()))
        return joined(*(Message(one, {}) for one in paragraphs(f"{self.always}\n\n{text}")))

    def answer(self, alone: Verdict, together: Verdict) -> str:
        """Return the text for the verdicts read alone and read with all other claims."""
        return self.text(alone, is_probable=alone not in (Verdict.UNDECIDED, together))

    def verdicts(self, records: Records) -> tuple[Verdict, Verdict] | None:
        """Return the verdicts if the claim is read alone, and if all claims are read together.

        None if no record tests the claim or its statement. Read together, a statement stands if it
        does so at Holm's strictest level, whatever becomes of its claim.
        """
        record = records.get(self.claim)
        if record is None:
            return None
        if self.statement is None:
            return record.judgement.verdict, records.verdicts[self.claim]
        finding = record.own_findings.get(record.claim.statements[self.statement])
        if finding is None:
            return None
        n_together = 1 if record.quick else records.n_together
        stands = min(finding.p_held, finding.p_not) <= (1 - LEVEL) / n_together
        return finding.verdict, finding.verdict if stands else Verdict.UNDECIDED


@dataclass(frozen=True)
class Numbers:
    """A text with numbers of the evidence for a claim.

    In the template `{arm}` is the mean accuracy of an arm in percent, `{arm:loss}` its mean of
    another measure, and `{arm:solved}` the number of its runs that have solved the task, all after
    the base steps. `{arm:@8}`, `{arm:loss@8}` and `{arm:solved@8}` are read at 8 times the base
    steps, `{arm:@end}` and the like at the last step. `{arm:after}`, `{arm:after@8}` and
    `{arm:after@end}` are the numbers of these steps. `{arm:steps}` is the median number of steps to
    solve the task, `{arm:half}` that of the evaluation at which half of the runs have solved it,
    and `{arm:rises}` is the sentence that its accuracy still rises at the last step, or no longer
    does. `{arm+}` and the like are of the arm that is trained for longer, with the better one of
    its schedules. `{#1}` is the difference of the first statement with its interval.
    """

    claim: str
    template: str

    def in_words(self, evidence: Evidence) -> str:
        """Return the text with the numbers of the evidence."""

        def number(field: re.Match[str]) -> str:
            arm, _, form = field[1].partition(":")
            if not arm.startswith("#"):
                return _number(evidence, arm, form)
            statement = evidence.claim.statements[int(arm[1:]) - 1]
            finding = evidence.own_findings.get(statement)
            effect = "" if finding is None else effect_in_words(finding)
            return effect or tr("unknown")

        return re.sub(r"\{([^}]*)\}", number, tr(self.template))


def _longer(evidence: Evidence, name: str) -> str:
    """Return the arm that is trained for longer, of several the best; empty if there is none."""
    short = evidence.claim.arm_of(name)
    longer = [
        one
        for one, arm in evidence.arms.items()
        if one in evidence.scores
        and (arm.variant, arm.settings) == (short.variant, short.settings)
        and arm.up_to > short.up_to
    ]
    return max(longer, key=lambda one: np.nan_to_num(evidence.mean(one, at=LONGEST)), default="")


def _number(evidence: Evidence, arm: str, form: str) -> str:
    """Return a result of an arm in words, see `Numbers`."""
    if arm.endswith("+"):
        arm = _longer(evidence, arm[:-1])
    if arm not in evidence.scores:  # the quick form leaves some arms out
        # Translators: in place of a number.
        return tr("It was not run.") if form == "rises" else tr("not run")
    if form == "rises":
        return tr("It still rises.") if evidence.still_rises(arm) else tr("It no longer rises.")
    longest = 2 ** (len(evidence.scores[arm]["accuracy"]) - 1)
    if form == "half":
        curve = evidence.curves[arm]
        solved = curve.steps[curve.solved >= 0.5]
        if len(solved):
            return _whole(solved[0])
        return tr("more than {n:,.0f}", n=float(max(curve.steps, default=0)))
    if form == "steps":
        median, steps = evidence.median_steps(arm, longest), evidence.curves[arm].steps
        if not np.isfinite(median):
            # Translators: in place of a number of steps: more than we gave for training.
            return tr("more than we gave")
        if round(median) <= steps[steps > 0][0]:
            # Translators: a number of steps, after which a model was evaluated for the first time.
            return tr("at most {n:,.0f}", n=median)
        return _whole(median)
    measure, _, times = form.partition("@")
    at = longest if times == "end" else int(times or 1)
    if measure == "after":
        return _whole(min(at, longest) * evidence.arms[arm].base_steps)
    n_solved, n = evidence.n_solved(arm, at)
    if measure == "solved":
        return tr("{n} of {all}", n=n_solved, all=n)
    mean = evidence.mean(arm, measure or "accuracy", at)
    if np.isnan(mean):
        # Translators: in place of an accuracy or loss.
        return tr("nothing (diverged)")
    if measure in ("loss", "asymmetry"):
        return f"{mean:.2f}"
    if measure or n_solved in (0, n):
        return percent(mean)
    return tr("{mean} ({n} of {all} runs solve it)", mean=percent(mean), n=n_solved, all=n)


def _whole(number: float) -> str:
    return in_language(f"{number:,.0f}", number)


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
    """The answer to a question, as far as its claims have evidence; texts are empty without any."""

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
            verdicts = sentence.verdicts(self.records)
            if verdicts is not None:
                texts.append(tr(sentence.answer(*verdicts)))
                answers.add(sentence.text(verdicts[0]).split()[0].strip(",:"))  # in English
        if {"Yes", "No"} <= answers:
            texts.insert(0, tr("It depends."))
        return " ".join(texts)

    @property
    def reason(self) -> str:
        """The reason for the answer."""
        told = ((one, one.verdicts(self.records)) for one in self.question.reason)
        return " ".join(tr(one.text(verdicts[1])) for one, verdicts in told if verdicts)

    @property
    def numbers(self) -> list[str]:
        """The numbers behind the answer, in sentences."""
        known = self.records
        return [
            one.in_words(known[one.claim]) for one in self.question.numbers if one.claim in known
        ]

    @property
    def asked(self) -> str:
        """Quotation and source of the question; empty if the question is our own."""
        asked, source = self.question.asked, self.question.source
        return asked and tr("Asked: “{quotation}” ({source})", quotation=asked, source=source)


def guesses(held: str, failed: str) -> dict[str, Verdict]:
    """Return marked guess → the verdict that it predicts."""
    undecided = mark("These seeds will not tell")
    return {held: Verdict.HELD, failed: Verdict.FAILED, undecided: Verdict.UNDECIDED}


def _sentences(rows: Mapping[str, Mapping[str, str]]) -> tuple[Sentence, ...]:
    """Return sentences of the file; a key is a claim and perhaps the index of a statement."""
    keys = [key.partition(" ") for key in rows]
    return tuple(
        Sentence(claim, statement=int(at) if at else None, **texts)
        for (claim, _, at), texts in zip(keys, rows.values(), strict=True)
    )


def _questions_of(file: Path) -> dict[str, Question]:
    rows = tomllib.loads(file.read_text(encoding="utf-8"))
    for kind in ("reason", "numbers"):
        told = {key: one for row in rows.values() for key, one in row[kind].items() if one}
        for row in rows.values():
            row[kind] = {key: one or told[key] for key, one in row[kind].items()}
    return {
        name: Question(
            id=name,
            title=Message(row["title"], {}),
            asked=Message(row.get("asked", ""), {}),
            source=Message(row.get("source", ""), {}),
            conclusion=_sentences(row["conclusion"]),
            reason=_sentences(row["reason"]),
            numbers=tuple(starmap(Numbers, row["numbers"].items())),
            claims=tuple(row["claims"]),
            guess=Message(row["guess"], {}),
            guesses=guesses(*(Message(text, {}) for text in row["guesses"])),
            sweep=row.get("sweep", ""),
        )
        for name, row in rows.items()
    }


QUESTIONS = _questions_of(Path(__file__).with_suffix(".toml"))
"""The five questions by their ids, in the order of the page."""

WHY = QUESTIONS.pop("three_matrices")
"""Our own question; reasons and numbers of three of the five questions answer it."""


def answers_in_markdown(records: Records) -> str:
    """Return the five answers for README.md: each with its reason and its first numbers."""
    lines = []
    for place, question in enumerate(QUESTIONS.values(), 1):
        answer = Answer(question, records)
        texts = (f"**{question.title}**", answer.conclusion, answer.reason, *answer.numbers[:1])
        lines.append(f"{place}. {' '.join(filter(None, texts))}")
    return "\n".join(lines)
