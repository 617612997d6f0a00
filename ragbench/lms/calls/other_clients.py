"""The clients of models that are not reached by an HTTP address: local ones, and LiteLLM's."""

import json
import threading
from dataclasses import replace
from typing import Any

import httpx
from dspy import lm15
from dspy.lm15 import LMRouter, Request, Response, RouterConfig

from ragbench.errors import LMSetupError
from ragbench.lms.calls.client import Client, HostedClient, Wire, openai_compatible
from ragbench.lms.calls.http import HttpClient, HttpReply, HttpRequest
from ragbench.lms.calls.limits import Scope
from ragbench.lms.local import LocalServer
from ragbench.lms.specs import HostedSpec
from ragbench.stopping import POLL_S


class LocalClient(Client):
    """A model that `LocalServer` serves; at most as many calls at once as it has slots."""

    provider = "llamacpp"

    def __init__(self, server: LocalServer, *, timeout: float) -> None:
        self.server = server
        self._http = HttpClient(timeout)
        self._wire = Wire(self._http.send)
        # Calls wait here, not in the server, so that the time limit starts with a free slot.
        self._slots = threading.Semaphore(server.settings.slots)

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
        scope = Scope.current()
        while not self._slots.acquire(timeout=POLL_S):
            scope.check()
        try:
            return self._ask(request)
        finally:
            self._slots.release()

    def check(self) -> None:
        """See `Client`; starts the server."""
        self.prepare()

    def close(self) -> None:
        """Close the connections and stop the server; the next call starts it again."""
        self._http.close()
        self.server.stop()

    def _ask(self, request: Request) -> Response:
        url = self.server.url()
        router = LMRouter(
            RouterConfig(
                api_keys={self.provider: self.server.key},
                transport=self._wire,
                providers=(openai_compatible(self.provider, f"{url}/v1"),),
            )
        )
        extras = {**(request.config.extensions or {}), "cache_prompt": True}
        asked = replace(
            request,
            model=f"{self.provider}:{self.server.settings.alias}",
            config=replace(request.config, extensions=extras),
        )
        failed: lm15.LM15Error | None = None
        try:
            response = self._wire.complete(router, asked)
        except lm15.LM15Error as error:
            failed = error
        if not self.server.runs_at(url):  # then another process may have answered at its port
            raise lm15.ServerError("the local server ended during the call") from failed
        if failed is not None:
            raise failed
        return response


#: Providers whose every customer has an address of their own.
_OWN_ADDRESS = frozenset({"azure", "azure_ai"})


class LiteLLMClient(HostedClient):
    """A model behind any provider of LiteLLM, which takes the place of the network alone."""

    def __init__(self, spec: HostedSpec, *, timeout: float) -> None:
        super().__init__(spec, timeout=timeout, send=self._send)
        self.provider = spec.provider

    def check(self) -> None:
        """See `Client`; looks for the key and the address, and sends nothing."""
        spec, missing = self.spec, list[str]()
        if spec.api_base is None and spec.provider in _OWN_ADDRESS:
            missing = [f"{spec.provider.upper()}_API_BASE (or --api-base)"]
        if spec.api_base is None and spec.key_variables and not spec.key():
            import litellm  # takes seconds

            told = litellm.validate_environment(f"{spec.provider}/{spec.model}")["missing_keys"]
            missing += [name for name in told if not name.endswith("_API_BASE")]
        if missing:
            raise LMSetupError(f"{spec.provider} needs {' and '.join(missing)} in the environment")

    def _send(self, request: Any) -> HttpReply:
        """The reply to a chat request by `litellm.completion`, also where it is an error."""
        import litellm
        from litellm import exceptions as failed

        spec = self.spec
        options: dict[str, Any] = json.loads(request.body)
        options |= {"model": f"{spec.provider}/{spec.model}", "timeout": self._timeout}
        if spec.api_base:
            options["api_base"] = spec.api_base
        # A server of one's own may want no key. AWS and Google have credentials instead, in whose
        # place a key would be sent.
        if key := spec.key() or ("none" if spec.api_base and spec.key_variables else None):
            options["api_key"] = key
        _bound(litellm)
        try:
            answer = litellm.completion(num_retries=0, max_retries=0, **options)
            return HttpReply(200, answer.model_dump_json().encode())
        except failed.Timeout:
            raise lm15.TimeoutError("the request timed out") from None
        except failed.APIConnectionError as error:
            raise lm15.TransportError(_told(error)) from None
        except Exception as error:
            status = getattr(error, "status_code", None)
            if type(status) is not int:
                raise lm15.ServerError(f"{type(error).__name__}: {_told(error)}") from None
            overflow = isinstance(error, failed.ContextWindowExceededError)
            code = "context_length_exceeded" if overflow else None
            told = {"error": {"message": _told(error), "code": code}}
            headers = getattr(getattr(error, "response", None), "headers", None) or {}
            return HttpReply(status, json.dumps(told).encode(), list(headers.items()))


def _told(error: Exception) -> str:
    """What LiteLLM says, without where in its own code it failed."""
    return str(error).partition("\nTraceback (most recent call last)")[0]


class _Bounded(httpx.BaseTransport):
    """The one HTTP client, as LiteLLM's and OpenAI's packages want it."""

    def __init__(self) -> None:
        self._clients: dict[float, HttpClient] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The whole reply; a redirect is an error, for keys are not sent on."""
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
        # What says how a body was sent, which is whole now.
        of_the_wire = ("content-encoding", "content-length", "transfer-encoding")
        kept = [(n, v) for n, v in reply.headers if n.lower() not in of_the_wire]
        return httpx.Response(reply.status, headers=kept, content=reply.body)


def _bound(litellm: Any) -> None:
    """Let LiteLLM send nothing but by the one HTTP client."""
    if not isinstance(getattr(litellm, "sync_transport", None), _Bounded):
        litellm.sync_transport = _Bounded()
        litellm.client_session = httpx.Client(
            transport=litellm.sync_transport, follow_redirects=False
        )
        litellm.telemetry = False
        litellm.suppress_debug_info = True
