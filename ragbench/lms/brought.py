"""LMs that a person's module brings: set on a predictor, by `dspy.context`, or called by itself.

They are used as they are, with their own cache, retries and history. Each of their attempts passes
through the engine that DSPy chooses for it, and that is where they are held to the limits, priced
and filed. An LM of ragbench's own is metered by its engine and passes.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import dspy
from dspy.lm15 import LM15Error, Request, Response

from ragbench.context import current
from ragbench.dspy_private import private
from ragbench.ledger import current_ledger, file_lm_call
from ragbench.lms.calls import UNBOUNDED_REPLY, Amount, CallRefusedError, Scope, active
from ragbench.lms.calls.other_clients import INNER
from ragbench.lms.engine import prompt_tokens
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.prices import Pricing, map_entry, parse_price
from ragbench.tokens import estimate_tokens

#: Of a call to an LM that stands for an object: what a limit and the reading of a reply look at.
_COUNTED = ("model", "messages", "max_tokens", "max_completion_tokens", "stop", "tools",
            "tool_choice", "response_format")  # fmt: skip
_FEATURE = "metering an LM that a module brings"


@cache
def meter_brought_lms() -> None:
    """From now on, meter every LM of this process that is called for a run.

    An LM that stands for an object gets the engine's identity into the key of DSPy's cache, since
    it has the object's name.
    """
    choose = private("dspy.clients.execution._engine", _FEATURE)
    cached = private("dspy.clients.execution._cached", _FEATURE)
    execution: Any = sys.modules[choose.__module__]
    key_of = execution.PreparedCall.key

    def key(call: Any, lm: dspy.BaseLM, asynchronous: bool) -> dict[str, Any]:
        fields: dict[str, Any] = key_of(call, lm, asynchronous)
        if isinstance(lm, RagbenchLM):
            fields["ragbench"] = lm.metered.identity
        return fields

    def engine(lm: dspy.BaseLM, call: Any, asynchronous: bool) -> tuple[Any, Any, Any]:
        if isinstance(lm, RagbenchLM) and lm.given is not None and call.request is None:
            # The object that answers is sent all of it, also what no canonical request can hold.
            counted = {name: call.legacy[name] for name in _COUNTED if name in call.legacy}
            call = replace(call, legacy=counted)
        backend, request, provider = choose(lm, call, asynchronous)
        if _is_brought(lm):
            kind = _AsyncBackend if asynchronous else _Backend
            backend = kind(backend, lm)
        return backend, request, provider

    def answer(lm: dspy.BaseLM, call: Any, asynchronous: bool) -> Any:
        hit = cached(lm, call, asynchronous)
        if hit is not None and _is_brought(lm):
            sent = sum(response.usage.input_tokens or 0 for response in hit.responses)
            got = sum(response.usage.output_tokens or 0 for response in hit.responses)
            cost = _pricing(lm).cost(sent, got)
            file_lm_call(
                lm.model, cached=True, prompt_tokens=sent, completion_tokens=got, cost_usd=cost
            )
            _keep(call.legacy.get("messages") or [], hit.outputs)
        return hit

    execution.PreparedCall.key = key
    execution._engine = engine
    execution._cached = answer


def _is_brought(lm: dspy.BaseLM) -> bool:
    own = isinstance(lm, RagbenchLM) or dspy.settings.get(INNER) is not None
    return not own and (current_ledger() is not None or bool(active()))


@dataclass(frozen=True)
class PriceFor:
    """Part of the context of a run: prices by the name of an LM, as `--price-for` gives them."""

    by_model: Mapping[str, str]


def _pricing(lm: dspy.BaseLM) -> Pricing:
    """As of an LM that is handed over: a server given by its address may bill anything."""
    provider, _, model = str(lm.model).partition("/")
    own_server = lm.kwargs.get("api_base") or lm.kwargs.get("base_url")
    prices = current().get(PriceFor)
    for name in (lm.model, f"{lm.model}@{own_server}"):
        if prices is not None and name in prices.by_model:
            return parse_price(prices.by_model[name])
    return Pricing({} if own_server else map_entry(provider, model))


@contextmanager
def _metered(lm: dspy.BaseLM, asked: Any) -> Iterator[list[Any]]:
    """Hold an attempt made inside the block to the limits, file what it took, and keep its texts.

    `asked` is a request, or the body of a call that is not in DSPy's own form. The block adds what
    came of it to the list: the reply, or the events of a stream that state what it took.
    """
    if isinstance(asked, Request):
        prompt = prompt_tokens(asked)
        reply = asked.config.max_tokens or UNBOUNDED_REPLY
    else:
        prompt = estimate_tokens(json.dumps(asked.get("messages"), default=str))
        most = asked.get("max_tokens") or asked.get("max_completion_tokens") or UNBOUNDED_REPLY
        reply = int(most) * int(asked.get("n") or 1)
    pricing = _pricing(lm)
    cost = pricing.cost(prompt, reply)
    bound = Amount(1, prompt + reply, math.inf if cost is None else cost)
    results: list[Any] = []
    with Scope.current().reserved(bound) as reservation:
        start = time.perf_counter()
        try:
            yield results
        except CallRefusedError:
            raise
        except Exception as error:
            name = type(error).__name__
            if isinstance(error, LM15Error):
                name = f"LM{name}"
            file_lm_call(lm.model, error=name, latency_s=time.perf_counter() - start, attempts=1)
            raise
        for sent, got in map(_stated, results):
            prompt = prompt if sent is None else sent
            reply = reply if got is None else got
        cost = pricing.cost(prompt, reply)
        reservation.take(tokens=prompt + reply, cost=cost)
        file_lm_call(
            lm.model,
            prompt_tokens=prompt,
            completion_tokens=reply,
            cost_usd=cost,
            latency_s=round(time.perf_counter() - start, 6),
            attempts=1,
        )
    for result in results:
        if isinstance(result, Response):
            _keep(_messages(asked), [result.text])
        elif hasattr(result, "outputs"):
            _keep(asked.get("messages") or [], result.outputs)


def _stated(result: Any) -> tuple[int | None, int | None]:
    """Returns the tokens of prompt and reply that `result` took; None for what it does not say.

    Those of a reply, which is more than an event of a stream, are estimated then.
    """
    usage = result.usage
    if isinstance(usage, Mapping):
        sent = usage.get("prompt_tokens")
        got = usage.get("completion_tokens")
        text: str | None = str(result.outputs)
    else:
        sent = usage.input_tokens
        got = usage.output_tokens
        text = result.text or "" if isinstance(result, Response) else None
    if got is None and text is not None:
        got = estimate_tokens(text)
    return sent, got


@dataclass(eq=False)
class _Backend:
    """The engine of an LM that a module brought, metered; all else is the engine's."""

    _backend: Any
    _lm: dspy.BaseLM

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def complete(self, request: Request) -> Any:
        """Returns the engine's answer to `request`."""
        with _metered(self._lm, request) as results:
            results.append(self._backend.complete(request))
        return results[0]

    def complete_legacy(self, lm: dspy.BaseLM, body: Mapping[str, Any], **options: Any) -> Any:
        """As the engine's: a call that is not in DSPy's own form."""
        with _metered(self._lm, body) as results:
            results.append(self._backend.complete_legacy(lm, body, **options))
        return results[0]

    def stream(self, request: Request) -> Any:
        """Yields the engine's events; what a stream took is known when it ends."""
        with _metered(self._lm, request) as results:
            for event in self._backend.stream(request):
                if getattr(event, "usage", None) is not None:
                    results.append(event)
                yield event


