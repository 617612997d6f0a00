"""Retrievers measured by themselves: each question of a data set is one search, without any LM."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dspy
import numpy as np

from ragbench.data import Dataset
from ragbench.errors import DataError
from ragbench.metrics import all_recall, ndcg, recall, reciprocal_rank
from ragbench.retrievers import IndexStore, Progress, make_retriever
from ragbench.retrievers.embedders import make_embedder

#: Column -> measure of a ranking cut at k.
_MEASURES: Mapping[str, Callable[[Sequence[str], Sequence[str], int], float]] = {
    "recall": lambda ranking, gold, k: recall(ranking[:k], gold),
    "all_recall": lambda ranking, gold, k: all_recall(ranking[:k], gold),
    "mrr": lambda ranking, gold, k: reciprocal_rank(ranking[:k], gold),
    "ndcg": lambda ranking, gold, k: ndcg(ranking, gold, k=k),
}


def gold_of(examples: Sequence[dspy.Example]) -> dict[str, list[str]]:
    """Gold pids by question id, of the questions whose gold passages are known."""
    gold = {example.qid: list(example.gold_pids) for example in examples if example.gold_pids}
    if not gold:
        raise DataError("no question of this data set and view has known gold passages")
    return gold


def measure(
    spec: str,
    dataset: Dataset,
    questions: Mapping[str, str],
    gold: Mapping[str, Sequence[str]],
    *,
    ks: Sequence[int],
    settings: Mapping[str, Any],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """How well the retriever `spec` finds the `gold` pids of `questions`, both by id; JSON-ready.

    `scores` are means in [0, 1], keyed `measure@k`; `found` are pids by question, best first;
    `index_s` is the time that the index took, now or when it was stored, or else the time until it
    could search; `index_bytes` is None where nothing is stored.
    """
    make_embedder.cache_clear()  # no query embedded by the one before is answered from memory
    start = time.perf_counter()
    made = make_retriever(spec, dataset.corpus, setting=dataset.setting, **settings)
    made.build(IndexStore(), progress)
    ready_s = time.perf_counter() - start
    found: dict[str, list[str]] = {}
    times: list[float] = []
    for number, (qid, question) in enumerate(questions.items()):
        retriever = made.for_question(question, qid)
        if not number:  # not timed: the first search loads code and maps memory
            retriever.search("warm up", k=1)
        began = time.perf_counter()
        hits = retriever.search(question, k=max(ks))
        times.append(time.perf_counter() - began)
        found[qid] = [hit.pid for hit in hits]
    card = made.card()
    indexes = _indexes(card)
    seconds = [index["build_s"] for index in indexes if "build_s" in index]
    sizes = [index["bytes"] for index in indexes if "bytes" in index]
    return {
        "retriever": spec,
        "scores": {
            f"{name}@{k}": float(np.mean([score(found[qid], gold[qid], k) for qid in found]))
            for name, score in _MEASURES.items()
            for k in ks
        },
        "p50_ms": 1000 * float(np.percentile(times, 50)),
        "p95_ms": 1000 * float(np.percentile(times, 95)),
        "index_s": float(sum(seconds)) if seconds else ready_s,
        "index_bytes": sum(sizes) if sizes else None,
        "card": card,
        "found": found,
        "latency_s": times,
    }


def _indexes(card: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The index entries of a card and of its parts."""
    parts = [entry for part in card.get("parts", ()) for entry in _indexes(part)]
    return [card.get("index", {}), *parts]
