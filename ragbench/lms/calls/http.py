"""The only HTTP client: it follows no redirect and bounds every reply in size and time.

Requests carry a key, so a server may not redirect them. A whole reply must arrive before the time
limit, which ends with that of the question, and soon after the command was stopped.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import finalize

import httpcore
from dspy import lm15
from dspy.lm15 import LM15Error

from ragbench import stopping
from ragbench.context import current
from ragbench.errors import LMSetupError

#: Longest reply that is read; answers are some kilobytes.
MAX_REPLY_BYTES = 16 * 2**20
CONNECT_S = 10.0
_LOST = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, OSError)
#: Headers that the client writes itself.
_OWN_HEADERS = frozenset({"host", "content-length", "accept-encoding", "connection"})


@dataclass(frozen=True)
class HttpRequest:
    """A request; `dspy.lm15` passes a similar object."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


@dataclass(frozen=True)
class HttpReply(AbstractContextManager["HttpReply"]):
    """A whole reply, by the names under which `dspy.lm15` reads one."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),)
    reason, http_version = "", "HTTP/1.1"

    def read(self) -> bytes:
        return self.body

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    def __exit__(self, *error: object) -> None:
        pass


class HttpClient:
    """Sends requests over connections that are kept for the next; thread-safe."""

    def __init__(self, timeout_s: float, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes
        self._made: list[httpcore.ConnectionPool] = []
        #: Connections that no request uses, by process (a fork has its own) and place.
        self._free: dict[tuple[int, str], list[httpcore.ConnectionPool]] = {}
        finalize(self, _close_all, self._made)

    def send(self, request: Any) -> HttpReply:
        """Return the whole reply, even if it is an error.

        Raises:
            lm15.TimeoutError: it was not there in time.
            lm15.TransportError: there is none, it is too long, or the process was stopped.
            lm15.InvalidRequestError: it is a redirect.
        """
        if stopping.stopped():
            raise _unsent(lm15.TransportError("the command was stopped"))
        deadline = current().deadline
        end = time.monotonic() + self.timeout_s
        _bounds.end = end if deadline is None else min(end, deadline.at)
        _bounds.left = _bounds.most = self.max_bytes
        try:
            reply = self._exchange(request)
        except httpcore.ConnectTimeout:
            raise _unsent(lm15.TimeoutError("the request timed out")) from None
        except httpcore.TimeoutException:
            raise lm15.TimeoutError("the request timed out") from None
        except LMSetupError as error:
            raise _unsent(lm15.InvalidRequestError(str(error))) from None
        except _LOST as error:
            reason = str(error) or type(error).__name__
            if _is_untrusted(error):
                line = reason.partition("\n")[0][:200]
                why = f"the certificate of the server is not trusted ({line}); give --ca-file"
                raise _unsent(lm15.InvalidRequestError(why)) from None
            lost = lm15.TransportError(reason)
            if isinstance(error, httpcore.ConnectError | httpcore.ProxyError):
                lost = _unsent(lost)
            raise lost from error
        if 300 <= reply.status < 400:
            raise lm15.InvalidRequestError(
                f"HTTP {reply.status}: the server redirects, and keys are not sent on; give the "
                "address that it redirects to",
                status=reply.status,
            )
        return reply

    def close(self) -> None:
        _close_all(self._made)

    def _exchange(self, request: Any) -> HttpReply:
        url = httpcore.URL(request.url)
        # A compressed reply would have no bound.
        headers = [*headers_without(_OWN_HEADERS, request.headers), ("Accept-Encoding", "identity")]
        times = dict.fromkeys(("write", "read", "pool"), self.timeout_s)
        times["connect"] = min(CONNECT_S, self.timeout_s)
        scheme = url.scheme.decode()
        host = url.host.decode()
        free = self._free.setdefault((os.getpid(), f"{scheme}://{host}:{url.port}"), [])
        try:
            connection = free.pop()
        except IndexError:
            connection = self._connection(scheme, host, url.port)
        try:
            response = connection.request(
                request.method,
                url,
                headers=[(name.encode(), value.encode()) for name, value in headers],
                content=request.body,
                extensions={"timeout": times},
            )
        finally:
            free.append(connection)
        reply_headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in response.headers]
        coding = next((v for n, v in reply_headers if n.lower() == "content-encoding"), "identity")
        if coding.strip() != "identity":
            raise lm15.TransportError(f"the reply is compressed by {coding[:50]}")
        return HttpReply(response.status, response.content, reply_headers)

    def _connection(self, scheme: str, host: str, port: int | None) -> httpcore.ConnectionPool:
        """Return a new connection to `host`, over a proxy where the environment has one.

        A pool of one: to look for a free one among hundreds, a shared pool takes longer than a
        call takes otherwise.
        """
        proxy = proxy_for(scheme, host, port)
        options: dict[str, Any] = {"network_backend": _Backend(), "max_connections": 1}
        options["ssl_context"] = _ssl_context() if scheme == "https" else None
        pool: httpcore.ConnectionPool
        if proxy is None:
            pool = httpcore.ConnectionPool(**options)
        else:
            pool = httpcore.HTTPProxy(proxy.address, proxy_auth=proxy.login, **options)
        self._made.append(pool)
        return pool


class Proxy(NamedTuple):
    """A proxy: its address without name and password, and its credentials as sent."""

    address: str
    login: tuple[bytes, bytes] | None


def proxy_for(scheme: str, host: str, port: int | None = None) -> Proxy | None:
    """Return the proxy that the environment names for a server.

    Args:
        scheme: http or https.
        host: Name or address of the server.
        port: Port of the server; None for that of the scheme.

    Returns:
        The proxy; None if there is none, or NO_PROXY names the server.

    Raises:
        LMSetupError: it is one that is not spoken here, or is no address; without its password.
    """
    proxies = getproxies()
    port = port or {"http": 80, "https": 443}[scheme]
    if proxy_bypass(host) or _needs_no_proxy(host, port, proxies.get("no", "")):
        return None
    address = proxies.get(scheme) or proxies.get("all") or ""
    if not address:
        return None
    if "://" not in address:
        address = f"http://{address}"
    name = f"{scheme}_proxy"
    try:
        url = urlsplit(address)
        _ = url.port  # which is read now
    except ValueError:
        raise LMSetupError(f"{name} is not a proxy address. Use http://HOST:PORT.") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise LMSetupError(
            f"{name} is a {url.scheme} proxy, which is not spoken here; give an http proxy, or "
            "name the server in no_proxy"
        )
    login = None
    if url.username is not None:
        login = (unquote(url.username).encode(), unquote(url.password or "").encode())
    return Proxy(f"{url.scheme}://{url.netloc.rpartition('@')[2]}", login)


def _needs_no_proxy(host: str, port: int, listed: str) -> bool:
    """Return True if `listed` names the server by name, domain, address, network or port."""
    for entry in re.split(r"[,\s]+", listed.lower()):
        name, _, number = entry.rpartition(":")
        if number.isdigit() and (":" not in name or name.endswith("]")):
            if int(number) != port:
                continue
            entry = name
        entry = entry.replace("[", "").replace("]", "").strip(".")
        try:
            if ip_address(host.strip("[]")) in ip_network(entry, strict=False):
                return True
        except ValueError:  # a name
            if entry and f".{host.lower().rstrip('.')}".endswith(f".{entry.removeprefix('*.')}"):
                return True
    return False


def headers_without(
    unwanted: Collection[str], headers: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return `headers` but those that are called by one of `unwanted`, in lower case."""
    remaining = []
    for header in headers:
        if header[0].lower() not in unwanted:
            remaining.append(header)
    return remaining


