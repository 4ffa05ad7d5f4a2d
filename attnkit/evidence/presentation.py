"""Presentation of claims: the sentences, cells and tables that pages and notebooks lay out.

The Questions page, cards in notebooks, the command line and docs/claims.md take their texts from
here. Texts are in the reader's language and plain; only `to_markdown` writes Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from attnkit.claims import CLAIMS, Claim, Verdict
from attnkit.claims.base import Seen, arm_title
from attnkit.evidence.elsewhere import elsewhere_of, in_words
from attnkit.evidence.record import Evidence, Records
from attnkit.evidence.verdict import Finding
from attnkit.evidence.words import (
    finding_in_words,
    followed_in_words,
    found_in_words,
    main_finding,
    structure_in_words,
    tested_in_words,
    values_in_words,
)
from attnkit.foundation.language import in_language, mark, tr
from attnkit.foundation.settings import InvalidExperiment
from attnkit.foundation.tables import markdown_table
from attnkit.foundation.words import listed


class Outcome(StrEnum):
    """Outcome of a prediction."""

    WRONG = "was wrong"
    TRUE = "came true"
    OPEN = "is undecided"


_UNKNOWN = {
    Outcome.WRONG: mark("The reason is unknown."),
    Outcome.TRUE: "",
    Outcome.OPEN: mark("The seeds do not settle it."),
}
"""Sentences in place of a reason, by outcome."""

_OUTCOMES = {
    Outcome.WRONG: mark("This prediction was wrong."),
    Outcome.TRUE: mark("This prediction came true."),
    Outcome.OPEN: mark("This prediction is undecided."),
}

_CAME_TRUE = {
    # Translators: in the column "As predicted".
    Outcome.TRUE: mark("yes"),
    Outcome.OPEN: mark("? undecided"),
    # Translators: in the column "As predicted".
    Outcome.WRONG: mark("✗ no"),
}
"""Cells by outcome."""

_ENDINGS = {
    # Translators: said of the statement that was tested.
    Verdict.HELD: mark("It held."),
    Verdict.FAILED: mark("It did not hold here."),
    Verdict.UNDECIDED: mark("It is undecided."),
}

_SEEN: dict[Seen, str] = {
    # Translators: in the column "Seen before the prediction".
    "nothing": mark("nothing"),
    # Translators: in the column "Seen before the prediction".
    "a prototype": mark("a prototype"),
    # Translators: in the column "Seen before the prediction".
    "an earlier run": mark("an earlier run"),
}
"""Cells by what we had seen."""

_SEEN_BEFORE: dict[Seen, str] = {
    "nothing": mark("When it was written, we had seen nothing of this comparison."),
    "a prototype": mark("When it was written, we had seen a prototype of this comparison."),
    "an earlier run": mark("When it was written, we had seen an earlier run of this comparison."),
}

_CHANGED = {
    "the rule": mark("The rule has been changed since the first run began."),
    "the prediction": mark("The prediction has been changed since the first run began."),
    "the rule and the prediction": mark(
        "The rule and the prediction have been changed since the first run began."
    ),
    "": mark("Neither the prediction nor the rule has been changed since."),
}
"""Sentences by the value of `Evidence.changed`."""

_SEEDS = mark("{n} seeds, from {first} to {last}.")
_QUICK_SEEDS = mark("{n} seeds, from {first} to {last}, quick form.")

_ONE_CACHE = {
    True: mark("KV cache: {ready:,} numbers per token."),
    False: mark(
        "KV cache: {ready:,} numbers per token, or {kept:,} if computed again at every step."
    ),
}
"""Size of a cache by whether keys and values that are ready are all that can be cached."""

# Translators: heading of the tasks and sizes with which a claim was tested.
TRAINED_WITH = mark("Trained with")
"""Heading of the tasks and sizes of a claim's runs."""

# Translators: heading of other structures (layers, heads, widths) in which a claim holds.
WHERE = mark("Where it holds")
"""Heading of the structures in which a claim holds."""

_SCORES: dict[Seen, str] = {
    "nothing": mark("{n} of {all} where we had seen nothing"),
    "a prototype": mark("{n} of {all} where we had seen a prototype"),
    "an earlier run": mark("{n} of {all} where we had seen an earlier run"),
}


