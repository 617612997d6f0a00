"""The metered engine: retries, limits and the measurement of every call, under DSPy's cache.

DSPy calls an engine only when its cache has no answer, so what passes here is what is billed: the
engine files it in the ledger. It also writes what the call took into the response, which DSPy's
cache keeps, so that an answer from the cache still knows its tokens, price, latency and attempts.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dspy.clients.call_result import usage_dict
from dspy.clients.errors import wrap_error
from dspy.lm15 import Request, Response, Usage
from dspy.utils.exceptions import LMConfigurationError

from ragbench.errors import RagbenchError
from ragbench.lms.counting import count, file
from ragbench.lms.governor import Attempt, CallRefusedError, Governor, Holder
from ragbench.lms.limits import Amount, Slip
from ragbench.lms.prices import Pricing, UnknownPrice, priced
from ragbench.lms.tries import Retries, Tries, governed, said_of
from ragbench.lms.wire import Wire
from ragbench.logs import get

METER_KEY = "ragbench"
#: What an answer that came to no regular end is counted as.
EVENTS = {"length": "truncated", "content_filter": "content_filter"}

_log = get(__name__)
#: Estimated tokens from which a prompt tells how dense a server's tokens are, and the most it says.
_LONG_PROMPT, _DENSEST = 100, 4.0
#: Tokens reserved for a reply that has no limit, as those of reasoning models.
UNBOUNDED_REPLY = 16_000


@dataclass(frozen=True)
class Meter:
    """What one answered call took; kept in the response, and so in the cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    latency_s: float = 0.0
    attempts: int = 1

    @classmethod
    def of(cls, response: Response) -> Meter:
        """The meter that the engine wrote into `response`, or one from its token counts alone."""
        kept = (response.provider_data or {}).get(METER_KEY)
        if isinstance(kept, dict):
            known = {f.name for f in fields(cls)}
            return cls(**{name: value for name, value in kept.items() if name in known})
        return cls(response.usage.input_tokens or 0, response.usage.output_tokens or 0)


