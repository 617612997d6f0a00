"""LinearRAG: a graph of entities, sentences and passages without relations.

Zhuang et al. 2025 (arXiv:2510.10114), like its published code. Each entity of the question leads to
the nearest entity of the index (a seed). From there, sentences similar to the question lead to
further entities, tier by tier (`ragbench.retrievers.lm_index.linear`). Personalized PageRank ranks
the passages. It starts at these entities and at passages that are similar to the question or
contain the entities. For a question without entities, vector similarity ranks the passages.

The published system finds entities with a spaCy pipeline (`entities=spacy`). The default asks the
LM. `entities=regex` finds different entities, so results give it a different name.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ragbench.programs.core import PROGRAMS, ProgramKnobs, Trace, bounded, predict
from ragbench.programs.core.indexed import SearchedIndex
from ragbench.programs.core.program import Reader, reading
from ragbench.retrievers import Passage, lm_index
from ragbench.signatures import AnswerFromContext, ExtractEntities

#: Start weight of passages relative to entities, and probability that a walk continues.
PASSAGE_WEIGHT = 0.05
DAMPING = 0.5


class LinearSearch(lm_index.LinearSettings):
    """Knobs of a search over the entities of the index."""

    max_iterations: int = bounded(3, 1, 20, "rounds of bridging, seeds included")
    top_k_sentence: int = bounded(1, 1, 100, "sentences per entity")
    threshold: float = bounded(0.5, 0, 1, "score under which an entity is dropped")
    passage_ratio: float = bounded(1.5, 0, 100, "weight of a passage's similarity")
    ablation: Literal["none", "bridging", "pagerank", "graph"] = Field(
        "none", description="part to omit: further entities, walks, or all but vectors"
    )


class LinearRAGKnobs(LinearSearch, ProgramKnobs):
    """Knobs of `linear_rag`."""

    context_tokens: int = bounded(7000, 100, 1_000_000, "tokens of passages in context")
    reader: Reader = Field("cot", description="reason before the answer?")


@PROGRAMS.register("linear_rag")
class LinearRAG(SearchedIndex[LinearRAGKnobs]):
    """Find passages through the entities of the question, then answer from them."""

    Index = lm_index.LinearIndex
    variants = {"official": {}, "arag": {"k": 5}}  # noqa: RUF012

    def make_predictors(self) -> None:
        if self.other_calls():
            self.extract = predict(ExtractEntities)
        self.answer = reading(AnswerFromContext, self.knobs.reader)

    @property
    def index_kind(self) -> type[lm_index.LMIndex]:
        if self.knobs.ablation == "graph":
            return lm_index.LMIndex
        return lm_index.LinearIndex

    @property
    def label(self) -> str:
        """The name in tables. Entities of a pattern make a different system."""
        if self.knobs.entities == "regex":
            return "linear_rag[regex entities]"
        return self.name

    def starts(self, trace: Trace, index: lm_index.LMIndex) -> list[str]:
        """Return the entities of the question, in its spelling."""
        knobs = self.knobs
        question = trace.question
        if knobs.ablation == "graph":
            return []
        if knobs.entities == "spacy":
            [mentions] = lm_index.by_spacy([question], knobs.spacy_pipeline)
        elif knobs.entities == "regex":
            mentions = lm_index.by_pattern(question)
        else:
            reply = trace.ask(self.extract, text=question)
            mentions = lm_index.plain_names(reply.entities)
        trace.step("extract", input=question, observation=", ".join(mentions))
        return mentions

    def reached(
        self, trace: Trace, index: lm_index.LMIndex, starts: Sequence[str], k: int
    ) -> list[Passage]:
        knobs = self.knobs
        question = trace.question
        if isinstance(index, lm_index.LinearIndex):
            seeds = index.seeds(starts)
        else:
            seeds = []
        if not isinstance(index, lm_index.LinearIndex) or not seeds:
            if knobs.ablation != "graph":
                trace.count("no_seed")
            return index.search(question, k=k)
        if knobs.ablation == "bridging":
            hops = 1
        else:
            hops = knobs.max_iterations
        reached = index.activated(
            question,
            seeds,
            max_iterations=hops,
            top_k_sentence=knobs.top_k_sentence,
            threshold=knobs.threshold,
        )
        scores = {index.names[entity]: round(score, 4) for entity, score in seeds}
        tiers = {index.names[entity]: tier for entity, (_, tier) in reached.latest.items()}
        trace.step("bridge", input=", ".join(starts), notes={"seeds": scores, "tiers": tiers})
        weights = index.starts(question, reached, passage_ratio=knobs.passage_ratio)
        weights = PASSAGE_WEIGHT * weights
        if knobs.ablation == "pagerank":
            return index.hits(weights, k)
        return index.hits(index.walked(reached.weights, weights, damping=DAMPING), k)
