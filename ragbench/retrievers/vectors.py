"""faiss indexes of unit vectors: exact, or by lists where they are many; ties in corpus order."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import LMSetupError, needs_extra
from ragbench.retrievers.base import Hits
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.scores import Found, whole_ties

#: From 20 queries at once faiss multiplies by BLAS, whose last digits differ from a single query's.
_QUERIES_AT_ONCE = 16
#: The most vectors that `auto` searches exactly.
_EXACT_TO = 100_000
#: Vectors added at once, so that those of a file are not all read into memory.
_ADDED_AT_ONCE = 65_536
#: Vectors per list that the lists are made from; faiss needs 39.
_TRAINED_PER_LIST = 64
#: Lists read per search.
NPROBE = 64


def choose_kind(wanted: str, n: int) -> str:
    """The kind of index for `n` vectors: `wanted`, or by size if that is `auto`."""
    if wanted != "auto":
        return wanted
    return "exact" if n <= _EXACT_TO else "ivf"


def make_index(vectors: Vectors, wanted: str, nprobe: int = NPROBE) -> Any:
    """A faiss index of `vectors`, shape `(n, d)` with n > 0, which may be a file's."""
    with needs_extra("dense search"):
        import faiss
    n, d = vectors.shape
    index: Any = faiss.IndexFlatIP(d)
    if choose_kind(wanted, n) == "ivf":
        quantizer, lists = index, max(1, min(int(4 * n**0.5), n // 39 or 1))
        numbers, inner = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        index = faiss.IndexIVFScalarQuantizer(quantizer, d, lists, numbers, inner)
        index.own_fields = True
        quantizer.this.disown()
        sample = _sample(vectors, _TRAINED_PER_LIST * lists)
        index.train(sample)
    for start in range(0, n, _ADDED_AT_ONCE):
        index.add(np.ascontiguousarray(vectors[start : start + _ADDED_AT_ONCE]))
    return _reading(index, nprobe)


def _sample(vectors: Vectors, n: int) -> Vectors:
    """At most `n` of the vectors, always the same."""
    if len(vectors) <= n:
        return np.ascontiguousarray(vectors)
    chosen = np.random.default_rng(0).choice(len(vectors), size=n, replace=False)
    return np.ascontiguousarray(vectors[np.sort(chosen)])


def _reading(index: Any, nprobe: int) -> Any:
    """`index`, of which a search reads so many lists."""
    if hasattr(index, "nprobe"):
        index.nprobe = min(nprobe, index.nlist)
        index.make_direct_map()  # for reconstruct
    return index


def nearest(index: Any, queries: Vectors, k: int) -> list[Hits]:
    """The `k` best per query, best first, ties in the order of the vectors; `k` <= n."""
    if queries.shape[1] != index.d:
        raise LMSetupError(
            f"the embedder answers with vectors of {queries.shape[1]} numbers, and those of the "
            f"index have {index.d}; has the server another model now?"
        )

    def find(rows: Sequence[int], depth: int) -> list[Found]:
        found: list[Found] = []
        for start in range(0, len(rows), _QUERIES_AT_ONCE):
            part = np.ascontiguousarray(queries[list(rows[start : start + _QUERIES_AT_ONCE])])
            scores, places = index.search(part, depth)
            # An index by lists that has no more says -1.
            found += [(p[p >= 0], s[p >= 0]) for p, s in zip(places, scores, strict=True)]
        return found

    return whole_ties(find, len(queries), k, index.ntotal)


def save(index: Any, path: Path) -> None:
    """Write `index` to `path`.

    Raises:
        OSError: it cannot be written.
    """
    import faiss

    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:  # what faiss makes of any error of the file
        raise OSError(f"{path.name}: {error}") from error


def load(path: Path, nprobe: int = NPROBE) -> Any:
    """The index at `path`, its vectors memory-mapped."""
    with needs_extra("dense search"):
        import faiss
    return _reading(faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC), nprobe)
