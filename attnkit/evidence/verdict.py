"""The rule that turns the scores of seeds into a verdict. Values in, values out.

A statement wants the difference between two arms to lie in a region. How that is decided belongs to
the measure and is fixed before the runs:

- Losses and symmetries scatter around a mean. Student's interval of the mean of the paired
  differences is compared with the limits of the region.
- Accuracies do not: a run has found the answer or it has not. So pairs of seeds are counted. A pair
  is *worse* if its difference lies beyond the limit that the statement names, and *better* if it
  lies as far on the other side. "Worse" is shown by the exact sign test of McNemar on these
  discordant pairs. "No worse" is shown if at most `MOST_WORSE` of all seeds can be worse: the upper
  limit of Clopper and Pearson. Between the two nothing is decided.

With fewer than `LEAST_SEEDS` pairs a statement is always undecided. A claim held if all its
statements did; it did not hold if one of them did not, after Bonferroni's correction. Verdicts that
are read together are corrected after Holm.

References: McNemar 1947, doi:10.1007/BF02295996; Clopper and Pearson 1934,
doi:10.1093/biomet/26.4.404; Holm 1979, www.jstor.org/stable/4615733.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64
from scipy.special import betaincinv
from scipy.stats import binom, binomtest, t

from attnkit.claims.base import LEAST_SEEDS, LONGEST, Statement, Verdict
from attnkit.training.statistics import mean_interval

LEVEL = 0.95
"""Confidence level of all intervals and verdicts."""

MOST_WORSE = 0.2
"""An arm is "no worse" if we can be sure that it is worse with at most this share of seeds."""

ROUNDING = 1e-6
"""A difference counts as beyond a limit if it is so by more than this.

Records are written with nine digits, and "more than four times the steps" must not depend on that.
"""

STILL_RISES = 0.02
"""Accuracy still rises if the last or the last but one doubling of the steps adds more than this.

