"""Estimate means: intervals and p-values for few questions, skewed scores and clusters.

The default is the plus-two t interval: the t interval of the values and of two pseudo-values, one
at each bound of a value. For right and wrong answers it is the interval of Bonett and Price (2012,
J. Educ. Behav. Stat. 37) for paired proportions, with t in place of the normal quantile. The plain
t interval and the bootstrap miss rare large differences, which a small sample may not contain.

Questions that vary together form a cluster. The standard error is then cluster-robust with the
correction of Bell and McCaffrey (2002) for few clusters (CR2), and the degrees of freedom are
Satterthwaite's. Each pseudo-value weighs one question. With `FEW_CLUSTERS` or fewer, the data
cannot support a claim about other documents. The question is then the unit, and the `scope` of the
interval states it. `docs/verdicts.md` describes the cost and the limits of this rule.

Programs compiled with different seeds differ. A statement about the optimizer treats the seed as a
random effect, crossed with the questions. The variance of the difference is then the variance of
the questions plus the variance of the mean over seeds, from the two mean squares of the two-way
analysis of variance. The residual is not subtracted, which is conservative. The degrees of freedom
are Satterthwaite's (1946).
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragbench.metrics.stats.power import SHARE_OF_DF, f_tail, t_quantile, t_tail

Floats = NDArray[np.float64]
#: Minimum number of seeds to estimate their variance. With fewer, the result is for these programs.
LEAST_SEEDS = 3
#: With at most this many clusters, the unit is the question, without claims on other documents.
FEW_CLUSTERS = 10
#: Minimum number of questions for an interval of a metric without bounds.
LEAST_UNBOUNDED = 10
#: Scope of an interval without the variance between documents.
THESE_DOCUMENTS = "for these documents only"
#: Scope of an interval of a metric without bounds, because rare large values may be missing.
THESE_QUESTIONS = "of the questions asked"
#: Correlation in a cluster for Satterthwaite's degrees of freedom. With 0, single questions and a
#: few large documents together give 6.2 % false claims at a nominal 5 %.
WORKING_CORRELATION = 0.02
#: Least and greatest value. None if there are no bounds.
Bounds = tuple[float, float] | None
#: Cluster of each question. None if questions are independent.
Clusters = Sequence[Hashable] | None


@dataclass(frozen=True)
class Interval:
    """Confidence interval.

    Attributes:
        low: Lower end, in score units.
        high: Upper end, in score units.
        level: Confidence level, in (0, 1).
        scope: Population of the interval, if it is less than all questions of the kind.
    """

    low: float
    high: float
    level: float = 0.95
    scope: str = ""

    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def words(self, sign: str = "") -> str:
        """Format both ends with three decimals. A `sign` of "+" marks positive ends."""
        return f"[{self.low:{sign}z.3f}, {self.high:{sign}z.3f}]"

    def mirrored(self) -> "Interval":
        """Return the interval of the reversed difference."""
        return replace(self, low=0.0 - self.high, high=0.0 - self.low)  # never -0.0


def hull(intervals: Sequence[Interval | None]) -> Interval | None:
    """Return the smallest interval that covers all `intervals`. None if one of them is None."""
    widest = intervals[0]
    for interval in intervals:
        if widest is None or interval is None:
            return None
        low = min(widest.low, interval.low)
        widest = replace(widest, low=low, high=max(widest.high, interval.high))
    return widest


@dataclass(frozen=True)
class MeanEstimate:
    """Mean with its standard error and degrees of freedom, for a t test.

    Attributes:
        centre: Mean with the pseudo-values, which draw it towards the middle of the bounds.
        standard_error: Standard error of `centre`.
        df: Degrees of freedom of t.
        bounds: Least and greatest value. None if there are no bounds.
        design_effect: Ratio of the variance to that of independent questions.
        clusters: Number of clusters, also if they are too few to be the unit.
        largest: Number of questions in the largest cluster.
        cluster_size: Number of questions per degree of freedom.
        of_seeds: Contribution of the seeds, as a random effect, to the squared standard error.
        scope: Population of the estimate, if it is less than all questions of the kind.
    """

    centre: float
    standard_error: float
    df: float
    bounds: Bounds = None
    design_effect: float = 1.0
    clusters: int = 0
    largest: int = 1
    cluster_size: float = 1.0
    of_seeds: float = 0.0
    scope: str = ""

    def mirrored(self) -> "MeanEstimate":
        """Return the estimate of the reversed difference."""
        return replace(self, centre=0.0 - self.centre)

    def interval(self, level: float = 0.95) -> Interval:
        """Return the two-sided t interval at `level`, clipped to the bounds."""
        half = t_quantile((1 + level) / 2, self.df) * self.standard_error
        low = self.centre - half
        high = self.centre + half
        if self.bounds:
            low = max(low, self.bounds[0])
            high = min(high, self.bounds[1])
        return Interval(low, high, level, self.scope)

    def p_value(self) -> float:
        """Return the two-sided p-value of the hypothesis that the mean is 0."""
        if abs(self.centre) < 1e-12:
            return 1.0
        return self._p_of_distance(abs(self.centre))

    def p_at_most(self, null: float) -> float:
        """Return the p-value of a mean of at most `null`, doubled as in `equivalence_p`."""
        return self._p_of_distance(self.centre - null)

    def equivalence_p(self, margin: float) -> float:
        """Return the p-value of a mean outside ±`margin`, by two one-sided tests.

        It is doubled, so that it is at most 0.05 if and only if the 95 % interval is inside the
        margin.
        """
        return self._p_of_distance(margin - abs(self.centre))

    def _p_of_distance(self, distance: float) -> float:
        """Return twice the tail probability of a centre this far from the edge."""
        if self.standard_error < 1e-12:
            return float(distance <= 0)
        return min(1.0, 2 * t_tail(distance / self.standard_error, self.df))


def estimate_mean(
    values: ArrayLike, bounds: Bounds, clusters: Clusters = None
) -> MeanEstimate | None:
    """Estimate the mean of `values`, shape (questions,).

    Args:
        values: Value of each question.
        bounds: Least and greatest value. None omits the pseudo-values.
        clusters: Cluster of each value. None treats questions as independent.

    Returns:
        The estimate. None with fewer than two values, or `LEAST_UNBOUNDED` without bounds.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    if n < (2 if bounds else LEAST_UNBOUNDED):
        return None
    named = np.bincount(codes_of(clusters, n))
    groups, few = units_of(clusters, n)
    sizes = np.bincount(groups)
    scope = ""
    if bounds is None:
        scope = THESE_QUESTIONS
    elif few:
        scope = THESE_DOCUMENTS
    ends = np.asarray(bounds if bounds else (), dtype=np.float64)
    both = np.concatenate([x, ends])
    all_sizes = np.concatenate([sizes, np.ones(len(ends))])
    centre = float(both.mean())
    sums = np.concatenate([np.bincount(groups, weights=x - centre), ends - centre])
    variance = float((sums**2 / (1 - all_sizes / len(both))).sum()) / len(both) ** 2
    single = float(both.var(ddof=1)) / len(both)
    df = satterthwaite(all_sizes)
    return MeanEstimate(
        centre=centre,
        standard_error=0.0 if variance < 1e-24 else math.sqrt(variance),
        df=df,
        bounds=bounds,
        design_effect=max(1.0, variance / single) if single > 1e-24 else 1.0,
        clusters=len(named),
        largest=int(named.max()),
        cluster_size=len(both) / (df + 1),
        scope=scope,
    )


