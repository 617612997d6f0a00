"""What the searches brought, against the gold passages.

Two views of one question. The *union* is every passage found, in the order first seen, each once:
what the program had to read. *Per search* (`search_*`) is the mean over its searches, repeats
answered from memory left out: what one search is worth. Relevance is binary, by pid. A question
whose gold passages are not all known has no score; one that was never searched scores 0 in the
union. Measures are those of trec_eval: recall, reciprocal rank, nDCG with 1/log2(rank + 1).
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial

from ragbench.metrics.base import CUTOFF_METRICS, Metric, add, add_amount, add_metric, once
from ragbench.metrics.text import approx_tokens
from ragbench.record import Record, ShownPassage

Measure = Callable[[Sequence[str], Collection[str]], float]


def recall(ranking: Sequence[str], gold: Collection[str]) -> float:
    """The share of gold passages in the ranking."""
    return len(set(ranking) & set(gold)) / len(gold)


def all_recall(ranking: Sequence[str], gold: Collection[str]) -> float:
    """1.0 if every gold passage is in the ranking, else 0.0."""
    return float(set(gold) <= set(ranking))


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str]) -> float:
    """One over the rank of the first gold passage; 0 where there is none."""
    return next((1 / rank for rank, pid in enumerate(ranking, start=1) if pid in gold), 0.0)


def ndcg(ranking: Sequence[str], gold: Collection[str], *, k: int | None = None) -> float:
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
    return [[pid for pid, _ in search.hits] for search in record.searches if not search.cached]


@once
def union(record: Record) -> list[str]:
    """Every pid found, once, in the order first seen."""
    return list(dict.fromkeys(pid for ranking in rankings(record) for pid in ranking))


def first_found(record: Record) -> dict[str, int | None]:
    """For each gold passage the number (from 1) of the search that first found it, or None."""
    first_in: dict[str, int] = {}
    for number, ranking in enumerate(rankings(record), start=1):
        for pid in ranking:
            first_in.setdefault(pid, number)
    return {pid: first_in.get(pid) for pid in record.gold_pids}


def gold_by_search(records: Iterable[Record]) -> dict[str, dict[str, int]]:
    """For each place in `gold_pids` (from 1): how many questions' passage which search found first.

    Searches are counted from 1; "never" stands for those that no search found.
    """
    rows: dict[str, Counter[str]] = {}
    for record in records:
        for place, number in enumerate(first_found(record).values(), start=1):
            rows.setdefault(str(place), Counter())[str(number or "never")] += 1
    return {place: dict(rows[place]) for place in sorted(rows, key=int)}


def redundancy(record: Record) -> float | None:
    """The share of hits that an earlier search had shown already; None without hits."""
    hits = [pid for search in record.searches for pid, _ in search.hits]
    return 1 - len(set(hits)) / len(hits) if hits else None


def retrieved_tokens(record: Record) -> float:
    """Tokens of passage text shown by searches and reads; what is shown again counts again.

    A-RAG's count: text alone, without ids and titles. A step that shows part of a passage lists the
    new texts under `retrieved` in its notes, and such steps then count instead of whole hits.
    Tokens are estimated (`approx_tokens`).
    """
    shown = [step.notes["retrieved"] for step in record.steps if "retrieved" in step.notes]
    if shown:
        return float(sum(approx_tokens("\n".join(texts)) for texts in shown))
    sizes = {p.pid: approx_tokens(p.text) for p in record.passages}
    hits = (pid for search in record.searches for pid, _ in search.hits)
    return float(sum(sizes.get(pid, 0) for pid in hits))


def sentence_recall(record: Record) -> float | None:
    """The share of the supporting sentences that the passages found hold; None without any.

    A paragraph holds its sentences; a chunk those that its alignment names (`holds`).
    """
    gold = {(title, int(index)) for title, index in record.support}
    if not gold:
        return None
    return len(gold & set().union(*map(_held, record.passages))) / len(gold)


def _held(passage: ShownPassage) -> set[tuple[str, int]]:
    if passage.holds is not None:
        return {(title, int(index)) for title, index in passage.holds}
    return {(passage.title, index) for index in range(len(passage.sentences))}


def _hops_to_gold(record: Record) -> float | None:
    numbers = list(first_found(record).values())
    reached = [number for number in numbers if number is not None]
    return float(max(reached)) if numbers and len(reached) == len(numbers) else None


def _metric(name: str, measure: Measure, description: str, k: int | None = None) -> Metric:
    if measure is ndcg:
        measure = partial(ndcg, k=k)
    each = name.startswith("search_")

    def score(record: Record) -> float | None:
        ranked = rankings(record) if each else [union(record)]
        if not record.gold_pids:
            return None
        if record.failed:
            return 0.0
        found = [measure(ranking[:k], record.gold_pids) for ranking in ranked]
        return sum(found) / len(found) if found else None

    scope = f"first {k} passages" if k else "passages found"
    text = f"{description}, {scope} of {'each search' if each else 'all searches'}"
    return Metric(f"{name}@{k}" if k else name, score, text)


def _register(name: str, measure: Measure, description: str) -> None:
    add(_metric(name, measure, description))
    CUTOFF_METRICS.register(name)(partial(_metric, name, measure, description))


_register("recall", recall, "share of gold passages")
_register("all_recall", all_recall, "whether all gold passages are there")
_register("mrr", reciprocal_rank, "reciprocal rank of the first gold passage")
_register("ndcg", ndcg, "normalised discounted gain of gold passages")
_register("search_recall", recall, "share of gold passages")

add_metric(
    "sentence_recall",
    sentence_recall,
    "share of supporting sentences in the passages found, through the alignment on chunks",
)
add_amount(
    "hops_to_gold",
    _hops_to_gold,
    "searches until all gold passages were found; none where they never were",
)
add(
    Metric(
        "redundancy",
        redundancy,
        "share of hits already shown before",
        worst=1.0,
        higher_is_better=False,
    )
)
add_amount(
    "retrieved_tokens",
    retrieved_tokens,
    "tokens of text shown by searches and reads, estimated",
    source="A-RAG",
)
