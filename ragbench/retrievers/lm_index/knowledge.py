"""The index of GraphRAG: a knowledge graph, its communities, and a report on each.

Edge et al. 2024 (arXiv:2404.16130). One call per passage reads its entities and relations;
`gleanings` more ask for those overlooked, as the published code does once. Entities of one name are
one; weights of relations are added up; a relation of an entity that nobody described is dropped.
Descriptions that fit together in `description_words` are joined; for each longer one an LM is
asked, where the published code asks for any two. One call per community reports on it.
"""

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from ragbench.errors import needs_extra
from ragbench.knobs import Knobs
from ragbench.retrievers.base import Progress
from ragbench.retrievers.lm_index.base import NONE, LMIndex, LMIndexSettings, best_first
from ragbench.retrievers.lm_index.light import (
    Entity,
    Extraction,
    Merged,
    Relation,
    degrees,
    extract,
    merged,
    one_line,
)
from ragbench.retrievers.lm_index.replies import IndexLM, at_once
from ragbench.signatures import ExtractGraph, ReportCommunity, Summarize
from ragbench.tokens import estimate_tokens

Item = TypeVar("Item")


@dataclass(frozen=True)
class Report:
    """What an LM wrote of a community; `rating` is its importance, 0 to 10."""

    level: int
    members: tuple[int, ...]
    title: str
    text: str
    rating: float


def chosen_reports(
    entities: Sequence[int], reports: Sequence[Report], *, level: int, tokens: int
) -> list[int]:
    """The reports, by position, of the communities with most of `entities`, then by rating.

    Of each entity those of its communities down to `level` count; a report stands in only if its
    community is the lowest of some entity. The first that does not fit `tokens` ends it.
    """
    known = [i for i, report in enumerate(reports) if report.level <= level]
    lowest = {member: i for i in known for member in reports[i].members}
    selected = set(entities)
    matches = {i: len(selected & set(reports[i].members)) for i in set(lowest.values())}
    ranked = sorted(
        (i for i in matches if matches[i]), key=lambda i: (-matches[i], -reports[i].rating, i)
    )
    return fitting(
        ranked, tokens, size=lambda i: estimate_tokens(f"{reports[i].title} | {reports[i].text}")
    )


def tables(
    chosen: Sequence[int],
    entities: Sequence[Entity],
    relations: Sequence[Relation],
    *,
    tokens: int,
    each: int,
) -> tuple[list[str], list[str]]:
    """The lines of the table of the `chosen` entities and of that of their relations.

    Relations are those of the first entities, as many of these as fit `tokens` with the table of
    all; at most `each` per entity lead to others.
    """
    lines = fitting([entities[i].line for i in chosen], tokens)
    left = tokens - sum(map(estimate_tokens, lines))
    degree = degrees(len(entities), relations)
    around: list[str] = []
    for n in range(1, len(chosen) + 1):
        ranked = ranked_relations(chosen[:n], relations, degree, each=each)
        rows = [relations[i].line(entities) for i in ranked]
        if sum(map(estimate_tokens, rows)) > left:
            break
        around = rows
    return lines, around


def ranked_relations(
    chosen: Sequence[int], relations: Sequence[Relation], degree: Sequence[int], *, each: int
) -> list[int]:
    """Relations, by position: all among `chosen`, then those that lead out, the most shared first.

    One that leads out is shared by as many of `chosen` as its far end is related to. Among equals
    the one whose two ends have the larger `degree` comes first. At most `each` per entity lead out.
    """
    selected = set(chosen)
    inside, out = [], []
    far: defaultdict[int, set[int]] = defaultdict(set)  # end outside: those of `chosen` at it
    for i, relation in enumerate(relations):
        ends = set(relation.ends)
        if ends <= selected:
            inside.append(i)
        elif ends & selected:
            out.append(i)
            [other] = ends - selected
            far[other] |= ends & selected

    def rank(i: int) -> int:
        return sum(degree[end] for end in relations[i].ends)

    def shared(i: int) -> int:
        return max(len(far[end]) for end in relations[i].ends if end in far)

    inside.sort(key=lambda i: (-rank(i), i))
    out.sort(key=lambda i: (-shared(i), -rank(i), i))
    return inside + out[: each * len(chosen)]


