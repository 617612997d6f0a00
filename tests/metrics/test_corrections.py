"""The luck of being chosen and a judge's errors, taken off by hand and in simulation."""

import random

import numpy as np
import pytest

from ragbench.metrics.stats.corrections import JudgeErrors, corrected_best, corrected_share


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
    for seed in range(8):  # what was not drawn may look better by chance
        alone = corrected_best(scores[1:2], seed=seed, resamples=20)
        assert alone.corrected <= alone.seen
    with pytest.raises(ValueError, match="candidates by two or more questions"):
        corrected_best([[1.0]])


def test_correction_by_hand() -> None:
    # Of 100 questions .3 are called false by a judge that catches .8 and passes .9:
    # .8 x + .1 (1 - x) = .3, so x = 2/7.
    found = corrected_share([1.0] * 30 + [0.0] * 70, JudgeErrors(80, 100, 90, 100))
    assert found is not None
    assert found.mean == pytest.approx(2 / 7)
    assert found.low < 2 / 7 < found.high
    for shares, errors in (  # by chance, or of nothing
        ([0.5], JudgeErrors(50, 100, 50, 100)),
        ([], JudgeErrors(90, 100, 90, 100)),
        ([0.5], JudgeErrors(0, 0, 90, 100)),
    ):
        assert corrected_share(shares, errors) is None


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


@pytest.mark.parametrize(
    ("questions", "share", "caught", "passed"),
    [(20, 0.02, 0.6, 0.8), (20, 0.3, 0.95, 0.97), (100, 0.02, 0.95, 0.97), (100, 0.3, 0.6, 0.8)],
)
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
