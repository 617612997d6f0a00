"""Clients of models that DSPy's router does not reach at an HTTP address.

These are local models, models passed as objects, and models of LiteLLM's providers.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import dspy
import httpx
from dspy import lm15
from dspy.lm15 import (
    LM15Error,
    LMRouter,
    Message,
    Request,
    Response,
    RouterConfig,
    ServerError,
    TextPart,
    Usage,
)

from ragbench.context import POLL_S
from ragbench.dspy_private import private
from ragbench.errors import LMSetupError
from ragbench.lms.calls.client import Client, Wire, openai_compatible
from ragbench.lms.calls.http import HttpClient, HttpRequest, headers_without
from ragbench.lms.calls.limits import Scope
from ragbench.lms.calls.refusals import classed
from ragbench.lms.headers import sent_headers
from ragbench.lms.local import SLOTS, LocalServer
from ragbench.lms.specs import HostedSpec


class LocalClient(Client):
    """A model of a `LocalServer`, with at most one concurrent call per slot."""

    provider = "llamacpp"

    def __init__(self, server: LocalServer, *, timeout: float) -> None:
        self.server = server
        self._http = HttpClient(timeout)
        self._wire = Wire(self._http.send)
        self._lm_at = lru_cache(maxsize=1)(self._connect)
        # Calls wait here, not in the server, so that the time limit starts with a free slot.
        self._slots = threading.Semaphore(SLOTS)

    def prepare(self) -> None:
        """Start the server if it is not up."""
        self.server.url()

    def complete(self, request: Request) -> Response:
        scope = Scope.current()
        while not self._slots.acquire(timeout=POLL_S):
            scope.check()
        try:
            return self._ask(request)
        finally:
            self._slots.release()

    def check(self) -> None:
        self.prepare()

    def close(self) -> None:
        """Close the connections and stop the server. The next call starts it again."""
        self._http.close()
        self.server.stop()

    def _connect(self, url: str) -> Any:
        """Return the router's LM for the server, which has another address after each start."""
        config = RouterConfig(
            api_keys={self.provider: self.server.key},
            transport=self._wire,
            providers=(openai_compatible(self.provider, f"{url}/v1"),),
        )
        return LMRouter(config).lm(f"{self.provider}:{self.server.spec.name}")

    def _ask(self, request: Request) -> Response:
        url = self.server.url()
        extras = {**(request.config.extensions or {}), "cache_prompt": True}
        config = replace(request.config, extensions=extras)
        sent = replace(request, model=self.server.spec.name, config=config)
        failed: lm15.LM15Error | None = None
        try:
            response = self._wire.complete(self._lm_at(url), sent)
        except lm15.LM15Error as error:
            failed = error
        if not self.server.runs_at(url):  # then another process may have answered at its port
            raise lm15.ServerError("the local server ended during the call") from failed
        if failed is not None:
            raise failed
        return response


#: DSPy setting while a metered LM calls a user's LM: the list that receives the history entries
#: of the user's LM.
INNER = "ragbench_inner"
_FEATURE = "a user-provided LM"
#: DSPy setting that holds the call of a user-provided LM, as `LMRequest`.
ASKED = "ragbench_asked"


@dataclass(frozen=True)
class LMRequest:
    """A call as a module made it: the request and all its settings."""

    prompt: Any
    messages: Any
    settings: Mapping[str, Any]
    #: Settings that the call passed.
    at_call: Mapping[str, Any]


class UserLMClient(Client):
    """A model behind a user-provided `dspy.LM`, which answers unchanged and without its cache.

    If the original call is known (`ASKED`), the LM gets the same call. Otherwise it gets the
    request.
    """

    def __init__(self, lm: dspy.BaseLM) -> None:
        self._lm = lm.copy(cache=False, num_retries=0)
        # The metered LM around this one reports the call once.
        self._lm.callbacks = []
        self._lm.update_history = _note
        self.provider = lm.model.partition("/")[0]

    def complete(self, request: Request) -> Response:
        call = dspy.settings.get(ASKED)
        noted: list[dict[str, Any]] = []
        quiet: dict[str, Any] = {"usage_tracker": None, "callbacks": [], "disable_history": False}
        with dspy.context(**{INNER: noted, ASKED: None}, **quiet, send_stream=None):
            try:
                if isinstance(call, LMRequest):
                    outputs = self._outputs(call)
                else:
                    outputs = self._lm(replace(request, model=self._lm.model))
            except dspy.LMError as error:
                raise _classed(error, self.provider) from error
        response = self._response(outputs, noted, request)
        return replace(response, usage=_whole(response.usage, self.provider))

    def _outputs(self, call: LMRequest) -> Any:
        """Return the LM's result for the call. A setting that was removed since is None."""
        settings: dict[str, Any] = dict.fromkeys(self._lm.kwargs.keys() - CLIENT_SETTINGS)
        for name, value in call.settings.items():
            if name not in self._lm.kwargs or value != self._lm.kwargs[name]:
                settings[name] = value
            else:
                del settings[name]
        settings.pop("rollout_id", None)
        if settings.get("n") or self._lm.kwargs.get("n"):
            settings["n"] = 1  # each sample is a separate request
        # The LM around this one has already warned about messages that no adapter made.
        quiet = private("dspy.clients._deprecation.adapter_message_call", _FEATURE)
        with quiet(self._lm, call.messages):
            return self._lm(call.prompt, messages=call.messages, **settings)

    def _response(self, outputs: Any, noted: list[dict[str, Any]], request: Request) -> Response:
        """Return the LM's reply, with the usage that it noted where it noted one."""
        answered = outputs
        if noted and not isinstance(outputs, Response):
            answered = noted[-1]["response"]
        if isinstance(answered, Response):
            return answered
        with suppress(Exception):  # a third-party LM may write any entry
            convert = private("dspy.clients.lm15_boundary.response_value", _FEATURE)
            response: Response = convert(answered, self._lm.model_type, request)
            return response
        output = outputs
        if isinstance(outputs, list) and outputs:
            output = outputs[0]
        text = output.get("text") if isinstance(output, dict) else output
        if not isinstance(text, str):
            raise ServerError(f"the LM object gave {type(outputs).__name__}, not a list of texts")
        message = Message.assistant([TextPart(text)])
        return Response(
            id=None, model=request.model, message=message, finish_reason="stop", usage=Usage()
        )


