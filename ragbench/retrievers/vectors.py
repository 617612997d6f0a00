"""faiss indexes: the kind is chosen by the number of vectors; ties are in corpus order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import needs_extra
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.topk import Hits, ordered

#: From 20 queries at once faiss multiplies by BLAS, whose last digits differ from a single query's.
_QUERIES_AT_ONCE = 16
#: The most vectors that `auto` searches exactly, as 16-bit numbers, and by lists of these.
_EXACT_TO = 100_000
_FP16_TO = 200_000
_IVF_TO = 2_000_000
#: Vectors added at once, so that those of a file are not all read into memory.
_ADDED_AT_ONCE = 65_536
#: From this many lists on their centres are found in two steps, for a fraction of the work.
_TWO_LEVELS_FROM = 1000
#: Vectors per list that the lists are made from; faiss needs 39.
_TRAINED_PER_LIST = 64
#: How the numbers of a vector are kept, by kind of index.
_NUMBERS = {"fp16": "QT_fp16", "sq8": "QT_8bit"}
_LINKS = 32
_EF_CONSTRUCTION = 200


def choose_kind(wanted: str, n: int) -> str:
    """The kind of index for `n` vectors: `wanted`, or by size if that is `auto`."""
    if wanted != "auto":
        return wanted
    if n <= _EXACT_TO:
        return "exact"
    if n <= _FP16_TO:
        return "fp16"
    return "ivf" if n <= _IVF_TO else "ivf_sq8"


def make_index(vectors: Vectors, wanted: str) -> Any:
    """A faiss index of `vectors`, shape `(n, d)` with n > 0, which may be a file's."""
    with needs_extra("dense search"):
        import faiss
    n, d = vectors.shape
    kind = choose_kind(wanted, n)
    inner = faiss.METRIC_INNER_PRODUCT
    if kind == "exact":
        index: Any = faiss.IndexFlatIP(d)
    elif kind in _NUMBERS:
        index = faiss.IndexScalarQuantizer(d, getattr(faiss.ScalarQuantizer, _NUMBERS[kind]), inner)
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(d, _LINKS, inner)
        index.hnsw.efConstruction = _EF_CONSTRUCTION
    else:
        lists = max(1, min(int(4 * n**0.5), n // 39 or 1))
        quantizer = faiss.IndexFlatIP(d)
        numbers = getattr(faiss.ScalarQuantizer, _NUMBERS["sq8" if kind == "ivf_sq8" else "fp16"])
        index = faiss.IndexIVFScalarQuantizer(quantizer, d, lists, numbers, inner)
        index.own_fields = True
        quantizer.this.disown()
    if not index.is_trained:
        _train(index, _sample(vectors, _TRAINED_PER_LIST * getattr(index, "nlist", 1000)))
    for start in range(0, n, _ADDED_AT_ONCE):
        index.add(np.ascontiguousarray(vectors[start : start + _ADDED_AT_ONCE]))
    return index


def _train(index: Any, sample: Vectors) -> None:
    lists = getattr(index, "nlist", 0)
    if lists >= _TWO_LEVELS_FROM:
        from faiss.contrib.clustering import two_level_clustering

        centroids, _ = two_level_clustering(sample, int(lists**0.5), lists, spherical=True)
        index.quantizer.add(centroids)
    index.train(sample)


def _sample(vectors: Vectors, n: int) -> Vectors:
    """At most `n` of the vectors, always the same."""
    if len(vectors) <= n:
        return np.ascontiguousarray(vectors)
    chosen = np.random.default_rng(0).choice(len(vectors), size=n, replace=False)
    return np.ascontiguousarray(vectors[np.sort(chosen)])


def tune(index: Any, *, nprobe: int, ef_search: int) -> None:
    """Set what is read per search; without effect on an exhaustive index."""
    if hasattr(index, "nprobe"):
        index.nprobe = min(nprobe, index.nlist)
        index.make_direct_map()  # for reconstruct
    elif hasattr(index, "hnsw"):
        index.hnsw.efSearch = ef_search


def nearest(index: Any, queries: Vectors, k: int) -> list[Hits]:
    """The `k` best per query, best first, ties in the order of the vectors; `k` <= n."""
    hits: list[Hits] = []
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        part = np.ascontiguousarray(queries[start : start + _QUERIES_AT_ONCE])
        depth = min(index.ntotal, k + 8)
        scores, ids = index.search(part, depth)
        hits += [_ordered(index, part[i], scores[i], ids[i], k) for i in range(len(part))]
    return hits


def _ordered(index: Any, query: Vectors, scores: Vectors, ids: Any, k: int) -> Hits:
    # faiss keeps any of the vectors that tie at the end: look deeper until the tie is whole.
    while len(ids) < index.ntotal and ids[-1] >= 0 and scores[-1] == scores[k - 1]:
        depth = min(index.ntotal, 8 * len(ids))
        deeper = index.search(query[None], depth)
        if (deeper[1][0] >= 0).sum() <= (ids >= 0).sum():  # an approximate index has no more
            break
        scores, ids = deeper[0][0], deeper[1][0]
    real = ids >= 0
    return ordered(ids[real], scores[real], k)


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


def load(path: Path) -> Any:
    """The index at `path`, its vectors memory-mapped."""
    with needs_extra("dense search"):
        import faiss
    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
