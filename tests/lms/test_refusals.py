"""What a failed reply means: one table for all providers, and a rule for what it does not know."""

from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.experiments.store import read_records
from ragbench.ledger import open_ledger
from ragbench.lms.calls.refusals import meaning, table
from ragbench.lms.factory import make_lm
from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.wire import ask, eval_towns, lm_at

#: Provider, status and words as they come, and what they mean.
MEANINGS = [
    ("anthropic", 400, "Your credit balance is too low to access the Anthropic API.", "money"),
    ("anthropic", 400, "You have reached your specified API usage limits.", "money"),
    ("openai", 400, "Billing hard limit has been reached billing_hard_limit_reached", "money"),
    ("openai", 429, "You exceeded your current quota, please check your plan", "money"),
    ("openai", 429, "Your account is not active, please check your billing details", "money"),
    ("openrouter", 402, "This request requires more credits", "money"),
    ("openrouter", 403, "Key limit exceeded (total limit).", "money"),
    ("openrouter", 429, "Rate limit exceeded: free-models-per-day. Add 10 credits", "money"),
    ("xai", 403, "Your team has used all available credits or reached its monthly limit", "money"),
    ("deepseek", 402, "Insufficient Balance", "money"),
    ("compatible", 400, "Budget has been exceeded! Current cost: 1.2, Max budget: 1", "money"),
    ("compatible", 400, "Access denied, your account is in Arrearage", "money"),
    ("compatible", 429, "余额不足或无可用资源包,请充值。", "money"),
    ("gemini", 429, "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "money"),
    ("gemini", 429, "You exceeded your current quota: input_token_count, limit: 250000", "rate"),
    ("gemini", 400, "API key not valid. Please pass a valid API key.", "key"),
    ("gemini", 403, "Your API key was reported as leaked.", "key"),
    ("openai", 401, "Incorrect API key provided", "key"),
    ("xai", 400, "Incorrect API key provided: no***ne.", "key"),
    ("compatible", 403, "token is expired", "key"),
    ("gemini", 400, "User location is not supported for the API use.", "account"),
    ("openai", 403, "Country, region, or territory not supported", "account"),
    ("openai", 400, "The organization associated with this API key has been disabled", "account"),
    ("openai", 401, "Your account has been deactivated", "account"),
    ("openai", 400, "Your organization must be verified to use the model", "account"),
    ("groq", 400, "The model `x` requires terms acceptance", "account"),
    ("openai", 429, "Request too large for gpt-4.1 on TPM: Limit 30000, Requested 37313.", "large"),
    ("groq", 413, "Request too large for model: Limit 6000, Requested 7313", "large"),
    ("anthropic", 413, "Request exceeds the maximum size", "large"),
    ("compatible", 400, "This model's maximum context length is 4096 tokens.", "large"),
    ("gemini", 400, "The input token count (1200000) exceeds the maximum number", "large"),
    ("openai", 429, "Rate limit reached on TPM: Limit 30000, Used 29000, Requested 2000.", "rate"),
    ("anthropic", 429, "would exceed the limit of 30,000 input tokens per minute", "rate"),
    ("bedrock", 400, "ThrottlingException: Too many requests", "rate"),
    ("compatible", 403, "Request was throttled.", "rate"),
    ("groq", 498, "The flex tier is at capacity.", "busy"),
    ("openai", 409, "conflict", "busy"),
    ("compatible", 425, "Too Early", "busy"),
    ("compatible", 400, "The model is overloaded, try again later", "busy"),
    ("compatible", 404, "Model is currently loading", "busy"),
    ("deepseek", 400, "Content Exists Risk", "content"),
    ("azure", 400, "The response was filtered: content management policy", "content"),
    ("openrouter", 403, "requires moderation and your input was flagged for violence", "content"),
    ("compatible", 400, "Prompt blocked by guardrail", "content"),
    ("openai", 400, "invalid_prompt: violating our usage policy", "content"),
    ("openai", 400, "Unknown parameter: 'foo'.", ""),
    ("anthropic", 400, "`temperature` is deprecated for this model.", ""),
    ("compatible", 404, "no such path", ""),
    ("compatible", 422, "field required", ""),
]


@pytest.mark.parametrize(("provider", "status", "words", "means"), MEANINGS)
def test_words_of_a_provider_mean_what_they_say(
    provider: str, status: int, words: str, means: str
) -> None:
    assert meaning(provider, status, words) == means


def test_every_kind_of_meaning_is_in_the_table_and_tested() -> None:
    meant = {row.means for row in table()}
    assert meant == {means for *_, means in MEANINGS if means}


def error(words: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": words, "type": "invalid_request_error", **more}}


ACCOUNT = [
    ("400", "Your credit balance is too low", "openai", 4),
    ("403", "You have used all available credits", "openai", 4),
    ("400", "API key not valid. Please pass a valid API key.", "openai", 2),
    ("400", "The organization has been disabled", "openai", 2),
    ("429", "You exceeded your current quota", "openai", 4),
    ("400", "This word is in no table: 17 apples", "openai", 2),
    ("404", "Nor is this", "openai", 2),
    ("418", "I am a teapot", "openai", 2),
]


@pytest.mark.parametrize(("status", "words", "provider", "code"), ACCOUNT)
def test_the_refusal_of_an_account_ends_the_command_and_fails_no_further_question(
    status: str, words: str, provider: str, code: int, tmp_path: Path
) -> None:
    def script(hit: Hit) -> Any:
        if hit.number <= 2:
            return plausible(hit)
        return Fault(status, json=error(words.replace("17", str(hit.number))))

    with FakeServer(script) as server:
        ended, text = eval_towns(tmp_path, server, 10, "--workers", 1)
    assert ended == code, text
    failed = [record for record in read_records(tmp_path / "run").values() if record.failure]
    unknown = not meaning("", int(status), words)
    assert len(failed) == (2 if unknown else 0)  # the third in the same words ends it


def test_a_prompt_that_is_too_large_for_the_minute_is_cut_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    large = "Request too large for m on tokens per min (TPM): Limit 300, Requested 373."

    def script(hit: Hit) -> Any:
        if hit.number % 5 == 2:
            return Fault("429", json=error(large, code="rate_limit_exceeded"))
        return plausible(hit)

    with FakeServer(script) as server:
        ended, text = eval_towns(tmp_path, server, 6, "--workers", 1, "--patience", 2)
    assert ended == 0, text
    assert len(server.hits) < 20


@pytest.mark.parametrize("status", ["408", "409", "425", "498", "529"])
def test_what_passes_is_tried_again(status: str) -> None:
    script = lambda hit: plausible(hit) if hit.number > 1 else Fault(status)  # noqa: E731
    with FakeServer(script) as server, open_ledger() as ledger:
        assert ask(lm_at(server)) == "some answer"
    assert [call.attempts for call in ledger.calls] == [2]


def test_different_words_and_refused_content_end_nothing() -> None:
    words = ["filtered by the safety system", "one", "two"]
    with FakeServer(lambda hit: Fault("400", json=error(words[hit.number % 3]))) as server:
        lm = lm_at(server)
        for number in range(9):
            with pytest.raises(dspy.LMInvalidRequestError):
                lm(f"question {number}")
    assert len(server.hits) == 9


def test_litellms_providers_go_by_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "mistral-secret")
    with FakeServer(lambda hit: Fault("400", json=error("Insufficient balance"))) as server:
        lm = make_lm("mistral/small", api_base=server.url, cache=False, retries=0)
        with pytest.raises(dspy.LMBillingError):
            lm("Where?")
