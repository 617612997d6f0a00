"""The paired comparison of two arms over the same questions, and the verdict in words.

A difference is always B minus A. Questions are the unit: several seeds of one question are averaged
before a test, so that no seed counts as another question. A verdict of a difference rests on the
test of the mean, whose interval is printed; sign flips stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from ragbench.errors import CompareError
from ragbench.metrics.stats.betting import (
    anytime_interval,
    betting_interval,
    betting_p,
    e_process,
)
from ragbench.metrics.stats.estimates import (
    Floats,
    Interval,
    MeanEstimate,
    cluster_sums,
    difference_bounds,
    estimate_mean,
)
from ragbench.metrics.stats.power import ALPHA, least_shift, questions_needed
from ragbench.metrics.stats.seeds import VarianceSplit, estimate_difference, split_variance
from ragbench.metrics.stats.significance import McNemar, holm, mcnemar, sign_flip_p

#: Per question a score, or one score per seed (as many for every question).
Scores = Mapping[str, float] | Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Comparison:
    """Two arms on one metric; `difference` is B minus A.

    `interval` (95 %) is None for fewer than two questions. `p` is of the test of the mean, dual to
    the interval; `p_adjusted` is Holm's where the comparison is one of a family; `p_sign_flip` is
    of the sign-flip test. `effect_size` is Cohen's d of the differences. `minimum_detectable` is
    the least difference that is shown with 80 % power, `n_needed` how many questions would show
    the difference that was seen, both corrected for the family as p is. `estimate` is what the
    interval comes from unless it `bets`, `variance` the split of an arm of several seeds. None:
    cannot be said.
    """

    n: int
    mean_a: float
    mean_b: float
    difference: float
    interval: Interval | None
    p: float
    effect_size: float | None
    minimum_detectable: float | None
    n_needed: int | None
    verdict: str
    sd: float = 0.0
    p_sign_flip: float = 1.0
    mcnemar: McNemar | None = None
    p_adjusted: float | None = None
    higher_is_better: bool = True
    margin: float | None = None
    score_range: tuple[float, float] | None = (0.0, 1.0)
    interval_a: Interval | None = None
    interval_b: Interval | None = None
    estimate: MeanEstimate | None = None
    bets: bool = False
    variance: VarianceSplit | None = None


@dataclass(frozen=True)
class Method:
    """How a comparison is made.

    `margin` is the difference too small to matter, for a verdict of equivalence. `clusters` names
    the cluster of a question, where questions vary together. `exact` takes the betting interval
    and its test, which hold for any distribution; it needs bounds, and speaks of the seeds at hand.
    `anytime` takes the interval and the test that may be looked at as often as one likes.
    `random_seeds`: arms of three or more seeds stand for all there could be. `flips` and `seed`
    are of the sign-flip test.
    """

    margin: float | None = None
    clusters: Mapping[str, Hashable] = field(default_factory=dict)
    exact: bool = False
    anytime: bool = False
    random_seeds: bool = True
    flips: int = 9_999
    seed: int = 0


def compare_scores(
    a: Scores,
    b: Scores,
    *,
    higher_is_better: bool = True,
    score_range: tuple[float, float] | None = (0.0, 1.0),
    method: Method | None = None,
) -> Comparison:
    """The paired comparison of two arms' scores by question id.

    `score_range` is what a score can be; None where it has no bounds, and then no equivalence is
    claimed.

    Raises:
        CompareError: not the same questions, none, or unequal numbers of seeds.
    """
    method = method or Method()
    left, right = _aligned(a, b)
    clusters = [method.clusters.get(qid, (qid,)) for qid in sorted(a)] if method.clusters else None
    d = right.mean(axis=0) - left.mean(axis=0)
    estimate = estimate_difference(
        left, right, difference_bounds(score_range), clusters=clusters,
        random_seeds=method.random_seeds,
    )  # fmt: skip
    bets = score_range is not None and (method.exact or method.anytime)
    interval, p = _bet(d, score_range, clusters, method) if bets else _tested(estimate)
    means = [estimate_mean(arm.mean(axis=0), score_range, clusters) for arm in (left, right)]
    single = len(left) == len(right) == 1
    binary = single and bool(np.isin([left, right], (0.0, 1.0)).all())
    seeded = right if len(right) >= len(left) else left
    comparison = Comparison(
        n=len(d),
        mean_a=float(left.mean()),
        mean_b=float(right.mean()),
        difference=float(d.mean()),
        interval=interval,
        p=p,
        effect_size=effect_size(left.mean(axis=0), right.mean(axis=0)),
        minimum_detectable=None,
        n_needed=None,
        verdict="",
        sd=_sd(d),
        p_sign_flip=sign_flip_p(cluster_sums(d, clusters), n=method.flips, seed=method.seed),
        mcnemar=mcnemar(left[0], right[0]) if binary else None,
        higher_is_better=higher_is_better,
        margin=method.margin,
        score_range=score_range,
        interval_a=means[0].interval() if means[0] else None,
        interval_b=means[1].interval() if means[1] else None,
        estimate=estimate,
        bets=bets,
        variance=split_variance(seeded, left if seeded is right else right),
    )
    return _judged(comparison, alpha=ALPHA, family=1)


def correct(family: Sequence[Comparison], *, alpha: float = ALPHA) -> list[Comparison]:
    """The comparisons with Holm's p-values over the family, and verdicts that rest on them."""
    return [
        _judged(replace(comparison, p_adjusted=p), alpha=alpha, family=len(family))
        for comparison, p in zip(family, holm([c.p for c in family]), strict=True)
    ]


