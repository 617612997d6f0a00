"""A server of embeddings or rerankings: its calls are governed as those to an LM are.

They wait for its rate limits and while it is down, are tried again, count against the limits of
spending, and end a command whose server refuses everything. The openai package's client sends them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from dspy import lm15
from dspy._vendor.lm15.providers.base import HttpResponse
from dspy.lm15 import Config, LM15Error, Message, OpenAIChatLM, Request, Response, Usage

from ragbench.errors import LMSetupError, LMUnavailableError, RagbenchError
from ragbench.ledger import Call, file_call
from ragbench.lms.breaker import PATIENCE_S, Breaker, reason
from ragbench.lms.governor import RATE_LIMITS, Attempt, CallRefusedError
from ragbench.lms.limits import Amount, Slip
from ragbench.lms.pace import pace_of
from ragbench.lms.tries import TRANSIENT, Retries, Tries, governed

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Reply:
    """What one request gave: `value` as the caller reads it, and what it took."""

    value: Any
    tokens: int
    cost: float | None
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Served:
    """What a call gave, after so many attempts; `latency_s` with all retries and waits."""

    value: Any
    attempts: int
    latency_s: float


@dataclass(frozen=True)
class Server:
    """Where a service is: `api_base` is blank for the provider's own address."""

    provider: str
    model: str
    api_base: str
    key: str
    key_variable: str


class Service:
    """Calls to `server`, which messages call `name` and the ledger `model`; thread-safe."""

    def __init__(
        self,
        name: str,
        server: Server,
        *,
        model: str,
        kind: Literal["embed", "rerank"],
        rpm: float | None = None,
    ) -> None:
        import openai

        self.name, self.model, self._server = name, model, server
        self._kind: Literal["embed", "rerank"] = kind
        self.client = openai.OpenAI(
            api_key=server.key, base_url=server.api_base or None, max_retries=0, timeout=TIMEOUT_S
        )
        self.pace = pace_of(server.provider, server.model, api_base=server.api_base, key=server.key)
        self.pace.limit(rpm=rpm, tpm=None)
        self._retries = Retries()
        self.begin()

    def begin(self, *, patience: float = PATIENCE_S) -> None:
        """Forget that the server was down; from now on wait for it for `patience` seconds."""
        key = self._server.key_variable
        self._breaker = Breaker(self.name, patience=patience, key_variable=key)

    def call(self, send: Callable[[], Reply], texts: Sequence[str], most: Amount) -> Served:
        """What `send` gives, which asks the server once about `texts` and may take `most`.

        A failure is filed in the ledger; a success is for the caller to file.

        Raises:
            CallRefusedError: the call was refused.
            LMUnavailableError: the server failed again and again.
            LMSetupError: the server refuses the key or the request.
        """
        breaker = self._breaker
        holders = (breaker, self.pace)
        messages = tuple(Message.user(text or " ") for text in texts)
        request = Request(self.model, messages, config=Config(max_tokens=1))  # there is no reply
        found: list[Reply] = []

        def once(tried: Attempt) -> None:
            governed(tried, ask, governors=holders, most=most)

        def ask(tried: Attempt, slip: Slip) -> None:
            try:
                reply = send()
            except Exception as error:
                tried.error = _canonical(error)
                return
            slip.take(tokens=reply.tokens, cost=reply.cost)
            tried.response = _response(request, reply)
            found.append(reply)

        start = time.perf_counter()
        tries = Tries(self.name, request, self._retries, holders, time.sleep)
        try:
            tried = tries.until_done(once)
        except CallRefusedError:
            self._file_failure(tries.last, start)
            raise
        latency = time.perf_counter() - start
        if tried.error is not None:
            self._file_failure(tried, start)
            raise breaker.broken or self._explained(tried)
        return Served(found[0].value, tried.number, latency)

    def _file_failure(self, tried: Attempt | None, start: float) -> None:
        if tried is None:
            return
        call = Call(
            model=self.model,
            kind=self._kind,
            latency_s=time.perf_counter() - start,
            attempts=tried.number,
            error=type(tried.error).__name__,
        )
        file_call(call)

    def _explained(self, tried: Attempt) -> Exception:
        error = tried.error
        if isinstance(error, TRANSIENT):
            return LMUnavailableError(
                f"{self.name} failed {tried.number} times: {reason(error)}; is it running?"
            )
        if isinstance(error, LM15Error):
            return LMSetupError(
                f"{self.name} refuses the request: {reason(error)}; check its address, its key "
                f"({self._server.key_variable}) and the name of the model"
            )
        assert error is not None
        return error


def _response(request: Request, reply: Reply) -> Response:
    """What governors read of a reply: the tokens that it took, and the server's limits."""
    headers = {name.lower(): [value] for name, value in reply.headers.items()}
    return Response(
        None,
        request.model,
        Message.assistant("done"),
        "stop",
        Usage(reply.tokens, 0, reply.tokens),
        provider_data={RATE_LIMITS: headers},
    )


def _canonical(error: Exception) -> Exception:
    """`error` of the openai package, or of a reply that cannot be read, as that of an LM's call."""
    import openai

    found: Exception = lm15.ServerError(f"unreadable reply: {type(error).__name__}: {error}")
    if isinstance(error, openai.APITimeoutError):
        found = lm15.TimeoutError("the request timed out")
    elif isinstance(error, openai.APIConnectionError):
        found = lm15.TransportError(f"{error} {error.__cause__ or ''}".strip())
    elif isinstance(error, openai.APIStatusError):
        reply = error.response
        pairs = reply.headers.multi_items()
        found = _reader()._http_error(HttpResponse(error.status_code, "", pairs, reply.content))
    elif isinstance(error, RagbenchError):
        found = error
    return found


@lru_cache(maxsize=1)
def _reader() -> OpenAIChatLM:
    """What reads errors as the wires of LMs do: quota, Retry-After and rate limits included."""
    return OpenAIChatLM(api_key="none")
