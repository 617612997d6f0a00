"""Build the index of GraphRAG: a knowledge graph, its communities, and a report on each.

Edge et al. 2024 (arXiv:2404.16130). One call per passage extracts entities and relations.
`gleanings` more calls ask for missed ones. The published code makes one. Entities of one name are
merged. Weights of relations are added. A relation of an entity without a description is dropped.
Descriptions that fit in `description_words` are joined. The LM summarizes only longer ones. The
published code summarizes any two. One call per community writes its report.
"""

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from ragbench.errors import needs_extra
from ragbench.retrievers.base import Progress
from ragbench.retrievers.lm_index import light
from ragbench.retrievers.lm_index.base import best_first
from ragbench.retrievers.lm_index.replies import IndexLM, map_concurrently, one_line, summarize
from ragbench.signatures import ExtractGraph, ReportCommunity, Summarize
from ragbench.text_normalization import estimate_tokens

Item = TypeVar("Item")


@dataclass(frozen=True)
class Report:
    """Report on a community by the LM. `rating` is its importance, 0 to 10."""

    level: int
    members: tuple[int, ...]
    title: str
    text: str
    rating: float


def chosen_reports(
    entities: Sequence[int], reports: Sequence[Report], *, level: int, tokens: int
) -> list[int]:
    """Select reports on the communities with the most of `entities`, then by rating.

    Args:
        entities: Selected entities.
        reports: All reports.
        level: Lowest level of communities to use. A report counts only if its community is the
            lowest one of some entity.
        tokens: Budget. The first report that does not fit ends the list.

    Returns:
        Positions of reports, best first.
    """
    candidates = [i for i, report in enumerate(reports) if report.level <= level]
    lowest = {member: i for i in candidates for member in reports[i].members}
    selected = set(entities)
    matches = {i: len(selected & set(reports[i].members)) for i in set(lowest.values())}
    best = sorted(matches, key=lambda i: (-matches[i], -reports[i].rating, i))
    texts = {i: f"{reports[i].title} | {reports[i].text}" for i in best if matches[i]}
    return fitting(list(texts), tokens, size=lambda i: estimate_tokens(texts[i]))


def tables(
    chosen: Sequence[int],
    entities: Sequence[light.Entity],
    relations: Sequence[light.Relation],
    *,
    tokens: int,
    per_entity: int,
) -> tuple[list[str], list[str]]:
    """Write the table of the chosen entities and the table of their relations.

    The relations are those of the first entities, as many entities as fit `tokens`. Relations
    between them come first. Then come relations to other entities, first those whose other end is
    related to most of the chosen ones. Ties: more relations at both ends first.

    Args:
        chosen: Positions of the entities.
        entities: All entities.
        relations: All relations.
        tokens: Budget of both tables.
        per_entity: Maximum number of outward relations per entity.
    """
    lines = fitting([entities[i].line for i in chosen], tokens)
    room = tokens - sum(map(estimate_tokens, lines))
    degree = light.degrees(len(entities), relations)
    around: list[str] = []
    for n in range(1, len(chosen) + 1):
        selected = set(chosen[:n])
        touching = [relation for relation in relations if selected & {*relation.ends}]
        far: defaultdict[int, set[int]] = defaultdict(set)  # end outside: the selected at it
        for relation in touching:
            for end in {*relation.ends} - selected:
                far[end] |= selected & {*relation.ends}
        ranks = []
        for relation in touching:
            outside = [len(far[end]) for end in relation.ends if end in far]
            related = sum(degree[end] for end in relation.ends)
            ranks.append((-max(outside, default=len(chosen) + 1), -related))
        ranked = []
        for i in sorted(range(len(touching)), key=ranks.__getitem__):
            ranked.append(touching[i])
        inside = sum(selected >= {*relation.ends} for relation in touching)
        rows = [relation.line(entities) for relation in ranked[: inside + per_entity * n]]
        if sum(map(estimate_tokens, rows)) > room:
            break
        around = rows
    return lines, around


