"""A share that a judge estimated, corrected by its errors on claims whose labels are known.

Prediction-powered inference under label shift (Angelopoulos et al. 2023, arXiv:2301.09633): the
labelled claims have another share of false ones than those of a run, so their mean error would
correct wrongly; how often the judge catches a false claim and passes a true one does carry over.
The estimate is Rogan and Gladen's (1978), the interval as Lang and Reiczigel's (2014): each share
is moved towards a half before its variance is taken, which covers also for small shares. The shares
are of questions, so claims of one question count together.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

_Z = 1.959964  # 95 %


class JudgeErrors(NamedTuple):
    """What a judge made of labelled claims: false ones that it caught, true ones that it passed."""

    caught: int
    false: int
    passed: int
    true: int


class Corrected(NamedTuple):
    """A corrected share with its 95 % interval, all in [0, 1]."""

    mean: float
    low: float
    high: float


def corrected_share(shares: Sequence[float], errors: JudgeErrors) -> Corrected | None:
    """The mean share of false claims, from the `shares` that the judge called so, by question.

    None where there is no question, or where the judge is no better than chance on the labelled.
    """
    n, extra = len(shares), _Z**2
    caught = (errors.caught + 1) / (errors.false + 2)
    passed = (errors.passed + 1) / (errors.true + 2)
    better = caught + passed - 1  # than chance
    if not n or better <= 0 or not (errors.false and errors.true):
        return None
    mean = (sum(shares) + extra / 2) / (n + extra)
    spread = sum((share - mean) ** 2 for share in shares)
    spread += extra / 2 * (mean**2 + (1 - mean) ** 2)
    middle = _clip((mean + passed - 1) / better)
    variance = (
        spread / (n + extra) ** 2
        + middle**2 * caught * (1 - caught) / (errors.false + 2)
        + (1 - middle) ** 2 * passed * (1 - passed) / (errors.true + 2)
    )
    half = _Z * sqrt(variance) / better
    plain = errors.caught / errors.false + errors.passed / errors.true - 1
    estimate = (sum(shares) / n + errors.passed / errors.true - 1) / plain if plain > 0 else middle
    return Corrected(_clip(estimate), _clip(middle - half), _clip(middle + half))


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))