def satterthwaite(sizes: ArrayLike, correlation: float = WORKING_CORRELATION) -> float:
    """Compute the degrees of freedom of the cluster-robust variance of a mean (CR2).

    The variance is a quadratic form of the values. Under a working model in which the values of a
    cluster have one `correlation`, its degrees of freedom are tr(M)^2 / tr(M^2), with M as in Bell
    and McCaffrey (2002). M is a diagonal matrix and two of rank one, so the traces are sums.

    Args:
        sizes: Number of values in each cluster.
        correlation: Correlation of two values of a cluster, in [0, 1].

    Returns:
        Degrees of freedom, at least 1. For n single values n - 1.
    """
    size = np.asarray(sizes, dtype=np.float64)
    total = size.sum()
    inflation = 1 + correlation * (size - 1)
    weight = 1 / (total * np.sqrt(1 - size / total))
    diagonal = weight**2 * size * inflation
    inflated = weight * size * inflation
    share = weight * size / total
    inflated_total = float((size * inflation).sum())
    cross = float(inflated @ share)
    square = float(share @ share)
    trace = float(diagonal.sum()) - 2 * cross + inflated_total * square
    ranks = 2 * inflated_total * share**2 - 4 * inflated * share
    of_square = float((diagonal * (diagonal + ranks)).sum())
    of_square += 2 * (float(inflated @ inflated) * square + cross**2)
    of_square += inflated_total * square * (inflated_total * square - 4 * cross)
    return max(1.0, trace**2 / of_square)


def mean_interval(values: ArrayLike, bounds: Bounds, clusters: Clusters = None) -> Interval | None:
    """Compute the 95 % plus-two t interval of a mean.

    Args:
        values: Value of each question, shape (questions,).
        bounds: Least and greatest value. None if there are no bounds.
        clusters: Cluster of each value. None treats questions as independent.

    Returns:
        The interval. None if `estimate_mean` has no estimate.
    """
    estimate = estimate_mean(values, bounds, clusters)
    if estimate:
        return estimate.interval()
    return None


