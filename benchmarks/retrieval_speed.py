"""Speed of the retrievers as ratios: against rank_bm25, plain bm25s, a loop, a rebuild, plain ONNX.

    python -m benchmarks.retrieval_speed [--sizes 6000,100000] [--sentences 200]

Both sides of a ratio are timed in turns in this process and the best of the turns counts, so that
other work on the machine falls on both. Single searches are timed by the CPU they take, what uses
threads or the disk by the clock.
"""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from rank_bm25 import BM25Okapi

from benchmarks.retrieval_corpus import generated, generated_queries
from ragbench.lms.local import is_installed
from ragbench.retrievers import Corpus, IndexStore, Retriever, make_retriever, words_of
from ragbench.retrievers.embedders import LocalEmbedder, make_embedder

K = 10
Search = Callable[[], object]
Clock = Callable[[], float]


def best_s(function: Search, turns: int, clock: Clock = time.perf_counter) -> float:
    """Seconds of the fastest of `turns` calls."""
    times = []
    for _ in range(turns):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def duel(
    name: str,
    unit: str,
    n: int,
    ours: Search,
    theirs: Search,
    turns: int = 5,
    clock: Clock = time.perf_counter,
) -> None:
    """Print how many times as fast `ours` is as `theirs`; both do `n` units of work."""
    ours(), theirs()
    a = b = float("inf")
    for _ in range(turns):
        a, b = min(a, best_s(ours, 1, clock)), min(b, best_s(theirs, 1, clock))
    print(f"{name:44s} {n / a:12.1f} {unit} against {n / b:12.1f}: ratio {b / a:8.2f}", flush=True)


def plain_bm25s(corpus: Corpus) -> Callable[[str], object]:
    """Search as a script would write it with bm25s, passages included."""
    texts = [f"{p.title} {p.text}" for p in corpus]
    index = bm25s.BM25(k1=0.9, b=0.4)
    index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)

    def search(query: str) -> object:
        tokens = bm25s.tokenize([query], stopwords="en", show_progress=False)
        ids, scores = index.retrieve(tokens, k=K, show_progress=False)
        return [(corpus.passages[i], s) for i, s in zip(ids[0], scores[0], strict=True)]

    return search


def each(search: Callable[[str], object], queries: Sequence[str]) -> Search:
    """All queries, one after the other."""
    return lambda: [search(query) for query in queries]


def against_other_engines(n: int) -> None:
    """Queries per second of bm25 against rank_bm25 and plain bm25s, and search_many."""
    corpus = generated(n)
    few, many = generated_queries(corpus, 3), generated_queries(corpus, 300)
    ours: Retriever = make_retriever("bm25", corpus).build()
    slow = BM25Okapi([words_of(f"{one.title} {one.text}") for one in corpus], k1=0.9, b=0.4)

    def search(query: str) -> object:
        return ours.search(query, k=K)

    cpu = time.process_time
    reference = best_s(each(lambda q: slow.get_scores(words_of(q)), few), 3, cpu) / len(few)
    fast = best_s(each(search, many), 5, cpu) / len(many)
    line = f"{1 / fast:12.1f} queries/s against {1 / reference:12.1f}"
    print(f"{f'bm25 / rank_bm25, {n:,} passages':44s} {line}: ratio {reference / fast:8.2f}")
    plain = each(plain_bm25s(corpus), many)
    label, single = f"{n:,} passages", each(search, many)
    duel(f"bm25 / plain bm25s, {label}", "queries/s", len(many), single, plain, 9, cpu)
    together = lambda: ours.search_many(many, k=K)  # noqa: E731
    duel(f"search_many / loop, {label}", "queries/s", len(many), together, each(search, many))


def load_against_build(n: int) -> None:
    """Opening a stored bm25 index against making it; both end with a first search."""
    corpus = generated(n)
    query = generated_queries(corpus, 1)[0]
    corpus.digest  # noqa: B018 (made once per corpus, whether built or loaded)
    with tempfile.TemporaryDirectory() as folder:
        store = IndexStore(Path(folder))

        def load() -> object:
            return make_retriever("bm25", corpus).build(store).search(query, k=K)

        def build() -> object:
            return make_retriever("bm25", corpus).build().search(query, k=K)

        load()
        duel(f"load / build, {n:,} passages", "indexes/s", 1, load, build, turns=2)


def direct_onnx(embedder: LocalEmbedder, texts: Sequence[str], *, sort: bool, batch: int) -> Any:
    """The same session and tokeniser called as a script would: pad, run, pool, normalise."""
    encodings = embedder._tokenizer.encode_batch(list(texts))
    if sort:
        encodings = sorted(encodings, key=lambda encoding: len(encoding.ids))
    found = []
    for start in range(0, len(encodings), batch):
        part = encodings[start : start + batch]
        length = max(len(encoding.ids) for encoding in part)
        ids = np.array([e.ids + [0] * (length - len(e.ids)) for e in part])
        mask = np.array([[1] * len(e.ids) + [0] * (length - len(e.ids)) for e in part])
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = embedder._session.run(None, feed)[0]
        pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        found.append(pooled / np.linalg.norm(pooled, axis=1, keepdims=True))
    return np.concatenate(found)


def embedding(n: int) -> None:
    """Sentences per second of the local embedder against the same model called directly."""
    if not is_installed("minilm-int8"):
        print("embedding: skipped, run `ragbench fetch minilm-int8` first")
        return
    embedder = make_embedder("local")
    assert isinstance(embedder, LocalEmbedder)
    rng = np.random.default_rng(0)
    words = generated(n)
    texts = [" ".join(p.text.split()[: rng.integers(5, 40)]) for p in words]
    for label, settings in (
        ("sorted batches of 8", {"sort": True, "batch": 8}),
        ("unsorted batches of 32", {"sort": False, "batch": 32}),
    ):
        ours = lambda: embedder.embed(texts)  # noqa: E731
        theirs = lambda s=settings: direct_onnx(embedder, texts, **s)  # noqa: E731
        duel(f"embedding / plain ONNX, {label}", "texts/s", len(texts), ours, theirs, turns=8)


def main() -> None:
    """Print one line per ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="6000,100000")
    parser.add_argument("--sentences", type=int, default=200)
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    for size in sizes:
        against_other_engines(size)
    load_against_build(sizes[-1])
    embedding(args.sentences)


if __name__ == "__main__":
    main()
