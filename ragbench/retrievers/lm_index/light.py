"""The index of LightRAG: entities and relations with keywords, each found by its own vectors.

Guo et al. 2024 (arXiv:2410.05779). One call per passage reads entities and relations; `gleanings`
more ask for those overlooked, as the published code does once. Entities of one name are one,
relations of one pair of names too, whatever their direction; descriptions are joined, not rewritten
by an LM, up to `description_words`. An end of a relation that nobody listed becomes an entity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import Corpus, Progress
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.lm_index.base import LMIndex, LMIndexSettings
from ragbench.retrievers.lm_index.merging import Entity, Extraction, Relation, extract, merged
from ragbench.retrievers.lm_index.replies import IndexLM
from ragbench.retrievers.lm_index.walks import best_first
from ragbench.signatures import ExtractKeyedGraph


class LightSettings(LMIndexSettings):
    """What decides an index of LightRAG."""

    entity_types: str = Field(
        "person, creature, organization, location, event, concept, method, content, data, "
        "artifact, natural object",
        min_length=1,
        description="index: kinds of entities; content is of works such as books and films",
    )
    gleanings: int = Field(0, ge=0, le=5, description="index: calls for what was overlooked")
    description_words: int = Field(375, ge=10, le=5000, description="index: words of a description")


class LightIndex(LMIndex):
    """Entities, relations and passages, each with vectors."""

    name = "light"
    Settings: ClassVar[type[Knobs]] = LightSettings
    signatures = (ExtractKeyedGraph,)
    arrays = ("entity_vectors", "relation_vectors")
    values: ClassVar[Mapping[str, Any]] = {"entities": list[Entity], "relations": list[Relation]}

    def __init__(self, corpus: Corpus, *, lm: str = "", **settings: Any) -> None:
        super().__init__(corpus, lm=lm, **settings)
        self.entities: list[Entity] = []
        self.relations: list[Relation] = []
        self.entity_vectors: Vectors = np.zeros((0, 1), dtype=np.float32)
        self.relation_vectors: Vectors = np.zeros((0, 1), dtype=np.float32)

    @cached_property
    def relations_of(self) -> list[list[int]]:
        """The relations of each entity."""
        positions: list[list[int]] = [[] for _ in self.entities]
        for position, relation in enumerate(self.relations):
            for end in relation.ends:
                positions[end].append(position)
        return positions

    def nearest(self, query: str, vectors: Vectors, *, k: int, least: float) -> list[int]:
        """The `k` rows of `vectors` of at least that cosine with `query`, best first."""
        if not query.strip():
            return []
        scores = self.cosines(query, vectors)
        return [row for row in best_first(scores, k) if scores[row] >= least]

    def facts(self) -> dict[str, Any]:
        """Size and cost."""
        sizes = {"entities": len(self.entities), "relations": len(self.relations)}
        return {**sizes, **super().facts()}

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[Extraction]:
        return extract(lm, ExtractKeyedGraph, self.corpus, self.settings, progress)

    def _join(self, read: list[Extraction], lm: IndexLM, progress: Progress | None) -> None:
        graph = merged(read, directed=False, unlisted=True)
        words = self.settings.description_words
        said = iter(" ".join(" ".join(texts).split()[:words]) for texts in graph.descriptions)
        self.entities = [replace(entity, description=next(said)) for entity in graph.entities]
        self.relations = [replace(relation, description=next(said)) for relation in graph.relations]
        self.__dict__.pop("relations_of", None)
        self.entity_vectors = self._embedded([f"{e.name} {e.description}" for e in self.entities])
        self.relation_vectors = self._embedded(
            [f"{', '.join(r.keywords)} {r.line(self.entities)}" for r in self.relations]
        )