class _AsyncBackend(_Backend):
    """The same for `acall`."""

    async def complete(self, request: Request) -> Any:
        """As `_Backend.complete`."""
        with _metered(self._lm, request) as results:
            results.append(await self._backend.complete(request))
        return results[0]

    async def complete_legacy(
        self, lm: dspy.BaseLM, body: Mapping[str, Any], **options: Any
    ) -> Any:
        """As `_Backend.complete_legacy`."""
        with _metered(self._lm, body) as results:
            results.append(await self._backend.complete_legacy(lm, body, **options))
        return results[0]

    async def stream(self, request: Request) -> Any:
        """As `_Backend.stream`."""
        with _metered(self._lm, request) as results:
            async for event in self._backend.stream(request):
                if getattr(event, "usage", None) is not None:
                    results.append(event)
                yield event


def _messages(request: Request) -> list[dict[str, Any]]:
    messages = []
    if request.system:
        messages.append({"role": "system", "content": str(request.system)})
    for message in request.messages:
        messages.append({"role": str(message.role), "content": message.text or ""})
    return messages


def _keep(messages: list[dict[str, Any]], outputs: list[Any]) -> None:
    """Keep what the call that was filed last sent and got, where texts are kept."""
    ledger = current_ledger()
    if ledger is None:
        return
    sent = [json.dumps(message, ensure_ascii=False, default=str) for message in messages]
    reply = {"role": "assistant", "content": outputs}
    ledger.keep_texts(sent, json.dumps(reply, ensure_ascii=False, default=str))