def chosen_passages(
    chosen: Sequence[int],
    entities: Sequence[light.Entity],
    relations: Sequence[light.Relation],
    sizes: Sequence[int],
    *,
    tokens: int,
) -> list[int]:
    """Select the passages that name `chosen`, by entity, then by the number of stated relations.

    Args:
        chosen: Positions of the entities, best first.
        entities: All entities.
        relations: All relations.
        sizes: Tokens of each passage.
        tokens: Budget. The first passage that does not fit ends the list.
    """
    ranked: dict[int, None] = {}
    for entity in chosen:
        touching = []
        for relation in relations:
            if entity in relation.ends:
                touching.append(relation)
        stated = Counter(passage for relation in touching for passage in relation.passages)
        new = [passage for passage in entities[entity].passages if passage not in ranked]
        ranked |= dict.fromkeys(sorted(new, key=lambda passage: (-stated[passage], passage)))
    return fitting(list(ranked), tokens, size=lambda passage: sizes[passage])


def fitting(
    items: Iterable[Item], tokens: int, *, size: Callable[[Any], int] = estimate_tokens
) -> list[Item]:
    """Return the first items whose sizes sum to at most `tokens`.

    Args:
        items: Items in order.
        tokens: Maximum sum of the sizes.
        size: Function that returns the size of an item.
    """
    fit: list[Item] = []
    for item in items:
        tokens -= size(item)
        if tokens < 0:
            break
        fit.append(item)
    return fit


#: igraph draws from one source of random numbers for the whole process.
_LOCK = threading.Lock()
_RANDOMNESS, _SEED = 0.001, 0xDEADBEEF  # the published code's
#: Words of a report, tokens that it is made of, and entities of a community that is not divided.
_REPORT_WORDS = 2000
_REPORT_INPUT_TOKENS = 8000
_MAX_COMMUNITY = 10


class Community(NamedTuple):
    """Nodes that belong together. `parent` is the position of the community divided, or -1."""

    level: int
    parent: int
    members: tuple[int, ...]


