"""A server of embeddings, rerankings or searches: calls go through a `Caller`, as an LM's do."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from dspy import lm15
from dspy.lm15 import LM15Error, OpenAIChatLM

from ragbench.errors import LMSetupError, LMUnavailableError
from ragbench.ledger import file_call
from ragbench.lms.calls.caller import PATIENCE_S, TRANSIENT, Breaker, Caller, reason
from ragbench.lms.calls.client import UNREADABLE, reported_usage
from ragbench.lms.calls.http import HttpClient, HttpRequest, request_of
from ragbench.lms.calls.limits import Amount, Reply, Value
from ragbench.lms.calls.rate import shared_rate_limit
from ragbench.lms.calls.refusals import classed
from ragbench.lms.specs import key_in
from ragbench.record import Call
from ragbench.text_normalization import estimate_tokens

TIMEOUT_S = 120.0
#: Maximum number of tokens that a server adds to a text.
FRAME_TOKENS = 64
#: Longest reply: 512 vectors of 4,096 numbers as text.
MAX_REPLY_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Server:
    """Address of a service, and the environment variable of its key."""

    provider: str
    model: str
    api_base: str
    key_variable: str

    @property
    def key(self) -> str:
        """The current key in the environment, or `none` if there is none."""
        return key_in(self.key_variable) or "none"


class TooLargeError(LMSetupError):
    """Error of a server that refuses a request because it has too many or too long texts."""


class TextsRefusedError(LMUnavailableError):
    """Error of a running server that fails repeatedly (HTTP 500) for these texts."""


class ServerCalls:
    """Requests to `server`, which messages call `name`. Thread-safe.

    `blamed` names, for messages, the settings that the server may have refused.
    """

    def __init__(
        self, name: str, server: Server, *, rpm: float | None = None, blamed: str = "its address"
    ) -> None:
        self.name = name
        self._server = server
        self._blamed = blamed
        self._rate = shared_rate_limit(
            server.provider, server.model, api_base=server.api_base, key=server.key
        )
        self._rate.limit(rpm=rpm, tpm=None)
        self.begin()

    def begin(self, *, patience: float = PATIENCE_S, timeout: float | None = None) -> None:
        """Reset the breaker and the HTTP client.

        Args:
            patience: Seconds to wait for a server that is down.
            timeout: Seconds until a request has failed. None for the default.
        """
        self._http = HttpClient(timeout or TIMEOUT_S, max_bytes=MAX_REPLY_BYTES)
        key = self._server.key_variable
        self._breaker = Breaker(self.name, patience=patience, key_variable=key)
        self._caller = Caller(self.name, breaker=self._breaker, rate=self._rate)

    def make(
        self,
        send: Callable[[], Reply[Value]],
        *,
        prompt: int,
        most: Amount,
        file_failure: Callable[..., None] = lambda error, **usage: None,
    ) -> Reply[Value]:
        """Return the result of `send` after as many attempts as necessary. See `Caller.call`.

        Args:
            send: Function that sends one request.
            prompt: Hash that distinguishes prompts.
            most: Maximum usage of an attempt.
            file_failure: Function that files a failed call.

        Raises:
            CallRefusedError: The call was refused.
            LMUnavailableError: The server failed repeatedly.
            TooLargeError: The server refuses the request because of its size.
            TextsRefusedError: The server fails for these texts.
            LMSetupError: The server refuses the key or the request, or its reply is unusable.
        """
        try:
            return self._caller.call(send, prompt=prompt, most=most, file_failure=file_failure)
        except LM15Error as error:
            if self._breaker.broken:
                raise self._breaker.broken from error
            if isinstance(error, TRANSIENT):
                unavailable = LMUnavailableError
                if getattr(error, "status", None) == 500:
                    unavailable = TextsRefusedError
                raise unavailable(
                    f"{self.name} failed again and again: {reason(error)}; is it running?"
                ) from error
            kind = LMSetupError
            if isinstance(error, lm15.ContextLengthError):
                kind = TooLargeError
            raise kind(
                f"{self.name} refuses the request: {reason(error)}; check {self._blamed} and its "
                f"key ({self._server.key_variable})"
            ) from error

    def exchange(self, request: HttpRequest, read: Callable[[bytes], Value] = json.loads) -> Value:
        """Send one request and return the content of the reply.

        Args:
            request: The request.
            read: Function that reads the body of the reply.

        Raises:
            LM15Error: The server fails, is missing, takes too long, or its reply is unreadable.
        """
        reply = self._http.send(request)
        if reply.status >= 400:
            body = self._error_body(reply.body).decode("utf-8", "replace")
            refused: LM15Error = _chat().normalize_error(reply.status, body)
            sent = request.body.decode("utf-8", "replace")
            error = classed(refused, provider=self._server.provider, body=body, sent=sent)
            after = next((v for n, v in reply.headers if n.lower() == "retry-after"), "")
            if error.retry_after is None and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", after):
                error.retry_after = float(after)
            raise error
        try:
            return read(reply.body)
        except UNREADABLE as error:
            raise lm15.ServerError(f"unreadable reply: {type(error).__name__}") from error

    def _error_body(self, content: bytes) -> bytes:
        """Return the body of an error in the format of OpenAI."""
        return content


class Service(ServerCalls):
    """Calls about texts to `server`, which the ledger calls `model`. Thread-safe."""

    def __init__(
        self,
        name: str,
        server: Server,
        *,
        model: str,
        kind: Literal["embed", "rerank"],
        rpm: float | None = None,
    ) -> None:
        super().__init__(name, server, rpm=rpm, blamed="its address, the name of the model")
        self.model = model
        #: Maximum number of tokens per byte that the server has counted. 0 if unknown.
        self._density = 0.0
        self._kind: Literal["embed", "rerank"] = kind

    def call(
        self,
        path: str,
        body: Mapping[str, Any],
        texts: Sequence[str],
        read: Callable[[Any, int], tuple[Value, float | None]],
        price: float | None = None,
    ) -> Reply[tuple[Value, int]]:
        """Send JSON on `texts` to `path` and return the value with its tokens.

        A failure is filed in the ledger, except for a refusal of the size. The caller files a
        success.

        Args:
            path: Path below the address of the server.
            body: JSON body of the request.
            texts: Texts of the request, from which its tokens are estimated.
            read: Function that returns the value of a reply and its cost in US dollars, given the
                reply and its tokens. Raises LMSetupError.
            price: US dollars per token. None if unknown.

        Returns:
            The value and the tokens that the server counted, estimated if it states no possible
            count.

        Raises:
            LMUnavailableError: See `make`.
            LMSetupError: See `make`.
        """
        estimate = sum(map(estimate_tokens, texts))
        size = sum(len(text.encode("utf-8", "replace")) for text in texts)

        def send() -> Reply[tuple[Value, int]]:
            url = f"{self._server.api_base}/{path}"
            try:
                content: Any = self.exchange(request_of(url, self._server.key, body))
            except lm15.ServerError as error:
                # It may be one of the texts, so an embedder sends halves next.
                halves = self._kind == "embed" and len(texts) > 1
                error.of_batch = error.once_more = halves and error.status == 500
                raise
            counted = _counted(content, size + FRAME_TOKENS * (len(texts) + 1))
            if counted and size:
                self._density = max(self._density, counted / size)
            tokens = counted or estimate
            value, cost = read(content, tokens)
            return Reply((value, tokens), tokens, cost)

        def file_failure(error: Exception, **usage: Any) -> None:
            if isinstance(error, lm15.ContextLengthError):
                return
            kind = type(error).__name__
            file_call(Call(model=self.model, kind=self._kind, error=kind, **usage))

        # One token per byte, until a reply shows a better value.
        tokens = math.ceil(size * min(self._density or 1.0, 1.0)) + len(texts)
        most = Amount(1, tokens, math.inf if price is None else tokens * price)
        return self.make(send, prompt=hash(tuple(texts)), most=most, file_failure=file_failure)


def _counted(reply: Any, most: int) -> int:
    """Return the tokens that a reply states. 0 if it states none or more than `most`."""
    stated = reply.get("usage") if isinstance(reply, Mapping) else None
    if not isinstance(stated, Mapping):
        return 0
    total = {"prompt_tokens": stated.get("total_tokens")}
    usage = reported_usage({"usage": {**total, **stated}}, "")
    count = (usage and usage.input_tokens) or 0
    return count if count <= most else 0


@lru_cache(maxsize=1)
def _chat() -> OpenAIChatLM:
    """Return what reads errors as the clients of LMs do."""
    return OpenAIChatLM(api_key="none")
