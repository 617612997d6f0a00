"""Sets of questions for `benchmarks.calibration`: asymmetric, and in documents unless they say not.

B loses much now and then, on whole documents where there are any, and gains a little on all else:
most small sets hold no such loss. Scores are in [0, 1], differences B minus A.
"""

from collections.abc import Callable, Mapping, Sequence
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


ZIPF = [max(1, 60 // rank) for rank in range(1, 201)]
#: The sets of every claim.
SETS: Mapping[str, Draw] = {
    "10 of 20": lost([20] * 10, 0.2),
    "20 of 10": lost([10] * 20, 0.15),
    "30 of 10": lost([10] * 30, 0.1),
    "60 of 5": lost([5] * 60, 0.1),
    "30 of 10, F1": partly_lost([10] * 30, 0.1),
    "Zipf": lost(ZIPF, 0.3, documents_only=True),
    "10 of 20, 100 single": lost([20] * 10 + [1] * 100, 0.2, documents_only=True),
    "10 of 20, 400 single": lost([20] * 10 + [1] * 400, 0.15, documents_only=True),
    "1 of 40, 300 single": lost([40] + [1] * 300, 0.6, documents_only=True),
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


def run_away(rng: Rng, sizes: Sequence[int], most: int) -> tuple[Floats, Floats, list[int]]:
    """Tokens of two programs that take the same on average; B's runs away on one document in 30.

    There it takes all the `most` calls that a question may take.
    """
    document = np.repeat(np.arange(len(sizes)), sizes)
    n = len(document)
    before = rng.integers(3, 7, n) * rng.lognormal(6, 0.2, n)
    usual = (4.5 - most / 30) / (29 / 30) / 4.5
    runs_away = (rng.random(len(sizes)) < 1 / 30)[document]
    calls = np.where(runs_away, most, usual * rng.integers(3, 7, n))
    return before, calls * rng.lognormal(6, 0.2, n), document.tolist()