def chosen_passages(
    chosen: Sequence[int],
    entities: Sequence[Entity],
    relations: Sequence[Relation],
    sizes: Sequence[int],
    *,
    tokens: int,
) -> list[int]:
    """The passages that name `chosen`: in their order, then by how many relations each states.

    `sizes` are the tokens of all passages. The first that does not fit `tokens` ends it.
    """
    ranked: dict[int, None] = {}
    for entity in chosen:
        of = [relation for relation in relations if entity in relation.ends]
        stated = Counter(passage for relation in of for passage in relation.passages)
        new = [passage for passage in entities[entity].passages if passage not in ranked]
        ranked |= dict.fromkeys(sorted(new, key=lambda passage: (-stated[passage], passage)))
    return fitting(list(ranked), tokens, size=lambda passage: sizes[passage])


def fitting(
    items: Iterable[Item], tokens: int, *, size: Callable[[Any], int] = estimate_tokens
) -> list[Item]:
    """The first items, by default texts, whose sizes fit `tokens` together."""
    kept: list[Item] = []
    for item in items:
        tokens -= size(item)
        if tokens < 0:
            break
        kept.append(item)
    return kept


#: igraph draws from one source of random numbers for the whole process.
_LOCK = threading.Lock()
_RANDOMNESS, _SEED = 0.001, 0xDEADBEEF  # the published code's


@dataclass(frozen=True)
class Community:
    """Nodes that belong together; `parent` is the position of the community divided, or -1."""

    level: int
    parent: int
    members: tuple[int, ...]


class KnowledgeSettings(LMIndexSettings):
    """What decides a GraphRAG index."""

    entity_types: str = Field(
        "organization, person, place, event", min_length=1, description="index: kinds of entities"
    )
    gleanings: int = Field(0, ge=0, le=5, description="index: calls for what was overlooked")
    description_words: int = Field(500, ge=5, le=5000, description="index: words of a description")
    report_words: int = Field(2000, ge=20, le=10_000, description="index: words of a report")
    report_input_tokens: int = Field(
        8000, ge=100, le=100_000, description="index: tokens that a report is made of"
    )
    max_community: int = Field(
        10, ge=2, le=1000, description="index: entities of an undivided community"
    )


class KnowledgeGraph(LMIndex):
    """Entities, relations and reports on communities, those of the upper levels first."""

    name = "knowledge"
    Settings: ClassVar[type[Knobs]] = KnowledgeSettings
    signatures = (ExtractGraph, Summarize, ReportCommunity)
    arrays = ("entity_vectors",)
    values: ClassVar[Mapping[str, Any]] = {
        "entities": list[Entity],
        "relations": list[Relation],
        "reports": list[Report],
    }
    lengths: ClassVar[Mapping[str, str]] = {
        "entities": "entities",
        "relations": "relations",
        "communities": "reports",
    }

    entity_vectors = NONE
    entities: Sequence[Entity] = ()
    relations: Sequence[Relation] = ()
    reports: Sequence[Report] = ()

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each passage."""
        return [estimate_tokens(str(passage)) for passage in self.corpus]

    def nearest(self, query: str, k: int) -> list[int]:
        """The `k` entities whose name and description are nearest to `query`, best first."""
        return best_first(self.cosines(query, self.entity_vectors), k)

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[Extraction]:
        return extract(lm, ExtractGraph, self.corpus, self.settings, progress)

    def _join(self, read: list[Extraction], lm: IndexLM, progress: Progress | None) -> None:
        graph = merged(read, directed=True, unlisted=False)
        said = iter(self._descriptions(graph, lm, progress))
        self.entities = [replace(entity, description=next(said)) for entity in graph.entities]
        self.relations = [replace(relation, description=next(said)) for relation in graph.relations]
        communities = communities_of(
            len(self.entities),
            [relation.ends for relation in self.relations],
            [relation.weight for relation in self.relations],
            max_size=self.settings.max_community,
        )
        self.reports = self._reports(communities, lm, progress)
        self.entity_vectors = self._embedded([f"{e.name}: {e.description}" for e in self.entities])

    def _descriptions(self, graph: Merged, lm: IndexLM, progress: Progress | None) -> list[str]:
        """One description of each entity, then of each relation."""
        words = self.settings.description_words
        names = [entity.name for entity in graph.entities]
        names += [" - ".join(names[end] for end in relation.ends) for relation in graph.relations]

        def summary(place: int) -> str:
            texts = [f"{names[place]}: {text}" for text in graph.descriptions[place]]
            reply = lm.ask(Summarize, texts=texts, max_words=words)
            return one_line(reply.values.get("summary"))

        said = [" ".join(texts) for texts in graph.descriptions]
        long = [place for place, text in enumerate(said) if len(text.split()) > words]
        for place, text in zip(long, at_once(summary, long, progress, "descriptions"), strict=True):
            said[place] = text or " ".join(said[place].split()[:words])
        return said

    def _reports(
        self, communities: Sequence[Community], lm: IndexLM, progress: Progress | None
    ) -> list[Report]:
        """A report on each community: those that fit first, then the others with parts of them."""
        limit = self.settings.report_input_tokens
        degree = degrees(len(self.entities), self.relations)
        shown = [self._tables(community, degree) for community in communities]
        fits = [
            sum(estimate_tokens(line) for part in both for line in part) <= limit for both in shown
        ]
        made: dict[int, Report] = {}

        def report(i: int) -> Report:
            below = [] if fits[i] else [j for j, c in enumerate(communities) if c.parent == i]
            parts = fitting([f"{made[j].title}: {made[j].text}" for j in below], limit // 2)
            left = limit - sum(map(estimate_tokens, parts))
            entities = fitting(shown[i][0], left // 2)
            relations = fitting(shown[i][1], left - sum(map(estimate_tokens, entities)))
            reply = lm.ask(
                ReportCommunity,
                entities=entities,
                relations=relations,
                parts=parts,
                max_words=self.settings.report_words,
            )
            first = max(communities[i].members, key=degree.__getitem__)
            return _report(communities[i], self.entities[first].name, reply.values)

        # Levels from the lowest up, but a community that fits needs no other's report.
        waves = [[i for i, fit in enumerate(fits) if fit]]
        deepest = max((community.level for community in communities), default=-1)
        for level in range(deepest, -1, -1):
            waves.append([i for i, c in enumerate(communities) if c.level == level and not fits[i]])
        for wave in waves:
            made |= dict(
                zip(wave, at_once(report, wave, progress, "reports on communities"), strict=True)
            )
        return [made[i] for i in range(len(communities))]

    def _tables(self, community: Community, degree: Sequence[int]) -> tuple[list[str], list[str]]:
        """Lines of a community's entities and of the relations among them, best related first."""
        members = set(community.members)
        inside = [relation for relation in self.relations if set(relation.ends) <= members]
        inside.sort(key=lambda relation: -sum(degree[end] for end in relation.ends))
        ranked = sorted(community.members, key=lambda i: (-degree[i], i))
        return (
            [self.entities[i].line for i in ranked],
            [relation.line(self.entities) for relation in inside],
        )


