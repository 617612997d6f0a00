"""Paired statistics of two runs over the same questions, and the verdict in words.

A difference is always B minus A. Questions are the unit: several seeds of one question are averaged
before a test, and resampled as well for the interval, so that neither counts as more data than it
is. A verdict of a difference needs both the permutation test and the bootstrap interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ragbench.errors import CompareError
from ragbench.metrics.power import ALPHA, minimum_detectable, questions_needed

Floats = NDArray[np.float64]
#: Per question a score, or one score per seed (as many for every question).
Scores = Mapping[str, float] | Mapping[str, Sequence[float]]

_BLOCK = 4_000_000  # numbers drawn at once; bounds memory


@dataclass(frozen=True)
class Interval:
    """A confidence interval; `level` in (0, 1)."""

    low: float
    high: float
    level: float = 0.95

    def excludes_zero(self) -> bool:
        """Whether it lies wholly on one side of 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class McNemar:
    """Questions that one run alone got right, and the exact p-value of their balance."""

    only_a: int
    only_b: int
    p: float


@dataclass(frozen=True)
class Comparison:
    """Two runs on one metric; `difference` is B minus A.

    `interval` is None for fewer than two questions. `p` is of the paired permutation test;
    `p_adjusted` is Holm's where the comparison is one of a family. `effect_size` is Cohen's d of
    the differences; `minimum_detectable` what this many questions show with 80 % power; `n_needed`
    how many would show the difference that was seen. None: cannot be said.
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
    mcnemar: McNemar | None = None
    p_adjusted: float | None = None
    higher_is_better: bool = True
    margin: float | None = None
    score_range: tuple[float, float] | None = (0.0, 1.0)


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, *, n: int = 10_000, seed: int, level: float = 0.95
) -> Interval:
    """The percentile interval of the mean of `b - a` over `n` resamples of the questions.

    `a` and `b` are `(questions,)`, or `(seeds, questions)` with any number of seeds each; seeds are
    then resampled too, for each run by itself (the pigeonhole bootstrap, Owen 2007).

    Raises:
        ValueError: fewer than two questions, or unequal numbers of them.
    """
    left, right = (np.atleast_2d(np.asarray(x, dtype=np.float64)) for x in (a, b))
    if left.shape[1] != right.shape[1] or left.shape[1] < 2:
        raise ValueError(
            f"a paired bootstrap needs two or more questions and as many on either side, "
            f"not {left.shape[1]} and {right.shape[1]}"
        )
    if len(left) == len(right) == 1:
        interval = stats.bootstrap(
            ((right - left)[0],),
            np.mean,
            n_resamples=n,
            batch=max(1, _BLOCK // left.shape[1]),
            confidence_level=level,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        return Interval(float(interval.low), float(interval.high), level)
    means = _two_way_means(left, right, n, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level)


def _two_way_means(left: Floats, right: Floats, n: int, rng: np.random.Generator) -> Floats:
    means = np.empty(n)
    size = left.shape[1]
    for i in range(n):
        questions = rng.integers(size, size=size)
        a = left[rng.integers(len(left), size=len(left))].mean(axis=0)
        b = right[rng.integers(len(right), size=len(right))].mean(axis=0)
        means[i] = (b - a)[questions].mean()
    return means


def permutation_p(a: ArrayLike, b: ArrayLike, *, n: int = 9_999, seed: int) -> float:
    """The two-sided p-value of the paired permutation test on the mean difference.

    Exact where there are at most `n` ways to flip the signs of the differences, or where all that
    are not 0 have one size (the sign test); else over `n` random flips, counting the observed one.
    """
    d = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)
    d = d[np.abs(d) > 1e-12]  # a tie stays a tie however it is flipped
    if not len(d):
        return 1.0
    sizes = np.abs(d)
    if np.allclose(sizes, sizes[0], rtol=0, atol=1e-12):
        return float(stats.binomtest(int((d > 0).sum()), len(d)).pvalue)
    observed = abs(d.sum()) - 1e-9
    if 2 ** len(d) <= n:
        flips = (np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1
        return float((np.abs((1 - 2 * flips) @ d) >= observed).mean())
    rng, extreme, left = np.random.default_rng(seed), 0, n
    while left:
        rows = min(left, max(1, _BLOCK // len(d)))
        signs = rng.integers(0, 2, size=(rows, len(d)), dtype=np.int8).astype(np.float32)
        # In single precision, so that BLAS does the sum: ties are taken within its error.
        sums = np.abs(2 * (signs @ d.astype(np.float32)) - np.float32(d.sum()))
        extreme += int((sums >= observed - 1e-5 * sizes.sum()).sum())
        left -= rows
    return (extreme + 1) / (n + 1)


def mcnemar(a: ArrayLike, b: ArrayLike) -> McNemar:
    """The exact McNemar test on right and wrong answers (1 and 0)."""
    left, right = np.asarray(a) > 0.5, np.asarray(b) > 0.5
    only_a, only_b = int((left & ~right).sum()), int((right & ~left).sum())
    total = only_a + only_b
    p = float(stats.binomtest(only_b, total).pvalue) if total else 1.0
    return McNemar(only_a, only_b, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given (Holm 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def effect_size(a: ArrayLike, b: ArrayLike) -> float | None:
    """Cohen's d of the paired differences: mean over standard deviation; None without spread."""
    d = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)
    spread = _sd(d)
    return float(d.mean() / spread) if spread else None


