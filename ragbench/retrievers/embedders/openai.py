"""Embeddings of OpenAI, or of any server that speaks its protocol, through the openai package.

Requests are batched, retried by the package (which honours Retry-After), held to a number of
requests per minute, priced, and kept on disk by text and model.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from ragbench.errors import LMSetupError
from ragbench.ledger import Call, file_call
from ragbench.lms.limits import Amount, Slip, check_price, reserved
from ragbench.retrievers.base import Progress
from ragbench.retrievers.embedders.base import Embedded, Embedder, normalized, shares
from ragbench.retrievers.embedders.cache import Kept, VectorCache

#: OpenAI takes 2,048 texts, 8,191 tokens each and 300,000 tokens a request; the rest is margin.
_BATCH_TEXTS = 512
_BATCH_CHARACTERS = 400_000
_TEXT_CHARACTERS = 16_000
_RETRIES = 6
#: The key of a server given by `api_base`; OpenAI's own key is never sent there.
KEY_VARIABLE = "RAGBENCH_EMBEDDINGS_API_KEY"
RATE_VARIABLE = "RAGBENCH_EMBEDDINGS_RPM"
_RATE = 3000.0


class OpenAIEmbedder(Embedder):
    """The embedding model `model`, of OpenAI or of the server at `api_base`."""

    remote = True

    def __init__(self, model: str, *, api_base: str = "", cache: VectorCache | None = None) -> None:
        super().__init__(f"openai/{model}")
        import openai

        key = os.environ.get(KEY_VARIABLE, "none") if api_base else os.environ.get("OPENAI_API_KEY")
        if not key:
            raise LMSetupError(
                f"embedder {self.spec} needs a key; set OPENAI_API_KEY, give api_base for another "
                "server, or take embedder=local"
            )
        self.model, self._api_base = model, api_base.rstrip("/")
        base = self._api_base or None
        self._client = openai.OpenAI(api_key=key, base_url=base)
        self._price = _price(model) if not api_base else None
        self.priced = self._price is not None
        self._cache = cache or _default_cache()
        self._gate = _Gate(float(os.environ.get(RATE_VARIABLE) or _RATE))

    @property
    def identity(self) -> str:
        """Model and server, without what a URL may hold of a password."""
        if not self._api_base:
            return self.spec
        url = urlsplit(self._api_base)
        port = f":{url.port}" if url.port else ""
        return f"{self.spec}@{url.hostname}{port}{url.path}"

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> Embedded:
        texts = [text[:_TEXT_CHARACTERS] or " " for text in texts]  # an empty text is refused
        known = self._cache.get(self.identity, texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        calls = []
        if known:
            calls.append(self._summed(list(known.values()), cached=True, attempts=1))
        done = len(texts) - len(missing)
        for batch in _batches(missing):
            bought, attempts = self._buy(batch)
            calls.append(self._summed(bought, cached=False, attempts=attempts))
            entries = dict(zip(batch, bought, strict=True))
            self._cache.put(self.identity, entries)
            known |= entries
            done += len(batch)
            if progress:
                progress(done, len(texts))
        return Embedded(np.stack([known[text].vector for text in texts]), tuple(calls))

    def _buy(self, batch: list[str]) -> tuple[list[Kept], int]:
        """The vectors of one request, each with its share of tokens, cost and time."""
        self._gate.wait()
        check_price(self.spec, known=self.priced)
        estimate = sum(-(-len(text) // 4) for text in batch)
        price = self._price
        asked = Amount(tokens=estimate, cost=math.inf if price is None else estimate * price)
        with reserved(asked, retries=_RETRIES) as slip:
            start = time.perf_counter()
            raw, reply, vectors = self._send(batch, slip)
            latency = (time.perf_counter() - start) / len(batch)
            used = reply.usage.prompt_tokens if reply.usage else 0
            cost = None if price is None else (used or estimate) * price
            slip.take(tokens=used or estimate, cost=cost, calls=1 + raw.retries_taken)
        tokens = shares(used, batch)
        kept = [
            Kept(vector, n, None if price is None else n * price, latency)
            for vector, n in zip(vectors, tokens, strict=True)
        ]
        return kept, 1 + raw.retries_taken

    def _send(self, batch: list[str], slip: Slip) -> tuple[Any, Any, Any]:
        import openai

        start = time.perf_counter()
        client = self._client.with_options(max_retries=slip.retries)
        try:
            raw = client.embeddings.with_raw_response.create(
                model=self.model, input=batch, encoding_format="float"
            )
            reply = raw.parse()
            return raw, reply, _checked(reply, len(batch))
        except openai.APIError as error:
            attempts = _attempts(error, slip.retries)
            slip.take(tokens=0, cost=0.0, calls=attempts)
            file_call(
                Call(
                    model=self.identity,
                    kind="embed",
                    latency_s=time.perf_counter() - start,
                    attempts=attempts,
                    error=type(error).__name__,
                )
            )
            raise self._explained(error) from None

    def _summed(self, kept: Sequence[Kept], *, cached: bool, attempts: int) -> Call:
        costs = [entry.cost_usd for entry in kept if entry.cost_usd is not None]
        return Call(
            model=self.identity,
            kind="embed",
            prompt_tokens=sum(entry.tokens for entry in kept),
            cost_usd=sum(costs) if len(costs) == len(kept) else None,
            latency_s=sum(entry.latency_s for entry in kept),
            attempts=attempts,
            cached=cached,
        )

    def _explained(self, error: Any) -> Exception:
        """A user error for what only the user can mend; else the error itself."""
        import openai

        where = self._api_base or "OpenAI"
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return LMSetupError(f"{where} refused the key for {self.model}; check {KEY_VARIABLE}")
        if isinstance(error, openai.NotFoundError):
            return LMSetupError(f"{where} has no embedding model {self.model!r}")
        if isinstance(error, openai.APIConnectionError):
            return LMSetupError(f"{where} cannot be reached for embeddings; is it running?")
        return error  # type: ignore[no-any-return]


class _Gate:
    """Lets through at most so many requests a minute."""

    def __init__(self, per_minute: float) -> None:
        self._interval = 60 / per_minute if per_minute > 0 else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + self._interval
        time.sleep(start - now)


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == _BATCH_TEXTS or size + len(text) > _BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _checked(reply: Any, n: int) -> Any:
    rows = sorted(reply.data, key=lambda row: row.index)
    if len(rows) != n:
        raise LMSetupError(f"the embeddings server gave {len(rows)} vectors for {n} texts")
    return normalized(np.array([row.embedding for row in rows], dtype=np.float32))


def _attempts(error: Any, retries: int) -> int:
    retried = getattr(error, "status_code", 500) in {408, 409, 429} or not hasattr(
        error, "status_code"
    )
    return 1 + retries if retried or error.status_code >= 500 else 1


def _price(model: str) -> float | None:
    """US dollars per token by the price map that DSPy ships, or None."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    from dspy.clients.model_metadata import model_info, rate

    price = rate(model_info("openai", model), "input_cost_per_token")
    return None if price is None else float(price)


def _default_cache() -> VectorCache:
    from ragbench.lms.store import cache_root

    return VectorCache(cache_root() / "embeddings.sqlite")
