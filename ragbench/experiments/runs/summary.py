"""Summaries: everything a table shows of a run, computed from its records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ragbench.experiments.records import Loaded
from ragbench.experiments.runs.failure_policies import treatments
from ragbench.experiments.runs.spend import Progress
from ragbench.metrics import get_metric
from ragbench.record import Ledger, Record, Totals, total

SUMMARY = "summary.json"
#: Metrics that every run shows; all others are computed on request.
HEADLINE = ("em", "f1")


def score_record(record: Record) -> dict[str, float | None]:
    """The headline scores of one record, in [0, 1]; a failed record has the worst."""
    return {name: get_metric(name).score(record) for name in HEADLINE}


def summarize(
    records: Iterable[Record],
    earlier: Iterable[Record] = (),
    cut_off: Iterable[Record] = (),
) -> dict[str, Any]:
    """The summary of a run, JSON-ready; `earlier` are records that later ones replaced.

    Scores are means over all records, failures as the worst; `treatments` are there only where a
    question failed. Tokens, cost and calls come in two sets: `billed` (what this run sent to a
    server, for earlier records and those cut off too) and `as_if` (as if nothing had been cached or
    failed). Latency is in seconds per question, with what the cache saved added back; `cost_usd`
    None means a price is unknown.
    """
    records = sorted(records, key=lambda r: str(r.qid))
    ledgers = [record.ledger for record in records]
    calls = [call for ledger in ledgers for call in ledger.calls]
    earlier = list(earlier)
    replaced = [call for r in (*earlier, *cut_off) for call in r.ledger.calls]
    return {
        "n": len(records),
        "scores": _scores(records),
        "failures": dict(Counter(r.failure.boundary for r in records if r.failure)),
        "errors": error_classes(records),
        **_treatments(records, earlier),
        "stop_reasons": dict(Counter(r.stop_reason for r in records if r.stop_reason)),
        "counts": _counts(records),
        "billed": _totals(total(call for call in [*replaced, *calls] if not call.cached)),
        "as_if": _totals(total(calls)),
        "by_signature": _by_signature(ledgers),
        "critical_path_calls": sum(ledger.path.calls for ledger in ledgers),
        "retrievals": sum(len(record.searches) for record in records),
        "searches_from_memory": sum(s.cached for r in records for s in r.searches),
        "latency_s": _quantiles([record.latency_s for record in records]),
    }


def summary_of(loaded: Loaded, questions: int | None) -> dict[str, Any]:
    """What `summary.json` holds of a run of so many `questions`, if that is known."""
    found = summarize(loaded.records.values(), loaded.earlier, loaded.cut_off)
    return {**found, "progress": Progress.of(loaded, questions).to_dict()}


def _scores(records: Sequence[Record]) -> dict[str, float]:
    if not records:
        return {}
    scores = [score_record(record) for record in records]
    columns = {name: np.array([row[name] for row in scores], dtype=float) for name in HEADLINE}
    return {name: round(float(column.mean()), 6) for name, column in columns.items()}


def error_classes(records: Iterable[Record]) -> dict[str, int]:
    """Failed records by boundary and class of error, such as `provider/LMServerError`."""
    failures = (record.failure for record in records if record.failure)
    return dict(sorted(Counter(failure.name for failure in failures).items()))


def _treatments(records: Sequence[Record], earlier: Sequence[Record]) -> dict[str, Any]:
    found = treatments({str(r.qid): r for r in records}, earlier)
    return (
        {"treatments": {name: _treated(chosen) for name, chosen in found.items()}} if found else {}
    )


def _treated(records: Mapping[str, Record]) -> dict[str, Any]:
    rows = list(records.values())
    return {"n": len(rows), "failed": sum(r.failed for r in rows), "scores": _scores(rows)}


def _counts(records: Sequence[Record]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(record.counts)
    return dict(sorted(counts.items()))


def _totals(totals: Totals) -> dict[str, Any]:
    cost = totals.cost_usd
    return {
        "calls": totals.calls,
        "embedding_and_reranking_calls": totals.others,
        "failed_calls": totals.failed,
        "attempts": totals.attempts,
        "fallbacks": totals.fallbacks,
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "cost_usd": None if cost is None else round(cost, 8),
    }


def _by_signature(ledgers: Sequence[Ledger]) -> dict[str, dict[str, int]]:
    rows: dict[str, Counter[str]] = {}
    for ledger in ledgers:
        for call in ledger.calls:
            row = rows.setdefault(call.signature or call.kind, Counter())
            row.update(calls=1, tokens=call.prompt_tokens + call.completion_tokens)
    return {name: dict(rows[name]) for name in sorted(rows)}


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    p50, p95 = np.quantile(values, [0.5, 0.95])
    return {
        "mean": round(float(np.mean(values)), 3),
        "p50": round(float(p50), 3),
        "p95": round(float(p95), 3),
    }