def compare_scores(
    a: Scores,
    b: Scores,
    *,
    seed: int = 0,
    margin: float | None = None,
    higher_is_better: bool = True,
    score_range: tuple[float, float] | None = (0.0, 1.0),
    n_resamples: int = 10_000,
) -> Comparison:
    """The paired comparison of two runs' scores by question id.

    `margin` is the difference too small to matter, for a verdict of equivalence. `score_range`
    bounds what a question that was not asked could score; None where there are no bounds, and then
    no equivalence is claimed.

    Raises:
        CompareError: not the same questions, none, or unequal numbers of seeds.
    """
    left, right = _aligned(a, b)
    mean_left, mean_right = left.mean(axis=0), right.mean(axis=0)
    d = mean_right - mean_left
    single = len(left) == len(right) == 1
    binary = single and bool(np.isin([left, right], (0.0, 1.0)).all())
    sd = _sd(d)
    comparison = Comparison(
        n=len(d),
        mean_a=float(mean_left.mean()),
        mean_b=float(mean_right.mean()),
        difference=float(d.mean()),
        interval=_interval(left, right, seed=seed, n=n_resamples, score_range=score_range),
        p=permutation_p(mean_left, mean_right, n=n_resamples - 1, seed=seed),
        effect_size=effect_size(mean_left, mean_right),
        minimum_detectable=minimum_detectable(sd, len(d)),
        n_needed=questions_needed(float(d.mean()), sd) if len(d) > 1 else None,
        verdict="",
        sd=sd,
        mcnemar=mcnemar(left[0], right[0]) if binary else None,
        higher_is_better=higher_is_better,
        margin=margin,
        score_range=score_range,
    )
    return replace(comparison, verdict=verdict(comparison))


def correct(family: Sequence[Comparison], *, alpha: float = ALPHA) -> list[Comparison]:
    """The comparisons with Holm's p-values over the family, and verdicts that rest on them."""
    corrected = []
    for comparison, p in zip(family, holm([c.p for c in family]), strict=True):
        needed = questions_needed(comparison.difference, comparison.sd, alpha=alpha / len(family))
        adjusted = replace(comparison, p_adjusted=p, n_needed=needed if comparison.n > 1 else None)
        corrected.append(replace(adjusted, verdict=verdict(adjusted, alpha=alpha)))
    return corrected


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
    if c.n < 2:
        return "no difference shown (too few questions to say how many would be needed)"
    if c.n_needed is None:
        return "no difference shown (too small for any number of questions to show)"
    needed = _rounded(max(c.n_needed, c.n + 1))
    return f"no difference shown (about {needed:,} questions would be needed to show one this size)"


def _rounded(n: int) -> int:
    # Two figures: the estimate comes from a difference that is itself uncertain.
    unit = int(10 ** max(0, len(str(n)) - 2))
    return -(-n // unit) * unit


def is_equivalent(comparison: Comparison) -> bool:
    """Whether the interval, widened by what unseen questions could hide, lies within the margin.

    The bootstrap knows only differences that were seen: five ties give it the interval [0, 0]. Up
    to `1 - (1 - level) ** (1 / n)` of all questions (about 3 in n) could be of a kind that was not
    drawn, and each could differ by the whole range of scores.
    """
    c = comparison
    if c.margin is None or c.interval is None or c.score_range is None:
        return False
    hidden = _hidden(c.n, c.interval.level) * (c.score_range[1] - c.score_range[0])
    return -c.margin < c.interval.low - hidden and c.interval.high + hidden < c.margin


def _hidden(n: int, level: float) -> float:
    return 1.0 - math.pow(1 - level, 1 / n)


def _interval(
    left: Floats, right: Floats, *, seed: int, n: int, score_range: tuple[float, float] | None
) -> Interval | None:
    if left.shape[1] < 2:
        return None
    found = paired_bootstrap(left, right, n=n, seed=seed)
    if found.low < found.high or score_range is None:
        return found
    # All questions differ by the same: the bootstrap sees no spread, which few questions hide.
    widest = score_range[1] - score_range[0]
    hidden = _hidden(left.shape[1], found.level)
    return Interval(
        found.low - hidden * (widest + found.low), found.high + hidden * (widest - found.high)
    )


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