class MeteredEngine:
    """A DSPy engine over a `Wire`: every call is governed, tried again, priced and filed.

    `holders` are governors that may hold a failed call and let it go again beside its retries. The
    limits of `ragbench.lms.limits` are kept here, after the governors had their say.
    """

    def __init__(
        self,
        wire: Wire,
        identity: str,
        *,
        pricing: Pricing | None = None,
        retries: Retries | None = None,
        capabilities: Capabilities | None = None,
        holders: Sequence[Holder] = (),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.wire, self.identity = wire, identity
        self.pricing: Pricing = pricing or UnknownPrice()
        self.retries = retries or Retries()
        self.holders = tuple(holders)
        self.governors: list[Governor] = list(holders)
        capabilities = capabilities or Capabilities()
        self.supports_response_schema = capabilities.response_schema
        self.supports_function_calling = capabilities.function_calling
        self.supports_reasoning = capabilities.reasoning
        self.supported_params = capabilities.params
        self.max_items = capabilities.max_items
        self._sleep = sleep
        self._density = 1.0  # most tokens that the server counted for one that was estimated

    def complete(self, request: Request) -> Response:
        """The answer to `request`, filed in the ledger; so is the failure.

        Raises:
            dspy.lm15.LM15Error: the last attempt failed.
            CallRefusedError: a governor refused the call.
        """
        self._prepare()
        start = time.perf_counter()
        tries = Tries(self.identity, request, self.retries, self.holders, self._sleep)
        try:
            tried = tries.until_done(self._try)
        except CallRefusedError:
            if tries.last is not None:  # what was sent until then is filed all the same
                self._file_failure(tries.last, time.perf_counter() - start)
            raise
        if tried.response is None:
            assert tried.error is not None
            self._file_failure(tried, time.perf_counter() - start)
            raise tried.error
        return self._metered(tried, time.perf_counter() - start)

    def _prepare(self) -> None:
        try:
            self.wire.prepare()
        except RagbenchError as error:
            # Of DSPy's tree, or DSPy would hide it in an error of its own.
            raise LMConfigurationError(str(error), model=self.identity) from error

    def __deepcopy__(self, memo: dict[int, Any]) -> MeteredEngine:
        return self  # optimizers copy programs; connections, server and limits stay shared

    def _try(self, tried: Attempt) -> None:
        most = self._most(tried.request)
        governed(tried, self._send, governors=self.governors, most=most)

    def _send(self, tried: Attempt, slip: Slip) -> None:
        start = time.perf_counter()
        try:
            tried.response = _with_usage(self.wire.complete(tried.request), tried.request)
            tried.cost_usd = self.pricing.cost(tried.request, tried.response)
        except Exception as error:  # filed, and raised again by `complete`
            tried.error = error
        tried.latency_s = time.perf_counter() - start
        if tried.response is not None:
            usage = usage_dict(tried.response, self.wire.provider)
            tokens = usage["prompt_tokens"] + usage["completion_tokens"]
            slip.take(tokens=tokens, cost=tried.cost_usd)
            self._learn(prompt_tokens(tried.request), usage["prompt_tokens"])

    def _learn(self, estimate: int, counted: int) -> None:
        # Short prompts are left out: what a server adds to each would count for long ones too.
        if estimate >= _LONG_PROMPT:
            self._density = max(self._density, min(counted / estimate, _DENSEST))

    def _most(self, request: Request) -> Amount:
        """What one attempt may take at the most, as far as its prompt can be estimated."""
        prompt = math.ceil(prompt_tokens(request) * self._density)
        reply = request.config.max_tokens or UNBOUNDED_REPLY
        cost = priced(self.pricing, request, prompt, reply)
        return Amount(1, prompt + reply, math.inf if cost is None else cost)

    def _metered(self, tried: Attempt, latency_s: float) -> Response:
        assert tried.response is not None
        usage = usage_dict(tried.response, self.wire.provider)
        meter = Meter(
            prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            cost_usd=tried.cost_usd,
            latency_s=round(latency_s, 6),
            attempts=tried.number,
        )
        event = EVENTS.get(tried.response.finish_reason)
        if event:
            count(event)
        file(self.identity, **asdict(meter))
        # The provider's own reply is left out: it would double the size of the cache, and a server
        # may have put anything into it and its id.
        return replace(tried.response, id=None, provider_data={METER_KEY: asdict(meter)})

    def _file_failure(self, tried: Attempt, latency_s: float) -> None:
        assert tried.error is not None
        kind = type(wrap_error(tried.error, model=self.identity)).__name__
        file(self.identity, latency_s=latency_s, attempts=tried.number, error=kind)
        _log.info("call failed", extra=said_of(tried, seconds=round(latency_s, 3)))


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

    def __init__(self, engine: MeteredEngine, *, threads: int = 64) -> None:
        self.engine, self._threads = engine, threads
        self._pool: ThreadPoolExecutor | None = None

    async def complete(self, request: Request) -> Response:
        """See `MeteredEngine.complete`."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="lm")
        loop = asyncio.get_running_loop()
        context = copy_context()
        return await loop.run_in_executor(self._pool, context.run, self.engine.complete, request)

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncMeteredEngine:
        return self


def prompt_tokens(request: Request) -> int:
    """Tokens of what `request` sends, estimated as a quarter of its characters."""
    tools = "".join(map(str, request.tools))
    texts = [str(request.system or ""), *(message.text or "" for message in request.messages)]
    return -(-(len(tools) + sum(map(len, texts))) // 4)


def _with_usage(response: Response, request: Request) -> Response:
    """`response` with token counts: an estimate (4 characters a token) where it has none."""
    usage = response.usage
    if usage.input_tokens is not None and usage.output_tokens is not None:
        return response
    sent = usage.input_tokens or prompt_tokens(request)
    got = usage.output_tokens or -(-len(response.text or "") // 4)
    count("tokens_estimated")
    return replace(response, usage=Usage(sent, got, sent + got))
