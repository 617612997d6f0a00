"""What a run's summary says was spent, from its records alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.compare.spending import IndexCost, index_cost, whole_cost
from ragbench.experiments.runs import headline_intervals, reopen
from ragbench.metrics import mean_interval
from ragbench.record import CUT_OFF, Call, FailedAttempts, Failure, Record, total
from tests.experiments.scored_runs import answered, make_run


def asked(qid: str, *calls: Call, **fields: Any) -> Record:
    ledger = {"calls": list(calls), "path": {"calls": len(calls), "latency_s": 0.5}}
    return answered(qid, "Norway", ledger=ledger, **fields)


def lm(usd: float | None, **fields: Any) -> Call:
    return Call("m", prompt_tokens=100, completion_tokens=10, cost_usd=usd, **fields)


def test_what_the_cache_answered_is_not_billed_and_counts_as_if(tmp_path: Path) -> None:
    cheap = lm(0.5, paid_usd=0.2)
    failed = lm(0.25, failed=FailedAttempts(7, 3, cost_usd=0.125))
    run = reopen(make_run(tmp_path / "run", [asked("q1", lm(1.0, cached=True), cheap, failed)]))
    assert run.summary.as_if.cost_usd == pytest.approx(1.75)
    assert run.summary.as_if.tokens == 330
    assert run.summary.billed.cost_usd == pytest.approx(0.2 + 0.25 + 0.125)
    assert (run.summary.billed.tokens, run.summary.billed.failed_tokens) == (230, 10)


def test_an_unknown_price_makes_the_sum_unknown(tmp_path: Path) -> None:
    run = reopen(make_run(tmp_path / "run", [asked("q1", lm(1.0)), asked("q2", lm(None))]))
    assert run.summary.as_if.cost_usd is None
    known, unknown = total([lm(1.0)]), total([lm(None)])
    assert (known + unknown).cost_usd is None
    assert (known + known).cost_usd == 2.0


def test_calls_of_a_question_that_was_cut_off_or_asked_again_are_billed(tmp_path: Path) -> None:
    cut = replace(
        asked("q2", lm(4.0)), answer=None, failure=Failure("limit", CUT_OFF, "stopped"),
        stop_reason=None,
    )  # fmt: skip
    run = reopen(make_run(tmp_path / "run", [asked("q1", lm(1.0)), asked("q1", lm(2.0)), cut]))
    assert run.summary.n == 1
    assert run.summary.billed.cost_usd == pytest.approx(7.0)
    assert run.summary.as_if.cost_usd == pytest.approx(2.0)


def test_embedding_the_corpus_is_in_the_whole_cost(tmp_path: Path) -> None:
    rows = [asked("q1", lm(1.0))]
    paid = {"embedding_tokens": 900, "embedding_s": 1.0, "embedding_usd": 0.25}
    index = {"index_calls": 5, "index_tokens": 1_000, "index_usd": 0.5}

    def cost(name: str, **card: Any) -> float | None:
        return whole_cost(reopen(make_run(tmp_path / name, rows, **card)))

    assert cost("dense", retriever={"name": "dense", **paid}) == 1.25
    hybrid = {"name": "hybrid", "parts": [{"name": "dense", **paid}]}
    assert cost("inside", retriever=hybrid) == 1.25
    assert cost("both", retriever={"name": "dense", **paid}, index=index) == 1.75
    assert index_cost(reopen(tmp_path / "both").card) == IndexCost(5, 1_900, 0.75)
    assert cost("unknown", retriever={**paid, "embedding_usd": None}) is None
    free = reopen(make_run(tmp_path / "own", rows, retriever={**paid, "embedding_usd": 0.0}))
    assert index_cost(free.card) is None


def test_means_of_a_run_go_by_the_clusters_that_its_records_name(tmp_path: Path) -> None:
    right = [1.0] * 6 + [0.0] * 6
    rows = [
        replace(asked(f"q{n:02}", lm(1.0), extra={"cluster": f"c{n // 3}"}),
                answer="Norway" if ok else "Chad")
        for n, ok in enumerate(right)
    ]  # fmt: skip
    found = headline_intervals(reopen(make_run(tmp_path / "run", rows)).records)["em"]
    wanted = mean_interval(right, (0.0, 1.0), [f"c{n // 3}" for n in range(12)])
    assert found == wanted
    assert found != mean_interval(right, (0.0, 1.0))
