"""How far raters agree beyond chance, and a share that a judge estimated, corrected for its errors.

Agreement: Krippendorff's alpha (2011). Correction: Rogan and Gladen's
estimate (1978) with the interval of Lang and Reiczigel (2014), which moves each share towards a
half before its variance is taken and so covers also for small shares. That is prediction-powered
inference under label shift (Angelopoulos et al. 2023, arXiv:2301.09633): how often a judge catches
a false claim and passes a true one carries over to claims with another share of false ones.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from math import sqrt
from typing import NamedTuple

_Z = 1.959964  # 95 %


def krippendorff_alpha(items: Sequence[Sequence[Hashable | None]]) -> float | None:
    """Krippendorff's nominal alpha; `items` has the labels that each item got, None for missing.

    Items with fewer than two labels say nothing and are left out. None where it is not defined: no
    such item, or only one label in all.
    """
    rated = [[label for label in labels if label is not None] for labels in items]
    rated = [labels for labels in rated if len(labels) > 1]
    totals = Counter(label for labels in rated for label in labels)
    n = totals.total()
    if len(totals) < 2:
        return None
    observed = sum(_disagreeing(Counter(labels)) / (len(labels) - 1) for labels in rated) / n
    return 1 - observed / (_disagreeing(totals) / (n * (n - 1)))


def _disagreeing(counts: Counter[Hashable]) -> int:
    """Ordered pairs of values that differ."""
    return counts.total() ** 2 - sum(count**2 for count in counts.values())


class JudgeErrors(NamedTuple):
    """What a judge made of claims with known labels: false ones caught, and true ones passed."""

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

    None where there is no question, or where the judge is no better than chance on known labels.
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
