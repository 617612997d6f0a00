"""What a failed reply means: one table for all providers, and a rule for what it does not know."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15

from ragbench.experiments.store import read_records
from ragbench.ledger import open_ledger
from ragbench.lms.calls.refusals import classed, meaning, means_of, stated, table
from ragbench.lms.factory import make_lm
from tests.fake_server import FakeServer, Fault, Hit, plausible
from tests.wire import eval_towns, lm_at

#: Provider, status and words as they come, and what they mean.
MEANINGS = [
    ("anthropic", 400, "You have reached your specified API usage limits.", "money"),
    ("openai", 400, "Billing hard limit has been reached billing_hard_limit_reached", "money"),
    ("openai", 429, "Your account is not active, please check your billing details", "money"),
    ("openrouter", 403, "Key limit exceeded (total limit).", "money"),
    ("openrouter", 429, "Rate limit exceeded: free-models-per-day. Add 10 credits", "money"),
    ("compatible", 429, "余额不足或无可用资源包,请充值。", "money"),
    ("gemini", 429, "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "money"),
    ("gemini", 400, "API key not valid. Please pass a valid API key.", "key"),
    ("gemini", 403, "Your API key was reported as leaked.", "key"),
    ("xai", 400, "Incorrect API key provided: no***ne.", "key"),
    ("compatible", 403, "token is expired", "key"),
    ("gemini", 400, "User location is not supported for the API use.", "account"),
    ("openai", 403, "Country, region, or territory not supported", "account"),
    ("openai", 400, "The organization associated with this API key has been disabled", "account"),
    ("openai", 401, "Your account has been deactivated", "account"),
    ("openai", 400, "Your organization must be verified to use the model", "account"),
    ("groq", 400, "The model `x` requires terms acceptance", "account"),
    ("openai", 429, "Request too large for gpt-4.1 on TPM: Limit 30000, Requested 37313.", "large"),
    ("anthropic", 413, "Request exceeds the maximum size", "large"),
    ("compatible", 400, "This model's maximum context length is 4096 tokens.", "large"),
    ("gemini", 400, "The input token count (1200000) exceeds the maximum number", "large"),
    ("bedrock", 400, "ThrottlingException: Too many requests", "rate"),
    ("compatible", 403, "Request was throttled.", "rate"),
    ("groq", 498, "The flex tier is at capacity.", "busy"),
    ("openai", 409, "conflict", "busy"),
    ("compatible", 425, "Too Early", "busy"),
    ("compatible", 400, "The model is overloaded, try again later", "busy"),
    ("compatible", 404, "Model is currently loading", "busy"),
    ("deepseek", 400, "Content Exists Risk", "content"),
    ("openrouter", 403, "requires moderation and your input was flagged for violence", "content"),
    ("compatible", 400, "Prompt blocked by guardrail", "content"),
    ("openai", 400, "invalid_prompt: violating our usage policy", "content"),
    ("openai", 400, "Unknown parameter: 'foo'.", ""),
    ("anthropic", 400, "`temperature` is deprecated for this model.", ""),
    ("compatible", 404, "no such path", ""),
    ("compatible", 422, "field required", ""),
]


#: Bodies as the providers document or send them: provider, HTTP status, body, its meaning.
BODIES: list[tuple[str, int, Any, str]] = [
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message":
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing "
        "to upgrade or purchase credits."}}, "money"),
    ("anthropic", 429, {"type": "error", "error": {"type": "rate_limit_error", "message":
        "This request would exceed the rate limit for your organization of 50 requests per minute."
        }}, "rate"),
    ("anthropic", 529, {"type": "error", "error": {"type": "overloaded_error", "message":
        "Overloaded"}}, "busy"),
    ("openai", 429, {"error": {"message": "You exceeded your current quota, please check your plan "
        "and billing details.", "type": "insufficient_quota", "code": "insufficient_quota"}},
        "money"),
    ("openai", 429, {"error": {"message": "Rate limit reached for gpt-4o in organization org-x on "
        "requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s. You can "
        "increase your rate limit by adding a payment method to your account at "
        "https://platform.openai.com/account/billing.", "code": "rate_limit_exceeded"}}, "rate"),
    ("gemini", 429, {"error": {"code": 429, "message": "Your prepaid credits are depleted. Go to "
        "the console to manage your project and billing.", "status": "RESOURCE_EXHAUSTED"}},
        "money"),
    ("gemini", 429, {"error": {"code": 429, "message": "You exceeded your current quota, please "
        "check your plan and billing details. Quota exceeded for metric: generativelanguage/"
        "generate_content_free_tier_requests, limit: 15. Please retry in 29.6s.", "details": [
        {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]}}, "rate"),
    ("gemini", 429, {"error": {"code": 429, "message": "Your project has exceeded its monthly "
        "spending cap.", "status": "RESOURCE_EXHAUSTED"}}, "money"),
    ("gemini", 403, {"error": {"code": 403, "message": "This API method requires billing to be "
        "enabled. Please enable billing on project #1.", "details": [{"reason":
        "BILLING_DISABLED"}]}}, "money"),
    ("gemini", 429, {"error": {"code": 429, "message": "Resource has been exhausted."}}, "rate"),
    ("compatible", 500, {"type": "error", "error": {"type": "api_error", "message":
        "insufficient balance (1008)"}}, "money"),  # MiniMax
    ("deepseek", 402, {"error": {"message": "Insufficient Balance", "type": "unknown_error"}},
        "money"),
    ("openrouter", 402, {"error": {"code": 402, "message": "Insufficient credits. Add more using "
        "https://openrouter.ai/credits"}}, "money"),
    ("openrouter", 429, {"error": {"code": 429, "message": "Provider returned error", "metadata":
        {"raw": "the model is temporarily rate-limited upstream. Please retry shortly"}}}, "rate"),
    ("groq", 429, {"error": {"message": "Rate limit reached for model `m` on tokens per minute "
        "(TPM): Limit 6000, Used 5900, Requested 300. Please try again in 2s. Need more tokens? "
        "Upgrade to Dev Tier today at https://console.groq.com/settings/billing", "code":
        "rate_limit_exceeded"}}, "rate"),
    ("groq", 400, {"error": {"message": "Organization has been restricted. Please reach out to "
        "support if you believe this was in error.", "code": "organization_restricted"}},
        "account"),
    ("xai", 403, {"code": "The caller does not have permission", "error": "Your newly created team "
        "doesn't have any credits yet. You can purchase credits on the console."}, "money"),
    ("moonshotai", 429, {"error": {"message": "Your account is suspended due to insufficient "
        "balance, please recharge your account", "type": "exceeded_current_quota_error"}}, "money"),
    ("compatible", 429, {"error": {"code": "1113", "message": "Insufficient balance or no resource "
        "package. Please recharge."}}, "money"),  # Zhipu
    ("compatible", 403, {"code": "AllocationQuota.FreeTierOnly", "message": "The free tier of the "
        "model has been exhausted."}, "money"),  # DashScope
    ("compatible", 400, {"code": "Arrearage", "message": "Access denied, please make sure your "
        "account is in good standing."}, "money"),  # DashScope
    ("mistral", 401, {"detail": "Unauthorized"}, "key"),
    ("mistral", 429, {"object": "error", "message": "Service tier capacity exceeded for this model."
        , "type": "service_tier_capacity_exceeded"}, "rate"),
    ("mistral", 403, {"message": "Inactive subscription or usage limit reached"}, "money"),
    ("cohere", 429, {"message": "You are using a Trial key, which is limited to 1000 API calls / "
        "month. Your trial credits have been used up."}, "money"),
    ("cohere", 401, {"message": "invalid api token"}, "key"),
    ("together_ai", 402, {"error": {"message": "Credit limit exceeded, please navigate to billing",
        "type": "credit_limit"}}, "money"),
    ("fireworks_ai", 412, {"error": {"message": "Account x is suspended, possibly due to reaching "
        "the monthly spending limit or failure to pay past invoices."}}, "money"),
    ("huggingface", 402, {"error": "You have exceeded your monthly included credits for Inference "
        "Providers. Subscribe to PRO to get 20x more."}, "money"),
    ("perplexity", 401, {"error": {"message": "Invalid API key provided.", "type": "invalid_api_key"
        }}, "key"),
    ("compatible", 422, {"detail": "No credits left. Please top up your account."}, "money"),
    ("compatible", 406, {"message": "Your credits expired on 1 November."}, "money"),
    ("compatible", 451, {"error": {"message": "usage limit reached for this plan"}}, "money"),
    ("compatible", 403, {"error": "Your free tier quota is exhausted."}, "money"),  # SambaNova
    ("compatible", 400, {"error": {"message": "Budget has been exceeded! Team=x Current cost: 5.0, "
        "Max budget: 5.0", "type": "budget_exceeded"}}, "money"),  # LiteLLM's proxy
    ("azure", 429, {"error": {"code": "429", "message": "Requests to the ChatCompletions_Create "
        "Operation have exceeded call rate limit of your current pricing tier. Please retry after "
        "6 seconds."}}, "rate"),
    ("azure", 400, {"error": {"code": "content_filter", "message": "The response was filtered due "
        "to the prompt triggering Azure OpenAI's content management policy."}}, "content"),
    ("compatible", 403, {"error": {"message": "The project is disabled.", "status":
        "PERMISSION_DENIED"}}, "account"),
    ("compatible", 500, {"error": {"message": "Your organization has been suspended"}}, "account"),
    ("perplexity", 401, {"error": {"message": "You exceeded your current quota, please check your "
        "plan and billing details", "type": "insufficient_quota"}}, "money"),
    ("compatible", 429, [{"error": {"code": 429, "message": "You exceeded your current quota, "
        "please check your plan and billing details.", "details": [{"quotaId":
        "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}, {"retryDelay": "29s"}]}}], "rate"),
    ("compatible", 429, {"errors": [{"message": "you have used up your daily free allocation of "
        "10,000 neurons"}]}, "money"),  # Cloudflare
    ("compatible", 403, {"reason": "NOT_ENOUGH_BALANCE", "message": ""}, "money"),  # Novita
    ("compatible", 429, {"error": {"code": "QuotaExceeded", "message": "You have exhausted the "
        "free trial quota of the model."}}, "money"),  # Ark
    ("compatible", 400, {"error_code": 17, "error_msg": "Open api daily request limit reached"},
        "money"),  # Qianfan
    ("cohere", 429, {"message": "You are using a Trial key, which is limited to 40 API calls / "
        "minute."}, "rate"),
    ("openai", 404, {"error": {"message": "The model `m` does not exist or you do not have access "
        "to it.", "code": "model_not_found"}}, "account"),
    ("bedrock", 403, {"message": "The security token included in the request is expired"}, "key"),
    ("nvidia_nim", 402, {"detail": "Account 'x': Cloud credits expired - Please contact NVIDIA "
        "representatives"}, "money"),
    ("compatible", 404, {"error": {"message": "The model `m` does not exist"}}, ""),
    ("compatible", 500, {"error": {"message": "Internal server error"}}, ""),
    ("compatible", 400, [{"error": {"message": "Please ensure that roles alternate"}}], ""),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "status", "body", "means"), BODIES)
def test_classed_if_a_body_is_of_a_provider_has_its_meaning(
    provider: str, status: int, body: Any, means: str
) -> None:
    error = lm15.ProviderError("invalid_request", status=status)
    new = classed(error, provider=provider, body=json.dumps(body))
    assert means_of(new) == means
    assert new.message != "invalid_request"  # the server's own


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"message": "needs a hat"}, "needs a hat"),
        ({"detail": "needs a hat"}, "needs a hat"),
        ({"detail": [{"loc": ["body", "hat"], "msg": "missing"}]}, "body.hat: missing"),
        ([{"error": {"message": "needs a hat"}}], "needs a hat"),
        ({"title": "Bad Request", "detail": "needs a hat"}, "needs a hat"),
        ({"title": "needs a hat"}, "needs a hat"),
        ("<html><h1>Not here</h1></html>", "Not here"),
    ],
)
def test_stated_returns_the_message_of_the_server(body: Any, words: str) -> None:
    assert stated(body if isinstance(body, str) else json.dumps(body)) == words


def test_meaning_if_the_words_are_the_prompt_is_none() -> None:
    prompt = "What happens if the account has insufficient funds?"
    assert meaning("", 422, f"field required, input: {prompt}", sent=prompt) == ""


REPLIES_OF_200 = [
    ({"choices": None, "base_resp": {"status_code": 1008, "status_msg": "no balance left"}}, 4),
    ({"error": {"message": "Your account is deactivated", "code": 403}}, 2),
]


@pytest.mark.parametrize(("body", "code"), REPLIES_OF_200)
def test_run_if_a_reply_of_200_refuses_the_account_ends(
    body: dict[str, Any], code: int, tmp_path: Path
) -> None:
    def script(hit: Hit) -> Any:
        return plausible(hit) if hit.number <= 2 else Fault("body", json=body)

    with FakeServer(script) as server:
        ended, text = eval_towns(tmp_path, server, 6, "--workers", 1)
    assert ended == code, text
    assert not [record for record in read_records(tmp_path / "run").values() if record.failure]


@pytest.mark.parametrize("ending", ["MALFORMED_FUNCTION_CALL", "NEW_IN_2027"])
def test_lm_if_gemini_ends_with_a_failure_raises(ending: str) -> None:
    reply = {"candidates": [{"content": {"role": "model"}, "finishReason": ending}],
             "usageMetadata": {"promptTokenCount": 9}}  # fmt: skip
    with FakeServer(lambda hit: Fault("body", json=reply)) as server, open_ledger() as ledger:
        lm = make_lm("gemini/g", api_base=server.url, cache=False, retries=1)
        lm.metered.caller.base_s = 0.0
        with pytest.raises(dspy.LMError, match=ending):
            lm("Where?")
    assert [call.error for call in ledger.calls] == ["LMServerError"]


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
    ("400", "Your credit balance is too low", 4),
    ("403", "You have used all available credits", 4),
    ("400", "API key not valid. Please pass a valid API key.", 2),
    ("429", "You exceeded your current quota", 4),
    ("400", "This word is in no table: 17 apples", 2),
    ("418", "I am a teapot", 2),
]


@pytest.mark.parametrize(("status", "words", "code"), ACCOUNT)
def test_the_refusal_of_an_account_ends_the_command_and_fails_no_further_question(
    status: str, words: str, code: int, tmp_path: Path
) -> None:
    def script(hit: Hit) -> Any:
        if hit.number <= 2:
            return plausible(hit)
        return Fault(status, json=error(words.replace("17", str(hit.number))))

    with FakeServer(script) as server:
        ended, text = eval_towns(tmp_path, server, 10, "--workers", 1)
    assert ended == code, text
    records = read_records(tmp_path / "run").values()
    assert not [record for record in records if record.failure and not record.cut_off]


def test_run_if_prompts_are_refused_in_unknown_words_interrupts_two_and_fails_the_third(
    tmp_path: Path,
) -> None:
    def script(hit: Hit) -> Any:
        if hit.number % 2 == 0:
            return Fault("400", json=error("We would rather talk of the weather"))
        return plausible(hit)

    with FakeServer(script) as server:
        ended, text = eval_towns(tmp_path, server, 8, "--workers", 1)
    records = [*read_records(tmp_path / "run").values()]
    failed = [record for record in records if record.failure and not record.cut_off]
    assert len(failed) == 2, text
    assert "2 cut off" in text
    assert ended != 2


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


def test_different_words_and_refused_content_end_nothing() -> None:
    words = ["filtered by the safety system", "one", "two"]
    with FakeServer(lambda hit: Fault("400", json=error(words[hit.number % 3]))) as server:
        lm = lm_at(server)
        for number in range(9):
            with pytest.raises(dspy.LMInvalidRequestError):
                lm(f"question {number}")
    assert len(server.hits) == 9
