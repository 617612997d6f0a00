"""`MeteredEngine`: a DSPy engine that limits, prices and files every call.

DSPy calls the engine only if its cache has no answer, so every call of the engine is billed. The
engine also writes the usage of the call into the response. That cache (`reply_cache`) stores it, so
that a cached answer still has its tokens, price, latency and attempts.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dspy import LMConfigurationError
from dspy.lm15 import (
    ContextLengthError,
    LM15Error,
    Request,
    Response,
    StreamDeltaEvent,
    TextDelta,
    TextPart,
    Usage,
    response_to_events,
)

from ragbench.errors import RagbenchError
from ragbench.ledger import count, file_lm_call
from ragbench.lms.calls import (
    UNBOUNDED_REPLY,
    Amount,
    Caller,
    Client,
    Reply,
    ServerCapabilities,
    empty_reply,
)
from ragbench.lms.prices import TOKENS, Pricing
from ragbench.lms.replies import is_empty, read_reply
from ragbench.logs import get
from ragbench.record import FailedAttempts
from ragbench.redact import each_text, encodable, without_keys
from ragbench.text_normalization import estimate_tokens

METER_KEY = "ragbench"
_log = get(__name__)
#: Name of the count of answers without a regular end.
EVENTS = {"length": "truncated", "content_filter": "content_filter"}
#: A piece of a stream: a word with the blanks before it.
_PIECES = re.compile(r"\s*\S+|\s+")
#: Minimum bytes of a prompt that shows the number of tokens per byte.
_LONG_PROMPT = 400
#: If a token of a long prompt has more characters than this, the server cut the prompt.
_MOST_CHARACTERS, _LEAST_CUT = 7, 256
#: Tokens that a server may add to a prompt or a reply, and those of the longest thoughts.
HIDDEN_TOKENS, MOST_THOUGHTS = 8_192, 200_000


@dataclass(frozen=True)
class Capabilities:
    """Declared capabilities of an LM, from which DSPy's adapters choose their format."""

    response_schema: bool = False
    function_calling: bool = False
    reasoning: bool = False
    params: frozenset[str] = frozenset({"temperature", "max_tokens", "top_p", "stop", "seed"})
    max_items: int | None = None  # maximum length of a list in a reply. None for no limit


