"""Intervals of means, clusters, seeds and betting, by hand and against statsmodels."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import stdtrit

from ragbench.metrics.stats.estimates import (
    THESE_DOCUMENTS,
    THESE_QUESTIONS,
    Interval,
    MeanEstimate,
    difference_bounds,
    estimate_difference,
    estimate_mean,
    hull,
    mean_interval,
    p_seeds_alike,
    paired_interval,
    satterthwaite,
)
from ragbench.metrics.stats.power import t_quantile

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


def test_plus_two_estimate_equals_the_t_test_with_both_bounds_added() -> None:
    d = differences(60)
    both, ours = [*d, -1.0, 1.0], estimated(d)
    theirs = stats.ttest_1samp(both, 0)
    assert ours.p_value() == pytest.approx(theirs.pvalue)
    assert ends(ours.interval()) == pytest.approx(tuple(theirs.confidence_interval()))
    assert ours.interval(0.5).high < ours.interval().high
    assert (ours.design_effect, ours.clusters, ours.df) == pytest.approx((1.0, 60, 61))
    for margin in (0.1, 0.2, 0.4):  # lying beyond it: twice the worse of two one-sided tests
        above = stats.ttest_1samp(both, margin, alternative="less").pvalue
        below = stats.ttest_1samp(both, -margin, alternative="greater").pvalue
        assert ours.equivalence_p(margin) == pytest.approx(min(1.0, 2 * max(above, below)))
    inside = ours.interval().high < 0.4 and ours.interval().low > -0.4
    assert inside == (ours.equivalence_p(0.4) <= 0.05)
    # By hand: 1 1 0 0 and 0 1 have mean .5, sd sqrt(.3).
    half = stats.t.ppf(0.975, 5) * math.sqrt(0.3 / 6)
    assert ends(mean_interval([1, 1, 0, 0], (0.0, 1.0))) == (max(0, 0.5 - half), min(1, 0.5 + half))
    plain = stats.ttest_1samp(d * 400, 0).confidence_interval()  # without bounds: t alone
    assert ends(mean_interval(d * 400, None)) == pytest.approx(tuple(plain))
    same = estimated([2.0] * 10, None)
    assert (same.p_value(), ends(same.interval())) == (0.0, (2.0, 2.0))
    assert mean_interval([1], (0.0, 1.0)) is None


def test_interval_of_bounded_scores_stays_within_the_bounds() -> None:
    low, high = ends(found := mean_interval([1.0] * 5, (0.0, 1.0)))
    assert 0 < low < high == 1.0
    assert found.excludes_zero()  # type: ignore[union-attr]
    assert not mean_interval([0.0] * 5, (0.0, 1.0)).excludes_zero()  # type: ignore[union-attr]
    before, after = np.array([0.0, 0.5, 1.0, 0.2]), np.array([1.0, 0.5, 0.0, 0.4])
    assert paired_interval(before, after) == mean_interval(after - before, REACH)
    assert paired_interval(before, after, (0.0, 2.0)) == mean_interval(after - before, (-2, 2))
    assert (difference_bounds((1.0, 3.0)), difference_bounds(None)) == ((-2.0, 2.0), None)


def test_cluster_robust_standard_error_equals_statsmodels() -> None:
    import statsmodels.api as sm

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


@pytest.mark.parametrize("correlation", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("sizes", [[20] * 12, [1] * 30, [40] + [1] * 60, [5, 4, 3, 2, 1] * 4])
def test_cr2_and_degrees_of_freedom_equal_the_matrix_formulas(
    sizes: list[int], correlation: float
) -> None:
    """Bell and McCaffrey (2002) with full matrices, for the regression on a constant."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    n = len(groups)
    rest = np.eye(n) - 1 / n
    together = groups[:, None] == groups[None, :]
    columns, variance = [], 0.0
    x = np.random.default_rng(0).normal(size=n)
    for group in range(len(sizes)):
        own = groups == group
        values, vectors = np.linalg.eigh(rest[np.ix_(own, own)])
        adjusted = vectors @ np.diag(values**-0.5) @ vectors.T @ np.ones(own.sum()) / n
        variance += float(adjusted @ (x - x.mean())[own]) ** 2
        columns.append(rest[:, own] @ adjusted)
    matrix = np.array(columns).T
    working = np.where(together, correlation, 0.0) + (1 - correlation) * np.eye(n)
    m = matrix.T @ working @ matrix
    assert satterthwaite(sizes, correlation) == pytest.approx(np.trace(m) ** 2 / (m * m).sum())
    assert estimated(x, None, groups.tolist()).standard_error ** 2 == pytest.approx(variance)


