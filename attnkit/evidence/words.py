"""Texts about evidence: findings, verdicts and predictions as sentences and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from attnkit.claims.base import Claim, Seen, Verdict
from attnkit.claims.measures import multiples
from attnkit.claims.statements import Statement
from attnkit.evidence.found import found_in_words, main_statement
from attnkit.evidence.record import Evidence, verdicts_of
from attnkit.evidence.verdict import Finding


@dataclass(frozen=True)
class Row:
    """A row of a table: a statement and its finding, as one text per cell.

    Attributes:
        text: The statement.
        solved: Number of seeds of each arm that have solved the task; empty if means are compared.
        pairs: Number of seeds with which the left arm is worse, better and alike; empty if means
            are compared.
        median: Median difference.
        mean: Mean difference with its interval.
        verdict: The verdict on this statement alone.
    """

    text: str
    solved: str
    pairs: str
    median: str
    mean: str
    verdict: Verdict

    @property
    def numbers(self) -> str:
        """All numbers of the row in one text: counts, median and mean."""
        cells = (
            ("Solved", self.solved),
            ("Seeds", self.pairs),
            ("Median", self.median),
            ("Mean", self.mean),
        )
        return " ".join(f"{name}: {cell}." for name, cell in cells if cell)


def rows_of(evidence: Evidence) -> list[Row]:
    """Return the table rows of evidence, one per statement."""
    return [
        Row(
            statement.text,
            _solved_in_words(evidence, statement),
            pairs_in_words(statement, finding) if finding.method == "pairs" else "",
            difference_in_words(finding.median, statement),
            _mean_in_words(statement, finding),
            finding.verdict,
        )
        for statement, finding in zip(evidence.statements, evidence.findings, strict=True)
    ]


def finding_in_words(statement: Statement, finding: Finding) -> str:
    """Return the finding on a statement in a few words."""
    mean = _mean_in_words(statement, finding)
    if finding.method == "mean":
        n, n_lost = finding.n_pairs, finding.n_lost
        lost = f", diverged with {n_lost} of {n} seeds" if n_lost else ""
        return f"{'mean' if statement.right is None else 'mean difference'} {mean}{lost}"
    median = difference_in_words(finding.median, statement)
    averages = [f"{name} {value}" for name, value in (("median", median), ("mean", mean)) if value]
    return "; ".join(filter(None, [pairs_in_words(statement, finding), ", ".join(averages)]))


def main_finding(evidence: Evidence) -> str:
    """Return what is found on the main statement, and the numbers that show it."""
    statement, finding = main_statement(evidence, evidence.judgement.verdict)
    found = found_in_words(statement, finding.verdict)
    return f"{found} ({finding_in_words(statement, finding)})"


def pairs_in_words(statement: Statement, finding: Finding) -> str:
    """Return the numbers of seeds with which the left arm is worse, better and alike."""
    counts_higher = math.isinf(statement.high) != (statement.low < 0 < statement.high)
    is_better = counts_higher == (statement.measured.better > 0)
    counted, mirrored = ("better", "worse") if is_better else ("worse", "better")
    lost = f", diverged with {finding.n_lost}" if finding.n_lost else ""
    return (
        f"{counted} with {finding.n_worse} of {finding.n_pairs} seeds, {mirrored} with "
        f"{finding.n_better}, alike with {finding.n_alike}{lost}"
    )


def difference_in_words(value: float, statement: Statement) -> str:
    """Return a difference with its sign and unit; empty if it is NaN."""
    if np.isnan(value):
        return ""
    unit = statement.measured.unit
    scale, digits = {"points": (100, 1), "doublings": (1, 1)}.get(unit, (1, 3))
    number = f"{scale * value:+z.{digits}f}".replace("-", "−").replace("inf", "∞")
    return f"{number} {unit}".rstrip()


def _mean_in_words(statement: Statement, finding: Finding) -> str:
    mean, low, high = (
        difference_in_words(value, statement)
        for value in (finding.effect, finding.effect_low, finding.effect_high)
    )
    if not low:
        return mean
    unit = f" {statement.measured.unit}".rstrip()
    return f"{mean} [{low.removesuffix(unit)} to {high.removesuffix(unit)}]"


def _solved_in_words(evidence: Evidence, statement: Statement) -> str:
    if statement.measured.compares_means:
        return ""
    counts = {name: evidence.n_solved(name, statement.at) for name in statement.arms}
    return "; ".join(f"{name}: {solved} of {n}" for name, (solved, n) in counts.items())


def rises_in_words(evidence: Evidence) -> str:
    """Return whether the accuracies of arms that a claim calls unable still rise; may be empty.

    Arms that were read at fewer than three steps are left out: the rule needs two doublings.
    """
    arms = {arm.name: arm for arm in evidence.claim.arms}
    parts = []
    for statement in evidence.claim.statements:
        if not statement.unable:
            continue
        short = arms[statement.left]
        for arm in (short, short.longest(), short.scheduled()):
            if arm.name not in evidence.scores or len(multiples(arm.up_to)) < 3:
                continue
            condition = " with a schedule" if arm.finer_rates else ""
            verb = "still rises at" if evidence.still_rises(arm.name) else "has stopped rising by"
            parts.append(f"{short.name}{condition} {verb} {arm.up_to * arm.base_steps:,} steps")
    return f"Accuracy: {'; '.join(dict.fromkeys(parts))}." if parts else ""


def prediction_in_words(claim: Claim, verdict: Verdict) -> str:
    """Return what became of a claim's prediction, as the end of a sentence."""
    if verdict == claim.expected:
        return "came true"
    return "is undecided" if verdict == "undecided" else "was wrong"


