"""Variance of repeated questions: between questions and between repeats.

A score varies with the question and, for one question, with the repeat. The number of a repeat has
no meaning across questions, so repeats are nested in questions. The mean of a question over its
repeats includes both variances, and the interval over questions (or clusters) covers both. Repeats
may also differ in level, for example if a server changed between them. If the F test of the two-way
analysis of variance shows it, repeats are crossed with questions instead, like the seeds of a
compile.
"""

import math
from dataclasses import dataclass

from ragbench.metrics.stats.estimates import (
    LEAST_SEEDS,
    Clusters,
    Floats,
    Interval,
    mean_interval,
    p_seeds_alike,
)

#: Level of the test that repeats differ in level. The interval of a crossed mean of three repeats
#: is several times as wide, which a level of 5 % would cause in one of twenty runs.
_SELDOM = 0.01


@dataclass(frozen=True)
class Repeated:
    """Results of a system with repeated questions. Rates are in [0, 1].

    Attributes:
        always: Share of questions with the best score in every repeat (pass^R).
        always_interval: Its 95 % interval. None if there are too few questions.
        ever: Share of questions with the best score in at least one repeat (pass@R).
        ever_interval: Its 95 % interval. None if there are too few questions.
        noise: Standard deviation of the mean of one repeat, for fixed questions.
    """

    always: float
    always_interval: Interval | None
    ever: float
    ever_interval: Interval | None
    noise: float


def repeated(scores: Floats, best: float, clusters: Clusters = None) -> Repeated:
    """Summarize the repeats of one system.

    Args:
        scores: Scores, shape (repeats, questions).
        best: Score of a correct answer.
        clusters: Cluster of each question. None treats questions as independent.
    """
    right = scores == best
    shares = [right.all(axis=0), right.any(axis=0)]
    ends = [mean_interval(share, (0.0, 1.0), clusters) for share in shares]
    always, ever = (float(share.mean()) for share in shares)
    return Repeated(always, ends[0], ever, ends[1], math.sqrt(variance_of_one(scores)))


def variance_of_one(scores: Floats) -> float:
    """Return the variance of the mean of one repeat. `scores`: (repeats, questions)."""
    if len(scores) < 2:
        return 0.0
    within: Floats = scores.var(axis=0, ddof=1)
    return float(within.sum()) / float(scores.shape[1]) ** 2


def repeats_differ(scores: Floats, clusters: Clusters = None) -> bool:
    """Return True if three or more repeats differ in level by more than chance.

    Args:
        scores: Scores, shape (repeats, questions).
        clusters: Cluster of each question. None treats questions as independent.
    """
    return len(scores) >= LEAST_SEEDS and p_seeds_alike(scores, clusters) <= _SELDOM
