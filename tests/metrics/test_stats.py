"""Paired statistics against scipy and statsmodels, their edge cases, and the verdicts in words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as sm_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from ragbench.errors import CompareError
from ragbench.metrics.power import minimum_detectable, power, questions_needed
from ragbench.metrics.stats import (
    Comparison,
    compare_scores,
    correct,
    effect_size,
    holm,
    is_equivalent,
    mcnemar,
    paired_bootstrap,
    permutation_p,
)


def arms(n: int, shift: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.random(n)
    return a, np.clip(a + rng.normal(shift, 0.3, size=n), 0, 1)


def scores(values: object) -> dict[str, float]:
    return {f"q{i}": float(v) for i, v in enumerate(np.asarray(values))}


def compare(a: object, b: object, **options: object) -> Comparison:
    return compare_scores(scores(a), scores(b), **options)


def test_bootstrap_agrees_with_scipy_on_two_samples_resampled_in_pairs() -> None:
    a, b = arms(150)
    theirs = stats.bootstrap(
        (a, b),
        lambda x, y, axis: np.mean(y - x, axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=10_000,
        method="percentile",
        rng=np.random.default_rng(9),
    ).confidence_interval
    ours = paired_bootstrap(a, b, seed=1)
    assert ours.low == pytest.approx(theirs.low, abs=0.003)
    assert ours.high == pytest.approx(theirs.high, abs=0.003)
    normal = stats.norm.interval(0.95, (b - a).mean(), (b - a).std() / np.sqrt(150))
    assert (ours.low, ours.high) == pytest.approx(normal, abs=0.004)
    assert ours == paired_bootstrap(a, b, seed=1)
    narrower = paired_bootstrap(a, b, seed=1, level=0.5)
    assert ours.low < narrower.low < narrower.high < ours.high


def test_permutation_agrees_with_scipy() -> None:
    for n, seed in ((60, 3), (200, 4)):
        a, b = arms(n, 0.05, seed)
        theirs = stats.permutation_test(
            (a, b),
            lambda x, y, axis: np.mean(y - x, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=9_999,
            rng=np.random.default_rng(5),
        ).pvalue
        assert permutation_p(a, b, seed=1) == pytest.approx(theirs, abs=0.015)


def test_permutation_is_exact_for_few_questions() -> None:
    a, b = arms(10, 0.2, 1)
    theirs = stats.permutation_test(
        (a, b), lambda x, y: np.mean(y - x), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert permutation_p(a, b, seed=1) == pytest.approx(theirs, abs=1e-12)
    assert permutation_p([0, 0, 0], [1, 2, 4], seed=0) == 0.25


def test_permutation_on_right_and_wrong_is_exact_mcnemar() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.random((2, 300)) < [[0.4], [0.5]]).astype(float)
    assert permutation_p(a, b, seed=0) == mcnemar(a, b).p


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80))
def test_mcnemar_agrees_with_statsmodels(pairs: list[tuple[bool, bool]]) -> None:
    a, b = np.array(pairs, dtype=float).T
    both, neither = (sum(x == y == side for x, y in pairs) for side in (True, False))
    only = [sum(x and not y for x, y in pairs), sum(y and not x for x, y in pairs)]
    table = [[both, only[0]], [only[1], neither]]
    ours = mcnemar(a, b)
    assert (ours.only_a, ours.only_b) == (table[0][1], table[1][0])
    if ours.only_a + ours.only_b:
        assert ours.p == pytest.approx(sm_mcnemar(table, exact=True).pvalue)
    else:
        assert ours.p == 1.0


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_agrees_with_statsmodels(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@pytest.mark.parametrize("n", [5, 40, 1000])
@pytest.mark.parametrize("d", [0.05, 0.3, 1.0])
def test_power_agrees_with_statsmodels(d: float, n: int) -> None:
    theirs = TTestPower().power(d, n, 0.05)
    # Far out, where the power is 1, statsmodels gives nan.
    assert power(d, 1.0, n) == pytest.approx(1.0 if np.isnan(theirs) else theirs, abs=1e-4)


def test_questions_needed_and_minimum_detectable_are_inverse() -> None:
    needed = questions_needed(0.1, 0.5)
    assert needed is not None
    assert needed == pytest.approx(TTestPower().solve_power(0.2, power=0.8, alpha=0.05), abs=1)
    assert power(0.1, 0.5, needed) >= 0.8 > power(0.1, 0.5, needed - 1)
    assert minimum_detectable(0.5, needed) == pytest.approx(0.1, rel=0.01)
    assert questions_needed(0.0, 0.5) is None
    assert questions_needed(1e-17, 0.5) is None
    assert questions_needed(0.1, 0.0) == 2
    assert minimum_detectable(0.0, 50) is None
    assert minimum_detectable(0.5, 1) is None


def test_effect_size_by_hand() -> None:
    assert effect_size([0, 0, 0], [1, 2, 3]) == pytest.approx(2.0)
    assert effect_size([0, 0], [1, 1]) is None


def test_no_question_and_other_questions_are_refused() -> None:
    with pytest.raises(CompareError, match="no scored question"):
        compare_scores({}, {}, seed=0)
    with pytest.raises(CompareError, match="1 only in the first, 2 only in the second"):
        compare_scores({"a": 1.0}, {"b": 1.0, "c": 0.0}, seed=0)


def test_one_question_shows_nothing() -> None:
    found = compare([0], [1])
    assert (found.n, found.difference, found.interval, found.p) == (1, 1.0, None, 1.0)
    assert found.verdict.startswith("no difference shown (too few questions")


def test_equal_runs_show_no_difference_and_an_interval_that_admits_one() -> None:
    found = compare([1, 0, 1, 0, 1], [1, 0, 1, 0, 1], margin=0.05)
    assert (found.difference, found.p, found.n_needed, found.effect_size) == (0.0, 1.0, None, None)
    assert found.mcnemar is not None
    assert (found.mcnemar.only_a, found.mcnemar.only_b, found.mcnemar.p) == (0, 0, 1.0)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(-0.4507, abs=1e-3)  # 1 - 0.05 ** (1 / 5)
    assert found.interval.high == pytest.approx(0.4507, abs=1e-3)
    assert found.verdict == "no difference shown (the two score the same)"


def test_many_ties_are_equivalent_and_few_are_not() -> None:
    assert compare([1, 0] * 200, [1, 0] * 200, margin=0.02).verdict == "equivalent within ±0.02"
    assert not is_equivalent(compare([1, 0] * 20, [1, 0] * 20, margin=0.02))
    assert not is_equivalent(compare([1, 0] * 200, [1, 0] * 200))
    assert not is_equivalent(compare([1, 0] * 200, [1, 0] * 200, margin=0.02, score_range=None))


def test_all_discordant() -> None:
    found = compare([0] * 12, [1] * 12)
    assert found.difference == 1.0
    assert found.mcnemar is not None
    assert found.p == found.mcnemar.p == 2 / 2**12
    assert found.verdict == "better"
    assert compare([1] * 12, [0] * 12).verdict == "worse"
    assert compare([0] * 12, [1] * 12, higher_is_better=False).verdict == "worse"
    split = compare([0, 1] * 6, [1, 0] * 6)
    assert (split.difference, split.p) == (0.0, 1.0)
    assert split.verdict.startswith("no difference shown")
    assert compare([0, 0, 0], [1, 1, 1]).verdict.startswith("no difference shown")


def test_an_unshown_difference_says_how_many_questions_it_needs() -> None:
    a, b = arms(40, 0.02, 5)
    found = compare(a, b)
    assert found.n_needed is not None
    assert found.n_needed > 40
    assert "questions would be needed to show one this size" in found.verdict
    assert found.mcnemar is None
    assert found.minimum_detectable == pytest.approx(
        TTestPower().solve_power(nobs=40, power=0.8, alpha=0.05) * found.sd, rel=1e-3
    )


def test_a_small_sure_difference_is_named_as_below_the_margin() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(0.2, 0.6, 2_000)
    found = compare(a, a + rng.normal(0.01, 0.02, 2_000), margin=0.05)
    assert found.verdict == "better, by less than the margin of 0.05"


def test_correction_can_take_a_verdict_back() -> None:
    a, b = arms(60, 0.07, 0)
    alone = compare(a, b)
    assert 0.01 < alone.p < 0.05
    assert alone.verdict == "better"
    noise = [compare(*arms(60, 0.0, seed)) for seed in range(4)]
    corrected = correct([alone, *noise])[0]
    assert corrected.p_adjusted == pytest.approx(5 * alone.p)
    assert corrected.verdict.startswith("no difference shown (about ")
    assert corrected.n_needed is not None
    assert alone.n_needed is not None
    assert corrected.n_needed > alone.n_needed
    assert correct([]) == []


def test_seeds_of_a_question_are_not_more_questions() -> None:
    a, b = arms(30, 0.1, 2)
    once = compare(a, b)
    copied = compare_scores(
        {q: [v] * 5 for q, v in scores(a).items()}, {q: [v] * 5 for q, v in scores(b).items()}
    )
    assert (copied.n, copied.difference, copied.p) == (30, once.difference, once.p)
    assert copied.interval is not None
    assert once.interval is not None
    assert copied.interval.low == pytest.approx(once.interval.low, abs=0.01)


def test_a_spread_between_seeds_widens_the_interval() -> None:
    a, b = arms(60, 0.1, 2)
    steady = paired_bootstrap(np.stack([a, a, a]), np.stack([b, b, b]), n=2_000, seed=0)
    spread = paired_bootstrap(np.stack([a, a, a]), np.stack([b - 0.1, b, b + 0.1]), n=2_000, seed=0)
    assert spread.high - spread.low > 1.3 * (steady.high - steady.low)


def test_unequal_numbers_of_seeds_are_refused() -> None:
    with pytest.raises(CompareError, match="same number of seeds"):
        compare_scores({"a": [1.0, 0.0], "b": [1.0]}, {"a": [1.0], "b": [1.0]})
    with pytest.raises(ValueError, match="two or more questions"):
        paired_bootstrap([1.0], [0.0], seed=0)


def test_identical_arms_rarely_differ() -> None:
    claims = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        chance = rng.beta(0.5, 0.8, size=60)
        a, b = (rng.random((2, 60)) < chance).astype(float)
        claims += compare_scores(scores(a), scores(b), n_resamples=500).verdict in (
            "better",
            "worse",
        )
    # At a true rate of 5 % more than 27 of 300 have a chance below 0.2 %.
    assert claims <= 27
