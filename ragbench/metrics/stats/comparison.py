"""Paired comparison of two arms over the same questions.

The seeds of a question are averaged before a test, so that a seed does not count as another
question.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ragbench.metrics.stats.estimates import (
    Bounds,
    Clusters,
    Floats,
    Interval,
    difference_bounds,
    estimate_difference,
    hull,
)
from ragbench.metrics.stats.power import ALPHA, PlannedTest
from ragbench.metrics.stats.verdict import Comparison, worded

#: If seeds vary, recommend more seeds instead of more than this multiple of the questions.
_FAR_MORE = 20


@dataclass(frozen=True)
class Method:
    """Settings of a comparison.

    Attributes:
        margin: Difference that is too small to matter, for a verdict of equivalence.
        random_seeds: Treat three or more seeds of an arm as a sample of all seeds.
    """

    margin: float | None = None
    random_seeds: bool = True


def compare_scores(
    a: ArrayLike,
    b: ArrayLike,
    clusters: Clusters = None,
    *,
    higher_is_better: bool = True,
    score_range: Bounds = (0.0, 1.0),
    method: Method | None = None,
) -> Comparison:
    """Compare the scores of two arms question by question.

    Args:
        a: Scores of A, shape (questions,) or (seeds, questions).
        b: Scores of B, in the same shape.
        clusters: Cluster of each question. None treats questions as independent.
        higher_is_better: True if higher scores are better.
        score_range: Least and greatest score. None if there are no bounds: then nothing is tested.
        method: Settings of the comparison.

    Returns:
        The comparison, as the only one of its family.
    """
    method = method or Method()
    before = np.atleast_2d(np.ascontiguousarray(a, dtype=np.float64))
    after = np.atleast_2d(np.ascontiguousarray(b, dtype=np.float64))
    d = after.mean(axis=0) - before.mean(axis=0)
    bounds = difference_bounds(score_range)
    seeds = method.random_seeds
    estimate = estimate_difference(before, after, bounds, clusters, random_seeds=seeds)
    nothing = np.zeros((1, len(d)))
    intervals: list[Interval | None] = []
    for arm in (before, after):
        of_arm = estimate_difference(nothing, arm, score_range, clusters, random_seeds=seeds)
        if of_arm:
            intervals.append(of_arm.interval())
        else:
            intervals.append(None)
    interval = None
    p: float | None = 1.0
    p_equivalent = 1.0
    if estimate:
        interval = estimate.interval()
        p = estimate.p_value()
        if method.margin is not None:
            p_equivalent = estimate.equivalence_p(method.margin)
    most_expensive = None
    if bounds is None:
        p = None
        most_expensive = (float(before.max(initial=0.0)), float(after.max(initial=0.0)))
    comparison = Comparison(
        n=len(d),
        mean_a=float(before.mean()),
        mean_b=float(after.mean()),
        difference=float(d.mean()),
        interval=interval,
        p=p,
        p_equivalent=p_equivalent,
        sd=_sd(d),
        higher_is_better=higher_is_better,
        margin=method.margin,
        score_range=score_range,
        interval_a=intervals[0],
        interval_b=intervals[1],
        estimate=estimate,
        seeds=max(len(before), len(after)),
        most_expensive=most_expensive,
    )
    return _judged(comparison)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of `p_values` (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def correct(family: Sequence[Comparison]) -> list[Comparison]:
    """Correct comparisons by Holm over their family, in the same order.

    Differences and equivalences are two families, because a contrast cannot be a false claim of
    both. A comparison of a metric without bounds is not a test and stays unchanged.
    """
    tested = [c for c in family if c.p is not None]
    different = holm([c.p for c in tested if c.p is not None])
    equivalent = holm([c.p_equivalent for c in tested])
    open_tests = sum(p > ALPHA for p in different)
    corrected = []
    for c, p, p_equivalent in zip(tested, different, equivalent, strict=True):
        if p > ALPHA:
            share = 1 / open_tests
        elif p > 0:
            share = (c.p or 0.0) / p
        else:
            share = 1 / len(tested)
        adjusted = replace(
            c,
            p_adjusted=p,
            p_equivalent_adjusted=p_equivalent,
            corrected_interval=c.at(1 - ALPHA * share),
        )
        corrected.append(_judged(adjusted, len(tested)))
    remaining = iter(corrected)
    return [c if c.p is None else next(remaining) for c in family]


def with_extremes(
    complete: Comparison, extremes: Sequence[Comparison], unscored: int
) -> Comparison:
    """Return `complete` with the conclusions that both extremes share.

    Args:
        complete: Comparison over the questions that have a score in both arms.
        extremes: Comparisons with the worst and with the best score for the missing ones.
        unscored: Number of questions that have a score in only one arm.
    """
    estimates = tuple(c.estimate for c in extremes if c.estimate is not None)
    interval = hull([c.interval for c in extremes])
    p = complete.p
    if p is not None:
        p = 1.0
        if interval is not None and interval.excludes_zero():
            p = max(c.p or 0.0 for c in extremes)
    bounded = replace(
        complete,
        interval=interval,
        p=p,
        p_equivalent=max(c.p_equivalent for c in extremes),
        unscored=unscored,
        extremes=estimates,
    )
    return _judged(bounded)


def without_interval(c: Comparison, reason: str) -> Comparison:
    """Return a comparison without interval and test.

    Args:
        c: Comparison.
        reason: Reason for the missing interval.
    """
    bare = replace(
        c, interval=None, interval_a=None, interval_b=None, estimate=None, p_equivalent=1.0
    )
    return _judged(replace(bare, p=None if c.p is None else 1.0, reason=reason))


def _judged(c: Comparison, family: int = 1) -> Comparison:
    """Return `c`, one of a `family` of tests, with its verdict and required sample size."""
    judged = replace(c, n_needed=None, n_least=None, seeds_needed=None, minimum_detectable=None)
    test = c.planned(family)
    # Power is known only for the t test, and not if missing scores may change the difference.
    if test and c.sd and c.interval and not c.unscored:
        least = test.detectable(c.sd**2, c.difference, c.n)
        judged = _with_needed(replace(judged, minimum_detectable=least), test, c.interval)
    return worded(judged)


def _with_needed(c: Comparison, test: PlannedTest, interval: Interval) -> Comparison:
    """Return `c` with the questions, or else seeds, that would detect its difference."""
    if abs(c.difference) < 1e-9:
        return c
    ends = (interval.low, interval.high, c.difference)
    largest = max(ends) if c.difference > 0 else min(ends)
    needed = test.questions(c.difference, c.sd**2)
    if needed is not None and (not test.seed_variance or needed <= _FAR_MORE * c.n):
        return replace(c, n_needed=needed, n_least=test.questions(largest, c.sd**2))
    n = c.n
    while (seeds := test.more_seeds(c.difference, c.sd**2, n)) is None and n < 10**9:
        n *= 2
    return replace(c, seeds_needed=seeds, n_needed=n if seeds else None)


def _sd(d: Floats) -> float:
    if len(d) < 2:
        return 0.0
    spread = float(d.std(ddof=1))
    if spread > 1e-12:
        return spread
    return 0.0
