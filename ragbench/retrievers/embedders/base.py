"""Define the embedder interface: unit vectors for texts, and a ledger entry for each call."""

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
    """Model that a retriever calls in addition to an LM: an embedder or a reranker."""

    #: True if the cost is known. Work on this machine is free.
    priced: bool = True
    #: True if the model runs in this process, with its own threads.
    in_process: bool = True
    #: The server, if any.
    service: Service | None = None


class Embedder(Model, ABC):
    """Texts to unit vectors. Thread-safe. A text's vector does not depend on its neighbours."""

    def __init__(self, spec: str) -> None:
        #: Name in messages and in calls.
        self.spec = spec

    @abstractmethod
    def _embed(
        self, texts: Sequence[str], progress: Progress | None
    ) -> tuple[Vectors, Sequence[Call]]:
        """Return unit vectors `(n, d)` of at least one text, and the calls made."""

    @property
    def identity(self) -> str:
        """Identity of the vectors, part of the key of a stored index."""
        return self.spec

    def embed(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Embed `texts` and file the calls in the current ledger.

        Args:
            texts: Any number of texts.
            progress: Called with the number of texts done and the total.

        Returns:
            Unit vectors, shape `(len(texts), d)`.
        """
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors, calls = self._embed(list(map(clean, distinct)), progress)
        for call in calls:
            file_call(call)
        return vectors[[distinct[text] for text in texts]]


def local_call(
    model: str, start: float, tokens: int, kind: Literal["embed", "rerank"] = "embed"
) -> Call:
    """Return a free call that describes work on this machine.

    Args:
        model: Name of the model.
        start: Start of the work, by `time.perf_counter`.
        tokens: Number of tokens read.
        kind: Kind of the call.
    """
    elapsed = time.perf_counter() - start
    return Call(model=model, kind=kind, prompt_tokens=tokens, cost_usd=0.0, latency_s=elapsed)


def by_index(rows: Any, keys: Sequence[str], n: int) -> list[Any]:
    """Read a value from each of `n` rows of a reply, ordered by their `index`.

    Rows without an index, and plain values, keep their order.

    Args:
        rows: The reply's rows.
        keys: Names of the value. The first one present counts.
        n: Expected number of rows.

    Raises:
        ValueError: There are not `n` rows, or the indices are not 0 to `n` - 1, each once.
    """
    if not isinstance(rows, list) or len(rows) != n:
        raise ValueError(f"it has no list of {n} rows")
    values: dict[int, Any] = {}
    for place, row in enumerate(rows):
        index: Any = place
        value = row
        if isinstance(row, dict):
            index = row.get("index", place)
            name = next((name for name in keys if name in row), None)
            if name is None:
                raise ValueError(f"a row has no {keys[0]}")
            value = row[name]
        if type(index) is int:
            values[index] = value
    if set(values) != set(range(n)):
        raise ValueError(f"its indices are not 0 to {n - 1}, each once")
    return [values[index] for index in range(n)]


def clean(text: str) -> str:
    """Remove lone surrogates from `text`. Tokenizers reject them."""
    return text.encode("utf-8", "replace").decode()


def normalized(vectors: npt.NDArray[np.floating]) -> Vectors:
    """Scale rows to unit length. A row of zeros stays zero.

    Rows are first divided by their largest number, because squares of numbers such as 1e200
    overflow.
    """
    wide = vectors.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    wide = wide / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    unit: Vectors = (wide / np.where(norms > 0, norms, 1.0)).astype(np.float32)
    return unit
