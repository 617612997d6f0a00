"""Estimates of a mean: intervals and p-values for few questions, skewed scores and clusters.

The default is the plus-two t interval: the t interval of the values and of two pseudo-values, one
at either end of what a value can be. For right and wrong answers that is the interval of Bonett and
Price (2012, J. Educ. Behav. Stat. 37) for paired proportions, with t in place of the normal
quantile. The plain t interval and the bootstrap miss rare large differences: with few questions
none may have been drawn.

Questions that vary together are a cluster. The standard error is then cluster-robust with the
correction of Bell and McCaffrey (2002) for few clusters (CR2), and the degrees of freedom are
Satterthwaite's. Each pseudo-value weighs one question. With `FEW_CLUSTERS` or fewer, nothing can be
known of other documents: the question is the unit, and the interval says so in its `scope`.
`docs/verdicts.md` has what this costs, and what it does not protect from.

Programs compiled with other seeds differ. A statement about the optimizer treats the seed as a
random effect, crossed with the questions: the variance of the difference is that of the questions
plus that of the mean over seeds, by the two mean squares of the two-way analysis of variance
(without subtracting the residual, which errs on the safe side) and Satterthwaite's degrees of
freedom (1946).
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragbench.metrics.stats.power import SHARE_OF_DF, f_tail, t_quantile, t_tail

Floats = NDArray[np.float64]
#: With fewer seeds, their variance cannot be told: the difference is of these programs alone.
LEAST_SEEDS = 3
#: With no more clusters, the question is the unit, and nothing is claimed of other documents.
FEW_CLUSTERS = 10
#: With fewer questions, a metric without bounds has no interval.
LEAST_UNBOUNDED = 10
#: Scope of an interval that leaves out the variance between documents.
THESE_DOCUMENTS = "for these documents only"
#: Scope of an interval of a metric without bounds, of which rare large values may be missing.
THESE_QUESTIONS = "of the questions asked"
#: The correlation in a cluster by which Satterthwaite's degrees of freedom are computed. With 0, a
#: set of single questions and a few large documents claims falsely in 6.2 % at a nominal 5 %.
WORKING_CORRELATION = 0.02
#: The least and the greatest that a value can be; None where there are no bounds.
Bounds = tuple[float, float] | None
#: The cluster of each question, where questions vary together.
Clusters = Sequence[Hashable] | None


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    Attributes:
        low: Lower end, in score units.
        high: Upper end, in score units.
        level: Confidence level, in (0, 1).
        scope: What the interval speaks of, if less than all questions of the kind.
    """

    low: float
    high: float
    level: float = 0.95
    scope: str = ""

    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def words(self, sign: str = "") -> str:
        """Both ends with three decimals, and with a `sign` of "+" those above 0 too."""
        return f"[{self.low:{sign}z.3f}, {self.high:{sign}z.3f}]"

    def mirrored(self) -> "Interval":
        """That of the difference the other way round."""
        return replace(self, low=0.0 - self.high, high=0.0 - self.low)  # never -0.0


def hull(intervals: Sequence[Interval | None]) -> Interval | None:
    """The least interval that holds all of `intervals`; None where one of them is None."""
    widest = intervals[0]
    for interval in intervals:
        if widest is None or interval is None:
            return None
        low = min(widest.low, interval.low)
        widest = replace(widest, low=low, high=max(widest.high, interval.high))
    return widest


