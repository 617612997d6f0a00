"""A score freed of the luck of being chosen.

The best of several candidates looks better than it is. Where their scores are known question by
question that is taken off by bootstrap bias correction (Tsamardinos, Greasidou and Borboudakis
2018, Machine Learning 107, arXiv:1708.07180): choose on resampled questions, score on those that
were not drawn.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragbench.metrics.stats.estimates import Interval


@dataclass(frozen=True)
class Best:
    """The best of `candidates`: its mean as seen, and with the luck of being chosen taken off."""

    index: int
    seen: float
    corrected: float
    interval: Interval
    candidates: int


def corrected_best(scores: ArrayLike, *, seed: int = 0, resamples: int = 1000) -> Best:
    """The best row of `scores` `(candidates, questions)`, higher is better; the first of equals.

    ValueError where there is no candidate, or fewer than two questions.
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2 or not len(x) or x.shape[1] < 2:
        raise ValueError(f"scores must be candidates by two or more questions, not {x.shape}")
    rng, n = np.random.default_rng(seed), x.shape[1]
    unseen = []
    for _ in range(resamples):
        counts = np.bincount(rng.integers(n, size=n), minlength=n)
        if (left := counts == 0).any():
            unseen.append(x[int((x @ counts).argmax()), left].mean())
    means = np.asarray(unseen)
    index = int(x.mean(axis=1).argmax())
    seen = float(x[index].mean())
    low, high = np.quantile(means, [0.025, 0.975])
    corrected = min(seen, float(means.mean()))
    return Best(index, seen, corrected, Interval(float(low), float(high)), len(x))
