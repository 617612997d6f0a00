"""The best of many scores, ties in corpus order.

Engines leave ties in the order of a heap; here they keep corpus order.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt

from ragbench.retrievers.postings import BLOCK, Floats, Ints, Postings, compiled_search

Hits = list[tuple[int, float]]

#: Beyond this depth one sort is faster than inserting into a sorted list.
_MAX_INSERT = 1000


def best(scores: Floats, k: int) -> Hits:
    """The positions of the `k` highest scores above 0 and those scores, best first."""
    positive = np.flatnonzero(scores > 0)
    return top(scores[positive], k, positive)


def top(scores: Floats, k: int, positions: npt.NDArray[Any] | None = None) -> Hits:
    """The `k` highest of `scores`, whatever their sign, best first, as (position, score).

    `positions` are those of the scores, in ascending order; by default 0, 1, 2, ...
    """
    kept = np.arange(len(scores)) if positions is None else positions
    if 0 < k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        mask = scores >= threshold
        scores, kept = scores[mask], kept[mask]
    order = np.argsort(-scores, kind="stable")[: max(k, 0)]
    return list(zip(kept[order].tolist(), scores[order].tolist(), strict=True))


def ordered(positions: Any, scores: Any, k: int) -> Hits:
    """The `k` highest of `scores` in any order, best first, those that tie by their positions."""
    order = np.lexsort((positions, -scores))[:k]
    return list(zip(positions[order].tolist(), scores[order].tolist(), strict=True))


def has_numba() -> bool:
    """Whether the compiled kernel can be had."""
    return importlib.util.find_spec("numba") is not None


def sparse_search(terms: Ints, postings: Postings, n: int, k: int, *, compiled: bool) -> Hits:
    """The `k` best of `n` passages by the summed weights of `terms`, which may repeat.

    `compiled` uses the compiled kernel, with the same result.
    """
    data, indices, indptr = postings.data, postings.indices, postings.indptr
    if compiled and k <= _MAX_INSERT:
        positions, values = compiled_search()(terms, data, indices, indptr, n, k, BLOCK)
        return list(zip(positions.tolist(), values.tolist(), strict=True))
    scores = np.zeros(n, dtype=np.float32)
    for term in terms:
        held = slice(indptr[term], indptr[term + 1])
        scores[indices[held]] += data[held]
    return best(scores, k)
