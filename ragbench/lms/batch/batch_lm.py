"""An LM whose calls are collected instead of sent, to be answered later by a provider's batches.

The request is built, and the reply read, by the same code as a direct call: only what would carry
it over the network is another. A call whose reply is known gets it; any other is kept with the
exact body that would have been sent, and fails with `PendingReply`. The provider bills a batch at
half its price, and so does the LM.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from ragbench.context import current, use
from ragbench.errors import LMSetupError
from ragbench.lms.calls import (
    UNBOUNDED_REPLY,
    Amount,
    CallRefusedError,
    HostedClient,
    MeteredEngine,
    Retries,
)
from ragbench.lms.calls.http import HttpReply, Transport
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.prices import Pricing, priced
from ragbench.lms.specs import HostedSpec

#: Providers with a batch interface that is spoken here.
BATCH_PROVIDERS = ("openai", "anthropic")
#: What a batch costs, as a part of the price of direct calls.
BATCH_DISCOUNT = 0.5


class PendingReply(CallRefusedError):  # noqa: N818 - nothing went wrong
    """The reply to this call comes with a batch."""

    default_code = "pending"


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
class HalfPrice:
    """`pricing` at a batch's part of it."""

    pricing: Pricing

    @property
    def known(self) -> bool:
        """Whether calls have a price at all."""
        return self.pricing.known

    def cost(self, request: Any, response: Any) -> float | None:
        """US dollars for one answered request, or None."""
        data = {k: v for k, v in (response.provider_data or {}).items() if k != "service_tier"}
        usd = self.pricing.cost(request, replace(response, provider_data=data or None))
        return None if usd is None else BATCH_DISCOUNT * usd


class BatchClient(HostedClient):
    """A client whose replies come from `replies`, and which collects what has none in `asked`."""

    def __init__(self, spec: HostedSpec) -> None:
        super().__init__(spec, timeout=60.0, transport=_Transport(self))
        self.replies: dict[str, BatchReply] = {}
        self.asked: dict[str, Item] = {}

    @contextmanager
    def task(self, key: str) -> Iterator[None]:
        """Calls inside the block belong to the task `key`; asked again, they are the same calls."""
        with use(current().plus(_Task(key))):
            yield


@dataclass(frozen=True)
class _Task:
    """The task that is asked, and how often it made each request; a repeat is another call."""

    key: str
    made: Counter[str] = field(default_factory=Counter)


class _Transport(Transport):
    """What stands in the place of the network; see the module."""

    def __init__(self, client: BatchClient) -> None:
        super().__init__()
        self._client = client

    def send(self, request: Any) -> HttpReply:
        """The reply that is known; else the request is collected.

        Raises:
            PendingReply: it was.
        """
        task = current().get(_Task)
        assert task is not None
        path = urlsplit(request.url).path
        sent = hashlib.sha256(path.encode() + request.body).hexdigest()
        key = hashlib.sha256(f"{task.key} {task.made[sent]} {sent}".encode()).hexdigest()[:40]
        task.made[sent] += 1
        reply = self._client.replies.get(key)
        if reply is None:
            beta = tuple((n, v) for n, v in request.headers if n.lower() == "anthropic-beta")
            self._client.asked[key] = Item(key, path, json.loads(request.body), beta)
            raise PendingReply("the reply comes with a batch")
        return HttpReply(reply.status, json.dumps(reply.body).encode())


def batched(lm: RagbenchLM) -> RagbenchLM:
    """`lm`, answered by batches at half price; its `metered.client` is a `BatchClient`.

    DSPy's cache is not asked: the replies are kept by who collects them.

    Raises:
        LMSetupError: its provider has no batch interface that is spoken here.
    """
    engine, client = lm.metered, lm.metered.client
    if not isinstance(client, HostedClient) or client.spec.provider not in BATCH_PROVIDERS:
        known = " and ".join(f"{name}/..." for name in BATCH_PROVIDERS)
        raise LMSetupError(
            f"no batch interface is known for {lm.model}; --batch works with {known}, "
            "leave it out for others"
        )
    made = MeteredEngine(
        BatchClient(client.spec),
        engine.identity,
        pricing=HalfPrice(engine.pricing),
        capabilities=engine.capabilities,
        retries=Retries(limit=0, timeouts=0),
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
    cost = priced(lm.pricing, None, sent, got)
    return Amount(1, sent + got, math.inf if cost is None else cost)


def took(lm: RagbenchLM, reply: BatchReply) -> Amount:
    """What an item took by its reply; what failed is not billed."""
    usage = reply.body.get("usage") or {}
    sent = int(usage.get("prompt_tokens") or usage.get("input_tokens") or 0)
    got = int(usage.get("completion_tokens") or usage.get("output_tokens") or 0)
    return Amount(1, sent + got, priced(lm.pricing, None, sent, got) or 0.0)