def test_clusters_by_hand() -> None:
    names = list(np.repeat(np.arange(12), 2))
    d = np.tile([1.0, -1.0], 12)  # each cluster sums to 0
    found = estimated(d, REACH, names)
    assert found.design_effect == 1.0
    # With both ends, each of which weighs one question.
    assert found.standard_error**2 == pytest.approx(2 / (1 - 1 / 26) / 26**2)
    assert (found.clusters, found.largest, found.centre, found.scope) == (12, 2, 0.0, "")
    assert found.cluster_size == pytest.approx(26 / (found.df + 1))
    # Unequal clusters have fewer degrees of freedom.
    uneven = estimated(differences(60, 2), None, [0] * 31 + list(range(1, 30)))
    assert uneven.df < 4
    assert uneven.largest == 31


@pytest.mark.parametrize("clusters", [1, 2, 10])
def test_estimate_mean_if_clusters_are_few_counts_questions_for_these_documents(
    clusters: int,
) -> None:
    d = differences(40)
    found = estimated(d, REACH, [i % clusters for i in range(40)])
    single = estimated(d)
    assert (found.standard_error, found.df) == (single.standard_error, single.df)
    assert found.interval().scope == THESE_DOCUMENTS
    assert found.interval().mirrored().scope == THESE_DOCUMENTS
    assert hull([found.interval(), found.interval(0.9)]).scope == THESE_DOCUMENTS  # type: ignore[union-attr]
    assert (found.clusters, found.largest) == (clusters, math.ceil(40 / clusters))
    assert single.interval().scope == estimated(d[:8]).interval().scope == ""


def test_estimate_mean_if_there_are_no_bounds_needs_ten_values() -> None:
    assert estimate_mean([5.0] * 9, None) is None
    found = estimated([5.0] * 10, None, [i % 2 for i in range(10)]).interval()
    assert (found.low, found.high, found.scope) == (5.0, 5.0, THESE_QUESTIONS)


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
    three, six = np.array([[0.0], [0.1], [0.2]]) * np.ones((3, 10)), np.zeros((6, 10))
    assert estimate_difference(three, six, None).df == 2.0  # type: ignore[union-attr]
    # Two seeds, or equal programs, speak of themselves.
    a, b = two_way(2, 50, 0.1)
    assert estimate_difference(a, b, REACH).of_seeds == 0.0  # type: ignore[union-attr]
    same = np.repeat(b[:1], 3, axis=0)
    assert estimate_difference(a, same, REACH).of_seeds == 0.0  # type: ignore[union-attr]


def test_seeds_differ_by_the_two_way_f_test() -> None:
    _, b = two_way(5, 40, 0.1, 3)
    rows = [(seed, q, b[seed, q]) for seed in range(5) for q in range(40)]
    import pandas as pd
    import statsmodels.api as sm

    frame = pd.DataFrame(rows, columns=["seed", "q", "y"])
    table = sm.stats.anova_lm(sm.formula.ols("y ~ C(seed) + C(q)", frame).fit())
    assert p_seeds_alike(b) == pytest.approx(float(table.loc["C(seed)", "PR(>F)"]))
    assert p_seeds_alike(b[:1]) == p_seeds_alike(np.ones((3, 9))) == 1.0
    assert p_seeds_alike(np.array([[0.0], [1.0]]) * np.ones(9)) == 0.0
    assert p_seeds_alike(b, ["one"] * 40) == 1.0
    together = p_seeds_alike(np.repeat(b, 4, axis=1), list(np.repeat(np.arange(40), 4)))
    assert together == pytest.approx(p_seeds_alike(b))  # copies are no more questions


@pytest.mark.parametrize("p", [0.025, 0.9, 0.975, 0.995])
@pytest.mark.parametrize("df", [1.0, 3.7, 199.0, 200.0, 204.5, 1_000.0, 7_404.0, 1e9])
def test_t_quantile_of_any_degrees_of_freedom_equals_that_of_scipy(p: float, df: float) -> None:
    assert t_quantile(p, df) == pytest.approx(float(stdtrit(df, p)), rel=1e-10)