@dataclass(frozen=True)
class ClaimInWords:
    """Presentation of one claim in words.

    Attributes:
        evidence: Its record; None if there is none.
        verdict: Its verdict, read together with all others; None if there is none.
        n_together: Number of claims that are read together.
    """

    claim: Claim
    evidence: Evidence | None = None
    verdict: Verdict | None = None
    n_together: int = 1

    @cached_property
    def main(self) -> Finding | None:
        """The finding on the statement that decides; None without a record."""
        if self.evidence is None or self.verdict is None:
            return None
        return main_finding(self.evidence, self.verdict)

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the prediction; None without a verdict."""
        if self.verdict in (None, self.claim.expected):
            return None if self.verdict is None else Outcome.TRUE
        return Outcome.OPEN if self.verdict is Verdict.UNDECIDED else Outcome.WRONG

    @property
    def verdict_line(self) -> str:
        """The verdict with its mark."""
        if self.verdict is None:
            return tr("not run yet")
        return f"{self.verdict.mark} {tr(self.verdict)}"

    @property
    def verdict_in_full(self) -> str:
        """The verdict, and that of the claim read alone if it is another one."""
        alone = None if self.evidence is None else self.evidence.judgement.verdict
        if alone in (None, self.verdict):
            return self.verdict_line
        read_alone = tr("(read alone: {verdict})", verdict=tr(str(alone)))
        return f"{self.verdict_line} {read_alone}"

    @property
    def reason(self) -> str:
        """The reason for the verdict; empty for a predicted one without a recorded reason."""
        return "" if self.outcome is None else tr(self.claim.reason or _UNKNOWN[self.outcome])

    @property
    def found(self) -> str:
        """Finding on the main statement, with the values of its arms.

        It is called probable if it stands alone, and the claim is undecided together with all
        others.
        """
        if self.evidence is None or self.main is None:
            return ""
        found = found_in_words(self.main)
        if self._undecided_together(self.main):
            found = tr("This is probably true: “{sentence}”", sentence=found)
        return f"{found} ({values_in_words(self.evidence, self.main)})."

    def _undecided_together(self, finding: Finding) -> bool:
        """Return whether a finding decides alone, but not read together with all other claims."""
        is_undecided = self.verdict is Verdict.UNDECIDED is not finding.verdict
        return is_undecided and self.n_together > 1

    @property
    def tested(self) -> str:
        """The main statement with its verdict; empty without a record."""
        if self.main is None:
            return ""
        tested = tr("Tested: “{statement}”.", statement=tested_in_words(self.main))
        sentences = [self.main.verdict.mark, tested, tr(_ENDINGS[self.main.verdict])]
        if self._undecided_together(self.main):
            sentences.append(tr("Read together with all other claims, the claim is undecided."))
        return " ".join(sentences)

    @property
    def seen(self) -> str:
        """Observations before the prediction, and changes after it."""
        record, parts = self.evidence, [tr(_SEEN_BEFORE[self.claim.seen]), tr(self.claim.seen_note)]
        if record is not None and record.first_run.date:
            date = record.first_run.date
            parts.append(tr("The first run of the record began on {date}.", date=date))
            parts.append(tr(_CHANGED[record.changed]))
        return " ".join(filter(None, parts))

    @property
    def made(self) -> str:
        """Seeds, versions and engine with which the record was made; empty without a record."""
        record = self.evidence
        if record is None:
            return ""
        (first, *_, last), text = record.seeds, _QUICK_SEEDS if record.quick else _SEEDS
        seeds = tr(text, n=record.n_seeds, first=first, last=last)
        training = tr(
            "attnkit {version}, claim {hash}, trained by {maker}: {steps:,} steps of single "
            "models, tuning included, in {seconds:,.0f} s.",
            version=record.version,
            hash=record.hash,
            maker=str(record.maker),
            steps=record.model_steps,
            seconds=record.seconds,
        )
        return f"{seeds} {training}"

    @property
    def trained_with(self) -> str:
        """Tasks and sizes of the runs; empty if a setting of somebody's own claim is faulty."""
        return self._structure(is_complete=True)

    @property
    def structure(self) -> str:
        """The structure in which the claim was tested, for a line beside its title."""
        return self._structure(is_complete=False)

    def _structure(self, *, is_complete: bool) -> str:
        try:
            return structure_in_words(self.claim, self.evidence, is_complete=is_complete)
        except InvalidExperiment:
            return ""

    @property
    def where(self) -> str:
        """Structures in which the claim holds, without a full stop, as far as they were tried."""
        found = elsewhere_of(self.claim)
        return tr("not varied yet") if found is None else in_words(found)

    @property
    def facts(self) -> dict[str, str]:
        """Marked heading → text of all that is known about the claim, the answer first."""
        claim, is_known = self.claim, self.verdict is not None
        tested = "; ".join(tr(statement.text) for statement in claim.statements)
        expected = tr("Expected verdict: {verdict}.", verdict=tr(claim.expected))
        prediction = [tr(claim.prediction), expected]
        prediction += [] if self.outcome is None else [tr(_OUTCOMES[self.outcome])]
        facts = {
            mark("Question"): tr(claim.question),
            # Translators: heading of what was found.
            mark("Found"): self.found,
            mark("Verdict"): self.verdict_in_full if is_known else "",
            mark("Reason"): self.reason,
            # Translators: heading above statements that were tested.
            mark("Tested"): "" if is_known else f"{tested}.",
            TRAINED_WITH: self.trained_with,
            WHERE: f"{self.where}." if is_known else "",
            mark("Claim"): tr(claim.says),
            mark("Source"): tr(claim.source),
            mark("Prediction"): " ".join(prediction),
            mark("Seen before"): self.seen,
            # Translators: heading of how the recorded evidence was made.
            mark("Record"): self.made or tr("No record of this claim ships with this version."),
        }
        return {name: text for name, text in facts.items() if text}

    @property
    def cells(self) -> dict[str, str]:
        """Cells of a row in tables of all claims, by the names of `COLUMNS`."""
        record, predicted, numbers = self.evidence, [tr(self.claim.expected)], []
        if record is not None and record.changed:
            predicted.append(tr("(changed since the first run began)"))
        if record is not None and self.main is not None:
            found = f"{found_in_words(self.main)} ({finding_in_words(self.main)})"
            numbers = [found, followed_in_words(record)]
        return {
            "claim": tr(self.claim.title),
            "structure": self.structure,
            "trained_with": self.trained_with,
            "verdict": self.verdict_line,
            "verdict_in_full": self.verdict_in_full,
            "found": self.found,
            "numbers": ". ".join(filter(None, numbers)),
            "predicted": " ".join(predicted),
            "came_true": "" if self.outcome is None else tr(_CAME_TRUE[self.outcome]),
            "seen": tr(_SEEN[self.claim.seen]),
            "source": tr(self.claim.source),
            "family": tr(self.claim.family),
        }


