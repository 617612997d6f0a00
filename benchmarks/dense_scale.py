"""Nearest vectors by list against exact search, over generated clustered vectors.

    python -m benchmarks.dense_scale [--vectors 1000000] [--kinds exact,ivf] [--nprobe 16,32,64]

No text is embedded (a million texts would take hours): vectors of 384 numbers are drawn around
centres, with half of their variance inside of a cluster of 1,000 on average; the variance of number
i is proportional to 1 / i, as few directions hold most of it in embeddings of text. Queries are
drawn in the same way. The vectors are written to a file, indexed from there, stored, and searched
in the memory-mapped index one query at a time. Printed of each kind of index and number of lists
read: recall@10 of exact search, median and 95th percentile of a search in ms, by wall and by CPU;
before it the seconds of the build, its size, and how much of it the process holds by itself.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np

from benchmarks.retrieval_scale import memory_mb
from ragbench.retrievers import dense
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.embedders.base import normalized

D = 384
K = 10
_PART = 50_000


def draw(centres: Vectors, n: int, rng: np.random.Generator) -> Vectors:
    """`n` unit vectors, each around one of the centres."""
    around = centres[rng.integers(len(centres), size=n)]
    return normalized(around + noise(n, rng))


def noise(n: int, rng: np.random.Generator) -> Vectors:
    """`n` vectors, of which the first directions hold most of the variance."""
    scale = np.arange(1, D + 1, dtype=np.float32) ** -0.5
    return rng.standard_normal((n, D), dtype=np.float32) * scale


def write_vectors(path: Path, n: int, queries: int, seed: int) -> tuple[Vectors, Vectors]:
    """The vectors in a file, memory-mapped, and the queries."""
    rng = np.random.default_rng(seed)
    centres = noise(max(1, n // 1000), rng)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, D))
    for start in range(0, n, _PART):
        file[start : start + _PART] = draw(centres, min(_PART, n - start), rng)
    file.flush()
    del file
    return np.load(path, mmap_mode="r"), draw(centres, queries, rng)


def exact(rows: Vectors, queries: Vectors) -> list[set[int]]:
    """The positions of the `K` nearest of each query."""
    scores = np.full((len(queries), 0), -np.inf, dtype=np.float32)
    places = np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(rows), _PART):
        part = queries @ rows[start : start + _PART].T
        best = np.argpartition(-part, K, axis=1)[:, :K]
        scores = np.hstack([scores, np.take_along_axis(part, best, axis=1)])
        places = np.hstack([places, best + start])
    nearest = np.take_along_axis(places, np.argsort(-scores, axis=1)[:, :K], axis=1)
    return [set(row) for row in nearest.tolist()]


def search_all(index: object, queries: Vectors, gold: list[set[int]]) -> str:
    """Recall and times of single searches."""
    walls, cpus, common = [], [], 0
    dense.nearest(index, queries[:1], K)
    for query, wanted in zip(queries, gold, strict=True):
        wall, cpu = time.perf_counter(), time.thread_time()
        hits = dense.nearest(index, query[None], K)[0]
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.thread_time() - cpu))
        common += len(wanted & {place for place, _ in hits})
    p50, p95 = np.percentile(walls, [50, 95])
    times = f"p50 {p50:.2f} ms  p95 {p95:.2f}  CPU p50 {np.median(cpus):.2f}"
    return f"recall@{K} {common / (K * len(queries)):.3f}  {times}"


def make(kind: str, rows: Vectors, path: Path) -> tuple[object, str]:
    """The index as it is loaded, and what making it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    index = dense.make_index(rows, kind)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    faiss.write_index(index, str(path))
    del index
    before = memory_mb(os.getpid())["own"]
    index = dense._reading(faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC), dense.NPROBE)
    held = memory_mb(os.getpid())["own"] - before
    size = f"{path.stat().st_size / 1e6:,.0f} MB, {held:,.0f} of them in memory"
    load = os.getloadavg()[0]
    return index, f"built in {wall:.0f} s, {cpu:.0f} of CPU; {size}; load {load:.1f}"


def main() -> None:
    """Print a line for each kind of index, and one for each number of lists read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--kinds", default="ivf")
    parser.add_argument("--nprobe", default="16,32,64")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, queries = write_vectors(folder / "rows.npy", args.vectors, args.queries, seed=0)
        gold = exact(rows, queries)
        for kind in args.kinds.split(","):
            index, took = make(kind, rows, folder / "index")
            print(f"{kind}: {took}", flush=True)
            for nprobe in args.nprobe.split(",") if kind == "ivf" else ["1"]:
                if kind == "ivf":
                    setattr(index, "nprobe", int(nprobe))  # noqa: B010
                print(f"  nprobe {nprobe:>3s}  {search_all(index, queries, gold)}", flush=True)


if __name__ == "__main__":
    main()
