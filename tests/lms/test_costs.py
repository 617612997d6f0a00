"""What a call costs: list price and price paid, a provider's own cache, attempts that failed."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.ledger import open_ledger
from ragbench.lms.calls import Limits, spending
from ragbench.lms.factory import make_lm
from ragbench.lms.reply_cache import configure_cache
from ragbench.record import Call, FailedAttempts, Ledger, billed, parse_call
from tests.fake_server import FakeServer, Fault, Hit, Script, plausible
from tests.wire import ask, lm_at

PRICE = "in=1,out=2,cached=0.25"
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


def asked(lm: dspy.LM, times: int = 1) -> Ledger:
    with open_ledger() as ledger:
        for _ in range(times):
            ask(lm)
    return ledger


def caching(hit: Hit) -> Fault:
    """A provider that serves most of the prompt from its cache from the second time on."""
    details = {"prompt_tokens_details": {"cached_tokens": 800 if hit.number > 1 else 0}}
    return Fault("changed", json={"usage": {**USAGE, **details}})


def test_a_providers_cache_lowers_what_is_paid_and_our_own_keeps_both_prices(
    tmp_path: Path,
) -> None:
    with FakeServer(caching) as server:
        first, second = asked(lm_at(server, price=PRICE), times=2).calls
        configure_cache(tmp_path)
        ledger = asked(lm_at(server, price=PRICE, cache=True))
        configure_cache(tmp_path)
        again = asked(lm_at(server, price=PRICE, cache=True))
        assert len(server.hits) == 3
    assert first.cost_usd == second.cost_usd == pytest.approx(0.0012)
    assert (first.paid_usd, first.cache_read_tokens) == (None, 0)
    assert second.paid == pytest.approx((200 + 0.25 * 800 + 2 * 100) / 1e6)
    assert (second.prompt_tokens, second.cache_read_tokens) == (1000, 800)
    assert ledger.as_if.cost_usd == ledger.billed.list_usd == pytest.approx(0.0012)
    assert ledger.billed.cost_usd == pytest.approx(0.0006)
    (call,) = again.calls
    assert (call.cached, call.cost_usd) == (True, pytest.approx(0.0012))
    assert call.paid_usd == pytest.approx(0.0006)
    assert again.billed.cost_usd == again.billed.list_usd == 0
    assert again.as_if.cost_usd == pytest.approx(0.0012)


def test_anthropic_counts_its_cache_apart_and_writing_to_it_costs_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    usage = {"input_tokens": 200, "output_tokens": 100}
    cache = {"cache_read_input_tokens": 500, "cache_creation_input_tokens": 300}
    text = "[[ ## answer ## ]]\nsome answer\n\n[[ ## completed ## ]]"
    reply = {
        "id": "m", "type": "message", "role": "assistant", "model": "claude-haiku-4-5",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
        "usage": {**usage, **cache},
    }  # fmt: skip
    with FakeServer(lambda hit: Fault("body", json=reply)) as server:
        lm = make_lm("anthropic/claude-haiku-4-5", api_base=server.url, cache=False, price=PRICE)
        (call,) = asked(lm).calls
        by_map = make_lm("anthropic/claude-haiku-4-5", cache=False).pricing
        assert by_map.known
        lm.metered.pricing = by_map
        (priced,) = asked(lm).calls
    counted = (call.prompt_tokens, call.cache_read_tokens, call.cache_write_tokens)
    assert counted == (1000, 500, 300)
    assert call.cost_usd == pytest.approx((1000 + 2 * 100) / 1e6)
    assert call.paid == pytest.approx((500 + 0.25 * 500 + 2 * 100) / 1e6)
    # 1 and 5 dollars a million; read at a tenth of that, written at five quarters of it
    assert priced.cost_usd == pytest.approx((1000 + 5 * 100) / 1e6)
    assert priced.paid == pytest.approx((200 + 0.1 * 500 + 1.25 * 300 + 5 * 100) / 1e6)


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Fault("500", json={"usage": USAGE}), 2),
        # A reply without a content is asked for once more, and no oftener.
        (Fault("body", json={"choices": [{"message": 7}], "usage": USAGE}), 1),
    ],
)
def test_an_attempt_that_failed_is_filed_with_what_its_reply_says_it_took(
    fault: Fault, times: int
) -> None:
    script: Script = lambda hit: fault if hit.number <= times else plausible(hit)  # noqa: E731
    with FakeServer(script) as server, spending(Limits(tokens=10**6)) as spent:
        ledger = asked(lm_at(server, price=PRICE))
    (call,) = ledger.calls
    assert call.failed == FailedAttempts(1000 * times, 100 * times, pytest.approx(0.0012 * times))
    assert (call.error, call.attempts) == (None, times + 1)
    assert ledger.as_if.tokens == call.prompt_tokens + call.completion_tokens
    assert ledger.billed.tokens == ledger.as_if.tokens + 1100 * times == spent.total.tokens
    assert ledger.billed.failed_tokens == 1100 * times
    assert ledger.billed.cost_usd == pytest.approx((call.cost_usd or 0) + 0.0012 * times)
    assert spent.total.cost == pytest.approx(ledger.billed.cost_usd)
    failing = pytest.raises(dspy.LMServerError)
    with FakeServer(lambda hit: fault) as server, open_ledger() as ledger, failing:
        ask(lm_at(server, retries=1, price=PRICE))
    assert (ledger.as_if.tokens, ledger.as_if.cost_usd) == (0, 0)
    assert (ledger.billed.tokens, ledger.billed.attempts) == (2200, 2)


@pytest.mark.parametrize("usage", [[], {"prompt_tokens": "many"}, {"prompt_tokens": 2**70}])
def test_what_no_reply_tells_was_billed_nothing_known_and_makes_a_sum_unknown(usage: Any) -> None:
    faults = iter([Fault("500", json={"usage": usage}), Fault("reset")])
    with FakeServer(lambda hit: next(faults, None) or plausible(hit)) as server:
        (call,) = asked(lm_at(server)).calls
    assert call.failed is not None  # the reply to one request was lost
    assert (call.failed.prompt_tokens, call.failed.unanswered, call.attempts) == (0, 1, 3)
    known = Call("m", cost_usd=0.5, paid_usd=0.2, failed=FailedAttempts(7, 1, 0.1))
    assert parse_call(json.loads(json.dumps(asdict(known)))) == known
    assert billed([known]).cost_usd == pytest.approx(0.3)
    assert (billed([call]) + billed([known])).cost_usd is None


def test_limits_count_what_earlier_processes_paid_and_lost_on_failed_attempts() -> None:
    lost = FailedAttempts(7, 1, 0.25)
    sent = [
        Call("m", prompt_tokens=10, completion_tokens=2, cost_usd=2.0, paid_usd=1.0, failed=lost),
        Call("m", error="LMServerError", attempts=3, failed=lost),
        Call("m", prompt_tokens=100, cost_usd=9.0, cached=True),
        Call("of this process", kind="embed", prompt_tokens=99, cost_usd=0.0),
    ]
    with spending(Limits(cost=5.0)) as spent:
        spent.count(sent)
    assert (spent.total.calls, spent.total.tokens, spent.total.cost) == (4, 28, 1.5)
    with spending(Limits(tokens=5)) as spent:
        spent.count([Call("m", prompt_tokens=1)])
    assert math.isinf(spent.total.cost)
