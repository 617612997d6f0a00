"""Limits of a command and the time of a question: nothing is sent past them, whoever asks."""

import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import dspy
import pytest

from ragbench.context import current, use
from ragbench.errors import ConfigError, LMUnavailableError, StoppedError
from ragbench.experiments.config import make_config
from ragbench.experiments.runs.context import limited, ready
from ragbench.experiments.runs.runner import evaluate, run
from ragbench.ledger import fan_out, open_ledger
from ragbench.lms.calls import (
    Amount,
    LimitReachedError,
    Limits,
    QuestionTime,
    QuestionTimeoutError,
    Scope,
    limit_reached,
    question_deadline,
    spending,
    stop,
)
from ragbench.lms.factory import make_lm
from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.fakes import Asked, Reply, ScriptedLM, rate_limited
from tests.wire import lm_at


def ask(lm: ScriptedLM, n: int = 1) -> None:
    for number in range(n):
        lm(f"question {number} {threading.get_ident()}")


def reply(asked: Asked) -> Reply:
    return "a word or two"


def test_attempts_stop_at_the_limit_and_the_ledger_says_refused() -> None:
    lm = ScriptedLM(lambda asked: rate_limited() if asked.number > 1 else "word", retries=9)
    with spending(Limits(calls=4)) as spent, open_ledger() as ledger:
        ask(lm)
        with pytest.raises(LimitReachedError, match="--max-calls 4 is reached: 4 calls"):
            ask(lm)
        assert limit_reached() == "--max-calls 4"
    assert len(lm.asked) == spent.total.calls == 4
    assert [call.attempts for call in ledger.calls] == [1, 3]  # filed, though it was refused
    assert ledger.refused
    lm.client.script = reply
    ask(lm)  # outside of the block nothing is refused
    assert limit_reached() is None
    with pytest.raises(ConfigError, match="Use a number"):
        Limits(calls=math.nan)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "unit"),
    [(Limits(tokens=3000), "tokens"), (Limits(cost=0.004), "cost"), (Limits(calls=7), "calls")],
)
def test_many_threads_never_pass_a_limit(limits: Limits, unit: str) -> None:
    lms = [
        ScriptedLM(lambda asked: "word " * 100, latency_s=0.002, price="in=1,out=2", name=name)
        for name in ("one", "other")
    ]

    def work(n: int) -> None:
        with suppress(LimitReachedError):
            ask(lms[n % 2], 5)

    with spending(Limits(calls=500)) as outer, spending(limits) as spent, open_ledger() as ledger:
        fan_out(work, list(range(16)))
    assert outer.total == spent.total
    assert ledger.refused
    took, limit = getattr(spent.total, unit), getattr(limits, unit)
    assert took <= limit
    assert took > 0.6 * limit  # what was reserved and not used is given back
    assert spent.stopped_by == limits.option(unit)


def test_a_call_waits_for_one_under_way_that_may_turn_out_cheaper() -> None:
    done: list[str] = []

    def second() -> None:
        with Scope.current().reserved(Amount(tokens=60)):
            done.append("second")

    with spending(Limits(tokens=100)):
        with Scope.current().reserved(Amount(tokens=80)) as slip:
            waiting = threading.Thread(target=second)
            waiting.start()
            waiting.join(0.1)
            assert done == []
            slip.take(tokens=30, cost=0.0)
        waiting.join(5)
        assert done == ["second"]


def test_time_is_a_limit() -> None:
    with spending(Limits(minutes=1)) as spent:
        with Scope.current().reserved(Amount()):
            spent._start -= 61.0
        assert limit_reached() == "--max-minutes 1"
        refused = pytest.raises(LimitReachedError, match="--max-minutes")
        with refused, Scope.current().reserved(Amount()):
            pass


def test_no_call_without_a_price_slips_through_a_limit_on_cost() -> None:
    with spending(Limits(cost=1)), pytest.raises(LimitReachedError):
        ask(ScriptedLM(reply, price=None))


def test_a_call_of_unknown_cost_took_what_was_held_for_it() -> None:
    with spending(Limits(cost=1)) as spent:
        with Scope.current().reserved(Amount(1, 100, 0.6)) as made:
            made.take(tokens=5, cost=None)
        assert (spent.total.tokens, spent.total.cost) == (5, 0.6)
        refused = pytest.raises(LimitReachedError, match="--max-cost")
        with refused, Scope.current().reserved(Amount(1, 100, 0.6)):
            pass