def verdict(comparison: Comparison, *, alpha: float = ALPHA) -> str:
    """What the comparison shows of B: better, worse, equivalent, or no difference shown."""
    c = comparison
    p = c.p if c.p_adjusted is None else c.p_adjusted
    close = is_equivalent(c)
    if c.interval and p <= alpha and c.interval.excludes_zero():
        word = "better" if (c.difference > 0) == c.higher_is_better else "worse"
        return f"{word}, by less than the margin of {c.margin:g}" if close else word
    if close:
        return f"equivalent within ±{c.margin:g}"
    if abs(c.difference) < 1e-9:
        return "no difference shown (the two score the same)"
    if c.bets and c.n > 1:
        return "no difference shown"
    if c.n < 2:
        return "no difference shown (too few questions to say how many would be needed)"
    if c.n_needed is None:
        return "no difference shown (too small for any number of questions to show)"
    needed = _rounded(max(c.n_needed, c.n + 1))
    return (
        f"no difference shown (a new run of about {needed:,} questions would be needed to show one "
        "this size)"
    )


def is_equivalent(comparison: Comparison) -> bool:
    """Whether the interval lies within the margin, where there is one and scores have bounds."""
    c = comparison
    if c.margin is None or c.interval is None or c.score_range is None:
        return False
    return -c.margin < c.interval.low and c.interval.high < c.margin


def effect_size(a: ArrayLike, b: ArrayLike) -> float | None:
    """Cohen's d of the paired differences: mean over standard deviation; None without spread."""
    d = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)
    spread = _sd(d)
    return float(d.mean() / spread) if spread else None


def _tested(estimate: MeanEstimate | None) -> tuple[Interval | None, float]:
    return (estimate.interval(), estimate.p_value()) if estimate else (None, 1.0)


def _bet(
    d: Floats, score_range: tuple[float, float] | None, clusters: Sequence[Hashable] | None,
    method: Method,
) -> tuple[Interval | None, float]:  # fmt: skip
    """The interval of the mean of `d` and the p-value of its being 0, by betting."""
    if score_range is None or len(d) < 2:
        return None, 1.0
    units, reach = bet_units(d, score_range, clusters)
    if method.anytime:
        interval, p = anytime_interval(units, reach), e_process(units, reach).p
    else:
        interval = betting_interval(units, (-reach, reach))
        p = betting_p(units, (-reach, reach))
    scale = len(units) / len(d)  # from a mean over units back to one over questions
    return Interval(interval.low * scale, interval.high * scale, interval.level), p


def bet_units(
    d: Floats, score_range: tuple[float, float], clusters: Sequence[Hashable] | None
) -> tuple[Floats, float]:
    """Sums of differences over each cluster, and the largest absolute value that one can have."""
    width = score_range[1] - score_range[0]
    if clusters is None:
        return d, width
    return cluster_sums(d, clusters), width * float(cluster_sums(np.ones(len(d)), clusters).max())


def _judged(comparison: Comparison, *, alpha: float, family: int) -> Comparison:
    """`comparison` with its detectable difference, questions needed and verdict."""
    c, each = comparison, alpha / family
    said = c.estimate and c.sd and not c.bets  # power is known of the t test alone
    least = c.estimate.detectable(alpha=each) if c.estimate and said else None
    judged = replace(c, minimum_detectable=least, n_needed=_needed(c, each))
    return replace(judged, verdict=verdict(judged, alpha=alpha))


def _needed(c: Comparison, alpha: float) -> int | None:
    """Questions that would show the difference seen, if they vary as those at hand do.

    None where no number would: it is too small, or no larger than what seeds alone vary by.
    """
    if c.estimate is None or c.bets:
        return None
    sd = c.sd * math.sqrt(c.estimate.design_effect)
    if not c.estimate.of_seeds:
        return questions_needed(c.difference, sd, alpha=alpha)
    wanted = (c.difference / least_shift(c.estimate.df, alpha=alpha)) ** 2
    left = wanted - c.estimate.of_seeds
    return max(2, math.ceil(sd**2 / left)) if left > 1e-9 else None


def _rounded(n: int) -> int:
    # Two figures: the estimate comes from a difference that is itself uncertain.
    unit = int(10 ** max(0, len(str(n)) - 2))
    return -(-n // unit) * unit


def _sd(d: Floats) -> float:
    if len(d) < 2:
        return 0.0
    spread = float(d.std(ddof=1))
    return 0.0 if math.isclose(spread, 0.0, abs_tol=1e-12) else spread


def _aligned(a: Scores, b: Scores) -> tuple[Floats, Floats]:
    """Both as `(seeds, questions)`, questions in sorted order."""
    if a.keys() != b.keys():
        raise CompareError(
            f"the runs are over different questions: {len(a.keys() - b.keys())} only in the first, "
            f"{len(b.keys() - a.keys())} only in the second; compare runs of one data set and limit"
        )
    if not a:
        raise CompareError("the runs have no scored question to compare; run `ragbench eval` first")
    qids = sorted(a)
    sides = []
    for side in (a, b):
        rows = [np.atleast_1d(np.asarray(side[qid], dtype=np.float64)) for qid in qids]
        if len({len(row) for row in rows}) > 1 or not len(rows[0]):
            raise CompareError("a run has not the same number of seeds for every question")
        sides.append(np.stack(rows, axis=1))
    return sides[0], sides[1]
