"""Spending, score per unit, and score within a budget."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ragbench.metrics import get_metric
from ragbench.metrics.efficiency import (
    budget_curve,
    efficiency,
    quantiles,
    spend,
    spend_summary,
)
from tests.metrics.records import call, failure, record


def costing(calls: int, answer: str | None = "Norway", **fields: object) -> dict:
    ledger = {"calls": [call() for _ in range(calls)], "path": {"calls": 1, "latency_s": 0.5}}
    return record(answer, ledger=ledger, latency_s=float(calls), **fields)


def test_spending_counts_cached_calls_and_leaves_the_judge_out() -> None:
    ledger = {
        "calls": [
            call(),
            call(cached=True),
            call(kind="judge", cost_usd=None),
            call(kind="embed", cost_usd=0.0),
            call(kind="rerank", cost_usd=0.0),
        ],
        "path": {"calls": 2, "latency_s": 1.0},
    }
    found = spend(record(ledger=ledger))
    assert (found.calls, found.embedding_and_reranking_calls) == (2, 2)
    assert (found.tokens, found.retrievals) == (440, 1)
    assert found.cost_usd == pytest.approx(0.002)
    assert (found.critical_path_calls, found.critical_path_s) == (2, 1.0)


def test_an_unknown_price_is_unknown_and_a_failed_call_costs_nothing() -> None:
    unknown = {"calls": [call(), call(cost_usd=None)], "path": {"calls": 2, "latency_s": 1.0}}
    assert spend(record(ledger=unknown)).cost_usd is None
    assert get_metric("cost_usd").score(record(ledger=unknown)) is None
    assert efficiency([record(ledger=unknown)]).per_usd is None
    assert budget_curve([record(ledger=unknown)], "cost_usd") is None
    assert spend_summary([record(ledger=unknown)])["cost_usd"] is None
    broken = {"calls": [call(cost_usd=None, error="LMTimeoutError")], "path": unknown["path"]}
    assert spend(record(ledger=broken)).cost_usd == 0.0


def test_efficiency_is_a_ratio_of_totals() -> None:
    found = efficiency([costing(1), costing(3, "Sweden")])
    assert found.per_retrieval == pytest.approx(1 / 2)
    assert found.per_1000_tokens == pytest.approx(1 / 0.44)
    assert found.per_usd == pytest.approx(1 / 0.004)
    assert found.per_second == pytest.approx(1 / 4)
    assert efficiency([record(pids=())]).per_retrieval is None
    assert efficiency([]).per_second is None


def test_a_failed_question_spends_and_scores_nothing() -> None:
    assert efficiency([costing(1), replace(failure(), latency_s=1.0)]).per_second == 0.5
    assert get_metric("calls").score(failure()) == 1.0


def test_budget_curve_by_hand() -> None:
    records = [costing(1), costing(2, "Sweden"), costing(2), costing(4)]
    curve = budget_curve(records, "calls")
    assert curve is not None
    assert curve.points == ((1.0, 0.25), (2.0, 0.5), (4.0, 0.75))
    assert curve.area == pytest.approx((1 * 0.25 + 2 * 0.5) / 4)
    longer = budget_curve(records, "calls", limit=8)
    assert longer is not None
    assert longer.area == pytest.approx((1 * 0.25 + 2 * 0.5 + 4 * 0.75) / 8)
    shorter = budget_curve(records, "calls", limit=2)
    assert shorter is not None
    assert shorter.points == ((1.0, 0.25), (2.0, 0.5))
    assert shorter.area == pytest.approx(0.125)


def test_area_is_that_under_the_steps() -> None:
    rng = random.Random(1)
    records = [
        costing(rng.randrange(1, 9), rng.choice(["Norway", "Sweden", None])) for _ in range(60)
    ]
    curve = budget_curve(records, "latency_s", limit=10)
    assert curve is not None
    edges = [*(p[0] for p in curve.points), 10.0]
    steps = zip(curve.points, edges[1:], strict=True)
    assert curve.area == pytest.approx(sum(h * (end - at) for (at, h), end in steps) / 10)


def test_nothing_spent_has_no_curve() -> None:
    assert budget_curve([], "calls") is None
    assert budget_curve([record(pids=())], "retrievals") is None


def test_quantiles() -> None:
    assert quantiles([1.0, 2.0, 3.0]) == pytest.approx({"mean": 2.0, "p50": 2.0, "p95": 2.9})
    assert quantiles([]) == {}
    assert spend_summary([]) == {}
    assert spend_summary([costing(2)])["calls"] == {"mean": 2.0, "p50": 2.0, "p95": 2.0}
