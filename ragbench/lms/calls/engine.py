"""The metered engine: every call is governed, measured and filed, under DSPy's cache.

DSPy calls an engine only when its cache has no answer, so what passes here is what is billed: the
engine files it in the ledger. It also writes what the call took into the response, which DSPy's
cache keeps, so that an answer from the cache still knows its tokens, price, latency and attempts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from dspy import LMConfigurationError
from dspy.lm15 import ContextLengthError, LM15Error, Request, Response, Usage

from ragbench.errors import RagbenchError
from ragbench.ledger import count, file_lm_call
from ragbench.lms.calls.breaker import Breaker
from ragbench.lms.calls.caller import Answered, Caller, CallSpec, Retries
from ragbench.lms.calls.client import MOST_TOKENS, Client, billed_usage
from ragbench.lms.calls.limits import CallRefusedError, Reply, replies_are_limited
from ragbench.lms.calls.rate import RateLimit
from ragbench.lms.prices import Pricing, UnknownPrice, list_price, priced, reply_of
from ragbench.record import FailedAttempts
from ragbench.redact import encodable, without_keys
from ragbench.tokens import estimate_tokens

METER_KEY = "ragbench"
#: What an answer that came to no regular end is counted as.
EVENTS = {"length": "truncated", "content_filter": "content_filter"}

_COUNTED = tuple(each.name for each in fields(Usage))
#: Estimated tokens from which a prompt tells how dense a server's tokens are, and the most it says.
_LONG_PROMPT, _DENSEST = 100, 4.0
#: Most tokens of a reply for which the request states no limit; of reasoning models the least.
UNBOUNDED_REPLY = 16_000


@dataclass(frozen=True)
class Meter:
    """What one answered call took, as `Call` has it; kept in the response, so in the cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    latency_s: float = 0.0
    attempts: int = 1
    paid_usd: float | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @classmethod
    def of(cls, response: Response) -> Meter:
        """The meter that the engine wrote into `response`, or one from its token counts alone."""
        kept = (response.provider_data or {}).get(METER_KEY)
        if isinstance(kept, dict):
            known = {f.name for f in fields(cls)}
            return cls(**{name: value for name, value in kept.items() if name in known})
        return cls(response.usage.input_tokens or 0, response.usage.output_tokens or 0)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return dict(vars(self))


class MeteredEngine:
    """A DSPy engine over a `Client`: every call goes through a `Caller`, is priced and filed."""

    def __init__(
        self,
        client: Client,
        identity: str,
        *,
        pricing: Pricing | None = None,
        retries: Retries | None = None,
        capabilities: Capabilities | None = None,
        breaker: Breaker | None = None,
        rate: RateLimit | None = None,
        reserves: bool = True,
    ) -> None:
        self.client, self.identity = client, identity
        self.pricing: Pricing = pricing or UnknownPrice()
        self.caller = Caller(
            identity, retries=retries or Retries(), breaker=breaker, rate=rate, reserves=reserves
        )
        self.capabilities = capabilities or Capabilities()
        self.supports_response_schema = self.capabilities.response_schema
        self.supports_function_calling = self.capabilities.function_calling
        self.supports_reasoning = self.capabilities.reasoning
        self.supported_params = self.capabilities.params
        self.max_items = self.capabilities.max_items
        self._density = 1.0  # most tokens that the server counted for one that was estimated

    def complete(self, request: Request) -> Response:
        """The answer to `request`, filed in the ledger; so is the failure.

        Raises:
            dspy.lm15.LM15Error: the last attempt failed.
            CallRefusedError: the call was refused.
        """
        try:
            self.client.prepare()
        except RagbenchError as error:
            # Of DSPy's tree, or DSPy would hide it in an error of its own.
            raise LMConfigurationError(str(error), model=self.identity) from error
        request = _bounded(request)
        prompt = math.ceil(prompt_tokens(request) * self._density)
        reply = request.config.max_tokens or UNBOUNDED_REPLY
        cost = priced(self.pricing, request, prompt, reply)
        asked = CallSpec(
            send=lambda: self._send(request),
            prompt=hash(tuple(message.text for message in request.messages)),
            prompt_tokens=prompt,
            reply_tokens=reply,
            cost_usd=math.inf if cost is None else cost,
            billed=lambda error: self._billed(request, error),
        )
        return self._metered(request, self.caller.call(asked, file_failure=self._file_failure))

    def __deepcopy__(self, memo: dict[int, Any]) -> MeteredEngine:
        return self  # optimizers copy programs; connections, server and limits stay shared

    def _send(self, request: Request) -> Reply[Response]:
        reply = _without_keys(self.client.complete(request))
        response = _with_cache_read(_with_usage(reply, request, self.client.provider))
        sent, got = _billed_tokens(response.usage, self.client.provider)
        self._learn(prompt_tokens(request), sent)
        return Reply(
            response,
            tokens=sent + got,
            cost_usd=self.pricing.cost(request, response),
            headers=self.client.rate_limits(),
        )

    def _learn(self, estimate: int, counted: int) -> None:
        # Short prompts are left out: what a server adds to each would count for long ones too.
        if estimate >= _LONG_PROMPT:
            self._density = max(self._density, min(counted / estimate, _DENSEST))

    def _billed(self, request: Request, error: Exception) -> FailedAttempts | None:
        usage = billed_usage(error)
        if usage is None:
            return None
        sent, got = _billed_tokens(usage, self.client.provider)
        return FailedAttempts(sent, got, self.pricing.cost(request, reply_of(usage)))

    def _meter(self, request: Request, answered: Answered[Response]) -> Meter:
        response, paid = answered.reply.value, answered.reply.cost_usd
        sent, got = _billed_tokens(response.usage, self.client.provider)
        read, written = response.usage.cache_read_tokens, response.usage.cache_write_tokens
        listed = paid
        if paid is not None and (read or written):
            listed = list_price(self.pricing, request, response, sent)
        return Meter(
            prompt_tokens=sent,
            completion_tokens=got,
            cost_usd=listed,
            latency_s=round(answered.latency_s, 6),
            attempts=answered.attempts,
            paid_usd=paid if paid != listed else None,
            cache_read_tokens=read or 0,
            cache_write_tokens=written or 0,
        )

    def _metered(self, request: Request, answered: Answered[Response]) -> Response:
        response, meter = answered.reply.value, self._meter(request, answered).to_dict()
        event = EVENTS.get(response.finish_reason)
        if event:
            count(event)
        file_lm_call(self.identity, **meter, failed=answered.failed)
        # The provider's own reply is left out: it would double the size of the cache, and a server
        # may have put anything into it and its id.
        return replace(response, id=None, provider_data={METER_KEY: meter})

    def _file_failure(self, error: Exception, **took: Any) -> None:
        file_lm_call(self.identity, error=_dspy_name(error), **took)


