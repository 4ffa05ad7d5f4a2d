"""Sentences and tables about statements and what is found on them; plain texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnkit.claims import Verdict
from attnkit.claims.base import LONGEST, SCHEDULES
from attnkit.claims.measures import multiples
from attnkit.claims.statements import Statement
from attnkit.evidence.record import Evidence
from attnkit.evidence.tuning import Tried, Tuned
from attnkit.evidence.verdict import Finding
from attnkit.foundation.words import capitalised, counted
from attnkit.training.summary import fixed, percent


@dataclass(frozen=True)
class Table:
    """A table of plain texts.

    Attributes:
        caption: What the table holds.
        head: Headings of the columns.
        rows: Cells; the first one of a row names it.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def narrow(self) -> Table:
        """This table in three columns, for small screens: the middle columns are joined."""
        first, *names, last = self.head
        rows = [
            (
                title,
                " ".join(f"{n}: {text}." for n, text in zip(names, cells, strict=True) if text),
                end,
            )
            for title, *cells, end in self.rows
        ]
        return Table(self.caption, (first, "Numbers", last), rows)


def found_in_words(statement: Statement, verdict: Verdict) -> str:
    """Return the finding on a statement with this verdict, without a full stop."""
    found = {
        Verdict.HELD: statement.text,
        Verdict.FAILED: statement.opposite,
        Verdict.UNDECIDED: f"The seeds do not decide this: {statement.text}",
    }
    return capitalised(found[verdict])


def main_statement(evidence: Evidence, verdict: Verdict) -> tuple[Statement, Finding]:
    """Return the first statement that has the verdict on its claim; the first if none has."""
    pairs = list(zip(evidence.statements, evidence.findings, strict=True))
    return next((pair for pair in pairs if pair[1].verdict is verdict), pairs[0])


def values_in_words(evidence: Evidence, statement: Statement, finding: Finding) -> str:
    """Return the values of the arms that a statement compares, and the number of seeds.

    They are means over seeds, and medians of steps. Of four arms, both differences are given.
    """
    unit = statement.measured.unit
    if unit == "doublings":
        values = evidence.scores_at(statement.measure, statement.at)
        medians = (float(np.median(values[name])) for name in statement.arms)
        texts = [f"{2**x:,.0f}" if x < math.inf else "never" for x in medians]
        unit = "steps, median"
    else:
        means = [evidence.mean(name, statement.measure, statement.at) for name in statement.arms]
        if len(means) == 4:
            means = [means[0] - means[1], means[2] - means[3]]
        is_share = unit == "points" or statement.measure == "mass_on_target"
        texts = [_value(mean, is_share) for mean in means]
        unit = "" if is_share else unit
    return f"{' against '.join(texts)} {unit}".rstrip() + f", {counted(finding.n_pairs, 'seed')}"


def _value(mean: float, is_share: bool) -> str:
    if math.isnan(mean):
        return "diverged"
    return percent(mean) if is_share else fixed(mean, 2)


def statements_table(evidence: Evidence) -> Table:
    """Return a row for every statement: seeds that solve the task, pairs, median and mean."""
    rows = [
        (
            statement.text,
            _solved_in_words(evidence, statement),
            pairs_in_words(statement, finding) if finding.method == "pairs" else "",
            difference_in_words(finding.median, statement),
            mean_in_words(statement, finding),
            f"{finding.verdict.mark} {finding.verdict}",
        )
        for statement, finding in zip(evidence.statements, evidence.findings, strict=True)
    ]
    head = ("Tested", "Solved", "Seeds", "Median", "Mean", "Verdict, read alone")
    return Table("All statements", head, rows)


def tuning_table(tuned: Mapping[str, Tuned]) -> Table:
    """Return a row for every arm: its learning rate and schedule, and those that were tried."""
    rows = []
    for name, tuning in tuned.items():
        tried = [
            f"{schedule}: "
            + ", ".join(
                f"{one.rate:g}: {_tried_in_words(one, tuning.by)}"
                for one in tuning.tried
                if one.schedule == schedule
            )
            for schedule in dict.fromkeys(one.schedule for one in tuning.tried)
        ]
        found = f"{tuning.rate:g}, {tuning.schedule}" if tuning.schedule else f"{tuning.rate:g}"
        note = "not learnt with any" if tuning.never_learnt else ""
        rows.append((name, found, f"{tuning.steps:,}", "; ".join(tried), note))
    tried_head = "Tried (rate: seeds that learn, or the mean)"
    head = ("Variant", "Learning rate, schedule", "Steps", tried_head, "Note")
    return Table("How learning rates and schedules were found", head, rows)


