"""Intervals of means, clusters, seeds and betting, by hand and against statsmodels."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from ragbench.metrics.stats.comparison import Method, compare_scores
from ragbench.metrics.stats.estimates import (
    Interval,
    MeanEstimate,
    anytime_interval,
    anytime_p,
    cluster_means,
    cluster_weight,
    difference_bounds,
    estimate_difference,
    estimate_mean,
    mean_interval,
    p_seeds_alike,
    paired_interval,
)

REACH = (-1.0, 1.0)


def differences(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.4, rng.choice([-1.0, -0.4, 0.5, 1.0], n), 0.0)


def estimated(values: Any, bounds: Any = REACH, clusters: Any = None) -> MeanEstimate:
    found = estimate_mean(values, bounds, clusters)
    assert found is not None
    return found


def ends(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


def test_plus_two_is_the_t_test_of_the_values_and_both_ends() -> None:
    d = differences(60)
    both, ours = [*d, -1.0, 1.0], estimated(d)
    theirs = stats.ttest_1samp(both, 0)
    assert ours.p_value() == pytest.approx(theirs.pvalue)
    assert ends(ours.interval()) == pytest.approx(tuple(theirs.confidence_interval()))
    assert ours.interval(0.5).high < ours.interval().high
    assert (ours.design_effect, ours.clusters, ours.df) == (1.0, 60, 61)
    for margin in (0.1, 0.2, 0.4):  # lying beyond it: twice the worse of two one-sided tests
        above = stats.ttest_1samp(both, margin, alternative="less").pvalue
        below = stats.ttest_1samp(both, -margin, alternative="greater").pvalue
        assert ours.p_beyond(margin) == pytest.approx(min(1.0, 2 * max(above, below)))
    inside = ours.interval().high < 0.4 and ours.interval().low > -0.4
    assert inside == (ours.p_beyond(0.4) <= 0.05)
    # By hand: 1 1 0 0 and 0 1 have mean .5, sd sqrt(.3).
    half = stats.t.ppf(0.975, 5) * math.sqrt(0.3 / 6)
    assert ends(mean_interval([1, 1, 0, 0], (0.0, 1.0))) == (max(0, 0.5 - half), min(1, 0.5 + half))
    plain = stats.ttest_1samp(d * 400, 0).confidence_interval()  # without bounds: t alone
    assert ends(mean_interval(d * 400, None)) == pytest.approx(tuple(plain))
    same = estimated([2.0, 2.0, 2.0], None)
    assert (same.p_value(), ends(same.interval())) == (0.0, (2.0, 2.0))
    assert mean_interval([1], (0.0, 1.0)) is None
    assert mean_interval([1, 1], (0.0, 1.0), ["a", "a"]) is None


def test_intervals_stay_within_the_bounds_and_paired_ones_within_their_width() -> None:
    low, high = ends(found := mean_interval([1.0] * 5, (0.0, 1.0)))
    assert 0 < low < high == 1.0
    assert found.excludes_zero()  # type: ignore[union-attr]
    assert not mean_interval([0.0] * 5, (0.0, 1.0)).excludes_zero()  # type: ignore[union-attr]
    before, after = np.array([0.0, 0.5, 1.0, 0.2]), np.array([1.0, 0.5, 0.0, 0.4])
    assert paired_interval(before, after) == mean_interval(after - before, REACH)
    assert paired_interval(before, after, (0.0, 2.0)) == mean_interval(after - before, (-2, 2))
    assert (difference_bounds((1.0, 3.0)), difference_bounds(None)) == ((-2.0, 2.0), None)


def test_cluster_robust_standard_error_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(20), 5)
    x = rng.normal(size=20)[groups] + rng.normal(size=100)
    fit = sm.OLS(x, np.ones(100)).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}
    )
    found, plain = estimated(x, None, list(groups)), estimated(x, None)
    assert found.standard_error == pytest.approx(float(fit.bse[0]) * math.sqrt(20 / 19))
    assert (found.centre, found.clusters, found.df) == pytest.approx((x.mean(), 20, 19))
    squared = (found.standard_error / plain.standard_error) ** 2
    assert found.design_effect == pytest.approx(squared)
    assert found.design_effect > 2


def test_clusters_by_hand() -> None:
    pairs = list(np.repeat(np.arange(20), 2))
    d = np.tile([1.0, -1.0], 20)  # each cluster sums to 0: that narrows nothing
    found = estimated(d, REACH, pairs)
    assert found.standard_error >= estimated(d).standard_error * 0.99
    assert found.design_effect == 1.0
    # Ties count as clusters.
    tied = estimated([0.0] * 40, REACH, list(np.repeat(np.arange(8), 5)))
    assert tied.interval().high == pytest.approx(estimated([0.0] * 8).interval().high)
    assert tied.design_effect == pytest.approx(5 * (1 - 1 / 40) / (1 - 1 / 8))
    # Unequal clusters have fewer degrees of freedom.
    uneven = estimated(differences(40, 2), None, [0] * 11 + list(range(1, 30)))
    assert uneven.df == pytest.approx(40**2 / (11**2 + 29) - 1)
    assert estimated(differences(40, 2), None, [0] * 39 + [1]).df == 1.0
    # Three clusters of two equal values: both ends count twice.
    found = estimated([1, 1, 0, 0, 1, 1], (0.0, 1.0), ["x", "x", "y", "y", "z", "z"])
    assert found.centre == pytest.approx((4 + 2) / (6 + 4))
    # So they do where a cluster's questions differ: what the sample shows is no guide.
    found = estimated([1, 0, 0, 1, 1, 0], (0.0, 1.0), ["x", "x", "y", "y", "z", "z"])
    assert (found.cluster_size, found.design_effect) == (2.0, 1.0)
    assert found.df == pytest.approx((6 + 4) ** 2 / (5 * 2**2) - 1)
    # A cluster of three and one of one: no more than the largest.
    uneven = estimated([1, 1, 0, 0], (0.0, 1.0), ["x", "x", "x", "y"])
    total, ends_at, sums = 4 + 2 * 3, np.array([0.0, 1.0]), np.array([2.0, 0.0])
    centre = (2 + 3) / total
    sizes = np.array([3, 1, 3, 3])
    parts = np.concatenate([sums - centre * np.array([3, 1]), 3 * (ends_at - centre)])
    by_hand = (parts**2 / (1 - sizes / total)).sum() / total**2
    assert uneven.standard_error**2 == pytest.approx(by_hand)
    # The one large cluster differs from all others: the design effect, 3, is more than it weighs.
    large = estimated([1.0] * 4 + [0.4] * 8, (0.0, 1.0), ["x"] * 4 + list(range(8)))
    assert large.cluster_size == cluster_weight([4] + [1] * 8) < 2
    assert large.centre == pytest.approx((7.2 + 3) / (12 + 6))
    assert list(cluster_means([1, 2, 3], ["x", "y", "x"])) == [2, 2]


def test_a_pseudo_value_weighs_what_documents_that_fail_unseen_can_hide() -> None:
    assert cluster_weight([1] * 300) == 1.0
    assert cluster_weight([10] * 20) == 10.0
    # The one document fails with chance .95 unseen, the two with .776.
    alone = 40 * 0.95 / (1 - 0.95 * 40 / 340) / -math.log(0.05)
    assert cluster_weight([1] * 300 + [40]) == pytest.approx(alone)
    both = 1 - 0.05**0.5
    pair = 80 * both / (1 - both * 80 / 380) / -math.log(0.05)
    assert cluster_weight([40] * 2 + [1] * 300) == pytest.approx(pair)
    # Single questions beside documents take nothing off.
    weights = [cluster_weight([20] * 10 + [1] * n) for n in (0, 100, 400, 1600)]
    assert 17 < min(weights) <= max(weights) == 20


def test_documents_that_only_now_and_then_fail_are_no_gain() -> None:
    """Equal means: B fails on one in five of ten documents, and gains a little on all else."""
    sizes = [20] * 10 + [1] * 400
    documents = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(0)
    claims = 0
    for _ in range(300):
        failed = (rng.random(len(sizes)) < 0.2) & (np.array(sizes) > 1)
        gained = rng.random(600) < 0.2 * 200 / (600 - 0.2 * 200)
        d = np.where(failed[documents], -1.0, gained.astype(float))
        claims += estimated(d, REACH, documents.tolist()).p_value() <= 0.05
    assert claims <= 15  # 60 by the size of the cluster in which the average question lies


def two_way(seeds: int, n: int, of_seed: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n) * 0.3
    a = base + rng.normal(size=n) * 0.2
    b = base + rng.normal(size=(seeds, n)) * 0.2 + rng.normal(size=(seeds, 1)) * of_seed
    return a[None, :], b


def test_seeds_as_a_random_effect_by_hand() -> None:
    a, b = two_way(4, 50, 0.1)
    questions = estimated(b.mean(axis=0) - a[0])
    of_seeds = b.mean(axis=1).var(ddof=1) / 4
    of_questions = questions.standard_error**2
    found = estimate_difference(a, b, REACH)
    assert found is not None
    assert found.standard_error**2 == pytest.approx(of_questions + of_seeds)
    assert found.of_seeds == pytest.approx(of_seeds)
    ratio = of_questions**2 / 51 + of_seeds**2 / (0.6 * 3)
    assert found.df == pytest.approx(max(3, (of_questions + of_seeds) ** 2 / ratio))
    assert estimate_difference(a, b, REACH, random_seeds=False) == questions
    mirrored = estimate_difference(b, a, REACH)
    assert mirrored is not None
    assert mirrored.standard_error == pytest.approx(found.standard_error)
    # Where the arm of three seeds varies alone, the degrees of freedom are no more than its two.
    three, six = np.array([[0.0], [0.1], [0.2]]) * np.ones((3, 9)), np.zeros((6, 9))
    assert estimate_difference(three, six, None).df == 2.0  # type: ignore[union-attr]
    # Two seeds, or equal programs, speak of themselves.
    a, b = two_way(2, 50, 0.1)
    assert estimate_difference(a, b, REACH).of_seeds == 0.0  # type: ignore[union-attr]
    same = np.repeat(b[:1], 3, axis=0)
    assert estimate_difference(a, same, REACH).of_seeds == 0.0  # type: ignore[union-attr]


def test_seeds_are_told_apart_by_the_f_test_of_two_ways() -> None:
    _, b = two_way(5, 40, 0.1, 3)
    rows = [(seed, q, b[seed, q]) for seed in range(5) for q in range(40)]
    frame = pd.DataFrame(rows, columns=["seed", "q", "y"])
    table = sm.stats.anova_lm(sm.formula.ols("y ~ C(seed) + C(q)", frame).fit())
    assert p_seeds_alike(b) == pytest.approx(float(table.loc["C(seed)", "PR(>F)"]))
    assert p_seeds_alike(b[:1]) == p_seeds_alike(np.ones((3, 9))) == 1.0
    assert p_seeds_alike(np.array([[0.0], [1.0]]) * np.ones(9)) == 0.0
    assert p_seeds_alike(b, ["one"] * 40) == 1.0
    together = p_seeds_alike(np.repeat(b, 4, axis=1), list(np.repeat(np.arange(40), 4)))
    assert together == pytest.approx(p_seeds_alike(b))  # copies are no more questions


def test_the_anytime_p_value_by_hand_and_the_interval_where_it_does_not_refuse() -> None:
    bets = np.linspace(0.05, 0.95, 19)
    by_hand = 2 / ((1 + bets) ** 8).mean()  # bets of all sizes at once, and half of them up
    assert anytime_p([1.0] * 8, 1.0) == anytime_p([-2.0] * 8, 2.0) == pytest.approx(by_hand)
    shifted = 2 / ((1 + bets / 1.5 * 0.5) ** 20).mean()
    assert anytime_p([1.0] * 20, 1.0, null=0.5) == pytest.approx(shifted)
    assert anytime_p([], 1.0) == 1.0
    assert 0 < anytime_p([1.0] * 5000, 1.0) < 1e-300
    d = np.clip(np.random.default_rng(2).normal(0.2, 0.4, size=150), -1, 1)
    found = anytime_interval(d, 1.0)
    fixed = ends(paired_interval(np.zeros(150), d))
    assert found.low < fixed[0] < d.mean() < fixed[1] < found.high
    for end in ends(found):
        assert anytime_p(d, 1.0, null=end) == pytest.approx(0.05, rel=1e-4)
    assert ends(anytime_interval([], 1.0)) == (-1.0, 1.0)
    doubled = ends(anytime_interval(2 * d, 2.0))
    assert doubled == pytest.approx((2 * found.low, 2 * found.high))
    assert ends(anytime_interval(-d, 1.0)) == pytest.approx((-found.high, -found.low), abs=1e-6)


def test_comparisons_by_betting_take_clusters_as_one() -> None:
    values = np.clip(np.random.default_rng(0).normal(0.3, 0.3, size=100), -1, 1)
    zero = np.zeros(100)
    found = compare_scores(zero, values, method=Method(anytime=True))
    assert found.interval == anytime_interval(values, 1.0)
    assert (found.p, found.verdict) == (anytime_p(values, 1.0), "better")
    assert found.n_needed is found.minimum_detectable is None  # known of the t test alone
    close = compare_scores(zero, values, method=Method(anytime=True, margin=0.35))
    assert close.p_equivalent == anytime_p(values, 1.0, null=0.35) > 0.05
    tens = [i // 10 for i in range(100)]
    grouped = compare_scores(zero, values, tens, method=Method(anytime=True, margin=0.4))
    means = values.reshape(10, 10).mean(axis=1)
    assert grouped.p_equivalent == pytest.approx(anytime_p(means, 1.0, null=0.4))
    assert grouped.interval == anytime_interval(means, 1.0)
    # A large cluster does not take the reach of the small ones.
    uneven = [max(i, 49) for i in range(100)]
    most = compare_scores(zero, values, uneven, method=Method(anytime=True))
    parts = [values[:50].mean(), *values[50:]]
    assert most.p == pytest.approx(anytime_p(parts, 1.0))
