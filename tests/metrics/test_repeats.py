"""Repeated questions: the two variances, pass^R and pass@R."""

import math

import numpy as np
import pytest

from ragbench.metrics import p_seeds_alike, repeated, repeats_differ
from ragbench.metrics.stats.repeats import variance_of_one


def test_repeats_give_shares_of_always_and_ever_right() -> None:
    scores = np.array([[1, 1, 0, 0.5], [1, 0, 0, 0.5], [1, 1, 0, 1.0]])
    found = repeated(scores, 1.0)
    assert (found.always, found.ever) == (0.25, 0.75)
    assert found.always_interval is not None
    assert found.always_interval.low <= 0.25 <= found.always_interval.high
    within = (1 / 3 + 1 / 12) / 16  # variances of the second and the fourth question
    assert found.noise == pytest.approx(math.sqrt(within))
    lower = repeated(scores, 0.0)
    assert (lower.always, lower.ever) == (0.25, 0.5)


def test_repeats_if_there_is_one_have_no_noise() -> None:
    once = np.array([[1.0, 0.0, 1.0]])
    assert variance_of_one(once) == 0
    assert repeated(once, 1.0).always == repeated(once, 1.0).ever


def test_repeats_differ_if_there_are_three_finds_a_difference() -> None:
    rng = np.random.default_rng(1)
    alike = rng.normal(0.5, 0.2, (4, 100))
    moved = alike + np.array([[0.0], [0.3], [0.0], [0.3]])
    assert not repeats_differ(alike)
    assert repeats_differ(moved)
    assert not repeats_differ(moved[:2])


def test_repeats_differ_if_only_chance_acts_is_rarely_true() -> None:
    rng = np.random.default_rng(0)
    outcomes = {}
    for _ in range(2000):
        scores = rng.random((3, 30)) + rng.normal(0, 0.1, (3, 1))
        p = p_seeds_alike(scores)
        for low, high in ((0.001, 0.01), (0.01, 0.05)):
            if low < p < high:
                outcomes[low] = repeats_differ(scores)
    assert outcomes == {0.001: True, 0.01: False}
