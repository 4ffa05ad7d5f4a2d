"""Presentation of a claim: the sentences, cells and tables that pages and notebooks lay out.

The Questions page, cards in notebooks, the report, the command line and docs/claims.md take their
texts from here. Texts are plain, without Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import get_args

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.claims.base import Arm, Seen
from attnkit.evidence.power import power_of
from attnkit.evidence.record import Evidence, Records
from attnkit.evidence.simulation import errors_in_words
from attnkit.evidence.words import (
    finding_in_words,
    followed_in_words,
    found_in_words,
    main_statement,
    tested_in_words,
    values_in_words,
)
from attnkit.foundation.tables import markdown_table
from attnkit.foundation.words import capitalised, listed
from attnkit.training.summary import percent


class Outcome(StrEnum):
    """Outcome of a prediction, worded as the end of a sentence."""

    WRONG = "was wrong"
    TRUE = "came true"
    OPEN = "is undecided"


_EARLIER = (
    "one schedule, learning rates chosen on two seeds, no variant followed, for some claims other "
    "numbers of seeds"
)


@dataclass(frozen=True)
class ClaimInWords:
    """Presentation of one claim in words.

    Attributes:
        claim: The claim.
        evidence: Its record; None if there is none.
        verdict: Its verdict, read together with all others; None if there is none.
        n_together: Number of claims that are read together.
    """

    claim: Claim
    evidence: Evidence | None = None
    verdict: Verdict | None = None
    n_together: int = 1

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the prediction; None without a verdict."""
        if self.verdict in (None, self.claim.expected):
            return None if self.verdict is None else Outcome.TRUE
        return Outcome.OPEN if self.verdict is Verdict.UNDECIDED else Outcome.WRONG

    @property
    def verdict_line(self) -> str:
        """The verdict with its mark."""
        return "not run yet" if self.verdict is None else f"{self.verdict.mark} {self.verdict}"

    @property
    def reason(self) -> str:
        """The reason for the verdict; empty for a predicted one without a recorded reason."""
        unknown = {
            Outcome.WRONG: "The reason is unknown.",
            Outcome.OPEN: "The seeds do not settle it.",
        }
        return "" if self.outcome is None else self.claim.reason or unknown.get(self.outcome, "")

    @property
    def outlook(self) -> str:
        """Probability that more seeds would decide the claim; empty if it is decided."""
        if self.evidence is None or self.verdict is not Verdict.UNDECIDED:
            return ""
        n_seeds = 2 * self.evidence.n_seeds
        probability = power_of(self.evidence, n_seeds, self.n_together)
        about = f"about {percent(probability)}" if probability >= 0.01 else "less than 1%"
        return (
            f"With twice as many seeds ({n_seeds}) it would be decided with a probability of "
            f"{about}."
        )

    @property
    def found(self) -> str:
        """Finding on the main statement, with the values of its arms.

        It is called probable if it stands alone, and the claim is undecided together with all
        others.
        """
        if self.evidence is None or self.verdict is None:
            return ""
        statement, finding = main_statement(self.evidence, self.verdict)
        found = found_in_words(statement, finding)
        if self.verdict is Verdict.UNDECIDED is not finding.verdict:
            found = f"Probably: {found}"
        return f"{found} ({values_in_words(self.evidence, statement, finding)})."

    @property
    def found_in_numbers(self) -> str:
        """Finding on the main statement, read alone, and the numbers that show it."""
        if self.evidence is None:
            return ""
        statement, finding = main_statement(
            self.evidence, self.verdict or self.evidence.judgement.verdict
        )
        numbers = finding_in_words(statement, finding)
        return f"{found_in_words(statement, finding)} ({numbers})"

    @property
    def tested(self) -> str:
        """The main statement with its verdict; empty without a record."""
        if self.evidence is None or self.verdict is None:
            return ""
        statement, finding = main_statement(self.evidence, self.verdict)
        ending = {
            Verdict.HELD: "It held.",
            Verdict.FAILED: "It did not hold here.",
            Verdict.UNDECIDED: "It is undecided.",
        }[finding.verdict]
        if self.verdict is Verdict.UNDECIDED is not finding.verdict:
            ending += " Read together with all other claims, the claim is undecided."
        return f"{finding.verdict.mark} Tested: “{tested_in_words(statement, finding)}”. {ending}"

    @property
    def seen(self) -> str:
        """Observations before the prediction, and changes after it."""
        claim, record = self.claim, self.evidence
        parts = [f"When it was written, we had seen {claim.seen} of this comparison."]
        if claim.seen_note:
            parts.append(claim.seen_note)
        if record is None or not record.first_run.date:
            return " ".join(parts)
        parts.append(f"The first run of the record began on {record.first_run.date}.")
        if record.changed:
            verb = "have" if " and " in record.changed else "has"
            parts.append(
                f"{capitalised(record.changed)} {verb} been changed since the first run began."
            )
        else:
            parts.append("Neither the prediction nor the rule has been changed since.")
        return " ".join(parts)

    @property
    def made(self) -> str:
        """Seeds, versions and engine with which the record was made; empty without a record."""
        if self.evidence is None:
            return ""
        record = self.evidence
        form = ", quick form" if record.quick else ""
        form += f", of the earlier rule ({_EARLIER})" if record.is_of_earlier_rule else ""
        return (
            f"{record.n_seeds} seeds, from {record.seeds[0]} to {record.seeds[-1]}{form}. attnkit "
            f"{record.version}, claim {record.hash}, trained by {record.maker}: "
            f"{record.model_steps:,} steps of single models, tuning included, in "
            f"{record.seconds:,.0f} s."
        )

    @property
    def facts(self) -> dict[str, str]:
        """Heading → text of all that is known about the claim, the answer first."""
        claim, is_known = self.claim, self.verdict is not None
        outcome = f" This prediction {self.outcome}." if is_known else ""
        tested = "; ".join(statement.text for statement in claim.statements)
        facts = {
            "Question": claim.question,
            "Found": self.found,
            "Verdict": self.cells["verdict_in_full"] if is_known else "",
            "Reason": f"{self.reason} {self.outlook}".strip(),
            "Tested": "" if is_known else f"{tested}.",
            "Claim": claim.says,
            "Source": claim.source,
            "Prediction": f"{claim.prediction} Expected verdict: {claim.expected}.{outcome}",
            "Seen before": self.seen,
            "Record": self.made or "No record of this claim ships with this version.",
        }
        return {name: text for name, text in facts.items() if text}

    @property
    def cells(self) -> dict[str, str]:
        """Cells of a row in tables of all claims, by the names of `COLUMNS`."""
        record = self.evidence
        alone = None if record is None else record.judgement.verdict
        stricter = "" if alone in (None, self.verdict) else f" (read alone: {alone})"
        changed = (
            "" if record is None or not record.changed else " (changed since the first run began)"
        )
        came_true = {Outcome.TRUE: "yes", Outcome.OPEN: "? undecided", Outcome.WRONG: "✗ no"}
        later = "" if self.evidence is None else followed_in_words(self.evidence)
        return {
            "claim": self.claim.title,
            "verdict": self.verdict_line,
            "verdict_in_full": self.verdict_line + stricter,
            "found": f"{self.found} {self.outlook}".strip(),
            "numbers": ". ".join(filter(None, (self.found_in_numbers, self.outlook, later))),
            "predicted": self.claim.expected + changed,
            "came_true": "" if self.outcome is None else came_true[self.outcome],
            "seen": self.claim.seen,
            "source": self.claim.source,
            "family": self.claim.family,
        }