In other words: two doublings in a row must each add less before a run counts as finished.
"""

Method = Literal["pairs", "mean"]

MARKS: dict[Verdict, str] = {"held": "✓", "did not hold": "✗", "undecided": "?"}
"""Marks beside the words, so that no verdict is told by colour alone."""

RULE = f"""
1. A claim says in numbers what must hold, for example “Q=K is worse than QKV by more than 5
points”. That and our prediction are written down before the runs of the record begin; what had been
seen by then is told beside it.
2. Every variant is trained on the same seeds, each at the best of several learning rates, which
were found on other seeds.
3. Accuracies: seeds are compared one by one. **Worse** means that significantly more seeds end
worse than better by the amount that the claim names (exact McNemar test). **No worse** means that
at most {MOST_WORSE:.0%} of all seeds can be worse (upper limit of the exact 95% interval). Losses,
symmetries, and accuracies on tasks that no run solves: the mean difference, with Student's
interval.
4. If the data show what the claim says, it **held**; if they show the opposite, it **did not
hold**; otherwise, or with fewer than {LEAST_SEEDS} seeds, it is **undecided**.
5. Everything that a claim says must hold. “Cannot” must also hold after {LONGEST} times the steps,
with a constant learning rate and with a schedule, warm-up, clipped gradients and nine learning
rates. If accuracy still rises there, we say “not within so many steps”.
6. The shipped verdicts are read together (Holm's correction): the chance that any of them is wrong
is at most 5%. A run of your own is read alone.
"""
"""The rule in words, as pages show it; Markdown."""

RULE_HASH = hashlib.blake2b(RULE.encode(), digest_size=8).hexdigest()
"""Sixteen hexadecimal digits of the rule."""

Scores = Float64[np.ndarray, " s"]


@dataclass(frozen=True)
class Finding:
    """The result of one statement.

    Attributes:
        n_pairs: Seeds that both arms have.
        n_worse: Pairs that differ as a statement of "worse" (or "better") wants, or as a statement
            of "no worse" forbids; of other regions, pairs outside it.
        n_better: Pairs that differ as much the other way.
        n_lost: Pairs of which a run diverged.
        effect: Mean difference; NaN if there are infinite ones.
        effect_low: Lower limit of Student's interval of the mean difference.
        effect_high: Upper limit of Student's interval of the mean difference.
        median: Median difference.
        share_low: Lower limit of the share of seeds that are worse.
        share_high: Upper limit of the share of seeds that are worse.
        method: Which of the two rules decides.
        p_held: Level at which "held" would no longer stand; 1 if the seeds do not show it.
        p_not: The same for "did not hold".
    """

    n_pairs: int
    n_worse: int
    n_better: int
    n_lost: int
    effect: float
    effect_low: float
    effect_high: float
    median: float
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
    def verdict(self) -> Verdict:
        """The verdict on the statement alone."""
        if self.p_held <= 1 - LEVEL:
            return "held"
        return "did not hold" if self.p_not <= 1 - LEVEL else "undecided"


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim.

    Attributes:
        verdict: The verdict if the claim is read alone.
        p: Level at which it would no longer stand.
    """

    verdict: Verdict
    p: float


def differences(statement: Statement, scores: Mapping[str, Scores]) -> Scores:
    """Return what the statement is about, seed by seed, (s,); NaN where a run diverged.

    If one arm has more seeds than the other, the first seeds are compared. Two runs that never
    solve the task differ by 0 in the steps to solve it.
    """
    n = min(len(scores[name]) for name in statement.arms)
    found = scores[statement.left][:n]
    if statement.right is not None:
        right = scores[statement.right][:n]
        with np.errstate(invalid="ignore"):
            found = np.where(np.isinf(found) & np.isinf(right), 0.0, found - right)
    if statement.second_left is not None and statement.second_right is not None:
        found = found - (scores[statement.second_left][:n] - scores[statement.second_right][:n])
    return found


def find(statement: Statement, values: Scores) -> Finding:
    """Judge one statement.

    Args:
        statement: What should hold.
        values: (s,) of `differences`. A run that diverged has no score: such a pair counts against
            either verdict, and means are then not compared.
    """
    known = values[~np.isnan(values)]
    n, n_lost = len(values), int(np.isnan(values).sum())
    wants_worse = not statement.low < 0 < statement.high
    worse, better = _sides(statement, known)
    interval = mean_interval(known if np.isfinite(known).all() else np.full(1, np.nan), LEVEL)
    method: Method = "mean" if statement.measured.compares_means else "pairs"
    if n < LEAST_SEEDS or (method == "mean" and n_lost):
        p_held = p_not = 1.0
    elif method == "pairs":
        p_worse = _p_worse(worse, better + n_lost)
        p_no_worse = _p_no_worse(worse + n_lost, n)
        p_held, p_not = (p_worse, p_no_worse) if wants_worse else (p_no_worse, p_worse)
    else:
        p_held, p_not = _by_mean(known, statement.low, statement.high)
    share_low, share_high = _share_interval(worse, worse + n_lost, n)
    with np.errstate(invalid="ignore"):  # The middle of −∞ and ∞ is NaN.
        median = float(np.median(known)) if len(known) else float("nan")
    return Finding(
        n_pairs=n,
        n_worse=worse,
        n_better=better,
        n_lost=n_lost,
        effect=float(interval.mean),
        effect_low=float(interval.low),
        effect_high=float(interval.high),
        median=median,
        share_low=share_low,
        share_high=share_high,
        method=method,
        p_held=p_held,
        p_not=p_not,
    )


def _sides(statement: Statement, values: Scores) -> tuple[int, int]:
    """Return how many pairs lie beyond the limit of a statement, and how many mirror them.

    A statement of "worse" or "better" wants pairs beyond its limit; one of "no worse" forbids them.
    """
    limit = statement.high if math.isinf(statement.low) else statement.low
    wanted = 1.0 if math.isinf(statement.high) else -1.0
    sign = -wanted if statement.low < 0 < statement.high else wanted
    beyond, least = sign * values, abs(limit) + ROUNDING
    return int((beyond > least).sum()), int((beyond < -least).sum())


def _p_worse(worse: int, better: int) -> float:
    """Return the two-sided p of McNemar's exact test if more pairs are worse, otherwise 1."""
    if worse <= better:
        return 1.0
    return min(1.0, float(2 * binomtest(worse, worse + better, 0.5, "greater").pvalue))


def _p_no_worse(worse: int, n: int) -> float:
    """Return the two-sided level at which the share that is worse could still be `MOST_WORSE`."""
    return min(1.0, float(2 * binom.cdf(worse, n, MOST_WORSE)))


def _share_interval(least: int, most: int, n: int) -> tuple[float, float]:
    """Return the limits of Clopper and Pearson of a share of which a part is not known."""
    tail = (1 - LEVEL) / 2
    low = betaincinv(least, n - least + 1, tail) if least else 0.0
    return float(low), float(betaincinv(most + 1, n - most, 1 - tail)) if most < n else 1.0


def _by_mean(values: Scores, low: float, high: float) -> tuple[float, float]:
    """Return the two-sided p of "the mean lies on the limit", for the side on which it lies."""
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


def still_rises(accuracy: np.ndarray) -> bool:
    """Return whether accuracy still rises with the steps.

    Args:
        accuracy: (k,) mean accuracy at 1, 2, 4, ... times the steps.
    """
    gains = np.diff(accuracy)[-2:]
    return bool(len(gains) < 2 or (gains > STILL_RISES).any())


def judge(findings: Sequence[Finding]) -> Judgement:
    """Return the verdict on a claim, all of whose statements must hold."""
    held = max(one.p_held for one in findings)
    not_held = min(1.0, len(findings) * min(one.p_not for one in findings))
    alpha = 1 - LEVEL
    if held <= alpha and held <= not_held:
        return Judgement("held", held)
    if not_held <= alpha:
        return Judgement("did not hold", not_held)
    return Judgement("undecided", min(held, not_held))


def judge_together(judgements: Sequence[Judgement]) -> list[Verdict]:
    """Return the verdicts that still stand when all are read together, after Holm.

    The chance that any of them is wrong is at most 5%, however many there are.
    """
    order = sorted(range(len(judgements)), key=lambda place: judgements[place].p)
    verdicts: list[Verdict] = ["undecided"] * len(judgements)
    for rank, place in enumerate(order):
        if judgements[place].p > (1 - LEVEL) / (len(judgements) - rank):
            break
        verdicts[place] = judgements[place].verdict
    return verdicts
