"""Shares corrected for a judge's errors: by hand, and covered as often as the interval says."""

from __future__ import annotations

import random

import pytest

from ragbench.metrics.prediction_powered import JudgeErrors, corrected_share


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
