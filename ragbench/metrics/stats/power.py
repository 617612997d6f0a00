"""Power of a two-sided t test: how sure it is to show a difference, and the least it can show.

By the noncentral t distribution (Cohen 1988); `benchmarks/calibration.py` measures how nearly
verdicts reach it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import scipy

POWER = 0.8
ALPHA = 0.05


def t_power(shift: float, df: float, *, alpha: float = ALPHA) -> float:
    """The chance that a two-sided t test rejects 0.

    `shift` is the true mean over its standard error, `df` the degrees of freedom (above 0).
    """
    shift = abs(shift)
    critical = float(scipy.stats.t.ppf(1 - alpha / 2, df))
    if shift > 2 * critical + 10:  # it is 1; far out the noncentral t underflows
        return 1.0
    return float(
        scipy.stats.nct.sf(critical, df, shift) + scipy.stats.nct.cdf(-critical, df, shift)
    )


@lru_cache(maxsize=1024)  # a table asks the same for each of its rows
def least_shift(df: float, *, alpha: float = ALPHA, wanted: float = POWER) -> float:
    """The smallest true mean, in standard errors, that is shown with power `wanted`."""
    low, high = 0.0, 1.0
    while t_power(high, df, alpha=alpha) < wanted:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        enough = t_power(middle, df, alpha=alpha) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high


def power(difference: float, sd: float, n: int, *, alpha: float = ALPHA) -> float:
    """The chance that `n` questions show a true mean `difference`.

    `sd` is the standard deviation of the per-question differences.
    """
    if n < 2:
        return 0.0
    if sd == 0:
        return float(difference != 0)
    return t_power(abs(difference) * math.sqrt(n) / sd, n - 1, alpha=alpha)


def questions_needed(
    difference: float, sd: float, *, alpha: float = ALPHA, wanted: float = POWER
) -> int | None:
    """The fewest questions with which `power` reaches `wanted`; None above a thousand million."""
    if abs(difference) <= 1e-4 * sd or not math.isfinite(sd) or not difference:
        return None
    if sd == 0:
        return 2
    z = float(scipy.stats.norm.ppf(1 - alpha / 2) + scipy.stats.norm.ppf(wanted))
    n = max(2, math.ceil((z * sd / abs(difference)) ** 2))
    # The normal approximation is at most a few questions short of the t test.
    while power(difference, sd, n, alpha=alpha) < wanted:
        n += 1 + n // 1000
    return n
