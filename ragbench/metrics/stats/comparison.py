"""The paired comparison of two arms over the same questions, and the verdict in words.

A difference is always B minus A. Questions are the unit: several seeds of one question are averaged
before a test, so that no seed counts as another question. A verdict of a difference rests on the
test of the mean, whose interval is printed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ragbench.metrics.stats.estimates import (
    Bounds,
    Clusters,
    Floats,
    Interval,
    MeanEstimate,
    anytime_interval,
    anytime_p,
    cluster_means,
    difference_bounds,
    estimate_difference,
    hull,
)
from ragbench.metrics.stats.power import ALPHA, PlannedTest

#: With fewer questions, nothing is said of how many a difference would take.
LEAST_PILOT = 10
#: With no more clusters, a difference is shown that is as large as a third of the range in each.
FEW_CLUSTERS = 10
#: Where seeds vary, more seeds are asked for rather than so many times the questions.
_FAR_MORE = 20


@dataclass(frozen=True)
class Comparison:
    """Two arms on one metric; `difference` is B minus A.

    `interval` (95 %) is None where none can be given: fewer than two questions, or one cluster.
    `p` is of the test of the mean, dual to the interval; `p_equivalent` of its lying outside the
    margin; `p_adjusted` and `p_equivalent_adjusted` are Holm's where the comparison is one of a
    family. `minimum_detectable` is the least difference that is shown with 80 % power. `n_needed`
    is how many questions would show the difference that was seen, `n_least` the largest that the
    interval holds, `seeds_needed` how many seeds (of `n_needed` questions) where questions alone
    would not. All are corrected for the family as p is.
    `interval_a` and `interval_b` are of the arms' means, seeds included. `estimate` is what the
    interval comes from unless it `bets`. `corrected_interval` is at the level that Holm's
    correction leaves it in its family: it excludes 0 just where the verdict says better or worse.
    Where `unscored` questions have a score in some of the runs alone, `extremes` are the estimates
    with the worst and with the best score for the missing ones; interval and p-values are those
    that hold for both, and `n`, means and `difference` are of the scored ones.
    None: cannot be said.
    """

    n: int
    mean_a: float
    mean_b: float
    difference: float
    interval: Interval | None
    p: float
    verdict: str = ""
    minimum_detectable: float | None = None
    n_needed: int | None = None
    n_least: int | None = None
    seeds_needed: int | None = None
    sd: float = 0.0
    p_adjusted: float | None = None
    p_equivalent: float = 1.0
    p_equivalent_adjusted: float | None = None
    higher_is_better: bool = True
    margin: float | None = None
    score_range: Bounds = (0.0, 1.0)
    interval_a: Interval | None = None
    interval_b: Interval | None = None
    estimate: MeanEstimate | None = None
    bets: bool = False
    seeds: int = 1
    clusters: int | None = None
    corrected_interval: Interval | None = None
    unscored: int = 0
    extremes: tuple[MeanEstimate, ...] = ()

    @property
    def corrected_p(self) -> float:
        """`p`, as Holm adjusted it where it is one of a family."""
        if self.p_adjusted is None:
            return self.p
        return self.p_adjusted

    @property
    def gain(self) -> str:
        """The difference with its 95 % interval, such as "+0.258 [+0.140, +0.362]"."""
        if self.interval is None:
            return f"{self.difference:+z.3f}"
        return f"{self.difference:+z.3f} {self.interval.words('+')}"

    def at(self, level: float) -> Interval | None:
        """The interval at `level` in (0, 1); that of 95 % where it bets."""
        if self.bets or self.interval is None:
            return self.interval
        return hull([estimate.interval(level) for estimate in self._estimates()])

    def reversed(self) -> "Comparison":
        """The same test with A and B exchanged: A minus B."""
        turned = replace(
            self,
            mean_a=self.mean_b,
            mean_b=self.mean_a,
            difference=-self.difference,
            interval=self.interval and self.interval.mirrored(),
            corrected_interval=self.corrected_interval and self.corrected_interval.mirrored(),
            interval_a=self.interval_b,
            interval_b=self.interval_a,
            estimate=self.estimate and self.estimate.mirrored(),
            extremes=tuple(map(MeanEstimate.mirrored, self.extremes)),
        )
        return replace(turned, verdict=verdict(turned))

    def p_behind(self, worth: float) -> float:
        """The p-value of B being worse than A by `worth` or more, for claims that it is not.

        It is at most 0.05 just where the end of the 95 % interval on the worse side is nearer.
        """
        if self.bets or self.interval is None:
            return 1.0
        estimates = self._estimates()
        if not self.higher_is_better:
            estimates = list(map(MeanEstimate.mirrored, estimates))
        return max(estimate.p_at_most(-worth) for estimate in estimates)

    def planned(self, family: int = 1) -> PlannedTest | None:
        """The same test on new questions, one of `family`; None where no interval can be given."""
        if self.estimate is None:
            return None
        return PlannedTest(
            alpha=ALPHA / family,
            reach=self.score_range[1] - self.score_range[0] if self.score_range else None,
            design_effect=self.estimate.design_effect,
            cluster_size=self.estimate.cluster_size,
            seed_variance=self.estimate.of_seeds * self.seeds,
            seeds=self.seeds,
        )

    def _estimates(self) -> Sequence[MeanEstimate]:
        if self.extremes or self.estimate is None:
            return self.extremes
        return [self.estimate]


@dataclass(frozen=True)
class Method:
    """How a comparison is made.

    `margin` is the difference too small to matter, for a verdict of equivalence. `anytime` takes
    the interval and the test that may be looked at as often as one likes, by betting; it needs
    bounds, and speaks of the seeds at hand.
    `random_seeds`: arms of three or more seeds stand for all there could be.
    """

    margin: float | None = None
    anytime: bool = False
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
    """The paired comparison of two arms' scores `(questions,)` or `(seeds, questions)`.

    `clusters` names the cluster of each question, where questions vary together. `score_range` is
    what a score can be; None where it has no bounds, and then no equivalence is claimed.
    """
    method = method or Method()
    before = np.atleast_2d(np.ascontiguousarray(a, dtype=np.float64))
    after = np.atleast_2d(np.ascontiguousarray(b, dtype=np.float64))
    d = after.mean(axis=0) - before.mean(axis=0)
    bounds = difference_bounds(score_range)
    seeds = method.random_seeds
    estimate = estimate_difference(before, after, bounds, clusters, random_seeds=seeds)
    nothing = np.zeros((1, len(d)))
    intervals = []
    for arm in (before, after):
        of_arm = estimate_difference(nothing, arm, score_range, clusters, random_seeds=seeds)
        intervals.append(of_arm.interval() if of_arm else None)
    margin = method.margin
    interval = None
    p = 1.0
    p_equivalent = 1.0  # of a mean beyond the margin
    if bounds and method.anytime:
        units = cluster_means(d, clusters)
        if len(units) > 1:
            reach = bounds[1]
            interval = anytime_interval(units, reach)
            p = anytime_p(units, reach)
            if margin is not None and abs(units.mean()) < margin < reach:
                ends = (anytime_p(units, reach, null=null) for null in (margin, -margin))
                p_equivalent = max(ends)
    elif estimate:
        interval = estimate.interval()
        p = estimate.p_value()
        if margin is not None:
            p_equivalent = estimate.p_beyond(margin)
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
        margin=margin,
        score_range=score_range,
        interval_a=intervals[0],
        interval_b=intervals[1],
        estimate=estimate,
        bets=bounds is not None and method.anytime,
        seeds=max(len(before), len(after)),
        clusters=len(set(clusters)) if clusters else None,
    )
    return _judged(comparison)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def correct(family: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with Holm's p-values over the family, and verdicts that rest on them.

    Differences and equivalences are two families: no contrast can be a false claim of both.
    """
    different = holm([c.p for c in family])
    equivalent = holm([c.p_equivalent for c in family])
    open_tests = sum(p > ALPHA for p in different)
    corrected = []
    for c, p, p_equivalent in zip(family, different, equivalent, strict=True):
        if p > ALPHA:
            share = 1 / open_tests
        elif p > 0:
            share = c.p / p
        else:
            share = 1 / len(family)
        adjusted = replace(
            c,
            p_adjusted=p,
            p_equivalent_adjusted=p_equivalent,
            corrected_interval=c.at(1 - ALPHA * share),
        )
        corrected.append(_judged(adjusted, len(family)))
    return corrected


