"""An LM whose calls are collected, and answered later by the batches of OpenAI or Anthropic.

The request is built, and the reply read, by the same code as a direct call: only what would carry
it over the network is another. A call whose reply is known gets it; any other is kept with the
exact body that would have been sent, and fails with `PendingReply`. A provider takes a list of
requests, works on it for up to a day, bills half the price, and gives one result each, in any
order. A request to start a batch whose reply was lost may have started it: it is never sent again
blindly, but looked for among the batches that the provider lists (`find`).
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ragbench.context import current, use
from ragbench.errors import LMSetupError, needs_extra
from ragbench.lms.calls import UNBOUNDED_REPLY, Amount, CallRefusedError, HostedClient, Retries
from ragbench.lms.calls.http import HttpReply
from ragbench.lms.lm import MeteredEngine, RagbenchLM
from ragbench.lms.specs import HostedSpec

#: What a batch costs, as a part of the price of direct calls.
BATCH_DISCOUNT = 0.5
#: Both take more: 50,000 requests and 200 MB (OpenAI), 100,000 and 256 MB (Anthropic).
MOST_ITEMS = 10_000
MOST_BYTES = 90_000_000
#: Where OpenAI keeps our name for a batch, and so how a lost one is found again.
MARK = "ragbench"
_CLOCK_SKEW_S = 300
_LISTED = 500  # batches looked through for a lost one
_STATUS = {"invalid_request_error": 400, "authentication_error": 401, "permission_error": 403,
           "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429,
           "timeout_error": 504, "overloaded_error": 529}  # fmt: skip


class PendingReply(CallRefusedError):  # noqa: N818 - nothing went wrong
    """The reply to this call comes with a batch."""

    default_code = "pending"


class UnsureError(Exception):
    """The provider could not be reached, or failed: what was asked may have been done."""


class RefusedError(Exception):
    """The provider said no, and did nothing."""


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

    @property
    def again(self) -> bool:
        """Whether the item may succeed in another batch: it expired, or the provider was busy."""
        return self.status in (408, 409, 429) or self.status >= 500


@dataclass(frozen=True)
class BatchState:
    """How far a batch is; `refused` is why the whole of it failed, if it did."""

    ended: bool
    done: int
    refused: str = ""


@dataclass(frozen=True)
class _Task:
    """The task that is asked, and how often it made each request; a repeat is another call."""

    key: str
    made: Counter[str] = field(default_factory=Counter)


class BatchClient(HostedClient):
    """A client whose replies come from `replies`, and which collects what has none in `asked`."""

    def __init__(self, spec: HostedSpec) -> None:
        super().__init__(spec, timeout=60.0, send=self._look_up)
        self.replies: dict[str, BatchReply] = {}
        self.asked: dict[str, Item] = {}

    @contextmanager
    def task(self, key: str) -> Iterator[None]:
        """Calls inside the block belong to the task `key`; asked again, they are the same calls."""
        with use(current().plus(_Task(key))):
            yield

    def _look_up(self, request: Any) -> HttpReply:
        task = current().get(_Task)
        assert task is not None
        path = urlsplit(request.url).path
        sent = hashlib.sha256(path.encode() + request.body).hexdigest()
        key = hashlib.sha256(f"{task.key} {task.made[sent]} {sent}".encode()).hexdigest()[:40]
        task.made[sent] += 1
        reply = self.replies.get(key)
        if reply is None:
            beta = tuple((n, v) for n, v in request.headers if n.lower() == "anthropic-beta")
            self.asked[key] = Item(key, path, json.loads(request.body), beta)
            raise PendingReply("the reply comes with a batch")
        # A tier of the service has a price of its own, which is not that of batches.
        body = {name: value for name, value in reply.body.items() if name != "service_tier"}
        return HttpReply(reply.status, json.dumps(body).encode())


def batched(lm: RagbenchLM) -> RagbenchLM:
    """`lm`, answered by batches at half price; its `metered.client` is a `BatchClient`.

    DSPy's cache is not asked: the replies are kept by who collects them.

    Raises:
        LMSetupError: its provider has no batch interface that is spoken here.
    """
    engine, client = lm.metered, lm.metered.client
    if not isinstance(client, HostedClient) or client.spec.provider not in _SERVICES:
        known = " and ".join(f"{name}/..." for name in _SERVICES)
        raise LMSetupError(
            f"no batch interface is known for {lm.model}; --batch works with {known}, "
            "leave it out for others"
        )
    made = MeteredEngine(
        BatchClient(client.spec),
        engine.identity,
        pricing=engine.pricing.times(BATCH_DISCOUNT),
        capabilities=engine.capabilities,
        retries=Retries(limit=0),
        reserves=False,  # a batch was reserved as a whole when it was sent
    )
    copied = lm.copy(engine=made, cache=False)
    assert isinstance(copied, RagbenchLM)
    return copied


def client_of(lm: RagbenchLM) -> BatchClient | None:
    """The client of an LM that `batched` made; None for any other."""
    client = lm.metered.client
    return client if isinstance(client, BatchClient) else None


def most(lm: RagbenchLM, item: Item) -> Amount:
    """What `item` takes at the most: a token for 3 bytes sent, and a reply as long as allowed.

    The cost is infinite where no price is known.
    """
    sent = -(-len(json.dumps(item.body, ensure_ascii=False).encode()) // 3)
    limits = (item.body.get(name) for name in ("max_tokens", "max_completion_tokens"))
    got = next((n for n in limits if isinstance(n, int)), UNBOUNDED_REPLY)
    cost = lm.pricing.cost(sent, got)
    return Amount(1, sent + got, math.inf if cost is None else cost)


def took(lm: RagbenchLM, reply: BatchReply) -> Amount:
    """What an item took by its reply; what failed is not billed."""
    usage = reply.body.get("usage") or {}
    sent = int(usage.get("prompt_tokens") or usage.get("input_tokens") or 0)
    got = int(usage.get("completion_tokens") or usage.get("output_tokens") or 0)
    return Amount(1, sent + got, lm.pricing.cost(sent, got) or 0.0)


class BatchService(ABC):
    """The batches of one provider, through its own package.

    The address is given, so that no variable of the environment decides where keys go; for the same
    reason, redirects are not followed. Each method raises `UnsureError` and `RefusedError`.
    """

    def __init__(self, package: Any, kind: Any, spec: HostedSpec, address: str) -> None:
        self._package = package
        self._client = kind(
            api_key=spec.key() or "none",
            base_url=address,
            http_client=package.DefaultHttpxClient(follow_redirects=False),
        )
        self._once = self._client.with_options(max_retries=0)

    @abstractmethod
    def submit(self, name: str, items: Sequence[Item]) -> str:
        """The id of a new batch of `items`, all of one path."""

    @abstractmethod
    def find(self, name: str, n: int, since_s: float, known: set[str]) -> str | None:
        """The id of a batch called `name`, or of one that may be it, not in `known`; or None.

        It has `n` items and was made at `since_s` (seconds since 1970) or later.
        """

    @abstractmethod
    def state(self, batch_id: str) -> BatchState:
        """How far it is."""

    @abstractmethod
    def results(self, batch_id: str) -> dict[str, BatchReply]:
        """What came of its items by key; one without a result is left out."""

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of the package as those of this module; a bad key is the user's to mend."""
        try:
            yield
        except self._package.APIStatusError as error:
            text, status = f"HTTP {error.status_code}: {error.message}", error.status_code
            if status in (401, 403):
                raise LMSetupError(f"the provider refuses the key ({text[:200]})") from None
            kind = UnsureError if status >= 500 or status == 408 else RefusedError
            raise kind(text[:300]) from None
        except (self._package.APIError, OSError, ValueError, KeyError) as error:
            raise UnsureError(f"{type(error).__name__}: {error}"[:300]) from None