def _report(community: Community, name: str, values: Mapping[str, Any]) -> Report:
    """The report in a reply; without a title it has the `name` of its best related entity."""
    parts = [values.get("summary"), *(values.get("findings") or [])]
    rating = values.get("rating")
    return Report(
        level=community.level,
        members=community.members,
        title=str(values.get("title") or name).strip(),
        text=" ".join(filter(None, map(one_line, parts))),
        rating=float(rating) if isinstance(rating, int | float) else 0.0,
    )


def communities_of(
    n: int, edges: Sequence[tuple[int, int]], weights: Sequence[float], *, max_size: int = 10
) -> list[Community]:
    """The communities of nodes 0 to n - 1, those of a level after those of the level above.

    By the Leiden algorithm (Traag et al. 2019), as GraphRAG asks for them: of the largest connected
    part, by modularity at resolution 1, each that is larger than `max_size` divided again. The
    algorithm is igraph's; GraphRAG's authors use another implementation, whose random numbers, and
    so whose communities, are its own.

    Raises:
        MissingExtraError: igraph is not installed.
    """
    if not edges:
        return []
    with needs_extra("a graph's communities"):
        import igraph
    graph = igraph.Graph(n=n, edges=list(edges), directed=False)
    graph.es["weight"] = list(weights)
    graph.vs["node"] = list(range(n))
    graph = graph.simplify(combine_edges="sum")
    whole = graph.induced_subgraph(max(graph.connected_components(), key=len))
    communities: list[Community] = []
    with _LOCK:
        igraph.set_random_number_generator(random.Random(_SEED))
        try:
            waiting = [(whole, _parts(whole), 0, -1)]
            for within, parts, level, parent in waiting:  # grows as it goes: level after level
                for part in parts:
                    inner = within.induced_subgraph(part)
                    communities.append(Community(level, parent, tuple(inner.vs["node"])))
                    if len(part) > max_size and len(below := _parts(inner)) > 1:
                        waiting.append((inner, below, level + 1, len(communities) - 1))
        finally:
            igraph.set_random_number_generator(random)
    return communities


def _parts(graph: Any) -> list[list[int]]:
    parts = graph.community_leiden(
        objective_function="modularity",
        weights="weight",
        resolution=1.0,
        beta=_RANDOMNESS,
        n_iterations=1,
    )
    return sorted((list(part) for part in parts), key=lambda part: (-len(part), part))
