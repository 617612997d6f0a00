"""GraphRAG's local search: reports, tables and texts about the entities nearest to a question.

Edge et al. 2024 (arXiv:2404.16130), like its published code. The index is a knowledge graph that an
LM extracts from the passages, with a report on each of its communities. It also selects the
context (`ragbench.retrievers.lm_index.knowledge`). `variant=arag` is the re-run in A-RAG (Du et al.
2026) with k = 5.

The record contains the complete retrieved text, including reports and tables. They are separate
passages after the texts, so that recall counts the texts in their order.
"""

from typing import Literal

import dspy
from pydantic import Field

from ragbench.programs.core import PROGRAMS, ProgramKnobs, Trace, bounded, render
from ragbench.programs.core.indexed import IndexProgram
from ragbench.programs.core.program import Reader, reading
from ragbench.retrievers import Passage, lm_index
from ragbench.signatures import AnswerFromContext

#: The published code retrieves this many times the number of entities set, and keeps them all.
_OVERSAMPLED = 2
#: Relations per entity that lead to others; lowest level of reports, of which 0 is the top.
_RELATIONS_EACH = 10
_LEVEL = 2


class GraphRAGKnobs(lm_index.GraphSettings, ProgramKnobs):
    """Knobs of `graph_rag`."""

    k: int = bounded(10, 1, 100, "entities; twice as many enter, as published")
    context_tokens: int = bounded(12_000, 100, 1_000_000, "tokens of the context")
    reader: Reader = Field("predict", description="reason before the answer?")
    text_share: float = bounded(0.5, 0, 1, "share of the texts in the context")
    report_share: float = bounded(0.15, 0, 1, "share of the reports")
    ablation: Literal["none", "reports", "texts", "tables"] = Field(
        "none", description="part of the context to omit"
    )


@PROGRAMS.register("graph_rag")
class GraphRAG(IndexProgram[GraphRAGKnobs]):
    """Gather reports, facts and texts about the entities of the question, then answer."""

    Index = lm_index.KnowledgeGraph
    variants = {  # noqa: RUF012
        "official": {"gleanings": 1},
        "arag": {"gleanings": 1, "k": 10},
    }

    def make_predictors(self) -> None:
        self.answer = reading(AnswerFromContext, self.knobs.reader)

    def solve(self, trace: Trace) -> dspy.Prediction:
        index = self.opened(trace)
        presented = list[Passage]()
        passages = trace.search_by(
            lambda: self._gathered(trace, index, presented), trace.question, k=self.knobs.k
        )
        # The texts are already within the limits.
        context = render(presented, max_tokens=2 * self.knobs.context_tokens)
        answer = trace.answer(self.answer, last=True, context=context)
        return trace.prediction(answer, "answered", passages=passages)

    def _gathered(
        self, trace: Trace, index: lm_index.KnowledgeGraph, presented: list[Passage]
    ) -> list[Passage]:
        """Return texts, reports and tables. Add them to `presented` in prompt order."""
        knobs = self.knobs
        tokens = knobs.context_tokens
        entities = index.nearest(trace.question, _OVERSAMPLED * knobs.k)
        if not entities:
            trace.count("no_seed")
            presented += trace.retriever.presented(
                trace.question, index.search(trace.question, k=knobs.k)
            )
            return list(presented)
        graph = index.entities, index.relations
        reports = list[Passage]()
        rows = list[Passage]()
        texts = list[Passage]()
        if knobs.ablation != "reports":
            limit = int(tokens * knobs.report_share)
            for i in lm_index.chosen_reports(entities, index.reports, level=_LEVEL, tokens=limit):
                report = index.reports[i]
                reports.append(Passage(f"report-{i}", report.title, report.text))
        if knobs.ablation != "tables":
            limit = max(int(tokens * (1 - knobs.report_share - knobs.text_share)), 0)
            lines = lm_index.tables(entities, *graph, tokens=limit, per_entity=_RELATIONS_EACH)
            for name, section in zip(("Entities", "Relations"), lines, strict=True):
                if section:
                    rows.append(Passage(name.lower(), name, "\n".join(section)))
        if knobs.ablation != "texts":
            limit = int(tokens * knobs.text_share)
            places = lm_index.chosen_passages(entities, *graph, index.sizes, tokens=limit)
            texts = trace.retriever.presented(
                trace.question, [index.corpus[place] for place in places]
            )
        presented += [*reports, *rows, *texts]
        notes = {
            "entities": [index.entities[i].name for i in entities],
            "reports": [report.title for report in reports],
            "retrieved": [passage.text for passage in presented],
        }
        trace.step("search", input=trace.question, of=texts, notes=notes)
        return [*texts, *reports, *rows]
