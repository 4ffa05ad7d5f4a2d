"""The rule: from the scores of seeds to a verdict. Values in, values out.

A statement wants a difference to lie in a region. Two intervals can say whether it does:

- Where seeds scatter around a mean (losses, symmetries), Student's interval of the mean of the
  paired differences, against the limits of the region.
- Where a run has found the answer or has not (accuracies), the number of pairs whose difference
  lies in the region, with the exact binomial interval of Clopper and Pearson, against one half:
  does it hold for most seeds? It needs no assumption about how scores are distributed, and it says
  so plainly: 12 of 12 pairs, at least 73% of all seeds.

Which of them it is stands in the measure, before the runs, and not in the data. The statement is
supported if the interval lies in the region, contradicted if it lies outside, else inconclusive;
with fewer than `LEAST_SEEDS` pairs it is always inconclusive. A claim is supported if all its
statements are, contradicted if one is, after Bonferroni. Verdicts that are read together are
corrected after Holm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64
from scipy.stats import binomtest, t

from attnkit.claims.base import Statement, Verdict
from attnkit.statistics import mean_interval

LEVEL = 0.95
"""Of all intervals and verdicts."""

LEAST_SEEDS = 6
"""With 5 pairs the smallest two-sided p of a sign test is 0.0625: nothing could be said."""

Method = Literal["pairs", "mean"]

MARKS: dict[Verdict, str] = {"supported": "✓", "contradicted": "✗", "inconclusive": "?"}
"""Beside the words, so that a verdict is seen from afar and never by colour alone."""

Scores = Float64[np.ndarray, " s"]


@dataclass(frozen=True)
class Finding:
    """What the seeds say about one statement.

    Attributes:
        n_pairs: seeds that both arms have.
        n_holding: of them, those whose own difference lies in the region.
        effect: mean difference. effect_low, effect_high: Student's limits of it.
        share_low, share_high: exact limits of the share of pairs that hold.
        method: which of the two intervals decides.
        p_supported, p_contradicted: the level at which either verdict would no longer stand; 1 if
            the seeds lean the other way or are too few.
    """

    n_pairs: int
    n_holding: int
    effect: float
    effect_low: float
    effect_high: float
    share_low: float
    share_high: float
    method: Method
    p_supported: float
    p_contradicted: float

    @property
    def verdict(self) -> Verdict:
        """Of the statement alone."""
        if self.p_supported <= 1 - LEVEL:
            return "supported"
        return "contradicted" if self.p_contradicted <= 1 - LEVEL else "inconclusive"


@dataclass(frozen=True)
class Judgement:
    """What the findings say about a claim.

    Attributes:
        verdict: read alone. p: the level at which it would no longer stand.
    """

    verdict: Verdict
    p: float


def differences(statement: Statement, scores: Mapping[str, Scores]) -> Scores:
    """(s,) what the statement is about, seed by seed; NaN where a seed lacks something."""
    found = scores[statement.left]
    if statement.right is not None:
        found = found - scores[statement.right]
    if statement.left_too is not None and statement.right_too is not None:
        found = found - (scores[statement.left_too] - scores[statement.right_too])
    return found


def find(statement: Statement, values: Scores) -> Finding:
    """Judge one statement.

    Args:
        values: (s,) of `differences`. A run that diverged has no score: a pair of such a run
            counts against either verdict, and no mean is then trusted.
    """
    known = values[~np.isnan(values)]
    n = len(values)
    holding = int(((known > statement.low) & (known < statement.high)).sum())
    lost = n - len(known)
    interval = mean_interval(known, LEVEL)
    method: Method = "mean" if statement.measured.scatters and not lost else "pairs"
    share_low, share_high = (0.0, 1.0)
    if n:
        share_low, share_high = _share(holding, n)[0], _share(holding + lost, n)[1]
    if n < LEAST_SEEDS:
        supported = contradicted = 1.0
    elif method == "pairs":
        supported, contradicted = _by_pairs(holding, n)[0], _by_pairs(holding + lost, n)[1]
    else:
        supported, contradicted = _by_mean(known, statement.low, statement.high)
    return Finding(
        n,
        holding,
        float(interval.mean),
        float(interval.low),
        float(interval.high),
        share_low,
        share_high,
        method,
        supported,
        contradicted,
    )


def _share(holding: int, n: int) -> tuple[float, float]:
    """Limits of Clopper and Pearson."""
    exact = binomtest(holding, n).proportion_ci(LEVEL, "exact")
    return float(exact.low), float(exact.high)


def _by_pairs(holding: int, n: int) -> tuple[float, float]:
    """Two-sided p of “half of all seeds”, for the side to which the pairs lean."""
    p = min(1.0, float(2 * binomtest(max(holding, n - holding), n, 0.5, "greater").pvalue))
    return (p, 1.0) if 2 * holding > n else (1.0, p if 2 * holding < n else 1.0)


def _by_mean(values: Scores, low: float, high: float) -> tuple[float, float]:
    """Two-sided p of “the mean lies on the limit”, for the side on which it lies."""
    mean, error = values.mean(), values.std(ddof=1) / math.sqrt(len(values))
    inside = low < mean < high

    def p(limit: float) -> float:
        if math.isinf(limit):
            return 0.0
        if math.isclose(mean, limit, rel_tol=1e-12, abs_tol=1e-12):
            return 1.0  # on the limit, as far as rounding tells
        if error == 0:
            return 0.0
        return float(2 * t.sf(abs(mean - limit) / error, len(values) - 1))

    if inside:
        return max(p(low), p(high)), 1.0
    return 1.0, p(low) if mean <= low else p(high)


def judge(findings: Sequence[Finding]) -> Judgement:
    """The verdict on a claim, all of whose statements must hold."""
    supported = max(one.p_supported for one in findings)
    contradicted = min(1.0, len(findings) * min(one.p_contradicted for one in findings))
    alpha = 1 - LEVEL
    if supported <= alpha and supported <= contradicted:
        return Judgement("supported", supported)
    if contradicted <= alpha:
        return Judgement("contradicted", contradicted)
    return Judgement("inconclusive", min(supported, contradicted))


def judge_together(judgements: Sequence[Judgement]) -> list[Verdict]:
    """The verdicts that still stand when all are read together, after Holm.

    The chance that any of them is wrong is at most 5%, however many there are.
    """
    order = sorted(range(len(judgements)), key=lambda place: judgements[place].p)
    verdicts: list[Verdict] = ["inconclusive"] * len(judgements)
    for rank, place in enumerate(order):
        if judgements[place].p > (1 - LEVEL) / (len(judgements) - rank):
            break
        verdicts[place] = judgements[place].verdict
    return verdicts
