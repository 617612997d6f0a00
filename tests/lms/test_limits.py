"""Limits: nothing is sent past them, whoever asks, and what is under way counts."""

import math
import threading
from contextlib import suppress

import pytest
from dspy.lm15 import Message, Request, Response, TextPart, Usage

from ragbench.errors import ConfigError, LMUnavailableError, StoppedError
from ragbench.ledger import fan_out, open_ledger
from ragbench.lms import make_lm
from ragbench.lms.calls import (
    Amount,
    LimitReachedError,
    Limits,
    Scope,
    check_price,
    spending,
    stop,
    stopped_by,
)
from ragbench.lms.lm import prompt_tokens
from tests.fake_server import FakeServer, Hit
from tests.fakes import Asked, Reply, ScriptedLM, rate_limited


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
        assert stopped_by() == "--max-calls 4"
    assert len(lm.asked) == spent.total.calls == 4
    assert [call.attempts for call in ledger.calls] == [1, 3]  # filed, though it was refused
    assert ledger.refused
    lm.client.script = reply
    ask(lm)  # outside of the block nothing is refused
    assert stopped_by() == ""
    with pytest.raises(ConfigError, match="is no number"):
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
        assert stopped_by() == "--max-minutes 1"
        refused = pytest.raises(LimitReachedError, match="--max-minutes")
        with refused, Scope.current().reserved(Amount()):
            pass


def test_unknown_price_is_refused_under_a_limit_on_cost() -> None:
    check_price("m", known=False)
    with spending(Limits(calls=1)):
        check_price("m", known=False)
    with spending(Limits(cost=1)):
        check_price("m", known=True)
        with pytest.raises(ConfigError, match=r"no price is known for m, so --max-cost 1 .*give"):
            check_price("m", known=False)
        with pytest.raises(LimitReachedError):  # and none slips through
            ask(ScriptedLM(reply, price=None))


def test_a_dead_lm_is_told_rather_than_a_limit() -> None:
    def work() -> None:
        with spending(Limits(calls=9)):
            stop(LMUnavailableError("the server is gone"), by="openai/fake")
            assert stopped_by() == "openai/fake"
            raise StoppedError("what a command makes of a refusal")

    with pytest.raises(LMUnavailableError, match="gone"):
        work()


def test_a_server_that_counts_more_tokens_than_estimated_is_learned() -> None:
    def dense(request: Request) -> Response:
        message = Message.assistant([TextPart("word")])
        sent = 3 * prompt_tokens(request)
        return Response(None, request.model, message, "stop", Usage(sent, 1, sent + 1))

    lm = ScriptedLM(reply, max_tokens=10)
    lm.client.complete = dense  # type: ignore[method-assign]
    with spending(Limits(tokens=10_000)) as spent:
        with suppress(LimitReachedError):
            for number in range(100):
                lm(f"{number} " + "word " * 400)  # 500 tokens by the estimate, 1,500 by the server
        assert 8_000 < spent.total.tokens <= 10_000


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
