"""Intervals and tests that hold for any number of questions and any distribution, by betting.

A gambler bets on the values against a mean m; were m the true mean, the capital would be a
martingale, which passes 1/alpha with a chance of at most alpha (Ville 1939). Means at which the
capital stays below are the interval. Waudby-Smith and Ramdas (2023, "Estimating means of bounded
random variables by betting", J. R. Stat. Soc. B 86, arXiv:2010.09686).

- `betting_interval`: their hedged capital, its bets set for a number of questions fixed before.
- `anytime_interval`: their diversified Kelly bets (a fixed grid), whose capital does not depend on
  the order of the questions and may be looked at as often as one likes.

Values are of questions drawn at random, or of clusters of them.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from ragbench.metrics.stats.estimates import Floats, Interval

#: Share of the capital that may be lost on one value.
_BOLDNESS = 0.5
_GRID = 1000
#: The shares of the largest possible bet that the diversified gambler places at once.
_BETS = np.linspace(0.05, 0.95, 19)


def betting_interval(
    values: ArrayLike, bounds: tuple[float, float], *, level: float = 0.95
) -> Interval:
    """The hedged-capital interval of the mean of `values` `(n,)`, which lie within `bounds`.

    Covers the mean with a chance of at least `level` at every n, 0 included. The bets depend on
    the order of the values, which must not be chosen by them.
    """
    low, high = bounds
    x = (np.asarray(values, dtype=np.float64) - low) / (high - low)
    means = (np.arange(_GRID) + 0.5) / _GRID
    log_capital = _hedged(x, means, 1 - level)
    kept = means[log_capital < math.log(1 / (1 - level))]
    if not len(kept):  # every mean is refused: the one that is refused least
        kept = means[[int(log_capital.argmin())]]
    half = 0.5 / _GRID
    least, most = max(0.0, kept[0] - half), min(1.0, kept[-1] + half)
    width = high - low
    return Interval(float(low + least * width), float(low + most * width), level)


def betting_p(values: ArrayLike, bounds: tuple[float, float], *, null: float = 0.0) -> float:
    """The p-value of the mean being `null`, by the capital of `betting_interval` at level 0.95."""
    low, high = bounds
    x = (np.asarray(values, dtype=np.float64) - low) / (high - low)
    at = np.array([(null - low) / (high - low)])
    return float(min(1.0, math.exp(-_hedged(x, at, 0.05)[0])))


def _hedged(x: Floats, means: Floats, alpha: float) -> Floats:
    """The logarithm of the greatest capital so far, for each of `means`; `x` in [0, 1]."""
    best = np.zeros(len(means))
    if not len(x):
        return best
    counts = np.arange(1, len(x) + 1)
    running = (0.5 + np.cumsum(x)) / (counts + 1)
    spread = (0.25 + np.cumsum((x - running) ** 2)) / (counts + 1)
    known = np.concatenate([[0.25], spread[:-1]])  # each bet knows only the values before it
    bets = np.sqrt(2 * math.log(2 / alpha) / (len(x) * known))
    up, down = np.zeros(len(means)), np.zeros(len(means))
    for value, bet in zip(x, bets, strict=True):
        up += np.log1p(np.minimum(bet, _BOLDNESS / means) * (value - means))
        down += np.log1p(-np.minimum(bet, _BOLDNESS / (1 - means)) * (value - means))
        best = np.maximum(best, np.maximum(up, down) - math.log(2))
    return best


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
