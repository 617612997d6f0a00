"""A server of embeddings, rerankings or searches: calls go through a `Caller`, as an LM's do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

from dspy import lm15
from dspy.lm15 import LM15Error, OpenAIChatLM, Timeouts

from ragbench.dspy_internals import HttpResponse, TransportRequest
from ragbench.errors import LMSetupError, LMUnavailableError, RagbenchError
from ragbench.ledger import file_call
from ragbench.lms.calls.caller import Answered, Caller, CallSpec
from ragbench.lms.calls.circuit_breaker import PATIENCE_S, Breaker, reason
from ragbench.lms.calls.middleware import Reply
from ragbench.lms.calls.rate_limit import shared_rate_limit
from ragbench.lms.calls.retry import TRANSIENT, Retries
from ragbench.lms.calls.transport import BoundedTransport, ReadTimeout, TransportError, post
from ragbench.record import Call
from ragbench.tokens import estimate_tokens

TIMEOUT_S = 120.0
#: Longest reply: 512 vectors of 4,096 numbers as text.
MAX_REPLY_BYTES = 64 * 2**20

Value = TypeVar("Value")


@dataclass(frozen=True)
class Server:
    """Where a service is, with its key and the variable that the key comes from."""

    provider: str
    model: str
    api_base: str
    key: str
    key_variable: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process takes the key from its own environment."""
        return _server, (self.provider, self.model, self.api_base, self.key_variable)


def _server(provider: str, model: str, api_base: str, key_variable: str) -> Server:
    key = os.environ.get(key_variable, "none")
    return Server(provider, model, api_base, key, key_variable)


@dataclass(frozen=True)
class Post(Generic[Value]):
    """One request: JSON for a path below the address, about `texts`.

    `read` gives the value of a reply and what it cost in US dollars, or raises LMSetupError.
    `most_usd` is the most that it may cost, infinite where no price is known.
    """

    path: str
    body: Mapping[str, Any]
    texts: Sequence[str]
    read: Callable[[Any, int], tuple[Value, float | None]]
    most_usd: float

    @property
    def tokens(self) -> int:
        """Tokens of the texts, estimated."""
        return sum(map(estimate_tokens, self.texts))


class ServerCalls:
    """Requests to `server`, which messages call `name`; thread-safe.

    `given` says in messages what a person gave that the server may have refused.
    """

    def __init__(
        self, name: str, server: Server, *, rpm: float | None = None, given: str = "its address"
    ) -> None:
        self.name, self._server, self._given = name, server, given
        times = Timeouts(connect=10.0, read=TIMEOUT_S, write=TIMEOUT_S, pool=TIMEOUT_S)
        self._transport = BoundedTransport(times, max_bytes=MAX_REPLY_BYTES)
        self._rate = shared_rate_limit(
            server.provider, server.model, api_base=server.api_base, key=server.key
        )
        self._rate.limit(rpm=rpm, tpm=None)
        self.begin()

    def begin(self, *, patience: float = PATIENCE_S) -> None:
        """Forget that the server was down; from now on wait for it for `patience` seconds."""
        key = self._server.key_variable
        self._breaker = Breaker(self.name, patience=patience, key_variable=key)
        self._caller = Caller(self.name, retries=Retries(), holding=(self._breaker, self._rate))

    def make(
        self, asked: CallSpec[Value], file_failure: Callable[..., None] = lambda error, **took: None
    ) -> Answered[Value]:
        """What `asked` gives, after as many attempts as it takes; `file_failure` as of `Caller`.

        Raises:
            CallRefusedError: the call was refused.
            LMUnavailableError: the server failed again and again.
            LMSetupError: the server refuses the key or the request, or its reply is of no use.
        """
        made = 0

        def count(error: Exception, *, attempts: int, **took: Any) -> None:
            nonlocal made
            made = attempts
            file_failure(error, attempts=attempts, **took)

        try:
            return self._caller.call(asked, file_failure=count)
        except LM15Error as error:
            raise self._breaker.broken or self._explained(error, made) from error

    def exchange(self, request: TransportRequest) -> tuple[bytes, Any]:
        """What the server answers, as bytes and as the JSON that they are.

        Raises:
            LM15Error: it fails, is not there, takes too long, or answers with no JSON.
        """
        try:
            with self._transport.stream(request) as reply:
                content = reply.read()
        except (ReadTimeout, TimeoutError):
            raise lm15.TimeoutError("the request timed out") from None
        except TransportError as error:
            raise lm15.TransportError(str(error)) from error
        if reply.status >= 400:
            response = HttpResponse(reply.status, "", reply.headers, self._error_body(content))
            raise _errors_of_chat()._http_error(response)
        try:
            return content, json.loads(content)
        except (ValueError, RecursionError) as error:
            raise lm15.ServerError(f"unreadable reply: {type(error).__name__}") from error

    def _error_body(self, content: bytes) -> bytes:
        """The body of a reply with an error, as OpenAI words it."""
        return content

    def _explained(self, error: LM15Error, attempts: int) -> RagbenchError:
        if isinstance(error, TRANSIENT):
            return LMUnavailableError(
                f"{self.name} failed {attempts} times: {reason(error)}; is it running?"
            )
        return LMSetupError(
            f"{self.name} refuses the request: {reason(error)}; check {self._given} and its key "
            f"({self._server.key_variable})"
        )


