"""Language models that are handed over as objects: they answer as they are, and are metered.

A config holds texts alone, so an object goes by a name that this process knows (`object:...`). The
object keeps its keys, its headers and its address; limits, ledger and cache are ragbench's.
"""

import hashlib
import json
from dataclasses import replace
from typing import Any

import dspy
from dspy.lm15 import LM15Error, Message, Request, Response, ServerError, TextPart, Usage

from ragbench.errors import LMSetupError
from ragbench.lms.calls import Client

PREFIX = "object:"
#: What ragbench's own calls set, of the settings of an LM.
_SAMPLING = ("temperature", "max_tokens", "top_p", "stop", "seed", "presence_penalty")
#: Settings that change no answer, or that must not be written down.
_NOT_NAMED = ("api_key", "extra_headers", "headers", "timeout", "rollout_id", "cache")

_given: dict[str, dspy.BaseLM] = {}


def keep_lm(lm: dspy.BaseLM) -> str:
    """The name of `lm` in configs of this process; the same for an LM of the same settings."""
    shown = {k: v for k, v in lm.kwargs.items() if k not in _NOT_NAMED}
    kind = f"{type(lm).__module__}.{type(lm).__qualname__}"
    text = json.dumps([kind, lm.model, shown], sort_keys=True, default=str)
    name = f"{PREFIX}{lm.model}#{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    _given[name] = lm
    return name


def given_lm(spec: str) -> dspy.BaseLM:
    """The object that `spec` names.

    Raises:
        LMSetupError: this process was not handed it.
    """
    if spec not in _given:
        raise LMSetupError(
            f"{spec} was handed over as an object and cannot be carried to another process or "
            "read from a file; give a spec such as openai/gpt-4o-mini"
        )
    return _given[spec]


def sampling_of(lm: dspy.BaseLM) -> dict[str, Any]:
    """The settings of `lm` that each request states."""
    given = {**lm.kwargs, "max_tokens": lm.kwargs.get("max_completion_tokens")
             or lm.kwargs.get("max_tokens")}  # fmt: skip
    return {name: given[name] for name in _SAMPLING if given.get(name) is not None}


class GivenClient(Client):
    """The way to a model through an LM object; see `ragbench.lms.calls.Client`."""

    def __init__(self, lm: dspy.BaseLM) -> None:
        self._lm = lm.copy(cache=False, num_retries=0)
        self.provider = lm.model.partition("/")[0]

    def complete(self, request: Request) -> Response:
        """One attempt, by the object."""
        lm = self._lm.copy()  # its history is a call's own
        if type(lm).forward is not dspy.LM.forward:  # a way of answering of its own
            system = [{"role": "system", "content": str(request.system)}] if request.system else []
            said = [{"role": str(m.role), "content": m.text or ""} for m in request.messages]
            settings = {n: getattr(request.config, n, None) for n in ("temperature", "max_tokens")}
            settings = {name: value for name, value in settings.items() if value is not None}
            return _response(lm(messages=[*system, *said], **settings), request)
        try:
            answered = lm(replace(request, model=lm.model))
        except dspy.LMError as error:
            cause = error.__cause__
            raise cause if isinstance(cause, LM15Error) else ServerError(str(error)) from error
        if not isinstance(answered, Response):
            return _response(answered, request)
        return replace(answered, usage=_whole(answered.usage, self.provider))


def _whole(usage: Usage, provider: str) -> Usage:
    """`usage` with the tokens that a provider counts apart in those of prompt and reply."""
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    if usage.input_tokens and provider == "anthropic":
        usage = replace(usage, input_tokens=usage.input_tokens + cached)
    if usage.output_tokens and usage.reasoning_tokens and provider in ("gemini", "xai"):
        usage = replace(usage, output_tokens=usage.output_tokens + usage.reasoning_tokens)
    return usage


def _response(outputs: Any, request: Request) -> Response:
    first = outputs[0] if isinstance(outputs, list) and outputs else outputs
    text = first.get("text") if isinstance(first, dict) else first
    if not isinstance(text, str):
        raise ServerError(f"the LM object gave {type(outputs).__name__}, not a list of texts")
    message = Message.assistant([TextPart(text)])
    return Response(
        id=None, model=request.model, message=message, finish_reason="stop", usage=Usage()
    )
