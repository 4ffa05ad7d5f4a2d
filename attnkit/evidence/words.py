"""Sentences and tables about statements and what is found on them; plain texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnkit.claims import Verdict
from attnkit.claims.base import LONGEST, SCHEDULES
from attnkit.claims.measures import multiples
from attnkit.claims.statements import Statement
from attnkit.evidence.record import Evidence, rivals_of
from attnkit.evidence.tuning import Tried
from attnkit.evidence.verdict import Finding, loser
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


def tested_in_words(statement: Statement, finding: Finding) -> str:
    """Return a statement in words that its finding allows, without a full stop.

    A variant that falls behind with no more than half of the seeds is not called worse; it falls
    behind more often.
    """
    is_frequency = statement.asserts_difference and finding.is_frequency
    return statement.more_often if is_frequency else statement.text


def found_in_words(statement: Statement, finding: Finding) -> str:
    """Return the finding on a statement, without a full stop."""
    tested = tested_in_words(statement, finding)
    is_frequency = not statement.asserts_difference and finding.is_frequency
    found = {
        Verdict.HELD: tested,
        Verdict.FAILED: statement.more_often if is_frequency else statement.opposite,
        Verdict.UNDECIDED: f"The seeds do not decide this: {tested}",
    }
    return capitalised(found[finding.verdict])


def main_statement(evidence: Evidence, verdict: Verdict) -> tuple[Statement, Finding]:
    """Return the first statement that has the verdict on its claim; the first if none has.

    If only the other claims, read together with this one, leave it undecided, that is the statement
    which is the least certain.
    """
    pairs = list(zip(evidence.statements, evidence.findings, strict=True))
    alone = evidence.judgement.verdict
    if verdict is Verdict.UNDECIDED and alone is Verdict.HELD:
        return max(pairs, key=lambda pair: pair[1].p_held)
    wanted = (verdict, alone)
    found = [pair for one in wanted for pair in pairs if pair[1].verdict is one]
    return found[0] if found else pairs[0]


def values_in_words(evidence: Evidence, statement: Statement, finding: Finding) -> str:
    """Return the values of the arms that a statement compares, and the number of seeds.

    They are means over seeds, and medians of steps; numbers of seeds that have solved the task, if
    some seeds of an arm have and others have not. Of four arms, both differences are given. If only
    some pairs differ, the text begins with their number.
    """
    unit = statement.measured.unit
    solved = _solved_by_some(evidence, statement)
    if unit == "doublings":
        values = evidence.scores_at(statement.measure, statement.at)
        reached = (
            np.where(np.isnan(values[name]), np.inf, values[name]) for name in statement.arms
        )
        medians = map(float, map(np.median, reached))
        texts = [f"{2**x:,.0f}" if x < math.inf else "more than we gave" for x in medians]
        unit = "steps, median"
    elif solved:
        texts, unit = [f"{n} of {of}" for n, of in solved.values()], "seeds solve the task"
    else:
        means = [evidence.mean(name, statement.measure, statement.at) for name in statement.arms]
        if len(means) == 4:
            means = [means[0] - means[1], means[2] - means[3]]
        is_share = unit == "points" or statement.measure == "mass_on_target"
        texts = [_value(mean, is_share) for mean in means]
        unit = "" if is_share else unit
    text = f"{' against '.join(texts)} {unit}".rstrip()
    if not solved:
        text += f", {counted(finding.n_pairs, 'seed')}"
    if not finding.is_frequency:
        return text
    ending = "s" if finding.n_worse == 1 else ""
    change = f"get{ending} ahead" if statement.counts_better else f"fall{ending} behind"
    return (
        f"{finding.n_worse} of {finding.n_pairs} seeds {change}, {finding.n_better} the other way "
        f"round; {text}"
    )


def _solved_by_some(evidence: Evidence, statement: Statement) -> dict[str, tuple[int, int]]:
    """Return arm → number of seeds that have solved the task, and of all seeds.

    Empty if the statement is not about accuracies, or if each arm has the task solved with all
    seeds or with none: then means describe the seeds.
    """
    if statement.measure != "accuracy":
        return {}
    solved = {name: evidence.n_solved(name, statement.at) for name in statement.arms}
    return solved if any(0 < n < of for n, of in solved.values()) else {}


def _value(mean: float, is_share: bool) -> str:
    if math.isnan(mean):
        return "diverged"
    return percent(mean) if is_share else fixed(mean, 2)


def statements_table(evidence: Evidence) -> Table:
    """Return a row for every statement: seeds that solve the task, pairs, and the difference."""
    rows = [
        (
            tested_in_words(statement, finding),
            _solved_in_words(evidence, statement),
            _seeds_in_words(evidence, statement, finding),
            effect_in_words(statement, finding),
            f"{finding.verdict.mark} {finding.verdict}",
        )
        for statement, finding in zip(evidence.statements, evidence.findings, strict=True)
    ]
    head = ("Tested", "Solved", "Seeds", "Difference", "Verdict, read alone")
    return Table("All statements", head, rows)


def _seeds_in_words(evidence: Evidence, statement: Statement, finding: Finding) -> str:
    """Return how many seeds are worse, and with how many more recipes the verdict stands."""
    if finding.method == "mean":
        return ""
    names = rivals_of(loser(statement, finding) or "", evidence.tuned)
    n_more = sum(name in evidence.scores for name in names)
    more = f"; the same with {n_more} more learning rates or schedules" if n_more else ""
    return pairs_in_words(statement, finding) + more


def tuning_table(evidence: Evidence) -> Table:
    """Return a row for every arm: its learning rate and schedule, and those that were tried."""
    rows, rivals = [], {arm.name for arm in evidence.rivals}
    for name, tuning in evidence.tuned.items():
        if name in rivals:
            continue
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
        note = "best at the edge of the grid" if tuning.at_edge else ""
        note = "not learnt with any" if tuning.never_learnt else note
        note = note if tuning.tried else "tuned by an earlier rule"
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
    effect = effect_in_words(statement, finding)
    if finding.method == "pairs":
        return "; ".join(filter(None, [pairs_in_words(statement, finding), effect]))
    n, n_lost = finding.n_pairs, finding.n_lost
    return effect + (f", diverged with {n_lost} of {n} seeds" if n_lost else "")


def pairs_in_words(statement: Statement, finding: Finding) -> str:
    """Return the numbers of seeds with which the left arm is worse, better and alike.

    The first number has the exact interval of its share.
    """
    first, second = ("better", "worse") if statement.counts_better else ("worse", "better")
    lost = f", diverged with {finding.n_lost}" if finding.n_lost else ""
    return (
        f"{first} with {finding.n_worse} of {finding.n_pairs} seeds [{percent(finding.share_low)} "
        f"to {percent(finding.share_high)}], {second} with {finding.n_better}, alike with "
        f"{finding.n_alike}{lost}"
    )


def difference_in_words(value: float, statement: Statement) -> str:
    """Return a difference with its sign and unit; empty if it is NaN."""
    if np.isnan(value):
        return ""
    unit = statement.measured.unit
    scale, digits = {"points": (100, 1), "doublings": (1, 1)}.get(unit, (1, 3))
    return f"{fixed(scale * value, digits, '+')} {unit}".rstrip()


def effect_in_words(statement: Statement, finding: Finding) -> str:
    """Return the median or mean difference with its interval; empty if it is NaN."""
    effect, low, high = (
        difference_in_words(value, statement)
        for value in (finding.effect, finding.effect_low, finding.effect_high)
    )
    if not effect:
        return ""
    noun = "median" if finding.method == "pairs" else "mean"
    noun += " difference" if statement.right is not None else ""
    unit = f" {statement.measured.unit}".rstrip()
    interval = f" [{low.removesuffix(unit)} to {high.removesuffix(unit)}]" if low and high else ""
    return f"{noun} {effect}{interval}"


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
            parts.append(f"{name} learns later, {n_solved} of {n} seeds {within}{median}")
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


def longer_in_words(evidence: Evidence) -> str:
    """Return what longer training has shown; empty if there was none."""
    return " ".join(filter(None, (rises_in_words(evidence), followed_in_words(evidence))))
