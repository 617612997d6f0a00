"""How many questions a paired comparison needs, and what it can show with those it has.

Power of the two-sided paired t test, by the noncentral t distribution; the permutation test that
verdicts rest on has nearly the same (`benchmarks/aa_calibration.py` measures how nearly).
"""

import math

from scipy import stats

POWER = 0.8
ALPHA = 0.05


def power(difference: float, sd: float, n: int, *, alpha: float = ALPHA) -> float:
    """The chance that `n` questions show a true mean `difference`.

    `sd` is the standard deviation of the per-question differences.
    """
    if n < 2:
        return 0.0
    if sd == 0:
        return float(difference != 0)
    shift = abs(difference) * math.sqrt(n) / sd
    critical = float(stats.t.ppf(1 - alpha / 2, n - 1))
    if shift > critical + 10:  # the tail is 1 long before; far out the noncentral t underflows
        return 1.0
    return float(stats.nct.sf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift))


def questions_needed(
    difference: float, sd: float, *, alpha: float = ALPHA, wanted: float = POWER
) -> int | None:
    """The fewest questions with which `power` reaches `wanted`; None above a thousand million."""
    if abs(difference) <= 1e-4 * sd or not math.isfinite(sd) or not difference:
        return None
    if sd == 0:
        return 2
    z = float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(wanted))
    n = max(2, math.ceil((z * sd / abs(difference)) ** 2))
    # The normal approximation is at most a few questions short of the t test.
    while power(difference, sd, n, alpha=alpha) < wanted:
        n += 1 + n // 1000
    return n


def minimum_detectable(
    sd: float, n: int, *, alpha: float = ALPHA, wanted: float = POWER
) -> float | None:
    """The smallest true difference that `n` questions show with power `wanted`.

    None below 2 questions, or where the differences do not vary, which says nothing of their sd.
    """
    if n < 2 or sd == 0 or not math.isfinite(sd):
        return None
    low, high = 0.0, sd * 1000 / math.sqrt(n)
    for _ in range(60):
        middle = (low + high) / 2
        enough = power(middle, sd, n, alpha=alpha) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high
