"""The best of many scores, ties in corpus order.

Engines leave ties in the order of a heap; the kernel here keeps corpus order. It is compiled once
per machine.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ragbench.retrievers.postings import Floats, Ints, Postings

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


def has_numba() -> bool:
    """Whether the compiled kernel can be had."""
    return importlib.util.find_spec("numba") is not None


def sparse_search(terms: Ints, postings: Postings, n: int, k: int, *, compiled: bool) -> Hits:
    """The `k` best of `n` passages by the summed weights of `terms`, which may repeat.

    `compiled` uses the compiled kernel, with the same result.
    """
    data, indices, indptr = postings.data, postings.indices, postings.indptr
    if compiled and k <= _MAX_INSERT:
        positions, values = _kernel()(terms, data, indices, indptr, n, k)
        return list(zip(positions.tolist(), values.tolist(), strict=True))
    scores = np.zeros(n, dtype=np.float32)
    for term in terms:
        held = slice(indptr[term], indptr[term + 1])
        scores[indices[held]] += data[held]
    return best(scores, k)


@cache
def _kernel() -> Callable[..., tuple[Ints, Floats]]:
    import numba
    from numba import types

    def array(kind: Any) -> Any:
        return types.Array(kind, 1, "C", readonly=True)  # a memory-mapped index is read-only

    floats, ints = types.Array(types.float32, 1, "C"), types.Array(types.int32, 1, "C")
    signature = types.Tuple((ints, floats))(
        array(types.int32),
        array(types.float32),
        array(types.int32),
        array(types.int64),
        types.int64,
        types.int64,
    )
    try:
        compiled: Any = numba.njit(signature, nogil=True, cache=True)(_accumulate_and_select)
    except RuntimeError:  # no folder to keep compiled code in
        compiled = numba.njit(signature, nogil=True)(_accumulate_and_select)
    return compiled  # type: ignore[no-any-return]


def _accumulate_and_select(
    terms: Ints, data: Floats, indices: Ints, indptr: npt.NDArray[np.int64], n: int, k: int
) -> tuple[Ints, Floats]:
    scores = np.zeros(n, dtype=np.float32)
    for t in range(len(terms)):
        for j in range(indptr[terms[t]], indptr[terms[t] + 1]):
            scores[indices[j]] += data[j]
    positions = np.empty(k, dtype=np.int32)
    values = np.empty(k, dtype=np.float32)
    held = 0
    for i in range(n):
        score = scores[i]
        if score <= 0 or (held == k and score <= values[k - 1]):
            continue
        slot = held if held < k else k - 1
        while slot > 0 and values[slot - 1] < score:
            values[slot], positions[slot] = values[slot - 1], positions[slot - 1]
            slot -= 1
        values[slot], positions[slot] = score, i
        held = min(held + 1, k)
    return positions[:held].copy(), values[:held].copy()
