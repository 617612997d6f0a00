"""The luck of being chosen, taken off in simulation."""

import numpy as np
import pytest

from ragbench.metrics.stats.corrections import corrected_best


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
