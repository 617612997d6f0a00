"""What a run's answers cost: spending per question, score per unit, and score within a budget.

Spending is *as if uncached*: a call answered by the cache counts with the tokens, list price and
time it had when it was first answered, so that a re-run shows the same. A failed question counts
with what it spent before it failed and scores 0: failing early is cheap, never good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ragbench.metrics.base import METRICS, Metric, get_metric, once
from ragbench.record import Record, total


@dataclass(frozen=True, slots=True)
class Spend:
    """What one question took; `cost_usd`, the list price, is None where it is unknown.

    `calls` are those to an LM, one for each time the program asked, whether or not an answer came.
    """

    calls: int
    embedding_and_reranking_calls: int
    tokens: int
    cost_usd: float | None
    latency_s: float
    retrievals: int
    critical_path_calls: int
    critical_path_s: float


@once
def spend(record: Record) -> Spend:
    """The spending of one record; searches answered from memory are not counted as retrievals.

    Calls of a judge are no part of answering and are left out.
    """
    calls = [call for call in record.ledger.calls if call.kind != "judge"]
    spent = total(calls)
    path = record.ledger.path
    return Spend(
        calls=spent.calls,
        embedding_and_reranking_calls=spent.others,
        tokens=spent.tokens,
        cost_usd=spent.cost_usd,
        latency_s=float(record.latency_s),
        retrievals=sum(not search.cached for search in record.searches),
        critical_path_calls=path.calls,
        critical_path_s=float(path.latency_s),
    )


def efficiency(records: Sequence[Record], metric: str = "f1") -> dict[str, float | None]:
    """The summed `metric` over the summed spending: a ratio of totals, not a mean of ratios.

    None where nothing was spent or a price is unknown.
    """
    score = sum(_scores(records, metric))
    spent = [spend(record) for record in records]

    def per(resource: str, unit: float = 1.0) -> float | None:
        amounts = [getattr(one, resource) for one in spent]
        total = None if None in amounts else sum(amounts)
        return score / (total / unit) if total else None

    return {
        "per_retrieval": per("retrievals"),
        "per_1000_tokens": per("tokens", 1000.0),
        "per_usd": per("cost_usd"),
        "per_second": per("latency_s"),
    }


def highest_spend(records: Sequence[Record], resource: str) -> float | None:
    """What the question that took most of `resource` took; None where a price is unknown."""
    amounts = [getattr(spend(record), resource) for record in records]
    return None if not amounts or None in amounts else float(max(amounts))


def within_budget(
    records: Sequence[Record], resource: str, budget: float, *, metric: str = "em"
) -> list[float]:
    """The score of each record, 0 where it cost more than `budget`.

    The cost of every record must be known.
    """
    amounts = [getattr(spend(record), resource) for record in records]
    scores = _scores(records, metric)
    return [s if amount <= budget else 0.0 for s, amount in zip(scores, amounts, strict=True)]


def under_curve(
    records: Sequence[Record], resource: str, limit: float, *, metric: str = "em"
) -> list[float]:
    """Each record's share of the area under the curve of mean score against budget.

    The area is their mean: the mean height of the curve from 0 to `limit`, in [0, 1]. Compare areas
    with one limit only.

    The cost of every record must be known.
    """
    amounts = [getattr(spend(record), resource) for record in records]
    scores = _scores(records, metric)
    return [s * max(0.0, 1 - amount / limit) for s, amount in zip(scores, amounts, strict=True)]


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Mean, median and 95th percentile; empty without values."""
    if not values:
        return {}
    p50, p95 = np.quantile(values, [0.5, 0.95])
    return {"mean": float(np.mean(values)), "p50": float(p50), "p95": float(p95)}


def spend_summary(records: Sequence[Record]) -> dict[str, Any]:
    """Quantiles of each resource per question; None where a price is unknown."""
    rows = [spend(record) for record in records]
    names = [field.name for field in fields(Spend)] if rows else []
    return {name: _quantiles_or_none([getattr(row, name) for row in rows]) for name in names}


def _quantiles_or_none(values: Sequence[float | None]) -> Mapping[str, float] | None:
    known = [value for value in values if value is not None]
    return quantiles(known) if len(known) == len(values) else None


def _scores(records: Sequence[Record], metric: str) -> list[float]:
    measure = get_metric(metric)
    return [measure.score(record) or 0.0 for record in records]


def _register(name: str, description: str) -> None:
    def score(record: Record) -> float | None:
        value = getattr(spend(record), name)
        return None if value is None else float(value)

    METRICS.register(name)(
        Metric(name, score, description, higher_is_better=False, score_range=None)
    )


for _name, _description in {
    "calls": "calls to LMs, as if uncached",
    "embedding_and_reranking_calls": "calls to embedders and rerankers, as if uncached",
    "tokens": "tokens in and out, as if uncached",
    "cost_usd": "dollars at list price, as if uncached; none where a price is unknown",
    "latency_s": "seconds, as if uncached",
    "retrievals": "searches, repeats left out",
    "critical_path_calls": "longest chain of calls that wait for each other",
    "critical_path_s": "seconds of that chain",
}.items():
    _register(_name, _description)
