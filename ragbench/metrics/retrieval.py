"""Retrieved passages compared with the gold passages.

There are two views of a question. The *union* is every retrieved passage, in the order of first
retrieval, without duplicates: the passages that the program had to read. *Per search* (`search_*`)
is the mean over the searches, without repeats answered from memory. Relevance is binary, by passage
id. A question has no score unless all of its gold passages are known. Without a search, the union
scores 0. The measures are those of trec_eval: recall, reciprocal rank, nDCG with 1/log2(rank + 1).
"""

import math
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from itertools import chain

from ragbench.metrics.answer import official_f1
from ragbench.metrics.base import CUTOFF_METRICS, Metric, add, add_amount, once
from ragbench.metrics.text import approx_tokens
from ragbench.record import Record

#: Function of a ranking, the gold passages and a cut-off, or None.
Measure = Callable[[Sequence[str], Collection[str], int | None], float]


def recall(ranking: Sequence[str], gold: Collection[str], k: int | None = None) -> float:
    """Return the share of gold passages in the ranking.

    Args:
        ranking: Passage ids, best first.
        gold: Ids of the gold passages, at least one.
        k: Cut-off. None: the whole ranking.
    """
    return len(set(ranking[:k]) & set(gold)) / len(gold)


def all_recall(ranking: Sequence[str], gold: Collection[str], k: int | None = None) -> float:
    """Return 1.0 if every gold passage is in the ranking, else 0.0.

    Args:
        ranking: Passage ids, best first.
        gold: Ids of the gold passages.
        k: Cut-off. None: the whole ranking.
    """
    return float(set(gold) <= set(ranking[:k]))


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str], k: int | None = None) -> float:
    """Return one over the rank of the first gold passage. 0 if there is none.

    Args:
        ranking: Passage ids, best first.
        gold: Ids of the gold passages.
        k: Cut-off. None: the whole ranking.
    """
    return next((1 / rank for rank, pid in enumerate(ranking[:k], start=1) if pid in gold), 0.0)


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int | None = None) -> float:
    """Return the discounted gain, divided by that of a ranking with all gold passages first.

    Args:
        ranking: Passage ids, best first.
        gold: Ids of the gold passages, at least one.
        k: Cut-off. None: the whole ranking.
    """
    gain = sum(_discount(r) for r, p in enumerate(ranking[:k], start=1) if p in gold)
    best = len(gold) if k is None else min(k, len(gold))
    return gain / sum(map(_discount, range(1, best + 1)))


@lru_cache(maxsize=4096)
def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


@once
def rankings(record: Record) -> list[list[str]]:
    """Return the passage ids of each search, best first, without repeats from memory."""
    rankings = []
    for search in record.searches:
        if not search.cached:
            rankings.append([pid for pid, _ in search.hits])
    return rankings


@once
def union(record: Record) -> list[str]:
    """Return the ids of all retrieved passages, in the order of first retrieval."""
    return list(dict.fromkeys(chain.from_iterable(rankings(record))))


@once
def context_pids(record: Record) -> list[str]:
    """Return the ids of the passages in the model's context, or if unknown the retrieved ones."""
    if record.in_context is None:
        return union(record)
    return record.in_context


def gold_in_context(record: Record) -> float | None:
    """Return 1.0 if the model saw every gold passage, else 0.0. None if none are known."""
    if not record.gold_pids:
        return None
    if record.failed:
        return 0.0
    return all_recall(context_pids(record), record.gold_pids)


def retrieval_efficiency(record: Record) -> float | None:
    """Return F1 of the answer per search. None without a search, or if unanswerable."""
    if record.failed:
        return 0.0
    f1 = official_f1(record)
    searches = len(rankings(record))
    if f1 is None or not searches:
        return None
    return f1 / searches


def retrieved_tokens(record: Record) -> float:
    """Estimate the tokens of passage text from searches and reads, repetitions included.

    This is A-RAG's count: text only, without ids and titles. A step that shows part of a passage
    lists the new texts under `retrieved` in its notes. If there are such steps, they count instead
    of whole hits. `approx_tokens` estimates the tokens.
    """
    contents = [step.notes["retrieved"] for step in record.steps if "retrieved" in step.notes]
    if contents:
        return float(sum(map(approx_tokens, map("\n".join, contents))))
    sizes = {p.pid: approx_tokens(p.text) for p in record.passages}
    hits = chain.from_iterable(search.hits for search in record.searches)
    return float(sum(sizes.get(pid, 0) for pid, _ in hits))


def hops_to_gold(record: Record) -> float | None:
    """Return the number of the search (from 1) that completed the gold passages, or None."""
    missing = set(record.gold_pids)
    for number, ranking in enumerate(rankings(record) if missing else (), start=1):
        missing -= set(ranking)
        if not missing:
            return float(number)
    return None


def _metric(name: str, measure: Measure, description: str, k: int | None = None) -> Metric:
    by_search = name.startswith("search_")

    def score(record: Record) -> float | None:
        ranked = rankings(record) if by_search else [union(record)]
        if not record.gold_pids:
            return None
        if record.failed:
            return 0.0
        if not rankings(record) and record.in_context:
            return None  # Code read the passages without a search.
        scores = [measure(ranking, record.gold_pids, k) for ranking in ranked]
        if scores:
            return sum(scores) / len(scores)
        return None

    scope = f"first {k} passages" if k else "passages found"
    text = f"{description}, {scope} of {'each search' if by_search else 'all searches'}"
    return Metric(f"{name}@{k}" if k else name, score, text)


def _register(name: str, measure: Measure, description: str) -> None:
    add(_metric(name, measure, description))
    CUTOFF_METRICS.register(name)(partial(_metric, name, measure, description))


_register("recall", recall, "share of gold passages")
_register("all_recall", all_recall, "1 if all gold passages are there, else 0")
_register("mrr", reciprocal_rank, "reciprocal rank of the first gold passage")
_register("ndcg", ndcg, "normalized discounted gain of gold passages")
_register("search_recall", recall, "share of gold passages")

add(
    Metric(
        "gold_in_context",
        gold_in_context,
        "1 if all gold passages were in the model's context, else 0",
    )
)
add(Metric("retrieval_efficiency", retrieval_efficiency, "F1 for each search"))
add_amount(
    "hops_to_gold",
    hops_to_gold,
    "searches until all gold passages were found; None if they never were",
)
add_amount(
    "retrieved_tokens",
    retrieved_tokens,
    "estimated tokens of text from searches and reads",
    source="A-RAG",
)
