"""What the searches brought, against the gold passages.

Two views of one question. The *union* is every passage found, in the order first seen, each once:
what the program had to read. *Per search* (`search_*`) is the mean over its searches, repeats
answered from memory left out: what one search is worth. Relevance is binary, by pid. A question
whose gold passages are not all known has no score; one that was never searched scores 0 in the
union. Measures are those of trec_eval: recall, reciprocal rank, nDCG with 1/log2(rank + 1).
"""

import math
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from itertools import chain

from ragbench.metrics.answer import official_f1
from ragbench.metrics.base import CUTOFF_METRICS, Metric, add, add_amount, once
from ragbench.metrics.text import approx_tokens
from ragbench.record import Record

#: Of a ranking, the gold passages, and where the ranking is cut; None for nowhere.
Measure = Callable[[Sequence[str], Collection[str], int | None], float]


def recall(ranking: Sequence[str], gold: Collection[str], k: int | None = None) -> float:
    """The share of gold passages in the ranking, cut at `k`."""
    return len(set(ranking[:k]) & set(gold)) / len(gold)


def all_recall(ranking: Sequence[str], gold: Collection[str], k: int | None = None) -> float:
    """1.0 if every gold passage is in the ranking, cut at `k`, else 0.0."""
    return float(set(gold) <= set(ranking[:k]))


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str], k: int | None = None) -> float:
    """One over the rank of the first gold passage in the ranking, cut at `k`; 0 without any."""
    return next((1 / rank for rank, pid in enumerate(ranking[:k], start=1) if pid in gold), 0.0)


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int | None = None) -> float:
    """Discounted gain over that of a ranking with all gold passages first, cut at `k`."""
    gain = sum(_discount(r) for r, p in enumerate(ranking[:k], start=1) if p in gold)
    best = len(gold) if k is None else min(k, len(gold))
    return gain / sum(map(_discount, range(1, best + 1)))


@lru_cache(maxsize=4096)
def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


@once
def rankings(record: Record) -> list[list[str]]:
    """The pids of each search, best first, without repeats answered from memory."""
    rankings = []
    for search in record.searches:
        if not search.cached:
            rankings.append([pid for pid, _ in search.hits])
    return rankings


@once
def union(record: Record) -> list[str]:
    """Every pid found, once, in the order first seen."""
    return list(dict.fromkeys(chain.from_iterable(rankings(record))))


@once
def shown(record: Record) -> list[str]:
    """Every pid whose text the model was shown; what was found, where that is not known."""
    if record.shown is None:
        return union(record)
    return record.shown


def evidence(record: Record) -> float | None:
    """1.0 if the model was shown every gold passage, else 0.0; None where none are known."""
    if not record.gold_pids:
        return None
    if record.failed:
        return 0.0
    return all_recall(shown(record), record.gold_pids)


def retrieval_efficiency(record: Record) -> float | None:
    """F1 of the answer for each retrieval; None where nothing was searched, or nothing is right."""
    if record.failed:
        return 0.0
    f1 = official_f1(record)
    searches = len(rankings(record))
    if f1 is None or not searches:
        return None
    return f1 / searches


def retrieved_tokens(record: Record) -> float:
    """Tokens of passage text shown by searches and reads; what is shown again counts again.

    A-RAG's count: text alone, without ids and titles. A step that shows part of a passage lists the
    new texts under `retrieved` in its notes, and such steps then count instead of whole hits.
    Tokens are estimated (`approx_tokens`).
    """
    contents = [step.notes["retrieved"] for step in record.steps if "retrieved" in step.notes]
    if contents:
        return float(sum(map(approx_tokens, map("\n".join, contents))))
    sizes = {p.pid: approx_tokens(p.text) for p in record.passages}
    hits = chain.from_iterable(search.hits for search in record.searches)
    return float(sum(sizes.get(pid, 0) for pid, _ in hits))


def hops_to_gold(record: Record) -> float | None:
    """The number of the search (from 1) by which all gold passages had been found, or None."""
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
        if not rankings(record) and record.shown:
            return None  # code read the passages without a search
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
_register("all_recall", all_recall, "whether all gold passages are there")
_register("mrr", reciprocal_rank, "reciprocal rank of the first gold passage")
_register("ndcg", ndcg, "normalised discounted gain of gold passages")
_register("search_recall", recall, "share of gold passages")

add(Metric("evidence", evidence, "whether the model was shown all gold passages"))
add(Metric("retrieval_efficiency", retrieval_efficiency, "F1 for each search"))
add_amount(
    "hops_to_gold",
    hops_to_gold,
    "searches until all gold passages were found; none where they never were",
)
add_amount(
    "retrieved_tokens",
    retrieved_tokens,
    "tokens of text shown by searches and reads, estimated",
    source="A-RAG",
)