def _note(entry: dict[str, Any]) -> None:
    """Store the LM's history entry for the metered LM around it."""
    noted = dspy.settings.get(INNER)
    if noted is not None:
        noted.append(entry)


#: Settings of an LM that concern its connection, not the request.
CLIENT_SETTINGS = frozenset(
    {"api_key", "api_base", "base_url", "headers", "extra_headers", "timeout", "api_version"}
    | {"azure_ad_token_provider", "organization", "project", "extra_query", "custom_llm_provider"}
)


def _classed(error: dspy.LMError, provider: str) -> LM15Error:
    """Return the class of a DSPy error. An error without a status is a server error."""
    cause: BaseException | None = error
    status = None
    while cause is not None:
        if isinstance(cause, LM15Error):
            return classed(cause, provider=provider)
        status = status or getattr(cause, "status", None) or getattr(cause, "status_code", None)
        cause = cause.__cause__
    if type(status) is not int or status < 400:
        return ServerError(str(error))
    kind: type[LM15Error] = ServerError
    if status < 500:
        kind = lm15.InvalidRequestError
    return classed(kind(str(error), status=status), provider=provider)


def _whole(usage: Usage, provider: str) -> Usage:
    """Return `usage` with the tokens that a provider counts separately."""
    read = usage.cache_read_tokens or 0
    written = usage.cache_write_tokens or 0
    if usage.input_tokens and provider == "anthropic":
        usage = replace(usage, input_tokens=usage.input_tokens + read + written)
    if usage.output_tokens and usage.reasoning_tokens and provider in ("gemini", "xai"):
        usage = replace(usage, output_tokens=usage.output_tokens + usage.reasoning_tokens)
    return usage


class LiteLLMClient(UserLMClient):
    """A model behind any provider of LiteLLM, which sends by the one HTTP client."""

    def __init__(
        self, spec: HostedSpec, *, timeout: float, headers: Mapping[str, str] | None = None
    ) -> None:
        self.spec = spec
        # A self-hosted server may need no key. For AWS and Google, a key would replace their
        # credentials.
        key = spec.key() or ("none" if spec.api_base and spec.key_variables else None)
        options: dict[str, Any] = {"api_base": spec.api_base, "api_key": key}
        if headers:
            options["extra_headers"] = dict(sent_headers(headers))
        options = {name: value for name, value in options.items() if value}
        model = f"{spec.provider}/{spec.model}"
        super().__init__(dspy.LM(model, engine="litellm", timeout=timeout, **options))

    def complete(self, request: Request) -> Response:
        _bound()
        return super().complete(request)

    def check(self) -> None:
        """See `Client`. Checks the key and the address, and sends nothing."""
        spec = self.spec
        missing: list[str] = []
        if spec.api_base is None and spec.provider in ("azure", "azure_ai"):
            # Each customer has a separate address.
            missing = [f"{spec.provider.upper()}_API_BASE (or --api-base)"]
        if spec.api_base is None and spec.key_variables and not spec.key():
            import litellm  # takes seconds

            validated = litellm.validate_environment(f"{spec.provider}/{spec.model}")
            for key in validated["missing_keys"]:
                if not key.endswith("_API_BASE"):
                    missing.append(key)
        if missing:
            raise LMSetupError(f"{spec.provider} needs {' and '.join(missing)} in the environment")


class _Bounded(httpx.BaseTransport):
    """The one HTTP client, as LiteLLM's and OpenAI's packages want it."""

    def __init__(self) -> None:
        self._clients: dict[float, HttpClient] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the whole reply. A redirect is an error, for keys are not sent on."""
        seconds = float((request.extensions.get("timeout") or {}).get("read") or 600.0)
        client = self._clients.setdefault(seconds, HttpClient(seconds))
        headers = list(request.headers.items())
        try:
            sent = HttpRequest(request.method, str(request.url), headers, request.read())
            reply = client.send(sent)
        except lm15.InvalidRequestError as error:
            return httpx.Response(400, json={"error": {"message": error.message}})
        except lm15.TimeoutError as error:
            raise httpx.ReadTimeout(str(error), request=request) from None
        except lm15.TransportError as error:
            raise httpx.ReadError(str(error), request=request) from None
        # These headers describe the transfer, and the body is complete now.
        of_the_wire = ("content-encoding", "content-length", "transfer-encoding")
        reply_headers = headers_without(of_the_wire, reply.headers)
        return httpx.Response(reply.status, headers=reply_headers, content=reply.body)


def _bound() -> None:
    """Let LiteLLM send nothing but by the one HTTP client."""
    import litellm

    if not isinstance(getattr(litellm, "sync_transport", None), _Bounded):
        litellm.sync_transport = transport = _Bounded()
        litellm.client_session = httpx.Client(transport=transport, follow_redirects=False)
        litellm.telemetry = False
        litellm.suppress_debug_info = True
