"""Clients of LM servers: one attempt at a call, by DSPy's native engine, with canonical errors.

Retries, metering and limits are the caller's. A client only knows where the server is, what its
model is called there and how its errors read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from dspy import lm15
from dspy.lm15 import (
    OpenAIChatCompat,
    ProviderDefinition,
    Request,
    Response,
    RouterConfig,
    Timeouts,
)

from ragbench import stopping
from ragbench.dspy_internals import LM15Engine
from ragbench.errors import LMSetupError
from ragbench.lms.calls.completion import UNREADABLE, USAGE, attempt
from ragbench.lms.calls.refusal import CallRefusedError
from ragbench.lms.calls.scope import Scope
from ragbench.lms.calls.transport import BoundedTransport, StoredReply, TransportError, get
from ragbench.lms.local import LocalServer
from ragbench.lms.specs import SELF_HOSTED, HostedSpec

CHECK_TIMEOUT_S = 5.0
_LIST_BYTES = 4 * 2**20


class Client(Protocol):
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

    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """The rate-limit headers of the calling thread's last reply, names in lower case."""

    def check(self) -> None:
        """Do nothing if calls can be made now.

        Raises:
            LMSetupError: they cannot; the message has the cure.
        """

    def close(self) -> None:
        """Let go of connections and of processes that only this process uses."""


class HostedClient:
    """A model behind a server that somebody else runs."""

    def __init__(self, spec: HostedSpec, *, timeout: float) -> None:
        self.spec, self._timeout = spec, timeout
        self._transport = BoundedTransport(_timeouts(timeout))
        self._config = _hosted_config(spec, self._transport)
        prefix = "compatible" if self._config.providers else spec.provider
        self._model = f"{prefix}/{spec.model}"
        self._engine = LM15Engine(self._config)
        self.provider = str(self._engine.resolve(self._model).provider)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process takes the key from its own environment."""
        return partial(type(self), timeout=self._timeout), (self.spec,)

    def prepare(self) -> None:
        """Nothing: the server is not ours."""

    def complete(self, request: Request) -> Response:
        """One attempt; see `Client`."""
        named = replace(request, model=self._model)
        return attempt(self._engine.complete, named, self._read_again, self._transport.last_body)

    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """See `Client`."""
        return self._transport.rate_limits()

    def check(self) -> None:
        """See `Client`; asks a server given by address for its models, others for their key."""
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

    def _read_again(self, request: Request) -> Response | None:
        """The last reply without its token counts, where those cannot be read; None without any."""
        try:
            body = json.loads(self._transport.last_body())
            kept = {name: value for name, value in body.items() if name not in USAGE}
            if len(kept) == len(body):
                return None
            stored = StoredReply(200, json.dumps(kept).encode())
            return LM15Engine(replace(self._config, transport=stored)).complete(request)
        except UNREADABLE:
            return None

    def _ask_for_models(self) -> None:
        adapter, _ = self._engine._target(Request(self._model, (lm15.Message.user("x"),)))
        base = str(adapter.base_url).rstrip("/")
        names = listed_models(base, self.spec.key())
        if names and self.spec.model not in names:
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise LMSetupError(f"{base} has no model {self.spec.model!r}; it has {shown}")


class LocalClient:
    """A model that `LocalServer` serves; at most as many calls at once as it has slots."""

    provider = "llamacpp"

    def __init__(self, server: LocalServer, *, timeout: float) -> None:
        self.server, self._timeout = server, timeout
        self._engine: LM15Engine | None = None
        self._transport: BoundedTransport | None = None
        self._url = ""
        self._lock = threading.Lock()
        # Calls wait here, not in the server, so that the time limit starts with a free slot.
        self._free = server.settings.slots
        self._slot = stopping.wakes(threading.Condition())

    def prepare(self) -> None:
        """Start the server if it is not up.

        Raises:
            LMSetupError: it does not start.
        """
        self.server.url()

    def complete(self, request: Request) -> Response:
        """One attempt; see `Client`.

        Raises:
            CallRefusedError: it was stopped while it waited for a slot.
        """
        model = f"{self.provider}/{self.server.settings.alias}"
        extras = {**(request.config.extensions or {}), "cache_prompt": True}
        config = replace(request.config, extensions=extras)
        self._take_slot()
        try:
            sent = replace(request, model=model, config=config)
            return attempt(self._connected, sent, body=self._last_body)
        finally:
            with self._slot:
                self._free += 1
                self._slot.notify()

    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """None: the server has no limits but its slots."""
        return {}

    def check(self) -> None:
        """See `Client`; starts the server."""
        self.prepare()

    def close(self) -> None:
        """Close the connections and stop the server; the next call starts it again."""
        with self._lock:
            self._disconnect()
            self.server.stop()

    def _take_slot(self) -> None:
        scope = Scope.current()
        with self._slot:
            while not self._free:
                scope.wait(self._slot)
            self._free -= 1

    def _last_body(self) -> bytes:
        return self._transport.last_body() if self._transport is not None else b""

    def _disconnect(self) -> None:
        if self._engine is not None and self._transport is not None:
            self._engine.close()
            self._transport.close()
        self._engine = None

    def _connected(self, request: Request) -> Response:
        with self._lock:
            url = self.server.url()
            if self._engine is None or url != self._url:
                self._disconnect()
                self._url, self._transport = url, BoundedTransport(_timeouts(self._timeout))
                self._engine = LM15Engine(_local_config(self.server, url, self._transport))
            engine = self._engine
        failed: Exception | None = None
        try:
            response = engine.complete(request)
        except CallRefusedError:
            raise
        except Exception as error:
            failed = error
        if not self.server.runs_at(url):  # then another process may have answered at its port
            raise lm15.ServerError("the local server ended during the call") from failed
        if failed is not None:
            raise failed
        return response


def listed_models(base: str, key: str | None) -> list[str]:
    """Names of the models of the OpenAI-compatible server at `base`; empty if it has no such list.

    Raises:
        LMSetupError: it cannot be reached, redirects, or refuses the key.
    """
    transport = BoundedTransport(_timeouts(CHECK_TIMEOUT_S), max_bytes=_LIST_BYTES)
    try:
        with transport.stream(get(f"{base}/models", key)) as reply:
            body = reply.read()
        if reply.status in (401, 403):
            raise LMSetupError(f"{base} refuses the key (HTTP {reply.status})")
        if reply.status != 200:
            return []
        return [str(entry["id"]) for entry in json.loads(body)["data"]]
    except lm15.InvalidRequestError as error:
        raise LMSetupError(f"{base}: {error.message}") from None
    except TransportError as error:
        raise LMSetupError(f"cannot reach the LM server at {base}: {error}; is it up?") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    finally:
        transport.close()


def _timeouts(seconds: float) -> Timeouts:
    return Timeouts(connect=min(seconds, 10.0), read=seconds, write=seconds, pool=seconds)


def _definition(provider: str, base_url: str) -> ProviderDefinition:
    return ProviderDefinition.chat(
        lm15.AccessPolicy(provider=provider, base_url=base_url),
        compat=OpenAIChatCompat(max_tokens_field="max_tokens", instruction_role="system"),
        placeholder_key="none",
    )


def _local_config(server: LocalServer, url: str, transport: BoundedTransport) -> RouterConfig:
    return RouterConfig(
        api_keys={LocalClient.provider: server.key},
        transport=transport,
        providers=(_definition(LocalClient.provider, f"{url}/v1"),),
    )


def _hosted_config(spec: HostedSpec, transport: BoundedTransport) -> RouterConfig:
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
