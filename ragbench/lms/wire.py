"""Wires: one attempt at a call, over DSPy's native HTTP client, with canonical errors.

Retries, metering and limits are the engine's. A wire only knows where the server is, what its
model is called there and how its errors read.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request as HTTPRequest
from urllib.request import urlopen

from dspy import lm15
from dspy.clients.engines.lm15_engine import LM15Engine
from dspy.lm15 import (
    OpenAIChatCompat,
    ProviderDefinition,
    Request,
    Response,
    RouterConfig,
    Timeouts,
)

from ragbench.errors import LMSetupError
from ragbench.lms.governor import RATE_LIMITS
from ragbench.lms.server import LocalServer
from ragbench.lms.specs import SELF_HOSTED, HostedSpec
from ragbench.lms.transport import WatchedTransport

CHECK_TIMEOUT_S = 5.0
# llama.cpp, vLLM and others say it in words, with the code of any other bad request.
_OVERFLOW = re.compile(r"context (size|length|window)|exceed_context_size|maximum context", re.I)


class Wire(Protocol):
    """A way to one model."""

    #: DSPy's name of the provider, which says how its token counts read.
    provider: str

    def prepare(self) -> None:
        """Bring up what calls need, such as a local server; not part of a call's latency."""

    def complete(self, request: Request) -> Response:
        """One attempt.

        Raises:
            dspy.lm15.LM15Error: it failed.
        """

    def check(self) -> None:
        """Do nothing if calls can be made now.

        Raises:
            LMSetupError: they cannot; the message has the cure.
        """

    def close(self) -> None:
        """Let go of connections and of processes that only this process uses."""


class HostedWire:
    """A model behind a server that somebody else runs."""

    def __init__(self, spec: HostedSpec, *, timeout: float) -> None:
        self.spec = spec
        self._transport = WatchedTransport(_timeouts(timeout))
        self._config = _hosted_config(spec, self._transport)
        prefix = "compatible" if self._config.providers else spec.provider
        self._model = f"{prefix}/{spec.model}"
        self._engine = LM15Engine(self._config)
        self.provider = str(self._engine.resolve(self._model).provider)

    def prepare(self) -> None:
        """Nothing: the server is not ours."""

    def complete(self, request: Request) -> Response:
        """One attempt; see `Wire`. The reply's rate-limit headers are in its `provider_data`."""
        response = attempt(self._engine.complete, replace(request, model=self._model))
        headers = {name: list(values) for name, values in self._transport.rate_limits().items()}
        data = {**(response.provider_data or {}), RATE_LIMITS: headers}
        return replace(response, provider_data=data)

    def check(self) -> None:
        """See `Wire`; asks a server given by address for its models, others only for their key."""
        spec = self.spec
        own = spec.api_base is not None or spec.provider in SELF_HOSTED
        if not own and not spec.key():
            names = " or ".join(spec.key_variables)
            raise LMSetupError(
                f"{spec.provider} needs a key: set {names} in the environment or in a .env file"
            )
        if own:
            self._ask_for_models()

    def close(self) -> None:
        """Close the connections; no call may follow."""
        self._engine.close()
        self._transport.close()

    def _ask_for_models(self) -> None:
        adapter, _ = self._engine._target(Request(self._model, (lm15.Message.user("x"),)))
        base = str(adapter.base_url).rstrip("/")
        names = listed_models(base, self.spec.key())
        if names and self.spec.model not in names:
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise LMSetupError(f"{base} has no model {self.spec.model!r}; it has {shown}")


class LocalWire:
    """A model that `LocalServer` serves; at most as many calls at once as it has slots."""

    provider = "llamacpp"

    def __init__(self, server: LocalServer, *, timeout: float) -> None:
        self.server, self._timeout = server, timeout
        self._engine: LM15Engine | None = None
        self._url = ""
        self._lock = threading.Lock()
        # Calls wait here, not in the server, so that the time limit starts with a free slot.
        self._slots = threading.BoundedSemaphore(server.settings.slots)

    def prepare(self) -> None:
        """Start the server if it is not up.

        Raises:
            LMSetupError: it does not start.
        """
        self.server.url()

    def complete(self, request: Request) -> Response:
        """One attempt; see `Wire`."""
        model = f"{self.provider}/{self.server.settings.alias}"
        extras = {**(request.config.extensions or {}), "cache_prompt": True}
        config = replace(request.config, extensions=extras)
        with self._slots:
            return attempt(self._connected, replace(request, model=model, config=config))

    def check(self) -> None:
        """See `Wire`; starts the server."""
        self.prepare()

    def close(self) -> None:
        """Close the connections and stop the server; the next call starts it again."""
        with self._lock:
            if self._engine is not None:
                self._engine.close()
            self._engine = None
            self.server.stop()

    def _connected(self, request: Request) -> Response:
        with self._lock:
            url = self.server.url()
            if self._engine is None or url != self._url:
                if self._engine is not None:
                    self._engine.close()
                self._url = url
                self._engine = LM15Engine(_local_config(self.server, url, self._timeout))
            engine = self._engine
        return engine.complete(request)


