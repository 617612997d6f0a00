"""LanceDB and Qdrant's engine in memory against `bm25` and `dense`, over generated passages.

    python -m benchmarks.other_engines [--passages 10000] [--queries 50]

Vectors of 32 numbers are sums of a vector per word, so that no model takes part. Qdrant's engine in
memory is what its client brings for trials; a server is not measured. Printed of each retriever:
build (with what it takes to embed), one search at the median by the clock and by CPU, and recall@10
of `bm25` for words and of exact search for vectors.
"""

import argparse
import os
import time
from statistics import fmean, median
from typing import Any

from benchmarks.retrieval_corpus import generated, generated_queries
from ragbench.retrievers import Retriever, dense, make_retriever
from tests.retrievers.conftest import WordEmbedder

K = 10
SPECS = {
    "text": ("bm25(k1=1.2,b=0.75)", ("qdrant(mode=text,k1=1.2,b=0.75)",)),
    "vector": ("dense(index=exact)", ("qdrant(mode=vector)",)),
}


def measured(spec: str, corpus: Any, queries: list[str]) -> tuple[str, list[set[str]]]:
    """A line on the retriever `spec`, and what it finds."""
    wall, cpu = time.perf_counter(), time.process_time()
    retriever: Retriever = make_retriever(spec, corpus).build()
    built = f"{time.process_time() - cpu:8.1f} s ({time.perf_counter() - wall:.1f})"
    retriever.search(queries[0], k=K)  # what is imported or compiled at the first search
    found, walls, cpus = [], [], []
    for query in queries:
        wall, cpu = time.perf_counter(), time.process_time()
        found.append({hit.pid for hit in retriever.search(query, k=K)})
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.process_time() - cpu))
    return f"{built}  {median(cpus):8.2f} ms ({median(walls):.2f})", found


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--passages", type=int, default=10_000)
    options.add_argument("--queries", type=int, default=50)
    given = options.parse_args()
    embedder = WordEmbedder()
    setattr(dense, "make_embedder", lambda *_: embedder)  # noqa: B010
    corpus = generated(given.passages)
    queries = generated_queries(corpus, given.queries)
    print(f"{given.passages} passages, {given.queries} queries, load {os.getloadavg()[0]:.0f}")
    print("built in CPU (wall); one search at the median, CPU (wall); recall@10")
    expected = {}
    for mode, (reference, _) in SPECS.items():  # first: threads of the others slow them down
        line, expected[mode] = measured(reference, corpus, queries)
        print(f"{reference:34} {line}")
    for mode, (_, others) in SPECS.items():
        for spec in others:
            line, found = measured(spec, corpus, queries)
            best = expected[mode]
            recall = fmean(len(a & b) / len(b) for a, b in zip(found, best, strict=True))
            print(f"{spec:34} {line}  {recall:.3f}")


if __name__ == "__main__":
    main()
