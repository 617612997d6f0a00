"""Summaries: means with failures as the worst, breakdowns, and the three treatments of failures."""

import json
import random
from dataclasses import replace

import pytest

from ragbench.errors import UnknownNameError
from ragbench.metrics import mean_interval
from ragbench.metrics.aggregate import GROUPINGS, summarize
from tests.metrics.records import failure, record

RECORDS = [
    record("Norway", qid="1"),
    record("Sweden", qid="2", qtype="comparison", hops=None),
    record("yes", qid="3", answers=["yes"], qtype="comparison", hops=3),
    replace(failure(), qid="4"),
]


def test_failures_count_as_the_worst_and_are_shown_in_three_ways() -> None:
    found = summarize(RECORDS)
    interval = mean_interval([1.0, 0.0, 1.0], (0.0, 1.0))
    assert interval is not None
    assert (found["n"], found["n_failed"]) == (4, 1)
    assert found["failures"] == {"lm/LMTimeoutError": 1}
    assert found["scores"]["em"] == {
        "mean": 0.5,
        "n": 4,
        "interval": [0.0, 1.0],
        "failures": {
            "n": 1,
            "as_worst": 0.5,
            "excluded": pytest.approx(2 / 3),
            "excluded_interval": [interval.low, interval.high],
        },
    }
    assert summarize(RECORDS[:3])["scores"]["em"] == {
        "mean": pytest.approx(2 / 3), "n": 3, "interval": [interval.low, interval.high],
    }  # fmt: skip


def test_failures_alone_make_no_score_of_what_no_answer_has() -> None:
    assert "sp_f1" not in summarize(RECORDS)["scores"]
    cited = [record("Norway", qid="9", citations=[["Oslo", 0], ["Ann Lee", 1]]), *RECORDS]
    score = summarize(cited)["scores"]["sp_f1"]
    assert (score["mean"], score["n"], score["failures"]["n"]) == (0.5, 2, 1)
    assert summarize(cited)["support_kinds"] == {"cited": 1}


def test_a_run_of_failures_scores_the_worst() -> None:
    found = summarize([failure()])["scores"]["em"]
    assert (found["mean"], found["failures"]["excluded"]) == (0.0, None)
    assert summarize([])["scores"] == {}


def test_breakdowns() -> None:
    groups = summarize(RECORDS)["breakdowns"]
    means = {"em": 0.5, "f1": 0.5, "intervals": {"em": [0.0, 1.0], "f1": [0.0, 1.0]}}
    assert groups["qtype"]["comparison"] == {"n": 2, "n_failed": 0, **means}
    assert groups["qtype"]["bridge"] == {"n": 2, "n_failed": 1, **means}
    assert set(groups["hops"]) == {"2", "3"}
    assert {kind: row["n"] for kind, row in groups["answer_kind"].items()} == {
        "entity": 3,
        "yes_no": 1,
    }


def test_another_grouping_can_be_given() -> None:
    closed_book = {"1": 1.0, "2": 0.0}
    groupings = {**GROUPINGS, "closed_book": lambda r: closed_book.get(r.qid)}
    groups = summarize(RECORDS, groupings=groupings)["breakdowns"]["closed_book"]
    assert {key: row["em"] for key, row in groups.items()} == {"0.0": 0.0, "1.0": 1.0}


def test_order_does_not_matter_and_json_takes_it() -> None:
    shuffled = list(RECORDS)
    random.Random(0).shuffle(shuffled)
    once, twice = (json.dumps(summarize(rows)) for rows in (RECORDS, shuffled))
    assert once == twice


def test_chosen_metrics_and_an_unknown_one() -> None:
    assert set(summarize(RECORDS, metrics=["recall@1", "em"])["scores"]) == {"recall@1", "em"}
    with pytest.raises(UnknownNameError):
        summarize(RECORDS, metrics=["recal@1"])