def attempt(complete: Callable[[Request], Response], request: Request) -> Response:
    """`complete(request)`, with every failure of the wire as a canonical error.

    Raises:
        dspy.lm15.LM15Error: it failed.
    """
    try:
        response = complete(request)
        _check_shape((response.provider_data or {}).get("choices"))
        return response
    except lm15.InvalidRequestError as error:
        if not isinstance(error, lm15.ContextLengthError) and _OVERFLOW.search(error.message):
            raise _as(lm15.ContextLengthError, error) from error
        raise
    except lm15.ProviderError as error:
        # A success whose body is no answer: half a document, or the HTML page of a proxy.
        if type(error) is lm15.ProviderError and 200 <= (error.status or 0) < 300:
            raise _as(lm15.ServerError, error) from error
        raise
    except lm15.TransportError as error:
        if "Timeout" in type(error.__cause__).__name__ or "timed out" in error.message.lower():
            raise _as(lm15.TimeoutError, error) from error
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        # JSON, but not of the shape that the protocol says.
        raise lm15.ServerError(f"unreadable reply: {type(error).__name__}: {error}") from error


def _check_shape(choices: Any) -> None:
    """Do nothing if `choices` of a chat reply hold a message; DSPy reads others as a blank one.

    Raises:
        ValueError: they do not.
    """
    if choices is None:  # not that protocol
        return
    message = choices[0]["message"]
    if not isinstance(message.get("content", ""), str | list | None):
        raise ValueError(f"content is {type(message['content']).__name__}")


def listed_models(base: str, key: str | None) -> list[str]:
    """Names of the models of the OpenAI-compatible server at `base`; empty if it has no such list.

    Raises:
        LMSetupError: it cannot be reached, or refuses the key.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urlopen(HTTPRequest(f"{base}/models", headers=headers), timeout=CHECK_TIMEOUT_S) as r:
            data = json.load(r)
        return [str(entry["id"]) for entry in data["data"]]
    except HTTPError as error:
        if error.code in (401, 403):
            raise LMSetupError(f"{base} refuses the key (HTTP {error.code})") from None
        return []
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise LMSetupError(f"cannot reach the LM server at {base}: {reason}; is it up?") from None
    except (ValueError, KeyError, TypeError):
        return []


def _as(kind: Any, error: lm15.LM15Error) -> lm15.LM15Error:
    made = kind(
        error.message,
        provider=error.provider,
        provider_code=error.provider_code,
        status=error.status,
        request_id=error.request_id,
        retry_after=error.retry_after,
    )
    assert isinstance(made, lm15.LM15Error)
    return made


def _timeouts(seconds: float) -> Timeouts:
    return Timeouts(connect=min(seconds, 10.0), read=seconds, write=seconds, pool=seconds)


def _definition(provider: str, base_url: str) -> ProviderDefinition:
    return ProviderDefinition.chat(
        lm15.AccessPolicy(provider=provider, base_url=base_url),
        compat=OpenAIChatCompat(max_tokens_field="max_tokens", instruction_role="system"),
        placeholder_key="none",
    )


def _local_config(server: LocalServer, url: str, timeout: float) -> RouterConfig:
    return RouterConfig(
        api_keys={LocalWire.provider: server.key},
        timeouts=_timeouts(timeout),
        providers=(_definition(LocalWire.provider, f"{url}/v1"),),
    )


def _hosted_config(spec: HostedSpec, transport: WatchedTransport) -> RouterConfig:
    def key() -> str:
        return spec.key() or "none"

    if spec.provider == "openai" and spec.api_base:
        return RouterConfig(
            api_keys={"compatible": key},
            transport=transport,
            providers=(_definition("compatible", spec.api_base),),
        )
    provider = str(LM15Engine().resolve(f"{spec.provider}/{spec.model}").provider)
    return RouterConfig(
        api_keys={provider: key},
        base_urls={provider: spec.api_base} if spec.api_base else None,
        transport=transport,
    )
