"""Result of a paired comparison of two arms, and its verdict in words.

A difference is always B minus A. `Comparison.outcome` is the only verdict, which sentences, tables,
JSON, the page and gates use. A metric without bounds, such as a cost, has no verdict.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ragbench.metrics.stats.estimates import Bounds, Interval, MeanEstimate, hull
from ragbench.metrics.stats.power import ALPHA, PlannedTest

#: Minimum number of questions to estimate a required sample size.
LEAST_PILOT = 10
#: Result of a comparison for B. Empty if its metric is not tested.
Outcome = Literal["better", "worse", "equivalent", "undecided", ""]


@dataclass(frozen=True)
class Comparison:
    """Comparison of two arms on one metric. `difference` is B minus A.

    Attributes:
        n: Number of questions that have a score in both arms.
        mean_a: Mean of A, in score units.
        mean_b: Mean of B, in score units.
        difference: Mean of B minus mean of A.
        interval: 95 % interval of the difference. None if there are too few questions.
        p: P-value of a mean of 0, dual to the interval. None if the metric is not tested.
        outcome: Result for B.
        slight: True if B is better or worse by less than the margin.
        verdict: Outcome in words, with its reason and its limits.
        breakdown: Share of unseen documents that may fail completely before a better B is no longer
            better. None without clusters.
        minimum_detectable: Smallest difference that is detected with 80 % power.
        n_needed: Number of questions that would detect the observed difference.
        n_least: Number of questions that would detect the largest difference in the interval.
        seeds_needed: Number of seeds, if more questions would not suffice.
        sd: Standard deviation of the differences.
        p_adjusted: `p` by Holm, if the comparison is one of a family.
        p_equivalent: P-value of a mean outside the margin.
        p_equivalent_adjusted: The same by Holm.
        higher_is_better: True if higher values are better.
        margin: Difference that is too small to matter.
        score_range: Least and greatest score. None if the metric has no bounds.
        interval_a: 95 % interval of the mean of A, seeds included.
        interval_b: The same of B.
        estimate: Estimate that the interval comes from.
        seeds: Number of seeds of the arm with more seeds.
        corrected_interval: Interval at the level that Holm's correction leaves. It excludes 0 if
            and only if B is better or worse.
        unscored: Number of questions that have a score in only one arm.
        extremes: Estimates with the worst and with the best score for these.
        most_expensive: Largest value of one question in A and in B, if the metric has no bounds.
        reason: Reason for a missing interval, other than too few questions.
    """

    n: int
    mean_a: float
    mean_b: float
    difference: float
    interval: Interval | None
    p: float | None
    outcome: Outcome = ""
    slight: bool = False
    verdict: str = ""
    breakdown: float | None = None
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
    seeds: int = 1
    corrected_interval: Interval | None = None
    unscored: int = 0
    extremes: tuple[MeanEstimate, ...] = ()
    most_expensive: tuple[float, float] | None = None
    reason: str = ""

    @property
    def corrected_p(self) -> float | None:
        """`p`, by Holm if the comparison is one of a family. None if the metric is not tested."""
        if self.p_adjusted is None:
            return self.p
        return self.p_adjusted

    @property
    def ratio(self) -> float | None:
        """Mean of B divided by the mean of A. None if the latter is 0."""
        if self.mean_a == 0:
            return None
        return self.mean_b / self.mean_a

    @property
    def gain(self) -> str:
        """Difference with its 95 % interval, such as "+0.258 [+0.140, +0.362]"."""
        if self.interval is None:
            return f"{self.difference:+z.3f}"
        return f"{self.difference:+z.3f} {self.interval.words('+')}"

    def at(self, level: float) -> Interval | None:
        """Return the interval at `level` in (0, 1)."""
        if self.interval is None:
            return None
        return hull([estimate.interval(level) for estimate in self._estimates()])

    def reversed(self) -> "Comparison":
        """Return the same test with A and B exchanged: A minus B."""
        turned = replace(
            self,
            mean_a=self.mean_b,
            mean_b=self.mean_a,
            difference=0.0 - self.difference,  # never -0.0
            interval=self.interval and self.interval.mirrored(),
            corrected_interval=self.corrected_interval and self.corrected_interval.mirrored(),
            interval_a=self.interval_b,
            interval_b=self.interval_a,
            estimate=self.estimate and self.estimate.mirrored(),
            extremes=tuple(map(MeanEstimate.mirrored, self.extremes)),
            most_expensive=self.most_expensive and self.most_expensive[::-1],
        )
        return worded(turned)

    def p_gains(self, min_gain: float) -> float:
        """Return the p-value of a gain of B of at least `min_gain`, for claims of a smaller gain.

        It is at most 0.05 if and only if the better end of the 95 % interval is below `min_gain`.
        """
        if self.interval is None:
            return 1.0
        estimates = self._estimates()
        if self.higher_is_better:
            estimates = list(map(MeanEstimate.mirrored, estimates))
        return max(estimate.p_at_most(-min_gain) for estimate in estimates)

    def planned(self, family: int = 1) -> PlannedTest | None:
        """Return the same test on new questions, as one of `family`. None if it is not tested."""
        estimate = self.estimate
        if estimate is None or self.score_range is None:
            return None
        return PlannedTest(
            alpha=ALPHA / family,
            reach=self.score_range[1] - self.score_range[0],
            design_effect=estimate.design_effect,
            cluster_size=estimate.cluster_size,
            seed_variance=estimate.of_seeds * self.seeds,
            seeds=self.seeds,
        )

    def _estimates(self) -> Sequence[MeanEstimate]:
        if self.extremes or self.estimate is None:
            return self.extremes
        return [self.estimate]


def worded(c: Comparison) -> Comparison:
    """Return `c` with its outcome, also in words."""
    if c.p is None:
        return c
    close = _is_equivalent(c)
    outcome: Outcome = "undecided"
    if close:
        outcome = "equivalent"
    breakdown = None
    interval = c.interval
    if interval and (c.corrected_p or 0.0) <= ALPHA and interval.excludes_zero():
        outcome = "worse"
        if (interval.low > 0) == c.higher_is_better:
            outcome = "better"
            breakdown = _breakdown(c)
    judged = replace(
        c, outcome=outcome, slight=close and outcome != "equivalent", breakdown=breakdown
    )
    return replace(judged, verdict=_in_words(judged))


def _is_equivalent(c: Comparison) -> bool:
    """Return True if the mean is significantly within the margin, by Holm in a family."""
    p = c.p_equivalent_adjusted
    if p is None:
        p = c.p_equivalent
    return c.margin is not None and p <= ALPHA


def _breakdown(c: Comparison) -> float | None:
    """Return the share of documents that may fail before a better B is no longer better.

    A failing document changes by the whole range of scores. At this share, the lower bound of the
    difference is 0. None if the questions have no documents.
    """
    interval = c.corrected_interval or c.interval
    if interval is None or interval.scope or c.score_range is None:
        return None
    if c.estimate is None or c.estimate.clusters == c.n:
        return None
    least = max(0.0, interval.low if c.higher_is_better else -interval.high)
    return least / (least + c.score_range[1] - c.score_range[0])


def _in_words(c: Comparison) -> str:
    words: str = c.outcome
    notes = []
    if c.outcome == "undecided":
        words = "no significant difference"
        notes.append(_why_not_significant(c))
    elif c.outcome == "equivalent":
        words += f" within ±{c.margin:g}"
    elif c.slight:
        words += f", by less than the margin of {c.margin:g}"
    if c.breakdown is not None:
        share = f"{100 * c.breakdown:.2g} %"
        notes.append(f"holds unless more than {share} of unseen documents fail as a whole")
    if c.interval and c.interval.scope:
        notes.append(c.interval.scope)
    explained = "; ".join(filter(None, notes))
    if explained:
        words += f" ({explained})"
    return words


def _why_not_significant(c: Comparison) -> str:
    if c.reason:
        return c.reason
    if abs(c.difference) < 1e-9:
        return "the two score the same"
    if c.unscored:
        return (
            f"{c.unscored} questions have a score in one run only, and what the others would "
            "score could turn it; `ragbench score` fills what a judge gives"
        )
    if c.n < LEAST_PILOT:
        return "too few questions to say how many would be needed"
    if c.seeds_needed is not None:
        advice = f"it needs more seeds: about {_rounded(c.seeds_needed):,}"
        if c.n_needed and c.n_needed > c.n:
            advice += f", of about {_rounded(c.n_needed):,} questions"
        return advice
    if c.n_needed is None:
        return ""
    needed = _rounded(max(c.n_needed, c.n + 1))
    advice = f"a new run of about {needed:,} questions"
    if c.estimate and not c.estimate.scope and c.estimate.clusters < c.n:
        documents = math.ceil(needed * c.estimate.clusters / c.n)
        advice += f" about {_rounded(documents):,} documents"
    advice += " would be needed to show one this size"
    if c.n_least is not None and _rounded(c.n_least) < needed:
        least = f"{_rounded(c.n_least):,}"
        advice += f", and of {least} to show the largest that the interval holds"
    return advice


def _rounded(n: int) -> int:
    # Two significant digits, because the estimate comes from an uncertain difference.
    unit = int(10 ** max(0, len(str(n)) - 2))
    return -(-n // unit) * unit
