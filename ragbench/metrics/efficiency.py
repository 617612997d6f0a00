"""What a run's answers cost: spending per question, score per unit, and score within a budget.

Spending is *as if uncached*: a call answered by the cache counts with the tokens, list price and
time it had when it was first answered, so that a re-run shows the same. A failed question counts
with what it spent before it failed and scores 0: failing early is cheap, never good.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ragbench.metrics.base import add_amount, get_metric, once
from ragbench.record import Record, total

_RESOURCES = {
    "calls": "calls to LMs, one for each time the program asked, as if uncached",
    "embedding_and_reranking_calls": "calls to embedders and rerankers, as if uncached",
    "tokens": "tokens in and out, as if uncached",
    "cost_usd": "dollars at list price, as if uncached; none where a price is unknown",
    "latency_s": "seconds, as if uncached",
    "retrievals": "searches, repeats left out",
    "critical_path_calls": "longest chain of calls that wait for each other",
    "critical_path_s": "seconds of that chain",
}


@once
def spend(record: Record) -> dict[str, float | None]:
    """The spending of one record, by resource; a cost whose price is unknown is None.

    Searches answered from memory are no retrievals. Calls of a judge are no part of answering.
    """
    spent = total([call for call in record.ledger.calls if call.kind != "judge"])
    path = record.ledger.path
    return {
        "calls": float(spent.calls),
        "embedding_and_reranking_calls": float(spent.others),
        "tokens": float(spent.tokens),
        "cost_usd": spent.cost_usd,
        "latency_s": float(record.latency_s),
        "retrievals": float(sum(not search.cached for search in record.searches)),
        "critical_path_calls": float(path.calls),
        "critical_path_s": float(path.latency_s),
    }


def _amounts(records: Sequence[Record], resource: str) -> list[Any]:
    return [spend(record)[resource] for record in records]


def _scores(records: Sequence[Record], metric: str) -> list[float]:
    score = get_metric(metric).score
    return [score(record) or 0.0 for record in records]


def efficiency(records: Sequence[Record]) -> dict[str, float | None]:
    """The summed F1 over the summed spending: a ratio of totals, not a mean of ratios.

    None where nothing was spent or a price is unknown.
    """
    score = sum(_scores(records, "f1"))

    def per(resource: str, unit: float = 1.0) -> float | None:
        amounts = _amounts(records, resource)
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
    amounts = _amounts(records, resource)
    return None if not amounts or None in amounts else max(amounts)


def within_budget(records: Sequence[Record], resource: str, budget: float) -> list[float]:
    """The exact match of each record, 0 where it cost more than `budget`; costs must be known."""
    pairs = zip(_scores(records, "em"), _amounts(records, resource), strict=True)
    return [score if amount <= budget else 0.0 for score, amount in pairs]


def under_curve(records: Sequence[Record], resource: str, limit: float) -> list[float]:
    """Each record's share of the area under the curve of mean exact match against budget.

    The area is their mean: the mean height of the curve from 0 to `limit`, in [0, 1]. Compare areas
    with one limit only. Costs must be known.
    """
    pairs = zip(_scores(records, "em"), _amounts(records, resource), strict=True)
    return [score * max(0.0, 1 - amount / limit) for score, amount in pairs]


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Mean, median and 95th percentile; empty without values."""
    if not values:
        return {}
    p50, p95 = np.quantile(values, [0.5, 0.95])
    return {"mean": float(np.mean(values)), "p50": float(p50), "p95": float(p95)}


def _spent(resource: str, record: Record) -> float | None:
    return spend(record)[resource]


for _name, _description in _RESOURCES.items():
    add_amount(_name, partial(_spent, _name), _description)
