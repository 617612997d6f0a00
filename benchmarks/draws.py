"""Sets of questions for `benchmarks.calibration`. Scores are in [0, 1], differences B minus A.

Symmetric sets vary together in their documents. In the others B loses much now and then, on whole
documents if there are any, and gains a little on all else: most small sets hold no such loss.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rng = np.random.Generator


class Drawn(NamedTuple):
    """The scores of both arms, the document of each question, and the true mean of B."""

    a: Floats
    b: Floats
    documents: list[int]
    mean_b: float


#: Draws a set in which B is better by a true difference.
Draw = Callable[[Rng, float], Drawn]


def lost(sizes: Sequence[int], chance: float, *, documents_only: bool = False) -> Draw:
    """B loses each document with `chance`, and right answers for wrong ones come on all else.

    Of `documents_only`, single questions are not lost.
    """
    counts = np.asarray(sizes)
    document = np.repeat(np.arange(len(counts)), counts)
    may = np.ones(len(counts), dtype=bool)
    if documents_only:
        may = counts > 1
    share = chance * float(counts[may].sum()) / float(counts.sum())

    def draw(rng: Rng, difference: float) -> Drawn:
        gain = (share + difference) / (1 - share)
        loses = (rng.random(len(counts)) < chance) & may
        luck = rng.random(len(document))
        changed = np.where(luck < 0.08 + gain, 1.0, np.where(luck > 0.92, -1.0, 0.0))
        d = np.where(loses[document], -1.0, changed)
        # Where nothing changed, both are right or both wrong.
        a = np.where(d == 0, (rng.random(len(d)) < 0.5).astype(float), (d < 0).astype(float))
        level = (1 - share) * (0.08 + gain + 0.5 * (0.84 - gain))
        return Drawn(a, a + d, document.tolist(), level)

    return draw


def partly_lost(sizes: Sequence[int], chance: float) -> Draw:
    """As `lost`, by a score such as F1: much is lost, and a little gained by every answer."""
    counts = np.asarray(sizes)
    document = np.repeat(np.arange(len(counts)), counts)

    def draw(rng: Rng, difference: float) -> Drawn:
        loses = rng.random(len(counts)) < chance
        gain = (0.4 * chance + difference) / (1 - chance)
        noise = rng.normal(0, 0.05, len(document))
        change = np.where(loses[document], -0.4, gain) + noise
        a = np.full(len(document), 0.5)
        return Drawn(a, np.clip(a + change, 0, 1), document.tolist(), 0.5 + difference)

    return draw


def chances(n: int) -> Draw:
    """Single questions, each with a chance of its own that both arms have; B then gains."""

    def draw(rng: Rng, difference: float) -> Drawn:
        chance = rng.beta(0.5, 0.8, n)
        a = (rng.random(n) < chance).astype(float)
        b = moved(rng, (rng.random(n) < chance).astype(float), difference, 0.5 / 1.3)
        return Drawn(a, b, list(range(n)), 0.5 / 1.3 + difference)

    return draw


def in_documents(sizes: Sequence[int]) -> Draw:
    """Documents, each with a chance of its own that both arms have; B then gains."""
    document = np.repeat(np.arange(len(sizes)), sizes)

    def draw(rng: Rng, difference: float) -> Drawn:
        chance = rng.beta(0.5, 0.8, (2, len(sizes)))[:, document].mean(axis=0)
        a, b = (rng.random((2, len(document))) < chance).astype(float)
        b = moved(rng, b, difference, 0.5 / 1.3)
        return Drawn(a, b, document.tolist(), 0.5 / 1.3 + difference)

    return draw


def rare(n: int, share: float) -> Draw:
    """Single questions of which both arms are right on a `share`."""

    def draw(rng: Rng, difference: float) -> Drawn:
        a = (rng.random(n) < share).astype(float)
        b = moved(rng, (rng.random(n) < share).astype(float), difference, share)
        return Drawn(a, b, list(range(n)), share + difference)

    return draw


def moved(rng: Rng, scores: Floats, difference: float, mean: float) -> Floats:
    """Right and wrong answers of a true `mean` with some turned, so that it is so much more."""
    if difference >= 0:
        turned = rng.random(len(scores)) < difference / (1 - mean)
        return np.where(turned, 1.0, scores)
    turned = rng.random(len(scores)) < -difference / mean
    return np.where(turned, 0.0, scores)


def symmetric(sizes: Sequence[int], correlation: float, gain: float, rng: Rng, runs: int) -> Floats:
    """Draw differences -1, 0 or 1 of `runs` sets, whose values vary together in their documents.

    Args:
        sizes: Number of questions of each document.
        correlation: Intra-cluster correlation of the normal values behind the differences.
        gain: True mean of the differences.
        rng: Source of chance.
        runs: Number of sets.

    Returns:
        Differences, shape (runs, questions).
    """
    counts = np.asarray(sizes)
    document = np.repeat(np.arange(len(counts)), counts)
    shared = rng.normal(0, math.sqrt(correlation), (runs, len(counts)))[:, document]
    latent = shared + rng.normal(0, math.sqrt(1 - correlation), (runs, len(document)))
    lower = NormalDist().inv_cdf(0.15 - gain / 2)
    upper = NormalDist().inv_cdf(0.85 - gain / 2)
    return np.where(latent < lower, -1.0, np.where(latent > upper, 1.0, 0.0))


ZIPF = [max(1, 60 // rank) for rank in range(1, 201)]
#: Numbers of questions of the documents of a set, of more than ten clusters each.
SHAPES: Mapping[str, Sequence[int]] = {
    "15 x 20": [20] * 15,
    "20 x 5": [5] * 20,
    "20 x 10": [10] * 20,
    "30 x 10": [10] * 30,
    "50 x 20": [20] * 50,
    "60 x 5": [5] * 60,
    "Zipf": ZIPF,
    "300 single": [1] * 300,
    "20 x 2 + 300": [2] * 20 + [1] * 300,
    "1 x 40 + 300": [40] + [1] * 300,
    "3 x 20 + 300": [20] * 3 + [1] * 300,
    "10 x 20 + 100": [20] * 10 + [1] * 100,
    "10 x 20 + 400": [20] * 10 + [1] * 400,
    "20 x 10 + 200": [10] * 20 + [1] * 200,
}
#: Single questions, with asymmetric differences.
SETS: Mapping[str, Draw] = {
    "single, 20": lost([1] * 20, 0.1),
    "single, 100": lost([1] * 100, 0.03),
    "single, 300, F1": partly_lost([1] * 300, 0.03),
    "single, A/A, 100": chances(100),
    "single, EM .06, 300": rare(300, 0.06),
}


def seeded(
    rng: Rng, seeds: int, sizes: Sequence[int], spread: float, gain: float
) -> tuple[Floats, Floats, list[int]]:
    """One arm that is not compiled, `seeds` programs of it, and the document of each question.

    The programs' means are `gain` off, and vary by `spread` around it. Documents are hard or easy.
    """
    document = np.repeat(np.arange(len(sizes)), sizes)
    chance = rng.beta(0.5, 0.8, len(sizes))[document]
    room = chance * (1 - chance)
    shift = (gain + rng.normal(0, spread, (seeds, 1))) * room / (0.4 / 1.3 / 2.3)
    before = (rng.random((1, len(document))) < chance).astype(float)
    after = rng.random((seeds, len(document))) < np.clip(chance + shift, 0, 1)
    return before, after.astype(float), document.tolist()
