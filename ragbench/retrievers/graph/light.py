"""The index of LightRAG: entities and relations with keywords, each found by its own vectors.

Guo et al. 2024 (arXiv:2410.05779). One call per passage reads entities and relations, and one more
those overlooked (`gleanings`). Entities of one name are one, relations of one pair of names too,
whatever their direction; descriptions are joined, not rewritten by an LM, up to
`description_words`. An end of a relation that nobody listed becomes an entity of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import dspy
import numpy as np
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import Corpus, Progress
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.graph.base import LMIndex, LMIndexSettings, names_of
from ragbench.retrievers.graph.merging import Draft, clean_name, description_of, strength
from ragbench.retrievers.graph.replies import IndexLM, at_once
from ragbench.retrievers.graph.walks import best_first
from ragbench.signatures import ExtractKeyedGraph


@dataclass
class Entity:
    """An entity: its name, what is said of it, and the positions of the passages that name it."""

    name: str
    type: str = ""
    description: str = ""
    units: list[int] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The entity as a prompt shows it."""
        return f"{self.name} ({self.type or 'unknown'}): {self.description}"


@dataclass
class Relation:
    """A relation of two entities, by their positions, with its keywords and passages."""

    ends: tuple[int, int]
    description: str
    keywords: list[str]
    weight: float
    units: list[int]


class LightSettings(LMIndexSettings):
    """What decides an index of LightRAG."""

    graph: bool = Field(True, description="read entities and relations; else passages alone")
    entity_types: str = Field(
        "organization, person, place, event, category",
        min_length=1,
        description="kinds of entities read",
    )
    gleanings: int = Field(1, ge=0, le=5, description="calls for what was overlooked")
    description_words: int = Field(375, ge=10, le=5000, description="words of a description")


class LightIndex(LMIndex):
    """Entities, relations and passages, each with vectors."""

    name = "light"
    Settings: ClassVar[type[Knobs]] = LightSettings
    arrays = ("entity_vectors", "relation_vectors")
    values = ("entity_rows", "relation_rows")

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.entity_rows: list[dict[str, Any]] = []
        self.relation_rows: list[dict[str, Any]] = []
        self.entity_vectors: Vectors = np.zeros((0, 1), dtype=np.float32)
        self.relation_vectors: Vectors = np.zeros((0, 1), dtype=np.float32)

    @cached_property
    def entities(self) -> list[Entity]:
        """The entities, by name."""
        return [Entity(**row) for row in self.entity_rows]

    @cached_property
    def relations(self) -> list[Relation]:
        """The relations, by the positions of their ends."""
        return [Relation(**{**row, "ends": tuple(row["ends"])}) for row in self.relation_rows]

    @cached_property
    def relations_of(self) -> list[list[int]]:
        """The relations of each entity."""
        positions: list[list[int]] = [[] for _ in self.entities]
        for position, relation in enumerate(self.relations):
            for end in relation.ends:
                positions[end].append(position)
        return positions

    def nearest(self, kind: str, query: str, *, k: int, least: float) -> list[int]:
        """The `k` entities ("entities") or relations ("relations") of at least that cosine."""
        self.build()
        vectors = self.entity_vectors if kind == "entities" else self.relation_vectors
        if not len(vectors) or not query.strip():
            return []
        scores = vectors @ self.embedder.embed_queries([query])[0]
        return [row for row in best_first(scores, k) if scores[row] >= least]

    def relation_line(self, relation: Relation) -> str:
        """A relation as a prompt shows it."""
        one, other = (self.entities[end].name for end in relation.ends)
        return f"{one} - {other} ({', '.join(relation.keywords)}): {relation.description}"

    def facts(self) -> dict[str, Any]:
        """Size and cost."""
        return {
            "entities": len(self.entity_rows),
            "relations": len(self.relation_rows),
            **super().facts(),
        }

    def _asks(self) -> Iterator[tuple[type[dspy.Signature], dict[str, Any]]]:
        types = names_of(self.settings.entity_types)
        for passage in self.corpus if self.settings.graph else ():
            first = {"text": str(passage), "entity_types": types, "known": []}
            yield ExtractKeyedGraph, first
            for _ in range(self.settings.gleanings):  # what is known only the first tells
                yield ExtractKeyedGraph, {**first, "known": ["?"]}

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[list[Mapping[str, Any]]]:
        types = names_of(self.settings.entity_types)

        def read(text: str) -> list[Mapping[str, Any]]:
            replies: list[Mapping[str, Any]] = []
            draft = Draft()
            for _ in range(1 + self.settings.gleanings):
                reply = lm.ask(ExtractKeyedGraph, text=text, entity_types=types, known=draft.known)
                draft.add(reply.values)
                replies.append(reply.values)
            return replies

        texts = [str(passage) for passage in self.corpus] if self.settings.graph else []
        return at_once(read, texts, progress)

    def _join(
        self, read: list[list[Mapping[str, Any]]], lm: IndexLM, progress: Progress | None
    ) -> None:
        entities, relations = joined(read, words=self.settings.description_words)
        self.entity_rows, self.relation_rows = (
            list(map(asdict, entities)),
            list(map(asdict, relations)),
        )
        for name in ("entities", "relations", "relations_of"):
            self.__dict__.pop(name, None)
        self.entity_vectors = self._embedded([f"{t.name} {t.description}" for t in entities])
        self.relation_vectors = self._embedded(
            [" ".join([", ".join(t.keywords), self.relation_line(t)]) for t in self.relations]
        )


