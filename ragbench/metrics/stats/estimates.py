"""Estimates of a mean: intervals and p-values that hold for few questions and skewed scores.

The default is the plus-two t interval: the ordinary t interval of the values and two pseudo-values,
one at either end of what a value can be (for differences of scores in [0, 1]: +1 and -1, that is
two pseudo-questions of half a +1 and half a -1 each). For right and wrong answers that is the
interval of Bonett and Price (2012, J. Educ. Behav. Stat. 37) for paired proportions, with t in
place of the normal quantile; Agresti and Caffo (2000) have the idea. The bootstrap and the plain t
interval miss rare large differences: with few questions none may have been drawn.

Clusters of questions that vary together (they share a gold passage) enter by cluster-robust
standard errors with the correction for few clusters of Bell and McCaffrey (2002, CR2), never less
than those of single questions. A pseudo-value then weighs a cluster (`cluster_weight`), or the
design effect if that is larger. What the sample shows of clusters is no guide to that weight: where
a program fails on a whole document now and then, most small samples hold no such document.
`docs/verdicts.md` has what else was tried.

Programs compiled with other seeds differ. A statement about the optimizer treats the seed as a
random effect, crossed with the questions: the variance of the difference is that of the questions
plus that of the mean over seeds, by the two mean squares of the two-way analysis of variance
(without subtracting the residual, which errs on the safe side) and Satterthwaite's degrees of
freedom (1946).

Intervals and tests by betting hold for any number of questions and any distribution. A gambler bets
on the values against a mean m; were m the true mean, the capital would be a martingale, which
passes 1/alpha with a chance of at most alpha (Ville 1939). Means at which the capital stays below
are the interval (Waudby-Smith and Ramdas 2023, J. R. Stat. Soc. B 86, arXiv:2010.09686). These are
their diversified Kelly bets (a fixed grid), whose capital does not depend on the order of the
questions and may be looked at as often as one likes. Values are of questions drawn at random, or
the means of clusters drawn at random: each cluster is bet on up to its own reach, and the mean that
is spoken of is that over clusters.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragbench.metrics.stats.power import SHARE_OF_DF, bisect, f_tail, t_quantile, t_tail

Floats = NDArray[np.float64]
#: With fewer seeds, their variance cannot be told: the difference is of these programs alone.
LEAST_SEEDS = 3
#: The chance of a sample that shows nothing of what it should, as that of a false claim.
_UNSEEN = 0.05
#: The least and the greatest that a value can be; None where there are no bounds.
Bounds = tuple[float, float] | None
#: The cluster of each question, where questions vary together.
Clusters = Sequence[Hashable] | None


@dataclass(frozen=True)
class Interval:
    """A confidence interval; `level` in (0, 1)."""

    low: float
    high: float
    level: float = 0.95

    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def words(self, sign: str = "") -> str:
        """Both ends with three decimals, and with a `sign` of "+" those above 0 too."""
        return f"[{self.low:{sign}z.3f}, {self.high:{sign}z.3f}]"

    def mirrored(self) -> "Interval":
        """That of the difference the other way round."""
        return Interval(-self.high, -self.low, self.level)


def hull(intervals: Sequence[Interval | None]) -> Interval | None:
    """The least interval that holds all of `intervals`; None where one of them is None."""
    widest = intervals[0]
    for interval in intervals:
        if widest is None or interval is None:
            return None
        low = min(widest.low, interval.low)
        widest = Interval(low, max(widest.high, interval.high), widest.level)
    return widest


@dataclass(frozen=True)
class MeanEstimate:
    """A mean with its standard error and degrees of freedom, by which t tests it.

    `centre` is drawn towards the middle of the bounds by the pseudo-values. `design_effect` (at
    least 1) is how many times larger the variance is than that of as many questions that are not
    clustered. `cluster_size` is how many questions a pseudo-value counts for, 1 without clusters.
    `of_seeds` is the part of the squared standard error that seeds make, where they count as a
    random effect.
    """

    centre: float
    standard_error: float
    df: float
    bounds: Bounds = None
    design_effect: float = 1.0
    clusters: int = 0
    cluster_size: float = 1.0
    of_seeds: float = 0.0

    def mirrored(self) -> "MeanEstimate":
        """That of the difference the other way round."""
        return replace(self, centre=-self.centre)

    def interval(self, level: float = 0.95) -> Interval:
        """The two-sided t interval, cut off at the bounds."""
        half = t_quantile((1 + level) / 2, self.df) * self.standard_error
        low = self.centre - half
        high = self.centre + half
        if self.bounds:
            low = max(low, self.bounds[0])
            high = min(high, self.bounds[1])
        return Interval(low, high, level)

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
    """The mean of `values` `(n,)`; None for fewer than two of them or fewer than two clusters.

    `bounds` are what a value can be at least and at most; without them there are no pseudo-values.
    `clusters` names the cluster of each value. The degrees of freedom are those of the number of
    clusters of equal size that would be as informative (Carter, Schnepel and Steigerwald 2017).
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2:
        return None
    groups = codes_of(clusters, len(x))
    sizes = np.bincount(groups).astype(np.float64)
    if len(sizes) < 2:
        return None
    ends = np.asarray(bounds if bounds else (), dtype=np.float64)
    effect = _design_effect(x, groups, sizes)
    cluster_size = cluster_weight(sizes)
    weight = max(effect, cluster_size)
    total = len(x) + weight * len(ends)
    centre = (x.sum() + weight * ends.sum()) / total
    all_sizes = np.concatenate([sizes, np.full(len(ends), weight)])
    sums = np.concatenate([np.bincount(groups, weights=x - centre), weight * (ends - centre)])
    robust = float((sums**2 / (1 - all_sizes / total)).sum()) / total**2
    both = np.concatenate([x, ends])
    plain = float(both.var(ddof=1)) / len(both)  # had the questions nothing in common
    variance = max(robust, plain)
    return MeanEstimate(
        centre=float(centre),
        standard_error=0.0 if variance < 1e-24 else math.sqrt(variance),
        df=max(1.0, float(total**2 / (all_sizes**2).sum()) - 1),
        bounds=bounds,
        design_effect=max(1.0, effect * (1 - 1 / len(x)) / (1 - 1 / len(sizes))),
        clusters=len(sizes),
        cluster_size=cluster_size,
    )


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


