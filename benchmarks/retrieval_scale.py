"""bm25 over a million generated passages: made, stored, loaded and asked, in two processes.

    python -m benchmarks.retrieval_scale [--passages 1000000] [--queries 300]

Prints seconds, peak memory of each process, bytes on disk, p50 and p95 of a single search, and the
ratio of loading to making.
"""

from __future__ import annotations

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.retrieval_corpus import generated, generated_queries
from ragbench.retrievers import make_retriever
from ragbench.retrievers.store import IndexStore


def peak_mb() -> float:
    """The most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def work(n: int, queries: int, folder: Path) -> dict[str, float]:
    """Make or load the index, then search; what each took."""
    corpus = generated(n)
    start = time.perf_counter()
    corpus.digest  # noqa: B018 (part of opening an index)
    digest_s = time.perf_counter() - start
    before = peak_mb()
    start = time.perf_counter()
    retriever = make_retriever("bm25", corpus).build(IndexStore(folder))
    ready_s = time.perf_counter() - start
    asked = generated_queries(corpus, queries + 1)
    retriever.search(asked[0], k=10)
    times = []
    for query in asked[1:]:
        start = time.perf_counter()
        retriever.search(query, k=10)
        times.append(1000 * (time.perf_counter() - start))
    start = time.perf_counter()
    retriever.search_many(asked[1:], k=10)
    many_ms = 1000 * (time.perf_counter() - start) / queries
    p50, p95 = np.percentile(times, [50, 95])
    facts = {"digest_s": digest_s, "ready_s": ready_s, "p50_ms": p50, "p95_ms": p95}
    return {**facts, "many_ms": many_ms, "corpus_mb": before, "peak_mb": peak_mb()}


def main() -> None:
    """Run the work twice in processes of their own: the first makes the index, the second loads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        print(json.dumps(work(args.passages, args.queries, args.folder)))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for label in ("made", "loaded"):
            command = [sys.executable, "-m", "benchmarks.retrieval_scale", *sys.argv[1:]]
            command += ["--folder", folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append(json.loads(done.stdout))
            shown = "  ".join(f"{name} {value:,.2f}" for name, value in rows[-1].items())
            print(f"{label:7s} {shown}", flush=True)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*"))
        ratio = rows[0]["ready_s"] / rows[1]["ready_s"]
        print(f"on disk {size / 1e6:,.0f} MB; making takes {ratio:.0f} times as long as loading")


if __name__ == "__main__":
    main()
