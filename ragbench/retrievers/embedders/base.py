"""What every embedder does: unit vectors for texts, and a ledger entry for each call."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ragbench.ledger import file_call
from ragbench.record import Call
from ragbench.retrievers.base import Progress

if TYPE_CHECKING:
    from ragbench.lms.calls import Service

Vectors = npt.NDArray[np.float32]


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

    def __init__(self, spec: str) -> None:
        #: What names it in messages, and in calls.
        self.spec = spec

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
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors, calls = self._embed([clean(text) for text in distinct], progress)
        for call in calls:
            file_call(call)
        return vectors[[distinct[text] for text in texts]]


def local_call(
    model: str, start: float, tokens: int, kind: Literal["embed", "rerank"] = "embed"
) -> Call:
    """Work on this machine since `start` (`time.perf_counter`) as one call that costs nothing."""
    elapsed = time.perf_counter() - start
    return Call(model=model, kind=kind, prompt_tokens=tokens, cost_usd=0.0, latency_s=elapsed)


def by_index(rows: Any, field: str, n: int) -> list[Any]:
    """The `field` of each of `n` rows of a server's reply, in the order of their `index`."""
    told = {row["index"]: row[field] for row in rows}
    if len(rows) != n or any(type(i) is not int for i in told) or set(told) != set(range(n)):
        raise ValueError(f"its indices are not 0 to {n - 1}, each once")
    return [told[i] for i in range(n)]


def clean(text: str) -> str:
    """`text` without lone surrogates, which no tokeniser takes."""
    return text.encode("utf-8", "replace").decode()


def normalized(vectors: npt.NDArray[np.floating]) -> Vectors:
    """Rows of unit length; a row of zeros stays one."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
    return unit
