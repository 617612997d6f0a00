"""DSPy's HTTP transport, which here keeps the rate-limit headers of replies and bounds their size.

Its own time limit is per byte, so that a reply which drips would never end; here the whole of it
has a limit, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dspy._vendor.lm15.rate_limits import capture_rate_limits
from dspy._vendor.lm15.transports import ReadTimeout, StdlibTransport, TransportError
from dspy.lm15 import Timeouts

#: Longest reply that is read; answers are some kilobytes.
MAX_REPLY_BYTES = 16 * 2**20
#: A whole reply may take this many times as long as the wait for one byte: some servers send blanks
#: to keep the connection while their model is busy.
WHOLE_REPLY = 5.0
#: As many calls at once as a run may have workers.
_CONNECTIONS = 1024


class WatchedTransport(StdlibTransport):
    """A transport that remembers the rate-limit headers of each thread's last reply."""

    def __init__(self, timeouts: Timeouts) -> None:
        super().__init__(
            connect_timeout=timeouts.connect,
            read_timeout=timeouts.read,
            write_timeout=timeouts.write,
            pool_timeout=timeouts.pool,
            max_connections=_CONNECTIONS,
        )
        self._whole_s = WHOLE_REPLY * timeouts.read
        self._last = threading.local()

    def stream(self, request: Any) -> Any:
        """The open reply to `request`."""
        self._last.headers = {}
        response = super().stream(request)
        self._last.headers = capture_rate_limits(response.headers)
        response._chunks = self._bounded(response._chunks)
        return response

    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """The rate-limit headers of the calling thread's last reply, names in lower case."""
        found: Mapping[str, Sequence[str]] = getattr(self._last, "headers", {})
        return found

    def _bounded(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        end, size = time.monotonic() + self._whole_s, 0
        for chunk in chunks:
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                raise TransportError(f"the reply is longer than {MAX_REPLY_BYTES // 2**20} MB")
            if time.monotonic() > end:
                raise ReadTimeout(f"the reply was not complete after {self._whole_s:g} s")
            yield chunk
