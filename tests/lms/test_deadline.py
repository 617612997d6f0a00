"""A question whose time is over makes no further call, and its record says so."""

from __future__ import annotations

from pathlib import Path

import dspy
import pytest

from ragbench.experiments.config import make_config
from ragbench.experiments.evaluate import evaluate
from ragbench.ledger import open_ledger
from ragbench.lms import deadline, make_lm
from ragbench.lms.deadline import QUESTION_TIME_KEY, QuestionTimeoutError, question_time
from tests.fake_server import FakeServer, Fault, Hit, plausible


class Clock:
    """A clock on which every request takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def answer(self, hit: Hit) -> str | Fault:
        self.now += 1.0
        return plausible(hit)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(deadline, "monotonic", made)
    return made


def test_the_next_call_is_refused_and_one_under_way_is_not(clock: Clock) -> None:
    with FakeServer(clock.answer) as server:
        lm = make_lm("openai/fake", api_base=server.url, cache=False)
        with dspy.context(**{QUESTION_TIME_KEY: 0.5}):
            with question_time():
                lm("first")
                with pytest.raises(QuestionTimeoutError, match=r"longer than 0\.5 s"):
                    lm("second")
            with question_time():
                lm("of the next question")
    assert len(server.hits) == 2


def test_retries_end_with_the_questions_time_and_what_was_sent_is_filed(clock: Clock) -> None:
    def sleep(seconds: float) -> None:
        clock.now += 1.0

    with FakeServer(lambda hit: Fault("500")) as server, open_ledger() as ledger:
        lm = make_lm("openai/fake", api_base=server.url, cache=False)
        lm.metered._sleep = sleep
        with (
            dspy.context(**{QUESTION_TIME_KEY: 1.5}),
            question_time(),
            pytest.raises(QuestionTimeoutError),
        ):
            lm("first")
    assert len(server.hits) == 2
    assert [call.attempts for call in ledger.calls] == [2]


def test_its_record_is_a_failure_of_the_boundary_limit(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    with FakeServer(clock.answer) as server:
        config = make_config({
            "program": "ircot", "lm": "openai/fake", "api_base": server.url, "limit": 1,
            "size": 100, "cache": False, "question_timeout": 0.5, "out": tmp_path / "run",
        })  # fmt: skip
        result = evaluate(config)
    (record,) = result.records.values()
    failure = record["failure"]
    assert (failure["boundary"], failure["error"]) == ("limit", "QuestionTimeoutError")
    assert len(server.hits) == len(record["ledger"]["calls"]) == 1
