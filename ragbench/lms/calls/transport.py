"""The HTTP transport of all calls: DSPy's, with bounds on every reply.

A reply is bounded in size and as a whole in time (DSPy's own time limit is per byte, so that one
which drips would never end), by the question's deadline, and by the stop of the process, which
breaks off what is under way. Redirects are refused: what is sent carries a key.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

from dspy import lm15
from dspy.lm15 import Timeouts

from ragbench import stopping
from ragbench.context import current
from ragbench.dspy_internals import (
    ReadTimeout as ReadTimeout,
    ResponseHeadParser,
    StdlibTransport,
    TransportError as TransportError,
    TransportRequest,
    capture_rate_limits,
    parse_url,
    proxy_route_for,
)

#: Longest reply that is read; answers are some kilobytes.
MAX_REPLY_BYTES = 16 * 2**20
#: A whole reply may take this many times as long as the wait for one byte: some servers send blanks
#: to keep the connection while their model is busy.
WHOLE_REPLY = 5.0
#: As many calls at once as a run may have workers.
_CONNECTIONS = 1024
#: Bytes received at once: what is compressed may be a thousand times as long.
_CHUNK = 16 * 1024


class BoundedTransport(StdlibTransport):
    """A transport that remembers the rate-limit headers of each thread's last reply."""

    def __init__(self, timeouts: Timeouts, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        super().__init__(
            connect_timeout=timeouts.connect,
            read_timeout=timeouts.read,
            write_timeout=timeouts.write,
            pool_timeout=timeouts.pool,
            max_connections=_CONNECTIONS,
        )
        self._timeouts, self._max_bytes = timeouts, max_bytes
        self._whole_s = WHOLE_REPLY * timeouts.read
        self._route_is_known = False
        self._local = threading.local()
        stopping.ends(self.abort)
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens connections of its own."""
        return partial(type(self), max_bytes=self._max_bytes), (self._timeouts,)

    def stream(self, request: Any) -> Any:
        """The open reply to `request`.

        Raises:
            TransportError: there is none, or the process was stopped.
            lm15.InvalidRequestError: it is a redirect.
        """
        self._local.body = []  # what a call reads must not be of the one before
        if stopping.stopped():
            raise TransportError("the command was stopped")
        if not self._route_is_known:
            self._find_route(request.url)
        now = time.monotonic()
        deadline = current().deadline
        end = now + self._whole_s
        if deadline is not None and deadline.at < end:
            end = deadline.at
            read_s = max(0.001, min(self._read_timeout, end - now))
            request = replace(request, read_timeout=read_s)
        self._local.headers, self._local.end = {}, end
        response = super().stream(request)
        self._local.headers = capture_rate_limits(response.headers)
        if refusal := _refusal(response.status, response.headers):
            _discard(response)
            raise refusal
        self._local.body = body = list[bytes]()
        response._chunks = self._bounded(response._chunks, body)
        return response

    def _find_route(self, url: str) -> None:
        # All requests go to one server; to read the environment for each took a tenth of its time.
        direct = proxy_route_for(parse_url(url), proxy=None, trust_env=True) is None
        self._trust_env = not direct
        self._route_is_known = True

    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """The rate-limit headers of the calling thread's last reply, names in lower case."""
        headers: Mapping[str, Sequence[str]] = getattr(self._local, "headers", {})
        return headers

    def last_body(self) -> bytes:
        """The body of the calling thread's last reply."""
        return b"".join(getattr(self._local, "body", ()))

    def abort(self) -> None:
        """Break off every request that is under way."""
        for connection in list(self._pool._in_use):
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it

    def _read_head(self, conn: Any, *, read_timeout: float) -> ResponseHeadParser:
        bounded = SimpleNamespace(sock=_Bounded(conn.sock, self._local.end, self._max_bytes))
        return super()._read_head(bounded, read_timeout=read_timeout)

    def _iter_body(self, conn: Any, decoder: Any, **options: Any) -> Iterator[bytes]:
        bounded = SimpleNamespace(sock=_Bounded(conn.sock, self._local.end, self._max_bytes))
        chunks: Iterator[bytes] = super()._iter_body(bounded, decoder, **options)
        return chunks

    def _bounded(self, chunks: Iterable[bytes], body: list[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > self._max_bytes:
                raise _too_long(self._max_bytes)
            body.append(chunk)
            yield chunk


_all: WeakSet[BoundedTransport] = WeakSet()


def _leave_connections() -> None:
    """A process that was forked from this one opens connections of its own."""
    for transport in list(_all):
        transport._pool = type(transport._pool)(_CONNECTIONS)


os.register_at_fork(after_in_child=_leave_connections)


class _Bounded:
    """A socket that receives no more than so many bytes, and nothing after `end`.

    What comes may be nothing of the reply's: headers and the frames of chunks can be endless.
    """

    def __init__(self, sock: socket.socket, end: float, most: int) -> None:
        self._sock, self._end, self._left, self._most = sock, end, most, most
        self._timeout = 0.0

    def settimeout(self, seconds: float) -> None:
        """The longest wait for a byte."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """What came.

        Raises:
            TimeoutError: nothing did, or the time is over.
            TransportError: it was too much.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(min(self._timeout, left))
        data = self._sock.recv(min(size, _CHUNK))
        self._left -= len(data)
        if self._left < 0:
            raise _too_long(self._most)
        return data


def _too_long(most: int) -> TransportError:
    return TransportError(f"the reply is longer than {most // 2**20} MB")


def _discard(response: Any) -> None:
    with suppress(Exception):
        next(response._chunks, None)  # begun, it gives its place in the pool back when closed
        response._chunks.close()
    response.close()


def _refusal(status: int, headers: Iterable[tuple[str, str]]) -> Exception | None:
    """Why a reply with this head is not read, if it is not."""
    refused: Exception | None = None
    if 300 <= status < 400:
        refused = lm15.InvalidRequestError(
            f"HTTP {status}: the server redirects, and keys are not sent on; give the address that "
            "it redirects to",
            status=status,
        )
    codings = [value for name, value in headers if name.lower() == "content-encoding"]
    if "," in ",".join(codings):  # one coding inflates a chunk to some megabytes, two have no bound
        refused = TransportError("the reply is compressed more than once")
    return refused


class StoredReply:
    """A transport whose every reply is this one: JSON that was received before."""

    reason, http_version = "", "HTTP/1.1"

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self._body = status, body
        self.headers = [("content-type", "application/json")]

    def stream(self, request: Any) -> StoredReply:
        """The reply."""
        return self

    def read(self) -> bytes:
        """Its body."""
        return self._body

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> StoredReply:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def get(url: str, key: str | None) -> TransportRequest:
    """A request for what is at `url`, with `key` as its bearer."""
    return TransportRequest("GET", url, _bearer(key))


def post(url: str, body: bytes, key: str | None) -> TransportRequest:
    """A request that sends `body`, JSON, with `key` as its bearer."""
    headers = [("Content-Type", "application/json"), *_bearer(key)]
    return TransportRequest("POST", url, headers, body)


def _bearer(key: str | None) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {key}")] if key else []
