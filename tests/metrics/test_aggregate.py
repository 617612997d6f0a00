"""Summaries: means with failures as the worst, and their intervals."""

from dataclasses import replace
from typing import Any

import pytest

from ragbench.metrics import DEFAULT_METRICS, mean_interval, score_columns, summarize
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


def test_failures_count_as_the_worst() -> None:
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


def test_failures_alone_make_no_score_of_what_no_answer_has() -> None:
    assert "sp_f1" not in summed(RECORDS)["scores"]
    cited = [record("Norway", qid="9", citations=[["Oslo", 0], ["Ann Lee", 1]]), *RECORDS]
    score = summed(cited)["scores"]["sp_f1"]
    assert (score["mean"], score["n"]) == (0.5, 2)
    assert summed(cited)["support_kinds"] == {"cited": 1}
