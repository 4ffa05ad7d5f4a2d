"""Values of the arms that a statement compares, and numbers of seeds, in words."""

from __future__ import annotations

import math

import numpy as np

from attnkit.claims.statements import Statement
from attnkit.evidence.record import Evidence
from attnkit.evidence.verdict import Finding
from attnkit.foundation.language import mark, tr, tr_n
from attnkit.training.summary import fixed, percent


def values_in_words(evidence: Evidence, statement: Statement, finding: Finding) -> str:
    """Return the values of the arms that a statement compares, and the number of seeds.

    They are means over seeds, and medians of steps; numbers of seeds that have solved the task, if
    some seeds of an arm have and others have not. Of four arms, both differences are given. If only
    some pairs differ, the text begins with their number.
    """
    solved = list(_solved_by_some(evidence, statement).values())
    if solved:
        (left, n_left), (right, n_right) = solved
        text = tr(
            "{left} of {n_left} against {right} of {n_right} seeds solve the task",
            left=left,
            n_left=n_left,
            right=right,
            n_right=n_right,
        )
    else:
        seeds = tr_n("{n} seed", "{n} seeds", finding.n_pairs)
        text = f"{_values_of_arms(evidence, statement)}, {seeds}"
    if not finding.is_frequency:
        return text
    return f"{_counts_in_words(statement, finding)}; {text}"


def _counts_in_words(statement: Statement, finding: Finding) -> str:
    """Return the numbers of seeds that differ in the direction of a statement, and in the other."""
    numbers = {"all": finding.n_pairs, "n_others": finding.n_better}
    if statement.counts_better:
        return tr_n(
            "{n} of {all} seeds gets ahead, {n_others} the other way round",
            "{n} of {all} seeds get ahead, {n_others} the other way round",
            finding.n_worse,
            **numbers,
        )
    return tr_n(
        "{n} of {all} seeds falls behind, {n_others} the other way round",
        "{n} of {all} seeds fall behind, {n_others} the other way round",
        finding.n_worse,
        **numbers,
    )


def _values_of_arms(evidence: Evidence, statement: Statement) -> str:
    """Return the means of arms, or two differences of them, or medians of steps."""
    unit = statement.measured.unit
    if unit == "doublings":
        return _steps_of_arms(evidence, statement)
    means = [evidence.mean(name, statement.measure, statement.at) for name in statement.arms]
    if len(means) == 4:
        means = [means[0] - means[1], means[2] - means[3]]
    is_share = unit == "points" or statement.measure == "mass_on_target"
    first, *others = [_value(mean, is_share) for mean in means]
    is_in_nats = unit == "nats"
    if not others:
        return tr("{number} nats", number=first) if is_in_nats else first
    if is_in_nats:
        return tr("{left} against {right} nats", left=first, right=others[0])
    # Translators: values of two variants, such as "50% against 99%".
    return tr("{left} against {right}", left=first, right=others[0])


_MEDIAN_STEPS = {
    # Translators: steps until two variants solve the task; "we gave" steps for training.
    (True, True): mark("{left:,.0f} against {right:,.0f} steps, median"),
    (True, False): mark("{left:,.0f} steps against more than we gave, median"),
    (False, True): mark("more than we gave against {right:,.0f} steps, median"),
    (False, False): mark("more steps than we gave with both, median"),
}
"""Medians of the steps until two arms solve a task, by whether each does."""


def _steps_of_arms(evidence: Evidence, statement: Statement) -> str:
    """Return the median numbers of steps until two arms solve their task."""
    values = evidence.scores_at(statement.measure, statement.at)
    left, right = (
        2 ** float(np.median(np.where(np.isnan(values[name]), np.inf, values[name])))
        for name in statement.arms
    )
    return tr(_MEDIAN_STEPS[left < math.inf, right < math.inf], left=left, right=right)


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
        return tr("diverged")
    return percent(mean) if is_share else fixed(mean, 2)
