"""An LM whose calls are collected, and answered later by the batches of OpenAI or Anthropic.

The request is built, and the reply read, by the same code as a direct call: only what would carry
it over the network is another. A call whose reply is known gets it; any other is kept with the
exact body that would have been sent, and fails with `PendingReply`. A provider takes a list of
requests, works on it for up to a day, bills half the price, and gives one result each, in any
order.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from ragbench.errors import LMSetupError, RunError, needs_extra
from ragbench.lms.calls import UNBOUNDED_REPLY, Amount, Caller, CallRefusedError, HostedClient
from ragbench.lms.calls.http import HttpReply
from ragbench.lms.engine import MeteredEngine
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.prices import BATCH_DISCOUNT
from ragbench.lms.specs import HostedSpec


class PendingReply(CallRefusedError):  # noqa: N818 - nothing went wrong
    """The reply to this call comes with a batch."""

    default_code = "pending"


class BatchFailedError(RunError):
    """The provider ended a batch as a whole, with no reply to any of it."""


@dataclass(frozen=True)
class Item:
    """One request of a batch: the path and the JSON body that a direct call would send."""

    key: str
    path: str
    body: Mapping[str, Any]
    headers: tuple[tuple[str, str], ...] = ()  # beta features that the body needs


@dataclass(frozen=True)
class BatchReply:
    """What came of an item: an HTTP status and a JSON body, as a direct call would have got."""

    status: int
    body: Mapping[str, Any]


class BatchClient(HostedClient):
    """A client whose replies come from `replies`, and which collects what has none in `asked`.

    It is used by one thread at a time, which says by `begin` whose calls come.
    """

    def __init__(self, spec: HostedSpec) -> None:
        super().__init__(spec, timeout=60.0, send=self._look_up)
        self.replies: dict[str, BatchReply] = {}
        self.asked: list[Item] = []
        self._task, self._made = "", Counter[str]()

    def begin(self, task: str) -> None:
        """Let the next calls belong to `task`; asked again, they are the same calls."""
        self.asked, self._task, self._made = [], task, Counter()

    def _look_up(self, request: Any) -> HttpReply:
        path = urlsplit(request.url).path
        sent = hashlib.sha256(path.encode() + request.body).hexdigest()
        content = f"{self._task} {self._made[sent]} {sent}"  # a repeat is another call
        key = hashlib.sha256(content.encode()).hexdigest()[:40]
        self._made[sent] += 1
        if key not in self.replies:
            beta = tuple((n, v) for n, v in request.headers if n.lower() == "anthropic-beta")
            self.asked.append(Item(key, path, json.loads(request.body), beta))
            raise PendingReply("the reply comes with a batch")
        reply = self.replies[key]
        return HttpReply(reply.status, json.dumps(reply.body).encode())


def batched(lm: RagbenchLM) -> RagbenchLM:
    """Return `lm`, answered by batches at half price; its `metered.client` is a `BatchClient`.

    DSPy's cache is not asked: the replies are kept by who collects them.

    Raises:
        LMSetupError: its provider has no batch interface that is spoken here.
    """
    engine = lm.metered
    client = lm.metered.client
    if not isinstance(client, HostedClient) or client.spec.provider not in _SERVICES:
        providers = " and ".join(f"{name}/..." for name in _SERVICES)
        raise LMSetupError(
            f"no batch interface is known for {lm.model}; --batch works with {providers}, "
            "leave it out for others"
        )
    made = MeteredEngine(
        BatchClient(client.spec),
        # A batch was reserved as a whole when it was sent.
        Caller(engine.identity, retries=0, reserves=False),
        pricing=engine.pricing.times(BATCH_DISCOUNT),
        capabilities=engine.capabilities,
    )
    copied = lm.copy(engine=made, cache=False)
    assert isinstance(copied, RagbenchLM)
    return copied


def client_of(lm: RagbenchLM) -> BatchClient | None:
    """Return the client of an LM that `batched` made; None for any other."""
    client = lm.metered.client
    if isinstance(client, BatchClient):
        return client
    return None


def most(lm: RagbenchLM, item: Item) -> Amount:
    """What `item` takes at the most: a token for 3 bytes sent, and a reply as long as allowed.

    The cost is infinite where no price is known.
    """
    sent = -(-len(json.dumps(item.body, ensure_ascii=False).encode()) // 3)
    limits = map(item.body.get, ("max_tokens", "max_completion_tokens"))
    got = next((n for n in limits if isinstance(n, int)), UNBOUNDED_REPLY)
    cost = lm.pricing.cost(sent, got)
    return Amount(1, sent + got, math.inf if cost is None else cost)


def took(lm: RagbenchLM, reply: BatchReply) -> Amount:
    """Return what an item took by its reply; what failed is not billed."""
    usage = reply.body.get("usage") or {}
    sent = int(usage.get("prompt_tokens") or usage.get("input_tokens") or 0)
    got = int(usage.get("completion_tokens") or usage.get("output_tokens") or 0)
    return Amount(1, sent + got, lm.pricing.cost(sent, got) or 0.0)


class OpenAIBatches:
    """OpenAI's: a file of requests is uploaded, a batch made of it, and files come back.

    The package tries again by itself, but for what makes a batch. The address is given, so that no
    variable of the environment decides where keys go, and redirects are not followed.
    """

    package = "openai"
    kind = "OpenAI"
    address = "https://api.openai.com/v1"
    #: What the package adds to the address.
    added = ""

    def __init__(self, spec: HostedSpec) -> None:
        with needs_extra(f"a batch of {self.kind}'s"):
            self._package: Any = import_module(self.package)
        http = self._package.DefaultHttpxClient(follow_redirects=False)
        self._client = getattr(self._package, self.kind)(
            api_key=spec.key() or "none",
            base_url=(spec.api_base or self.address).removesuffix(self.added),
            http_client=http,
            max_retries=6,
        )
        self._once = self._client.with_options(max_retries=0)
        self.close = self._client.close

    def submit(self, items: Sequence[Item]) -> str:
        """Return the id of a new batch of `items`, all of one path.

        Raises:
            RunError: the provider refuses it, or does not answer.
        """
        # A batch names a path from /v1 on, whatever stands before it on this server.
        path = "/v1/" + items[0].path.rpartition("/v1/")[2]
        content = "".join(
            json.dumps({"custom_id": i.key, "method": "POST", "url": path, "body": i.body}) + "\n"
            for i in items
        )
        with self.errors():
            named = ("ragbench.jsonl", content.encode())
            file = self._client.files.create(file=named, purpose="batch")
        with self.errors("a batch may have been made all the same, see your account there"):
            batch = self._once.batches.create(
                input_file_id=file.id, endpoint=path, completion_window="24h"
            )
        return str(batch.id)

    def look(self, batch_id: str) -> tuple[int, dict[str, BatchReply] | None]:
        """Return how many of its items are done, and what came of them by key once it has ended.

        An item without a result is left out.

        Raises:
            BatchFailedError: the whole of it failed.
            RunError: the provider does not answer.
        """
        with self.errors():
            batch = self._client.batches.retrieve(batch_id)
            if batch.status == "failed":
                errors = (batch.errors.data if batch.errors else None) or []
                why = "; ".join(e.message or e.code or "" for e in errors[:3]) or "no reason given"
                raise BatchFailedError(f"batch {batch_id} failed as a whole: {why}")
            counts = batch.request_counts
            if batch.status not in ("completed", "expired", "cancelled"):
                return counts.completed + counts.failed if counts else 0, None
            rows = []
            for name in filter(None, (batch.output_file_id, batch.error_file_id)):
                for line in self._client.files.content(name).text.splitlines():
                    if line:
                        rows.append(json.loads(line))
        return len(rows), {row["custom_id"]: _openai_reply(row) for row in rows}

    @contextmanager
    def errors(self, beside: str = "") -> Iterator[None]:
        """Errors of the package as one line each; a bad key is the user's to mend."""
        try:
            yield
        except (self._package.APIError, OSError, ValueError, KeyError) as error:
            status = getattr(error, "status_code", None)
            text = f"{type(error).__name__}: {error}"
            if status:
                text = f"HTTP {status}: {error}"
            if status in (401, 403):
                raise LMSetupError(f"the provider refuses the key ({text[:200]})") from None
            if beside and not (status and 400 <= status < 500 and status != 408):
                text = f"{beside} ({text})"
            why = f"the provider's batches: {text[:400]}; the same command continues"
            raise RunError(why) from None


