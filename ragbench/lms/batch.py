"""An LM whose calls are collected and answered by the batches of OpenAI or Anthropic.

The code of direct calls builds the requests and reads the replies. Only the network differs. A
call whose reply is known returns it. Any other is collected with the body that a direct call would
send, and fails with `PendingReply`. A provider works on a list of requests for up to a day, at half
the price, and returns one result each, in any order.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
from dspy import lm15

from ragbench.errors import LMSetupError, RunError
from ragbench.lms.calls import (
    UNBOUNDED_REPLY,
    Amount,
    Caller,
    CallRefusedError,
    HostedClient,
    HttpRequest,
    Reply,
    Server,
    ServerCalls,
)
from ragbench.lms.calls.caller import reason
from ragbench.lms.calls.client import reported_usage
from ragbench.lms.calls.http import HttpReply
from ragbench.lms.engine import MeteredEngine
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.prices import BATCH_DISCOUNT
from ragbench.lms.specs import HostedSpec

#: One request of a batch in the format of OpenAI's files: `custom_id`, `method`, `url`, `body`.
Item = Mapping[str, Any]
#: Result of an item: `status` of HTTP and JSON `body`, like the reply to a direct call.
ItemReply = Mapping[str, Any]


class PendingReply(CallRefusedError):  # noqa: N818 - not a failure
    """The reply to this call will come with a batch."""

    default_code = "pending"


class BatchFailedError(RunError):
    """The provider ended a batch without any reply."""


class BatchClient(HostedClient):
    """A client that answers from `replies` and collects the request that has no reply.

    Only one thread at a time may use it. `begin` states which task makes the next calls.
    """

    def __init__(self, spec: HostedSpec) -> None:
        super().__init__(spec, timeout=60.0, send=self._look_up)
        self.replies: dict[str, ItemReply] = {}
        self.asked: Item | None = None
        self._task = ""
        self._made = Counter[str]()

    def begin(self, task: str) -> None:
        """Let the next calls belong to `task`. The same calls get the same keys."""
        self.asked = None
        self._task = task
        self._made.clear()

    def _look_up(self, request: Any) -> HttpReply:
        # A batch names a path from /v1 on, whatever precedes it on this server.
        path = "/v1/" + urlsplit(request.url).path.rpartition("/v1/")[2]
        sent = hashlib.sha256(path.encode() + request.body).hexdigest()
        content = f"{self._task} {self._made[sent]} {sent}"  # A repeat is another call.
        key = hashlib.sha256(content.encode()).hexdigest()[:40]
        self._made[sent] += 1
        if key not in self.replies:
            body = json.loads(request.body)
            self.asked = {"custom_id": key, "method": "POST", "url": path, "body": body}
            raise PendingReply("the reply comes with a batch")
        reply = self.replies[key]
        return HttpReply(reply["status"], json.dumps(reply["body"]).encode())


def batched(lm: RagbenchLM) -> RagbenchLM:
    """Return `lm`, answered by batches at half price through a `BatchClient`.

    It does not use DSPy's cache, because the journal stores the replies.

    Raises:
        LMSetupError: ragbench does not support a batch API of the provider.
    """
    engine = lm.metered
    client = engine.client
    if not isinstance(client, HostedClient) or client.spec.provider not in SERVICES:
        providers = " and ".join(f"{name}/..." for name in SERVICES)
        raise LMSetupError(f"--batch does not support {lm.model}. Use {providers}, or omit it.")
    made = MeteredEngine(
        BatchClient(client.spec),
        # The whole batch is reserved when it is sent.
        Caller(engine.identity, retries=0, reserves=False),
        pricing=engine.pricing.times(BATCH_DISCOUNT),
        capabilities=engine.capabilities,
    )
    copied = lm.copy(engine=made, cache=False)
    assert isinstance(copied, RagbenchLM)
    return copied


def client_of(lm: RagbenchLM) -> BatchClient | None:
    """Return the client of an LM from `batched`, or None for any other LM."""
    client = lm.metered.client
    return client if isinstance(client, BatchClient) else None


def most(lm: RagbenchLM, body: Mapping[str, Any]) -> Amount:
    """Return the maximum usage of a request: a token for 3 bytes sent, and the longest reply.

    The cost is infinite if the price is unknown.

    Args:
        lm: LM that answers the request.
        body: JSON body of the request.
    """
    sent = -(-len(json.dumps(body, ensure_ascii=False).encode()) // 3)
    got = body.get("max_tokens") or body.get("max_completion_tokens") or UNBOUNDED_REPLY
    cost = lm.pricing.cost(sent, got)
    return Amount(1, sent + got, math.inf if cost is None else cost)


def used(lm: RagbenchLM, reply: ItemReply) -> Amount:
    """Return the usage that a reply reports. A failed item is not billed.

    Args:
        lm: LM that answered.
        reply: Result of an item.
    """
    reported = reported_usage(reply["body"], "")
    if reported is None:
        return Amount()
    sent = reported.input_tokens or 0
    got = reported.output_tokens or 0
    return Amount(1, sent + got, lm.pricing.cost(sent, got) or 0.0)


class OpenAIBatches(ServerCalls):
    """OpenAI's batches: a file of requests is uploaded, and files of replies come back."""

    address = "https://api.openai.com/v1"

    def __init__(self, spec: HostedSpec) -> None:
        self.base = spec.api_base or self.address
        server = Server(spec.provider, spec.model, self.base, spec.key_variables[0])
        self._headers = self._key_headers(server.key)
        super().__init__(f"the batch API of {spec.provider}", server)

    def submit(self, items: Sequence[Item]) -> str:
        """Return the id of a new batch of `items`, all of one path.

        Raises:
            RunError: The provider does not create the batch.
            LMSetupError: The provider refuses the file or the key.
            LMUnavailableError: The provider does not answer.
        """
        named = ("ragbench.jsonl", "\n".join(map(json.dumps, items)))
        form = httpx.Request(
            "POST", f"{self.base}/files", data={"purpose": "batch"}, files={"file": named}
        )
        file = self._ask("files", form.read(), form.headers["Content-Type"])
        return self._create("batches", {
            "input_file_id": file["id"], "endpoint": items[0]["url"], "completion_window": "24h",
        })  # fmt: skip

    def fetch(self, batch_id: str) -> dict[str, ItemReply] | None:
        """Return the replies by key, or None while the provider works on the batch.

        An item without a result is missing.

        Raises:
            BatchFailedError: The whole batch failed.
            LMSetupError: The provider refuses the request.
            LMUnavailableError: The provider does not answer.
        """
        batch = self._ask(f"batches/{batch_id}")
        if batch["status"] == "failed":
            raise BatchFailedError(f"Batch {batch_id} failed: {str(batch.get('errors'))[:150]}.")
        if batch["status"] not in ("completed", "expired", "cancelled"):
            return None
        replies: dict[str, ItemReply] = {}
        for name in filter(None, map(batch.get, ("output_file_id", "error_file_id"))):
            for row in self._ask(f"files/{name}/content", read=_json_lines):
                failure = {"status_code": 504, "body": {"error": row.get("error")}}
                result = row.get("response") or failure
                reply = {"status": result["status_code"], "body": result["body"]}
                replies[row["custom_id"]] = reply
        return replies

    def _key_headers(self, key: str) -> list[tuple[str, str]]:
        return [("Authorization", f"Bearer {key}")]

    def _ask(
        self, path: str, body: bytes = b"", kind: str = "application/json",
        read: Callable[[bytes], Any] = json.loads, *, once: bool = False,
    ) -> Any:  # fmt: skip
        """Return the content of a reply, after one attempt or as many as necessary."""
        headers = [*self._headers, ("Content-Type", kind)]
        request = HttpRequest("POST" if body else "GET", f"{self.base}/{path}", headers, body)
        if once:
            return self.exchange(request, read)
        send = lambda: Reply(self.exchange(request, read), 0, 0.0)  # noqa: E731
        return self.make(send, prompt=hash(path), most=Amount(calls=0)).value

    def _create(self, path: str, body: Any) -> str:
        """Create a batch in one attempt, because a second one may create a second batch."""
        try:
            return str(self._ask(path, json.dumps(body).encode(), once=True)["id"])
        except (lm15.InvalidRequestError, lm15.AuthError) as error:
            raise LMSetupError(f"{self.name} refuses the batch: {reason(error)}") from error
        except (lm15.LM15Error, KeyError, TypeError) as error:
            raise RunError(
                f"{self.name}: a batch may have been made ({reason(error)}), see your account; "
                "the same command continues"
            ) from error


