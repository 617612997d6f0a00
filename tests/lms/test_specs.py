"""Specs, prices and identities: what is understood, refused, and told apart."""

import math
import os
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import KnobError, LMSetupError
from ragbench.lms.factory import make_lm
from ragbench.lms.prices import Pricing, map_entry, parse_price
from ragbench.lms.specs import HostedSpec, load_dotenv, parse_spec


@pytest.mark.parametrize(
    ("spec", "settings", "message"),
    [
        ("gpt-4o", {}, "malformed LM spec 'gpt-4o'"),
        ("opnai/gpt-4o", {}, "did you mean openai"),
        ("nowhere/x", {}, "no LM provider 'nowhere'"),
        ("local:qwen", {}, "choose from qwen2.5-coder-0.5b"),
        ("local:/no/such.gguf", {}, "no GGUF file"),
        ("local", {"api_base": "http://127.0.0.1:1/v1"}, "leave out api_base"),
        ("openai/x", {"api_base": "http://host:99999/v1"}, "malformed api_base"),
        ("openai/x", {"api_base": "http://me:secret@host/v1"}, "holds a password"),
        ("local", {"price": "in=1"}, "malformed"),
        ("local", {"price": "in=nan,out=1"}, "malformed"),
        ("local", {"rpm": 8}, "do not apply to a local model"),
        (5, {}, "Invalid LM spec 5"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    spec: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(LMSetupError) as caught:
        make_lm(spec, **settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"timeout": math.nan}, "timeout=nan is not allowed"),
        ({"temperature": 3}, "temperature=3 is not allowed; give float >= 0 and <= 2, or none"),
        ({"max_tokens": 9}, "did you mean reply_tokens?"),
    ],
)
def test_a_setting_is_refused_in_python_as_on_the_command_line(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(KnobError) as caught:
        make_lm("openai/x", **settings)
    assert message in str(caught.value)


SPECS = (
    "local", "openai/gpt-4.1-mini", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash",
    "ollama_chat/llama3.1:8b", "hosted_vllm/Qwen/Qwen2.5-7B-Instruct",
    "openrouter/meta-llama/llama-3.1-8b-instruct",
)  # fmt: skip


def test_every_form_makes_an_lm_that_names_its_model_and_server_and_what_it_enforces() -> None:
    bases = ("http://a:1/v1", "http://b:1/v1", "http://a:2/v1", "http://a:1/other/v1")
    made = [*map(make_lm, SPECS), *(make_lm("openai/gpt-4.1-mini", api_base=at) for at in bases)]
    assert len({lm.model for lm in made}) == len(made)
    known = {lm.model: lm.supports_response_schema for lm in made}
    assert known["openai/gpt-4.1-mini"]
    assert not known["openai/gpt-4.1-mini@a:1/v1"]
    assert make_lm("openai/anything", api_base=bases[0], schema=True).supports_response_schema


def test_reasoning_models_are_sent_no_temperature_and_room_for_reasoning() -> None:
    for spec in ("openai/gpt-5-mini", "openrouter/openai/gpt-5-mini"):
        lm = make_lm(spec)
        assert lm.kwargs.get("temperature") is None
        assert "seed" not in lm.kwargs
        for given, most in ((1, 16_000), (512, 16_000), (20_000, 20_000)):
            assert make_lm(spec, reply_tokens=given).kwargs["max_completion_tokens"] == most


PRICED = [
    ("openai", "gpt-4o-mini", 0.15, 0.60), ("openai", "gpt-4.1-mini", 0.40, 1.60),
    ("openai", "gpt-4o", 2.5, 10.0), ("openai", "gpt-3.5-turbo", 0.5, 1.5),
    ("anthropic", "claude-3-5-sonnet-20241022", 3.0, 15.0),
    ("anthropic", "claude-3-5-haiku-20241022", 0.8, 4.0),
    ("anthropic", "claude-3-haiku-20240307", 0.25, 1.25),
    ("groq", "llama-3.1-70b-versatile", 0.59, 0.79), ("groq", "llama3-70b-8192", 0.59, 0.79),
    ("gemini", "gemini-1.5-flash", 0.075, 0.30),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "model", "sent", "got"), PRICED)