class OpenAIBatches(BatchService):
    """OpenAI's: a file of requests is uploaded, a batch made of it, and files come back."""

    def __init__(self, spec: HostedSpec) -> None:
        import openai

        address = spec.api_base or "https://api.openai.com/v1"
        super().__init__(openai, openai.OpenAI, spec, address)

    def submit(self, name: str, items: Sequence[Item]) -> str:
        """The id of a new batch, under its name."""
        # A batch names a path from /v1 on, whatever stands before it on this server.
        path = "/v1/" + items[0].path.rpartition("/v1/")[2]
        lines = (
            {"custom_id": item.key, "method": "POST", "url": path, "body": item.body}
            for item in items
        )
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        with self._errors():
            file = self._client.files.create(file=(f"{name}.jsonl", content), purpose="batch")
            made = self._once.batches.create(
                input_file_id=file.id, endpoint=path, completion_window="24h",
                metadata={MARK: name},
            )  # fmt: skip
        return str(made.id)

    def find(self, name: str, n: int, since_s: float, known: set[str]) -> str | None:
        """The batch of that name, which OpenAI keeps."""
        with self._errors():
            for number, batch in enumerate(self._client.batches.list(limit=100)):
                if (batch.metadata or {}).get(MARK) == name and batch.id not in known:
                    return str(batch.id)
                if number >= _LISTED or batch.created_at < since_s - _CLOCK_SKEW_S:
                    break
        return None

    def state(self, batch_id: str) -> BatchState:
        """How far it is."""
        with self._errors():
            batch = self._client.batches.retrieve(batch_id)
        counts, refused = batch.request_counts, ""
        if batch.status == "failed":
            errors = (batch.errors.data if batch.errors else None) or []
            refused = "; ".join(e.message or e.code or "" for e in errors[:3]) or "no reason given"
        ended = batch.status in ("completed", "failed", "expired", "cancelled")
        return BatchState(ended, counts.completed + counts.failed if counts else 0, refused)

    def results(self, batch_id: str) -> dict[str, BatchReply]:
        """What its file of outputs and its file of errors hold."""
        with self._errors():
            batch = self._client.batches.retrieve(batch_id)
            files = [name for name in (batch.output_file_id, batch.error_file_id) if name]
            texts = [self._client.files.content(name).text for name in files]
            rows = [json.loads(line) for text in texts for line in text.splitlines() if line]
        return {row["custom_id"]: _openai_reply(row) for row in rows}