def joined(
    read: Sequence[Sequence[Mapping[str, Any]]], *, words: int
) -> tuple[list[Entity], list[Relation]]:
    """The entities and relations of all passages' replies, in the order of names.

    `words` is the length of a description at the most.
    """
    named: dict[str, list[tuple[str, str, int]]] = {}
    related: dict[tuple[str, str], list[tuple[Mapping[str, Any], int]]] = {}
    for unit, replies in enumerate(read):
        for reply in replies:
            for entity in reply.get("entities") or []:
                if name := clean_name(entity.get("name")):
                    said = (clean_name(entity.get("type")).lower(), description_of(entity), unit)
                    named.setdefault(name, []).append(said)
            for relation in reply.get("relations") or []:
                one, other = sorted(clean_name(relation.get(end)) for end in ("source", "target"))
                if one and one != other:
                    related.setdefault((one, other), []).append((relation, unit))
    unlisted = {name for pair in related for name in pair} - set(named)
    for pair, rows in related.items():
        for name in unlisted.intersection(pair):
            said_here = [("", description_of(relation), unit) for relation, unit in rows]
            named.setdefault(name, []).extend(said_here)
    names = sorted(named)
    place = {name: position for position, name in enumerate(names)}
    entities = [_entity(name, named[name], words) for name in names]
    relations = [
        _relation((place[pair[0]], place[pair[1]]), related[pair], words)
        for pair in sorted(related)
    ]
    return entities, relations


def _entity(name: str, said: Sequence[tuple[str, str, int]], words: int) -> Entity:
    types = Counter(kind for kind, _, _ in said if kind)
    kind = types.most_common(1)[0][0] if types else ""
    units = list(dict.fromkeys(unit for _, _, unit in said))
    return Entity(name, kind, _joined_text([text for _, text, _ in said], words), units)


def _relation(
    ends: tuple[int, int], rows: Sequence[tuple[Mapping[str, Any], int]], words: int
) -> Relation:
    keywords = [
        str(word).strip() for relation, _ in rows for word in relation.get("keywords") or []
    ]
    return Relation(
        ends,
        _joined_text([description_of(relation) for relation, _ in rows], words),
        list(dict.fromkeys(filter(None, keywords))),
        sum(strength(relation.get("strength")) for relation, _ in rows),
        list(dict.fromkeys(unit for _, unit in rows)),
    )


def _joined_text(texts: Sequence[str], words: int) -> str:
    return " ".join(" ".join(dict.fromkeys(filter(None, texts))).split()[:words])