@dataclass(frozen=True)
class MeanEstimate:
    """A mean with its standard error and degrees of freedom, by which t tests it.

    Attributes:
        centre: Mean with the pseudo-values, which draw it towards the middle of the bounds.
        standard_error: Standard error of `centre`.
        df: Degrees of freedom of t.
        bounds: Least and greatest value. None if there are no bounds.
        design_effect: How many times larger the variance is than that of single questions.
        clusters: Number of clusters, also if they are too few to be the unit.
        largest: Number of questions in the largest cluster.
        cluster_size: Number of questions that make one degree of freedom.
        of_seeds: Part of the squared standard error that seeds make as a random effect.
        scope: What the estimate speaks of, if less than all questions of the kind.
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
        """That of the difference the other way round."""
        return replace(self, centre=0.0 - self.centre)

    def interval(self, level: float = 0.95) -> Interval:
        """The two-sided t interval, cut off at the bounds."""
        half = t_quantile((1 + level) / 2, self.df) * self.standard_error
        low = self.centre - half
        high = self.centre + half
        if self.bounds:
            low = max(low, self.bounds[0])
            high = min(high, self.bounds[1])
        return Interval(low, high, level, self.scope)

    def p_value(self) -> float:
        """The p-value of a mean of 0."""
        if abs(self.centre) < 1e-12:
            return 1.0
        return self._p_of_distance(abs(self.centre))

    def p_at_most(self, null: float) -> float:
        """The p-value of the mean being `null` or less; doubled, as that of `p_beyond`."""
        return self._p_of_distance(self.centre - null)

    def p_beyond(self, margin: float) -> float:
        """The p-value of the mean lying outside ±`margin`, by two one-sided tests.

        It is doubled, so that it is at most 0.05 just where the 95 % interval lies within.
        """
        return self._p_of_distance(margin - abs(self.centre))

    def _p_of_distance(self, distance: float) -> float:
        """Twice the chance of a centre that lies so far within, the mean being at the edge."""
        if self.standard_error < 1e-12:
            return float(distance <= 0)
        return min(1.0, 2 * t_tail(distance / self.standard_error, self.df))


def estimate_mean(
    values: ArrayLike, bounds: Bounds, clusters: Clusters = None
) -> MeanEstimate | None:
    """Estimate the mean of `values`, shape (questions,).

    Args:
        values: Value of each question.
        bounds: Least and greatest value. None leaves the pseudo-values out.
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
    """The 95 % plus-two t interval of the mean of `values`; None for fewer than two."""
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
    """The 95 % plus-two t interval of the mean of `after` minus `before`, question by question."""
    differences = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    return mean_interval(differences, difference_bounds(score_range), clusters)


def difference_bounds(score_range: Bounds) -> Bounds:
    """The lowest and highest difference of two scores that lie in `score_range`."""
    if score_range is None:
        return None
    width = score_range[1] - score_range[0]
    return -width, width


def codes_of(clusters: Clusters, n: int) -> NDArray[np.int64]:
    """The number of the cluster of each of `n` values, from 0 in the order of their first one."""
    if clusters is None:
        return np.arange(n)
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(cluster, len(seen)) for cluster in clusters])


def units_of(clusters: Clusters, n: int) -> tuple[NDArray[np.int64], bool]:
    """Return the number of the unit of each of `n` values, and whether clusters are too few.

    A unit is a cluster, or a value if there are only a few clusters.
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
    """The mean of b minus a, both `(seeds, questions)`; None for fewer than two questions.

    With `random_seeds`, arms of at least `LEAST_SEEDS` seeds stand for all seeds there could be;
    else the estimate is of the difference between exactly these.
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
    """The p-value of programs compiled with other seeds having one mean; 1 where it is not known.

    `scores` are `(seeds, questions)`. The F test of the two-way analysis of variance: whether seeds
    differ by more than their questions (or clusters of them) explain.
    """
    x = np.asarray(scores, dtype=np.float64)
    if len(x) < 2:
        return 1.0
    groups = codes_of(clusters, x.shape[1])
    own = x - x.mean(axis=0)  # how far each seed is from the mean of all, question by question
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


@dataclass(frozen=True)
class Best:
    """The best of several candidates, with and without the luck of being chosen.

    Attributes:
        index: Its row.
        seen: Its mean as seen.
        corrected: Its mean with the luck of being chosen taken off.
        interval: 95 % interval. It holds those with the luck taken off and left in, for how much
            luck there is is itself an estimate.
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
    """Estimate the mean of the best candidate, which looks better than it is.

    The luck is taken off by bootstrap bias correction (Tsamardinos, Greasidou and Borboudakis 2018,
    Machine Learning 107, arXiv:1708.07180): choose on resampled questions, score on those that were
    not drawn. Questions of one cluster are drawn together.

    Args:
        scores: Scores, shape (candidates, questions). Of equal candidates the first is the best.
        bounds: Least and greatest score. None if there are no bounds.
        clusters: Cluster of each question. None treats questions as independent.
        higher_is_better: Whether the best is the highest.
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
