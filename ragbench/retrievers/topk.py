"""The best of many scores, ties in corpus order.

bm25s and faiss leave ties in the order of a heap, and bm25s compiles its own numba code anew in
every process (about six seconds); the kernel here keeps corpus order and is compiled once per
machine.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Hits = list[tuple[int, float]]

#: Beyond this depth one sort is faster than inserting into a sorted list.
_MAX_INSERT = 1000


def best(scores: Floats, k: int) -> Hits:
    """The positions of the `k` highest scores above 0 and those scores, best first."""
    found = np.flatnonzero(scores > 0)
    return top(scores[found], k, found)


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


def sparse_search(
    terms: Ints, data: Floats, indices: Ints, indptr: npt.NDArray[np.int64], n: int, k: int
) -> Hits:
    """The `k` best of `n` passages by the summed weights of `terms`, by the compiled kernel.

    `data`, `indices` and `indptr` are a term-major sparse matrix: the weights of term `t` are
    `data[indptr[t]:indptr[t + 1]]`, in the passages of the same slice of `indices`.
    """
    if k > _MAX_INSERT:
        scores = np.zeros(n, dtype=np.float32)
        for term in terms:
            held = slice(indptr[term], indptr[term + 1])
            scores[indices[held]] += data[held]
        return best(scores, k)
    positions, values = _kernel()(terms, data, indices, indptr, n, k)
    return list(zip(positions.tolist(), values.tolist(), strict=True))


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
