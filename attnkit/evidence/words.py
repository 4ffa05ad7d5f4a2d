"""Words for evidence: findings, verdicts and predictions, as tables and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from attnkit.claims.base import Claim, Seen, Statement, Verdict
from attnkit.claims.measures import multiples
from attnkit.evidence.record import Evidence, verdicts_of
from attnkit.evidence.verdict import Finding


@dataclass(frozen=True)
class Row:
    """A statement and its finding, cell by cell, for tables.

    Attributes:
        text: The statement.
        solved: How many seeds of each arm have solved the task; empty where means are compared.
        pairs: With how many seeds the left arm is worse, better and alike; empty there, too.
        median: Median difference.
        mean: Mean difference with its interval.
        verdict: The verdict, read alone.
    """

    text: str
    solved: str
    pairs: str
    median: str
    mean: str
    verdict: Verdict

    @property
    def found(self) -> str:
        """Counts, median and mean of the seeds, in one cell."""
        named = {"Solved": self.solved, "Seeds": self.pairs, "Median": self.median}
        named |= {"Mean": self.mean}
        return " ".join(f"{name}: {cell}." for name, cell in named.items() if cell)


def rows_of(evidence: Evidence) -> list[Row]:
    """Return a row for every statement."""
    return [
        Row(
            statement.text,
            _solved_in_words(evidence, statement),
            pairs_in_words(statement, found) if found.method == "pairs" else "",
            difference_in_words(found.median, statement),
            _mean_in_words(statement, found),
            found.verdict,
        )
        for statement, found in zip(evidence.statements, evidence.findings, strict=True)
    ]


def told(statement: Statement, found: Finding) -> str:
    """Return the result of a statement in a few words."""
    mean = _mean_in_words(statement, found)
    if found.method == "mean":
        lost = f", diverged with {found.n_lost} of {found.n_pairs} seeds" if found.n_lost else ""
        return f"{'mean' if statement.right is None else 'mean difference'} {mean}{lost}"
    median = difference_in_words(found.median, statement)
    averages = [f"{name} {value}" for name, value in (("median", median), ("mean", mean)) if value]
    return "; ".join(filter(None, [pairs_in_words(statement, found), ", ".join(averages)]))


def main_finding(evidence: Evidence) -> str:
    """Return the result of the first statement in words."""
    return f"{evidence.statements[0].text}: {told(evidence.statements[0], evidence.findings[0])}"


def pairs_in_words(statement: Statement, found: Finding) -> str:
    """Return with how many seeds the left arm is worse, better and alike."""
    counts_higher = math.isinf(statement.high) != (statement.low < 0 < statement.high)
    is_better = counts_higher == (statement.measured.better > 0)
    counted, mirrored = ("better", "worse") if is_better else ("worse", "better")
    lost = f", diverged with {found.n_lost}" if found.n_lost else ""
    return (
        f"{counted} with {found.n_worse} of {found.n_pairs} seeds, {mirrored} with "
        f"{found.n_better}, alike with {found.n_alike}{lost}"
    )


def difference_in_words(value: float, statement: Statement) -> str:
    """Return a difference with its sign and unit; empty if it is NaN."""
    if np.isnan(value):
        return ""
    unit = statement.measured.unit
    scale, digits = {"points": (100, 1), "doublings": (1, 1)}.get(unit, (1, 3))
    number = f"{scale * value:+z.{digits}f}".replace("-", "−").replace("inf", "∞")
    return f"{number} {unit}".rstrip()


def _mean_in_words(statement: Statement, found: Finding) -> str:
    mean, low, high = (
        difference_in_words(value, statement)
        for value in (found.effect, found.effect_low, found.effect_high)
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
    """Return whether accuracy still rises for the arms of an inability; empty if there is none.

    Arms that were read at fewer than three steps are left out: the rule needs two doublings.
    """
    arms, told = {one.name: one for one in evidence.claim.arms}, []
    for statement in evidence.claim.statements:
        own = arms[statement.left]
        for one in (own, own.longest(), own.scheduled()) if statement.unable else ():
            if one.name not in evidence.scores or len(multiples(one.up_to)) < 3:
                continue
            how = " with a schedule" if one.finer_rates else ""
            verb = "still rises at" if evidence.still_rises(one.name) else "has stopped rising by"
            told.append(f"{own.name}{how} {verb} {one.up_to * one.base_steps:,} steps")
    return f"Accuracy: {'; '.join(dict.fromkeys(told))}." if told else ""


def seen_in_words(claim: Claim, record: Evidence | None = None) -> str:
    """Return what had been seen when a prediction was written, and what was changed since."""
    parts = [f"When it was written, we had seen {claim.seen} of this comparison."]
    if claim.seen_note:
        parts.append(claim.seen_note)
    if record is None or not record.begun.date:
        return " ".join(parts)
    parts.append(f"The first run of the record began on {record.begun.date}.")
    if record.changed:
        verb = "have" if " and " in record.changed else "has"
        changed = record.changed[0].upper() + record.changed[1:]
        parts.append(f"{changed} {verb} been changed since the first run began.")
    else:
        parts.append("Neither the prediction nor the rule has been changed since.")
    return " ".join(parts)


def score_in_words(found: Sequence[Evidence]) -> str:
    """Return how many predictions came true, by what had been seen when they were written."""
    verdicts = verdicts_of(found)
    parts = []
    for seen in get_args(Seen):
        own = [one.claim for one in found if one.claim.seen == seen]
        right = sum(verdicts[claim.id] == claim.expected for claim in own)
        if own:
            parts.append(f"{right} of {len(own)} where we had seen {seen}")
    return f"Predictions that came true: {', '.join(parts)}." if parts else ""


def readable(gathered: Iterable[Evidence]) -> str:
    """Return a table of verdicts, one claim per line, and how to read it."""
    found = list(gathered)
    verdicts = verdicts_of(found)
    lines = [f"{'claim':22} {'verdict':13} {'predicted':13} {'seen before':15} main finding"]
    for one in found:
        verdict = verdicts[one.claim.id]
        predicted = "" if verdict == one.claim.expected else one.claim.expected
        cells = f"{one.claim.id:22} {verdict:13} {predicted:13} {one.claim.seen:15}"
        lines.append(f"{cells} {main_finding(one)}")
    lines.append(f"\n{score_in_words(found)} {_reading(found)}")
    return "\n".join(lines)


def to_markdown(gathered: Iterable[Evidence]) -> str:
    """Return the table of docs/claims.md: verdicts, predictions, and what had been seen."""
    found = list(gathered)
    verdicts = verdicts_of(found)
    head = ("claim", "verdict", "predicted", "seen before", "main finding")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for one in found:
        verdict = verdicts[one.claim.id]
        alone = one.judgement.verdict
        cells = (
            f"`{one.claim.id}` {one.claim.title}",
            verdict + (f" (read alone: {alone})" if alone != verdict else ""),
            one.claim.expected + (" (changed since the first run began)" if one.changed else ""),
            one.claim.seen,
            main_finding(one),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"{score_in_words(found)} {_reading(found)}"]
    return "\n".join(lines)


def _reading(found: Sequence[Evidence]) -> str:
    """Return how the verdicts of records are to be read."""
    if any(one.quick for one in found):
        return "Quick form: each verdict is read alone, at 95%."
    first = ", ".join(str(seed) for seed in sorted({one.seeds[0] for one in found}))
    return (
        "Verdicts are read together (Holm): the chance that any of them is wrong, at these sizes "
        f"and learning rates, is at most 5%. Seeds count up from {first}."
    )
