"""The client of an LM server: one attempt at a call, and what counts as its reply.

Retries, metering and limits are the caller's. A client knows where the server is, what its model is
called there, and how its replies and errors read: by DSPy's router, over the one HTTP client. A
reply with HTTP 200 that is no completion is an error of the server.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from ragbench.lms.calls.http import HttpClient, HttpReply, Transport, get
from ragbench.lms.specs import SELF_HOSTED, HostedSpec
from ragbench.redact import without_keys

CHECK_TIMEOUT_S = 5.0
_LIST_BYTES = 4 * 2**20
# llama.cpp, vLLM and others say it in words, with the code of any other bad request.
_OVERFLOW = re.compile(r"context (size|length|window)|exceed_context_size|maximum context", re.I)
#: Characters of a server's message that are kept.
_MESSAGE = 1000
#: A server that counts more tokens than this counts nothing: the longest prompts have 10 million.
MOST_TOKENS = 20_000_000
#: What reading a reply raises that is not of the protocol's shape.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
#: Names of the part of a reply that counts tokens: OpenAI's and Anthropic's, and Gemini's.
_USAGE = ("usage", "usageMetadata")
#: Endings of a completion that may have no content: all of it was reasoning, or was filtered.
_BLANK = ("length", "content_filter", "max_tokens", "model_context_window_exceeded", "refusal")
#: Providers that DSPy's router calls otherwise.
_ROUTES = {"openai": "openai-chat", "ollama_chat": "ollama", "hosted_vllm": "vllm",
           "moonshot": "moonshotai"}  # fmt: skip
_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")


class Client:
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
        raise NotImplementedError

    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """The headers of the calling thread's last reply, names in lower case."""
        return {}

    def check(self) -> None:
        """Do nothing if calls can be made now.

        Raises:
            LMSetupError: they cannot; the message has the cure.
        """

    def close(self) -> None:
        """Let go of connections and of processes that only this process uses."""


class StoredReply(Transport):
    """A transport whose every reply is this one."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__()
        self._reply = HttpReply(status, body)

    def send(self, request: Any) -> HttpReply:
        """The reply."""
        return self._reply


class HostedClient(Client):
    """A model behind a server that somebody else runs."""

    def __init__(
        self, spec: HostedSpec, *, timeout: float, transport: Transport | None = None
    ) -> None:
        self.spec, self._timeout = spec, timeout
        self._transport = transport or HttpClient(timeout)
        self._config = self._routed(self._transport)
        self._router = LMRouter(self._config)
        name = f"compatible:{spec.model}" if self._config.providers else _route(spec)
        self.provider, self._route = str(self._router.resolve(name).provider), name

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process takes the key from its own environment."""
        return partial(type(self), timeout=self._timeout), (self.spec,)

    def complete(self, request: Request) -> Response:
        """One attempt; see `Client`."""
        named = replace(request, model=self._route)
        return attempt(self._router.complete, named, self._transport, self._read_again)

    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """See `Client`."""
        return self._transport.last.named() if self._transport.last else {}

    def check(self) -> None:
        """See `Client`; asks a server given by address for its models, others for their key."""
        spec = self.spec
        own = spec.api_base is not None or spec.provider in SELF_HOSTED
        if not own and not spec.key():
            names = " or ".join(spec.key_variables)
            raise LMSetupError(
                f"{spec.provider} needs a key: set {names} in the environment or in a .env file"
            )
        if not own:
            return
        base = str(self._router.lm(self._route).base_url).rstrip("/")
        names_there = listed_models(base, spec.key())
        if names_there and spec.model not in names_there:
            shown = ", ".join(names_there[:8]) + (", ..." if len(names_there) > 8 else "")
            raise LMSetupError(f"{base} has no model {spec.model!r}; it has {shown}")

    def close(self) -> None:
        """Close the connections; no call may follow."""
        self._router.close()
        self._transport.close()

    def _routed(self, transport: Transport) -> RouterConfig:
        def key() -> str:
            return self.spec.key() or "none"

        spec = self.spec
        if spec.by_litellm or (spec.provider == "openai" and spec.api_base):
            base = spec.api_base or "http://litellm"  # LiteLLM knows its providers' addresses
            return RouterConfig(
                api_keys={"compatible": key},
                transport=transport,
                providers=(openai_compatible("compatible", base),),
            )
        provider = _route(spec).partition(":")[0]
        return RouterConfig(
            api_keys={provider: key},
            base_urls={provider: spec.api_base} if spec.api_base else None,
            transport=transport,
        )

    def _read_again(self, request: Request) -> Response | None:
        """The last reply without its token counts, where those cannot be read; None without any."""
        try:
            body = json.loads(self._transport.last.body if self._transport.last else b"")
            kept = {name: value for name, value in body.items() if name not in _USAGE}
            if len(kept) == len(body):
                return None
            stored = StoredReply(200, json.dumps(kept).encode())
            return LMRouter(replace(self._config, transport=stored)).complete(request)
        except UNREADABLE:
            return None