COLUMNS = {
    "claim": "Claim",
    "verdict": "Verdict",
    "verdict_in_full": "Verdict",
    "found": "Found",
    "numbers": "Found",
    "predicted": "Predicted",
    "came_true": "As predicted",
    "seen": "Seen before the prediction",
    "source": "Who says it",
    "family": "Kind",
}
"""Headings of the columns of tables of all claims."""


def claims_in_words(records: Records, claims: Iterable[Claim] | None = None) -> list[ClaimInWords]:
    """Return the presentation of each of the claims; by default of the claims with records."""
    chosen = [record.claim for record in records.values()] if claims is None else claims
    return [
        ClaimInWords(
            claim, records.get(claim.id), records.verdicts.get(claim.id), records.n_together
        )
        for claim in chosen
    ]


def new_claims(records: Records) -> dict[Outcome, list[ClaimInWords]]:
    """Group the new claims that have a record by the outcome of their predictions.

    Failed predictions come first. A verdict that is undecided decides no prediction.
    """
    groups: dict[Outcome, list[ClaimInWords]] = {outcome: [] for outcome in Outcome}
    new = (claim for name, claim in CLAIMS.items() if claim.is_new and name in records)
    for words in claims_in_words(records, new):
        is_open = words.verdict is Verdict.UNDECIDED
        groups[Outcome.OPEN if is_open else words.outcome or Outcome.OPEN].append(words)
    return groups