COLUMNS = {
    "claim": mark("Claim"),
    # Translators: heading of a column with numbers of layers and heads, and widths.
    "structure": mark("Structure"),
    "trained_with": TRAINED_WITH,
    "verdict": mark("Verdict"),
    "verdict_in_full": mark("Verdict"),
    "found": mark("Found"),
    "numbers": mark("Found"),
    "predicted": mark("Predicted"),
    "came_true": mark("As predicted"),
    "seen": mark("Seen before the prediction"),
    "source": mark("Who says it"),
    # Translators: kind of claim: what people ask, what papers say, our own.
    "family": mark("Kind"),
}
"""Marked headings of the columns of tables of all claims."""


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
        groups[words.outcome if words.outcome and not is_open else Outcome.OPEN].append(words)
    return groups


def total_in_words(records: Records) -> str:
    """Return how many of all predictions came true; empty if there are no records."""
    if not records:
        return ""
    n_right = sum(words.outcome is Outcome.TRUE for words in claims_in_words(records))
    return tr("{n} of {all} predictions came true.", n=n_right, all=len(records))


def score_in_words(records: Records) -> str:
    """Return the numbers of predictions that came true, by what we had seen before them."""
    outcomes: dict[Seen, list[Outcome | None]] = {seen: [] for seen in _SCORES}
    for words in claims_in_words(records):
        outcomes[words.claim.seen].append(words.outcome)
    numbers = ", ".join(
        tr(_SCORES[seen], n=found.count(Outcome.TRUE), all=len(found))
        for seen, found in outcomes.items()
        if found
    )
    return numbers and tr("Predictions that came true: {numbers}.", numbers=numbers)


