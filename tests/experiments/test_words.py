"""Every word that is said of a comparison has a simulation in benchmarks/calibration.py."""

import random

import pytest

from benchmarks.calibration import WORDS
from ragbench.metrics import Method, compare_scores


@pytest.mark.parametrize("gain", [-0.6, -0.1, 0.0, 0.1, 0.6])
@pytest.mark.parametrize("n", [1, 4, 40, 400])
@pytest.mark.parametrize("margin", [None, 0.02, 0.3])
@pytest.mark.parametrize("clusters", [0, 1, 10])
def test_every_verdict_is_made_of_calibrated_words(
    gain: float, n: int, margin: float | None, clusters: int
) -> None:
    rng = random.Random(n)
    a = {f"q{i}": float(rng.random() < 0.3 - min(gain, 0)) for i in range(n)}
    b = {qid: max(0.0, min(1.0, x + gain * (rng.random() < 0.8))) for qid, x in a.items()}
    groups = {qid: i % clusters for i, qid in enumerate(a)} if clusters else {}
    method = Method(margin=margin, clusters=groups)
    verdict = compare_scores(a, b, method=method).verdict
    assert any(word in verdict for word in WORDS), verdict


def test_every_claim_is_simulated() -> None:
    """What shows nothing claims nothing."""
    silent = [word for word, scenarios in WORDS.items() if not scenarios]
    assert all(word.startswith(("no", "the two", "too few")) for word in silent)
