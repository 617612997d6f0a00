"""Tests of paired differences that need no distribution, and Holm's correction of families."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

_BLOCK = 4_000_000  # numbers drawn at once; bounds memory


@dataclass(frozen=True)
class McNemar:
    """Questions that one run alone got right, and the exact p-value of their balance."""

    only_a: int
    only_b: int
    p: float


def sign_flip_p(differences: ArrayLike, *, n: int = 9_999, seed: int = 0) -> float:
    """The two-sided p-value of `differences` `(n,)` under flips of their signs.

    Tests that the two arms are exchangeable, which is more than that their means are equal: skewed
    differences of mean 0 are refused too often (give sums over clusters where questions vary
    together). Exact where there are at most `n` ways to flip, or where all differences that are
    not 0 have one size (the sign test); else over `n` random flips, counting the observed one.
    """
    d = np.asarray(differences, dtype=np.float64)
    d = d[np.abs(d) > 1e-12]  # a tie stays a tie however it is flipped
    if not len(d):
        return 1.0
    sizes = np.abs(d)
    if np.allclose(sizes, sizes[0], rtol=0, atol=1e-12):
        return sign_p(int((d > 0).sum()), len(d))
    observed = abs(d.sum()) - 1e-9
    if 2 ** len(d) <= n:
        flips = (np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1
        return float((np.abs((1 - 2 * flips) @ d) >= observed).mean())
    rng, extreme, left = np.random.default_rng(seed), 0, n
    while left:
        rows = min(left, max(1, _BLOCK // len(d)))
        signs = rng.integers(0, 2, size=(rows, len(d)), dtype=np.int8).astype(np.float32)
        # In single precision, so that BLAS does the sum: ties are taken within its error.
        sums = np.abs(2 * (signs @ d.astype(np.float32)) - np.float32(d.sum()))
        extreme += int((sums >= observed - 1e-5 * sizes.sum()).sum())
        left -= rows
    return (extreme + 1) / (n + 1)


def mcnemar(a: ArrayLike, b: ArrayLike) -> McNemar:
    """The exact McNemar test on right and wrong answers (1 and 0)."""
    left, right = np.asarray(a) > 0.5, np.asarray(b) > 0.5
    only_a, only_b = int((left & ~right).sum()), int((right & ~left).sum())
    return McNemar(only_a, only_b, sign_p(only_b, only_a + only_b))


def sign_p(positive: int, n: int) -> float:
    """The exact two-sided p-value of so many of `n` signs being positive where both are as likely.

    It is the binomial test at one half, which is symmetric; 1 without a sign.
    """
    fewer = min(positive, n - positive)
    share = term = 1.0  # of the chance of so few, and of each number below
    for i in range(fewer, 0, -1):
        term *= i / (n - i + 1)
        share += term
    chance: float = math.comb(n, fewer) / 2**n
    return min(1.0, 2 * share * chance)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given (Holm 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
