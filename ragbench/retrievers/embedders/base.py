"""What every embedder does: unit vectors for texts, and a ledger entry for each call."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from ragbench.ledger import file_call
from ragbench.record import Call, total
from ragbench.retrievers.base import Newest, Progress

if TYPE_CHECKING:
    from ragbench.lms.calls import Service

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Embedded:
    """Unit vectors `(n, d)` and what it took to get them, by the calls made."""

    vectors: Vectors
    calls: tuple[Call, ...]


class Embedder(ABC):
    """Texts to unit vectors. Thread-safe; a text's vector does not depend on its neighbours."""

    spec: str
    #: Whether what it costs is known; work done on this machine costs nothing.
    priced: bool = True
    #: Whether it computes here, by threads of its own, and asks nobody.
    in_process: bool = True
    #: The server that is asked, if one is.
    service: Service | None = None
    _KEPT = 10_000

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._queries: Newest[str, tuple[Vectors, Call]] = Newest(self._KEPT)
        self._lock = threading.Lock()

    @abstractmethod
    def _embed(self, texts: Sequence[str], progress: Progress | None) -> Embedded:
        """Vectors of at least one text, with the calls that were made."""

    @property
    def identity(self) -> str:
        """What decides the vectors: part of the key under which an index is kept."""
        return self.spec

    def embed(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Unit vectors, shape `(len(texts), d)`; the calls are filed in the current ledger."""
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        return self._filed(self._embed([clean(text) for text in texts], progress))

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of queries, shape `(len(texts), d)`; the last 10,000 are kept in memory.

        Kept ones are filed together as one cached call, so that they count as if made again.
        """
        known = {text: self._queries[text] for text in texts if text in self._queries}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if known:
            file_call(_summed([call for _, call in known.values()]))
        vectors = {text: vector for text, (vector, _) in known.items()}
        if missing:
            embedded = self._embed([clean(text) for text in missing], None)
            vectors |= dict(zip(missing, self._filed(embedded), strict=True))
            self._keep(missing, embedded)
        return np.stack([vectors[text] for text in texts])

    def _keep(self, texts: Sequence[str], embedded: Embedded) -> None:
        whole = replace(_summed(embedded.calls), cached=True)
        tokens = shares(whole.prompt_tokens, texts)
        with self._lock:
            for text, vector, n in zip(texts, embedded.vectors, tokens, strict=True):
                part = n / whole.prompt_tokens if whole.prompt_tokens else 1 / len(texts)
                cost = None if whole.cost_usd is None else whole.cost_usd * part
                call = replace(
                    whole, prompt_tokens=n, cost_usd=cost, latency_s=whole.latency_s * part
                )
                self._queries[text] = (vector, call)

    @staticmethod
    def _filed(embedded: Embedded) -> Vectors:
        for call in embedded.calls:
            file_call(call)
        return embedded.vectors


def _summed(calls: Sequence[Call]) -> Call:
    sums = total(calls)
    return replace(
        calls[0],
        prompt_tokens=sums.prompt_tokens,
        cost_usd=sums.cost_usd,
        latency_s=sums.latency_s,
        attempts=1,
    )


def shares(tokens: int, texts: Sequence[str]) -> list[int]:
    """`tokens` divided among `texts` by their length; the shares add up to it."""
    lengths = np.cumsum([len(text) or 1 for text in texts])
    bounds = lengths * tokens // lengths[-1]
    divided: list[int] = np.diff(bounds, prepend=0).tolist()
    return divided


class LocalCalls:
    """Times a piece of local work and describes it as one call that costs nothing."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._start = time.perf_counter()

    def done(self, tokens: int, kind: Literal["embed", "rerank"] = "embed") -> tuple[Call, ...]:
        """The call, of `tokens` tokens, that ends now."""
        elapsed = time.perf_counter() - self._start
        return (
            Call(
                model=self.model, kind=kind, prompt_tokens=tokens, cost_usd=0.0, latency_s=elapsed
            ),
        )


def clean(text: str) -> str:
    """`text` without lone surrogates, which no tokeniser takes."""
    return text.encode("utf-8", "replace").decode()


def normalized(vectors: npt.NDArray[np.floating]) -> Vectors:
    """Rows of unit length; a row of zeros stays one."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
    return unit