class AnthropicBatches(OpenAIBatches):
    """Anthropic's message batches."""

    package = "anthropic"
    kind = "Anthropic"
    address = "https://api.anthropic.com"
    added = "/v1"

    def submit(self, items: Sequence[Item]) -> str:
        requests = []
        headers: dict[str, str] = {}
        for item in items:
            params = {name: value for name, value in item.body.items() if name != "stream"}
            requests.append({"custom_id": item.key, "params": params})
            headers.update(item.headers)
        with self.errors("a batch may have been made all the same, see your account there"):
            batch = self._once.messages.batches.create(requests=requests, extra_headers=headers)
        return str(batch.id)

    def look(self, batch_id: str) -> tuple[int, dict[str, BatchReply] | None]:
        with self.errors():
            batch = self._client.messages.batches.retrieve(batch_id)
            counts = batch.request_counts.to_dict()
            if batch.processing_status != "ended":
                return sum(counts.values()) - counts["processing"], None
            results = self._client.messages.batches.results(batch_id)
            rows = [row.to_dict(mode="json") for row in results]
        return len(rows), {str(row["custom_id"]): _anthropic_reply(row["result"]) for row in rows}


_SERVICES = {"openai": OpenAIBatches, "anthropic": AnthropicBatches}


def service_of(spec: HostedSpec) -> OpenAIBatches:
    """Return the batch interface of the provider of `spec`, at its `api_base` if it has one."""
    return _SERVICES[spec.provider](spec)


def _openai_reply(row: dict[str, Any]) -> BatchReply:
    response = row.get("response")
    error = row.get("error") or {}
    if response:
        return BatchReply(int(response["status_code"]), response.get("body") or {})
    failure = f"{error.get('code') or 'no response'}: {error.get('message')}"
    return BatchReply(504, {"error": {"message": failure}})


def _anthropic_reply(result: dict[str, Any]) -> BatchReply:
    kind = result["type"]
    if kind == "succeeded":
        return BatchReply(200, result["message"])
    if kind == "errored":
        cause = (result["error"].get("error") or {}).get("type")
        return BatchReply(400 if cause == "invalid_request_error" else 500, result["error"])
    return BatchReply(504, {"type": "error", "error": {"type": kind, "message": kind}})
