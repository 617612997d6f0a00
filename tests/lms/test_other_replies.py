"""Hostile replies in Anthropic's and Gemini's formats: counted, bounded and without keys."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.ledger import OpenLedger, open_ledger
from ragbench.lms import RagbenchLM, make_lm
from tests.retrievers.wire import serving

SPECS = {"anthropic": "anthropic/claude-sonnet-4-5", "gemini": "gemini/gemini-2.5-flash"}
KEY = "sk-key/of+the\"test'0123456789"
COUNTS = {"input_tokens": 10, "output_tokens": 3}
GEMINI_COUNTS = {"promptTokenCount": 10, "candidatesTokenCount": 3}


def anthropic(*content: Any, stop: Any = "end_turn", **more: Any) -> dict[str, Any]:
    """A reply of Anthropic's Messages."""
    begun = {"type": "message", "role": "assistant", "content": list(content), "usage": COUNTS}
    return {**begun, "stop_reason": stop, **more}


def gemini(*parts: Any, stop: str = "STOP", **more: Any) -> dict[str, Any]:
    """A reply of Gemini's generateContent."""
    candidate = {"content": {"parts": list(parts)}, "finishReason": stop}
    return {"candidates": [candidate], "usageMetadata": GEMINI_COUNTS, **more}


SAID = {"type": "text", "text": "Paris"}


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)


def ask(wire: str, reply: dict[str, Any]) -> tuple[Any, OpenLedger]:
    """What an LM gives when its server always sends `reply`."""
    with serving(lambda path, body: (200, reply)) as server, open_ledger() as ledger:
        settings: dict[str, Any] = {"cache": False, "retries": 0, "price": "in=1,out=2"}
        lm: RagbenchLM = make_lm(SPECS[wire], api_base=server.address, **settings)
        try:
            return lm("Which city is the capital?"), ledger
        except dspy.LMError as error:
            return error, ledger


NO_COMPLETIONS = [
    ("anthropic", anthropic()),
    ("anthropic", anthropic(stop="pause_turn")),
    ("anthropic", anthropic(None, 7)),
    ("anthropic", anthropic({"type": "text", "text": None})),
    ("anthropic", anthropic(SAID, type="error", error={"message": "Overloaded"})),
    ("gemini", gemini()),
    ("gemini", gemini(None)),
    ("gemini", gemini(candidates=[])),
    ("gemini", gemini(candidates=[None])),
    ("gemini", gemini(candidates=[{"finishReason": "OTHER"}])),
    ("gemini", gemini({"text": "Paris"}, error={"code": 503})),
]


@pytest.mark.parametrize(("wire", "reply"), NO_COMPLETIONS)
def test_a_reply_without_content_is_an_error_of_the_server(wire: str, reply: Any) -> None:
    found, ledger = ask(wire, reply)
    assert isinstance(found, dspy.LMServerError)
    [call] = ledger.calls
    assert call.error == "LMServerError"


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
def test_an_ending_for_length_or_a_refusal_needs_no_content(stop: str) -> None:
    found, ledger = ask("anthropic", anthropic(stop=stop))
    assert found == [""]
    assert ledger.calls[0].error is None


COUNTS_THAT_CANNOT_BE = [
    ("anthropic", anthropic(SAID, usage={**COUNTS, "cache_read_input_tokens": 10**15})),
    ("gemini", gemini({"text": "Paris"}, usageMetadata={"promptTokenCount": -1})),
    ("gemini", gemini({"text": "Paris"}, usageMetadata={"promptTokenCount": "ten"})),
    (
        "gemini",
        gemini({"text": "Paris"}, usageMetadata={**GEMINI_COUNTS, "thoughtsTokenCount": 10**20}),
    ),
    (
        "gemini",
        gemini({"text": "Paris"}, usageMetadata={**GEMINI_COUNTS, "cachedContentTokenCount": 999}),
    ),
]


@pytest.mark.parametrize(("wire", "reply"), COUNTS_THAT_CANNOT_BE)
def test_token_counts_that_cannot_be_are_estimated(wire: str, reply: Any) -> None:
    found, ledger = ask(wire, reply)
    assert found == ["Paris"]
    [call] = ledger.calls
    assert 0 < call.prompt_tokens < 50
    assert 0 < call.completion_tokens < 50
    assert call.paid_usd is None


ECHOES = [
    ("anthropic", anthropic({"type": "thinking", "thinking": KEY, "signature": KEY}, SAID)),
    (
        "anthropic",
        anthropic({"type": "tool_use", "id": KEY, "name": "look", "input": {KEY: [{"deep": KEY}]}}),
    ),
    ("gemini", gemini({"functionCall": {"name": "look", "args": {"query": KEY}}})),
    ("gemini", gemini({"text": KEY, "thought": True}, {"text": "Paris"})),
]


@pytest.mark.parametrize(("wire", "reply"), ECHOES)
def test_no_part_of_a_reply_keeps_an_echoed_key(wire: str, reply: Any) -> None:
    found, _ = ask(wire, reply)
    text = json.dumps(found, default=str)
    assert "[ANTHROPIC_API_KEY]" in text or "[GEMINI_API_KEY]" in text
    assert "0123456789" not in text


def test_what_gemini_bills_for_a_blocked_answer_is_counted() -> None:
    found, ledger = ask("gemini", gemini(stop="SAFETY"))
    assert isinstance(found, dspy.LMInvalidRequestError)
    [call] = ledger.calls
    assert call.failed is not None
    assert (call.failed.prompt_tokens, call.failed.completion_tokens) == (10, 3)
