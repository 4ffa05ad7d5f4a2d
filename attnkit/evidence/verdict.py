"""Rule that turns the scores of seeds into a verdict.

A statement holds if the difference between two arms lies in a region. The measure determines the
test, which is fixed before the runs:

- Losses and symmetries scatter around a mean. Student's interval of the mean of the paired
  differences is compared with the limits of the region.
- Accuracies do not: a run has found the answer or it has not. So pairs of seeds are counted. A pair
  is *worse* if its difference lies beyond the limit of the statement, and *better* if it lies as
  far on the other side of 0. "Worse" is shown by McNemar's exact sign test on these discordant
  pairs. "No worse" is shown if at most `MOST_WORSE` of all seeds can be worse, by the upper limit
  of Clopper and Pearson. Otherwise the statement is undecided.

With fewer than `LEAST_SEEDS` pairs a statement is always undecided. A claim held if all its
statements held; it did not hold if one of them did not, after Bonferroni's correction. Verdicts of
several claims that are read together are corrected by Holm's method.

References: McNemar 1947, doi:10.1007/BF02295996; Clopper and Pearson 1934,
doi:10.1093/biomet/26.4.404; Holm 1979, www.jstor.org/stable/4615733.
"""

from __future__ import annotations

import hashlib
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float64
from scipy.special import bdtr, bdtrc, betaincinv, stdtr

from attnkit.claims.base import FOLLOWED, LEAST_SEEDS, LONGEST, Verdict
from attnkit.claims.statements import Statement, joined
from attnkit.foundation.language import Message, mark
from attnkit.training.statistics import mean_interval, median_interval

LEVEL = 0.95
"""Confidence level of all intervals and verdicts."""

MOST_WORSE = 0.2
"""An arm is "no worse" if at most this share of seeds can be worse."""

ROUNDING = 1e-6
"""Amount by which a difference must exceed a limit to count as beyond it.

Records are rounded to nine digits, and "more than four times the steps" must not depend on that.
"""

Method = Literal["pairs", "mean"]

_RULES = (
    mark(
        "1. A claim says in numbers what must hold, for example “Q=K is worse than QKV by more "
        "than 5 points”. That and our prediction are written down before the runs of the record "
        "begin; what had been seen by then is told beside it."
    ),
    mark(
        "2. Every variant is trained on the same seeds, each with the learning rate and the "
        "schedule (constant, or cosine with a warm-up) that are best for its number of steps. They "
        "are found on ten other seeds by how many of these learn the task, and then by how fast "
        "they do; of those as good, the middle one is taken. More learning rates are tried until "
        "the best one has a smaller and a larger neighbour."
    ),
    mark(
        "3. Accuracies: seeds are compared one by one. **Worse** means that significantly more "
        "seeds end worse than better by the amount that the claim names (exact McNemar test), with "
        "each of the four best learning rates and schedules of the variant that loses, as tuning "
        "may have missed the best. If no more than half of the seeds are worse, we say that the "
        "variant **falls behind more often**."
    ),
    mark(
        "**No worse** means that at most {most_worse:.0%} of all seeds can be worse (upper limit "
        "of the exact 95% interval). Losses, symmetries, and accuracies on tasks that no run "
        "solves: the mean difference, with Student's interval.",
        most_worse=MOST_WORSE,
    ),
    mark(
        "4. If the data show what the claim says, it **held**; if they show the opposite, it "
        "**did not hold**; otherwise, or with fewer than {least_seeds} seeds, it is **undecided**.",
        least_seeds=LEAST_SEEDS,
    ),
    mark(
        "5. Everything that a claim says must hold. “Cannot” must also hold after {longest} times "
        "the steps, with the best constant and the best cosine learning rate for so many steps. "
        "Any other variant whose accuracy loses is followed for longer, mostly {followed} times "
        "the steps: then we say how many seeds learn by then, and after how many steps.",
        longest=LONGEST,
        followed=FOLLOWED,
    ),
    mark(
        "6. The shipped verdicts are read together, at a level of 5% (Holm's correction). Tuning "
        "can err as well; a simulation with resampled runs says how often the whole procedure "
        "finds a difference where there is none. A run of your own is read alone."
    ),
)

