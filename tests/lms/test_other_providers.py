"""Providers that LiteLLM carries: metered, limited, cached and refused as all others are."""

import time
from collections.abc import Iterator
from dataclasses import replace

import dspy
import pytest

from ragbench import stopping
from ragbench.context import Deadline, current, use
from ragbench.errors import LMSetupError
from ragbench.ledger import open_ledger
from ragbench.lms import make_lm
from ragbench.lms.calls import CallRefusedError, Limits, QuestionTimeoutError, spending
from tests.fake_server import FakeServer, Fault, Hit


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TOGETHERAI", "TOGETHER_AI", "TOGETHER", "COHERE", "CO", "AZURE", "NEBIUS"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    monkeypatch.setenv("MISTRAL_API_KEY", "mistral-secret-key")
    yield
    stopping.reset()


SPECS = ["mistral/mistral-small-latest", "together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo"]


@pytest.mark.parametrize("spec", SPECS)
def test_a_call_is_sent_priced_and_filed(spec: str) -> None:
    with FakeServer(lambda hit: "Paris") as server, open_ledger() as ledger:
        lm = make_lm(spec, api_base=server.url, price="in=1,out=2", cache=False, seed=None)
        lm.check()
        assert lm("Which city?") == ["Paris"]
    [hit] = server.hits
    assert hit.body["model"] == spec.partition("/")[2]
    assert hit.key == ("mistral-secret-key" if spec.startswith("mistral") else "none")
    [call] = ledger.calls
    assert call.model == f"{spec}@{server.url.removeprefix('http://')}"
    assert (call.prompt_tokens, call.completion_tokens) == (hit.prompt_tokens, 2)
    assert call.cost_usd == pytest.approx((hit.prompt_tokens + 2 * 2) / 1e6)


def test_a_refusal_for_the_rate_is_tried_again_and_a_bad_request_is_not() -> None:
    def script(hit: Hit) -> str | Fault:
        if "bad" in hit.prompt:
            return Fault("400")
        return Fault("429", retry_after=0.01) if hit.number == 1 else "Paris"

    with FakeServer(script) as server, open_ledger() as ledger:
        lm = make_lm(SPECS[0], api_base=server.url, cache=False)
        assert lm("Which city?") == ["Paris"]
        with pytest.raises(dspy.LMInvalidRequestError):
            lm("a bad one")
    assert [(c.attempts, c.error) for c in ledger.calls] == [
        (2, None),
        (1, "LMInvalidRequestError"),
    ]
    assert len(server.hits) == 3


def test_limits_hold_and_nothing_is_sent_after_a_stop() -> None:
    with FakeServer(lambda hit: "Paris") as server:
        lm = make_lm(SPECS[0], api_base=server.url, cache=False)
        with spending(Limits(calls=1)):
            lm("one")
            with pytest.raises(CallRefusedError):
                lm("two")
        stopping.stop_all()
        with pytest.raises(CallRefusedError):
            lm("three")
    assert len(server.hits) == 1


def test_a_question_without_time_left_waits_for_no_reply() -> None:
    with FakeServer(lambda hit: Fault("hang", seconds=60)) as server:
        lm = make_lm(SPECS[0], api_base=server.url, cache=False, retries=0)
        deadline = Deadline(0.5, at=time.monotonic() + 0.5)
        with use(replace(current(), deadline=deadline)), pytest.raises(QuestionTimeoutError):
            lm("one")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("cohere/command-r", "cohere needs COHERE_API_KEY in the environment"),
        ("azure/mine", r"AZURE_API_BASE \(or --api-base\) and .*AZURE_API_KEY"),
        ("nebius/x", "nebius needs NEBIUS_API_KEY"),
    ],
)
def test_a_missing_key_is_named_before_anything_is_sent(spec: str, words: str) -> None:
    with pytest.raises(LMSetupError, match=words):
        make_lm(spec).check()


def test_bedrock_and_vertex_take_their_own_credentials() -> None:
    for spec in ("bedrock/anthropic.claude-3-haiku-20240307-v1:0", "vertex_ai/gemini-2.5-flash"):
        make_lm(spec).check()