class AnthropicBatches(OpenAIBatches):
    """Message batches of Anthropic."""

    address = "https://api.anthropic.com/v1"

    def submit(self, items: Sequence[Item]) -> str:
        requests = []
        for item in items:
            params = {name: value for name, value in item["body"].items() if name != "stream"}
            requests.append({"custom_id": item["custom_id"], "params": params})
        return self._create("messages/batches", {"requests": requests})

    def fetch(self, batch_id: str) -> dict[str, ItemReply] | None:
        path = f"messages/batches/{batch_id}"
        if self._ask(path)["processing_status"] != "ended":
            return None
        replies: dict[str, ItemReply] = {}
        # Not at `results_url`: no other server gets the key.
        for row in self._ask(f"{path}/results", read=_json_lines):
            result = row["result"]
            error = result.get("error") or {"error": result["type"]}
            status = 400 if "invalid_request" in json.dumps(error) else 504
            reply = {"status": status, "body": error}
            if result["type"] == "succeeded":
                reply = {"status": 200, "body": result["message"]}
            replies[row["custom_id"]] = reply
        return replies

    def _key_headers(self, key: str) -> list[tuple[str, str]]:
        return [("x-api-key", key), ("anthropic-version", "2023-06-01")]


SERVICES = {"openai": OpenAIBatches, "anthropic": AnthropicBatches}


def _json_lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines() if line]
