"""`bm25` against bm25s and a plain inverted index, over the same words of generated passages.

    python -m benchmarks.bm25_race [--passages 200000] [--queries 300]

Each engine is a process that uses one core. Printed are the CPU seconds of the index, the most
memory of the process with its index in it, the memory that it holds by itself when it searches,
milliseconds of CPU of a single search, and whether the ten best scores equal those of `bm25`.
bm25s uses numba if it is installed. The plain index is a dictionary of arrays.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.retrieval_corpus import GeneratedPassages, generated_queries
from benchmarks.retrieval_scale import ROOT, memory_mb
from ragbench.retrievers import Corpus, IndexStore, make_retriever, words_of

K = 10
K1, B = 0.9, 0.4
#: Words of a query -> the best scores.
Search = Callable[[str], list[float]]


def bags(passages: Sequence[Any]) -> Iterator[list[str]]:
    """Words of each passage, title first."""
    for passage in passages:
        yield words_of(passage.title) + words_of(passage.text)


def ours(passages: GeneratedPassages, folder: Path) -> Search:
    """The retriever `bm25`, stored and mapped."""
    retriever = make_retriever("bm25", Corpus(passages)).build(IndexStore(folder))
    return lambda query: [hit.score for hit in retriever.search(query, k=K)]


def bm25s_engine(passages: GeneratedPassages, folder: Path) -> Search:
    """bm25s, stored and mapped."""
    import bm25s

    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index(list(bags(passages)), show_progress=False)
    index.scores["data"] *= K1 + 1  # Lucene leaves the factor out
    index.save(str(folder), show_progress=False)
    index = bm25s.BM25.load(str(folder), mmap=True)
    if index.backend == "numba":
        index.activate_numba_scorer()

    def search(query: str) -> list[float]:
        words = [word for word in words_of(query) if word in index.vocab_dict]
        found = index.retrieve([words], k=K, show_progress=False, n_threads=1)
        return [score for score in found.scores[0].tolist() if score > 0]

    return search


def inverted(passages: GeneratedPassages, folder: Path) -> Search:
    """A dictionary of the passages and weights of each word, all in memory."""
    counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    lengths = []
    for place, bag in enumerate(bags(passages)):
        lengths.append(len(bag))
        for word, count in Counter(bag).items():
            counts[word].append((place, count))
    n = len(lengths)
    norm = K1 * (1 - B + B * np.array(lengths) / np.mean(lengths))
    postings = {}
    for word in list(counts):
        places, times = np.array(counts.pop(word)).T
        idf = np.log1p((n - len(places) + 0.5) / (len(places) + 0.5)) * (K1 + 1)
        weights = idf * times / (times + norm[places])
        postings[word] = places.astype(np.int32), weights.astype(np.float32)

    def search(query: str) -> list[float]:
        scores = np.zeros(n, dtype=np.float32)
        for word in words_of(query):
            if word in postings:
                places, weights = postings[word]
                scores[places] += weights
        best = np.argpartition(scores, n - K)[n - K :]
        return sorted(filter(None, scores[best].tolist()), reverse=True)

    return search


ENGINES = {"bm25": ours, "bm25s": bm25s_engine, "inverted": inverted}


def measure(name: str, n: int, n_queries: int) -> dict[str, Any]:
    """Build the index of an engine and search it."""
    passages = GeneratedPassages(n)
    queries = generated_queries(Corpus(passages), n_queries)
    before = memory_mb(os.getpid())["own"]
    with TemporaryDirectory() as folder:
        start = time.process_time()
        search = ENGINES[name](passages, Path(folder))
        built = time.process_time() - start
        search(queries[0])
        times, scores = [], []
        for query in queries:
            start = time.process_time()
            found = search(query)
            times.append(1000 * (time.process_time() - start))
            scores.append(found)
        held = memory_mb(os.getpid())["own"] - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    p50, p95 = np.percentile(times, [50, 95])
    facts = {"index_cpu_s": built, "peak_mb": peak, "held_mb": held, "p50_ms": p50, "p95_ms": p95}
    return {"facts": facts, "scores": scores}


def main() -> None:
    """Print a line for each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        print(json.dumps(measure(args.engine, args.passages, args.queries)))
        return
    sizes = ["--passages", str(args.passages), "--queries", str(args.queries)]
    expected: Any = None
    for name in ENGINES:
        command = [sys.executable, "-m", "benchmarks.bm25_race", "--engine", name, *sizes]
        printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout
        result = json.loads(printed.splitlines()[-1])
        expected = expected or result["scores"]
        is_equal = all(
            len(a) == len(b) and np.allclose(a, b, rtol=1e-5)
            for a, b in zip(expected, result["scores"], strict=True)
        )
        shown = "  ".join(f"{key} {value:,.2f}" for key, value in result["facts"].items())
        print(f"{name:9s} {shown}  equal {is_equal}  load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