def paired_interval(
    before: ArrayLike,
    after: ArrayLike,
    score_range: Bounds = (0.0, 1.0),
    clusters: Clusters = None,
) -> Interval | None:
    """Compute the 95 % plus-two t interval of the mean paired difference.

    Args:
        before: Scores of the first arm, shape (questions,).
        after: Scores of the second arm, shape (questions,).
        score_range: Least and greatest score. None if there are no bounds.
        clusters: Cluster of each question. None treats questions as independent.

    Returns:
        The interval of `after` minus `before`. None if there are too few questions.
    """
    differences = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    return mean_interval(differences, difference_bounds(score_range), clusters)


def difference_bounds(score_range: Bounds) -> Bounds:
    """Return the least and the greatest difference of two scores in `score_range`."""
    if score_range is None:
        return None
    width = score_range[1] - score_range[0]
    return -width, width


def codes_of(clusters: Clusters, n: int) -> NDArray[np.int64]:
    """Return a number for each cluster, from 0 in the order of their first value.

    Args:
        clusters: Cluster of each value. None: one cluster per value.
        n: Number of values.

    Returns:
        The number of the cluster of each value, shape (n,).
    """
    if clusters is None:
        return np.arange(n)
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(cluster, len(seen)) for cluster in clusters])


def units_of(clusters: Clusters, n: int) -> tuple[NDArray[np.int64], bool]:
    """Return the units of the estimate: clusters, or single values if there are few clusters.

    Args:
        clusters: Cluster of each value. None: one cluster per value.
        n: Number of values.

    Returns:
        The number of the unit of each value, shape (n,), and True if clusters are too few.
    """
    groups = codes_of(clusters, n)
    if groups.max(initial=0) + 1 <= min(FEW_CLUSTERS, n - 1):
        return np.arange(n), True
    return groups, False


def estimate_difference(
    a: Floats,
    b: Floats,
    bounds: Bounds,
    clusters: Clusters = None,
    *,
    random_seeds: bool = True,
) -> MeanEstimate | None:
    """Estimate the mean of b minus a.

    Args:
        a: Scores of A, shape (seeds, questions).
        b: Scores of B, shape (seeds, questions).
        bounds: Least and greatest difference. None if there are no bounds.
        clusters: Cluster of each question. None treats questions as independent.
        random_seeds: Treat seeds of an arm with at least `LEAST_SEEDS` as a sample of all seeds.
            Otherwise the estimate is the difference between exactly these programs.

    Returns:
        The estimate. None if there are too few questions.
    """
    of_questions = estimate_mean(b.mean(axis=0) - a.mean(axis=0), bounds, clusters)
    if of_questions is None or not random_seeds:
        return of_questions
    own = of_questions.standard_error**2
    of_seeds = 0.0
    spread = 0.0
    least_df = math.inf
    for arm in (a, b):
        df = len(arm) - 1.0
        if len(arm) >= LEAST_SEEDS:
            variance = float(arm.mean(axis=1).var(ddof=1)) / len(arm)
            of_seeds += variance
            spread += variance**2 / (SHARE_OF_DF * df)
            least_df = min(least_df, df)
    if of_seeds < 1e-24:
        return of_questions
    spread = own**2 / of_questions.df + spread
    return replace(
        of_questions,
        standard_error=math.sqrt(own + of_seeds),
        df=max(least_df, (own + of_seeds) ** 2 / spread),
        of_seeds=of_seeds,
    )


def p_seeds_alike(scores: ArrayLike, clusters: Clusters = None) -> float:
    """Test if programs compiled with different seeds have one mean.

    The F test of the two-way analysis of variance: do seeds differ by more than their questions (or
    clusters of them) explain?

    Args:
        scores: Scores, shape (seeds, questions).
        clusters: Cluster of each question. None treats questions as independent.

    Returns:
        The p-value. 1 if it cannot be computed.
    """
    x = np.asarray(scores, dtype=np.float64)
    if len(x) < 2:
        return 1.0
    groups = codes_of(clusters, x.shape[1])
    own = x - x.mean(axis=0)  # Distance of each seed from the mean of all, by question.
    sums = np.stack([np.bincount(groups, weights=row) for row in own])
    seeds, units = sums.shape
    if units < 2:
        return 1.0
    means = sums.mean(axis=1)
    between = units * float((means**2).sum()) / (seeds - 1)
    df_error = (seeds - 1) * (units - 1)
    within = float(((sums - means[:, None]) ** 2).sum()) / df_error
    if within < 1e-18:
        return float(between < 1e-18)
    return f_tail(between / within, seeds - 1, df_error)