class MeteredEngine:
    """A DSPy engine over a `Client`. Every call goes through a `Caller`, is priced and filed."""

    def __init__(
        self, client: Client, caller: Caller, *, pricing: Pricing, capabilities: Capabilities
    ) -> None:
        self.client = client
        self.caller = caller
        self.identity = caller.model
        self.pricing = pricing
        self.capabilities = capabilities
        self.supports_response_schema = capabilities.response_schema
        self.supports_function_calling = capabilities.function_calling
        self.supports_reasoning = capabilities.reasoning
        self.supported_params = capabilities.params
        self.max_items = capabilities.max_items
        #: Known request parameters that the server accepts.
        self.terms = ServerCapabilities(caller.model, client.rename)
        #: True if every request states a reply limit.
        self.sends_limit = True
        #: Maximum number of tokens per byte that the server has counted. 0 if unknown.
        self._density = 0.0
        #: Tokens of the longest reply that exceeded the limit of its request.
        self._longest = 0
        self._warned = False

    def complete(self, request: Request) -> Response:
        """Return the answer to `request`. The answer, or its failure, is filed in the ledger.

        Raises:
            dspy.lm15.LM15Error: The last attempt failed.
            CallRefusedError: The call was refused.
        """
        try:
            self.client.prepare()
        except RagbenchError as error:
            # Use DSPy's error class, or DSPy would hide this error in another one.
            raise LMConfigurationError(str(error), model=self.identity) from error
        config = request.config
        if not config.max_tokens and self.sends_limit:  # otherwise nothing would be reserved
            config = replace(config, max_tokens=UNBOUNDED_REPLY)
            request = replace(request, config=config)
        # One token per byte, until a reply shows a better value.
        prompt = math.ceil(prompt_bytes(request) * (self._density or 1.0))
        reply = max(config.max_tokens or UNBOUNDED_REPLY, self._longest)
        cost = self.pricing.cost(prompt, reply)
        blanks: list[str] = []
        answered = self.caller.call(
            lambda: self._send(request, blanks),
            prompt=hash(tuple(message.text for message in request.messages)),
            most=Amount(1, prompt + reply, math.inf if cost is None else cost),
            file_failure=self._file_failure,
        )
        return self._filed(answered, request.model)

    def stream(self, request: Request) -> Iterator[Any]:
        """Yield the events of a stream after the whole answer to `request` has arrived.

        So a stream is retried, limited, cached and filed like any other call.
        """
        for event in response_to_events(self.complete(request)):
            if isinstance(event, StreamDeltaEvent) and isinstance(event.delta, TextDelta):
                # DSPy's listeners look for the marks of a field at the beginning of a piece.
                for piece in _PIECES.findall(event.delta.text):
                    yield replace(event, delta=replace(event.delta, text=piece))
            else:
                yield event

    def __deepcopy__(self, memo: dict[int, Any]) -> MeteredEngine:
        return self  # optimizers copy programs. Connections, server and limits stay shared

    def _send(self, request: Request, blanks: list[str]) -> Reply[Any]:
        """Return the reply to one request. The first blank one goes to `blanks` and is retried."""
        if self.terms.learned:
            request = self.terms.applied(request)
        if request.config.seed is not None and "seed" not in self.supported_params:
            # It gives a repeat a separate place in the cache.
            request = replace(request, config=replace(request.config, seed=None))
        try:
            response = _clean(self.client.complete(request), request)
            if is_empty(response) and response.finish_reason not in EVENTS:
                blanks.append(response.text or "")
                if len(blanks) < 2 or not response.text:  # else the model answers with blanks only
                    raise empty_reply(response.finish_reason, response.usage)
        except LM15Error as error:
            error.negotiated = self.terms.learn(error, request)
            usage = getattr(error, "usage", None) or Usage()
            if usage.input_tokens is not None or usage.output_tokens is not None:
                meter = _meter_of(usage)
                got = meter["completion_tokens"]
                error.billed = FailedAttempts(meter["prompt_tokens"], got, self._paid(meter))
            raise
        meter = self._counted(request, response)
        tokens = meter["prompt_tokens"] + meter["completion_tokens"]
        return Reply((response, meter), tokens, self._paid(meter))

    def _counted(self, request: Request, response: Response) -> dict[str, int]:
        """Return the tokens of `response`, estimated if the server states none."""
        meter = _meter_of(response.usage)
        sent = meter["prompt_tokens"]
        got = response.usage.output_tokens
        prompt = _sent_text(request)
        size = len(prompt.encode("utf-8", "replace"))
        text = response.text or ""
        if sent > size + HIDDEN_TOKENS:
            sent = 0
        most = request.config.max_tokens or MOST_THOUGHTS
        if meter["reasoning_tokens"]:
            most += MOST_THOUGHTS
        most = max(most, len(text.encode("utf-8", "replace"))) + HIDDEN_TOKENS
        if got is not None and not bool(text) <= got <= most:
            got = None  # a text takes at least one token
        if sent and size >= _LONG_PROMPT:
            # Short prompts are ignored, because a server adds tokens to every prompt.
            self._density = max(self._density, min(sent / size, 1.0))
        if not sent or got is None:
            count("tokens_estimated")
        elif sent >= _LEAST_CUT and len(prompt) > _MOST_CHARACTERS * sent:
            self._note_cut(sent, len(prompt))
        sent = sent or estimate_tokens(prompt)
        if got is None:
            got = estimate_tokens(text)
        if got > (request.config.max_tokens or UNBOUNDED_REPLY):
            self._longest = max(self._longest, got)
        if meter["cache_read_tokens"] + meter["cache_write_tokens"] > sent:
            meter |= {"cache_read_tokens": 0, "cache_write_tokens": 0}
        if meter["reasoning_tokens"] > got:
            meter["reasoning_tokens"] = 0
        return {**meter, "prompt_tokens": sent, "completion_tokens": got}

    def _note_cut(self, counted: int, characters: int) -> None:
        """Count a prompt of which the server seems to have read a part. Warn once."""
        count("prompt_cut")
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s counted %s tokens of a prompt of %s characters: it seems to cut prompts; "
                "raise its context (num_ctx of Ollama) or lower --k",
                self.identity, f"{counted:,}", f"{characters:,}",
            )  # fmt: skip

    def _paid(self, meter: Mapping[str, int]) -> float | None:
        """Return the price in US dollars, with the provider's prompt-cache rates."""
        cost, paid = self.pricing.of(meter)
        return cost if paid is None else paid

    def _filed(self, answered: Reply[tuple[Response, dict[str, int]]], model: str) -> Response:
        """File the usage of the call and return the response with it."""
        response, tokens = answered.value
        latency_s = round(answered.latency_s, 6)
        meter = {**tokens, "latency_s": latency_s, "attempts": answered.attempts}
        count_ending(response)
        file_lm_call(self.identity, **self.priced(meter), failed=answered.failed)
        usage = Usage(tokens["prompt_tokens"], tokens["completion_tokens"])
        # The provider's reply is left out: it would double the size of the cache, and a server
        # may have put anything into it and its id.
        metered = {METER_KEY: meter}
        return replace(response, usage=usage, model=model, id=None, provider_data=metered)

    def priced(self, meter: Mapping[str, Any]) -> dict[str, Any]:
        """Return the usage of a call, with its cost at the present price."""
        cost, paid = self.pricing.of(meter)
        return {**meter, "cost_usd": cost, "paid_usd": paid}

    def _file_failure(self, error: Exception, **usage: Any) -> None:
        # Name of the DSPy error that a program sees.
        name = "LMUnexpectedError"
        if isinstance(error, ContextLengthError):
            name = "ContextWindowExceededError"
        elif isinstance(error, LM15Error):
            name = f"LM{type(error).__name__}"
        file_lm_call(self.identity, error=name, **usage)


