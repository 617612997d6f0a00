"""Questions that are asked several times: two variances, and which of them is worth money.

A score varies with the question and, for one question, with the time that it is asked. The number
of a repeat says nothing across questions, so that repeats are nested in questions: the mean of a
question over its repeats carries both variances, and the interval over questions (or clusters) is
the interval over both. Where repeats differ as wholes, by more than their questions explain (the F
test of the two-way analysis of variance), such as where a server was changed between them, they are
crossed with the questions instead, as seeds of a compile are.
"""

import math
from dataclasses import dataclass

from ragbench.metrics.stats.estimates import (
    LEAST_SEEDS,
    Clusters,
    Floats,
    Interval,
    MeanEstimate,
    mean_interval,
    p_seeds_alike,
)
from ragbench.metrics.stats.power import t_quantile

_Z95 = 1.959964
#: Repeats differ as wholes where chance does so less often: with three of them the interval of a
#: crossed mean is several times as wide, which a nominal 5 % would do to one run in twenty.
_SELDOM = 0.01


@dataclass(frozen=True)
class Repeated:
    """One system asked several times; rates in [0, 1], each with its 95 % interval or None.

    `always` (pass^R) is the share of questions with the best score every time, `ever` (pass@R) with
    it at least once. `noise` is the standard deviation of the mean of one repeat that the repeats
    alone make, the questions being the same.
    """

    always: float
    always_interval: Interval | None
    ever: float
    ever_interval: Interval | None
    noise: float


def repeated(scores: Floats, best: float, clusters: Clusters = None) -> Repeated:
    """What `scores` `(repeats, questions)`, of which `best` is right, say of one system."""
    right = scores == best
    shares = [right.all(axis=0), right.any(axis=0)]
    ends = [mean_interval(share, (0.0, 1.0), clusters) for share in shares]
    always, ever = (float(share.mean()) for share in shares)
    return Repeated(always, ends[0], ever, ends[1], math.sqrt(variance_of_one(scores)))


def variance_of_one(scores: Floats) -> float:
    """The variance of the mean of one repeat over `scores` `(repeats, questions)`; 0 for one."""
    if len(scores) < 2:
        return 0.0
    within: Floats = scores.var(axis=0, ddof=1)
    return float(within.sum()) / float(scores.shape[1]) ** 2


def differ_as_wholes(scores: Floats, clusters: Clusters = None) -> bool:
    """Whether repeats `(repeats, questions)`, three or more, differ in level, not by chance."""
    return len(scores) >= LEAST_SEEDS and p_seeds_alike(scores, clusters) <= _SELDOM


@dataclass(frozen=True)
class Shares:
    """Where the variance of a difference comes from, and what would narrow its 95 % interval.

    `again_a` and `again_b` are how far two means of that system with itself lie apart 95 times in
    100, each asked once; None for a side without repeats. `of_repeats` in [0, 1] is the share that
    the repeats make. `half` is half the width of the interval as it is; `twice_questions` and
    `twice_repeats` are what it would be with twice as many of either, at the same price each.
    """

    again_a: float | None
    again_b: float | None
    of_repeats: float
    half: float
    twice_questions: float
    twice_repeats: float

    @property
    def repeats_pay(self) -> bool:
        """Whether as many repeats come within 10 % of more questions, which are never worse."""
        return self.twice_repeats <= 1.1 * self.twice_questions


def shares(a: Floats, b: Floats, estimate: MeanEstimate) -> Shares | None:
    """The shares of the variance of `estimate`, the mean of b minus a; None without repeats.

    Both are `(repeats, questions)`. An arm that was asked once has no noise of its own that could
    be told from that of the questions.
    """
    if max(len(a), len(b)) < 2 or estimate.standard_error <= 0:
        return None
    variance = estimate.standard_error**2
    of_repeats = variance_of_one(a) / len(a) + variance_of_one(b) / len(b)
    of_repeats = min(variance, of_repeats)
    quantile = t_quantile(0.975, estimate.df)
    return Shares(
        again_a=spread_again(a),
        again_b=spread_again(b),
        of_repeats=of_repeats / variance,
        half=quantile * math.sqrt(variance),
        twice_questions=quantile * math.sqrt(variance / 2),
        twice_repeats=quantile * math.sqrt(variance - of_repeats / 2),
    )


def spread_again(scores: Floats) -> float | None:
    """How far two means of one system with itself lie apart, 95 times in 100, asked once each.

    None for one that was asked once.
    """
    if len(scores) < 2:
        return None
    return _Z95 * math.sqrt(2 * variance_of_one(scores))
