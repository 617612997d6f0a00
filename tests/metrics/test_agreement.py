"""Agreement of raters against statsmodels, and shares corrected for a judge's errors."""

import random

import numpy as np
import pytest
from statsmodels.stats.inter_rater import fleiss_kappa

from ragbench.metrics.agreement import JudgeErrors, corrected_share, krippendorff_alpha


def ratings(seed: int, raters: int, n: int = 40) -> list[list[int]]:
    chance = random.Random(seed)
    truth = [chance.randrange(3) for _ in range(n)]
    return [[t if chance.random() < 0.7 else chance.randrange(3) for _ in range(raters)]
            for t in truth]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_alpha_follows_from_statsmodels_fleiss_kappa(seed: int) -> None:
    rows = ratings(seed, 4)
    table = np.array([[row.count(label) for label in range(3)] for row in rows])
    n = table.sum()
    # With no label missing, alpha is Fleiss's kappa with the correction for a small sample.
    expected = 1 - (1 - fleiss_kappa(table)) * (n - 1) / n
    assert krippendorff_alpha(rows) == pytest.approx(expected)


def test_alpha_with_missing_labels_is_that_of_krippendorffs_example() -> None:
    observers = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
    items = [[None if o[i] == "." else o[i] for o in observers] for i in range(12)]
    assert krippendorff_alpha(items) == pytest.approx(0.743, abs=5e-4)


def test_agreement_that_is_not_defined_is_none() -> None:
    assert krippendorff_alpha([[1, 1], [1, 1]]) is None
    assert krippendorff_alpha([[1], [None, 0]]) is None


def test_less_than_chance_is_negative() -> None:
    assert krippendorff_alpha([[0, 1], [1, 0]]) == pytest.approx(-0.5)


def test_correction_by_hand() -> None:
    # Of 100 questions .3 are called false by a judge that catches .8 and passes .9:
    # .8 x + .1 (1 - x) = .3, so x = 2/7.
    found = corrected_share([1.0] * 30 + [0.0] * 70, JudgeErrors(80, 100, 90, 100))
    assert found is not None
    assert found.mean == pytest.approx(2 / 7)
    assert found.low < 2 / 7 < found.high


def test_a_judge_without_errors_on_many_claims_leaves_the_share_as_it_is() -> None:
    found = corrected_share([1.0] * 30 + [0.0] * 70, JudgeErrors(10**6, 10**6, 10**6, 10**6))
    assert found is not None
    assert found.mean == pytest.approx(0.3)
    assert (found.low, found.high) == pytest.approx((0.2189, 0.3958), abs=0.001)  # Wilson's


def test_true_claims_that_are_few_widen_a_share_of_0() -> None:
    found = corrected_share([0.0] * 10**6, JudgeErrors(10**9, 10**9, 9, 10))
    assert found is not None
    passed = 10 / 12
    half = 1.959964 * (passed * (1 - passed) / 12) ** 0.5 / passed
    assert (found.low, found.high) == pytest.approx((0.0, half), abs=1e-4)


def test_nothing_can_be_said_by_chance_or_of_nothing() -> None:
    assert corrected_share([0.5], JudgeErrors(50, 100, 50, 100)) is None
    assert corrected_share([], JudgeErrors(90, 100, 90, 100)) is None
    assert corrected_share([0.5], JudgeErrors(0, 0, 90, 100)) is None


@pytest.mark.parametrize("questions", [20, 100])
@pytest.mark.parametrize("share", [0.02, 0.3])
@pytest.mark.parametrize(("caught", "passed"), [(0.95, 0.97), (0.6, 0.8)])
def test_interval_covers(questions: int, share: float, caught: float, passed: float) -> None:
    dice = random.Random(1)

    def drawn(n: int, rate: float) -> int:
        return sum(dice.random() < rate for _ in range(n))

    covered, runs = 0, 400
    for _ in range(runs):
        errors = JudgeErrors(drawn(150, caught), 150, drawn(150, passed), 150)
        said = [
            float(dice.random() < (caught if dice.random() < share else 1 - passed))
            for _ in range(questions)
        ]
        found = corrected_share(said, errors)
        assert found is not None
        covered += found.low <= share <= found.high
    assert covered / runs >= 0.92  # .95, and four standard errors of 400 runs below it are .906
