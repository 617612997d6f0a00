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
            counted = {}
            for name in _COUNTED:
                if name in call.legacy:
                    counted[name] = call.legacy[name]
            call = replace(call, legacy=counted)
        backend, request, provider = choose(lm, call, asynchronous)
        if _is_brought(lm):
            kind = _AsyncBackend if asynchronous else _Backend
            backend = kind(backend, lm)
        return backend, request, provider

    def answer(lm: dspy.BaseLM, call: Any, asynchronous: bool) -> Any:
        hit = cached(lm, call, asynchronous)
        if hit is not None and _is_brought(lm):
            sent = 0
            got = 0
            for response in hit.responses:
                sent += response.usage.input_tokens or 0
                got += response.usage.output_tokens or 0
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
    if isinstance(lm, RagbenchLM) or dspy.settings.get(INNER) is not None:
        return False
    return current_ledger() is not None or bool(active())


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


class _Meter:
    """What one attempt took."""

    def __init__(self) -> None:
        self.sent: int | None = None
        self.got: int | None = None

    def read(self, result: Any) -> None:
        """Take the counts of a `CallResult` of DSPy's."""
        self.sent = result.usage.get("prompt_tokens")
        self.got = result.usage.get("completion_tokens")
        if self.got is None:
            self.got = estimate_tokens(str(result.outputs))


@contextmanager
def _metered(lm: dspy.BaseLM, prompt: int, reply: int) -> Iterator[_Meter]:
    """Hold an attempt made inside the block to the limits, and file what it took."""
    pricing = _pricing(lm)
    cost = pricing.cost(prompt, reply)
    meter = _Meter()
    most = Amount(1, prompt + reply, math.inf if cost is None else cost)
    with Scope.current().reserved(most) as reservation:
        start = time.perf_counter()
        try:
            yield meter
        except CallRefusedError:
            raise
        except Exception as error:
            name = type(error).__name__
            if isinstance(error, LM15Error):
                name = f"LM{name}"
            file_lm_call(lm.model, error=name, latency_s=time.perf_counter() - start, attempts=1)
            raise
        sent = prompt if meter.sent is None else meter.sent
        got = reply if meter.got is None else meter.got
        cost = pricing.cost(sent, got)
        reservation.take(tokens=sent + got, cost=cost)
        seconds = round(time.perf_counter() - start, 6)
        file_lm_call(
            lm.model,
            prompt_tokens=sent,
            completion_tokens=got,
            cost_usd=cost,
            latency_s=seconds,
            attempts=1,
        )


class _Backend:
    """The engine of an LM that a module brought, metered; all else is the engine's."""

    def __init__(self, backend: Any, lm: dspy.BaseLM) -> None:
        self._backend = backend
        self._lm = lm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def complete(self, request: Request) -> Response:
        """Returns the engine's answer to `request`."""
        with _metered(self._lm, *_bounds(request)) as meter:
            response: Response = self._backend.complete(request)
            _read_response(meter, response)
        _keep_request(request, response)
        return response

    def complete_legacy(self, lm: dspy.BaseLM, body: Mapping[str, Any], **options: Any) -> Any:
        """As the engine's: a call that is not in DSPy's own form."""
        with _metered(self._lm, *_bounds_of(body)) as meter:
            result = self._backend.complete_legacy(lm, body, **options)
            meter.read(result)
        _keep(body.get("messages") or [], result.outputs)
        return result

    def stream(self, request: Request) -> Iterator[Any]:
        """Yields the engine's events; what a stream took is known when it ends."""
        with _metered(self._lm, *_bounds(request)) as meter:
            for event in self._backend.stream(request):
                _read_event(meter, event)
                yield event


class _AsyncBackend(_Backend):
    """The same for `acall`."""

    async def complete(self, request: Request) -> Response:
        """As `_Backend.complete`."""
        with _metered(self._lm, *_bounds(request)) as meter:
            response: Response = await self._backend.complete(request)
            _read_response(meter, response)
        _keep_request(request, response)
        return response

    async def complete_legacy(
        self, lm: dspy.BaseLM, body: Mapping[str, Any], **options: Any
    ) -> Any:
        """As `_Backend.complete_legacy`."""
        with _metered(self._lm, *_bounds_of(body)) as meter:
            result = await self._backend.complete_legacy(lm, body, **options)
            meter.read(result)
        _keep(body.get("messages") or [], result.outputs)
        return result

    async def stream(self, request: Request) -> Any:
        """As `_Backend.stream`."""
        with _metered(self._lm, *_bounds(request)) as meter:
            async for event in self._backend.stream(request):
                _read_event(meter, event)
                yield event


def _bounds(request: Request) -> tuple[int, int]:
    """Returns the most tokens that prompt and reply may take."""
    return prompt_tokens(request), request.config.max_tokens or UNBOUNDED_REPLY


def _bounds_of(body: Mapping[str, Any]) -> tuple[int, int]:
    sent = json.dumps(body.get("messages"), default=str)
    most = body.get("max_tokens") or body.get("max_completion_tokens") or UNBOUNDED_REPLY
    return estimate_tokens(sent), int(most) * int(body.get("n") or 1)


def _read_response(meter: _Meter, response: Response) -> None:
    meter.sent, meter.got = response.usage.input_tokens, response.usage.output_tokens
    if meter.got is None:
        meter.got = estimate_tokens(response.text or "")


def _read_event(meter: _Meter, event: Any) -> None:
    usage = getattr(event, "usage", None)
    if usage is not None:
        meter.sent, meter.got = usage.input_tokens, usage.output_tokens


def _keep_request(request: Request, response: Response) -> None:
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": str(request.system)})
    for message in request.messages:
        messages.append({"role": str(message.role), "content": message.text or ""})
    _keep(messages, [response.text])


def _keep(messages: list[dict[str, Any]], outputs: list[Any]) -> None:
    """Keep what the call that was filed last sent and got, where texts are kept."""
    ledger = current_ledger()
    if ledger is None:
        return
    sent = [json.dumps(message, ensure_ascii=False, default=str) for message in messages]
    reply = {"role": "assistant", "content": outputs}
    ledger.keep_texts(sent, json.dumps(reply, ensure_ascii=False, default=str))
