"""A question whose time is over makes no further call, and its record says so."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dspy
import pytest

from ragbench.context import current, use
from ragbench.experiments.config import make_config
from ragbench.experiments.runs import evaluate
from ragbench.ledger import open_ledger
from ragbench.lms import make_lm
from ragbench.lms.calls import QuestionTimeoutError, question_time
from tests.fake_server import FakeServer, Fault, Hit, plausible


@contextmanager
def question(seconds: float) -> Iterator[None]:
    with use(replace(current(), question_time_s=seconds)), question_time():
        yield


def test_the_next_call_is_refused_until_the_next_question() -> None:
    with FakeServer() as server:
        lm = make_lm("openai/fake", api_base=server.url, cache=False)
        with question(0.3):
            lm("first")
            time.sleep(0.35)
            with pytest.raises(QuestionTimeoutError, match=r"longer than 0\.3 s"):
                lm("second")
        with question(5.0):
            lm("of the next question")
    assert len(server.hits) == 2


@pytest.mark.parametrize(("fault", "retries"), [("hang", 4), ("drip", 4), ("hang", 0), ("500", 4)])
def test_a_call_under_way_or_a_wait_for_the_next_is_broken_off(fault: str, retries: int) -> None:
    with FakeServer(lambda hit: Fault(fault)) as server, open_ledger() as ledger:
        lm = make_lm("openai/fake", api_base=server.url, cache=False, retries=retries)
        lm.metered.caller.base_s = 60.0
        start = time.monotonic()
        with question(0.3), pytest.raises(QuestionTimeoutError):
            lm("first")
        assert time.monotonic() - start < 10  # the server would take 30 s
        assert len(server.hits) == 1
    assert [call.attempts for call in ledger.calls] == [1]


def test_it_tells_nothing_of_the_server() -> None:
    with FakeServer(lambda hit: Fault("hang") if hit.number <= 12 else plausible(hit)) as server:
        lm = make_lm("openai/fake", api_base=server.url, cache=False, patience=0.0)
        for number in range(12):
            with question(0.05), pytest.raises(dspy.LMError):
                lm(f"question {number}")
        lm("the server is not taken to be down")
    assert len(server.hits) == 13


def test_its_record_is_a_failure_of_the_boundary_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))

    def slow(hit: Hit) -> str | Fault:
        return plausible(hit) if hit.number == 1 else Fault("hang")

    with FakeServer(slow) as server:
        config = make_config({
            "program": "ircot", "lm": "openai/fake", "api_base": server.url, "limit": 1,
            "size": 100, "cache": False, "question_timeout": 2.0, "out": tmp_path / "run",
        })  # fmt: skip
        result = evaluate(config)
    (record,) = result.records.values()
    failure = record.failure
    assert (failure.boundary, failure.error) == ("limit", "QuestionTimeoutError")
    assert len(server.hits) == len(record.ledger.calls) == 2