class KnowledgeGraph(light.GraphIndex):
    """Entities, relations and reports on communities, those of the upper levels first."""

    name = "knowledge"
    Settings = light.GraphSettings
    signatures = (ExtractGraph, Summarize, ReportCommunity)
    values = {**light.GraphIndex.values, "reports": list[Report]}  # noqa: RUF012
    lengths = {**light.GraphIndex.lengths, "communities": "reports"}  # noqa: RUF012
    essential = ("reports",)
    reports: Sequence[Report] = ()

    @cached_property
    def sizes(self) -> list[int]:
        return [estimate_tokens(str(passage)) for passage in self.corpus]

    def nearest(self, query: str, k: int) -> list[int]:
        """Return the `k` entities nearest to `query` by name and description.

        Args:
            query: Text of the query.
            k: Maximum number of entities.
        """
        return best_first(self.cosines(query, self.entity_vectors), k)

    def _join(self, read: list[light.Extraction], lm: IndexLM, progress: Progress | None) -> None:
        def describe(rows: list[tuple[str, list[str]]]) -> list[str]:
            return self._descriptions(rows, lm, progress)

        graph = light.merged(read, describe, directed=True, unlisted=False)
        self.entities, self.relations = graph
        communities = communities_of(
            len(self.entities),
            [relation.ends for relation in self.relations],
            [relation.weight for relation in self.relations],
            max_size=_MAX_COMMUNITY,
        )
        self.reports = self._reports(communities, lm, progress)
        self.entity_vectors = self._embedded([f"{e.name}: {e.description}" for e in self.entities])

    def _descriptions(
        self, rows: list[tuple[str, list[str]]], lm: IndexLM, progress: Progress | None
    ) -> list[str]:
        """Return one description for the name and descriptions of each row."""
        words = self.settings.description_words
        descriptions = [" ".join(texts) for _, texts in rows]

        def summary(place: int) -> str:
            name, texts = rows[place]
            named = [f"{name}: {text}" for text in texts]
            return summarize(lm, named, words, fallback=descriptions[place])

        long = [place for place, text in enumerate(descriptions) if len(text.split()) > words]
        summaries = map_concurrently(summary, long, progress, "descriptions")
        for place, text in zip(long, summaries, strict=True):
            descriptions[place] = text
        return descriptions

    def _reports(
        self, communities: Sequence[Community], lm: IndexLM, progress: Progress | None
    ) -> list[Report]:
        """Return a report on each community, from the lowest level to the highest.

        The prompt lists the community's entities and relations, the best connected first. If these
        do not fit, reports on its parts take half of the budget.
        """
        limit = _REPORT_INPUT_TOKENS
        degree = light.degrees(len(self.entities), self.relations)
        reports_by_community: dict[int, Report] = {}

        def report(i: int) -> Report:
            level, _, nodes = communities[i]
            members = sorted(nodes, key=lambda node: (-degree[node], node))
            inside = [relation for relation in self.relations if {*relation.ends} <= {*members}]
            inside.sort(key=lambda relation: -sum(degree[end] for end in relation.ends))
            entities = [self.entities[node].line for node in members]
            relations = [relation.line(self.entities) for relation in inside]
            sub_reports: list[str] = []
            if sum(map(estimate_tokens, entities + relations)) > limit:
                for j, community in enumerate(communities):
                    if community.parent == i:
                        below = reports_by_community[j]
                        sub_reports.append(f"{below.title}: {below.text}")
                sub_reports = fitting(sub_reports, limit // 2)
            room = limit - sum(map(estimate_tokens, sub_reports))
            entities = fitting(entities, room // 2)
            relations = fitting(relations, room - sum(map(estimate_tokens, entities)))
            reply = lm.ask(
                ReportCommunity,
                entities=entities,
                relations=relations,
                parts=sub_reports,
                max_words=_REPORT_WORDS,
            )
            values = reply.values
            lines = [values.get("summary"), *(values.get("findings") or [])]
            rating = values.get("rating")
            return Report(
                level,
                nodes,
                str(values.get("title") or self.entities[members[0]].name).strip(),
                " ".join(filter(None, map(one_line, lines))),
                float(rating) if isinstance(rating, int | float) else 0.0,
            )

        for level in sorted({community.level for community in communities}, reverse=True):
            wave = [i for i, community in enumerate(communities) if community.level == level]
            reports = map_concurrently(report, wave, progress, "reports on communities")
            reports_by_community |= dict(zip(wave, reports, strict=True))
        return [reports_by_community[i] for i in sorted(reports_by_community)]


def communities_of(
    n: int, edges: Sequence[tuple[int, int]], weights: Sequence[float], *, max_size: int = 10
) -> list[Community]:
    """Detect communities of nodes 0 to n - 1, ordered by level.

    Uses the Leiden algorithm (Traag et al. 2019) with GraphRAG's settings: the largest connected
    component, modularity at resolution 1, and each community larger than `max_size` divided again.
    The implementation is igraph's. GraphRAG uses another one, whose random numbers differ.

    Args:
        n: Number of nodes.
        edges: Pairs of nodes.
        weights: Weight of each edge.
        max_size: Size up to which a community is not divided.
    """
    if not edges:
        return []
    with needs_extra("a graph's communities"):
        import igraph
    graph = igraph.Graph(n=n, edges=list(edges), directed=False)
    graph.es["weight"] = list(weights)
    graph.vs["node"] = list(range(n))
    graph = graph.simplify(combine_edges="sum")
    component = graph.induced_subgraph(max(graph.connected_components(), key=len))
    communities: list[Community] = []
    with _LOCK:
        igraph.set_random_number_generator(random.Random(_SEED))
        try:
            waiting = [(component, _parts(component), 0, -1)]
            for within, groups, level, parent in waiting:  # grows as it goes: level after level
                for group in groups:
                    inner = within.induced_subgraph(group)
                    communities.append(Community(level, parent, tuple(inner.vs["node"])))
                    if len(group) > max_size and len(below := _parts(inner)) > 1:
                        waiting.append((inner, below, level + 1, len(communities) - 1))
        finally:
            igraph.set_random_number_generator(random)
    return communities


def _parts(graph: Any) -> list[list[int]]:
    clusters = graph.community_leiden(
        objective_function="modularity",
        weights="weight",
        resolution=1.0,
        beta=_RANDOMNESS,
        n_iterations=1,
    )
    return sorted(map(list, clusters), key=lambda cluster: (-len(cluster), cluster))
