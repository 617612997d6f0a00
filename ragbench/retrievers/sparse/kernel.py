"""The compiled search over postings: sums for a block of passages at a time, and the best of them.

A block's sums stay in the processor's cache. Sums are made in the order of the query's words, so
they are those of the plain sum to the last digit; ties stay in corpus order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ragbench.retrievers.sparse.postings import Floats, Ints, Longs

#: Passages whose sums are held at once: 64 KB.
BLOCK = 16_384
#: Sums that are compared together with the worst of the best.
_STRIP = 64


@cache
def compiled_search() -> Callable[..., tuple[Ints, Floats]]:
    """`_search` compiled: once per machine, where there is a folder to keep it in."""
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
        *(types.int64,) * 3,
    )
    try:
        compiled: Any = numba.njit(signature, nogil=True, cache=True)(_search)
    except RuntimeError:  # no folder to keep compiled code in
        compiled = numba.njit(signature, nogil=True)(_search)
    return compiled  # type: ignore[no-any-return]


def _search(
    terms: Ints, data: Floats, indices: Ints, indptr: Longs, n: int, k: int, block: int
) -> tuple[Ints, Floats]:
    """The positions and the sums of the `k` best of `n`, `block` of them at a time."""
    cursor = indptr[terms]
    sums = np.zeros(min(n, block) + _STRIP, dtype=np.float32)  # whole strips; the rest stays 0
    positions, values = np.empty(k, dtype=np.int32), np.empty(k, dtype=np.float32)
    held, worst = 0, np.float32(0)
    for start in range(0, n, block):
        stop = min(start + block, n)
        for t in range(len(terms)):
            j, end = cursor[t], indptr[terms[t] + 1]
            while j < end and indices[j] < stop:
                sums[np.uint64(indices[j] - start)] += data[j]
                j += 1
            cursor[t] = j
        for strip in range(0, stop - start, _STRIP):
            better = 0
            for i in range(strip, strip + _STRIP):
                better += sums[np.uint64(i)] > worst
            if not better:
                continue
            for i in range(strip, strip + _STRIP):
                score = sums[i]
                if score <= worst:
                    continue
                slot = held if held < k else k - 1
                while slot > 0 and values[slot - 1] < score:
                    values[slot], positions[slot] = values[slot - 1], positions[slot - 1]
                    slot -= 1
                values[slot], positions[slot] = score, start + i
                held = min(held + 1, k)
                if held == k:
                    worst = values[k - 1]
        sums[:] = 0
    return positions[:held].copy(), values[:held].copy()
