"""What counts as a completion: a reply with HTTP 200 that is none is an error of the server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from dspy import lm15
from dspy.lm15 import Request, Response, Usage

from ragbench.redact import without_keys

# llama.cpp, vLLM and others say it in words, with the code of any other bad request.
_OVERFLOW = re.compile(r"context (size|length|window)|exceed_context_size|maximum context", re.I)
#: Characters of a server's message that are kept.
_MESSAGE = 1000
#: From here on, LiteLLM's messages say where in its own code it failed.
_TRACEBACK = "\nTraceback (most recent call last)"
#: Endings of a completion that may have no content: all of it was reasoning, or was filtered.
_BLANK = ("length", "content_filter")
#: A server that counts more tokens than this counts nothing.
MOST_TOKENS = 2**40
#: Names of the part of a reply that counts tokens: OpenAI's and Anthropic's, and Gemini's.
USAGE = ("usage", "usageMetadata")
#: Endings of Anthropic's and Gemini's that may have no content.
_ENDINGS = ("max_tokens", "model_context_window_exceeded", "refusal")
_CONTENT = ("content", "tool_calls", "refusal", "reasoning_content", "reasoning")
#: What reading a reply raises that is not of the protocol's shape.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def attempt(
    complete: Callable[[Request], Response],
    request: Request,
    read_again: Callable[[Request], Response | None] = lambda request: None,
    body: Callable[[], bytes] = bytes,
) -> Response:
    """`complete(request)`, with every failure as a canonical error.

    `read_again` reads a reply of the right protocol whose details cannot be read. `body` gives the
    last reply as it came: what the error's `usage` is read from, where the provider tells it.

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
        told = error.message[: 4 * _MESSAGE].partition(_TRACEBACK)[0]
        error.message = without_keys(told)[:_MESSAGE]
        error.args = (error.message,)
        error.usage = _told_usage(body())
        raise


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
        usage = Usage(
            _count(told.get("prompt_tokens", told.get("input_tokens"))),
            _count(told.get("completion_tokens", told.get("output_tokens"))) or 0,
            cache_read_tokens=_count(
                details.get("cached_tokens", told.get("cache_read_input_tokens"))
            ),
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
    return value if type(value) is int and 0 <= value < MOST_TOKENS else None


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
    except lm15.TransportError as error:
        if "Timeout" in type(error.__cause__).__name__ or "timed out" in error.message.lower():
            raise _as(lm15.TimeoutError, error) from error
        raise


def _no_completion(body: Any) -> str:
    """Why the JSON `body` of a reply is no completion; blank if it is one.

    Knows the protocols of OpenAI (chat), Gemini (candidates) and Anthropic (content).
    """
    if not isinstance(body, Mapping):
        return ""  # of an engine that keeps none
    if body.get("error"):
        return f"it failed: {body['error']}"
    choices = body.get("choices")
    if choices is None:
        return _no_content(body)
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, Mapping):
        return "it has no choices"
    if first.get("finish_reason") == "error" or first.get("error"):
        return f"it failed: {first.get('error') or 'finish_reason error'}"
    message = first.get("message")
    if not isinstance(message, Mapping):
        return "its choice has no message"
    content = message.get("content")
    if not isinstance(content, str | list | None):
        return f"its content is {type(content).__name__}"
    if first.get("finish_reason") in _BLANK or any(message.get(n) is not None for n in _CONTENT):
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
    if str(ending).lower() in _ENDINGS or any(map(_says_something, parts)):
        return ""
    return f"it has no content, and ended with {ending!r}"


def _says_something(part: Any) -> bool:
    return isinstance(part, Mapping) and any(
        value is not None for name, value in part.items() if name != "type"
    )


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