class AsyncMeteredEngine:
    """The engine for `acall`. Each call runs in a thread, in its caller's context."""

    def __init__(self, engine: MeteredEngine) -> None:
        self.engine = engine

    async def complete(self, request: Request) -> Response:
        """See `MeteredEngine.complete`."""
        return await asyncio.to_thread(self.engine.complete, request)

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """See `MeteredEngine.stream`."""
        for event in await asyncio.to_thread(lambda: [*self.engine.stream(request)]):
            yield event

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncMeteredEngine:
        return self


def _meter_of(usage: Usage) -> dict[str, int]:
    """Return the tokens of `usage` by their names in `Call`."""
    counts = (
        usage.input_tokens, usage.output_tokens, usage.cache_read_tokens,
        usage.cache_write_tokens, usage.reasoning_tokens,
    )  # fmt: skip
    return {name: n or 0 for name, n in zip(TOKENS, counts, strict=True)}


def prompt_tokens(request: Request) -> int:
    """Return the estimated tokens of the texts that `request` sends."""
    return estimate_tokens(_sent_text(request))


def prompt_bytes(request: Request) -> int:
    """Return the bytes of the texts that `request` sends, an upper bound on its tokens."""
    return len(_sent_text(request).encode("utf-8", "replace"))


def _sent_text(request: Request) -> str:
    texts = [str(request.system or ""), *(message.text or "" for message in request.messages)]
    return "".join([*map(str, request.tools), *texts])


def _clean(response: Response, request: Request) -> Response:
    """Return `response` in a form that is safe to read and store.

    A server may echo the key that it received, and send half of a character.
    """
    pieces: list[Any] = []
    for piece in response.message.parts:
        if not isinstance(piece, TextPart) or _clean_text(piece.text) != piece.text:
            piece = each_text(_clean_text, piece)
        pieces.append(piece)
    if pieces != list(response.message.parts):
        response = replace(response, message=replace(response.message, parts=tuple(pieces)))
    return read_reply(response, request)


def _clean_text(text: str) -> str:
    return without_keys(encodable(text))


def count_ending(response: Response) -> None:
    """Count an answer that came to no regular end."""
    if event := EVENTS.get(response.finish_reason):
        count(event)
