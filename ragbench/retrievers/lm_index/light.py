"""Build the index of LightRAG: entities and relations with keywords, each with its own vectors.

Guo et al. 2024 (arXiv:2410.05779). One call per passage extracts entities and relations.
`gleanings` more calls ask for missed ones. The published code makes one. Entities of one name are
merged, and so are relations of one pair of names in either direction. Descriptions are joined up to
`description_words`, without an LM. An end of a relation that is not listed becomes an entity.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from ragbench.retrievers.base import Progress
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.lm_index.base import NONE, LMIndex, LMIndexSettings, best_first
from ragbench.retrievers.lm_index.replies import CUT, IndexLM, map_concurrently, one_line
from ragbench.signatures import ExtractKeyedGraph

#: A strength that no sum of them makes infinite.
_STRONGEST = 1e6


@dataclass(frozen=True)
class Entity:
    """An entity: its name as first written, and the positions of the passages that name it.

    As one passage gives it, it has no positions yet.
    """

    name: str
    type: str
    description: str
    passages: tuple[int, ...] = ()

    @property
    def line(self) -> str:
        return f"{self.name} ({self.type or 'unknown'}): {self.description}"


@dataclass(frozen=True)
class Relation:
    """A relation of two entities, by their positions, and the passages that state it."""

    source: int
    target: int
    description: str
    weight: float
    passages: tuple[int, ...]
    keywords: tuple[str, ...] = ()

    @property
    def ends(self) -> tuple[int, int]:
        return self.source, self.target

    def line(self, entities: Sequence[Entity]) -> str:
        if self.keywords:
            words = f" ({', '.join(self.keywords)})"
        else:
            words = ""
        ends = f"{entities[self.source].name} - {entities[self.target].name}"
        return f"{ends}{words}: {self.description}"


class RelationRow(NamedTuple):
    """A relation as one passage gives it."""

    source: str
    target: str
    description: str
    strength: float
    keywords: tuple[str, ...]


@dataclass
class Extraction:
    """The entities and relations extracted from one passage."""

    entities: list[Entity] = field(default_factory=list)
    relations: list[RelationRow] = field(default_factory=list)

    @property
    def known(self) -> list[str]:
        """The names of the entities so far, then the pairs of related ones.

        Unseen, a relation is listed again by the next call, and its weight would count twice.
        """
        pairs = [f"{row.source} - {row.target}" for row in self.relations]
        return list(dict.fromkeys([*(row.name for row in self.entities), *pairs]))

    def add(self, values: Mapping[str, Any]) -> None:
        for row in values.get("entities") or []:
            if name := one_line(row.get("name")):
                kind = one_line(row.get("type")).lower()
                self.entities.append(Entity(name, kind, one_line(row.get("description"))))
        for row in values.get("relations") or []:
            source = one_line(row.get("source"))
            target = one_line(row.get("target"))
            if source and target and _same(source) != _same(target):
                words = tuple(filter(None, map(one_line, row.get("keywords") or [])))
                described = one_line(row.get("description")), strength(row.get("strength"))
                self.relations.append(RelationRow(source, target, *described, words))


def strength(rating: Any) -> float:
    """Return the strength of a relation, >= 0. 1 if `rating` is not a number."""
    if isinstance(rating, int | float) and math.isfinite(rating):
        return float(min(max(rating, 0.0), _STRONGEST))
    return 1.0


#: Names of entities and relations with the distinct descriptions of each -> one of each.
Describe = Callable[[list[tuple[str, list[str]]]], Iterable[str]]


def merged(
    read: Sequence[Extraction], describe: Describe, *, directed: bool, unlisted: bool
) -> tuple[list[Entity], list[Relation]]:
    """Merge the extractions of passages into a graph, in the order of case-folded names.

    An entity takes the type that most passages give it.

    Args:
        read: Extraction of each passage.
        describe: Function that makes one description of those of each entity, then relation.
        directed: Whether the relations A-B and B-A differ.
        unlisted: Whether an unlisted end of a relation becomes an entity. Otherwise the relation
            is dropped.
    """
    named: dict[str, list[tuple[int, Entity]]] = defaultdict(list)
    related: dict[tuple[str, str], list[tuple[int, RelationRow]]] = defaultdict(list)
    for passage, extraction in enumerate(read):
        for entity in extraction.entities:
            named[_same(entity.name)].append((passage, entity))
        for row in extraction.relations:
            source = _same(row.source)
            target = _same(row.target)
            if directed:
                pair = (source, target)
            else:
                pair = (min(source, target), max(source, target))
            related[pair].append((passage, row))
    if unlisted:
        missing = {name for pair in related for name in pair} - set(named)
    else:
        missing = set()
    for passage, row in chain.from_iterable(related.values()):
        for name in (row.source, row.target):
            if _same(name) in missing:
                named[_same(name)].append((passage, Entity(name, "", row.description)))
    place = {name: position for position, name in enumerate(sorted(named))}
    pairs = [pair for pair in sorted(related) if {*pair} <= {*place}]
    names = {name: named[name][0][1].name for name in place}
    texts = []
    for name in place:
        texts.append((names[name], _distinct(row.description for _, row in named[name])))
    for pair in pairs:
        label = " - ".join(map(names.__getitem__, pair))
        texts.append((label, _distinct(row.description for _, row in related[pair])))
    descriptions = iter(describe(texts))
    entities = []
    for name in place:
        types = Counter(row.type for _, row in named[name] if row.type)
        usual = types.most_common(1)[0][0] if types else ""
        given = names[name], usual, next(descriptions), _passages(named[name])
        entities.append(Entity(*given))
    relations = []
    for source, target in pairs:
        rows = related[source, target]
        words = tuple(_distinct(word for _, row in rows for word in row.keywords))
        weight = sum(row.strength for _, row in rows)
        ends = place[source], place[target]
        relations.append(Relation(*ends, next(descriptions), weight, _passages(rows), words))
    return entities, relations


def degrees(n: int, relations: Iterable[Relation]) -> list[int]:
    """Return the number of entities that each entity is related to.

    Args:
        n: Number of entities.
        relations: Relations between entities.
    """
    pairs = {tuple(sorted(relation.ends)) for relation in relations}
    counts = Counter(end for pair in pairs for end in pair)
    return [counts[entity] for entity in range(n)]


def _passages(rows: Sequence[tuple[int, Any]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(passage for passage, _ in rows))


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(filter(None, texts)))


def _same(name: str) -> str:
    """Return the key that all spellings of a name share."""
    return name.upper()


class GraphSettings(LMIndexSettings):
    """Settings of a graph of entities and relations."""

    entity_types: str = Field(
        "organization, person, place, event", min_length=1, description="index: kinds of entities"
    )
    gleanings: int = Field(0, ge=0, le=5, description="index: additional calls for missed entities")
    description_words: int = Field(500, ge=5, le=5000, description="index: words of a description")


class GraphIndex(LMIndex):
    """Entities with vectors, and relations, read off each passage by the first of `signatures`."""

    arrays: ClassVar[tuple[str, ...]] = ("entity_vectors",)
    values = {"entities": list[Entity], "relations": list[Relation]}  # noqa: RUF012
    lengths = {"entities": "entities", "relations": "relations"}  # noqa: RUF012
    essential = ("relations",)

    entities: Sequence[Entity] = ()
    relations: Sequence[Relation] = ()
    entity_vectors = NONE

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[Extraction]:
        """Extract a graph from each passage.

        `gleanings` more calls ask for missed entities. A truncated reply causes at least one.
        """
        types = []
        for word in self.settings.entity_types.split(","):
            if kind := word.strip():
                types.append(kind)
        [signature, *_] = self.signatures

        def read(text: str) -> Extraction:
            extraction = Extraction()
            for attempt in count():
                reply = lm.ask(signature, text=text, entity_types=types, known=extraction.known)
                extraction.add(reply.values)
                was_cut = attempt == 0 and reply.loss == CUT
                if attempt >= max(self.settings.gleanings, was_cut):
                    break
            return extraction

        return map_concurrently(read, list(map(str, self.corpus)), progress, "graph of passages")


class LightSettings(GraphSettings):
    """Settings of an index of LightRAG."""

    entity_types: str = Field(
        "person, creature, organization, location, event, concept, method, content, data, "
        "artifact, natural object",
        min_length=1,
        description="index: kinds of entities; content is of works such as books and films",
    )
    description_words: int = Field(375, ge=10, le=5000, description="index: words of a description")


class LightIndex(GraphIndex):
    """Entities, relations and passages, each with vectors."""

    name = "light"
    index_version = 3
    Settings = LightSettings
    signatures = (ExtractKeyedGraph,)
    arrays = ("entity_vectors", "relation_vectors")
    relation_vectors = NONE

    @cached_property
    def relations_of(self) -> list[list[int]]:
        """The relations of each entity."""
        positions: list[list[int]] = [[] for _ in self.entities]
        for position, relation in enumerate(self.relations):
            for end in relation.ends:
                positions[end].append(position)
        return positions

    def nearest(self, query: str, vectors: Vectors, *, k: int, least: float) -> list[int]:
        """Return the `k` rows of `vectors` with a cosine of at least `least`, best first.

        Args:
            query: Text of the query. A blank query has no result.
            vectors: Normalized vectors, shape (n, d).
            k: Maximum number of rows.
            least: Smallest cosine.
        """
        if not query.strip():
            return []
        scores = self.cosines(query, vectors)
        chosen = []
        for row in best_first(scores, k):
            if scores[row] >= least:
                chosen.append(row)
        return chosen

    def _join(self, read: list[Extraction], lm: IndexLM, progress: Progress | None) -> None:
        n = self.settings.description_words

        def describe(rows: list[tuple[str, list[str]]]) -> list[str]:
            return [" ".join(" ".join(texts).split()[:n]) for _, texts in rows]

        self.entities, self.relations = merged(read, describe, directed=False, unlisted=True)
        self.entity_vectors = self._embedded([f"{e.name} {e.description}" for e in self.entities])
        # Keywords, both names and the description, in the order of the published code.
        texts = []
        for relation in self.relations:
            ends = [self.entities[end].name for end in relation.ends]
            texts.append(" ".join([", ".join(relation.keywords), *ends, relation.description]))
        self.relation_vectors = self._embedded(texts)