RULE = joined(*_RULES, between="\n")
"""The rule in words, as Markdown for pages; `tr` translates it."""


_LINES = [
    textwrap.fill(rule.template, 100).format(**rule.values)
    for rule in _RULES
    if isinstance(rule, Message)
]

RULE_HASH = hashlib.blake2b("\n".join(["", *_LINES, ""]).encode(), digest_size=8).hexdigest()
"""Sixteen hexadecimal digits that identify the English wording of the rule, in lines of 100 columns
that were wrapped before its numbers were filled in."""

Scores = Float64[np.ndarray, " s"]


@dataclass(frozen=True)
class Finding:
    """Result of the test of one statement.

    Attributes:
        statement: The statement.
        n_pairs: Number of seeds that both arms have.
        n_worse: Pairs whose difference a statement of "worse" (or "better") asserts, or one of "no
            worse" excludes; for a region with two limits, pairs outside it.
        n_better: Pairs that differ as much in the other direction.
        n_lost: Pairs in which a run diverged.
        effect: Mean difference; the median difference if pairs are counted.
        effect_low: Lower limit of Student's interval of the mean, or of the exact interval of the
            median, which holds for differences of any distribution.
        effect_high: Upper limit of that interval.
        share_low: Lower limit of the share of seeds that are worse, from 0 to 1.
        share_high: Upper limit of that share.
        method: Test that decides: "pairs" counts pairs of seeds, "mean" compares means.
        p_held: Two-sided p-value for "held"; 1 if the seeds do not show it.
        p_not: Two-sided p-value for "did not hold"; 1 if the seeds do not show it.
    """

    statement: Statement
    n_pairs: int
    n_worse: int
    n_better: int
    n_lost: int
    effect: float
    effect_low: float
    effect_high: float
    share_low: float
    share_high: float
    method: Method
    p_held: float
    p_not: float

    @property
    def n_alike(self) -> int:
        """Pairs that are neither worse nor better."""
        return self.n_pairs - self.n_worse - self.n_better - self.n_lost

    @property
    def is_frequency(self) -> bool:
        """Whether pairs are counted, and some but no more than half of them are worse."""
        return self.method == "pairs" and 0 < 2 * self.n_worse <= self.n_pairs

    @property
    def verdict(self) -> Verdict:
        """The verdict on this statement alone."""
        if self.p_held <= 1 - LEVEL:
            return Verdict.HELD
        return Verdict.FAILED if self.p_not <= 1 - LEVEL else Verdict.UNDECIDED

    @property
    def loser(self) -> str | None:
        """Name of the arm that is worse than the other one; None if neither is shown."""
        shown = Verdict.HELD if self.statement.asserts_difference else Verdict.FAILED
        if self.verdict is not shown:
            return None
        return self.statement.right if self.statement.counts_better else self.statement.left


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim.

    Attributes:
        verdict: The verdict if the claim is read alone.
        p: Smallest level at which the verdict stands; for "undecided" the smaller of both p-values.
    """

    verdict: Verdict
    p: float


def differences(statement: Statement, scores: Mapping[str, Scores]) -> Scores:
    """Return the differences between the arms of a statement, (s,), seed by seed.

    They are NaN where a run diverged. If one arm has more seeds than another, only the first seeds
    are compared. Two runs that never solve the task differ by 0 in the steps to solve it.
    """
    n = min(len(scores[name]) for name in statement.arms)
    values = scores[statement.left][:n]
    if statement.right is not None:
        right = scores[statement.right][:n]
        with np.errstate(invalid="ignore"):
            values = np.where(np.isinf(values) & np.isinf(right), 0.0, values - right)
    if statement.second_left is not None and statement.second_right is not None:
        values = values - (scores[statement.second_left][:n] - scores[statement.second_right][:n])
    return values


def judge_statement(statement: Statement, values: Scores) -> Finding:
    """Return the finding on one statement.

    Args:
        values: (s,) as `differences` returns them. A pair in which a run diverged, NaN, counts
            against either verdict, and means are then not compared.
    """
    n, compares_means = len(values), statement.measured.compares_means
    # "Worse" and "better" assert pairs beyond their limit; "no worse" excludes them.
    limit = statement.high if math.isinf(statement.low) else statement.low
    sign = 1 if math.isinf(statement.high) == statement.asserts_difference else -1
    signed, least = sign * values, abs(limit) + ROUNDING
    counted = (signed > least, signed < -least, np.isnan(values))
    worse, better, lost = (int(pairs.sum()) for pairs in counted)
    p_held = p_not = 1.0
    if n >= LEAST_SEEDS and compares_means:
        p_held, p_not = _by_mean(values, statement)
    elif n >= LEAST_SEEDS:
        against = better + lost  # McNemar's exact test, two-sided
        p_worse = 2 * bdtrc(worse - 1, worse + against, 0.5) if worse > against else 1.0
        p_both = (min(1.0, float(p_worse)), min(1.0, 2 * float(bdtr(worse + lost, n, MOST_WORSE))))
        p_held, p_not = p_both if statement.asserts_difference else p_both[::-1]
    known = np.full(1, np.nan) if compares_means and np.isinf(values).any() else values
    interval = (mean_interval if compares_means else median_interval)(known, LEVEL)
    tail, most = (1 - LEVEL) / 2, worse + lost  # Clopper and Pearson
    share_low = float(betaincinv(worse, n - worse + 1, tail)) if worse else 0.0
    share_high = float(betaincinv(most + 1, n - most, 1 - tail)) if most < n else 1.0
    return Finding(
        statement,
        *(n, worse, better, lost),
        *(float(interval.mean), float(interval.low), float(interval.high)),
        *(share_low, share_high),
        "mean" if compares_means else "pairs",
        *(p_held, p_not),
    )


def _by_mean(values: Scores, statement: Statement) -> tuple[float, float]:
    """Return the p-values of "held" and of "did not hold" by Student's t test of the mean."""
    if not np.isfinite(values).all():
        return 1.0, 1.0
    n, mean = len(values), float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(n)

    def p(limit: float) -> float:
        if math.isclose(mean, limit, rel_tol=1e-12, abs_tol=1e-12):  # up to rounding
            return 1.0
        is_certain = math.isinf(limit) or error == 0
        return 0.0 if is_certain else float(2 * stdtr(n - 1, -abs(mean - limit) / error))

    if statement.low < mean < statement.high:
        return max(p(statement.low), p(statement.high)), 1.0
    return 1.0, p(statement.low if mean <= statement.low else statement.high)


