"""Cost of the answer to a question, *as if uncached*.

A cached call counts with the tokens, list price and time of its first answer, so that a re-run has
the same cost. A failed question counts with its cost until the failure and scores 0. Calls of a
judge are not part of answering.
"""

from functools import partial

from ragbench.metrics.base import add_amount, once
from ragbench.record import Record, Totals, total

_RESOURCES = {
    "calls": "LM calls of the program, as if uncached",
    "embedding_and_reranking_calls": "calls to embedders and rerankers, as if uncached",
    "tokens": "tokens of LMs, in and out, as if uncached",
    "embedding_and_reranking_tokens": "tokens of embedders and rerankers, as if uncached",
    "cost_usd": "US dollars at list price, as if uncached; None if a price is unknown",
    "latency_s": "seconds, as if uncached",
    "retrievals": "searches, without repeats",
    "critical_path_calls": "length of the longest chain of dependent calls",
    "critical_path_s": "duration of that chain in seconds",
}


@once
def as_if(record: Record) -> Totals:
    """Return the totals of all calls, as if nothing had been cached."""
    return record.ledger.as_if


@once
def spend(record: Record) -> dict[str, float | None]:
    """Return the cost of one record by resource. An unknown amount is None."""
    spent = as_if(record)
    if any(call.kind == "judge" for call in record.ledger.calls):
        spent = total([call for call in record.ledger.calls if call.kind != "judge"])
    path = record.ledger.path
    amounts = {
        "calls": float(spent.calls),
        "embedding_and_reranking_calls": float(spent.others),
        "tokens": float(spent.tokens),
        "embedding_and_reranking_tokens": float(spent.other_tokens),
        "cost_usd": spent.cost_usd,
        "latency_s": float(record.latency_s),
        "retrievals": float(sum(not search.cached for search in record.searches)),
        "critical_path_calls": float(path.calls),
        "critical_path_s": float(path.latency_s),
    }
    return {name: record.known(name, amount) for name, amount in amounts.items()}


def _spent(resource: str, record: Record) -> float | None:
    return spend(record)[resource]


for _name, _description in _RESOURCES.items():
    add_amount(_name, partial(_spent, _name), _description)
