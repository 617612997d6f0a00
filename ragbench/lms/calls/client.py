"""The client of an LM server: one attempt at a call, and the reading of its reply.

Retries, metering and limits belong to the caller. A client knows the server's address, the model's
name there, and the form of replies and errors: by DSPy's router, over the only HTTP client. A reply
with HTTP 200 that is not a completion is an error of the server.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http.client import RemoteDisconnected
from typing import Any

from dspy import lm15
from dspy.lm15 import (
    LMRouter,
    OpenAIChatCompat,
    ProviderDefinition,
    Request,
    Response,
    RouterConfig,
    Usage,
)

from ragbench.errors import LMSetupError
from ragbench.lms.calls.http import HttpClient, HttpReply, HttpRequest, headers_without, request_of
from ragbench.lms.calls.refusals import classed
from ragbench.lms.headers import sent_headers
from ragbench.lms.specs import SELF_HOSTED, HostedSpec
from ragbench.redact import encodable, without_keys

CHECK_TIMEOUT_S = 5.0
_LIST_BYTES = 4 * 2**20
#: Characters of a server's message that are kept.
_MESSAGE = 1000
#: Characters of the body of an error that are looked through for one.
_LONGEST_BODY = 100_000
#: A reply with more tool calls is of a server that repeats itself: to read them takes minutes.
MOST_CALLS = 1_000
#: A server that counts more tokens than this counts nothing: the longest prompts have 10 million.
MOST_TOKENS = 20_000_000
#: Endings of a Gemini candidate that is an answer or was cut. Other endings are failures.
_GEMINI_ENDINGS = frozenset(
    {"STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"}
    | {"FINISH_REASON_UNSPECIFIED", "LANGUAGE", "IMAGE_SAFETY"}
)
#: Errors of reading a reply that does not follow the protocol.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
#: Providers that DSPy's router calls otherwise.
_ROUTES = {"openai": "openai-chat", "ollama_chat": "ollama", "hosted_vllm": "vllm",
           "moonshot": "moonshotai"}  # fmt: skip
#: Names of the part of a reply that counts tokens: OpenAI's and Anthropic's, and Gemini's.
_COUNTS = ("usage", "usageMetadata")
#: Count -> its names in the protocols of OpenAI, Anthropic and Gemini.
_COUNTED = {
    "prompt": ("prompt_tokens", "input_tokens", "promptTokenCount"),
    "reply": ("completion_tokens", "output_tokens", "candidatesTokenCount"),
    "read": ("cached_tokens", "cache_read_input_tokens", "cachedContentTokenCount"),
    "written": ("cache_creation_input_tokens",),
    "thought": ("reasoning_tokens", "thoughtsTokenCount"),
}
_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


class Client:
    """A way to one model."""

    #: DSPy's name of the provider, under which prices are looked up.
    provider: str

    def prepare(self) -> None:
        """Start a local server or whatever else calls need. Not part of a call's latency."""

    def complete(self, request: Request) -> Response:
        """Return the response of one attempt, with its usage as in `reported_usage`.

        Raises:
            dspy.lm15.LM15Error: The attempt failed. Its attribute `usage` is the billed usage, if
            known.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Do nothing if calls are possible now.

        Raises:
            LMSetupError: Calls are not possible. The message states the fix.
        """

    def rename(self, name: str, new_name: str) -> bool:
        """Return True if the parameter called `name` is sent as `new_name` from now on.

        Args:
            name: Name of the parameter in DSPy.
            new_name: Name that the server requires.
        """
        return False

    def close(self) -> None:
        """Let go of connections and of processes that only this process uses."""


