"""The index of GraphRAG: a knowledge graph, its communities, and a report on each.

Edge et al. 2024 (arXiv:2404.16130). One call per passage for its entities and relations, and one
more for those overlooked (`gleanings`); one call for each entity or relation that several passages
describe; one per community. Entities of one name and type are one; weights of relations are added
up; a relation of an entity that nobody described is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, ClassVar

import dspy
import numpy as np
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import Corpus, Progress
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.graph.base import LMIndex, LMIndexSettings, names_of
from ragbench.retrievers.graph.communities import Community, Leiden, communities_of, degrees
from ragbench.retrievers.graph.local_search import Link, Node, Report, fitting
from ragbench.retrievers.graph.merging import Draft, merged
from ragbench.retrievers.graph.replies import IndexLM, at_once
from ragbench.retrievers.graph.walks import best_first
from ragbench.signatures import ExtractGraph, ReportCommunity, Summarize
from ragbench.tokens import estimate_tokens


class KnowledgeSettings(LMIndexSettings):
    """What decides a GraphRAG index."""

    entity_types: str = Field(
        "organization, person, place, event", min_length=1, description="kinds of entities read"
    )
    gleanings: int = Field(1, ge=0, le=5, description="calls for what was overlooked")
    description_words: int = Field(375, ge=10, le=5000, description="words of a description")
    report_words: int = Field(1500, ge=20, le=10_000, description="words of a report")
    report_input_tokens: int = Field(8000, ge=100, le=100_000, description="tokens reported on")
    max_community: int = Field(10, ge=2, le=1000, description="entities of an undivided community")
    leiden: Leiden = Field("igraph", description="whose Leiden algorithm; see the program's knob")
    seed: int = Field(0xDEADBEEF, ge=0, description="seeds the communities")


class KnowledgeGraph(LMIndex):
    """Entities, relations and reports on communities. The texts are the corpus's passages."""

    name = "knowledge"
    Settings: ClassVar[type[Knobs]] = KnowledgeSettings
    more = "one more for each entity or relation that several passages describe, and community"
    arrays = ("entity_vectors",)
    values = ("node_rows", "link_rows", "report_rows")

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.entity_vectors: Vectors = np.zeros((0, 1), dtype=np.float32)
        self.node_rows: list[dict[str, Any]] = []
        self.link_rows: list[dict[str, Any]] = []
        self.report_rows: list[dict[str, Any]] = []

    @cached_property
    def nodes(self) -> list[Node]:
        """The entities."""
        return [Node(**{**row, "units": tuple(row["units"])}) for row in self.node_rows]

    @cached_property
    def links(self) -> list[Link]:
        """The relations."""
        return [Link(**{**row, "units": tuple(row["units"])}) for row in self.link_rows]

    @cached_property
    def reports(self) -> list[Report]:
        """The reports, of the upper levels first."""
        return [Report(**{**row, "members": tuple(row["members"])}) for row in self.report_rows]

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each passage."""
        return [estimate_tokens(str(passage)) for passage in self.corpus]

    def nearest(self, query: str, k: int) -> list[int]:
        """The `k` entities whose name and description are nearest to `query`, best first."""
        self.build()
        if not self.node_rows:
            return []
        return best_first(self.entity_vectors @ self.embedder.embed_queries([query])[0], k)

    def facts(self) -> dict[str, Any]:
        """Size and cost."""
        return {
            "entities": len(self.node_rows),
            "relations": len(self.link_rows),
            "communities": len(self.report_rows),
            **super().facts(),
        }

    def _asks(self) -> Iterator[tuple[type[dspy.Signature], dict[str, Any]]]:
        types = names_of(self.settings.entity_types)
        for passage in self.corpus:
            first = {"text": str(passage), "entity_types": types, "known": []}
            yield ExtractGraph, first
            for _ in range(self.settings.gleanings):  # what is known only the first tells
                yield ExtractGraph, {**first, "known": ["?"]}

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[Draft]:
        types = names_of(self.settings.entity_types)

        def read(text: str) -> Draft:
            draft = Draft()
            for _ in range(1 + self.settings.gleanings):
                reply = lm.ask(ExtractGraph, text=text, entity_types=types, known=draft.known)
                draft.add(reply.values)
            return draft

        return at_once(read, [str(passage) for passage in self.corpus], progress)

    def _join(self, read: list[Draft], lm: IndexLM, progress: Progress | None) -> None:
        graph = merged(read)
        words = self.settings.description_words

        def described(row: tuple[str, list[str]]) -> str:
            name, texts = row
            if len(texts) == 1:
                return texts[0]
            lines = [f"{name}: {text}" for text in texts]
            reply = lm.ask(Summarize, texts=lines, max_words=words)
            summary = " ".join(str(reply.values.get("summary") or "").split())
            return summary or " ".join(" ".join(texts).split()[:words])

        written = at_once(described, graph.described, progress)
        edges = [(link.source, link.target) for link in graph.links]
        degree = degrees(len(graph.nodes), edges)
        nodes = [
            Node(node.name, node.type, text, node.units, degree[i])
            for i, (node, text) in enumerate(zip(graph.nodes, written, strict=False))
        ]
        links = [
            Link(link.source, link.target, text, link.weight, link.units)
            for link, text in zip(graph.links, written[len(nodes) :], strict=True)
        ]
        communities = communities_of(
            len(nodes),
            edges,
            [link.weight for link in links],
            max_size=self.settings.max_community,
            seed=self.settings.seed,
            leiden=self.settings.leiden,
            names=[node.name for node in nodes],
        )
        self.node_rows, self.link_rows = list(map(asdict, nodes)), list(map(asdict, links))
        reports = self._reports(communities, nodes, links, lm, progress)
        self.report_rows = list(map(asdict, reports))
        for name in ("nodes", "links", "reports"):
            self.__dict__.pop(name, None)
        self.entity_vectors = self._embedded([f"{n.name}: {n.description}" for n in nodes])

    def _reports(
        self,
        communities: Sequence[Community],
        nodes: Sequence[Node],
        links: Sequence[Link],
        lm: IndexLM,
        progress: Progress | None,
    ) -> list[Report]:
        """A report on each community: those that fit first, then the others with parts of them."""
        limit = self.settings.report_input_tokens
        shown = [_tables(community, nodes, links) for community in communities]
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
            return _report(communities[i], nodes, reply.values)

        # Levels from the lowest up, but a community that fits needs no other's report.
        waves = [[i for i in range(len(communities)) if fits[i]]]
        deepest = max((community.level for community in communities), default=-1)
        for level in range(deepest, -1, -1):
            waves.append([i for i, c in enumerate(communities) if c.level == level and not fits[i]])
        for wave in waves:
            made |= dict(zip(wave, at_once(report, wave, progress), strict=True))
        return [made[i] for i in range(len(communities))]

    def _check(self) -> None:
        super()._check()
        whole = len(self.entity_vectors) == len(self.node_rows)
        units = [unit for row in self.node_rows for unit in row["units"]]
        if not whole or not all(0 <= unit < len(self.corpus) for unit in units):
            raise ValueError("the index does not fit its corpus")


def _tables(
    community: Community, nodes: Sequence[Node], links: Sequence[Link]
) -> tuple[list[str], list[str]]:
    """Lines of a community's entities and of the relations among them, the best linked first."""
    members = set(community.members)
    inside = [link for link in links if link.source in members and link.target in members]

    def rank(link: Link) -> int:
        return nodes[link.source].degree + nodes[link.target].degree

    ranked = sorted(community.members, key=lambda i: (-nodes[i].degree, i))
    return (
        [f"{nodes[i].name} ({nodes[i].type}): {nodes[i].description}" for i in ranked],
        [
            f"{nodes[link.source].name} - {nodes[link.target].name}: {link.description}"
            for link in sorted(inside, key=lambda link: -rank(link))
        ],
    )


def _report(community: Community, nodes: Sequence[Node], values: Any) -> Report:
    first = nodes[max(community.members, key=lambda i: nodes[i].degree)]
    findings = [" ".join(str(line).split()) for line in values.get("findings") or []]
    summary = " ".join(str(values.get("summary") or "").split())
    rating = values.get("rating")
    return Report(
        level=community.level,
        members=community.members,
        title=str(values.get("title") or first.name).strip(),
        text=" ".join(filter(None, [summary, *findings])),
        rating=float(rating) if isinstance(rating, int | float) else 0.0,
    )
