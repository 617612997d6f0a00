"""`make_lm`: from an LM spec to a metered `dspy.LM`."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import dspy

from ragbench import handed_over
from ragbench.errors import ConfigError, LMSetupError, needs_extra
from ragbench.lms.calls import (
    PATIENCE_S,
    UNBOUNDED_REPLY,
    Breaker,
    Caller,
    Client,
    HostedClient,
    shared_rate_limit,
)
from ragbench.lms.calls.http import trust
from ragbench.lms.calls.other_clients import GivenClient, LiteLLMClient, LocalClient
from ragbench.lms.headers import checked_headers
from ragbench.lms.lm import Capabilities, MeteredEngine, RagbenchLM
from ragbench.lms.local import LocalSpec, find, sha256_of, shared_server
from ragbench.lms.prices import NO_PRICE, Pricing, map_entry, parse_price
from ragbench.lms.specs import SELF_HOSTED, HostedSpec, load_dotenv, parse_spec

#: Seeds between two repeats: a sample that a program draws by number adds to the seed.
REPEAT_SEEDS = 1_000_000
#: What ragbench's own calls set, of the settings of an LM.
_SAMPLING = ("temperature", "max_tokens", "top_p", "stop", "seed", "presence_penalty")
LOCAL_MAX_TOKENS = 512
HOSTED_MAX_TOKENS = 1024
LOCAL_TIMEOUT_S = 600.0
HOSTED_TIMEOUT_S = 120.0
#: Items of a list in a reply of a local model: small ones repeat an item without end.
MAX_ITEMS = 12
#: Names of models for which DSPy refuses a temperature and small replies.
_OPENAI_REASONING = re.compile(
    r"(o[1345](-(mini|nano|pro))?(-\d{4}-\d{2}-\d{2})?|gpt-5(\.\d+)*(?!-chat)(-.*)?)$"
)
_LOCAL_CAPABILITIES = Capabilities(
    response_schema=True,
    function_calling=True,
    max_items=MAX_ITEMS,
    params=Capabilities().params | {"response_format", "tools", "tool_choice", "logprobs"},
)


def make_lm(
    spec: str = "local",
    *,
    api_base: str | None = None,
    temperature: float | None = 0.0,
    max_tokens: int | Literal["none"] | None = None,
    cache: bool = True,
    headers: Mapping[str, str] | None = None,
    ca_file: Path | None = None,
    seed: int | None = 0,
    repeat: int = 1,
    timeout: float | None = None,
    retries: int = 4,
    price: str | None = None,
    schema: bool | None = None,
    slots: int = 4,
    context: int = 8192,
    rpm: float | None = None,
    tpm: float | None = None,
    patience: float = PATIENCE_S,
) -> RagbenchLM:
    """The LM of `spec`; nothing is started, sent or fetched before its first call or `check`.

    Each keyword is the option of `ragbench eval` of that name (docs/models.md). Without
    `max_tokens`, a reply has 512 of a local model and 1024 of others; without `timeout`, an attempt
    has 600 and 120 seconds. `slots` and `context` are of the local server, `rpm` and `tpm` of all
    others. Each `repeat` of a question has a seed of its own, and by that a place in the cache,
    also where the server takes no seed and is sent none.

    Raises:
        LMSetupError: a malformed spec or price, an unknown provider, or a limit out of bounds.
    """
    load_dotenv()
    for name, value in {"timeout": timeout, "rpm": rpm, "tpm": tpm}.items():
        if value is not None and not value > 0:  # NaN is not, either
            raise LMSetupError(f"{name}={value} must be above 0")
    if not isinstance(spec, str):
        raise LMSetupError(f"{spec!r} is no LM spec such as openai/gpt-4o-mini")
    if retries < 0 or patience < 0:
        raise LMSetupError(f"retries={retries} and patience={patience} must be at least 0")
    if slots < 1 or context < 256:
        raise LMSetupError(f"slots={slots} must be at least 1 and context={context} at least 256")
    rates = parse_price(price) if price else None
    seeded: dict[str, Any] = {}
    if repeat > 1:
        seed = (seed or 0) + (repeat - 1) * REPEAT_SEEDS
        seeded = {"seed": seed}
    if ca_file is not None:
        trust(ca_file)
    if spec.startswith(handed_over.PREFIX):
        return _of_object(spec, cache, rates, retries, seed or 0, patience, seeded)
    parsed = parse_spec(spec, api_base=api_base)
    if isinstance(parsed, LocalSpec):
        identity = _local_identity(parsed)
    else:
        identity = parsed.identity()
    caller = Caller(
        identity, retries=retries, seed=seed or 0, breaker=Breaker(identity, patience=patience)
    )
    if isinstance(parsed, LocalSpec):
        if rpm or tpm:
            raise LMSetupError(f"{spec!r} runs here and takes no limits; leave out rpm and tpm")
        if headers:
            names = ", ".join(headers)
            raise LMSetupError(f"{spec!r} runs here and is sent no header; leave out {names}")
        server = shared_server(parsed, slots=slots, context=context)
        own = LocalClient(server, timeout=timeout or LOCAL_TIMEOUT_S)
        engine = MeteredEngine(
            own, caller, pricing=rates or NO_PRICE, capabilities=_LOCAL_CAPABILITIES
        )
        limit = _limit(max_tokens or LOCAL_MAX_TOKENS)
        return RagbenchLM(engine, cache=cache, seed=seed or 0, **_sampling(temperature, limit))
    kind = LiteLLMClient if parsed.by_litellm else HostedClient
    own_headers = checked_headers(headers or {})
    client: Client = kind(parsed, timeout=timeout or HOSTED_TIMEOUT_S, headers=own_headers)
    caller.rate = shared_rate_limit(
        parsed.provider, parsed.model, api_base=parsed.api_base or "", key=parsed.key() or ""
    )
    caller.rate.limit(rpm=rpm, tpm=tpm)
    # A server given by its address may bill anything, whatever its model is called.
    listed = Pricing({} if parsed.api_base else map_entry(client.provider, parsed.model))
    able = _hosted_capabilities(parsed, schema)
    engine = MeteredEngine(client, caller, pricing=rates or listed, capabilities=able)
    if _OPENAI_REASONING.match(parsed.model.rpartition("/")[2].lower()):
        # These take no temperature, and their budget must hold the reasoning too.
        least = max(_limit(max_tokens or 0) or 0, UNBOUNDED_REPLY)
        return RagbenchLM(engine, cache=cache, max_tokens=least, **seeded)
    if seed is not None and "seed" in able.params:
        seeded = {"seed": seed}
    limit = _limit(max_tokens or HOSTED_MAX_TOKENS)
    # Anthropic takes no request without one.
    engine.sends_limit = limit is not None or client.provider == "anthropic"
    return RagbenchLM(engine, cache=cache, **_sampling(temperature, limit), **seeded)


def _limit(tokens: int | Literal["none"]) -> int | None:
    if tokens == "none":
        return None
    return tokens


def _sampling(temperature: float | None, limit: int | None) -> dict[str, Any]:
    """Returns those of the two settings that are sent."""
    settings: dict[str, Any] = {}
    if temperature is not None:
        settings["temperature"] = temperature
    if limit is not None:
        settings["max_tokens"] = limit
    return settings


def _of_object(
    spec: str,
    cache: bool,
    price: Pricing | None,
    retries: int,
    seed: int,
    patience: float,
    seeded: Mapping[str, int],
) -> RagbenchLM:
    """Returns a metered LM whose every call the object that `spec` names answers.

    `seeded` has the seed of a repeat, empty for the first: then the object's own stands.
    """
    try:
        lm: dspy.BaseLM = handed_over.find(spec)
    except ConfigError as error:
        raise LMSetupError(str(error)) from None
    if isinstance(lm, RagbenchLM):
        return lm.copy(**seeded) if seeded else lm
    provider, _, model = lm.model.partition("/")
    own_server = any(map(lm.kwargs.get, ("api_base", "base_url")))
    engine = MeteredEngine(
        GivenClient(lm),
        Caller(spec, retries=retries, seed=seed, breaker=Breaker(spec, patience=patience)),
        pricing=price or Pricing({} if own_server else map_entry(provider, model)),
        capabilities=_capabilities(lm),
    )
    longest = lm.kwargs.get("max_completion_tokens") or lm.kwargs.get("max_tokens")
    stated = {**lm.kwargs, "max_tokens": longest or HOSTED_MAX_TOKENS}
    settings = {}
    for name in _SAMPLING:
        if stated.get(name) is not None:
            settings[name] = stated[name]
    settings.update(seeded)
    metered = RagbenchLM(engine, cache=cache, **settings)
    metered.given = lm
    metered.history = lm.history  # which its owner looks at
    return metered


def _local_identity(spec: LocalSpec) -> str:
    """Weights, quantisation and server build: two of them must not share cached answers."""
    if spec.gguf is None:
        weights = Path(find(spec.name).files[0].name).stem
    else:
        weights = f"{spec.name}-{sha256_of(spec.gguf)[:12]}"
    with needs_extra("a local LM"):
        return f"llamacpp/{weights}@{version('xllamacpp')}"


def _hosted_capabilities(spec: HostedSpec, schema: bool | None) -> Capabilities:
    facts = _known(f"{spec.provider}/{spec.model}", "litellm" if spec.by_litellm else "lm15")
    enforced = facts.response_schema
    if spec.provider in SELF_HOSTED:
        enforced = True
    elif spec.api_base:
        enforced = False  # an unknown server may ignore what it is sent
    enforced = enforced if schema is None else schema
    if enforced:
        params = facts.params | {"response_format"}
    else:
        params = facts.params
    return replace(facts, response_schema=enforced, params=params)


@lru_cache(maxsize=64)  # a sweep asks the same for each of its cells
def _known(model: str, engine: str) -> Capabilities:
    return _capabilities(dspy.LM(model, engine=engine))


def _capabilities(lm: dspy.BaseLM) -> Capabilities:
    """Returns what DSPy knows of a model."""
    return Capabilities(
        response_schema=lm.supports_response_schema,
        function_calling=lm.supports_function_calling,
        reasoning=lm.supports_reasoning,
        params=frozenset(lm.supported_params),
    )


def keep_lm(lm: dspy.BaseLM, *, stands_for: str = "") -> str:
    """Returns the name of `lm` in configs of this process; one name per settings."""
    return handed_over.keep(lm, f"{handed_over.PREFIX}{lm.model}", stands_for=stands_for)
