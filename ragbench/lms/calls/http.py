"""The only HTTP client: it follows no redirect and bounds every reply in size and time.

Requests carry a key, so a server may not redirect them. A whole reply must arrive before the time
limit, which ends with that of the question, and soon after the command was stopped. The environment
names a proxy (`http_proxy`, `https_proxy`, `no_proxy`).
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import select
import socket
import ssl
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, lru_cache
from http.client import HTTPException, HTTPResponse, RemoteDisconnected
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import finalize

import certifi
from dspy import lm15
from dspy.lm15 import LM15Error

from ragbench.context import POLL_S, current, cut_off, stopped
from ragbench.errors import LMSetupError

#: Longest reply that is read. Answers are some kilobytes.
MAX_REPLY_BYTES = 16 * 2**20
CONNECT_S = 10.0
_DEFAULT_PORTS = {"http": 80, "https": 443}
#: A body whose size is at most this is read in one piece.
_PIECE = 2**16
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Headers that the client writes itself.
_OWN_HEADERS = frozenset({"host", "content-length", "accept-encoding", "connection"})


@dataclass(frozen=True)
class HttpRequest:
    """A request. `dspy.lm15` passes a similar object."""

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
    """Sends requests over connections that are kept for the next. Thread-safe."""

    def __init__(self, timeout_s: float, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes
        #: Connections that no request uses, by process (a fork has its own) and place.
        self._free: dict[tuple[int, _Place], list[_Connection]] = {}
        finalize(self, _close_all, self._free)

    def send(self, request: Any) -> HttpReply:
        """Return the whole reply, even if it is an error.

        Raises:
            lm15.TimeoutError: it was not there in time.
            lm15.TransportError: there is none, it is too long, or the process was stopped.
            lm15.InvalidRequestError: it is a redirect.
        """
        if stopped():
            raise _unsent(lm15.TransportError("the command was stopped"))
        deadline = current().deadline
        end = time.monotonic() + self.timeout_s
        if deadline is not None:
            end = min(end, deadline.at)
        place, target, head = _head_of(request)
        connection = self._connection(place, end)
        try:
            reply = connection.exchange(request.method, target, head, request.body)
        except TimeoutError:
            raise lm15.TimeoutError("the request timed out") from None
        except (HTTPException, OSError) as error:
            reason = str(error).strip()[:200] or type(error).__name__
            raise lm15.TransportError(reason) from error
        finally:
            connection.end = 0.0
            if connection.is_reusable:
                self._free[os.getpid(), place].append(connection)
            else:
                connection.close()
        if 300 <= reply.status < 400:
            raise lm15.InvalidRequestError(
                f"HTTP {reply.status}: the server redirects, and keys are not sent on; give the "
                "address that it redirects to",
                status=reply.status,
            )
        return reply

    def close(self) -> None:
        _close_all(self._free)

    def _connection(self, place: _Place, end: float) -> _Connection:
        """Return a free connection to `place`, or a new one, which may be used until `end`."""
        free = self._free.setdefault((os.getpid(), place), [])
        while free:
            try:
                connection = free.pop()
            except IndexError:  # another thread took it
                break
            if not connection.is_stale():
                connection.begin(end, self.max_bytes)
                return connection
            connection.close()
        connection = _Connection(place)
        connection.begin(end, self.max_bytes)
        try:
            connection.open()
        except TimeoutError:
            raise _unsent(lm15.TimeoutError("the request timed out")) from None
        except LMSetupError as error:
            raise _unsent(lm15.InvalidRequestError(str(error))) from None
        except ssl.SSLCertVerificationError as error:
            why = f"the certificate of the server is not trusted ({error.verify_message})"
            raise _unsent(lm15.InvalidRequestError(f"{why}; give --ca-file")) from None
        except (HTTPException, OSError, UnicodeError) as error:
            raise _unsent(lm15.TransportError(str(error) or type(error).__name__)) from error
        return connection


class _Place(NamedTuple):
    """The server of an address."""

    scheme: str
    host: str
    port: int
    #: Value of the header Host.
    name: str


@lru_cache(maxsize=256)
def _url_of(address: str) -> tuple[_Place, str]:
    """Return the server, and the path with the query."""
    url = urlsplit(address)
    port = url.port or _DEFAULT_PORTS[url.scheme]
    place = _Place(url.scheme, url.hostname or "", port, url.netloc.rpartition("@")[2])
    return place, f"{url.path or '/'}{'?' if url.query else ''}{url.query}"


def _head_of(request: Any) -> tuple[_Place, str, str]:
    """Return the server and the target of `request`, and its lines of headers.

    Raises:
        lm15.InvalidRequestError: the address or a header cannot be sent.
    """
    try:
        place, target = _url_of(request.url)
        # A compressed reply would have no bound.
        lines = [f"Host: {place.name}", "Accept-Encoding: identity"]
        for name, value in headers_without(_OWN_HEADERS, request.headers):
            lines.append(f"{name}: {value}")
        if request.body or request.method != "GET":
            lines.append(f"Content-Length: {len(request.body)}")
        head = "\r\n".join(lines)
        f"{target}{head}".encode("latin-1")
    except (ValueError, KeyError) as error:
        raise _unsent(lm15.InvalidRequestError(f"cannot be sent: {error}")) from None
    if _CONTROL.search(target) or any(map(_CONTROL.search, lines)):
        raise _unsent(lm15.InvalidRequestError("a header or the address has control characters"))
    return place, target, head


class Proxy(NamedTuple):
    """A proxy: its server, and the header line of its credentials, blank without any."""

    host: str
    port: int
    login: str


def proxy_for(scheme: str, host: str, port: int | None = None) -> Proxy | None:
    """Return the proxy that the environment names for a server.

    Args:
        scheme: http or https.
        host: Name or address of the server.
        port: Port of the server. None for that of the scheme.

    Returns:
        The proxy. None if there is none, or NO_PROXY names the server.

    Raises:
        LMSetupError: The proxy address is malformed or not supported. The message omits its
        password.
    """
    proxies = getproxies()
    port = port or _DEFAULT_PORTS[scheme]
    if proxy_bypass(host) or _needs_no_proxy(host, port, proxies.get("no", "")):
        return None
    address = proxies.get(scheme) or proxies.get("all") or ""
    if not address:
        return None
    name = f"{scheme}_proxy"
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        _ = url.port  # raises ValueError if malformed
    except ValueError:
        raise LMSetupError(f"{name} is not a proxy address. Use http://HOST:PORT.") from None
    if url.scheme != "http" or not url.hostname:
        raise LMSetupError(
            f"{name} is a {url.scheme} proxy, which is not supported; give an http proxy, or "
            "name the server in no_proxy"
        )
    login = ""
    if url.username is not None:
        words = f"{unquote(url.username)}:{unquote(url.password or '')}"
        login = f"Proxy-Authorization: Basic {base64.b64encode(words.encode()).decode()}\r\n"
    return Proxy(url.hostname, url.port or 80, login)


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


class _Connection:
    """A connection whose every wait ends with the request's time, or with the command."""

    def __init__(self, place: _Place) -> None:
        self.place = place
        #: When the request must be complete, by `time.monotonic`.
        self.end = 0.0
        #: Bytes that a reply may have, and those that it may still have.
        self._most = self._left = 0
        self._socket: socket.socket | None = None
        #: Prefix of the target and credentials, for a proxy that forwards requests.
        self._prefix = self._login = ""
        self.is_reusable = False

    def begin(self, end: float, most: int) -> None:
        """Set the end time and the maximum reply size of the next request."""
        self.end = end
        self._left = self._most = most

    def open(self) -> None:
        """Connect, over a proxy where the environment has one.

        Raises:
            LMSetupError: the proxy is not supported.
            OSError: the server or the proxy cannot be reached, or is not trusted.
            HTTPException: the proxy does not answer as one.
        """
        place = self.place
        proxy = proxy_for(place.scheme, place.host, place.port)
        host, port = (proxy.host, proxy.port) if proxy else (place.host, place.port)
        seconds = min(CONNECT_S, self.end - time.monotonic())
        self._socket = socket.create_connection((host, port), max(0.001, seconds))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if proxy and place.scheme == "http":
            self._prefix = f"http://{place.name}"
            self._login = proxy.login
        elif proxy:
            server = f"{place.name.removesuffix(f':{place.port}')}:{place.port}"
            lines = f"CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n{proxy.login}\r\n"
            self.sendall(lines.encode())
            reply = HTTPResponse(self, method="CONNECT")  # type: ignore[arg-type]
            reply.begin()
            if reply.status != 200:
                raise OSError(f"the proxy answers {reply.status} {reply.reason[:100]}")
        if place.scheme == "https":
            self._socket = _ssl_context().wrap_socket(self._socket, server_hostname=place.host)

    def exchange(self, method: str, target: str, head: str, body: bytes) -> HttpReply:
        """Send one request and return the whole reply.

        Args:
            method: GET or POST.
            target: Path and query.
            head: Lines of headers.
            body: Content.

        Raises:
            TimeoutError: the reply was not there in time.
            OSError: the connection broke.
            HTTPException: the reply does not follow the protocol.
            lm15.TransportError: the reply is too long, or compressed.
        """
        self.is_reusable = False
        lines = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._login}{head}\r\n\r\n"
        self.sendall(lines.encode("latin-1") + body)
        reply = HTTPResponse(self, method=method)  # type: ignore[arg-type]
        reply.begin()
        while 100 <= reply.status < 200:  # Interim replies. The real one follows.
            reply.headers = None  # type: ignore[assignment]
            reply.begin()
        headers = reply.getheaders()
        coding = next((v for n, v in headers if n.lower() == "content-encoding"), "identity")
        if coding.strip() != "identity":
            raise lm15.TransportError(f"the reply is compressed by {coding[:50]}")
        if reply.length is not None and reply.length <= _PIECE:
            content = reply.read()
        else:  # A server may announce any size, for which memory would be allocated.
            pieces = []
            while piece := reply.read(_PIECE):
                pieces.append(piece)
            content = b"".join(pieces)
            if reply.length:
                raise RemoteDisconnected("the reply ended early")
        self.is_reusable = not reply.will_close
        return HttpReply(reply.status, content, headers)

    def is_stale(self) -> bool:
        """Return True if the server closed the connection or sent unexpected data."""
        if self._socket is None:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader of the reply, as `HTTPResponse` requests it."""
        return io.BufferedReader(_Reader(self))

    def sendall(self, data: bytes) -> None:
        """Send `data` within the time of the request."""
        assert self._socket is not None
        self._socket.settimeout(max(0.001, self.end - time.monotonic()))
        self._socket.sendall(data)

    def receive(self, buffer: Any) -> int:
        """Read some bytes into `buffer` and return their number, 0 at the end."""
        assert self._socket is not None
        while (seconds := self.end - time.monotonic()) > 0 and not cut_off():
            self._socket.settimeout(min(seconds, POLL_S))
            try:
                size = self._socket.recv_into(buffer)
            except TimeoutError:
                continue
            self._left -= size  # headers and the frames of chunks can be endless, too
            if self._left < 0:
                megabytes = self._most // 2**20
                raise lm15.TransportError(f"the reply is longer than {megabytes} MB")
            return size
        raise TimeoutError

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class _Reader(io.RawIOBase):
    """The bytes of a connection. Closing the reader leaves the connection open."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._connection.receive(buffer)


def headers_without(
    unwanted: Collection[str], headers: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return `headers` but those that are called by one of `unwanted`, in lower case."""
    return [header for header in headers if header[0].lower() not in unwanted]


def _unsent(error: LM15Error) -> LM15Error:
    """Mark `error` as one before which the server got nothing to work on."""
    error.unsent = True
    return error


def _close_all(free: dict[Any, list[_Connection]]) -> None:
    for connections in free.values():
        while connections:
            connections.pop().close()


@cache
def _ssl_context() -> ssl.SSLContext:
    """Return the one TLS context of the process: reading the certificates takes 20 ms."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def trust(ca_file: Path) -> None:
    """Trust the certificates in `ca_file` too, in this process.

    Raises:
        LMSetupError: The file does not contain PEM certificates.
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