def _route(spec: HostedSpec) -> str:
    """The model as DSPy's router names it."""
    return f"{_ROUTES.get(spec.provider, spec.provider)}:{spec.model}"


def openai_compatible(provider: str, base_url: str) -> ProviderDefinition:
    """A server at `base_url` that speaks OpenAI's chat protocol."""
    return ProviderDefinition.chat(
        lm15.AccessPolicy(provider=provider, base_url=base_url),
        compat=OpenAIChatCompat(max_tokens_field="max_tokens", instruction_role="system"),
        placeholder_key="none",
    )


def listed_models(base: str, key: str | None) -> list[str]:
    """Names of the models of the OpenAI-compatible server at `base`; empty if it has no such list.

    Raises:
        LMSetupError: it cannot be reached, redirects, or refuses the key.
    """
    http = HttpClient(CHECK_TIMEOUT_S, max_bytes=_LIST_BYTES)
    try:
        reply = http.stream(get(f"{base}/models", key))
        if reply.status in (401, 403):
            raise LMSetupError(f"{base} refuses the key (HTTP {reply.status})")
        if reply.status != 200:
            return []
        return [str(entry["id"]) for entry in json.loads(reply.body)["data"]]
    except lm15.InvalidRequestError as error:
        raise LMSetupError(f"{base}: {error.message}") from None
    except lm15.TransportError as error:
        told = error.message
        raise LMSetupError(f"cannot reach the LM server at {base}: {told}; is it up?") from None
    except lm15.TimeoutError:
        raise LMSetupError(f"the LM server at {base} does not answer; is it up?") from None
    except UNREADABLE:
        return []
    finally:
        http.close()


def attempt(
    complete: Callable[[Request], Response],
    request: Request,
    transport: Transport,
    read_again: Callable[[Request], Response | None] = lambda request: None,
) -> Response:
    """`complete(request)` over `transport`, with every failure as a canonical error.

    `read_again` reads a reply of the right protocol whose details cannot be read. What the error's
    `usage` says the failed attempt was billed is read from the last reply.

    Raises:
        dspy.lm15.LM15Error: it failed.
    """
    try:
        response = _complete(complete, request, read_again)
        if wrong := _no_completion(response.provider_data):
            raise lm15.ServerError(f"the reply is no completion: {wrong}", status=200)
        return response
    except lm15.LM15Error as error:
        # A server may quote anything, also the key that it was sent.
        error.message = without_keys(error.message[: 4 * _MESSAGE])[:_MESSAGE]
        error.args = (error.message,)
        last = transport.last
        error.usage = _told_usage(last.body) if last else None
        raise


def _complete(
    complete: Callable[[Request], Response],
    request: Request,
    read_again: Callable[[Request], Response | None],
) -> Response:
    try:
        return complete(request)
    except UNREADABLE as error:  # JSON, but not of the shape that the protocol says
        again = read_again(request)
        if again is None:
            why = f"{type(error).__name__}: {error}"
            raise lm15.ServerError(f"unreadable reply: {why}") from error
        return again
    except lm15.InvalidRequestError as error:
        if not isinstance(error, lm15.ContextLengthError) and _OVERFLOW.search(error.message):
            raise _as(lm15.ContextLengthError, error) from error
        raise
    except lm15.ProviderError as error:
        # A success whose body is no answer: half a document, or the HTML page of a proxy.
        if type(error) is lm15.ProviderError and 200 <= (error.status or 0) < 300:
            raise _as(lm15.ServerError, error) from error
        raise


