"""An LM server on loopback for benchmarks; it answers after a latency, and can reject calls."""

import asyncio
import json
import sys
from collections.abc import Callable

_MESSAGE = {
    "role": "assistant",
    "content": "[[ ## answer ## ]]\nParis\n\n[[ ## completed ## ]]",
}
#: Body of a chat reply.
REPLY = {
    "id": "x",
    "object": "chat.completion",
    "created": 0,
    "model": "fake",
    "choices": [{"index": 0, "finish_reason": "stop", "message": _MESSAGE}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
}


def _response(status: str, body: object) -> bytes:
    text = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    return head.encode() + b"\r\n\r\n" + text


_MODELS = _response("200 OK", {"object": "list", "data": [{"id": "fake"}]})
_ANSWER = _response("200 OK", REPLY)
_REJECTION = _response("429 Too Many Requests", {"error": {"message": "slow down"}})


def serve(latency_s: float, takes: Callable[[], bool] = lambda: True) -> None:
    """Answer each chat request after `latency_s`, or at once with 429 where not `takes()`.

    Prints the address, and ends with standard input.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"GET"):
                    writer.write(_MODELS)
                    continue
                lines = head.lower().split(b"\r\n")
                sizes = [int(line.split(b":")[1]) for line in lines if b"content-length" in line]
                await reader.readexactly(sizes[0] if sizes else 0)
                if not takes():
                    writer.write(_REJECTION)
                    continue
                await asyncio.sleep(latency_s)
                writer.write(_ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
        await asyncio.to_thread(sys.stdin.read)

    asyncio.run(main())