class Service(ServerCalls):
    """Calls about texts to `server`, which the ledger calls `model`; thread-safe."""

    def __init__(
        self,
        name: str,
        server: Server,
        *,
        model: str,
        kind: Literal["embed", "rerank"],
        rpm: float | None = None,
    ) -> None:
        super().__init__(name, server, rpm=rpm, given="its address, the name of the model")
        self.model = model
        self._kind: Literal["embed", "rerank"] = kind

    def call(self, asked: Post[Value]) -> Answered[tuple[Value, int]]:
        """What `asked` gives, and the tokens that the server counted, or an estimate.

        A failure is filed in the ledger; a success is for the caller to file.

        Raises:
            RagbenchError: as `make`.
        """

        def file_failure(
            error: Exception, *, attempts: int, latency_s: float, failed: object
        ) -> None:
            kind = type(error).__name__
            call = Call(
                model=self.model,
                kind=self._kind,
                latency_s=latency_s,
                attempts=attempts,
                error=kind,
            )
            file_call(call)

        body = json.dumps(asked.body).encode()
        call = CallSpec(
            send=lambda: self._send(asked, body),
            prompt=hash(tuple(asked.texts)),
            prompt_tokens=asked.tokens,
            reply_tokens=0,
            cost_usd=asked.most_usd,
        )
        return self.make(call, file_failure)

    def _send(self, asked: Post[Value], body: bytes) -> Reply[tuple[Value, int]]:
        url = f"{self._server.api_base}/{asked.path}"
        _, fields = self.exchange(post(url, body, self._server.key))
        tokens = _counted(fields) or asked.tokens
        value, cost = asked.read(fields, tokens)
        return Reply((value, tokens), tokens, cost, self._transport.rate_limits())


def _counted(reply: Any) -> int:
    """The tokens that a reply says it took; 0 where it says nothing that can be true."""
    usage = reply.get("usage") if isinstance(reply, Mapping) else None
    if not isinstance(usage, Mapping):
        return 0
    counts = (usage.get(name) for name in ("prompt_tokens", "total_tokens"))
    return next((n for n in counts if type(n) is int and 0 < n < 2**40), 0)


@lru_cache(maxsize=1)
def _errors_of_chat() -> OpenAIChatLM:
    """What reads errors as the clients of LMs do: quota, Retry-After and rate limits included."""
    return OpenAIChatLM(api_key="none")
