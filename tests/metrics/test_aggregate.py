"""Summaries: means with failures as the worst, and their intervals."""

from dataclasses import replace
from typing import Any

import pytest

from ragbench.metrics import DEFAULT_METRICS, mean_interval, mean_of, score_columns, summarize
from ragbench.record import Record
from tests.metrics.records import failure, record

RECORDS = [
    record("Norway", qid="1"),
    record("Sweden", qid="2", qtype="comparison", hops=None),
    record("yes", qid="3", answers=["yes"], qtype="comparison", hops=3),
    replace(failure(), qid="4"),
]


def summed(records: list[Record], metrics: Any = DEFAULT_METRICS) -> dict[str, Any]:
    return summarize(records, score_columns(records, metrics))


def test_mean_of_if_questions_failed_counts_the_worst_score() -> None:
    found = summed(RECORDS)
    assert (found["n"], found["n_failed"]) == (4, 1)
    assert found["failures"] == {"lm/LMTimeoutError": 1}
    assert found["scores"]["em"] == {"mean": 0.5, "n": 4, "interval": [0.0, 1.0]}
    interval = mean_interval([1.0, 0.0, 1.0], (0.0, 1.0))
    assert interval is not None
    assert summed(RECORDS[:3])["scores"]["em"] == {
        "mean": pytest.approx(2 / 3), "n": 3, "interval": [interval.low, interval.high],
    }  # fmt: skip
    assert summed([failure()])["scores"]["em"]["mean"] == 0.0
    assert summed([])["scores"] == {}


def test_summarize_if_only_failures_have_a_score_omits_the_metric() -> None:
    assert "sp_f1" not in summed(RECORDS)["scores"]
    cited = [record("Norway", qid="9", citations=[["Oslo", 0], ["Ann Lee", 1]]), *RECORDS]
    score = summed(cited)["scores"]["sp_f1"]
    assert (score["mean"], score["n"]) == (0.5, 2)
    assert summed(cited)["support_kinds"] == {"cited": 1}


def test_mean_of_if_clusters_exist_uses_clusters() -> None:
    scores: dict[str, float | None] = {f"q{n:02}": float(n % 6 < 3) for n in range(36)}
    clusters = {qid: qid[:2] + str(n // 3) for n, qid in enumerate(scores) if n < 33}
    units = [clusters.get(qid, qid) for qid in scores]
    found = mean_of({**scores, "none": None}, (0.0, 1.0), clusters)
    assert found is not None
    assert (found.n, found.mean, found.clusters, found.largest) == (36, 0.5, len(set(units)), 3)
    assert found.interval == mean_interval(list(scores.values()), (0.0, 1.0), units)
    assert found.interval != mean_interval(list(scores.values()), (0.0, 1.0))
    assert mean_of({"q": None}, (0.0, 1.0)) is None


def test_summarize_if_clusters_exist_has_clustered_intervals() -> None:
    rows = [record("Norway" if n % 8 < 4 else "Sweden", qid=f"q{n:02}") for n in range(48)]
    clusters = {row.qid: n // 4 for n, row in enumerate(rows)}
    columns = score_columns(rows, ["em"])
    apart, linked = (summarize(rows, columns, by)["scores"]["em"] for by in ({}, clusters))
    low, high = linked["interval"]
    assert high - low > 1.5 * (apart["interval"][1] - apart["interval"][0])