def _as(kind: Any, error: lm15.LM15Error) -> lm15.LM15Error:
    names = ("provider", "provider_code", "status", "request_id", "retry_after")
    made = kind(error.message, **{name: getattr(error, name) for name in names})
    assert isinstance(made, lm15.LM15Error)
    return made


def billed_usage(error: Exception) -> Usage | None:
    """The tokens that a failed attempt was billed, where its reply told them."""
    usage = getattr(error, "usage", None)
    return usage if isinstance(usage, Usage) else None


def _told_usage(body: bytes) -> Usage | None:
    """The token counts in the body of a reply by OpenAI's, Anthropic's or Gemini's protocol."""
    try:
        reply = json.loads(body)
        told = reply.get("usage") or _by_openai(reply["usageMetadata"])
        details = told.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens", told.get("cache_read_input_tokens"))
        usage = Usage(
            _count(told.get("prompt_tokens", told.get("input_tokens"))),
            _count(told.get("completion_tokens", told.get("output_tokens"))) or 0,
            cache_read_tokens=_count(cached),
            cache_write_tokens=_count(told.get("cache_creation_input_tokens")),
        )
    except UNREADABLE:
        return None
    return usage if usage.input_tokens else None


def _by_openai(told: Mapping[str, Any]) -> dict[str, Any]:
    """Gemini's token counts by OpenAI's names; what it thought is billed beside the answer."""
    parts = [_count(told.get(n)) or 0 for n in ("candidatesTokenCount", "thoughtsTokenCount")]
    return {
        "prompt_tokens": told.get("promptTokenCount"),
        "completion_tokens": sum(parts),
        "prompt_tokens_details": {"cached_tokens": told.get("cachedContentTokenCount")},
    }


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def _no_completion(body: Any) -> str:
    """Why the JSON `body` of a reply is no completion; blank if it is one.

    Knows the protocols of OpenAI (chat), Gemini (candidates) and Anthropic (content).
    """
    if not isinstance(body, Mapping):
        return ""  # of an engine that keeps none
    if body.get("error"):
        return f"it failed: {body['error']}"
    if "choices" not in body:
        return _no_content(body)
    choices = body["choices"]
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, Mapping):
        return "it has no choices"
    ending = first.get("finish_reason")
    if ending == "error" or first.get("error"):
        return f"it failed: {first.get('error') or 'finish_reason error'}"
    message = first.get("message")
    if not isinstance(message, Mapping):
        return "its choice has no message"
    for name in _TEXTS:
        if not isinstance(message.get(name), str | list | None):
            return f"its {name} is {type(message[name]).__name__}"
    if ending in _BLANK or message.get("tool_calls") or any(map(message.get, _TEXTS)):
        return ""
    return "its message has no content"


def _no_content(body: Mapping[str, Any]) -> str:
    """`_no_completion` of a reply by Gemini's or Anthropic's protocol."""
    parts, ending = body.get("content"), body.get("stop_reason")
    if isinstance(candidates := body.get("candidates"), list):
        first = candidates[0] if candidates and isinstance(candidates[0], Mapping) else {}
        content = first.get("content")
        parts = content.get("parts") if isinstance(content, Mapping) else None
        ending = first.get("finishReason")
    elif not isinstance(parts, list):
        return f"it has {', '.join(map(str, body)) or 'nothing'}"
    parts = parts if isinstance(parts, list) else []
    if str(ending).lower() in _BLANK or any(map(_says_something, parts)):
        return ""
    return f"it has no content, and ended with {ending!r}"


def _says_something(part: Any) -> bool:
    return isinstance(part, Mapping) and any(
        value not in (None, "") for name, value in part.items() if name != "type"
    )
