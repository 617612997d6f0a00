"""Paired statistics against scipy and statsmodels, their edge cases, and the verdicts in words."""

import math
import re
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ragbench.metrics.stats.comparison import (
    Comparison,
    Method,
    compare_scores,
    correct,
    holm,
    with_extremes,
    without_interval,
)
from ragbench.metrics.stats.estimates import mean_interval
from ragbench.metrics.stats.power import PlannedTest, t_power
from ragbench.metrics.stats.selection import corrected_best


def arms(n: int, shift: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.random(n)
    return a, np.clip(a + rng.normal(shift, 0.3, size=n), 0, 1)


def compare(a: Any, b: Any, clusters: Any = None, **options: Any) -> Comparison:
    higher_is_better = bool(options.pop("higher_is_better", True))
    score_range = options.pop("score_range", (0.0, 1.0))
    return compare_scores(
        a, b, clusters, higher_is_better=higher_is_better, score_range=score_range,
        method=Method(**options),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.02, 0.02, 0.5, 1.0], [0.08, 0.08, 1.0, 1.0]),
        ([0.0, 0.9, 0.012, 0.05, 0.012], [0.0, 0.9, 0.048, 0.1, 0.048]),
    ],
)
def test_holm_equals_values_of_statsmodels(p_values: list[float], corrected: list[float]) -> None:
    assert holm(p_values) == pytest.approx(corrected)


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 20])
def test_power_of_a_t_test_equals_the_noncentral_t(alpha: float) -> None:
    for df in (1.0, 1.7, 3.5, 99.0, 123_456.7):
        critical = float(stats.t.ppf(1 - alpha / 2, df))
        for shift in (0.0, 0.5, 2.8, 6.0):
            above, below = stats.nct.sf(critical, df, shift), stats.nct.cdf(-critical, df, shift)
            found = t_power(shift, df, alpha=alpha)
            assert found == pytest.approx(float(above + np.nan_to_num(below)), abs=1e-9)
    assert t_power(1e6, 3) == pytest.approx(1.0)


def test_questions_needed_if_inserted_into_power_gives_80_percent() -> None:
    questions = PlannedTest(reach=0.0).questions
    needed = questions(0.1, 0.25)
    assert needed is not None
    plain = 198.15  # by statsmodels: TTestPower().solve_power(0.2, power=0.8, alpha=0.05)
    assert needed == pytest.approx(plain, abs=4)  # the two pseudo-values draw it to 0
    power = PlannedTest(reach=0.0).power
    assert power(0.1, 0.25, needed) >= 0.8 > power(0.1, 0.25, needed - 1)
    assert (questions(0.0, 0.25), questions(1e-17, 0.25)) == (None, None)


