"""What engines share: words, vectors or both are searched, and both rankings fused.

Both rankings are fused by reciprocal ranks (Cormack, Clarke and Buettcher, SIGIR 2009), as in
`hybrid`. The engine is given vectors, words and positions; the passages stay with the corpus.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.passages import Corpus
from ragbench.retrievers.base import Hits, Ranking
from ragbench.retrievers.dense import Dense, EmbeddingSettings
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.hybrid import FusionSettings
from ragbench.retrievers.scores import Found, by_rank, fused, whole_ties

#: What one ranking is for: the text of a query, or its vector.
Asked = str | Vectors


class EngineSettings(EmbeddingSettings, FusionSettings):
    """Knobs of every engine."""

    mode: Literal["hybrid", "text", "vector"] = Field(
        "hybrid", description="what is searched: words, vectors, or both"
    )


class Engine(Ranking):
    """Search by words, by vectors or by both; a subclass says what its engine finds (`_find`)."""

    Settings: ClassVar[type[Knobs]] = EngineSettings
    #: Hits beyond which a tie is left as the engine cuts it.
    _deepest: ClassVar[int] = 2**31

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        if self.settings.mode != "text":
            shared = self.settings.model_dump(include={*EmbeddingSettings.model_fields})
            self.parts = (Dense(corpus, index="exact", **shared),)

    @property
    def _dense(self) -> Dense | None:
        return next((inner for inner in self.parts if isinstance(inner, Dense)), None)

    @abstractmethod
    def _find(self, inputs: Sequence[Asked], depth: int) -> list[Found]:
        """Returns at most `depth` passages for each that is asked, in order."""

    def index_settings(self) -> dict[str, Any]:
        settings = {}
        if self._dense is not None:
            settings = self._dense.index_settings()
        return {**settings, "mode": self.settings.mode, "title": self.settings.title}

    def _hits(self, queries: Sequence[str], k: int) -> list[Hits]:
        settings = self.settings
        n = len(self.corpus)
        inputs: list[Asked] = [] if settings.mode == "vector" else list(queries)
        if self._dense is not None:
            inputs += list(self._dense.embed_queries(queries))
        both = settings.mode == "hybrid"
        ranked = whole_ties(
            lambda rows, depth: self._find([inputs[i] for i in rows], depth),
            len(inputs),
            min(n, k * settings.depth) if both else k,
            min(n, self._deepest),
        )
        if not both:
            return ranked
        share = settings.dense_weight
        half = len(queries)
        hits = []
        values = [by_rank(ranking, settings.rrf_k) for ranking in ranked]
        for words, vectors in zip(values[:half], values[half:], strict=True):
            hits.append(fused([(1 - share, words), (share, vectors)], k))
        return hits