def with_rivals(finding: Finding, others: Sequence[Finding]) -> Finding:
    """Return the finding on a statement that stands with every recipe of the arm that is worse.

    Args:
        others: Findings with the next best ones. The largest p-value counts: to be called worse, an
            arm must be so with each of them, because tuning may have missed the best one.
    """
    every = (finding, *others)
    if finding.verdict is Verdict.HELD:
        return replace(finding, p_held=max(one.p_held for one in every))
    return replace(finding, p_not=max(one.p_not for one in every))


def judge(findings: Sequence[Finding], *, all_tested: bool = True) -> Judgement:
    """Return the verdict on a claim from the findings on its statements, which must all hold.

    Unless all were tested, the claim may be refuted, but cannot hold.
    """
    p_held = max(finding.p_held for finding in findings) if all_tested else 1.0
    p_not = min(1.0, len(findings) * min(finding.p_not for finding in findings))
    alpha = 1 - LEVEL
    if p_held <= alpha and p_held <= p_not:
        return Judgement(Verdict.HELD, p_held)
    if p_not <= alpha:
        return Judgement(Verdict.FAILED, p_not)
    return Judgement(Verdict.UNDECIDED, min(p_held, p_not))


def judge_together(judgements: Sequence[Judgement]) -> list[Verdict]:
    """Return the verdicts that still stand if all are read together, by Holm's method.

    With given recipes, the chance that any of them is wrong is at most 5%, however many there are.
    """
    order = sorted(range(len(judgements)), key=lambda index: judgements[index].p)
    verdicts = [Verdict.UNDECIDED] * len(judgements)
    for rank, index in enumerate(order):
        if judgements[index].p > (1 - LEVEL) / (len(judgements) - rank):
            break
        verdicts[index] = judgements[index].verdict
    return verdicts
