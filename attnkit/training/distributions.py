"""The beta distribution and Student's t.

SciPy has them, too, but takes 140 MB and is slow to import.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import count


def beta_probability(x: float, a: float, b: float) -> float:
    """Return the probability that a beta variable is at most `x`.

    About 12 digits are right where `a` and `b` are at most 1,000. For whole numbers, this is also
    the probability of at least `a` successes in `a + b - 1` independent trials, each of which
    succeeds with probability `x`.

    Source:
        The continued fraction 8.17.22 in https://dlmf.nist.gov, by Lentz's method.
    """
    if math.isnan(x):
        return x
    if a == 0 or x >= 1:
        return 1.0
    if b == 0 or x <= 0:
        return 0.0
    if x > (a + 1) / (a + b + 2):  # The fraction of the other tail converges faster.
        return 1 - beta_probability(1 - x, b, a)
    fraction, numerator, denominator = 1.0, 1.0, 0.0
    for n in count(1):
        m = n // 2
        factor = -(a + m) * (a + b + m) if n % 2 else m * (b - m)
        term = factor * x / ((a + n - 1) * (a + n))
        numerator, denominator = 1 + term / numerator, 1 / (1 + term * denominator)
        fraction *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    scale = math.lgamma(a + b) - math.lgamma(a + 1) - math.lgamma(b)
    return math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / fraction


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the value that a beta variable does not exceed with this probability."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if beta_probability(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return high


def student_tail(t: float, freedom: int) -> float:
    """Return the probability that a variable of Student's distribution exceeds `t`, at least 0."""
    return beta_probability(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


@lru_cache(maxsize=1024)
def student_limit(level: float, freedom: int) -> float:
    """Return the half width of the interval around 0 that covers `level`; NaN without freedom."""
    if freedom < 1:
        return math.nan
    x = beta_quantile(level, 0.5, freedom / 2)
    return math.sqrt(freedom * x / (1 - x))