def readable(records: Records) -> str:
    """Return a plain-text table of verdicts, one claim per line, and a note on how to read it."""
    lines = [f"{'claim':22} {'verdict':13} {'predicted':13} {'seen before':15} main finding"]
    for words in claims_in_words(records):
        claim = words.claim
        predicted = "" if words.outcome is Outcome.TRUE else claim.expected
        cells = f"{claim.id:22} {words.verdict:13} {predicted:13} {claim.seen:15}"
        lines.append(f"{cells} {words.cells['numbers'].rstrip('.')}. {words.structure}")
    return "\n".join([*lines, f"\n{score_in_words(records)} {_reading_note(records)}"])


def to_markdown(records: Records) -> str:
    """Return the table of docs/claims.md: verdicts, predictions, and what we had seen before."""
    columns = ("claim", "trained_with", "verdict_in_full", "predicted", "seen", "numbers")
    rows = []
    for words in claims_in_words(records):
        cells = words.cells | {"claim": f"`{words.claim.id}` {words.claim.title}"}
        rows.append([*(cells[name] for name in columns), words.where])
    head = [*(COLUMNS[name] for name in columns), WHERE]
    table = markdown_table(head, rows)
    return f"{table}\n\n{score_in_words(records)} {_reading_note(records)}"


def _reading_note(records: Records) -> str:
    """Return in English how the verdicts of a table are read."""
    if not any(record.quick for record in records.values()):
        first = ", ".join(map(str, sorted({r.first_seed for r in records.values()})))
        return f"Verdicts are read together, at a level of 5% (Holm). Seeds count up from {first}."
    partial = ", ".join(name for name, record in records.items() if record.is_partial)
    note = "Quick form: each verdict is read alone, at 95%."
    if partial:
        note += (
            " Of these claims only one statement was tested, which did not hold in the shipped "
            f"evidence: {partial}."
        )
    return note


def cache_in_words(claim: Claim) -> str:
    """Return the KV caches of the compared arms, in numbers per token summed over layers.

    A decoder may cache less than keys and values that are ready for use if it computes them again
    at every step. Then both numbers are given. What a module caches is unknown and left out.
    """
    by_size: dict[tuple[int, int], list[str]] = {}
    for arm in claim.compared_arms:
        costs = arm.experiment.costs(arm.variant)
        ready, kept = costs.ready_cache, costs.kv_cache
        if ready is not None and kept is not None:
            by_size.setdefault((ready, kept), []).append(arm_title(arm.name))
    if len(by_size) == 1:
        ((ready, kept),) = by_size
        return tr(_ONE_CACHE[ready == kept], ready=ready, kept=kept)
    sizes = []
    for (ready, kept), names in by_size.items():
        told = in_language(f"{kept:,}", kept)
        if ready != kept:
            told = tr(
                "{ready:,}, or {kept:,} if computed again at every step", ready=ready, kept=kept
            )
        sizes.append(f"{listed(names)}: {told}")
    return tr("KV cache, numbers per token: {sizes}.", sizes="; ".join(sizes)) if sizes else ""


def disagreement(shipped: ClaimInWords, own: Evidence) -> str:
    """Return why the verdict of a run of few seeds differs from the shipped one, if it does."""
    verdict, record, own_verdict = shipped.verdict, shipped.evidence, own.judgement.verdict
    if verdict is None or record is None or own_verdict is verdict:
        return ""
    n_statements = len(own.own_findings)
    if own_verdict is Verdict.UNDECIDED and n_statements > 1:
        text = mark(
            "{n_own} seeds are few, all the more for a claim that says {n_statements} things "
            "at once: no verdict. The shipped one rests on {n_shipped}."
        )
    elif own_verdict is Verdict.UNDECIDED:
        text = mark("{n_own} seeds are few: no verdict. The shipped one rests on {n_shipped}.")
    elif verdict is Verdict.UNDECIDED:
        text = mark(
            "Read alone, your {n_own} seeds decide. The shipped {n_shipped}, read together with "
            "all other claims, do not: that is the stricter reading."
        )
    else:
        text = mark(
            "Your {n_own} seeds say the opposite of the shipped {n_shipped}. Run it again to see "
            "how often that happens."
        )
    return tr(text, n_own=own.n_seeds, n_shipped=record.n_seeds, n_statements=n_statements)
