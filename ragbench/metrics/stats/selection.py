"""Best of several candidates, corrected for the bias of its selection."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ragbench.metrics.stats.estimates import (
    Bounds,
    Clusters,
    Interval,
    estimate_mean,
    hull,
    units_of,
)


@dataclass(frozen=True)
class Best:
    """Best of several candidates, with and without selection bias.

    Attributes:
        index: Row of the candidate.
        seen: Observed mean.
        corrected: Mean after subtraction of the selection bias.
        interval: 95 % interval that covers those with and without the bias, because the bias itself
            is an estimate.
        candidates: Number of candidates.
    """

    index: int
    seen: float
    corrected: float
    interval: Interval
    candidates: int


def corrected_best(
    scores: ArrayLike,
    bounds: Bounds = (0.0, 1.0),
    *,
    clusters: Clusters = None,
    higher_is_better: bool = True,
    seed: int = 0,
    resamples: int = 1000,
) -> Best | None:
    """Estimate the mean of the best candidate, whose observed mean is biased upward.

    Selection bias is removed by bootstrap bias correction (Tsamardinos, Greasidou and Borboudakis
    2018, Machine Learning 107, arXiv:1708.07180): select on resampled questions, score on the
    questions that were not drawn. Questions of one cluster are drawn together.

    Args:
        scores: Scores, shape (candidates, questions). If candidates tie, the first one is the best.
        bounds: Least and greatest score. None if there are no bounds.
        clusters: Cluster of each question. None treats questions as independent.
        higher_is_better: True if the best is the highest.
        seed: Seed of the resamples.
        resamples: Number of resamples.

    Returns:
        The best. None with too few questions for an interval.
    """
    x = np.asarray(scores, dtype=np.float64)
    groups, _ = units_of(clusters, x.shape[1])
    sign = 1 if higher_is_better else -1
    index = int((sign * x.mean(axis=1)).argmax())
    estimate = estimate_mean(x[index], bounds, clusters)
    if estimate is None:
        return None
    rng = np.random.default_rng(seed)
    n = int(groups.max()) + 1
    unseen = []
    for _ in range(resamples):
        counts = np.bincount(rng.integers(n, size=n), minlength=n)[groups]
        if (unsampled := counts == 0).any():
            unseen.append(sign * x[int((sign * (x @ counts)).argmax()), unsampled].mean())
    seen = float(x[index].mean())
    luck = sign * max(0.0, sign * seen - float(np.mean(unseen)))
    without = replace(estimate, centre=estimate.centre - luck)
    interval = hull([estimate.interval(), without.interval()])
    assert interval is not None
    return Best(index, seen, seen - luck, interval, len(x))