def with_extremes(
    complete: Comparison, extremes: Sequence[Comparison], unscored: int
) -> Comparison:
    """`complete`, of the scored questions, with what holds for both `extremes` of `unscored`."""
    estimates = tuple(c.estimate for c in extremes if c.estimate is not None)
    interval = hull([c.interval for c in extremes])
    p = 1.0
    if interval is not None and interval.excludes_zero():
        p = max(c.p for c in extremes)
    bounded = replace(
        complete,
        interval=interval,
        p=p,
        p_equivalent=max(c.p_equivalent for c in extremes),
        unscored=unscored,
        extremes=estimates,
    )
    return _judged(bounded)


def verdict(c: Comparison) -> str:
    """What the comparison shows of B: better, worse, equivalent, or no difference shown."""
    close = is_equivalent(c)
    if c.interval and c.corrected_p <= ALPHA and c.interval.excludes_zero():
        word = "better" if (c.interval.low > 0) == c.higher_is_better else "worse"
        if close:
            return f"{word}, by less than the margin of {c.margin:g}"
        return word
    if close:
        return f"equivalent within ±{c.margin:g}"
    why = _why_nothing_is_shown(c)
    if why:
        return f"no difference shown ({why})"
    return "no difference shown"


def _why_nothing_is_shown(c: Comparison) -> str:
    if c.clusters == 1 and c.n > 1:
        return "all questions share a gold passage, so no interval can be given; ask about others"
    if abs(c.difference) < 1e-9:
        return "the two score the same"
    if c.unscored:
        return (
            f"{c.unscored} questions have a score in one run alone, and what the others would "
            "score could turn it; `ragbench score` fills what a judge gives"
        )
    if c.n < LEAST_PILOT:
        return "too few questions to say how many would be needed"
    if c.clusters is not None and c.clusters <= FEW_CLUSTERS:
        return (
            f"{c.clusters} documents: too few to tell; ask about more documents, not more "
            "questions of these"
        )
    if c.seeds_needed is not None:
        advice = f"it needs more seeds: about {_rounded(c.seeds_needed):,}"
        if c.n_needed and c.n_needed > c.n:
            advice += f", of about {_rounded(c.n_needed):,} questions"
        return advice
    if c.n_needed is None:
        return ""
    needed = _rounded(max(c.n_needed, c.n + 1))
    advice = f"a new run of about {needed:,} questions"
    if c.clusters is not None and c.clusters < c.n:
        advice += f" about {_rounded(math.ceil(needed * c.clusters / c.n)):,} documents"
    advice += " would be needed to show one this size"
    if c.n_least is not None and _rounded(c.n_least) < needed:
        least = f"{_rounded(c.n_least):,}"
        advice += f", and of {least} to show the largest that the interval holds"
    return advice


