"""`make_lm`: from an LM spec to a metered `dspy.LM`."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dspy

from ragbench.errors import ConfigError, LMSetupError, needs_extra
from ragbench.external import PREFIX, digest_of_texts, find, keep
from ragbench.knobs import resolve
from ragbench.lms.calls import (
    UNBOUNDED_REPLY,
    Breaker,
    Caller,
    Client,
    HostedClient,
    shared_rate_limit,
)
from ragbench.lms.calls.http import trust
from ragbench.lms.calls.other_clients import LiteLLMClient, LocalClient, UserLMClient
from ragbench.lms.engine import Capabilities, MeteredEngine
from ragbench.lms.headers import checked_headers
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.local import LocalSpec, find as find_model, sha256_of, shared_server
from ragbench.lms.prices import NO_PRICE, Pricing, map_entry, parse_price
from ragbench.lms.specs import SELF_HOSTED, HostedSpec, load_dotenv, parse_spec
from ragbench.settings import LMSettings

#: Seeds between two repeats: a sample that a program draws by number adds to the seed.
REPEAT_SEEDS = 1_000_000
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
    settings: LMSettings | None = None,
    *,
    seed: int | None = 0,
    repeat: int = 1,
    retries: int = 4,
    schema: bool | None = None,
    **fields: Any,
) -> RagbenchLM:
    """Return the LM of `spec`. It starts, sends and fetches nothing before a call or `check`.

    Args:
        spec: LM spec, see `ragbench.lms.specs`.
        settings: Settings of calls. None takes them from `fields`. Without `timeout`, an attempt
            has 600 seconds for a local model and 120 for others.
        seed: Seed that is sent, if the server accepts one. None sends no seed.
        repeat: Number of the repeat, from 1. Each repeat has a separate seed and a separate place
            in the cache, even if the server accepts no seed.
        retries: Maximum number of retries of a call.
        schema: Whether the server enforces the schema of replies. None if unknown.
        fields: Settings by name (docs/models.md).

    Returns:
        The metered LM.

    Raises:
        KnobError: An unknown setting, or a value out of bounds.
        LMSetupError: A malformed spec or price, or an unknown provider.
    """
    load_dotenv()
    settings = settings or resolve(LMSettings, "make_lm", fields)
    if not isinstance(spec, str):
        raise LMSetupError(
            f"Invalid LM spec {spec!r}. Use PROVIDER/MODEL, such as openai/gpt-4o-mini."
        )
    rates = parse_price(settings.price) if settings.price else None
    seeded: dict[str, Any] = {}
    if repeat > 1:
        seed = (seed or 0) + (repeat - 1) * REPEAT_SEEDS
        seeded = {"seed": seed}
    if settings.ca_file is not None:
        trust(settings.ca_file)
    if spec.startswith(PREFIX):
        caller = _caller(spec, settings, retries, seed)
        return _of_object(spec, settings, caller, rates, seeded)
    parsed = parse_spec(spec, api_base=settings.api_base)
    if isinstance(parsed, LocalSpec):
        caller = _caller(_local_identity(parsed), settings, retries, seed)
        return _of_local(parsed, settings, caller, rates or NO_PRICE, seed or 0)
    headers = checked_headers(settings.header)
    # A gateway may choose the model by a header, so replies are cached under it too.
    sent = "".join(f"+{name}={value}" for name, value in sorted(headers.items()))
    caller = _caller(f"{parsed.identity()}{sent}", settings, retries, seed)
    kind = LiteLLMClient if parsed.by_litellm else HostedClient
    timeout = settings.timeout or HOSTED_TIMEOUT_S
    client: Client = kind(parsed, timeout=timeout, headers=headers)
    caller.rate = shared_rate_limit(
        parsed.provider, parsed.model, api_base=parsed.api_base or "", key=parsed.key() or ""
    )
    caller.rate.limit(rpm=settings.rpm, tpm=settings.tpm)
    # A server given by its address may charge any price, whatever the name of its model.
    listed = Pricing({} if parsed.api_base else map_entry(client.provider, parsed.model))
    able = _hosted_capabilities(parsed, schema)
    engine = MeteredEngine(client, caller, pricing=rates or listed, capabilities=able)
    sampling = _sampling(settings)
    limit = sampling.get("max_tokens")
    if _OPENAI_REASONING.match(parsed.model.rpartition("/")[2].lower()):
        # Reasoning models accept no temperature, and their reply limit includes the reasoning.
        least = max(limit or 0, UNBOUNDED_REPLY)
        return RagbenchLM(engine, cache=settings.cache, max_tokens=least, **seeded)
    if seed is not None and "seed" in able.params:
        seeded = {"seed": seed}
    # Anthropic requires one in each request.
    engine.sends_limit = limit is not None or client.provider == "anthropic"
    return RagbenchLM(engine, cache=settings.cache, **sampling, **seeded)


def _caller(identity: str, settings: LMSettings, retries: int, seed: int | None) -> Caller:
    breaker = Breaker(identity, patience=settings.patience)
    return Caller(identity, retries=retries, seed=seed or 0, breaker=breaker)


def _sampling(settings: LMSettings) -> dict[str, Any]:
    """Return those of the two settings that are sent."""
    chosen = {"temperature": settings.temperature, "max_tokens": settings.reply_tokens}
    return {name: value for name, value in chosen.items() if value != "none"}


def _of_local(
    spec: LocalSpec, settings: LMSettings, caller: Caller, pricing: Pricing, seed: int
) -> RagbenchLM:
    if settings.rpm or settings.tpm:
        raise LMSetupError("rpm and tpm do not apply to a local model. Remove them.")
    if settings.header:
        listing = ", ".join(settings.header)
        raise LMSetupError(f"a local model accepts no header; leave out {listing}")
    client = LocalClient(shared_server(spec), timeout=settings.timeout or LOCAL_TIMEOUT_S)
    engine = MeteredEngine(client, caller, pricing=pricing, capabilities=_LOCAL_CAPABILITIES)
    return RagbenchLM(engine, cache=settings.cache, seed=seed, **_sampling(settings))


def _of_object(
    spec: str,
    settings: LMSettings,
    caller: Caller,
    price: Pricing | None,
    seeded: Mapping[str, int],
) -> RagbenchLM:
    """Return a metered LM that sends every call to the object that `spec` names.

    `seeded` has the seed of a repeat. It is empty for the first repeat, which keeps the object's
    seed.
    """
    try:
        lm: dspy.BaseLM = find(spec)
    except ConfigError as error:
        raise LMSetupError(str(error)) from None
    if isinstance(lm, RagbenchLM):
        return lm.copy(**seeded) if seeded else lm
    provider, _, model = lm.model.partition("/")
    own_server = any(map(lm.kwargs.get, ("api_base", "base_url")))
    engine = MeteredEngine(
        UserLMClient(lm),
        caller,
        pricing=price or Pricing({} if own_server else map_entry(provider, model)),
        capabilities=_capabilities(lm),
    )
    engine.sends_limit = False  # the object itself reports its requests
    metered = RagbenchLM(engine, cache=settings.cache)
    metered.mimic_lm(lm, seeded)
    return metered


def _local_identity(spec: LocalSpec) -> str:
    """Return weights, quantization and server build, which cached answers depend on."""
    if spec.gguf is None:
        weights = Path(find_model(spec.name).files[0].name).stem
    else:
        weights = f"{spec.name}-{sha256_of(spec.gguf)[:12]}"
    with needs_extra("a local LM"):
        return f"llamacpp/{weights}@{version('xllamacpp')}"


def _hosted_capabilities(spec: HostedSpec, schema: bool | None) -> Capabilities:
    facts = _known(f"{spec.provider}/{spec.model}", "litellm" if spec.by_litellm else "lm15")
    if schema is None:
        # An unknown server may ignore the schema.
        schema = spec.provider in SELF_HOSTED or (facts.response_schema and not spec.api_base)
    params = facts.params | {"response_format"} if schema else facts.params
    return replace(facts, response_schema=schema, params=params)


@lru_cache(maxsize=64)  # a sweep asks the same for each of its cells
def _known(model: str, engine: str) -> Capabilities:
    return _capabilities(dspy.LM(model, engine=engine))


def _capabilities(lm: dspy.BaseLM) -> Capabilities:
    """Return the capabilities that DSPy declares for a model."""
    return Capabilities(
        response_schema=lm.supports_response_schema,
        function_calling=lm.supports_function_calling,
        reasoning=lm.supports_reasoning,
        params=frozenset(lm.supported_params),
    )


def keep_lm(lm: dspy.BaseLM, *, name: str = "") -> str:
    """Return the name of `lm` in configs of this process.

    A `dspy.LM` whose settings are JSON is identified by them, an LM of another class by the
    caller's `name`.

    Args:
        lm: The LM.
        name: The caller's name for it.
    """
    return keep(lm, f"{PREFIX}{lm.model}", name=name, content=_content_of(lm))


def _content_of(lm: dspy.BaseLM) -> str:
    """Return a hash of the request settings. "" if they are not JSON, or code was added."""
    replaced = any(callable(getattr(type(lm), name, None)) for name in vars(lm))
    if type(lm) not in (dspy.LM, RagbenchLM) or replaced or getattr(lm, "given", None):
        return ""
    settings = {
        name: value for name, value in lm.kwargs.items() if name not in ("api_key", "timeout")
    }
    engine = lm.metered.identity if isinstance(lm, RagbenchLM) else lm.engine
    facts = [lm.model, lm.model_type, lm.use_developer_role, engine, settings]
    try:
        return digest_of_texts([json.dumps(facts, sort_keys=True)])
    except (TypeError, ValueError):
        return ""
