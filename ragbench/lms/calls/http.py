"""The one HTTP client: it follows no redirect, and bounds every reply in size and in time.

What is sent carries a key, so a server may not say where else it goes. A whole reply has to be
there when the time is over, which ends with the question's and soon after the command was stopped.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.request import getproxies, proxy_bypass
from weakref import finalize

import httpcore
from dspy import lm15

from ragbench import stopping
from ragbench.context import current

#: Longest reply that is read; answers are some kilobytes.
MAX_REPLY_BYTES = 16 * 2**20
CONNECT_S = 10.0
_Connection = httpcore.HTTPConnection | httpcore.HTTPProxy
#: Headers that the client writes itself.
_OWN_HEADERS = frozenset({"host", "content-length", "accept-encoding", "connection"})


@dataclass(frozen=True)
class HttpRequest:
    """What is sent; `dspy.lm15` hands over a like object."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


@dataclass(frozen=True)
class HttpReply:
    """A whole reply, by the names under which `dspy.lm15` reads one."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),)
    reason, http_version = "", "HTTP/1.1"

    def named(self) -> Mapping[str, Sequence[str]]:
        """The headers by name in lower case."""
        named: dict[str, list[str]] = {}
        for name, value in self.headers:
            named.setdefault(name.lower(), []).append(value)
        return named

    def read(self) -> bytes:
        """The body."""
        return self.body

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> HttpReply:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Transport:
    """Carries the requests of `dspy.lm15`: over the network, or to what stands in its place."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def last(self) -> HttpReply | None:
        """What the calling thread's last request got, if it got a whole reply."""
        reply: HttpReply | None = getattr(self._local, "last", None)
        return reply

    def stream(self, request: Any) -> HttpReply:
        """The whole reply to `request`, also where it is an error.

        Raises:
            lm15.LM15Error: there is none.
        """
        self._local.last = None
        self._local.last = reply = self.send(request)
        return reply

    def send(self, request: Any) -> HttpReply:
        """`stream`, without a note of the reply."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of connections."""