def is_equivalent(c: Comparison) -> bool:
    """Whether the mean is shown to lie within the margin, where there is one and scores have ends.

    In a family the p-value that Holm adjusted decides, so that it is wrong as seldom as the rest.
    """
    if c.margin is None or c.interval is None or c.score_range is None:
        return False
    p = c.p_equivalent if c.p_equivalent_adjusted is None else c.p_equivalent_adjusted
    return p <= ALPHA and -c.margin < c.interval.low and c.interval.high < c.margin


def _judged(c: Comparison, family: int = 1) -> Comparison:
    """`c`, one of a `family` of tests, with its verdict, and what would show more of it."""
    judged = replace(c, n_needed=None, n_least=None, seeds_needed=None, minimum_detectable=None)
    test = c.planned(family)
    # Power is known of the t test alone, and of no difference that missing scores may turn.
    if test and c.sd and c.interval and not c.bets and not c.unscored:
        least = test.detectable(c.sd**2, c.difference, c.n)
        judged = _with_needed(replace(judged, minimum_detectable=least), test, c.interval)
    return replace(judged, verdict=verdict(judged))


def _with_needed(c: Comparison, test: PlannedTest, interval: Interval) -> Comparison:
    """`c` with the questions that would show the difference seen and the largest, or else seeds."""
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


def _rounded(n: int) -> int:
    # Two figures: the estimate comes from a difference that is itself uncertain.
    unit = int(10 ** max(0, len(str(n)) - 2))
    return -(-n // unit) * unit


def _sd(d: Floats) -> float:
    if len(d) < 2:
        return 0.0
    spread = float(d.std(ddof=1))
    if spread > 1e-12:
        return spread
    return 0.0
