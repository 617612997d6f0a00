"""Providers of other protocols, and those of LiteLLM: metered, limited and refused as all are."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.context import Deadline, allow_calls, current, stop_all, use
from ragbench.ledger import OpenLedger, open_ledger
from ragbench.lms.calls import CallRefusedError, Limits, QuestionTimeoutError, spending
from ragbench.lms.factory import make_lm
from tests.fake_server import FakeServer, Fault, Hit, completion
from tests.retrievers.wire import serving

KEY = "sk-key/of+the\"test'0123456789"
MISTRAL = "mistral/mistral-small-latest"
TOGETHER = "together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo"


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    unset = [f"{name}_API_KEY" for name in ("TOGETHERAI", "TOGETHER_AI", "TOGETHER", "CO", "AZURE")]
    for name in (*unset, "NEBIUS_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    given = {
        "MISTRAL_API_KEY": "mistral-secret-key",
        "COHERE_API_KEY": "cohere-secret",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "aws-secret",
        "AWS_REGION_NAME": "us-east-1",
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    yield
    allow_calls()


def test_limits_the_questions_time_and_a_stop_hold() -> None:
    with FakeServer(lambda hit: Fault("hang") if "slow" in hit.prompt else "Paris") as server:
        lm = make_lm(MISTRAL, api_base=server.url, cache=False, retries=0)
        with spending(Limits(calls=1)):
            lm("one")
            with pytest.raises(CallRefusedError):
                lm("two")
        deadline = Deadline(0.5, at=time.monotonic() + 0.5)
        with use(replace(current(), deadline=deadline)), pytest.raises(QuestionTimeoutError):
            lm("slow")
        stop_all()
        with pytest.raises(CallRefusedError):
            lm("three")
    assert len(server.hits) == 2


CLAUDE = "anthropic.claude-3-haiku-20240307-v1:0"
COHERE = {
    "id": "1",
    "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "Paris"}]},
    "usage": {"tokens": {"input_tokens": 11, "output_tokens": 2}},
}
BEDROCK = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Paris"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 11, "outputTokens": 2, "totalTokens": 13},
    "metrics": {"latencyMs": 5},
}
OPENAI = completion(Hit(1, "", {}, prompt_tokens=11, completion_tokens=2), "Paris")
CHAT, CONVERSE = "/v1/chat/completions", f"/model/{CLAUDE.replace(':', '%3A')}/converse"
SIGNED = "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/.*/bedrock/"
WIRES = [
    (MISTRAL, "/v1", CHAT, OPENAI, "Bearer mistral-secret-key"),
    (TOGETHER, "/v1", CHAT, OPENAI, "Bearer none"),
    ("cohere/command-r", "/v2/chat", "/v2/chat", COHERE, "Bearer cohere-secret"),
    (f"bedrock/{CLAUDE}", "", CONVERSE, BEDROCK, SIGNED),
]


@pytest.mark.parametrize(("spec", "base", "path", "reply", "signed"), WIRES)
@pytest.mark.parametrize(
    ("status", "error"), [(200, None), (429, "LMRateLimitError"), (500, "LMServerError")]
)
def test_a_providers_own_wire(
    spec: str, base: str, path: str, reply: Any, signed: str, status: int, error: str | None
) -> None:
    paths = []

    def answer(at: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        paths.append(at)
        return status, reply if status == 200 else {"message": f"scripted {status}"}

    with serving(answer) as wire, open_ledger() as ledger:
        address = wire.address.removesuffix("/v1") + base
        lm = make_lm(spec, api_base=address, cache=False, retries=0, price="in=1,out=2")
        lm.check()
        lm.metered.caller.rate = None  # which would try a rejected call again
        with suppress(dspy.LMError):
            assert lm("Which city?") == ["Paris"]
    assert {*paths} == {path}
    assert wire.requests[0].get("model", "") in (spec.partition("/")[2], "")
    assert all(re.match(signed, key or "") for key in wire.keys)
    [call] = ledger.calls
    assert call.model == f"{spec}@{address.removeprefix('http://')}"
    assert (call.error, call.attempts) == (error, len(wire.requests))
    if not error:
        assert (call.prompt_tokens, call.completion_tokens) == (11, 2)
        assert call.cost_usd == pytest.approx((11 + 2 * 2) / 1e6)


COUNTS = {"input_tokens": 10, "output_tokens": 3}
GEMINI_COUNTS = {"promptTokenCount": 10, "candidatesTokenCount": 3}
SAID = {"type": "text", "text": "Paris"}


def anthropic(*content: Any, stop: Any = "end_turn", **more: Any) -> dict[str, Any]:
    """A reply of Anthropic's Messages."""
    begun = {"type": "message", "role": "assistant", "content": list(content), "usage": COUNTS}
    return {**begun, "stop_reason": stop, **more}


