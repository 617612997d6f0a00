"""HippoRAG 2: walks over a graph of facts, started at those that an LM finds helpful.

Gutiérrez et al. 2025 (arXiv:2502.14802), as its published code does it. The facts most similar to
the question are shown to the LM, which keeps the helpful ones (recognition memory); walks start at
their phrases, and with little weight at all passages, and personalized PageRank ranks the passages.
Where no fact is kept, the passages are ranked by their vectors alone. The index is
`ragbench.retrievers.graph.hippo`. `variant=arag` is the re-run in A-RAG (Du et al. 2026), which
reads five passages, as the authors do.

Not copied: a kept fact is a number, where the published filter writes triples again, which are
matched to the candidates by similarity, so that one may come twice. The published reader sees a
worked example and the published filter was optimised with DSPy; here both start from plain
instructions and can be compiled.
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
    predict,
    reading,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.retrievers.graph import HippoIndex, plain_names
from ragbench.signatures import (
    AnswerFromContext,
    ExtractEntities,
    ExtractTriples,
    SelectItems,
    role_of,
)

_INDEX = tuple(
    Described("index", signature.__name__, role_of(signature))
    for signature in (ExtractEntities, ExtractTriples)
)


class HippoRAGKnobs(IndexKnobs):
    """Knobs of `hippo_rag`."""

    context_tokens: int = Field(
        7000, ge=100, le=1_000_000, description="tokens of passages shown in one call"
    )
    reader: Reader = Field("cot", description="reason before the answer?")
    use_filter: bool = Field(True, description="whether the LM chooses among the facts")
    linking_top_k: int = Field(
        5, ge=1, le=100, description="facts that are shown, and phrases that are kept"
    )
    linking: Literal["facts", "entities", "phrases"] = Field(
        "facts", description="what finds the starts of walks; see the documentation"
    )
    passage_node_weight: float = Field(
        0.05, ge=0, le=10, description="weight of passages where walks start; 0 leaves them out"
    )
    damping: float = Field(0.5, gt=0, lt=1, description="chance that a walk goes on")
    synonym_threshold: float = Field(
        0.8, ge=-1, le=1.01, description="cosine that makes synonyms; above 1 there are none"
    )


@PROGRAMS.register("hippo_rag")
class HippoRAG(IndexProgram):
    """Choose facts that help, find the passages near them in a graph, then answer from these."""

    name = "hippo_rag"
    family = "graph"
    paper = "arXiv:2502.14802"
    calls = "2; 1 where no fact was read (index: two per passage)"
    Knobs = HippoRAGKnobs
    Index = HippoIndex
    variants = {"official": {}, "arag": {"k": 5}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self._filters:
            self.select = predict(SelectItems)
        if self.knobs.linking == "entities":
            self.extract = predict(ExtractEntities)
        self.answer = reading(AnswerFromContext, self.knobs.reader)

    @property
    def _filters(self) -> bool:
        return bool(self.knobs.use_filter and self.knobs.linking == "facts")

    def other_calls(self) -> Sequence[Described]:
        """Entities and triples of the passages."""
        return _INDEX

    def index_settings(self) -> Mapping[str, Any]:
        """What makes synonyms."""
        return {"synonym_threshold": self.knobs.synonym_threshold}

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Facts chosen, one search, one answer."""
        if current().rehearsal:
            passages = self._rehearsed(trace)
        else:
            index = self.opened(trace)
            seeds = self._seeds(trace, index)
            passages = trace.search_by(
                lambda: trace.presented(trace.question, self._ranked(trace, index, seeds)),
                trace.question,
                k=self.knobs.k,
            )
        answer = self.answer_from(trace, self.answer, passages)
        return trace.prediction(answer, "answered", passages=passages)

    def force(self, trace: Trace) -> str:
        """An answer from the passages found, if any."""
        return self.answer_from(trace, self.answer, trace.passages)

    def _rehearsed(self, trace: Trace) -> list[Passage]:
        """What a question takes, with sentences in the place of facts."""
        passages = trace.search(trace.question, k=self.knobs.k)
        if self._filters:
            lines = [passage.text[:80] for passage in passages][: self.knobs.linking_top_k]
            self._kept(trace, lines)
        if self.knobs.linking == "entities":
            trace.ask(self.extract, otherwise={"entities": []}, text=trace.question)
        return passages

    def _seeds(self, trace: Trace, index: HippoIndex) -> dict[int, float]:
        """The phrases at which walks start, with their weights."""
        knobs = self.knobs
        if knobs.linking == "phrases":
            return index.nearest_phrases([trace.question], knobs.linking_top_k)
        if knobs.linking == "entities":
            reply = trace.ask(self.extract, otherwise={"entities": []}, text=trace.question)
            return index.nearest_phrases(plain_names(reply.entities or []), 1)
        scores = index.fact_scores(trace.question)
        candidates = index.linked(scores, knobs.linking_top_k)
        kept = candidates
        if knobs.use_filter and candidates:
            numbers = self._kept(trace, [index.fact_text(fact) for fact in candidates])
            kept = [candidates[number] for number in numbers]
        trace.step(
            "link",
            input=trace.question,
            observation="; ".join(index.fact_text(fact) for fact in kept),
            notes={"facts": {index.fact_text(i): round(float(scores[i]), 4) for i in candidates}},
        )
        return index.seeds(kept, scores, keep=knobs.linking_top_k)

    def _kept(self, trace: Trace, facts: Sequence[str]) -> list[int]:
        """Positions of the facts that the LM keeps; none where its reply cannot be read."""
        lines = [f"[{number}] {fact}" for number, fact in enumerate(facts, start=1)]
        reply = trace.ask(
            self.select, otherwise={"keep": []}, question=trace.question, candidates=lines
        )
        wanted = dict.fromkeys(reply.keep or [])
        return [number - 1 for number in wanted if 1 <= number <= len(facts)]

    def _ranked(self, trace: Trace, index: HippoIndex, seeds: dict[int, float]) -> list[Passage]:
        knobs = self.knobs
        if not any(seeds.values()):
            trace.count("no_seed")
            return index.search(trace.question, k=knobs.k)
        trace.step(
            "walk",
            notes={"seeds": {index.phrases[i]: round(weight, 4) for i, weight in seeds.items()}},
        )
        shares = index.walk(
            trace.question,
            seeds,
            passage_weight=knobs.passage_node_weight,
            damping=knobs.damping,
        )
        return index.hits(shares, knobs.k)
