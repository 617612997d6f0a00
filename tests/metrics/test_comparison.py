"""Paired statistics against scipy and statsmodels, their edge cases, and the verdicts in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as sm_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from ragbench.errors import CompareError
from ragbench.metrics.stats.betting import betting_interval
from ragbench.metrics.stats.comparison import (
    Comparison,
    Method,
    compare_scores,
    correct,
    effect_size,
    is_equivalent,
)
from ragbench.metrics.stats.power import power, questions_needed
from ragbench.metrics.stats.significance import holm, mcnemar, sign_flip_p


def arms(n: int, shift: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.random(n)
    return a, np.clip(a + rng.normal(shift, 0.3, size=n), 0, 1)


def scores(values: object) -> dict[str, float]:
    return {f"q{i}": float(v) for i, v in enumerate(np.asarray(values))}


def compare(a: object, b: object, **options: Any) -> Comparison:
    higher_is_better = bool(options.pop("higher_is_better", True))
    score_range = options.pop("score_range", (0.0, 1.0))
    return compare_scores(
        scores(a), scores(b), higher_is_better=higher_is_better, score_range=score_range,
        method=Method(**options),
    )  # fmt: skip


def test_sign_flips_agrees_with_scipy() -> None:
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
        assert sign_flip_p(b - a, seed=1) == pytest.approx(theirs, abs=0.015)


def test_sign_flips_is_exact_for_few_questions() -> None:
    a, b = arms(10, 0.2, 1)
    theirs = stats.permutation_test(
        (a, b), lambda x, y: np.mean(y - x), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert sign_flip_p(b - a, seed=1) == pytest.approx(theirs, abs=1e-12)
    assert sign_flip_p([1, 2, 4]) == 0.25


def test_sign_flips_on_right_and_wrong_is_exact_mcnemar() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.random((2, 300)) < [[0.4], [0.5]]).astype(float)
    assert sign_flip_p(b - a) == mcnemar(a, b).p


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


def test_questions_needed_is_the_inverse_of_power() -> None:
    needed = questions_needed(0.1, 0.5)
    assert needed is not None
    assert needed == pytest.approx(TTestPower().solve_power(0.2, power=0.8, alpha=0.05), abs=1)
    assert power(0.1, 0.5, needed) >= 0.8 > power(0.1, 0.5, needed - 1)
    assert questions_needed(0.0, 0.5) is None
    assert questions_needed(1e-17, 0.5) is None
    assert questions_needed(0.1, 0.0) == 2


def test_effect_size_by_hand() -> None:
    assert effect_size([0, 0, 0], [1, 2, 3]) == pytest.approx(2.0)
    assert effect_size([0, 0], [1, 1]) is None


def test_no_question_and_other_questions_are_refused() -> None:
    with pytest.raises(CompareError, match="no scored question"):
        compare_scores({}, {})
    with pytest.raises(CompareError, match="1 only in the first, 2 only in the second"):
        compare_scores({"a": 1.0}, {"b": 1.0, "c": 0.0})


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
    # Seven values, 0 but for +1 and -1: t with 6 degrees of freedom, sd sqrt(2 / 6).
    half = stats.t.ppf(0.975, 6) * (2 / 6 / 7) ** 0.5
    assert (found.interval.low, found.interval.high) == pytest.approx((-half, half))
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
    assert found.p_sign_flip == found.mcnemar.p == 2 / 2**12
    assert found.p == pytest.approx(stats.ttest_1samp([1] * 13 + [-1], 0).pvalue)
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
    named = int(found.verdict.partition("about ")[2].partition(" ")[0].replace(",", ""))
    assert found.n_needed <= named <= 1.1 * found.n_needed + 1
    assert found.mcnemar is None
    assert found.minimum_detectable is not None
    assert found.estimate is not None
    assert found.estimate.power(found.minimum_detectable) == pytest.approx(0.8, abs=1e-6)


def test_a_small_sure_difference_is_named_as_below_the_margin() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(0.2, 0.6, 2_000)
    found = compare(a, a + rng.normal(0.01, 0.02, 2_000), margin=0.05)
    assert found.verdict == "better, by less than the margin of 0.05"


def test_correction_can_take_a_verdict_back() -> None:
    a, b = arms(60, 0.09, 0)
    alone = compare(a, b)
    assert 0.01 < alone.p < 0.05
    assert alone.verdict == "better"
    noise = [compare(*arms(60, 0.0, seed)) for seed in range(4)]
    corrected = correct([alone, *noise])[0]
    assert corrected.p_adjusted == pytest.approx(5 * alone.p)
    assert corrected.verdict.startswith("no difference shown (a new run of about ")
    assert corrected.n_needed is not None
    assert alone.n_needed is not None
    assert corrected.n_needed > alone.n_needed
    assert corrected.estimate is not None
    assert corrected.minimum_detectable is not None
    power_in_family = corrected.estimate.power(corrected.minimum_detectable, alpha=0.05 / 5)
    assert power_in_family == pytest.approx(0.8, abs=1e-6)
    assert correct([]) == []


def test_seeds_of_a_question_are_not_more_questions() -> None:
    a, b = arms(30, 0.1, 2)
    once = compare(a, b)
    copied = compare_scores(
        {q: [v] * 5 for q, v in scores(a).items()}, {q: [v] * 5 for q, v in scores(b).items()}
    )
    assert (copied.n, copied.difference, copied.p) == pytest.approx((30, once.difference, once.p))
    assert copied.interval is not None
    assert once.interval is not None
    assert copied.interval.low == pytest.approx(once.interval.low)


def test_unequal_numbers_of_seeds_are_refused() -> None:
    with pytest.raises(CompareError, match="same number of seeds"):
        compare_scores({"a": [1.0, 0.0], "b": [1.0]}, {"a": [1.0], "b": [1.0]})


def test_identical_arms_rarely_differ() -> None:
    claims = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        chance = rng.beta(0.5, 0.8, size=60)
        a, b = (rng.random((2, 60)) < chance).astype(float)
        claims += compare_scores(scores(a), scores(b), method=Method(flips=1)).verdict in (
            "better",
            "worse",
        )
    # At a true rate of 5 % more than 27 of 300 have a chance below 0.2 %.
    assert claims <= 27


def test_a_p_value_that_the_family_takes_past_5_percent_claims_nothing() -> None:
    tried = (compare(*arms(60, 0.07, seed)) for seed in range(200))
    close = next(c for c in tried if 0.026 < c.p < 0.049)
    assert close.verdict == "better"
    assert [c.verdict[:13] for c in correct([close, close])] == ["no difference"] * 2


def test_equivalence_needs_both_ends_within_the_margin() -> None:
    d = 0.03 + np.tile([0.1, -0.1], 200)
    for sign in (1, -1):
        found = compare(np.zeros(400), sign * d, margin=0.035)
        assert found.interval is not None
        assert max(-found.interval.low, found.interval.high) > 0.035
        assert not is_equivalent(found)


def test_betting_on_clusters_is_of_the_mean_over_questions() -> None:
    d = np.clip(np.random.default_rng(0).normal(0.3, 0.3, size=100), -1, 1)
    names = {f"q{i:03}": f"c{i // 10}" for i in range(100)}
    zero, one = dict.fromkeys(names, 0.0), dict(zip(names, map(float, d), strict=True))
    found = compare_scores(zero, one, method=Method(exact=True, clusters=names))
    whole = betting_interval(d.reshape(10, 10).sum(axis=1), (-10.0, 10.0))
    assert found.interval is not None
    assert found.interval.low == pytest.approx(whole.low / 10)
    assert found.interval.high == pytest.approx(whole.high / 10)
