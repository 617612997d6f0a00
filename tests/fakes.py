"""A scripted LM: the real metered LM over a client that a function of the test answers.

    def script(asked: Asked) -> Reply:
        if asked.signature == "AnswerFromPassages":
            return {"answer": "Paris"}
        return plausible(asked)

    lm = ScriptedLM(script)
    with dspy.context(lm=lm), open_ledger() as ledger:
        program(question="...")
    assert lm.signatures == ["AnswerFromPassages"]

What the script returns is written in the format of the adapter that asks (JSON, or `[[ ## ]]`
sections); a string is sent as it is, and an exception is raised as the client's.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args, get_origin

import dspy
from dspy import lm15
from dspy.lm15 import Message, Request, Response, TextPart, Usage
from pydantic import BaseModel

from ragbench.context import current
from ragbench.lms.calls import Caller, Client
from ragbench.lms.engine import Capabilities, MeteredEngine
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.prices import Pricing, parse_price

Reply = Mapping[str, Any] | str | Exception

_FIELD = re.compile(r"^\[\[ ## (\w+) ## \]\]\n", re.M)


@dataclass(frozen=True)
class Asked:
    """One call: what the program asked for and showed."""

    signature: str  # name, such as "AnswerFromPassages"
    prompt: str  # all that was sent
    inputs: dict[str, str]  # input fields as the last message shows them
    fields: dict[str, Any]  # output field -> type, in order
    number: int  # 1 for the LM's first call
    request: Request = field(repr=False)


Script = Callable[[Asked], Reply]


def plausible(asked: Asked) -> dict[str, Any]:
    """A well-formed value for every output field: the first choice of a Literal, and so on."""
    return {name: _plausible(name, kind) for name, kind in asked.fields.items()}


def never_parses(asked: Asked) -> str:
    """A script whose replies no adapter can read."""
    return "I would rather not say."


def blank(asked: Asked) -> dict[str, str]:
    """A script that gives every field, and nothing in it."""
    return {name: "" for name in asked.fields}


class ScriptedLM(RagbenchLM):
    """A `RagbenchLM` answered by `script` (by default `plausible`); see the module.

    It counts tokens (4 characters each), prices and files its calls as the real one does. `asked`
    holds the calls that reached it, so not those that a cache answered. Caching is off unless
    asked for; then give each LM its own `name`, for DSPy's cache knows it by that. With `cuts`, a
    reply ends at the length that was asked for.
    """

    def __init__(
        self,
        script: Script = plausible,
        *,
        name: str = "lm",
        schema: bool = True,
        latency_s: float = 0.0,
        price: str | None = "in=1,out=2",
        retries: int = 0,
        cache: bool = False,
        cuts: bool = False,
        **settings: Any,
    ) -> None:
        client = _ScriptedClient(script, latency_s, cuts)
        params = Capabilities().params | ({"response_format"} if schema else set())
        engine = MeteredEngine(
            client,
            caller := Caller(f"scripted/{name}", retries=retries),
            pricing=parse_price(price) if price else Pricing(),
            capabilities=Capabilities(response_schema=schema, params=params),
        )
        self.client, caller.base_s = client, 0.0
        super().__init__(engine, cache=cache, **{"temperature": 0.0, "max_tokens": 512, **settings})

    @property
    def asked(self) -> list[Asked]:
        """Every call so far, in the order of arrival."""
        return self.client.asked

    @property
    def signatures(self) -> list[str]:
        """Names of the signatures asked for, in the order of arrival."""
        return [asked.signature for asked in self.asked]


class _ScriptedClient(Client):
    provider = "scripted"

    def __init__(self, script: Script, latency_s: float, cuts: bool) -> None:
        self.script, self.latency_s, self.cuts = script, latency_s, cuts
        self.asked: list[Asked] = []
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Response:
        with self._lock:
            asked = _asked(request, len(self.asked) + 1)
            self.asked.append(asked)
        if self.latency_s:
            time.sleep(self.latency_s)
        reply = self.script(asked)
        if isinstance(reply, Exception):
            raise reply
        text = reply if isinstance(reply, str) else _formatted(reply, asked)
        most = 4 * (request.config.max_tokens or 0) if self.cuts else 0
        cut = bool(most) and len(text) > most
        text = text[:most] if cut else text
        sent, got = -(-len(asked.prompt) // 4), -(-len(text) // 4)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(text)] if text else [TextPart(" ")]),
            finish_reason="length" if cut else "stop",
            usage=Usage(sent, got, sent + got),
        )


def rate_limited(retry_after: float | None = None) -> Exception:
    """A reply that is HTTP 429."""
    return cast(Exception, lm15.RateLimitError("slow down", status=429, retry_after=retry_after))


def overflowing() -> Exception:
    """A reply that says that the prompt is too long for the model."""
    return cast(Exception, lm15.ContextLengthError("prompt too long", status=400))


def _asked(request: Request, number: int) -> Asked:
    shown = [message.text or "" for message in request.messages]
    system = request.system if isinstance(request.system, str) else ""
    pieces = _FIELD.split("\n" + shown[-1])[1:] if shown else []
    inputs = dict(zip(pieces[::2], (text.strip() for text in pieces[1::2]), strict=True))
    signature = _signature()
    named = current().caller or ("", "")
    return Asked(
        signature=named[0] or getattr(signature, "__name__", ""),
        prompt="\n\n".join(filter(None, [system, *shown])),
        inputs=inputs,
        fields={n: f.annotation for n, f in signature.output_fields.items()} if signature else {},
        number=number,
        request=request,
    )


def _signature() -> Any:
    for module in reversed(dspy.settings.get("caller_modules") or []):
        if hasattr(module, "signature"):
            return module.signature
    return None


def _formatted(reply: Mapping[str, Any], asked: Asked) -> str:
    values = dict(reply)
    if "reasoning" in asked.fields:
        values = {"reasoning": "because", **values}
    chat = asked.request.config.response_format is None and "[[ ## completed ## ]]" in asked.prompt
    if not chat:
        return json.dumps(values, default=_jsonable)
    sections = [f"[[ ## {name} ## ]]\n{_text(value)}" for name, value in values.items()]
    return "\n\n".join([*sections, "[[ ## completed ## ]]"])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=_jsonable)


def _jsonable(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else str(value)


def _plausible(name: str, kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return arguments[0]
    if origin in (list, tuple, set):
        return [_plausible(name, arguments[0])] if arguments else []
    if origin is dict or kind is dict:
        return {}
    if arguments:  # a union: its first member
        return _plausible(name, arguments[0])
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {n: _plausible(n, f.annotation) for n, f in kind.model_fields.items()}
    return {bool: True, int: 1, float: 0.5}.get(kind, f"some {name}")