class AnthropicBatches(BatchService):
    """Anthropic's message batches, of which it keeps no name."""

    def __init__(self, spec: HostedSpec) -> None:
        with needs_extra("a batch of Anthropic's"):
            import anthropic
        address = (spec.api_base or "https://api.anthropic.com").removesuffix("/v1")
        super().__init__(anthropic, anthropic.Anthropic, spec, address)  # which adds it

    def submit(self, name: str, items: Sequence[Item]) -> str:
        """The id of a new batch."""
        requests = [
            {"custom_id": i.key, "params": {k: v for k, v in i.body.items() if k != "stream"}}
            for i in items
        ]
        headers = {name: value for item in items for name, value in item.headers}
        with self._errors():
            made = self._once.messages.batches.create(requests=requests, extra_headers=headers)
        return str(made.id)

    def find(self, name: str, n: int, since_s: float, known: set[str]) -> str | None:
        """A batch of that time and size, so that its results must be looked at."""
        with self._errors():
            for number, batch in enumerate(self._client.messages.batches.list(limit=100)):
                if number >= _LISTED or batch.created_at.timestamp() < since_s - _CLOCK_SKEW_S:
                    break
                if batch.id not in known and sum(batch.request_counts.to_dict().values()) == n:
                    return str(batch.id)
        return None

    def state(self, batch_id: str) -> BatchState:
        """How far it is."""
        with self._errors():
            batch = self._client.messages.batches.retrieve(batch_id)
        counts = batch.request_counts.to_dict()
        done = sum(counts.values()) - counts["processing"]
        return BatchState(batch.processing_status == "ended", done)

    def results(self, batch_id: str) -> dict[str, BatchReply]:
        """What came of its items."""
        with self._errors():
            found = self._client.messages.batches.results(batch_id)
            rows = [row.to_dict(mode="json") for row in found]
        return {str(row["custom_id"]): _anthropic_reply(row["result"]) for row in rows}


_SERVICES: dict[str, type[OpenAIBatches] | type[AnthropicBatches]] = {
    "openai": OpenAIBatches,
    "anthropic": AnthropicBatches,
}


def service_of(spec: HostedSpec) -> BatchService:
    """The batch interface of the provider of `spec`, at its `api_base` if it has one."""
    return _SERVICES[spec.provider](spec)


def _openai_reply(row: dict[str, Any]) -> BatchReply:
    response, error = row.get("response"), row.get("error")
    if response:
        return BatchReply(int(response["status_code"]), response.get("body") or {})
    code = (error or {}).get("code") or "no response"
    # An item of a cancelled batch is not tried again by itself: a person cancelled it.
    status = 400 if code == "batch_cancelled" else 504
    return BatchReply(status, {"error": {"message": f"{code}: {(error or {}).get('message')}"}})


def _anthropic_reply(result: dict[str, Any]) -> BatchReply:
    kind = result["type"]
    if kind == "succeeded":
        return BatchReply(200, result["message"])
    if kind == "errored":
        body = result["error"]
        return BatchReply(_STATUS.get((body.get("error") or {}).get("type", ""), 500), body)
    status, message = (400, "the batch was cancelled") if kind == "canceled" else (504, kind)
    return BatchReply(status, {"type": "error", "error": {"type": kind, "message": message}})
