"""GraphRAG's local search: reports, tables and texts around the entities nearest to a question.

Edge et al. 2024 (arXiv:2404.16130), as its published code does it. The index is a knowledge graph
that an LM reads off the passages, with a report on each of its communities
(`ragbench.retrievers.graph.knowledge`); the context is made by
`ragbench.retrievers.graph.local_search`. `variant=arag` is the re-run in A-RAG (Du et al. 2026)
with k = 5.

Retrieved text is all that is shown: reports and tables too. They are passages of their own, after
the texts, so that recall counts texts in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.context import current
from ragbench.programs.core import (
    PROGRAMS,
    Described,
    IndexKnobs,
    IndexProgram,
    Reader,
    Trace,
    reading,
    render,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.retrievers.graph import (
    KnowledgeGraph,
    Leiden,
    Shares,
    chosen_reports,
    chosen_units,
    graspologic,
    tables,
)
from ragbench.signatures import (
    AnswerFromContext,
    ExtractGraph,
    ReportCommunity,
    Summarize,
    role_of,
)

_INDEX = tuple(
    Described("index", signature.__name__, role_of(signature))
    for signature in (ExtractGraph, Summarize, ReportCommunity)
)
#: The published code takes so many times the entities it is told to, and keeps them all.
_OVERSAMPLED = 2


class GraphRAGKnobs(IndexKnobs):
    """Knobs of `graph_rag`."""

    k: int = Field(10, ge=1, le=100, description="entities; twice as many enter, as published")
    context_tokens: int = Field(
        12_000, ge=100, le=1_000_000, description="tokens of reports, tables and texts"
    )
    reader: Reader = Field("predict", description="reason before the answer?")
    text_share: float = Field(0.5, ge=0, le=1, description="share of the texts in the context")
    report_share: float = Field(0.15, ge=0, le=1, description="share of the reports")
    relations_each: int = Field(
        10, ge=0, le=1000, description="relations per entity that lead to others"
    )
    community_level: int = Field(2, ge=0, le=20, description="lowest level of reports; 0 the top")
    ablation: Literal["none", "reports", "texts", "tables"] = Field(
        "none", description="what is left out of the context"
    )
    entity_types: str = Field(
        "organization, person, place, event", min_length=1, description="index: kinds of entities"
    )
    gleanings: int = Field(1, ge=0, le=5, description="index: calls for what was overlooked")
    max_community: int = Field(
        10, ge=2, le=1000, description="index: entities of an undivided community"
    )
    leiden: Leiden = Field(
        "igraph", description="index: whose Leiden algorithm; graspologic is the authors'"
    )
    description_words: int = Field(
        375, ge=10, le=5000, description="index: words of a description (500 tokens)"
    )
    report_words: int = Field(
        1500, ge=20, le=10_000, description="index: words of a report (2,000 tokens)"
    )
    report_input_tokens: int = Field(
        8000, ge=100, le=100_000, description="index: tokens that a report is made of"
    )


@PROGRAMS.register("graph_rag")
class GraphRAG(IndexProgram):
    """Gather reports, facts and texts about the entities of the question, then answer."""

    name = "graph_rag"
    family = "graph"
    paper = "arXiv:2404.16130"
    calls = "1 (index: two per passage, and one per description to merge and per community)"
    Knobs = GraphRAGKnobs
    Index = KnowledgeGraph
    variants = {"official": {}, "arag": {"k": 5}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.leiden == "graspologic":
            graspologic()  # missing, it is to be known before the LM is asked
        self.answer = reading(AnswerFromContext, self.knobs.reader)

    def other_calls(self) -> Sequence[Described]:
        """The graph, descriptions of what several passages name, and reports."""
        return _INDEX

    def index_settings(self) -> Mapping[str, Any]:
        """How the graph, its communities and their reports are made."""
        names = (
            "entity_types",
            "gleanings",
            "max_community",
            "leiden",
            "description_words",
            "report_words",
            "report_input_tokens",
        )
        return {name: getattr(self.knobs, name) for name in names}

    def solve(self, trace: Trace) -> dspy.Prediction:
        """One search, one answer."""
        if current().rehearsal:
            passages = shown = trace.search(trace.question, k=self.knobs.k)
        else:
            index = self.opened(trace)
            shown = []
            passages = trace.search_by(
                lambda: self._gathered(trace, index, shown), trace.question, k=self.knobs.k
            )
        context = render(shown, max_tokens=2 * self.knobs.context_tokens)  # cut to size before
        answer = trace.answer(self.answer, last=True, context=context, question=trace.question)
        return trace.prediction(answer, "answered", passages=passages)

    def force(self, trace: Trace) -> str:
        """An answer without passages, where not even one search is allowed."""
        return trace.answer(self.answer, last=True, context=[], question=trace.question)

    def _gathered(self, trace: Trace, index: KnowledgeGraph, shown: list[Passage]) -> list[Passage]:
        """Texts, then reports and tables; `shown` gets them in the order of the prompt."""
        knobs = self.knobs
        shares = Shares(
            knobs.context_tokens, knobs.report_share, knobs.text_share, knobs.relations_each
        )
        entities = index.nearest(trace.question, _OVERSAMPLED * knobs.k)
        if not entities:
            trace.count("no_seed")
            shown += trace.presented(trace.question, index.search(trace.question, k=knobs.k))
            return list(shown)
        reports = [] if knobs.ablation == "reports" else self._reports(index, entities, shares)
        rows = [] if knobs.ablation == "tables" else self._tables(index, entities, shares)
        texts = [] if knobs.ablation == "texts" else self._texts(trace, index, entities, shares)
        shown += [*reports, *rows, *texts]
        trace.step(
            "search",
            input=trace.question,
            pids=tuple(passage.pid for passage in texts),
            notes={
                "entities": [index.nodes[i].name for i in entities],
                "reports": [report.title for report in reports],
                "retrieved": [passage.text for passage in shown],
            },
        )
        return [*texts, *reports, *rows]

    def _reports(
        self, index: KnowledgeGraph, entities: Sequence[int], shares: Shares
    ) -> list[Passage]:
        chosen = chosen_reports(
            entities,
            index.reports,
            level=self.knobs.community_level,
            tokens=int(shares.tokens * shares.reports),
        )
        reports = [(i, index.reports[i]) for i in chosen]
        return [Passage(f"report-{i}", report.title, report.text) for i, report in reports]

    def _tables(
        self, index: KnowledgeGraph, entities: Sequence[int], shares: Shares
    ) -> list[Passage]:
        lines = tables(entities, index.nodes, index.links, shares)
        parts = zip(("Entities", "Relations"), lines, strict=True)
        return [Passage(name.lower(), name, "\n".join(rows)) for name, rows in parts if rows]

    def _texts(
        self, trace: Trace, index: KnowledgeGraph, entities: Sequence[int], shares: Shares
    ) -> list[Passage]:
        chosen = chosen_units(
            entities,
            index.nodes,
            index.links,
            index.sizes,
            tokens=int(shares.tokens * shares.texts),
        )
        return trace.presented(trace.question, [index.corpus[unit] for unit in chosen])
