"""Late interaction: each token of the query takes its best match among the passage's tokens.

The operator is ColBERT's (Khattab and Zaharia 2020, arXiv:2004.12832); the token vectors are those
of an ordinary sentence model, which was not trained for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ragbench.errors import ConfigError
from ragbench.ledger import file_call
from ragbench.retrievers.base import Passage
from ragbench.retrievers.embedders import LocalCalls, LocalEmbedder, Vectors, clean, make_embedder
from ragbench.retrievers.rerankers.base import Reranker, titled


class MaxSim(Reranker):
    """Mean over the query's tokens of the best cosine with a token of the passage."""

    _KEPT = 2_000  # passages of 100 tokens at half precision: about 150 MB

    def __init__(self, name: str = "") -> None:
        embedder = make_embedder(f"local:{name}" if name else "local")
        if not isinstance(embedder, LocalEmbedder):
            raise ConfigError("maxsim needs a local embedder; give maxsim or maxsim:NAME")
        self._embedder = embedder
        self._kept: dict[str, npt.NDArray[np.float16]] = {}
        self._lock = threading.Lock()

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """Scores in [-1, 1]; the token vectors of the last 2,000 passages are kept."""
        work = LocalCalls(f"maxsim:{self._embedder.spec}")
        texts = [clean(titled(passage)) for passage in passages]
        known = {text: self._kept[text] for text in texts if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        asked: Vectors
        asked, *made = self._embedder.token_vectors([clean(query), *missing])
        known |= {text: v.astype(np.float16) for text, v in zip(missing, made, strict=True)}
        self._keep({text: known[text] for text in missing})
        # Tokens of kept passages count too: as if they had been made again.
        tokens = len(asked) + sum(len(known[text]) for text in texts)
        file_call(work.done(tokens, kind="rerank")[0])
        return [_maxsim(asked, known[text]) for text in texts]

    def _keep(self, made: dict[str, npt.NDArray[np.float16]]) -> None:
        with self._lock:
            self._kept |= made
            while len(self._kept) > self._KEPT:
                del self._kept[next(iter(self._kept))]


def _maxsim(query: Vectors, passage: npt.NDArray[np.float16]) -> float:
    if not len(query) or not len(passage):
        return -1.0
    return float((query @ passage.astype(np.float32).T).max(axis=1).mean())
