"""Scores freed of what flatters them: the luck of being chosen, and the errors of a judge.

The best of several candidates looks better than it is. Where their scores are known question by
question that is taken off by bootstrap bias correction (Tsamardinos, Greasidou and Borboudakis
2018, Machine Learning 107, arXiv:1708.07180): choose on resampled questions, score on those that
were not drawn.

A share that a judge estimated is corrected by Rogan and Gladen's estimate (1978) with the interval
of Lang and Reiczigel (2014), which moves each share towards a half before its variance is taken and
so covers also for small shares. That is prediction-powered inference under label shift
(Angelopoulos et al. 2023, arXiv:2301.09633): how often a judge catches a false claim and passes a
true one carries over to claims with another share of false ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ragbench.metrics.stats.estimates import Interval

_Z = 1.959964  # 95 %


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


class JudgeErrors(NamedTuple):
    """What a judge made of claims with known labels: false ones caught, and true ones passed."""

    caught: int
    false: int
    passed: int
    true: int


class Corrected(NamedTuple):
    """A corrected share with its 95 % interval, all in [0, 1]."""

    mean: float
    low: float
    high: float


def corrected_share(shares: Sequence[float], errors: JudgeErrors) -> Corrected | None:
    """The mean share of false claims, from the `shares` that the judge called so, by question.

    None where there is no question, or where the judge is no better than chance on known labels.
    """
    n, extra = len(shares), _Z**2
    caught = (errors.caught + 1) / (errors.false + 2)
    passed = (errors.passed + 1) / (errors.true + 2)
    better = caught + passed - 1  # than chance
    if not n or better <= 0 or not (errors.false and errors.true):
        return None
    mean = (sum(shares) + extra / 2) / (n + extra)
    spread = sum((share - mean) ** 2 for share in shares)
    spread += extra / 2 * (mean**2 + (1 - mean) ** 2)
    middle = _clip((mean + passed - 1) / better)
    variance = (
        spread / (n + extra) ** 2
        + middle**2 * caught * (1 - caught) / (errors.false + 2)
        + (1 - middle) ** 2 * passed * (1 - passed) / (errors.true + 2)
    )
    half = _Z * sqrt(variance) / better
    plain = errors.caught / errors.false + errors.passed / errors.true - 1
    estimate = (sum(shares) / n + errors.passed / errors.true - 1) / plain if plain > 0 else middle
    return Corrected(_clip(estimate), _clip(middle - half), _clip(middle + half))


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))