def cluster_means(values: ArrayLike, clusters: Clusters) -> Floats:
    """The mean of `values` `(n,)` in each cluster; the values themselves without clusters."""
    x = np.asarray(values, dtype=np.float64)
    groups = codes_of(clusters, len(x))
    return np.bincount(groups, weights=x) / np.bincount(groups)


def codes_of(clusters: Clusters, n: int) -> NDArray[np.int64]:
    """The number of the cluster of each of `n` values, from 0 in the order of their first one."""
    if clusters is None:
        return np.arange(n)
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(cluster, len(seen)) for cluster in clusters])


def cluster_weight(sizes: ArrayLike) -> float:
    """How many questions a pseudo-value counts for, given the `sizes` of all clusters; at least 1.

    The k largest clusters may fail with a chance p such that one sample of twenty shows no failure,
    1 - .05^(1/k). Where they hold a share h of n questions, a gain of p h / (1 - p h) on all others
    makes up for that, and such a sample must not show it. For clusters of one size it comes to that
    size, which is the most that it may be: the weight is the largest over k.
    """
    ordered = np.sort(np.asarray(sizes, dtype=np.float64))[::-1]
    held = np.cumsum(ordered)
    chance = 1 - _UNSEEN ** (1 / np.arange(1, len(ordered) + 1))
    weights = held * chance / (1 - chance * held / held[-1]) / -math.log(_UNSEEN)
    return float(min(ordered[0], weights.max()))


def _design_effect(x: Floats, groups: NDArray[np.int64], sizes: Floats) -> float:
    """How many times larger the variance of the mean is than that of single questions.

    Where no value differs from another nothing is known of it: then `cluster_weight`.
    """
    if len(sizes) == len(x):
        return 1.0
    u = x - x.mean()
    spread = float((u**2).sum())
    if spread < 1e-18:
        return cluster_weight(sizes)
    return float((np.bincount(groups, weights=u) ** 2).sum()) / spread


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
    """The best of `candidates`: its mean as seen, and with the luck of being chosen taken off."""

    index: int
    seen: float
    corrected: float
    interval: Interval
    candidates: int


def corrected_best(
    scores: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    resamples: int = 1000,
) -> Best | None:
    """The best row of `scores` `(candidates, questions)`, higher is better; the first of equals.

    The best of several candidates looks better than it is. That is taken off by bootstrap bias
    correction (Tsamardinos, Greasidou and Borboudakis 2018, Machine Learning 107,
    arXiv:1708.07180): choose on resampled questions, score on those that were not drawn. Questions
    of one cluster are drawn together. None for fewer than two questions or clusters, where the luck
    cannot be told.
    """
    x = np.asarray(scores, dtype=np.float64)
    groups = codes_of(clusters, x.shape[1])
    n = int(groups.max()) + 1
    if n < 2:
        return None
    rng = np.random.default_rng(seed)
    index = int(x.mean(axis=1).argmax())
    seen = float(x[index].mean())
    unseen = []
    for _ in range(resamples):
        counts = np.bincount(rng.integers(n, size=n), minlength=n)[groups]
        if (unsampled := counts == 0).any():
            unseen.append(x[int((x @ counts).argmax()), unsampled].mean())
    means = np.asarray(unseen)
    low, high = np.quantile(means, [0.025, 0.975])
    corrected = min(seen, float(means.mean()))
    return Best(index, seen, corrected, Interval(float(low), float(high)), len(x))


#: The shares of the largest possible bet that the diversified gambler places at once.
_BETS = np.linspace(0.05, 0.95, 19)


def anytime_p(values: ArrayLike, reach: float, *, null: float = 0.0) -> float:
    """The p-value of the mean being `null`, whenever one stops; `values` are within ±`reach`."""
    x = np.asarray(values, dtype=np.float64) / reach
    best = max(_capital(x, null / reach), _capital(-x, -null / reach))
    return math.exp(min(0.0, max(-700.0, math.log(2) - best)))


def anytime_interval(values: ArrayLike, reach: float) -> Interval:
    """The 95 % interval of the mean of `values`, within ±`reach`, that holds at every look."""
    x = np.asarray(values, dtype=np.float64) / reach
    return Interval(reach * _refused_below(x), -reach * _refused_below(-x))


def _capital(x: Floats, mean: float) -> float:
    """The logarithm of the capital of bets that the mean of `x`, in [-1, 1], is above `mean`."""
    stakes = _BETS[:, None] / (1 + mean)
    logs = np.log1p(stakes * (x[None, :] - mean)).sum(axis=1)
    return float(np.logaddexp.reduce(logs) - math.log(len(_BETS)))


def _refused_below(x: Floats) -> float:
    """The greatest mean such that it and all below it are refused; -1 where none is."""
    limit = math.log(2 / (1 - 0.95))
    low = -1 + 1e-9
    high = float(x.mean()) if len(x) else 0.0
    if high <= low or _capital(x, low) < limit:
        return -1.0
    return bisect(lambda mean: _capital(x, mean) < limit, low, high)[0]
