"""A corpus file of generated passages: copied, indexed, loaded and searched, in two processes.

    python -m benchmarks.retrieval_scale [--passages 1000000] [--queries 300]

The passages come from a JSON lines file and stay on disk, as with `--corpus-file`. Prints, for the
process that makes the index and for one that loads it, the seconds until the corpus and the index
are ready, p50 and p95 of a single search, the time per query of `search_many`, and the peak memory;
then the bytes on disk.
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

from benchmarks.retrieval_corpus import GeneratedPassages, generated_queries
from ragbench.data import DataSpec, load_dataset
from ragbench.retrievers import Corpus, IndexStore, make_retriever


def peak_mb() -> float:
    """The most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_files(n: int, queries: int, folder: Path) -> None:
    """The corpus file, and a question per query."""
    passages = GeneratedPassages(n)
    with (folder / "corpus.jsonl").open("w") as file:
        for passage in passages:
            row = {"id": passage.pid, "title": passage.title, "text": passage.text}
            file.write(json.dumps(row) + "\n")
    with (folder / "questions.jsonl").open("w") as file:
        for i, query in enumerate(generated_queries(Corpus(passages), queries)):
            file.write(json.dumps({"question": f"{query} {i}", "answer": "x"}) + "\n")


def work(folder: Path) -> dict[str, float]:
    """Load the corpus and the index, made first where they are not stored, then search."""
    start = time.perf_counter()
    questions, corpus = folder / "questions.jsonl", folder / "corpus.jsonl"
    data = load_dataset(DataSpec("jsonl", data_file=questions, corpus_file=corpus))
    data.corpus.digest  # noqa: B018 (part of opening an index)
    corpus_s = time.perf_counter() - start
    start = time.perf_counter()
    retriever = make_retriever("bm25", data.corpus).build(IndexStore())
    index_s = time.perf_counter() - start
    first, *queries = [example.question for example in data.questions]
    retriever.search(first, k=10)
    times = []
    for query in queries:
        start = time.perf_counter()
        retriever.search(query, k=10)
        times.append(1000 * (time.perf_counter() - start))
    start = time.perf_counter()
    retriever.search_many(queries, k=10)
    many_ms = 1000 * (time.perf_counter() - start) / len(queries)
    p50, p95 = np.percentile(times, [50, 95])
    took = {"corpus_s": corpus_s, "index_s": index_s, "cpu_s": time.process_time()}
    return {**took, "p50_ms": p50, "p95_ms": p95, "many_ms": many_ms, "peak_mb": peak_mb()}


def main() -> None:
    """Do the work twice in processes of their own: the first makes everything, the second loads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        print(json.dumps(work(args.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(args.passages, args.queries + 1, folder)
        environment = {**os.environ, "RAGBENCH_CACHE": str(folder / "cache")}
        command = [sys.executable, "-m", "benchmarks.retrieval_scale", "--folder", name]
        for label in ("made", "loaded"):
            done = subprocess.run(
                command, check=True, capture_output=True, text=True, env=environment
            )
            row = json.loads(done.stdout)
            shown = "  ".join(f"{key} {value:,.2f}" for key, value in row.items())
            print(f"{label:7s} {shown}", flush=True)
        stored = sum(p.stat().st_size for p in (folder / "cache").rglob("*") if p.is_file())
        print(f"on disk {stored / 1e6:,.0f} MB: passages and index")


if __name__ == "__main__":
    main()
