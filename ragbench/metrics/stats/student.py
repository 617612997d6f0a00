"""Quantiles of Student's t distribution, from its tail by the incomplete beta function.

scipy has the same, but to import it takes five times as long as to start Python, and a table of
means needs nothing else of it. The continued fraction is that of the DLMF (8.17.22).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_SMALLEST = 1e-300
#: Of a step, relative to the quantile, at which it is found.
_ENOUGH = 1e-13


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """What a t variable of `df` degrees of freedom (above 0) is below with chance `p` in (0, 1)."""
    if p < 0.5:
        return -t_quantile(1 - p, df)
    # Newton's steps from below never pass the root, for beyond 0 the distribution is concave.
    t = NormalDist().inv_cdf(p)
    for _ in range(1000):
        step = (t_tail(t, df) - (1 - p)) / _density(t, df)
        t += step
        if abs(step) <= _ENOUGH * t:
            break
    return t


def _density(t: float, df: float) -> float:
    log = _log_ratio(df / 2) - 0.5 * math.log(df * math.pi)
    return math.exp(log - (df + 1) / 2 * math.log1p(t * t / df))


def t_tail(t: float, df: float) -> float:
    """The chance that a t variable of `df` degrees of freedom is above `t`, at least 0."""
    a, x, y = df / 2, df / (df + t * t), t * t / (df + t * t)
    if t == 0:
        return 0.5
    log = _log_ratio(a) - 0.5 * math.log(math.pi) - a * math.log1p(t * t / df) + 0.5 * math.log(y)
    if x < (a + 1) / (a + 2.5):
        return 0.5 * math.exp(log) * _fraction(a, 0.5, x) / a
    return 0.5 - math.exp(log) * _fraction(0.5, a, y)


def _log_ratio(a: float) -> float:
    """The logarithm of gamma(a + 1/2) / gamma(a)."""
    if a < 50:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    # The difference of two large numbers would lose digits.
    terms = -1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5) + 17 / (14336 * a**7)
    return 0.5 * math.log(a) + terms


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / ((1 + term * d) or _SMALLEST)
            c = (1 + term / c) or _SMALLEST
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
