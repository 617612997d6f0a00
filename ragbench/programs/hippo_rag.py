"""HippoRAG 2: walks over a graph of facts, from facts that an LM selects.

Gutiérrez et al. 2025 (arXiv:2502.14802), like its published code. The LM sees the facts most
similar to the question and selects the helpful ones (recognition memory). Walks start at their
phrases, and with little weight at all passages, and personalized PageRank ranks the passages. If no
fact is selected, vector similarity ranks the passages. The index is
`ragbench.retrievers.lm_index.hippo`. The LM selects facts by number. The published filter rewrites
triples and matches them to the candidates by similarity, so that one may appear twice.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from ragbench.programs.core import PROGRAMS, ProgramKnobs, Trace, bounded, predict
from ragbench.programs.core.indexed import SearchedIndex
from ragbench.programs.core.program import Reader, reading
from ragbench.programs.core.text import by_number, numbered
from ragbench.retrievers import Passage
from ragbench.retrievers.lm_index import HippoIndex, LMIndexSettings, plain_names
from ragbench.retrievers.lm_index.base import best_first
from ragbench.retrievers.lm_index.hippo import in_words
from ragbench.retrievers.scores import min_max
from ragbench.signatures import AnswerFromContext, ExtractEntities, SelectFacts

#: Probability that a walk continues.
DAMPING = 0.5


class HippoSearch(LMIndexSettings):
    """Knobs of a search over the facts of the index."""

    use_filter: bool = Field(True, description="let the LM select facts")
    linking_top_k: int = bounded(5, 1, 100, "facts shown, and phrases kept")
    linking: Literal["facts", "entities", "phrases"] = Field(
        "facts", description="what finds the starts of walks; see the documentation"
    )
    passage_node_weight: float = bounded(
        0.05, 0, 10, "weight of passages where walks start; 0 leaves them out"
    )


class HippoRAGKnobs(HippoSearch, ProgramKnobs):
    """Knobs of `hippo_rag`."""

    context_tokens: int = bounded(7000, 100, 1_000_000, "tokens of passages in context")
    reader: Reader = Field("cot", description="reason before the answer?")


@PROGRAMS.register("hippo_rag")
class HippoRAG(SearchedIndex[HippoRAGKnobs]):
    """Choose facts that help, find the passages near them in a graph, then answer from these."""

    Index = HippoIndex
    variants = {"official": {}, "arag": {"k": 5}}  # noqa: RUF012

    def make_predictors(self) -> None:
        if self.knobs.use_filter and self.knobs.linking == "facts":
            self.select = predict(SelectFacts)
        if self.knobs.linking == "entities":
            self.extract = predict(ExtractEntities)
        self.answer = reading(AnswerFromContext, self.knobs.reader)

    def starts(self, trace: Trace, index: HippoIndex) -> dict[int, float]:
        knobs = self.knobs
        question = trace.question
        if knobs.linking == "phrases":
            return index.nearest_phrases([question], knobs.linking_top_k)
        if knobs.linking == "entities":
            reply = trace.ask(self.extract, text=question)
            return index.nearest_phrases(plain_names(reply.entities), 1)
        scores = min_max(index.cosines(question, index.fact_vectors))
        facts = best_first(scores, knobs.linking_top_k)
        texts = {fact: in_words(index.facts_read[fact]) for fact in facts}
        selected = facts
        if knobs.use_filter and facts:  # an unreadable reply selects none
            lines = numbered(texts.values())
            reply = trace.ask(self.select, question=question, facts=lines)
            selected = by_number(facts, reply.keep)
        scored = {texts[fact]: round(float(scores[fact]), 4) for fact in facts}
        observation = "; ".join(texts[fact] for fact in selected)
        trace.step("link", input=question, observation=observation, notes={"facts": scored})
        return index.seeds(selected, scores, keep=knobs.linking_top_k)

    def reached(
        self, trace: Trace, index: HippoIndex, starts: Mapping[int, float], k: int
    ) -> list[Passage]:
        if not any(starts.values()):
            trace.count("no_seed")
            return index.search(trace.question, k=k)
        named = {index.phrases[phrase]: round(weight, 4) for phrase, weight in starts.items()}
        trace.step("walk", notes={"seeds": named})
        alike = min_max(index.cosines(trace.question, index.passages))
        shares = index.walked(starts, self.knobs.passage_node_weight * alike, damping=DAMPING)
        return index.hits(shares, k)