class HttpClient(Transport):
    """Sends requests, each over a connection of its own that is kept for others; thread-safe."""

    def __init__(self, timeout_s: float, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        super().__init__()
        self.timeout_s, self.max_bytes = timeout_s, max_bytes
        self._idle: dict[tuple[str, str, int], list[_Connection]] = {}
        self._process = os.getpid()
        finalize(self, _close_all, self._idle)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens connections of its own."""
        return type(self), (self.timeout_s,)

    def send(self, request: Any) -> HttpReply:
        """The whole reply.

        Raises:
            lm15.TimeoutError: it was not there in time.
            lm15.TransportError: there is none, it is too long, or the process was stopped.
            lm15.InvalidRequestError: it is a redirect.
        """
        if stopping.stopped():
            raise lm15.TransportError("the command was stopped")
        deadline = current().deadline
        end = time.monotonic() + self.timeout_s
        _bounds.end = end if deadline is None else min(end, deadline.at)
        _bounds.left = _bounds.most = self.max_bytes
        try:
            reply = self._exchange(request)
        except httpcore.TimeoutException:
            raise lm15.TimeoutError("the request timed out") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            raise lm15.TransportError(str(error) or type(error).__name__) from error
        if 300 <= reply.status < 400:
            raise lm15.InvalidRequestError(
                f"HTTP {reply.status}: the server redirects, and keys are not sent on; give the "
                "address that it redirects to",
                status=reply.status,
            )
        return reply

    def close(self) -> None:
        """Close the connections that no request uses."""
        _close_all(self._idle)

    def _exchange(self, request: Any) -> HttpReply:
        url = httpcore.URL(request.url)
        host = url.host.decode()
        place = (url.scheme.decode(), host, url.origin.port)
        authority = f"[{host}]" if ":" in host else host
        authority += "" if url.port is None else f":{url.port}"
        headers = [(n, v) for n, v in request.headers if n.lower() not in _OWN_HEADERS]
        headers += [("Host", authority), ("Accept-Encoding", "gzip")]
        headers.append(("Content-Length", str(len(request.body))))
        times = {"connect": min(CONNECT_S, self.timeout_s), "write": self.timeout_s}
        connection = self._connection(place)
        response = connection.handle_request(
            httpcore.Request(
                request.method,
                url,
                headers=[(name.encode(), value.encode()) for name, value in headers],
                content=request.body,
                extensions={"timeout": {**times, "read": 1.0, "pool": self.timeout_s}},
            )
        )
        try:
            body = b"".join(response.iter_stream())
        finally:
            response.close()
        if isinstance(connection, httpcore.HTTPProxy) or connection.is_idle():
            self._idle.setdefault(place, []).append(connection)
        else:
            connection.close()
        told = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in response.headers]
        return HttpReply(response.status, _inflated(body, told, self.max_bytes), told)

    def _connection(self, place: tuple[str, str, int]) -> _Connection:
        if self._process != os.getpid():  # a fork opens connections of its own
            self._idle.clear()
            self._process = os.getpid()
        kept = self._idle.setdefault(place, [])
        while kept:
            try:
                connection = kept.pop()
            except IndexError:  # another thread was faster
                break
            if isinstance(connection, httpcore.HTTPProxy):  # which looks for itself
                return connection
            if not (connection.is_closed() or connection.has_expired()):
                return connection
            connection.close()
        scheme, host, port = place
        options: dict[str, Any] = {"network_backend": _Backend()}
        if scheme == "https":
            options["ssl_context"] = _ssl_context()
        if (proxy := getproxies().get(scheme)) and not proxy_bypass(host):
            return httpcore.HTTPProxy(proxy, **options)
        origin = httpcore.Origin(scheme.encode(), host.encode(), port)
        return httpcore.HTTPConnection(origin, **options)


def _close_all(idle: Mapping[Any, list[_Connection]]) -> None:
    for connections in idle.values():
        while connections:
            connections.pop().close()


class _Bounds(threading.local):
    """When the calling thread's request is over, and how many bytes may still come."""

    end = 0.0
    left = most = 0


_bounds = _Bounds()


class _Backend(httpcore.SyncBackend):
    """Connections whose every wait ends with the request's time, or with the command."""

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: Any, **kwargs: Any
    ) -> httpcore.NetworkStream:
        timeout = max(0.001, min(timeout or CONNECT_S, _bounds.end - time.monotonic()))
        return _Stream(super().connect_tcp(host, port, timeout, *args, **kwargs))


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner
        self._unsent = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        unsent, self._unsent = self._unsent, b""
        if unsent:
            self._inner.write(unsent, max(0.001, _bounds.end - time.monotonic()))
        while (left := _bounds.end - time.monotonic()) > 0 and not stopping.cut_off():
            try:
                data = self._inner.read(max_bytes, min(left, stopping.POLL_S))
            except httpcore.ReadTimeout:
                continue
            _bounds.left -= len(data)  # headers and the frames of chunks can be endless, too
            if _bounds.left < 0:
                raise _too_long(_bounds.most)
            return data
        raise httpcore.ReadTimeout

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer  # head and body go out as one, when the reply is waited for

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def start_tls(self, *args: Any, **kwargs: Any) -> _Stream:
        return _Stream(self._inner.start_tls(*args, **kwargs))


def _too_long(most: int) -> lm15.TransportError:
    return lm15.TransportError(f"the reply is longer than {most // 2**20} MB")


def _inflated(body: bytes, headers: Iterable[tuple[str, str]], most: int) -> bytes:
    """`body` as it was before the server compressed it."""
    codings = [value.strip() for name, value in headers if name.lower() == "content-encoding"]
    if codings in ([], ["identity"]):
        return body
    if codings != ["gzip"]:
        raise lm15.TransportError(f"the reply is compressed by {', '.join(codings)[:50]}")
    try:
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
        whole = inflater.decompress(body, most)
    except zlib.error as error:
        raise lm15.TransportError(f"the reply is not what it says: {error}") from None
    if inflater.unconsumed_tail:
        raise _too_long(most)
    return whole


@cache
def _ssl_context() -> ssl.SSLContext:
    """One for the process: to read the certificates takes 20 ms."""
    return httpcore.default_ssl_context()


def post(url: str, body: Any, key: str | None) -> HttpRequest:
    """A request that sends `body` as JSON, with `key` as its bearer."""
    headers = [("Content-Type", "application/json"), *_bearer(key)]
    return HttpRequest("POST", url, headers, json.dumps(body).encode())


def get(url: str, key: str | None) -> HttpRequest:
    """A request for what is at `url`, with `key` as its bearer."""
    return HttpRequest("GET", url, _bearer(key))


def _bearer(key: str | None) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {key}")] if key else []