@dataclass(frozen=True)
class Capabilities:
    """What an LM can be asked for, declared: DSPy's adapters choose their format by it."""

    response_schema: bool = False
    function_calling: bool = False
    reasoning: bool = False
    params: frozenset[str] = frozenset({"temperature", "max_tokens", "top_p", "stop", "seed"})
    max_items: int | None = None  # of a list in a reply, by the schema; None: not bounded


class AsyncMeteredEngine:
    """The same engine for `acall`: each call runs in a thread, with its caller's context."""

    def __init__(self, engine: MeteredEngine) -> None:
        self.engine = engine

    async def complete(self, request: Request) -> Response:
        """See `MeteredEngine.complete`."""
        return await asyncio.to_thread(self.engine.complete, request)

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncMeteredEngine:
        return self


def _dspy_name(error: Exception) -> str:
    """The name of the error that DSPy makes of `error`, which is what a program sees."""
    if isinstance(error, CallRefusedError):
        return type(error).__name__
    if isinstance(error, ContextLengthError):
        return "ContextWindowExceededError"
    return f"LM{type(error).__name__}" if isinstance(error, LM15Error) else "LMUnexpectedError"


#: Providers, as DSPy calls them, whose count of reply tokens leaves out those of reasoning.
_REASONING_APART = frozenset({"gemini", "vertex", "vertex-express", "xai"})


def _billed_tokens(usage: Usage, provider: str) -> tuple[int, int]:
    """Tokens of the prompt and of the reply, those that the provider counts apart included."""
    sent, got = usage.input_tokens or 0, usage.output_tokens or 0
    if "anthropic" in provider:
        sent += (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    if provider in _REASONING_APART:
        got += usage.reasoning_tokens or 0
    return sent, got


def _without_keys(response: Response) -> Response:
    """`response` without a key that the server may have echoed, and without lone surrogates."""
    parts = tuple(map(_clean, response.message.parts))
    if parts == response.message.parts:
        return response
    return replace(response, message=replace(response.message, parts=parts))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return without_keys(encodable(value))
    if isinstance(value, Mapping):
        return {_clean(name): _clean(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_clean, value))
    if is_dataclass(value) and not isinstance(value, type):
        made = {each.name: _clean(getattr(value, each.name)) for each in fields(value) if each.init}
        return replace(value, **made)
    return value


def _bounded(request: Request) -> Request:
    """`request` with a limit on its reply where one is needed, so that what is reserved holds."""
    if request.config.max_tokens or not replies_are_limited():
        return request
    return replace(request, config=replace(request.config, max_tokens=UNBOUNDED_REPLY))


def prompt_tokens(request: Request) -> int:
    """Tokens of what `request` sends, estimated."""
    texts = [str(request.system or ""), *(message.text or "" for message in request.messages)]
    return estimate_tokens("".join([*map(str, request.tools), *texts]))


def _with_usage(response: Response, request: Request, provider: str) -> Response:
    """`response` with token counts: an estimate (4 characters a token) where it has none.

    A prompt of no tokens is none that was counted, and one of fewer than were cached neither.
    """
    told = response.usage
    cached = (told.cache_read_tokens or 0) + (told.cache_write_tokens or 0)
    likely = all(n is None or n < MOST_TOKENS for n in map(told.__getattribute__, _COUNTED))
    if "anthropic" not in provider and told.input_tokens is not None:  # it counts these apart
        likely = likely and cached <= told.input_tokens
    if likely and told.input_tokens and told.output_tokens is not None:
        return response
    sent = told.input_tokens if likely and told.input_tokens else prompt_tokens(request)
    got = told.output_tokens if likely else None
    got = estimate_tokens(response.text or "") if got is None else got
    count("tokens_estimated")
    return replace(response, usage=Usage(sent, got, sent + got))


def _with_cache_read(response: Response) -> Response:
    """`response` with the cached part of its prompt where only llama.cpp's timings tell it."""
    usage, timings = response.usage, (response.provider_data or {}).get("timings")
    read = timings.get("cache_n") if isinstance(timings, Mapping) else None
    if usage.cache_read_tokens is not None or type(read) is not int:
        return response
    usage = replace(usage, cache_read_tokens=max(0, min(read, usage.input_tokens or 0)))
    return replace(response, usage=usage)