def _tried_in_words(tried: Tried, by: str) -> str:
    """Return what a recipe reached: seeds that learn if any does, otherwise its mean."""
    if math.isnan(tried.mean):
        return "diverged"
    if by == "loss":
        return f"{tried.mean:.3f}"
    share = f"{tried.n_solved} of {tried.n_seeds}"
    return share if tried.n_solved else f"{share} ({tried.mean:.0%})"


def finding_in_words(statement: Statement, finding: Finding) -> str:
    """Return the finding on a statement in a few words."""
    mean = mean_in_words(statement, finding)
    if finding.method == "mean":
        n, n_lost = finding.n_pairs, finding.n_lost
        lost = f", diverged with {n_lost} of {n} seeds" if n_lost else ""
        return f"{'mean' if statement.right is None else 'mean difference'} {mean}{lost}"
    median = difference_in_words(finding.median, statement)
    averages = [f"{name} {value}" for name, value in (("median", median), ("mean", mean)) if value]
    return "; ".join(filter(None, [pairs_in_words(statement, finding), ", ".join(averages)]))


def pairs_in_words(statement: Statement, finding: Finding) -> str:
    """Return the numbers of seeds with which the left arm is worse, better and alike."""
    counts_higher = math.isinf(statement.high) != (statement.low < 0 < statement.high)
    is_better = counts_higher == (statement.measured.better > 0)
    first, second = ("better", "worse") if is_better else ("worse", "better")
    lost = f", diverged with {finding.n_lost}" if finding.n_lost else ""
    return (
        f"{first} with {finding.n_worse} of {finding.n_pairs} seeds, {second} with "
        f"{finding.n_better}, alike with {finding.n_alike}{lost}"
    )


def difference_in_words(value: float, statement: Statement) -> str:
    """Return a difference with its sign and unit; empty if it is NaN."""
    if np.isnan(value):
        return ""
    unit = statement.measured.unit
    scale, digits = {"points": (100, 1), "doublings": (1, 1)}.get(unit, (1, 3))
    return f"{fixed(scale * value, digits, '+')} {unit}".rstrip()


def mean_in_words(statement: Statement, finding: Finding) -> str:
    """Return a mean difference with its interval; empty if it is NaN."""
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


def followed_in_words(evidence: Evidence) -> str:
    """Return what became of the arms that lost and were trained for longer; may be empty."""
    parts = []
    for name, arm in evidence.lost:
        if arm.name not in evidence.scores:
            continue
        n_solved, n = evidence.n_solved(arm.name, arm.up_to)
        within = f"within {arm.steps:,} steps"
        if n_solved:
            steps = 2 ** float(np.median(evidence.scores[arm.name]["steps_to_solve"][-1]))
            median = f", after a median of {steps:,.0f}" if math.isfinite(steps) else ""
            parts.append(f"{name} learns later: {n_solved} of {n} seeds {within}{median}")
        else:
            accuracy = percent(evidence.mean(arm.name, at=arm.up_to))
            rises = ", and it still rises" if evidence.still_rises(arm.name) else ""
            parts.append(f"{name} learns with no seed of {n} {within} ({accuracy}{rises})")
    return f"Trained for longer, with recipes tuned for it: {'; '.join(parts)}." if parts else ""


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
        for arm in (short, *(short.longer(LONGEST, (schedule,)) for schedule in SCHEDULES)):
            if arm.name not in evidence.scores or len(multiples(arm.up_to)) < 3:
                continue
            condition = "" if arm is short else f" with a {arm.schedules[0]} rate"
            verb = "still rises at" if evidence.still_rises(arm.name) else "has stopped rising by"
            parts.append(f"{short.name}{condition} {verb} {arm.up_to * arm.base_steps:,} steps")
    return f"Accuracy: {'; '.join(dict.fromkeys(parts))}." if parts else ""