class Wire:
    """Transport of DSPy's router: `send`, which inspects each reply before the router reads it.

    The token counts are taken out of a reply and kept for the thread: so that their shape can hurt
    no answer, and that a failed attempt is billed too.
    """

    def __init__(
        self, send: Callable[[Any], HttpReply], headers: Mapping[str, str] | None = None
    ) -> None:
        self._send = send
        #: DSPy's name of the provider.
        self.provider = ""
        #: Headers in addition to the protocol's.
        self.headers = headers or {}
        #: Parameters that are sent under another name.
        self.renamed: dict[str, str] = {}
        self._local = threading.local()

    def stream(self, request: Any) -> HttpReply:
        """Return the reply to `request`, even if it is an error.

        Raises:
            lm15.LM15Error: The server did not reply.
        """
        self._local.usage = None
        self._local.body = ""
        if self.renamed or self.headers:
            request = self._with_names(request)
        reply = self._send(request)
        if reply.status >= 400:
            self._local.body = reply.body[:_LONGEST_BODY].decode("utf-8", "replace")
            self._local.sent = request.body.decode("utf-8", "replace")
        try:
            body = json.loads(reply.body)
        except (ValueError, RecursionError):
            return reply  # the router raises the error
        if not isinstance(body, dict):
            return reply
        self._local.usage = reported_usage(body, self.provider)
        if reply.status == 200 and (failed := _failure_in(body)):
            error = lm15.ServerError(f"the reply reports a failure: {failed}", status=200)
            raise classed(error, provider=self.provider)
        content = dict(body)
        for name in _COUNTS:
            content.pop(name, None)
        return replace(reply, body=json.dumps(content).encode())

    def _with_names(self, request: Any) -> Any:
        """Return `request` with the user's headers and the names that the server requires."""
        content = request.body
        if self.renamed:
            body = json.loads(content)
            for name, new_name in self.renamed.items():
                if name in body:
                    body[new_name] = body.pop(name)
            content = json.dumps(body).encode()
        own = sent_headers(self.headers)
        headers = headers_without({name.lower() for name, _ in own}, request.headers)
        return HttpRequest(request.method, request.url, [*headers, *own], content)

    def complete(self, lm: Any, request: Request) -> Response:
        """Return the answer of the router's `lm`. Raise every failure as a canonical error.

        Args:
            lm: LM of DSPy's router, over this transport.
            request: The request.

        Raises:
            dspy.lm15.LM15Error: it failed.
        """
        self._local.usage = None
        self._local.body = self._local.sent = ""
        try:
            try:
                response: Response = lm.complete(request)
            except UNREADABLE as error:  # JSON, but not of the shape that the protocol says
                why = f"unreadable reply: {type(error).__name__}: {error}"
                raise lm15.ServerError(why) from error
            except lm15.ProviderError as error:
                if type(error) is lm15.ProviderError and 200 <= (error.status or 0) < 300:
                    # A success whose body is not an answer: half of one, or a proxy's HTML page.
                    raise lm15.ServerError(error.message, status=error.status) from error
                local = self._local
                raise classed(
                    error, provider=self.provider, body=local.body, sent=local.sent
                ) from error
            return replace(response, usage=self._local.usage or Usage())
        except lm15.LM15Error as error:
            # A server may quote anything, also the key that it was sent.
            message = encodable(error.message[: 4 * _MESSAGE])
            error.message = without_keys(message)[:_MESSAGE]
            error.args = (error.message,)
            error.usage = self._local.usage
            error.body = self._local.body[:_MESSAGE]
            raise


class HostedClient(Client):
    """A model behind a remote server. `send` represents the network."""

    def __init__(
        self,
        spec: HostedSpec,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        send: Callable[[Any], HttpReply] | None = None,
    ) -> None:
        self.spec = spec
        self._http = HttpClient(timeout)
        self._wire = Wire(send or self._http.send, headers=headers)
        base = spec.api_base
        provider = _ROUTES.get(spec.provider, spec.provider)
        place: dict[str, Any] = {}
        if base and spec.provider == "openai":
            provider = "compatible"
            place["providers"] = (openai_compatible(provider, base),)
        elif base:
            place["base_urls"] = {provider: base}
        keys = {provider: spec.key() or "none"}
        self._router = LMRouter(RouterConfig(api_keys=keys, transport=self._wire, **place))
        route = f"{provider}:{spec.model}"
        self._lm = self._router.lm(route)
        resolution = self._router.resolve(route)
        self._model = resolution.model
        self.provider = self._wire.provider = str(resolution.provider)

    def complete(self, request: Request) -> Response:
        return self._wire.complete(self._lm, replace(request, model=self._model))

    def rename(self, name: str, new_name: str) -> bool:
        self._wire.renamed = {name: new_name}
        return True

    def check(self) -> None:
        """See `Client`. Requests the models of a server given by address. Others need a key."""
        spec = self.spec
        if spec.api_base is None and spec.provider not in SELF_HOSTED:
            if not spec.key():
                variables = " or ".join(spec.key_variables)
                raise LMSetupError(
                    f"{spec.provider} needs a key: set {variables} in the environment or in a "
                    ".env file"
                )
            return
        base = str(self._lm.base_url).rstrip("/")
        there = listed_models(base, spec.key(), sent_headers(self._wire.headers))
        if there and spec.model not in there:
            listing = ", ".join(there[:8]) + (", ..." if len(there) > 8 else "")
            raise LMSetupError(f"{base} has no model {spec.model!r}; it has {listing}")

    def close(self) -> None:
        """Close the connections. No call may follow."""
        self._router.close()
        self._http.close()


