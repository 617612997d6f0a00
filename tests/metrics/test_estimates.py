"""Intervals of means, clusters, seeds, selection and betting, by hand and against statsmodels."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from ragbench.metrics.stats.betting import (
    _capital,
    anytime_interval,
    betting_interval,
    betting_p,
    e_process,
)
from ragbench.metrics.stats.comparison import Method, bet_units, compare_scores
from ragbench.metrics.stats.estimates import (
    cluster_sums,
    difference_bounds,
    estimate_difference,
    estimate_mean,
    mean_interval,
    paired_interval,
    split_variance,
)
from ragbench.metrics.stats.selection import corrected_best, expected_lead

REACH = (-1.0, 1.0)


def differences(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.4, rng.choice([-1.0, -0.4, 0.5, 1.0], n), 0.0)


def test_plus_two_is_the_t_interval_of_the_values_and_both_ends() -> None:
    d = differences(30)
    both = [*d, -1.0, 1.0]
    theirs = stats.ttest_1samp(both, 0)
    ours = estimate_mean(d, REACH)
    assert ours is not None
    assert ours.p_value() == pytest.approx(theirs.pvalue)
    interval = theirs.confidence_interval()
    assert (ours.interval().low, ours.interval().high) == pytest.approx(tuple(interval))
    assert ours.interval(0.5).high < ours.interval().high
    assert (ours.design_effect, ours.clusters, ours.df) == (1.0, 30, 31)


def test_the_p_value_of_lying_beyond_a_margin_is_twice_the_worse_of_two_one_sided_tests() -> None:
    d = differences(60)
    found = estimate_mean(d, REACH)
    assert found is not None
    both = [*d, -1.0, 1.0]
    for margin in (0.1, 0.2, 0.4):
        above = stats.ttest_1samp(both, margin, alternative="less").pvalue
        below = stats.ttest_1samp(both, -margin, alternative="greater").pvalue
        assert found.p_beyond(margin) == pytest.approx(min(1.0, 2 * max(above, below)))
    inside = found.interval().high < 0.4 and found.interval().low > -0.4
    assert inside == (found.p_beyond(0.4) <= 0.05)


def test_plus_two_by_hand() -> None:
    found = mean_interval([1, 1, 0, 0], (0.0, 1.0))  # 1 1 0 0 and 0 1: mean .5, sd sqrt(.3)
    assert found is not None
    half = stats.t.ppf(0.975, 5) * math.sqrt(0.3 / 6)
    assert (found.low, found.high) == (max(0.0, 0.5 - half), min(1.0, 0.5 + half))
    assert mean_interval([1], (0.0, 1.0)) is None
    assert mean_interval([1, 1], (0.0, 1.0), ["a", "a"]) is None


def test_a_value_without_bounds_gets_the_plain_t_interval() -> None:
    d = differences(12, 3) * 400
    theirs = stats.ttest_1samp(d, 0).confidence_interval()
    ours = mean_interval(d, None)
    assert ours is not None
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs))
    same = estimate_mean([2.0, 2.0, 2.0], None)
    assert same is not None
    assert same.p_value() == 0.0
    assert same.p_value(2.0) == 1.0
    assert (same.interval().low, same.interval().high) == (2.0, 2.0)


def test_an_interval_stays_within_the_bounds() -> None:
    found = mean_interval([1.0] * 5, (0.0, 1.0))
    assert found is not None
    assert 0 < found.low < found.high == 1.0
    assert found.excludes_zero()
    assert not mean_interval([0.0] * 5, (0.0, 1.0)).excludes_zero()  # type: ignore[union-attr]


def test_paired_interval_is_of_the_differences_within_the_width_of_scores() -> None:
    before, after = np.array([0.0, 0.5, 1.0, 0.2]), np.array([1.0, 0.5, 0.0, 0.4])
    assert paired_interval(before, after) == mean_interval(after - before, REACH)
    assert paired_interval(before, after, (0.0, 2.0)) == mean_interval(after - before, (-2, 2))
    assert difference_bounds((1.0, 3.0)) == (-2.0, 2.0)
    assert difference_bounds(None) is None


def test_cluster_robust_standard_error_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(20), 5)
    x = rng.normal(size=20)[groups] + rng.normal(size=100)
    fit = sm.OLS(x, np.ones(100)).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}
    )
    found = estimate_mean(x, None, list(groups))
    assert found is not None
    assert found.standard_error == pytest.approx(float(fit.bse[0]) * math.sqrt(20 / 19))
    assert found.centre == pytest.approx(x.mean())
    assert (found.clusters, found.df) == (20, pytest.approx(19))
    plain = estimate_mean(x, None)
    assert plain is not None
    squared = (found.standard_error / plain.standard_error) ** 2
    assert found.design_effect == pytest.approx(squared)
    assert found.design_effect > 2


def test_clusters_never_narrow_an_interval() -> None:
    d = np.tile([1.0, -1.0], 20)  # each cluster sums to 0
    found = estimate_mean(d, REACH, list(np.repeat(np.arange(20), 2)))
    plain = estimate_mean(d, REACH)
    assert found is not None
    assert plain is not None
    assert found.standard_error >= plain.standard_error * 0.99
    assert found.design_effect == 1.0


def test_ties_in_clusters_count_as_clusters() -> None:
    tied = estimate_mean([0.0] * 40, REACH, list(np.repeat(np.arange(8), 5)))
    eight = estimate_mean([0.0] * 8, REACH)
    assert tied is not None
    assert eight is not None
    assert tied.interval().high == pytest.approx(eight.interval().high)


def test_unequal_clusters_have_fewer_degrees_of_freedom() -> None:
    d = differences(40, 2)
    uneven = estimate_mean(d, None, [0] * 11 + list(range(1, 30)))
    assert uneven is not None
    assert uneven.df == pytest.approx(40**2 / (11**2 + 29) - 1)
    assert estimate_mean(d, None, [0] * 39 + [1]).df == 1.0  # type: ignore[union-attr]


def test_cluster_sums_and_their_length() -> None:
    assert list(cluster_sums([1, 2, 3], ["x", "y", "x"])) == [4, 2]
    assert list(cluster_sums([1, 2], None)) == [1, 2]
    with pytest.raises(ValueError, match="3 values, but 2 clusters"):
        cluster_sums([1, 2, 3], ["x", "y"])


def two_way(seeds: int, n: int, of_seed: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n) * 0.3
    a = base + rng.normal(size=n) * 0.2
    b = base + rng.normal(size=(seeds, n)) * 0.2 + rng.normal(size=(seeds, 1)) * of_seed
    return a[None, :], b


def test_seeds_as_a_random_effect_by_hand() -> None:
    a, b = two_way(4, 50, 0.1)
    means = b.mean(axis=1)
    questions = estimate_mean(b.mean(axis=0) - a[0], REACH)
    assert questions is not None
    of_seeds = means.var(ddof=1) / 4
    of_questions = questions.standard_error**2
    found = estimate_difference(a, b, REACH)
    assert found is not None
    assert found.standard_error**2 == pytest.approx(of_questions + of_seeds)
    assert found.of_seeds == pytest.approx(of_seeds)
    satterthwaite = (of_questions + of_seeds) ** 2 / (
        of_questions**2 / 51 + of_seeds**2 / (0.6 * 3)
    )
    assert found.df == pytest.approx(max(3, satterthwaite))
    assert estimate_difference(a, b, REACH, random_seeds=False) == questions
    mirrored = estimate_difference(b, a, REACH)
    assert mirrored is not None
    assert mirrored.standard_error == pytest.approx(found.standard_error)


def test_two_seeds_or_equal_programs_speak_of_themselves() -> None:
    a, b = two_way(2, 50, 0.1)
    assert estimate_difference(a, b, REACH).of_seeds == 0.0  # type: ignore[union-attr]
    same = np.repeat(b[:1], 3, axis=0)
    assert estimate_difference(a, same, REACH).of_seeds == 0.0  # type: ignore[union-attr]


def test_betting_covers_and_knows_certainty() -> None:
    d = differences(200, 7)
    found = betting_interval(d, REACH)
    assert found.low < d.mean() < found.high
    narrower = betting_interval(differences(2000, 7), REACH)
    assert narrower.high - narrower.low < found.high - found.low
    assert betting_interval(d, REACH, level=0.5).high < found.high
    ones = betting_interval([1.0] * 100, REACH)
    assert 0.8 < ones.low < ones.high == 1.0
    empty = betting_interval([], REACH)
    assert (empty.low, empty.high) == (-1.0, 1.0)
    assert betting_p([], REACH) == 1.0
    assert betting_p([1.0] * 100, REACH) < 1e-6
    assert betting_p(np.tile([1.0, -1.0], 50), REACH) > 0.3


def test_e_process_by_hand_and_its_symmetry() -> None:
    bets = np.linspace(0.05, 0.95, 19)
    found = e_process([1.0, 1.0], 1.0)
    assert found.log_up == pytest.approx(math.log(((1 + bets) ** 2).mean()))
    assert found.log_down == pytest.approx(math.log(((1 - bets) ** 2).mean()))
    assert found.e_value == pytest.approx(((1 + bets) ** 2).mean() / 2)
    assert found.p == pytest.approx(min(1.0, 1 / found.e_value))
    other = e_process([-2.0, -2.0], 2.0)
    assert (other.log_down, other.log_up) == pytest.approx((found.log_up, found.log_down))
    assert e_process([], 1.0).e_value == pytest.approx(0.5)
    assert e_process([1.0] * 5000, 1.0).p > 0


def test_the_anytime_interval_is_where_the_e_process_does_not_refuse() -> None:
    d = np.clip(np.random.default_rng(2).normal(0.2, 0.4, size=150), -1, 1)
    found = anytime_interval(d, 1.0)
    fixed = paired_interval(np.zeros(150), d)
    assert fixed is not None
    assert found.low < fixed.low < d.mean() < fixed.high < found.high
    assert found.excludes_zero() == (e_process(d, 1.0).p <= 0.05)
    assert anytime_interval([], 1.0).high == 1.0
    doubled = anytime_interval(2 * d, 2.0)
    assert (doubled.low, doubled.high) == pytest.approx((2 * found.low, 2 * found.high))
    below = anytime_interval(-d, 1.0)
    assert (below.low, below.high) == pytest.approx((-found.high, -found.low), abs=1e-6)


def test_exact_comparisons_bet_and_clusters_bet_as_one() -> None:
    d = np.array([1.0, 0.0, -0.5, 0.5])
    units, reach = bet_units(d, (0.0, 1.0), ["x", "x", "x", "y"])
    assert (list(units), reach) == ([0.5, 0.5], 3.0)
    assert bet_units(d, (0.0, 1.0), None)[1] == 1.0
    rng = np.random.default_rng(0)
    values = np.clip(rng.normal(0.3, 0.3, size=100), -1, 1)
    zero = {f"q{i:03}": 0.0 for i in range(100)}
    one = {f"q{i:03}": float(v) for i, v in enumerate(values)}
    found = compare_scores(zero, one, method=Method(exact=True))
    assert found.interval == betting_interval(values, REACH)
    assert found.p == betting_p(values, REACH)
    assert found.verdict == "better"
    grouped = compare_scores(
        zero, one, method=Method(exact=True, clusters={q: q[:3] for q in zero})
    )
    assert grouped.interval is not None
    assert grouped.interval.high - grouped.interval.low > found.interval.high - found.interval.low
    assert grouped.interval.low < values.mean() < grouped.interval.high


def test_expected_lead_is_that_of_order_statistics() -> None:
    assert expected_lead(1, 1.0) == 0.0
    assert expected_lead(2, 1.0) == pytest.approx(1 / math.sqrt(math.pi))
    assert expected_lead(3, 2.0) == pytest.approx(2 * 1.5 / math.sqrt(math.pi))
    assert expected_lead(16, 0.05) == pytest.approx(0.05 * 1.766, abs=1e-3)


def test_the_best_of_equal_candidates_is_not_ahead() -> None:
    rng = np.random.default_rng(0)
    seen, corrected = [], []
    for number in range(40):
        found = corrected_best((rng.random((16, 50)) < 0.5).astype(float), seed=number)
        seen.append(found.seen)
        corrected.append(found.corrected)
    assert np.mean(seen) > 0.6
    assert np.mean(corrected) == pytest.approx(0.5, abs=0.03)


def test_a_clear_best_is_kept() -> None:
    scores = np.zeros((3, 40))
    scores[1, :30] = 1.0
    found = corrected_best(scores)
    assert (found.index, found.seen, found.candidates) == (1, 0.75, 3)
    assert found.corrected == pytest.approx(0.75, abs=0.02)
    assert found.interval.low < 0.75 < found.interval.high
    with pytest.raises(ValueError, match="candidates by two or more questions"):
        corrected_best([[1.0]])


def test_pseudo_values_weigh_as_a_cluster_by_hand() -> None:
    # Three clusters of two equal values: the design effect is 2, so both ends count twice.
    found = estimate_mean([1, 1, 0, 0, 1, 1], (0.0, 1.0), ["x", "x", "y", "y", "z", "z"])
    assert found is not None
    assert found.centre == pytest.approx((4 + 2) / (6 + 4))


def hedged_by_hand(x: list[float], mean: float, alpha: float = 0.05) -> float:
    """The p-value of `mean` by the definition of the hedged capital, one value after another."""
    n = len(x)
    total = squares = 0.0
    variance, up, down, best = 0.25, 1.0, 1.0, 1.0
    for t, value in enumerate(x, start=1):
        bet = math.sqrt(2 * math.log(2 / alpha) / (n * variance))
        up *= 1 + min(bet, 0.5 / mean) * (value - mean)
        down *= 1 - min(bet, 0.5 / (1 - mean)) * (value - mean)
        best = max(best, up / 2, down / 2)
        total += value
        squares += (value - (0.5 + total) / (t + 1)) ** 2
        variance = (0.25 + squares) / (t + 1)
    return min(1.0, 1 / best)


@pytest.mark.parametrize("null", [-0.9, -0.4, 0.0, 0.3, 0.95])
@pytest.mark.parametrize("n", [1, 2, 5, 40, 300])
def test_the_capital_is_that_of_the_definition_at_any_mean(n: int, null: float) -> None:
    rng = np.random.default_rng(n)
    for d in (rng.uniform(-1, 1, n), np.full(n, 0.8), rng.choice([-1.0, 0.0, 1.0], n)):
        by_hand = hedged_by_hand([(value + 1) / 2 for value in d], (null + 1) / 2)
        assert betting_p(d, REACH, null=null) == pytest.approx(by_hand, rel=1e-9)


def test_the_betting_interval_holds_the_means_that_its_capital_does_not_refuse() -> None:
    d = differences(50, 13)
    for level in (0.8, 0.95):
        found = betting_interval(d, REACH, level=level)
        x = [(value + 1) / 2 for value in d]

        def kept(mean: float, x: list[float] = x, alpha: float = 1 - level) -> bool:
            return hedged_by_hand(x, (mean + 1) / 2, alpha) > alpha

        assert not kept(found.low - 0.001)
        assert kept(found.low + 0.003)
        assert kept(found.high - 0.003)
        assert not kept(found.high + 0.001)


def test_the_anytime_interval_ends_where_the_capital_reaches_its_limit() -> None:
    d = differences(90, 12)
    found = anytime_interval(d, 1.0)
    assert _capital(d, found.low) == pytest.approx(math.log(40), abs=1e-4)
    assert _capital(-d, -found.high) == pytest.approx(math.log(40), abs=1e-4)
    bets = np.linspace(0.05, 0.95, 19)
    assert _capital(np.array([1.0]), 0.5) == pytest.approx(math.log((1 + bets / 1.5 * 0.5).mean()))


def test_the_variance_is_split_by_hand() -> None:
    # Mean squares: questions 1/2, seeds 1/6, the rest 1/6.
    found = split_variance(np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), np.zeros((1, 3)))
    assert found is not None
    assert found.question == pytest.approx(math.sqrt((1 / 2 - 1 / 6) / 2))
    assert found.seed == pytest.approx(0.0, abs=1e-7)
    assert found.sampling == pytest.approx(math.sqrt(1 / 6))
