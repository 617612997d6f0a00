"""A failed question has the worst score of every metric, but of those that the docs name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ragbench.metrics import get_metric, metric_names
from ragbench.record import Call
from tests.metrics.records import failure

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
#: What the second paragraph of the docs says of failed questions.
NAMED = set(
    re.findall(r"`(\w+)`", DOCS.read_text("utf-8").split("worst score.")[1].split("A metric")[0])
)
TRIPLES = {"evidences": [["Ann Lee", "place of birth", "Oslo"]]}


@pytest.mark.parametrize("name", [name.replace("@K", "@3") for name in metric_names()])
def test_a_failed_question_has_the_worst_score(name: str) -> None:
    metric = get_metric(name)
    failed = replace(failure(), extra=TRIPLES)
    ledger = replace(failed.ledger, calls=[*failed.ledger.calls, Call("e", kind="embed")])
    score = metric.score(replace(failed, ledger=ledger))
    assert (score == metric.worst) is (name not in NAMED)
