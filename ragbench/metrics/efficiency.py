"""What the answer to a question cost, *as if uncached*.

A call answered by the cache counts with the tokens, list price and time it had when it was first
answered, so that a re-run shows the same. A failed question counts with what it spent before it
failed and scores 0: failing early is cheap, never good. Calls of a judge are no part of answering.
"""

from functools import partial

from ragbench.metrics.base import add_amount, once
from ragbench.record import Record, Totals, total

_RESOURCES = {
    "calls": "calls to LMs, one for each time the program asked, as if uncached",
    "embedding_and_reranking_calls": "calls to embedders and rerankers, as if uncached",
    "tokens": "tokens of LMs, in and out, as if uncached",
    "embedding_and_reranking_tokens": "tokens of embedders and rerankers, as if uncached",
    "cost_usd": "dollars at list price, as if uncached; none where a price is unknown",
    "latency_s": "seconds, as if uncached",
    "retrievals": "searches, repeats left out",
    "critical_path_calls": "longest chain of calls that wait for each other",
    "critical_path_s": "seconds of that chain",
}


@once
def as_if(record: Record) -> Totals:
    """The totals of all its calls, as if nothing had been cached."""
    return record.ledger.as_if


@once
def spend(record: Record) -> dict[str, float | None]:
    """The spending of one record, by resource; an amount that nobody knows is None."""
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
