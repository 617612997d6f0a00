"""Intervals and tests that hold for any number of questions and any distribution, by betting.

A gambler bets on the values against a mean m; were m the true mean, the capital would be a
martingale, which passes 1/alpha with a chance of at most alpha (Ville 1939). Means at which the
capital stays below are the interval. Waudby-Smith and Ramdas (2023, "Estimating means of bounded
random variables by betting", J. R. Stat. Soc. B 86, arXiv:2010.09686).

These are their diversified Kelly bets (a fixed grid), whose capital does not depend on the order of
the questions and may be looked at as often as one likes. Values are of questions drawn at random,
or of clusters of them.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from ragbench.metrics.stats.estimates import Floats, Interval

#: The shares of the largest possible bet that the diversified gambler places at once.
_BETS = np.linspace(0.05, 0.95, 19)


def anytime_p(values: ArrayLike, reach: float, *, null: float = 0.0) -> float:
    """The p-value of the mean being `null`, whenever one stops; `values` are within ±`reach`."""
    x = np.asarray(values, dtype=np.float64) / reach
    best = max(_capital(x, null / reach), _capital(-x, -null / reach))
    return math.exp(min(0.0, max(-700.0, math.log(2) - best)))


def anytime_interval(values: ArrayLike, reach: float, *, level: float = 0.95) -> Interval:
    """The interval of the mean of `values`, each within ±`reach`, that holds at every look."""
    x = np.asarray(values, dtype=np.float64) / reach
    low, high = _refused_below(x, 1 - level), -_refused_below(-x, 1 - level)
    return Interval(low * reach, high * reach, level)


def _capital(x: Floats, mean: float) -> float:
    """The logarithm of the capital of bets that the mean of `x`, in [-1, 1], is above `mean`."""
    stakes = _BETS[:, None] / (1 + mean)
    logs = np.log1p(stakes * (x[None, :] - mean)).sum(axis=1)
    return float(np.logaddexp.reduce(logs) - math.log(len(_BETS)))


def _refused_below(x: Floats, alpha: float) -> float:
    """The greatest mean such that it and all below it are refused; -1 where none is."""
    limit = math.log(2 / alpha)
    low, high = -1 + 1e-9, float(x.mean()) if len(x) else 0.0
    if high <= low or _capital(x, low) < limit:
        return -1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _capital(x, middle) >= limit else (low, middle)
    return low
