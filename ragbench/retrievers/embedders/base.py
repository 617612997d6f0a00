"""What every embedder does: unit vectors for texts, and a ledger entry for each call."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ragbench.ledger import file_call
from ragbench.record import Call, total
from ragbench.retrievers.base import Newest, Progress

if TYPE_CHECKING:
    from ragbench.lms.calls import Service

Vectors = npt.NDArray[np.float32]


class Kept(NamedTuple):
    """A vector and this text's share of the call that made it."""

    vector: Vectors
    tokens: int
    cost_usd: float | None
    latency_s: float


class Model:
    """What a retriever asks besides an LM: an embedder or a reranker."""

    #: Whether what it costs is known; work done on this machine costs nothing.
    priced: bool = True
    #: Whether it computes here, by threads of its own, and asks nobody.
    in_process: bool = True
    #: The server that is asked, if one is.
    service: Service | None = None


class Embedder(Model, ABC):
    """Texts to unit vectors. Thread-safe; a text's vector does not depend on its neighbours."""

    _KEPT = 10_000

    def __init__(self, spec: str) -> None:
        #: What names it in messages, and in calls.
        self.spec = self.called = spec
        self._queries: Newest[str, Kept] = Newest(self._KEPT)
        self._lock = threading.Lock()

    @abstractmethod
    def _embed(
        self, texts: Sequence[str], progress: Progress | None
    ) -> tuple[Vectors, Sequence[Call]]:
        """Unit vectors `(n, d)` of at least one text, and the calls that were made."""

    @property
    def identity(self) -> str:
        """What decides the vectors: part of the key under which an index is kept."""
        return self.spec

    def embed(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Unit vectors, shape `(len(texts), d)`; the calls are filed in the current ledger."""
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        vectors, calls = self._embed([clean(text) for text in texts], progress)
        for call in calls:
            file_call(call)
        return vectors

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of queries, shape `(len(texts), d)`; the last 10,000 are kept in memory.

        Kept ones are filed together as one cached call, so that they count as if made again.
        """
        known = {text: self._queries[text] for text in texts if text in self._queries}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if known:
            file_call(self._call(known.values(), cached=True))
        if missing:
            vectors, calls = self._embed([clean(text) for text in missing], None)
            for call in calls:
                file_call(call)
            sums = total(calls)
            took = sums.prompt_tokens, sums.cost_usd, sums.latency_s
            made = dict(zip(missing, divided(missing, vectors, *took), strict=True))
            known |= made
            with self._lock:
                for text, kept in made.items():
                    self._queries[text] = kept
        return np.stack([known[text].vector for text in texts])

    def _call(self, kept: Collection[Kept], *, cached: bool, attempts: int = 1) -> Call:
        """The call of which `kept` are the shares."""
        costs = [share.cost_usd for share in kept if share.cost_usd is not None]
        return Call(
            model=self.called,
            kind="embed",
            prompt_tokens=sum(share.tokens for share in kept),
            cost_usd=sum(costs) if len(costs) == len(kept) else None,
            latency_s=sum(share.latency_s for share in kept),
            attempts=attempts,
            cached=cached,
        )


def divided(
    texts: Sequence[str], vectors: Vectors, tokens: int, cost_usd: float | None, latency_s: float
) -> list[Kept]:
    """What each text took of a call, by its length; the shares add up to the whole."""
    lengths = np.cumsum([len(text) or 1 for text in texts])
    parts = np.diff(lengths * tokens // lengths[-1], prepend=0).tolist()
    shares = [n / tokens if tokens else 1 / len(texts) for n in parts]
    return [
        Kept(vector, n, None if cost_usd is None else cost_usd * share, latency_s * share)
        for vector, n, share in zip(vectors, parts, shares, strict=True)
    ]


def local_call(
    model: str, start: float, tokens: int, kind: Literal["embed", "rerank"] = "embed"
) -> Call:
    """Work on this machine since `start` (`time.perf_counter`) as one call that costs nothing."""
    elapsed = time.perf_counter() - start
    return Call(model=model, kind=kind, prompt_tokens=tokens, cost_usd=0.0, latency_s=elapsed)


def clean(text: str) -> str:
    """`text` without lone surrogates, which no tokeniser takes."""
    return text.encode("utf-8", "replace").decode()


def normalized(vectors: npt.NDArray[np.floating]) -> Vectors:
    """Rows of unit length; a row of zeros stays one."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
    return unit
