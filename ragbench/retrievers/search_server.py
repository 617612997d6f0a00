"""Send the requests to a search engine in the same way as calls to an LM.

The time and size of every request are bounded, transient errors are retried, an outage is waited
out, and redirects are never followed.
"""

from __future__ import annotations

import json
from typing import Any

from ragbench.lms.calls import Amount, HttpRequest, Reply, Server, ServerCalls
from ragbench.lms.specs import place_of


class SearchServer(ServerCalls):
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

    def ask(self, method: str, url: str, body: Any = None) -> Any:
        """Send a request and return the JSON of the reply.

        Args:
            method: HTTP method.
            url: Address of the request.
            body: JSON body. None: without a body.
        """
        headers = [("content-type", "application/json")]
        if (key := self._server.key) != "none":
            headers.append((self._header, key))
        content = b"" if body is None else json.dumps(body).encode()
        sent = HttpRequest(method, url, headers, content)

        def send() -> Reply[Any]:
            return Reply(self.exchange(sent), 0, 0.0)

        # A search is not a model call, so a limit on calls does not count it.
        return self.make(send, prompt=hash((url, content)), most=Amount(calls=0)).value

    def _error_body(self, content: bytes) -> bytes:
        try:
            message: Any = json.loads(content)["status"]["error"]
        except (ValueError, RecursionError, LookupError, TypeError):
            return content
        return json.dumps({"error": {"message": str(message)}}).encode()