def openai_compatible(provider: str, base_url: str) -> ProviderDefinition:
    """Return a server at `base_url` that speaks OpenAI's chat protocol.

    Args:
        provider: Name of the provider in messages and prices.
        base_url: Address of the server.
    """
    return ProviderDefinition.chat(
        lm15.AccessPolicy(provider=provider, base_url=base_url),
        compat=OpenAIChatCompat(max_tokens_field="max_tokens", instruction_role="system"),
        placeholder_key="none",
    )


def listed_models(base: str, key: str | None, headers: Sequence[tuple[str, str]]) -> list[str]:
    """Return the model names of the OpenAI-compatible server at `base`. Empty if it has no list.

    Args:
        base: Address of the server.
        key: The key. None if the server needs none.
        headers: Headers in addition to the key.

    Raises:
        LMSetupError: It cannot be reached, redirects, or refuses the key.
    """
    http = HttpClient(CHECK_TIMEOUT_S, max_bytes=_LIST_BYTES)
    try:
        request = request_of(f"{base}/models", key)
        reply = http.send(replace(request, headers=[*request.headers, *headers]))
        if reply.status in (401, 403):
            raise LMSetupError(f"{base} refuses the key (HTTP {reply.status})")
        if reply.status != 200:
            return []
        return [str(entry["id"]) for entry in json.loads(reply.body)["data"]]
    except lm15.InvalidRequestError as error:
        raise LMSetupError(f"{base}: {error.message}") from None
    except (lm15.TransportError, lm15.TimeoutError) as error:
        if isinstance(error.__cause__, RemoteDisconnected):
            return []  # it is there, and has no list
        why = error.message
        raise LMSetupError(f"cannot reach the LM server at {base}: {why}; is it running?") from None
    except UNREADABLE:
        return []
    finally:
        http.close()


def reported_usage(body: Mapping[str, Any], provider: str) -> Usage | None:
    """Return the tokens that a reply reports, or None if it reports none.

    An impossible count is dropped without the others. Prompt tokens include those that the
    provider's cache read and wrote, and reply tokens include reasoning, whether or not the provider
    counts them separately. Supports the protocols of OpenAI (chat), Anthropic and Gemini.

    Args:
        body: JSON body of the reply.
        provider: Name of the provider in DSPy.
    """
    counts: dict[str, Any] = {}
    usages = [usage for usage in map(body.get, _COUNTS) if isinstance(usage, Mapping)]
    if not usages:
        return None
    for usage in usages:
        counts.update(usage)
        for details in map(usage.get, _DETAILS):
            if isinstance(details, Mapping):
                counts.update(details)
    stated: dict[str, int] = {}
    for kind, names in _COUNTED.items():
        for count in map(counts.get, names):
            if type(count) is int and 0 <= count <= MOST_TOKENS:
                stated[kind] = count
    sent = stated.get("prompt", 0)
    got = stated.get("reply")
    cached = stated.get("read", 0) + stated.get("written", 0)
    thought = stated.get("thought", 0)
    if "input_tokens" in counts and sent:
        sent += cached
    if "promptTokenCount" in counts:
        got = (got or 0) + thought
    elif got is not None and (provider == "xai" or thought > got):
        got += thought
    if cached > sent:
        stated = {}
    return Usage(
        sent or None,
        got,
        cache_read_tokens=stated.get("read") or None,
        cache_write_tokens=stated.get("written") or None,
        reasoning_tokens=thought or None,
    )


def _failure_in(body: Mapping[str, Any]) -> str:
    """Return the failure that the JSON of a reply with HTTP 200 states. Blank if none."""
    failure = body.get("error") or body.get("error_msg")
    base = body.get("base_resp")
    if isinstance(base, Mapping) and base.get("status_code"):
        failure = f"{base.get('status_msg') or 'no reason'} ({base['status_code']})"
    candidates = body.get("candidates")
    if isinstance(candidates, list) and candidates and isinstance(candidates[0], Mapping):
        ended = candidates[0].get("finishReason")
        if isinstance(ended, str) and ended not in _GEMINI_ENDINGS:
            failure = f"{candidates[0].get('finishMessage') or ''} {ended}".strip()
    blocked = (body.get("promptFeedback") or {}).get("blockReason")
    if blocked and not candidates:
        failure = f"Prompt blocked: {blocked}"
    choices = body.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        choice = choices[0]
        message = choice.get("message")
        if isinstance(message, Mapping):
            if not isinstance(message.get("refusal"), str | None):
                return "its refusal is not a text"
            calls = message.get("tool_calls")
            if isinstance(calls, list) and len(calls) > MOST_CALLS:
                return f"it has {len(calls):,} tool calls"
        if choice.get("error"):
            failure = choice["error"]
        elif choice.get("finish_reason") == "error":
            failure = "finish_reason is error"
    if isinstance(failure, Mapping):
        return str(failure.get("message") or "no reason")
    return str(failure or "")
