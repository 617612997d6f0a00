"""Power of a two-sided t test: how sure it is to show a difference, and the least it can show.

By the noncentral t distribution (Cohen 1988); `benchmarks/calibration.py` measures how nearly
verdicts reach it. scipy has it too, but is slow to import; see `student`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

from ragbench.metrics.stats.student import t_quantile

POWER = 0.8
ALPHA = 0.05
#: The logarithm of a density, over that of the mode, beyond which it is left out.
_NEGLIGIBLE = -38.0
_STEPS = 400


def t_power(shift: float, df: float, *, alpha: float = ALPHA) -> float:
    """The chance that a two-sided t test rejects 0.

    `shift` is the true mean over its standard error, `df` the degrees of freedom (at least 1).
    """
    shift = abs(shift)
    critical = t_quantile(1 - alpha / 2, df)
    shown = sum(
        weight * (_normal_below(shift - critical * s) + _normal_below(-shift - critical * s))
        for s, weight in _spreads(df)
    )
    return min(1.0, shown)


def _normal_below(z: float) -> float:
    return 0.5 * math.erfc(-z * math.sqrt(0.5))


@lru_cache(maxsize=256)
def _spreads(df: float) -> Sequence[tuple[float, float]]:
    """Estimates of a standard deviation of 1, and the chance of each.

    Given the estimate, t is normal; its power is a mean over them. The integral is over their
    logarithm, where the trapezoidal rule is right to 11 digits (to 15 from `df` 2 on).
    """

    def log_density(v: float) -> float:
        return df * (v + 0.5 - math.exp(2 * v) / 2)

    low, high = (side / math.sqrt(df) for side in (-0.1, 0.1))
    while log_density(low) > _NEGLIGIBLE:
        low *= 1.2
    while log_density(high) > _NEGLIGIBLE:
        high *= 1.2
    logs = [low + (high - low) * i / _STEPS for i in range(_STEPS + 1)]
    weights = [math.exp(log_density(v)) for v in logs]
    total = sum(weights)
    return [(math.exp(v), weight / total) for v, weight in zip(logs, weights, strict=True)]


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
    z = NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(wanted)
    n = max(2, math.ceil((z * sd / abs(difference)) ** 2))
    # The normal approximation is at most a few questions short of the t test.
    while power(difference, sd, n, alpha=alpha) < wanted:
        n += 1 + n // 1000
    return n
