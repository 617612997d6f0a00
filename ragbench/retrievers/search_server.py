"""Send the requests of a search engine's client in the same way as calls to an LM.

The client gets a transport that bounds the time and size of every request, retries transient
errors, waits while the server is down, and never follows redirects.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from ragbench.lms.calls import Amount, HttpRequest, Reply, Server, ServerCalls
from ragbench.lms.specs import place_of

#: Headers of the client that are sent. The connection sets the others.
_SENT = ("content-type", "user-agent")


class SearchServer(ServerCalls, httpx.BaseTransport):
    """The server of the engine `name` at `url`. Its key is that of the environment's `variable`."""

    priced = True  # its calls are free
    in_process = False

    def __init__(self, name: str, url: str, *, header: str, variable: str) -> None:
        self.identity = f"{name} {place_of(url)}"
        self._header = header
        super().__init__(self.identity, Server(name, "", url, variable))

    @property
    def service(self) -> SearchServer:
        """Itself, by the name under which embedders and rerankers have theirs."""
        return self

    def answer(self, request: httpx.Request) -> bytes:
        """Send `request` and return the JSON of the reply."""
        headers = [(name, request.headers[name]) for name in _SENT if name in request.headers]
        if (key := self._server.key) != "none":
            headers.append((self._header, key))
        body = request.read()
        sent = HttpRequest(request.method, str(request.url), headers, body)

        def send() -> Reply[bytes]:
            return Reply(self.exchange(sent, _json), 0, 0.0)

        # A search is not a model call, so a limit on calls does not count it.
        return self.make(send, prompt=hash((sent.url, body)), most=Amount(calls=0)).value

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the server's reply to `request`, for the engine's own client."""
        json_type = {"content-type": "application/json"}
        return httpx.Response(200, headers=json_type, content=self.answer(request))

    def _error_body(self, content: bytes) -> bytes:
        try:
            message: Any = json.loads(content)["status"]["error"]
        except (ValueError, RecursionError, KeyError, TypeError):
            return content
        return json.dumps({"error": {"message": str(message)}}).encode()


def _json(content: bytes) -> bytes:
    """Return `content`. Raises ValueError if it is not JSON."""
    json.loads(content)
    return content
