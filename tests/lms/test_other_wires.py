"""Cohere's and Bedrock's own wires, through LiteLLM to a server on loopback: whole runs."""

import re
from pathlib import Path
from typing import Any

import dspy
import pytest

import ragbench as rb
from ragbench.experiments.runs.runner import classify
from ragbench.ledger import open_ledger
from ragbench.lms import make_lm
from tests.fake_server import Hit, plausible
from tests.kills import write_questions
from tests.retrievers.wire import serving

CLAUDE = "anthropic.claude-3-haiku-20240307-v1:0"


def cohere(text: str) -> dict[str, Any]:
    """A reply of Cohere's chat, version 2."""
    return {
        "id": "1",
        "finish_reason": "COMPLETE",
        "message": {"role": "assistant", "content": [{"type": "text", "text": text}]},
        "usage": {"tokens": {"input_tokens": 11, "output_tokens": 2}},
    }


def bedrock(text: str) -> dict[str, Any]:
    """A reply of Bedrock's Converse."""
    return {
        "output": {"message": {"role": "assistant", "content": [{"text": text}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 11, "outputTokens": 2, "totalTokens": 13},
        "metrics": {"latencyMs": 5},
    }


@pytest.fixture(autouse=True)
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "RAGBENCH_CACHE": str(tmp_path / "cache"),
        "COHERE_API_KEY": "cohere-secret",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "aws-secret",
        "AWS_REGION_NAME": "us-east-1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for name in ("CO_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


WIRES = [
    ("cohere/command-r", "/v2/chat", cohere, r"Bearer cohere-secret"),
    (f"bedrock/{CLAUDE}", "", bedrock, r"AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/.*/bedrock/"),
]


@pytest.mark.parametrize(("spec", "path", "reply", "signed"), WIRES)
def test_a_run_over_the_providers_own_wire(
    spec: str, path: str, reply: Any, signed: str, tmp_path: Path
) -> None:
    paths = []

    def answer(at: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        paths.append(at)
        messages = [*(body.get("system") or []), *body["messages"]]
        texts = [part.get("text") or _text(part["content"]) for part in messages]
        return 200, reply(plausible(Hit(1, "\n\n".join(texts), body)))

    with serving(answer) as wire:
        address = wire.address.removesuffix("/v1") + path
        run = rb.evaluate(
            "vanilla", "jsonl", data_file=write_questions(tmp_path, 2), lm=spec, api_base=address,
            price="in=1,out=2", adapter="chat", k=1, split="all",
        )  # fmt: skip
    assert {*paths} == {path or f"/model/{CLAUDE.replace(':', '%3A')}/converse"}
    assert all(re.match(signed, key or "") for key in wire.keys)
    assert len(run.records) == 2
    for record in run.records:
        assert record.answer == "some answer"
        [call] = record.ledger.calls
        assert (call.prompt_tokens, call.completion_tokens) == (11, 2)
        assert call.cost_usd == pytest.approx((11 + 2 * 2) / 1e6)
        assert call.model.startswith(f"{spec}@127.0.0.1:")
    files = [file for file in run.folder.rglob("*") if file.is_file()]
    kept = [file.read_bytes().decode("utf-8", "replace") for file in files]
    assert "secret" not in "".join(kept)


@pytest.mark.parametrize(("status", "kind"), [(429, "LMRateLimitError"), (500, "LMServerError")])
@pytest.mark.parametrize(("spec", "path"), [wire[:2] for wire in WIRES])
def test_a_refusal_and_a_failure_have_their_class(
    spec: str, path: str, status: int, kind: str
) -> None:
    with serving(lambda at, body: (status, {"message": f"scripted {status}"})) as wire:
        lm = make_lm(spec, api_base=wire.address.removesuffix("/v1") + path, cache=False, retries=0)
        lm.metered.caller.rate = None  # which would try a rejected call again
        with open_ledger() as ledger, pytest.raises(dspy.LMError) as raised:
            lm("Which city?")
    assert classify(raised.value).name == f"provider/{kind}"
    assert [call.error for call in ledger.calls] == [kind]
    assert len(wire.requests) == ledger.calls[0].attempts


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