def test_planned_test_has_the_power_of_the_test_itself() -> None:
    d = np.array([1.0] * 6 + [-1.0] * 2 + [0.0] * 12)
    found = compare(np.maximum(0, -d), np.maximum(0, d))
    assert found.estimate is not None
    variance = float(d.var())
    power = PlannedTest(reach=1.0).power(float(d.mean()), variance, 20)
    shift = found.estimate.centre / found.estimate.standard_error
    assert power == pytest.approx(t_power(shift, found.estimate.df), abs=1e-9)
    clustered = PlannedTest(reach=1.0, design_effect=2.0)
    alone = PlannedTest(reach=1.0).questions(0.2, 0.3) or 0
    assert 1.7 * alone < (clustered.questions(0.2, 0.3) or 0) <= 2 * alone
    names = [i // 4 for i in range(80)]
    alike = np.repeat([1.0] * 6 + [-1.0] * 2 + [0.0] * 12, 4)
    same = compare(np.maximum(0, -alike), np.maximum(0, alike), clusters=names)
    assert same.estimate is not None
    shown = t_power(same.estimate.centre / same.estimate.standard_error, same.estimate.df)
    test = same.planned()
    assert test is not None
    assert test.power(same.difference, float(alike.var()), 80) == pytest.approx(shown, abs=0.02)
    planned = PlannedTest(reach=1.0, cluster_size=4.0, design_effect=1.0)
    assert planned.power(float(d.mean()), float(d.var()), 80) < PlannedTest(reach=1.0).power(
        float(d.mean()), float(d.var()), 80
    )
    assert planned.power(0.9, 0.01, 5) == 0.0  # fewer than two clusters


def test_detectable_difference_has_the_variance_of_its_gains() -> None:
    test = PlannedTest(reach=1.0)
    least = test.detectable(0.0, 0.0, 100)  # nothing differed: all of the gain must be new
    assert least is not None
    assert test.power(least, least - least**2, 100) == pytest.approx(0.8, abs=1e-6)
    assert test.detectable(0.3, 0.0, 100) > least  # type: ignore[operator]
    seen = test.detectable(0.2, 0.3, 100)  # what was seen has gains of its own
    assert seen is not None
    assert seen < 0.3
    assert test.power(seen, 0.2 + 0.3**2 - seen**2, 100) == pytest.approx(0.8, abs=1e-6)
    assert PlannedTest(alpha=0.01, reach=1.0).detectable(0.0, 0.0, 100) > least  # type: ignore[operator]
    assert test.detectable(0.3, 0.0, 3) is None


def test_compare_if_no_number_of_questions_suffices_asks_for_seeds() -> None:
    test = PlannedTest(reach=1.0, seed_variance=0.04**2, seeds=3)
    assert test.questions(0.03, 0.2) is test.more_seeds(0.03, 0.2, 50) is None
    assert (test.more_seeds(0.03, 0.2, 10_000) or 0) > 10


def test_compare_if_all_pairs_are_discordant_has_an_interval() -> None:
    found = compare([0] * 12, [1] * 12)
    assert found.difference == 1.0
    assert found.p == pytest.approx(stats.ttest_1samp([1] * 13 + [-1], 0).pvalue)
    assert found.verdict == "better"
    assert compare([1] * 12, [0] * 12).verdict == "worse"
    assert compare([0] * 12, [1] * 12, higher_is_better=False).verdict == "worse"
    split = compare([0, 1] * 6, [1, 0] * 6)
    assert (split.difference, split.p) == (0.0, 1.0)
    assert split.verdict.startswith("no significant difference")
    assert compare([0, 0, 0], [1, 1, 1]).verdict.startswith("no significant difference")
    equal = compare([1, 0, 1, 0, 1], [1, 0, 1, 0, 1], margin=0.05)
    assert (equal.difference, equal.p, equal.n_needed) == (0.0, 1.0, None)
    assert equal.verdict == "no significant difference (the two score the same)"
    found = compare([0] * 30, [1] * 30, ["same"] * 30)
    assert found.verdict == "better (for these documents only)"


def test_verdict_if_not_significant_names_the_questions_needed() -> None:
    a, b = arms(40, 0.02, 5)
    found = compare(a, b)
    assert found.n_needed is not None
    assert found.n_least is not None
    assert 40 < found.n_least < found.n_needed
    assert "questions would be needed to show one this size, and of " in found.verdict
    named = int(found.verdict.partition("about ")[2].partition(" ")[0].replace(",", ""))
    assert found.n_needed <= named <= 1.1 * found.n_needed + 1
    test = PlannedTest(reach=1.0)
    assert test.power(found.difference, found.sd**2, found.n_needed) >= 0.8
    assert test.power(found.difference, found.sd**2, found.n_needed - 1) < 0.8
    assert found.interval is not None
    assert test.questions(found.interval.high, found.sd**2) == found.n_least
    wide = compare(5 * a, 5 * b, score_range=(0.0, 5.0))
    assert (wide.n_needed, wide.n_least) == (found.n_needed, found.n_least)
    assert wide.minimum_detectable == pytest.approx(5 * (found.minimum_detectable or 0))


def test_verdict_if_documents_are_clusters_names_their_number() -> None:
    a, b = arms(100, 0.02, 5)
    pairs = [i // 2 for i in range(100)]
    found = compare(a, b, clusters=pairs).verdict
    named = re.search(r"about ([\d,]+) questions about ([\d,]+) documents would be needed", found)
    assert named
    questions, documents = (int(number.replace(",", "")) for number in named.groups())
    assert documents == pytest.approx(questions / 2, rel=0.1)


@pytest.mark.parametrize(("clusters", "scope"), [(10, "for these documents only"), (11, "")])
def test_compare_if_documents_are_few_speaks_of_these_documents_only(
    clusters: int, scope: str
) -> None:
    names = [i % clusters for i in range(110)]
    a, b = arms(110, 0.2, 5)
    found = compare(a, b, clusters=names, margin=0.5)
    assert (found.outcome, found.slight) == ("better", True)
    assert {found.interval.scope, found.interval_a.scope, found.interval_b.scope} == {scope}  # type: ignore[union-attr]
    assert found.verdict.endswith(f"({scope})") == bool(scope)
    assert ("fail as a whole" in found.verdict) != bool(scope)
    same = compare(a, a, clusters=names, margin=0.5)
    assert same.verdict == "equivalent within ±0.5" + (f" ({scope})" if scope else "")
    unsure = compare(a, a, clusters=names)
    assert unsure.verdict == (
        f"no significant difference (the two score the same{f'; {scope}' if scope else ''})"
    )


def test_breakdown_if_that_share_fails_has_a_lower_bound_of_0() -> None:
    names = [i // 5 for i in range(100)]
    a, b = arms(100, 0.3, 5)
    found = correct([compare(a, b, clusters=names), compare(a, a, clusters=names)])[0]
    low = found.corrected_interval.low  # type: ignore[union-attr]
    share = found.breakdown
    assert share == pytest.approx(low / (1 + low))
    assert (1 - share) * low - share == pytest.approx(0)  # type: ignore[operator]
    words = f"holds unless more than {100 * share:.2g} % of unseen documents fail as a whole"  # type: ignore[operator]
    assert found.verdict == f"better ({words})"
    assert found.reversed().breakdown is None
    assert found.reversed().reversed() == found
    lower = compare(5 * b, 5 * a, clusters=names, higher_is_better=False, score_range=(0.0, 5.0))
    alone = compare(a, b, clusters=names)
    assert (lower.outcome, lower.breakdown) == ("better", pytest.approx(alone.breakdown))
    assert compare(a, b).breakdown is None  # single questions


@pytest.mark.parametrize("n", [9, 10, 50])
def test_compare_if_the_metric_has_no_bounds_tests_nothing(n: int) -> None:
    a, b = np.arange(1.0, n + 1), np.arange(1.0, n + 1) + 523.0
    found = compare(a, b, score_range=None, margin=1.0, higher_is_better=False)
    tested = compare(*arms(60, 0.3, 1))
    alone = correct([tested])
    assert correct([found, tested]) == [found, *alone]
    assert (found.p, found.corrected_p, found.outcome, found.verdict) == (None, None, "", "")
    assert found.most_expensive == (n, n + 523)
    assert found.reversed().most_expensive == (n + 523, n)
    assert found.ratio == pytest.approx(b.mean() / a.mean())
    assert compare([0.0], [1.0], score_range=None).ratio is None
    if n < 10:
        assert found.interval is None
    else:
        assert found.interval is not None
        assert (found.interval.low, found.interval.high) == (523.0, 523.0)
        assert found.interval.scope == "of the questions asked"


def test_without_interval_removes_the_test_and_states_the_reason() -> None:
    bare = without_interval(compare(*arms(60, 0.3, 1), margin=0.9), "asked twice")
    assert (bare.interval, bare.interval_b, bare.p, bare.p_gains(0.5)) == (None, None, 1.0, 1.0)
    assert bare.verdict == "no significant difference (asked twice)"


def test_verdict_if_the_pilot_is_small_names_no_number() -> None:
    said = "no significant difference (too few questions to say how many would be needed)"
    one = compare([0], [1])
    assert (one.n, one.difference, one.interval, one.p, one.verdict) == (1, 1.0, None, 1.0, said)
    assert compare([0, 0, 1, 0], [1, 0, 1, 0]).verdict == said
    assert compare([0] * 9, [0] * 8 + [1]).verdict == said
    assert "about" in compare([0] * 10, [0] * 9 + [1]).verdict


def test_equivalence_if_corrected_uses_holm() -> None:
    same = [1, 0] * 60
    close = next(
        c
        for c in (compare(same, same, margin=m / 1000) for m in range(10, 400))
        if c.verdict.startswith("equivalent")
    )
    assert close.p_equivalent <= 0.05
    assert correct([close])[0].verdict.startswith("equivalent")
    unsure = compare([1, 0] * 20, [0, 1] * 20, margin=0.02)
    again = correct([close, unsure, unsure])
    assert again[0].p_equivalent_adjusted == pytest.approx(min(1, 3 * close.p_equivalent))
    assert again[0].verdict.startswith("no significant difference")


def test_correct_if_the_family_is_large_removes_significance() -> None:
    a, b = arms(60, 0.09, 0)
    alone = compare(a, b)
    assert 0.01 < alone.p < 0.05
    assert alone.verdict == "better"
    noise = [compare(*arms(60, 0.0, seed)) for seed in range(4)]
    corrected = correct([alone, *noise])[0]
    assert corrected.p_adjusted == pytest.approx(5 * alone.p)
    assert corrected.verdict.startswith("no significant difference (a new run of about ")
    assert (corrected.n_needed or 0) > (alone.n_needed or 0) > 0
    assert (corrected.minimum_detectable or 0) > (alone.minimum_detectable or 0) > 0
    assert correct([]) == []
    tried = (compare(*arms(60, 0.07, seed)) for seed in range(200))
    close = next(c for c in tried if 0.026 < c.p < 0.049)  # past 5 % in a family of two
    verdicts = [c.verdict for c in correct([close, close])]
    assert all(verdict.startswith("no significant difference") for verdict in verdicts)


def test_corrected_intervals_agree_with_the_verdicts() -> None:
    tried = [compare(*arms(60, 0.07, seed)) for seed in range(60)]
    clear = compare(*arms(60, 0.3, 1))
    close = next(c for c in tried if 0.026 < c.p < 0.049)
    assert clear.p < 0.01
    for family in ([clear, close, close], [close, close], [clear]):
        for c in correct(family):
            assert c.corrected_interval is not None
            shown = c.verdict.startswith(("better", "worse"))
            assert c.corrected_interval.excludes_zero() == shown
    three = correct([clear, close, close])
    levels = [c.corrected_interval.level for c in three if c.corrected_interval]
    assert levels == pytest.approx([1 - 0.05 / 3, 1 - 0.05 / 2, 1 - 0.05 / 2])


def test_with_extremes_if_both_agree_states_the_verdict() -> None:
    tried = [compare(*arms(60, 0.07, seed), margin=0.4) for seed in range(60)]
    close = next(c for c in tried if 0.026 < c.p < 0.049)
    clear = compare(*arms(60, 0.3, 1), margin=0.4)
    both = with_extremes(clear, [clear, close], 3)
    assert (both.p, both.p_equivalent) == (close.p, max(clear.p_equivalent, close.p_equivalent))
    assert both.interval is not None
    assert close.interval is not None
    assert clear.interval is not None
    assert (both.interval.low, both.interval.high) == (close.interval.low, clear.interval.high)
    assert both.verdict == "better, by less than the margin of 0.4"
    assert both.difference == clear.difference
    assert (both.n_needed, both.minimum_detectable) == (None, None)
    assert both.p_gains(0.5) == max(clear.p_gains(0.5), close.p_gains(0.5))
    turned = both.reversed()
    assert turned.p_gains(0.01) == max(c.reversed().p_gains(0.01) for c in (clear, close))
    assert turned.at(0.9).low == -both.at(0.9).high  # type: ignore[union-attr]
    assert [e.centre for e in turned.extremes] == [-e.centre for e in both.extremes]
    unmargined = compare(*arms(60, 0.3, 1))
    apart = with_extremes(unmargined, [clear, clear.reversed()], 3)
    assert apart.p == 1.0
    assert apart.verdict.startswith(
        "no significant difference (3 questions have a score in one run only"
    )


def test_reversed_of_a_comparison_has_the_reverse_verdict() -> None:
    found = correct([compare(*arms(60, 0.3, 1))])[0]
    back = found.reversed()
    assert (back.difference, back.mean_a) == (-found.difference, found.mean_b)
    assert back.verdict == "worse"
    assert back.interval is not None
    assert found.interval is not None
    assert (back.interval.low, back.interval.high) == (-found.interval.high, -found.interval.low)
    assert back.reversed() == found
    # Gains of so much or more: dual to the better end of the interval, whichever way is better.
    min_gain = found.interval.high
    assert found.p_gains(min_gain) == pytest.approx(0.05)
    assert found.p_gains(2 * min_gain) < 0.05 < found.p_gains(0.5 * min_gain)
    a, b = arms(60, 0.3, 1)
    lower = compare(b, a, higher_is_better=False)
    assert lower.verdict == "better"
    assert lower.p_gains(min_gain) == pytest.approx(0.05)
    more = compare(a, b, higher_is_better=False)
    assert more.p_gains(0.05) < 1e-6


def test_compare_if_seeds_repeat_questions_does_not_count_more_questions() -> None:
    a, b = arms(30, 0.1, 2)
    once = compare(a, b)
    copied = compare([a] * 5, [b] * 5)
    assert (copied.n, copied.difference, copied.p) == pytest.approx((30, once.difference, once.p))
    assert copied.interval is not None
    assert once.interval is not None
    assert copied.interval.low == pytest.approx(once.interval.low)


def test_margins() -> None:
    same, few = [1, 0] * 200, [1, 0] * 20
    assert compare(same, same, margin=0.02).verdict == "equivalent within ±0.02"
    assert compare(few, few, margin=0.02).outcome == "undecided"
    assert compare(same, same).outcome == "undecided"
    rng = np.random.default_rng(0)
    a = rng.uniform(0.2, 0.6, 2_000)
    found = compare(a, a + rng.normal(0.01, 0.02, 2_000), margin=0.05)
    assert found.verdict == "better, by less than the margin of 0.05"
    for sign in (1, -1):  # both ends must lie within it
        d = sign * (0.03 + np.tile([0.1, -0.1], 200))
        assert not compare(np.zeros(400), d, margin=0.035).slight


# -- the luck of being chosen


def test_corrected_best_if_candidates_are_equal_is_near_chance() -> None:
    rng = np.random.default_rng(0)
    seen, corrected = [], []
    for number in range(40):
        found = corrected_best((rng.random((16, 50)) < 0.5).astype(float), seed=number)
        seen.append(found.seen)
        corrected.append(found.corrected)
    assert np.mean(seen) > 0.6
    assert np.mean(corrected) == pytest.approx(0.5, abs=0.03)


def test_corrected_best_if_clusters_exist_resamples_clusters() -> None:
    rng = np.random.default_rng(3)
    luck = []
    for clustered in (False, True):
        taken_off = []
        for number in range(20):
            scores = np.repeat((rng.random((12, 20)) < 0.5).astype(float), 4, axis=1)
            clusters = np.repeat(np.arange(20), 4).tolist() if clustered else None
            found = corrected_best(scores, clusters=clusters, seed=number, resamples=100)
            taken_off.append(found.seen - found.corrected)
        luck.append(np.mean(taken_off))
    assert luck[1] > 1.5 * luck[0]


def test_corrected_best_if_one_is_clearly_best_keeps_its_score() -> None:
    scores = np.zeros((3, 40))
    scores[1, :30] = 1.0
    found = corrected_best(scores)
    assert (found.index, found.seen, found.candidates) == (1, 0.75, 3)
    assert found.corrected == pytest.approx(0.75, abs=0.02)
    assert found.interval.low < 0.75 < found.interval.high
    for seed in range(8):  # what was not drawn may look better by chance
        alone = corrected_best(scores[1:2], seed=seed, resamples=20)
        assert alone.corrected <= alone.seen
    assert corrected_best([[1.0]]) is None
    luck = corrected_best((np.random.default_rng(0).random((16, 40)) < 0.5).astype(float))
    rows = (np.random.default_rng(0).random((16, 40)) < 0.5).astype(float)
    own = mean_interval(rows[luck.index], (0.0, 1.0))  # type: ignore[union-attr]
    assert luck.interval.high == own.high  # type: ignore[union-attr]
    assert luck.interval.low < own.low - 0.05  # type: ignore[union-attr]
    least = corrected_best(1 - scores, higher_is_better=False)
    assert (least.index, least.seen) == (1, 0.25)  # type: ignore[union-attr]
    assert least.corrected >= 0.25  # type: ignore[union-attr]


def test_verdict_if_twenty_times_more_questions_are_needed_asks_for_seeds() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.3, (3, 100)) + 0.02 * np.array([[-1.0], [0.0], [1.0]])
    asked = {}
    for gain in 0.039120058640837674 + np.logspace(-11, -4, 29):  # below, no number would do
        after = 0.5 + gain + noise - noise.mean()
        found = compare(np.full((1, 100), 0.5), after)
        needed = found.planned().questions(found.difference, found.sd**2)  # type: ignore[union-attr]
        if needed is not None:
            asked[needed / 100] = found.seeds_needed is not None
    assert any(2 < times < 20 for times in asked)
    planned = found.planned()
    assert planned is not None
    of_seeds = float(after.mean(axis=1).var(ddof=1))
    assert planned.seed_variance == pytest.approx(of_seeds)
    assert all(seeds == (times > 20) for times, seeds in asked.items()), asked


def zeros_of(value: Any) -> list[float]:
    """Return every zero among the numbers of a comparison, nested ones included."""
    if is_dataclass(value):
        return zeros_of([getattr(value, field.name) for field in fields(value)])
    if isinstance(value, list | tuple):
        return [zero for item in value for zero in zeros_of(item)]
    return [value] if isinstance(value, float) and value == 0 else []


def test_reversed_if_scores_are_equal_has_no_negative_zero() -> None:
    a, _ = arms(30)
    turned = compare(a, a).reversed()
    zeros = zeros_of(turned)
    assert turned.difference == 0
    assert len(zeros) >= 3
    assert all(math.copysign(1, zero) > 0 for zero in zeros)
    assert f"{turned.difference:+.3f}" == "+0.000"