def seen_in_words(claim: Claim, record: Evidence | None = None) -> str:
    """Return what we had seen before a prediction, and what was changed after it, in words."""
    parts = [f"When it was written, we had seen {claim.seen} of this comparison."]
    if claim.seen_note:
        parts.append(claim.seen_note)
    if record is None or not record.first_run.date:
        return " ".join(parts)
    parts.append(f"The first run of the record began on {record.first_run.date}.")
    if record.changed:
        verb = "have" if " and " in record.changed else "has"
        changed = record.changed[0].upper() + record.changed[1:]
        parts.append(f"{changed} {verb} been changed since the first run began.")
    else:
        parts.append("Neither the prediction nor the rule has been changed since.")
    return " ".join(parts)


def total_in_words(records: Sequence[Evidence]) -> str:
    """Return how many of all predictions came true; empty if there are no records."""
    verdicts = verdicts_of(records)
    n_right = sum(verdicts[record.claim.id] == record.claim.expected for record in records)
    return f"{n_right} of {len(records)} predictions came true." if records else ""


def score_in_words(records: Sequence[Evidence]) -> str:
    """Return the numbers of predictions that came true, by what we had seen before them."""
    verdicts = verdicts_of(records)
    parts = []
    for seen in get_args(Seen):
        claims = [record.claim for record in records if record.claim.seen == seen]
        n_right = sum(verdicts[claim.id] == claim.expected for claim in claims)
        if claims:
            parts.append(f"{n_right} of {len(claims)} where we had seen {seen}")
    return f"Predictions that came true: {', '.join(parts)}." if parts else ""


def readable(records: Iterable[Evidence]) -> str:
    """Return a plain-text table of verdicts, one claim per line, and a note on how to read it."""
    records = list(records)
    verdicts = verdicts_of(records)
    lines = [f"{'claim':22} {'verdict':13} {'predicted':13} {'seen before':15} main finding"]
    for record in records:
        claim, verdict = record.claim, verdicts[record.claim.id]
        predicted = "" if verdict == claim.expected else claim.expected
        cells = f"{claim.id:22} {verdict:13} {predicted:13} {claim.seen:15}"
        lines.append(f"{cells} {main_finding(record)}")
    lines.append(f"\n{score_in_words(records)} {_reading_note(records)}")
    return "\n".join(lines)


def to_markdown(records: Iterable[Evidence]) -> str:
    """Return the table of docs/claims.md: verdicts, predictions, and what we had seen before."""
    records = list(records)
    verdicts = verdicts_of(records)
    head = ("claim", "verdict", "predicted", "seen before", "main finding")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for record in records:
        claim, verdict = record.claim, verdicts[record.claim.id]
        alone = record.judgement.verdict
        cells = (
            f"`{claim.id}` {claim.title}",
            verdict + (f" (read alone: {alone})" if alone != verdict else ""),
            claim.expected + (" (changed since the first run began)" if record.changed else ""),
            claim.seen,
            main_finding(record),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"{score_in_words(records)} {_reading_note(records)}"]
    return "\n".join(lines)


def _reading_note(records: Sequence[Evidence]) -> str:
    if any(record.quick for record in records):
        return "Quick form: each verdict is read alone, at 95%."
    first = ", ".join(str(seed) for seed in sorted({record.seeds[0] for record in records}))
    return (
        "Verdicts are read together (Holm): the chance that any of them is wrong, at these sizes "
        f"and learning rates, is at most 5%. Seeds count up from {first}."
    )