def test_map_entry_if_a_paper_used_the_model_has_its_price(
    provider: str, model: str, sent: float, got: float
) -> None:
    pricing = make_lm(f"{provider}/{model}").pricing
    assert pricing.cost(10**6, 0) == pytest.approx(sent)
    assert pricing.cost(0, 10**6) == pytest.approx(got)


def test_prices_are_known_unknown_given_or_nothing() -> None:
    known = Pricing(map_entry("openai", "gpt-4.1-mini"))
    assert known.cost(1_000_000, 500_000) == pytest.approx(0.40 + 0.5 * 1.60)
    unknown = Pricing(map_entry("openai", "no-such-model"))
    assert not unknown.known
    assert unknown.cost(1, 1) is None
    assert parse_price("in=0.15,out=0.60").cost(10**6, 500_000) == pytest.approx(0.15 + 0.30)
    special = {"cache_read": 400_000, "thought": 100_000}
    assert parse_price("in=1,out=2").cost(10**6, 500_000, **special) == pytest.approx(2.0)
    cached = parse_price("in=1,out=2,cached=0.5")
    assert cached.cost(10**6, 500_000, **special) == pytest.approx(1.8)
    assert cached.times(0.5).cost(10**6, 500_000, **special) == pytest.approx(0.9)
    assert make_lm("local").pricing.cost(10, 10) == 0.0
    assert make_lm("openai/gpt-4.1-mini", api_base="http://a:1/v1").pricing.known is False
    assert make_lm("openai/gpt-4.1-mini").pricing.known is True


#: What a file in the folder of somebody else must not decide.
HARMFUL = (
    "LD_PRELOAD", "PYTHONPATH", "OPENAI_BASE_URL", "OPENAI_API_BASE", "HTTPS_PROXY",
    "RAGBENCH_EVAL_API_BASE", "RAGBENCH_CACHE", "SSL_CERT_FILE", "AZURE_API_BASE",
)  # fmt: skip


def test_a_dotenv_file_fills_in_what_the_environment_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "kept")
    for name in ("GROQ_API_KEY", "COHERE_API_KEY", *HARMFUL):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    path = tmp_path / ".env"
    harmful = "\n".join(f"{name}=/somewhere" for name in HARMFUL)
    lines = "# a comment\nOPENAI_API_KEY=lost\nexport GROQ_API_KEY='new value'\nnot a line\n"
    lines += "COHERE_API_KEY=one of LiteLLM's\n"
    path.write_text(lines + harmful)
    load_dotenv(path)
    assert (os.environ["OPENAI_API_KEY"], os.environ["GROQ_API_KEY"]) == ("kept", "new value")
    assert os.environ["COHERE_API_KEY"] == "one of LiteLLM's"
    assert not set(HARMFUL) & set(os.environ)
    load_dotenv(tmp_path / "none")


def test_a_spec_can_name_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_spec("hosted_vllm/big@http://127.0.0.1:8001/v1")
    assert isinstance(spec, HostedSpec)
    assert (spec.model, spec.api_base) == ("big", "http://127.0.0.1:8001/v1")
    with pytest.raises(LMSetupError, match="names its server"):
        parse_spec("hosted_vllm/big@http://a:1/v1", api_base="http://b:2/v1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    told = parse_spec("openai/gpt")
    assert isinstance(told, HostedSpec)
    assert told.api_base == "http://127.0.0.1:9/v1"
    assert told.identity() == "openai/gpt@127.0.0.1:9/v1"
    monkeypatch.setenv("AZURE_API_BASE", "https://mine.example.com")
    assert parse_spec("azure/gpt").identity() == "azure/gpt@mine.example.com"  # type: ignore[union-attr]
    assert parse_spec("novita/x") is not None  # a provider in little use


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("groq/llama", r"the teacher \(groq/llama\): groq needs a key: set"),
        ("cohere/command-r", "cohere needs COHERE_API_KEY in the environment"),
        ("azure/mine", r"AZURE_API_BASE \(or --api-base\) and .*AZURE_API_KEY"),
    ],
)
def test_a_missing_key_says_whose_it_is(
    spec: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GROQ_API_KEY", "COHERE_API_KEY", "CO_API_KEY", "AZURE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LMSetupError, match=words):
        make_lm(spec, price="in=1,out=1").check("the teacher")
    make_lm("vertex_ai/gemini-2.5-flash").check()  # which has credentials, not keys
