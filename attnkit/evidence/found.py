"""What the seeds show on a statement of a claim, said in positive words.

A statement that held is repeated. One that did not hold is replaced by its opposite: "Q=K is worse
than QKV by more than 5 points" by "Q=K is at most 5 points worse than QKV", and the other way
round. A statement can bring words of its own for both.
"""

from __future__ import annotations

import math

import numpy as np

from attnkit.claims import Verdict
from attnkit.claims.statements import Statement
from attnkit.evidence.record import Evidence
from attnkit.evidence.verdict import Finding
from attnkit.training.summary import percent

_PLAIN = ("accuracy", "mean_accuracy", "loss")
"""Measures that a comparison does not name."""


def found_in_words(statement: Statement, verdict: Verdict) -> str:
    """Return what is found on a statement if it has this verdict; without a full stop."""
    if verdict == "undecided":
        return f"The seeds do not decide this: {statement.text}"
    held = verdict == "held"
    by_hand = statement.if_held if held else statement.if_not
    if by_hand:
        return by_hand
    condition, left, right = _without_condition(statement)
    if held and not (condition and statement.text.startswith(statement.left)):
        return statement.text  # written by hand, or from names that need no change
    if statement.right is None:
        return f"{_capitalised(statement.measured.title)} of {left} {_outside(statement)}"
    if statement.second_left is not None:
        return (
            f"The difference between {left} and {right} exceeds that between "
            f"{statement.second_left} and {statement.second_right} {_by(statement)}"
        )
    if math.isfinite(statement.low) and math.isfinite(statement.high):
        title = statement.measured.title
        return f"The difference in {title} between {left} and {right} {_outside(statement)}"
    text = _comparison(statement, left, right, held)
    return f"{_capitalised(condition)}: {text}" if condition else text


def main_statement(evidence: Evidence, verdict: Verdict) -> tuple[Statement, Finding]:
    """Return the first statement that has the verdict on its claim; the first if none has."""
    pairs = list(zip(evidence.statements, evidence.findings, strict=True))
    return next((pair for pair in pairs if pair[1].verdict == verdict), pairs[0])


def main_found(evidence: Evidence, verdict: Verdict) -> str:
    """Return what is found on the main statement, with the values of its arms, in a sentence.

    It is called probable if it stands alone, and the claim is undecided together with all others.
    """
    statement, finding = main_statement(evidence, verdict)
    found = _capitalised(found_in_words(statement, finding.verdict))
    if verdict == "undecided" != finding.verdict:
        found = f"Probably: {found}"
    return f"{found} ({values_in_words(evidence, statement, finding)})."


def values_in_words(evidence: Evidence, statement: Statement, finding: Finding) -> str:
    """Return the values of the arms that a statement compares, and the number of seeds.

    They are means over seeds, and medians of steps. Of four arms, both differences are given.
    """
    values = evidence.scores_at(statement.measure, statement.at)
    unit = statement.measured.unit
    if unit == "doublings":
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
    n_seeds = f"{finding.n_pairs} seed{'s' * (finding.n_pairs != 1)}"
    return f"{' against '.join(texts)} {unit}".rstrip() + f", {n_seeds}"


def _value(mean: float, is_share: bool) -> str:
    if math.isnan(mean):
        return "diverged"
    return percent(mean) if is_share else f"{mean:z.2f}".replace("-", "−")


def _without_condition(statement: Statement) -> tuple[str, str, str]:
    """Return the condition that the names of both arms end with, and the names without it."""
    left, right = statement.left, statement.right or ""
    (left_name, _, condition), (right_name, _, other) = left.partition(", "), right.partition(", ")
    if condition == other and statement.second_left is None:
        return condition, left_name, right_name
    return "", left, right


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _comparison(statement: Statement, left: str, right: str, held: bool) -> str:
    """Return a statement on two arms with one limit in words, or its opposite."""
    limit, better = _limit(statement), statement.measured.better
    is_above = math.isfinite(statement.low) == held  # whether differences lie above the limit
    more, less = {1: ("better", "worse"), -1: ("worse", "better"), 0: ("higher", "lower")}[better]
    title = statement.measured.title
    subject, object_ = (left, right) if better else (f"The {title} of {left}", f"that of {right}")
    if not limit:
        bound, quality = "least" if is_above == (more != "worse") else "most", "good"
        return f"{subject} is at {bound} as {quality if better else 'high'} as {object_}"
    word = more if limit > 0 else less
    is_beyond = is_above == (limit > 0)
    if statement.measured.unit == "doublings":
        slow, fast = (left, right) if word == "worse" else (right, left)
        how_many = "more than" if is_beyond else "at most"
        return f"{slow} needs {how_many} {2 ** abs(limit):g} times the steps of {fast}"
    amount = _amount(statement, abs(limit))
    what = "" if statement.measure in _PLAIN or not better else f" in {title}"
    if is_beyond:
        return f"{subject} is {word} than {object_} by more than {amount}{what}"
    return f"{subject} is at most {amount} {word} than {object_}{what}"


def _limit(statement: Statement) -> float:
    return statement.low if math.isinf(statement.high) else statement.high


def _by(statement: Statement) -> str:
    """Return by how much a difference of differences exceeds, if the statement did not hold."""
    if math.isfinite(statement.high):
        return f"by more than {_amount(statement, statement.high)}"
    return f"by at most {_amount(statement, statement.low)}"


def _outside(statement: Statement) -> str:
    """Return the region in which a value lies if the statement did not hold."""
    low, high = (_amount(statement, limit) for limit in (statement.low, statement.high))
    if math.isinf(statement.low):
        return f"is above {high}"
    return f"is below {low}" if math.isinf(statement.high) else f"is not within {low} to {high}"


def _amount(statement: Statement, amount: float) -> str:
    """Return an amount with the unit of a statement's measure."""
    unit = statement.measured.unit
    number = f"{100 * amount:g}" if unit == "points" else f"{amount:g}"
    return f"{number} {unit}".rstrip().replace("-", "−")