def gemini(*parts: Any, stop: str = "STOP", **more: Any) -> dict[str, Any]:
    """A reply of Gemini's generateContent."""
    candidate = {"content": {"parts": list(parts)}, "finishReason": stop}
    return {"candidates": [candidate], "usageMetadata": GEMINI_COUNTS, **more}


def ask(reply: dict[str, Any]) -> tuple[Any, OpenLedger]:
    """What an LM gives when its server always sends `reply`."""
    spec = "anthropic/claude-sonnet-4-5" if "content" in reply else "gemini/gemini-2.5-flash"
    spec = f"bedrock/{CLAUDE}" if "output" in reply else spec
    with serving(lambda path, body: (200, reply)) as server, open_ledger() as ledger:
        settings: dict[str, Any] = {"cache": False, "retries": 0, "price": "in=1,out=2"}
        try:
            return make_lm(spec, api_base=server.address, **settings)("Which city?"), ledger
        except dspy.LMError as error:
            return error, ledger


@pytest.mark.parametrize(
    "reply",
    [
        anthropic(stop="pause_turn"),
        anthropic(None, 7),
        anthropic(SAID, type="error", error={"message": "Overloaded"}),
        gemini(None),
        gemini(candidates=[]),
        gemini({"text": "Paris"}, error={"code": 503}),
    ],
)
def test_a_reply_without_content_is_an_error_of_the_server(reply: Any) -> None:
    found, ledger = ask(reply)
    assert isinstance(found, dspy.LMServerError)
    assert [call.error for call in ledger.calls] == ["LMServerError"]


def test_an_ending_for_length_needs_no_content_and_a_blocked_answer_is_billed() -> None:
    found, ledger = ask(anthropic(stop="max_tokens"))
    assert (found, ledger.calls[0].error) == ([""], None)
    found, ledger = ask(gemini(stop="SAFETY"))
    assert isinstance(found, dspy.LMInvalidRequestError)
    [call] = ledger.calls
    assert call.failed is not None
    assert (call.failed.prompt_tokens, call.failed.completion_tokens) == (10, 3)


@pytest.mark.parametrize(
    "reply",
    [
        anthropic(SAID, usage={**COUNTS, "cache_read_input_tokens": 10**15}),
        gemini({"text": "Paris"}, usageMetadata={"promptTokenCount": "ten"}),
        gemini({"text": "Paris"}, usageMetadata={**GEMINI_COUNTS, "thoughtsTokenCount": 10**20}),
        {**BEDROCK, "usage": {"inputTokens": 10**15, "outputTokens": 2, "totalTokens": 10**15}},
    ],
)
def test_token_counts_that_cannot_be_are_estimated(reply: Any) -> None:
    found, ledger = ask(reply)
    assert found == ["Paris"]
    [call] = ledger.calls
    assert 0 < call.prompt_tokens < 50
    assert 0 < call.completion_tokens < 50
    assert call.paid_usd is None


@pytest.mark.parametrize(
    "reply",
    [
        anthropic({"type": "thinking", "thinking": KEY, "signature": KEY}, SAID),
        anthropic({"type": "tool_use", "id": KEY, "name": "look", "input": {KEY: [{"at": KEY}]}}),
        gemini({"functionCall": {"name": "look", "args": {"query": KEY}}}),
        gemini({"text": KEY, "thought": True}, {"text": "Paris"}),
    ],
)
def test_no_part_of_a_reply_keeps_an_echoed_key(reply: Any) -> None:
    text = json.dumps(ask(reply)[0], default=str)
    assert "[ANTHROPIC_API_KEY]" in text or "[GEMINI_API_KEY]" in text
    assert "0123456789" not in text