def test_a_dead_lm_is_told_rather_than_a_limit() -> None:
    def work() -> None:
        with spending(Limits(calls=9)):
            stop(LMUnavailableError("the server is gone"), by="openai/fake")
            assert limit_reached() == "openai/fake"
            raise StoppedError("what a command makes of a refusal")

    with pytest.raises(LMUnavailableError, match="gone"):
        work()


@pytest.mark.parametrize("limits", [Limits(tokens=40_000), Limits(cost=0.08)])
def test_a_request_without_a_limit_on_its_reply_does_not_pass_those_of_the_command(
    limits: Limits,
) -> None:
    def long_reply(hit: Hit) -> str:
        return "word" * int(hit.body.get("max_tokens", 50_000))

    with FakeServer(long_reply) as server:
        lm = make_lm("openai/fake", api_base=server.url, price="in=2,out=2", cache=False)
        with spending(limits) as spent, suppress(LimitReachedError):
            for number in range(9):
                lm(f"question {number}", max_tokens=None)
        took = [hit.prompt_tokens + hit.completion_tokens for hit in server.hits]
    assert len(took) == 2
    assert spent.total.tokens == sum(took) <= 40_000


@pytest.mark.parametrize("fault", ["reset", "reset_body", "truncated", "html"])
def test_limit_if_replies_are_lost_after_the_work_is_not_passed(fault: str) -> None:
    took: list[int] = []

    def script(hit: Hit) -> Fault:
        took.append(len(hit.prompt) // 4 + 100)  # it writes the whole reply, and loses it
        return Fault(fault)

    with FakeServer(script) as server, spending(Limits(tokens=1_000)), open_ledger() as ledger:
        lm = make_lm("openai/fake", api_base=server.url, reply_tokens=100, cache=False)
        lm.metered.caller.base_s = 0.0
        for number in range(12):
            with suppress(dspy.LMError):
                lm(f"question {number}")
    assert sum(took) <= 1_000
    totals = ledger.billed
    assert totals.unanswered == len(took)
    assert totals.possible_tokens >= sum(took)
    assert totals.possible_usd is None
    with spending(Limits(tokens=1_000)) as resumed:
        resumed.count(ledger.calls)
    assert resumed.total.tokens == totals.possible_tokens


@pytest.mark.parametrize("fault", ["400", "500", "503", "429"])
def test_limit_if_the_server_refused_takes_no_tokens(fault: str) -> None:
    with FakeServer(lambda hit: Fault(fault)) as server, open_ledger() as ledger:
        lm = make_lm("openai/fake", api_base=server.url, cache=False, retries=1, price="in=1,out=1")
        lm.metered.caller.base_s = 0.0
        lm.metered.caller.rate = None
        with spending(Limits(tokens=9_000)) as spent, suppress(dspy.LMError):
            lm("question")
    assert spent.total.tokens == 0
    assert (ledger.billed.unanswered, ledger.billed.possible_usd) == (0, 0.0)


def test_limit_if_the_server_cannot_be_reached_takes_no_tokens() -> None:
    with FakeServer() as server:
        url = server.url
    lm = make_lm("openai/fake", api_base=url, cache=False, retries=1)
    lm.metered.caller.base_s = 0.0
    with spending(Limits(tokens=9_000)) as spent, suppress(dspy.LMError):
        lm("question")
    assert spent.total.tokens == 0


def test_limit_if_the_server_ignores_max_tokens_is_passed_by_one_reply_at_most() -> None:
    with FakeServer(lambda hit: "word " * 400) as server:
        lm = make_lm("openai/fake", api_base=server.url, reply_tokens=50, cache=False)
        with spending(Limits(tokens=2_000)), suppress(LimitReachedError):
            for number in range(40):
                lm(f"question {number}")
        took = [hit.prompt_tokens + hit.completion_tokens for hit in server.hits]
    assert len(took) >= 3
    assert sum(took) <= 2_000 + max(took)


@pytest.mark.parametrize(
    ("program", "workers", "unit", "limit"),
    [("self_rag", 4, "calls", 25), ("react", 16, "tokens", 9000), ("ircot", 2, "cost", 0.01)],
)
def test_commands_given_again_pass_no_limit_by_more_than_a_call_per_worker(
    program: str, workers: int, unit: str, limit: float, server: FakeServer, tmp_path: Path
) -> None:
    """With faults, long replies, and a server that counts twice the tokens that are expected."""

    def script(hit: Hit) -> str | Fault:
        chance = random.Random(hit.number)
        if chance.random() < 0.2:
            kind = chance.choice(["429", "500", "503", "reset", "truncated", "empty"])
            return Fault(kind, retry_after=0.001)
        text = plausible(hit).replace("some ", "some " + "word " * chance.randint(0, 200))
        return text[: 2 * hit.body["max_tokens"]]

    server.script, server.characters_per_token, server.latency_s = script, 2.0, 0.002
    config = make_config({
        "program": program, "lm": "openai/fake", "api_base": server.url, "price": "in=1,out=2",
        "size": 200, "limit": 12, "workers": workers, "cache": False, "out": tmp_path / "run",
    })  # fmt: skip
    for _ in range(2):
        with limited(Limits(**{unit: limit}), config.folder()):
            bench = ready(config)
            caller = bench.lm.metered.caller  # faults at random are no rate limit and no outage
            caller.breaker = caller.rate = None
            caller.base_s = 0.0
            assert run(bench).stopped_by
    sizes = {
        "calls": [1.0 for _ in server.hits],
        "tokens": [float(hit.prompt_tokens + hit.completion_tokens) for hit in server.hits],
        "cost": [(hit.prompt_tokens + 2 * hit.completion_tokens) / 1e6 for hit in server.hits],
    }[unit]
    assert sum(sizes) <= limit + workers * max(sizes)


@contextmanager
def question(seconds: float) -> Iterator[None]:
    limited = current().plus(QuestionTime(seconds))
    with use(limited):
        context = replace(limited, deadline=question_deadline())
    with use(context):
        yield


def test_a_question_whose_time_is_over_makes_no_call_and_the_next_does() -> None:
    with FakeServer() as server:
        lm = lm_at(server)
        with question(0.0), pytest.raises(QuestionTimeoutError, match="longer than 0 s"):
            lm("first")
        with question(5.0):
            lm("of the next question")
    assert len(server.hits) == 1


@pytest.mark.parametrize("fault", ["hang", "drip", "500"])
def test_a_call_under_way_or_a_wait_for_the_next_is_broken_off(fault: str) -> None:
    with FakeServer(lambda hit: Fault(fault)) as server, open_ledger() as ledger:
        lm = make_lm("openai/fake", api_base=server.url, cache=False)
        lm.metered.caller.base_s = 60.0
        start = time.monotonic()
        with question(0.3), pytest.raises(QuestionTimeoutError):
            lm("first")
        assert time.monotonic() - start < 10  # the server would take 30 s
        assert len(server.hits) == 1
    assert [call.attempts for call in ledger.calls] == [1]


def test_the_time_of_a_question_tells_nothing_of_the_server() -> None:
    with FakeServer(lambda hit: Fault("hang") if hit.number <= 12 else plausible(hit)) as server:
        lm = make_lm("openai/fake", api_base=server.url, cache=False, patience=0.0)
        for number in range(12):
            with question(0.05), pytest.raises(dspy.LMError):
                lm(f"question {number}")
        lm("the server is not taken to be down")
    assert len(server.hits) == 13


def test_a_question_out_of_time_is_a_failure_of_the_boundary_limit(
    server: FakeServer, tmp_path: Path
) -> None:
    server.script = lambda hit: plausible(hit) if hit.number == 1 else Fault("hang")
    config = make_config({
        "program": "ircot", "lm": "openai/fake", "api_base": server.url, "limit": 1,
        "size": 100, "cache": False, "question_timeout": 2.0, "out": tmp_path / "run",
    })  # fmt: skip
    [record] = evaluate(config).records.values()
    assert record.failure is not None
    assert (record.failure.boundary, record.failure.error) == ("limit", "QuestionTimeoutError")
    assert len(server.hits) == len(record.ledger.calls) == 2
