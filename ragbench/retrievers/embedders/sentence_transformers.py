"""Any sentence-transformers model; needs torch, so it is an optional extra."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragbench.errors import ModelError, needs_extra
from ragbench.retrievers.base import Progress
from ragbench.retrievers.embedders.base import Embedded, Embedder, LocalCalls, normalized


class STEmbedder(Embedder):
    """The sentence-transformers model `name`, by the package's own pooling."""

    def __init__(self, name: str) -> None:
        super().__init__(f"st:{name}")
        with needs_extra(f"embedder st:{name}", "take embedder=local"):
            from sentence_transformers import (  # type: ignore[import-not-found, unused-ignore]
                SentenceTransformer,
            )
        try:
            self._model = SentenceTransformer(name)
        except (OSError, ValueError) as error:
            raise ModelError(f"sentence-transformers cannot load {name}: {error}") from None

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> Embedded:
        work = LocalCalls(self.spec)
        vectors = []
        for start in range(0, len(texts), 256):
            batch = list(texts[start : start + 256])
            vectors.append(np.asarray(self._model.encode(batch, show_progress_bar=False)))
            if progress:
                progress(min(start + 256, len(texts)), len(texts))
        tokens = sum(len(ids) for ids in self._model.tokenizer(list(texts))["input_ids"])
        return Embedded(normalized(np.concatenate(vectors)), work.done(tokens))