def total_in_words(records: Records) -> str:
    """Return how many of all predictions came true; empty if there are no records."""
    n_right = sum(words.outcome is Outcome.TRUE for words in claims_in_words(records))
    return f"{n_right} of {len(records)} predictions came true." if records else ""


def score_in_words(records: Records) -> str:
    """Return the numbers of predictions that came true, by what we had seen before them."""
    parts = []
    for seen in get_args(Seen):
        outcomes = [words.outcome for words in claims_in_words(records) if words.claim.seen == seen]
        if outcomes:
            n_right = outcomes.count(Outcome.TRUE)
            parts.append(f"{n_right} of {len(outcomes)} where we had seen {seen}")
    return f"Predictions that came true: {', '.join(parts)}." if parts else ""


def readable(records: Records) -> str:
    """Return a plain-text table of verdicts, one claim per line, and a note on how to read it."""
    lines = [f"{'claim':22} {'verdict':13} {'predicted':13} {'seen before':15} main finding"]
    for words in claims_in_words(records):
        claim = words.claim
        predicted = "" if words.outcome is Outcome.TRUE else claim.expected
        cells = f"{claim.id:22} {words.verdict:13} {predicted:13} {claim.seen:15}"
        lines.append(f"{cells} {words.cells['numbers']}")
    return "\n".join([*lines, f"\n{score_in_words(records)} {_reading_note(records)}"])


def to_markdown(records: Records) -> str:
    """Return the table of docs/claims.md: verdicts, predictions, and what we had seen before."""
    columns = ("claim", "verdict_in_full", "predicted", "seen", "numbers")
    rows = []
    for words in claims_in_words(records):
        cells = {**words.cells, "claim": f"`{words.claim.id}` {words.claim.title}"}
        rows.append([cells[name] for name in columns])
    table = markdown_table([COLUMNS[name] for name in columns], rows)
    return f"{table}\n\n{score_in_words(records)} {_reading_note(records)}"


def _reading_note(records: Records) -> str:
    if any(record.quick for record in records.values()):
        return "Quick form: each verdict is read alone, at 95%."
    first = ", ".join(str(seed) for seed in sorted({r.first_seed for r in records.values()}))
    return (
        f"Verdicts are read together, at a level of 5% (Holm). {errors_in_words()} Seeds count up "
        f"from {first}.{_earlier_note(records)}"
    )


def _earlier_note(records: Records) -> str:
    """Return which records are of the earlier rule; empty if none is."""
    earlier = [name for name, record in records.items() if record.is_of_earlier_rule]
    return f" Of the earlier rule ({_EARLIER}) are {listed(earlier)}." if earlier else ""


def cache_in_words(claim: Claim) -> str:
    """Return the KV caches of the compared arms, in numbers per token summed over layers.

    A decoder may cache less than keys and values that are ready for use if it computes them again
    at every step. Then both numbers are given.
    """
    by_size: dict[str, list[str]] = {}
    for arm in claim.compared_arms:
        by_size.setdefault(_cache_of(arm), []).append(arm.name)
    if len(by_size) == 1:
        return f"KV cache: {next(iter(by_size))} numbers per token."
    parts = [f"{listed(names)}: {size}" for size, names in by_size.items()]
    return f"KV cache, numbers per token: {'; '.join(parts)}."


def _cache_of(arm: Arm) -> str:
    costs = arm.experiment.costs(arm.variant)
    if costs.ready_cache == costs.kv_cache:
        return f"{costs.kv_cache:,}"
    return f"{costs.ready_cache:,}, or {costs.kv_cache:,} if computed again at every step"


def disagreement(shipped: ClaimInWords, own_verdict: Verdict) -> str:
    """Return why the verdict of a run of few seeds differs from the shipped one, if it does."""
    claim, verdict, record = shipped.claim, shipped.verdict, shipped.evidence
    if verdict is None or record is None or own_verdict is verdict:
        return ""
    n_own, n_shipped = claim.quick_seeds, record.n_seeds
    if own_verdict is Verdict.UNDECIDED:
        n_statements = len(claim.statements)
        more = ""
        if n_statements > 1:
            more = f", all the more for a claim that says {n_statements} things at once"
        return f"{n_own} seeds are few{more}: no verdict. The shipped one rests on {n_shipped}."
    if verdict is Verdict.UNDECIDED:
        return (
            f"Read alone, your {n_own} seeds decide. The shipped {n_shipped}, read together "
            "with all other claims, do not: that is the stricter reading."
        )
    return (
        f"Your {n_own} seeds say the opposite of the shipped {n_shipped}. Run it again to "
        "see how often that happens."
    )
