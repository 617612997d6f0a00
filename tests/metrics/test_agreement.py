"""Agreement: against statsmodels, and Krippendorff's own worked example."""

from __future__ import annotations

import random

import numpy as np
import pytest
from statsmodels.stats.inter_rater import cohens_kappa as reference_kappa, fleiss_kappa

from ragbench.metrics.agreement import cohens_kappa, krippendorff_alpha


def ratings(seed: int, raters: int, n: int = 40) -> list[list[int]]:
    chance = random.Random(seed)
    truth = [chance.randrange(3) for _ in range(n)]
    return [[t if chance.random() < 0.7 else chance.randrange(3) for _ in range(raters)]
            for t in truth]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_kappa_equals_statsmodels(seed: int) -> None:
    rows = ratings(seed, 2)
    table = np.zeros((3, 3))
    for a, b in rows:
        table[a, b] += 1
    found = cohens_kappa([a for a, _ in rows], [b for _, b in rows])
    assert found == pytest.approx(reference_kappa(table).kappa)


@pytest.mark.parametrize("seed", range(20))
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
    assert cohens_kappa([], []) is None
    assert cohens_kappa([1, 1], [1, 1]) is None
    assert krippendorff_alpha([[1, 1], [1, 1]]) is None
    assert krippendorff_alpha([[1], [None, 0]]) is None


def test_less_than_chance_is_negative() -> None:
    assert cohens_kappa([0, 1], [1, 0]) == -1.0
    assert krippendorff_alpha([[0, 1], [1, 0]]) == pytest.approx(-0.5)
