"""Token counts of any shape hurt no answer, and limits hold whatever a server counts."""

from contextlib import suppress
from typing import Any

import dspy
import pytest

from ragbench.ledger import fan_out, open_ledger
from ragbench.lms.calls import LimitReachedError, Limits, spending
from ragbench.lms.calls.client import reported_usage
from tests.fake_server import FakeServer, Fault
from tests.wire import ask, lm_at

BIG = 19_999_999
PLAIN = {"prompt_tokens": 100, "completion_tokens": 9}
#: What is counted wrongly, and the counts that are kept.
ODD: list[tuple[Any, int | None, int | None]] = [
    (PLAIN, 100, 9),
    ({**PLAIN, "completion_tokens_details": {"reasoning_tokens": -4}}, 100, 9),
    ({"prompt_tokens": -1, "completion_tokens": 9}, None, 9),
    ({"prompt_tokens": 100, "completion_tokens": None}, 100, None),
    ({"prompt_tokens": 100, "completion_tokens": 2**70}, 100, None),
    ({"prompt_tokens": 1e2, "completion_tokens": True}, None, None),
    ({"prompt_tokens": "100", "completion_tokens": "9"}, None, None),
    ({**PLAIN, "completion_tokens_details": [1], "prompt_tokens_details": "none"}, 100, 9),
    ({**PLAIN, "prompt_tokens_details": {"cached_tokens": 500}}, 100, 9),
    ({"input_tokens": 100, "output_tokens": 9, "cache_read_input_tokens": -7}, 100, 9),
    ({}, None, None),
]


@pytest.mark.parametrize(("usage", "sent", "got"), ODD)
def test_counts_are_checked_one_by_one_and_the_answer_stays(
    usage: Any, sent: int | None, got: int | None
) -> None:
    told = reported_usage({"usage": usage}, "openai")
    assert told is not None
    assert (told.input_tokens, told.output_tokens) == (sent, got)
    script = lambda hit: Fault("changed", json={"usage": usage})  # noqa: E731
    with FakeServer(script) as server, open_ledger() as ledger:
        assert ask(lm_at(server)) == "some answer"
        assert len(server.hits) == 1
    [call] = ledger.calls
    assert call.prompt_tokens == sent or (sent is None and call.prompt_tokens > 50)
    assert call.completion_tokens == got or (got is None and call.completion_tokens < 100)


@pytest.mark.parametrize("usage", [None, [], "many", 7])
def test_usage_of_another_shape_is_none(usage: Any) -> None:
    assert reported_usage({"usage": usage, "usageMetadata": usage}, "gemini") is None


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": BIG, "completion_tokens": 9},
        {"prompt_tokens": 100, "completion_tokens": BIG},
        {"prompt_tokens": "many", "completion_tokens": float("nan")},
        ["no", "object"],
    ],
)
def test_usage_if_impossible_is_estimated_and_the_call_is_sent_once(usage: Any) -> None:
    script = lambda hit: Fault("changed", json={"usage": usage})  # noqa: E731
    with FakeServer(script) as server, open_ledger() as ledger:
        assert ask(lm_at(server)) == "some answer"
        assert len(server.hits) == 1
    assert 50 < ledger.calls[0].prompt_tokens < 1000
    assert 0 < ledger.calls[0].completion_tokens < 1000


WORDS = {"english": "the harbour of Bergen ", "hindi": "बेर्गन का बंदरगाह ", "chinese": "卑尔根的港口"}


@pytest.mark.parametrize(
    ("language", "density"), [("english", 4.0), ("hindi", 1.0), ("chinese", 2.0)]
)
def test_a_limit_holds_within_one_call_with_64_in_flight(language: str, density: float) -> None:
    """At a token a character and long replies, with all calls begun at once."""
    with FakeServer(
        lambda hit: "word " * 40, latency_s=0.02, characters_per_token=density
    ) as server:
        lm = lm_at(server, price="in=10,out=10", reply_tokens=256)
        prompt = WORDS[language] * 30

        def work(n: int) -> None:
            with suppress(LimitReachedError):
                for turn in range(3):
                    lm(f"{n} {turn} {prompt}")

        with spending(Limits(tokens=20_000)), open_ledger():
            fan_out(work, list(range(64)))
        took = [hit.prompt_tokens + hit.completion_tokens for hit in server.hits]
    assert took
    assert sum(took) <= 20_000 + max(took)


def test_a_reply_of_20_000_tool_calls_ends_soon() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call] * 20_000}
    reply = {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}
    said = pytest.raises(dspy.LMServerError, match="20,000 tool calls")
    with FakeServer(lambda hit: Fault("changed", json=reply)) as server, said:
        lm_at(server, retries=0)("Where?")


@pytest.mark.parametrize("ended", ["st\ud800op", "\udfff"])
def test_half_of_a_character_in_the_finish_reason_is_no_traceback(ended: str) -> None:
    message = {"role": "assistant", "content": "[[ ## answer ## ]]\nParis"}
    reply = {"choices": [{"index": 0, "finish_reason": ended, "message": message}]}
    script = lambda hit: Fault("changed", json=reply)  # noqa: E731
    with FakeServer(script) as server, open_ledger(), suppress(dspy.LMError):
        assert ask(lm_at(server, retries=0)) == "Paris"
