"""faiss indexes: the kind is chosen by the number of vectors; ties are in corpus order."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import needs_extra
from ragbench.record import Call, total
from ragbench.retrievers.base import Progress
from ragbench.retrievers.embedders.base import Vectors
from ragbench.retrievers.scores import Hits, ordered

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


#: Passages whose vectors are written at once; a smaller corpus needs no file.
PART = 8192

Embed = Callable[[Sequence[int], Progress | None], tuple[Vectors, list[Call]]]


class Rows:
    """The vectors of `n` passages, which `embed` gives by position. Thread-safe."""

    def __init__(self, n: int, embed: Embed) -> None:
        self._embed = embed
        self._lock = threading.Lock()
        self._vectors: Vectors | None = None
        self._known = np.zeros(n, dtype=bool)
        self._earlier: dict[str, Any] = {}
        #: Work for the index in this process, not for a question.
        self.calls: list[Call] = []

    def get(self, positions: Sequence[int], progress: Progress | None = None) -> Vectors:
        """The vectors at `positions`, shape `(len(positions), d)`."""
        wanted = np.asarray(positions, dtype=np.int64)
        with self._lock:
            missing = np.unique(wanted[~self._known[wanted]])
            if len(missing):
                made, calls = self._embed(missing.tolist(), progress)
                self.calls.extend(calls)
                if self._vectors is None:
                    self._vectors = np.empty((len(self._known), made.shape[1]), dtype=np.float32)
                self._vectors[missing] = made
                self._known[missing] = True
            if self._vectors is None:
                return np.zeros((0, 1), dtype=np.float32)
            return self._vectors[wanted]

    def all(self, folder: Path | None, progress: Progress | None) -> Vectors:
        """All vectors, shape `(n, d)`; in a file in `folder` if there is one and they are many."""
        n = len(self._known)
        if folder is None or n <= PART:
            return self.get(range(n), progress)
        file = _VectorFile(folder)
        with self._lock:
            self._earlier = file.spent
            for start in range(file.rows, n, PART):
                positions = range(start, min(start + PART, n))
                made, calls = self._embed(positions, _from(start, n, progress))
                self.calls.extend(calls)
                file.append(made, self._sums())
            return file.vectors()

    def forget(self) -> None:
        """Free the vectors, once an index holds them."""
        self._vectors, self._known = None, np.zeros_like(self._known)

    def spent(self) -> dict[str, Any]:
        """Tokens, seconds and US dollars of embedding, with those of a build that was stopped."""
        return self._sums() if self.calls or self._earlier else {}

    def _sums(self) -> dict[str, Any]:
        now = total(self.calls)
        usd, before = now.cost_usd, self._earlier.get("embedding_usd", 0.0)
        return {
            "embedding_tokens": now.prompt_tokens + self._earlier.get("embedding_tokens", 0),
            "embedding_s": round(now.latency_s + self._earlier.get("embedding_s", 0.0), 3),
            "embedding_usd": None if usd is None or before is None else usd + before,
        }


class _VectorFile:
    """Vectors in a file that grows; what `state.json` does not count is written again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._path, self._state = folder / "vectors.f32", folder / "state.json"
        self.rows, self._dimensions, self.spent = 0, 0, {}
        try:
            state = json.loads(self._state.read_bytes())
            rows, dimensions, spent = state["rows"], state["dimensions"], dict(state["spent"])
            if self._path.stat().st_size >= 4 * rows * dimensions > 0:
                self.rows, self._dimensions, self.spent = rows, dimensions, spent
        except (OSError, ValueError, KeyError, TypeError):  # none, or damaged: from the beginning
            pass

    def append(self, vectors: Vectors, spent: dict[str, Any]) -> None:
        """Write `vectors` behind the others; `spent` is what all took."""
        with self._path.open("r+b" if self.rows else "wb") as file:
            file.truncate(4 * self.rows * self._dimensions)
            file.seek(0, os.SEEK_END)
            file.write(np.ascontiguousarray(vectors, dtype=np.float32).tobytes())
            file.flush()
            os.fsync(file.fileno())
        self.rows, self._dimensions = self.rows + len(vectors), vectors.shape[1]
        state = {"rows": self.rows, "dimensions": self._dimensions, "spent": spent}
        partial = self._state.with_suffix(".new")
        with partial.open("w") as text:
            json.dump(state, text)
            text.flush()
            os.fsync(text.fileno())
        os.replace(partial, self._state)

    def vectors(self) -> Vectors:
        """All of them, memory-mapped."""
        shape = (self.rows, self._dimensions)
        return np.memmap(self._path, dtype=np.float32, mode="r", shape=shape)


def _from(start: int, n: int, progress: Progress | None) -> Progress | None:
    """`progress` of a part that begins at `start` of `n`."""
    if progress is None:
        return None
    told = progress
    return lambda done, _: told(start + done, n)
