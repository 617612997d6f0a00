"""Retrievers measured by themselves: each question of a data set is one search, without any LM."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from ragbench.data import Dataset
from ragbench.errors import DataError
from ragbench.experiments.store import check_output, write_whole
from ragbench.metrics import all_recall, ndcg, recall, reciprocal_rank
from ragbench.retrievers import IndexStore, Progress, make_retriever
from ragbench.retrievers.embedders import make_embedder

#: Column -> measure of a ranking cut at k.
MEASURES: Mapping[str, Callable[[Sequence[str], Sequence[str], int], float]] = {
    "recall": lambda ranking, gold, k: recall(ranking[:k], gold),
    "all_recall": lambda ranking, gold, k: all_recall(ranking[:k], gold),
    "mrr": lambda ranking, gold, k: reciprocal_rank(ranking[:k], gold),
    "ndcg": lambda ranking, gold, k: ndcg(ranking, gold, k=k),
}


@dataclass(frozen=True)
class Measured:
    """One retriever over the questions: what it found, how long that took, what its index is.

    `rankings` maps a question's id to pids, best first; `latency_s` holds the time of each search
    in the order of the questions. `ready_s` is the time until it could search, in this process.
    """

    spec: str
    rankings: Mapping[str, Sequence[str]]
    latency_s: Sequence[float]
    ready_s: float
    card: Mapping[str, Any]

    def scores(self, gold: Mapping[str, Sequence[str]], ks: Sequence[int]) -> dict[str, float]:
        """Means over the questions of `gold` that were searched, keyed `measure@k`, in [0, 1]."""
        searched = {qid: pids for qid, pids in gold.items() if qid in self.rankings}
        return {
            f"{name}@{k}": sum(
                measure(self.rankings[qid], pids, k) for qid, pids in searched.items()
            )
            / len(searched)
            for name, measure in MEASURES.items()
            for k in ks
        }

    def percentile_ms(self, q: float) -> float:
        """The `q`-th percentile of the search time, in milliseconds."""
        return 1000 * float(np.percentile(self.latency_s, q))

    @property
    def index_s(self) -> float:
        """Seconds that making the index took, now or when it was stored."""
        stored = [part["build_s"] for part in _indexes(self.card) if "build_s" in part]
        return float(sum(stored)) if stored else self.ready_s

    @property
    def index_bytes(self) -> int | None:
        """Bytes of the stored index, None where none is stored."""
        sizes = [part["bytes"] for part in _indexes(self.card) if "bytes" in part]
        return sum(sizes) if sizes else None


def gold_of(examples: Sequence[dspy.Example]) -> dict[str, list[str]]:
    """Gold pids by question id, of the questions whose gold passages are known.

    Raises:
        DataError: they are known of none.
    """
    gold = {example.qid: list(example.gold_pids) for example in examples if example.gold_pids}
    if not gold:
        raise DataError("no question of this data set and view has known gold passages")
    return gold


def measure(
    spec: str,
    dataset: Dataset,
    examples: Sequence[dspy.Example],
    *,
    k: int,
    settings: Mapping[str, Any] | None = None,
    store: IndexStore | None = None,
    progress: Progress | None = None,
) -> Measured:
    """What the retriever `spec` finds for each of `examples`, `k` deep.

    Raises:
        RagbenchError: an unknown retriever, a wrong setting, a model that cannot be had.
    """
    make_embedder.cache_clear()  # no query embedded by the one before is answered from memory
    start = time.perf_counter()
    made = make_retriever(spec, dataset.corpus, setting=dataset.setting, **(settings or {}))
    made.build(store, progress)
    ready_s = time.perf_counter() - start
    for example in examples[:1]:  # not timed: the first search loads code and maps memory
        made.for_question(example.question).search("warm up", k=1)
    rankings: dict[str, list[str]] = {}
    times: list[float] = []
    for example in examples:
        retriever = made.for_question(example.question)
        began = time.perf_counter()
        hits = retriever.search(example.question, k=k)
        times.append(time.perf_counter() - began)
        rankings[example.qid] = [hit.pid for hit in hits]
    return Measured(spec, rankings, times, ready_s, made.card())


def save(
    path: Path,
    measured: Sequence[Measured],
    gold: Mapping[str, Sequence[str]],
    ks: Sequence[int],
    about: Mapping[str, Any],
) -> None:
    """Write scores, rankings and latencies to `path` as JSON, whole or not at all."""
    rows = [
        {
            "retriever": row.spec,
            "scores": row.scores(gold, ks),
            "p50_ms": row.percentile_ms(50),
            "p95_ms": row.percentile_ms(95),
            "index_s": row.index_s,
            "index_bytes": row.index_bytes,
            "card": row.card,
            "found": row.rankings,
            "latency_s": row.latency_s,
        }
        for row in measured
    ]
    check_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**about, "gold": gold, "retrievers": rows}, indent=1) + "\n"
    write_whole(path, text.encode())


def _indexes(card: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The index entries of a card and of its parts."""
    parts = [entry for part in card.get("parts", ()) for entry in _indexes(part)]
    return [card.get("index", {}), *parts]