def _unsent(error: LM15Error) -> LM15Error:
    """Mark `error` as one before which the server got nothing to work on."""
    error.unsent = True
    return error


def _close_all(pools: list[httpcore.ConnectionPool]) -> None:
    while pools:
        pools.pop().close()


def hung_up(error: BaseException) -> bool:
    """Return True if the server took the connection and closed it without a word."""
    cause = error.__cause__
    return isinstance(cause, httpcore.RemoteProtocolError) and "disconnected" in str(cause)


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


class _Bounds(threading.local):
    """Deadline of the calling thread's request, and the number of bytes still allowed."""

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
        self.close, self.get_extra_info = inner.close, inner.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while (seconds := _bounds.end - time.monotonic()) > 0 and not stopping.cut_off():
            try:
                data = self._inner.read(max_bytes, min(seconds, stopping.POLL_S))
            except httpcore.ReadTimeout:
                continue
            _bounds.left -= len(data)  # headers and the frames of chunks can be endless, too
            if _bounds.left < 0:
                megabytes = _bounds.most // 2**20
                raise lm15.TransportError(f"the reply is longer than {megabytes} MB")
            return data
        raise httpcore.ReadTimeout

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, max(0.001, _bounds.end - time.monotonic()))

    def start_tls(self, *args: Any, **kwargs: Any) -> _Stream:
        return _Stream(self._inner.start_tls(*args, **kwargs))


@cache
def _ssl_context() -> ssl.SSLContext:
    """Return the one TLS context of the process: reading the certificates takes 20 ms."""
    return httpcore.default_ssl_context()


def trust(ca_file: Path) -> None:
    """Trust the certificates in `ca_file` too, in this process.

    Raises:
        LMSetupError: it is no file of certificates in PEM.
    """
    try:
        _ssl_context().load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error) or type(error).__name__
        raise LMSetupError(f"ca_file {ca_file} does not contain PEM certificates: {why}") from None


def request_of(url: str, key: str | None, body: Any = None) -> HttpRequest:
    """Return a GET of `url`, or a POST of `body` as JSON, with `key` as the bearer token."""
    bearer = [("Authorization", f"Bearer {key}")] if key else []
    if body is None:
        return HttpRequest("GET", url, bearer)
    headers = [("Content-Type", "application/json"), *bearer]
    return HttpRequest("POST", url, headers, json.dumps(body).encode())
