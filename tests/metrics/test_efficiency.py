"""Spending, score per unit, and score within a budget."""

import random
from dataclasses import replace

import pytest

from ragbench.metrics import get_metric
from ragbench.metrics.efficiency import (
    efficiency,
    highest_spend,
    quantiles,
    spend,
    under_curve,
    within_budget,
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
    assert found == {
        "calls": 2, "embedding_and_reranking_calls": 2, "tokens": 440, "retrievals": 1,
        "cost_usd": pytest.approx(0.002), "latency_s": 0.6,
        "critical_path_calls": 2, "critical_path_s": 1.0,
    }  # fmt: skip


def test_an_unknown_price_is_unknown_and_a_failed_call_costs_nothing() -> None:
    unknown = {"calls": [call(), call(cost_usd=None)], "path": {"calls": 2, "latency_s": 1.0}}
    assert spend(record(ledger=unknown))["cost_usd"] is None
    assert get_metric("cost_usd").score(record(ledger=unknown)) is None
    assert efficiency([record(ledger=unknown)])["per_usd"] is None
    assert highest_spend([record(ledger=unknown)], "cost_usd") is None
    broken = {"calls": [call(cost_usd=None, error="LMTimeoutError")], "path": unknown["path"]}
    assert spend(record(ledger=broken))["cost_usd"] == 0.0


def test_efficiency_is_a_ratio_of_totals() -> None:
    assert efficiency([costing(1), costing(3, "Sweden")]) == pytest.approx(
        {
            "per_retrieval": 1 / 2,
            "per_1000_tokens": 1 / 0.44,
            "per_usd": 1 / 0.004,
            "per_second": 1 / 4,
        }
    )
    assert efficiency([record(pids=())])["per_retrieval"] is None
    assert efficiency([])["per_second"] is None


def test_a_failed_question_spends_and_scores_nothing() -> None:
    assert efficiency([costing(1), replace(failure(), latency_s=1.0)])["per_second"] == 0.5
    assert get_metric("calls").score(failure()) == 1.0


def test_scores_within_a_budget_by_hand() -> None:
    records = [costing(1), costing(2, "Sweden"), costing(2), costing(4)]
    assert highest_spend(records, "calls") == 4
    assert highest_spend([], "calls") is None
    assert within_budget(records, "calls", 2) == [1.0, 0.0, 1.0, 0.0]
    assert under_curve(records, "calls", 4) == pytest.approx([3 / 4, 0.0, 2 / 4, 0.0])
    assert under_curve(records, "calls", 2) == pytest.approx([1 / 2, 0.0, 0.0, 0.0])


def test_the_area_is_that_under_the_scores_within_each_budget() -> None:
    rng = random.Random(1)
    records = [
        costing(rng.randrange(1, 9), rng.choice(["Norway", "Sweden", None])) for _ in range(60)
    ]
    heights = [sum(within_budget(records, "latency_s", at)) for at in range(10)]
    assert sum(under_curve(records, "latency_s", 10)) == pytest.approx(sum(heights) / 10)


def test_quantiles() -> None:
    assert quantiles([1.0, 2.0, 3.0]) == pytest.approx({"mean": 2.0, "p50": 2.0, "p95": 2.9})
    assert quantiles([]) == {}
