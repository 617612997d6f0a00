"""LightRAG: keywords of two levels find entities and relations of a graph, and their passages.

Guo et al. 2024 (arXiv:2410.05779). The index is `ragbench.retrievers.lm_index.light`. One call
writes keywords. Names (low level) find entities, with their relations. Themes (high level) find
relations, with their entities. Their passages are ranked by cosine similarity to the question, like
the current published code, and alternate between entities and relations. `mix` adds the passages
nearest to the question. `naive` uses only those, without keywords.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import PROGRAMS, Passages, ProgramKnobs, Trace, bounded, predict
from ragbench.programs.core.indexed import SearchedIndex
from ragbench.retrievers import Passage
from ragbench.retrievers.lm_index import LightIndex, LightSettings, LMIndex, fitting
from ragbench.signatures import AnswerFromContext, AnswerFromGraph, ExtractKeywords
from ragbench.text_normalization import estimate_tokens

#: Passages for each entity or relation. Half of them are used, as published.
_RELATED = 5


class LightSearch(LightSettings):
    """Knobs of a search over the entities and relations of the index."""

    gleanings: int = bounded(1, 0, 5, "index: additional calls for missed facts")
    mode: Literal["hybrid", "local", "global", "mix", "naive"] = Field(
        "hybrid", description="search method, set by the variant"
    )
    top_k: int = bounded(40, 1, 1000, "maximum number of entities, and of relations")
    min_cosine: float = bounded(0.2, -1, 1, "minimum cosine similarity of vector search")
    entity_tokens: int = bounded(6000, 0, 1_000_000, "tokens of entities in context")
    relation_tokens: int = bounded(8000, 0, 1_000_000, "tokens of relations in context")


class LightRAGKnobs(LightSearch, ProgramKnobs):
    """Knobs of `light_rag`."""

    k: int = bounded(20, 1, 100, "passages read")
    context_tokens: int = bounded(16_000, 100, 1_000_000, "tokens of passages in context")
    texts: bool = Field(True, description="show passages with entities and relations")


@PROGRAMS.register("light_rag")
class LightRAG(SearchedIndex[LightRAGKnobs]):
    """Find entities and relations by keywords of two levels, then answer from them and texts."""

    Index = LightIndex
    variants = {  # noqa: RUF012
        mode: {"mode": mode} for mode in ("hybrid", "local", "global", "mix", "naive")
    }

    def make_predictors(self) -> None:
        if self.knobs.mode == "naive":
            self.answer = predict(AnswerFromContext)
        else:
            self.extract = predict(ExtractKeywords)
            self.answer = predict(AnswerFromGraph)

    @property
    def index_kind(self) -> type[LMIndex]:
        if self.knobs.mode == "naive":
            return LMIndex
        return LightIndex

    def solve(self, trace: Trace) -> dspy.Prediction:
        index = self.opened(trace)
        high, low = self.starts(trace, index)
        graph: list[str] = []
        passages = trace.search_by(
            lambda: self._noted(trace, index, high, low, graph), trace.question, k=self.knobs.k
        )
        answer = self._read(trace, passages if self.knobs.texts else [], graph)
        return trace.prediction(answer, "answered", passages=passages)

    def reached(
        self, trace: Trace, index: LMIndex, starts: tuple[str, str], k: int
    ) -> list[Passage]:
        passages, _, _ = self._retrieved(trace, index, *starts, k)
        return passages

    def force(self, trace: Trace) -> str:
        return self._read(trace, trace.passages, [])

    def _read(self, trace: Trace, passages: Passages, graph: list[str]) -> str:
        inputs: dict[str, Any] = {} if self.knobs.mode == "naive" else {"graph": graph}
        context = self.as_context(passages)
        return trace.answer(self.answer, last=True, context=context, **inputs)

    def starts(self, trace: Trace, index: LMIndex) -> tuple[str, str]:
        """Return themes and names, each as one query. Default: the question."""
        if self.knobs.mode == "naive":
            return "", ""
        reply = trace.ask(self.extract)
        high, low = (
            ", ".join(core.distinct(words)) for words in (reply.high_level, reply.low_level)
        )
        if not high and not low:
            high = low = trace.question
        trace.step("keywords", observation=f"{high}\n{low}")
        return high, low

    def _noted(
        self, trace: Trace, index: LMIndex, high: str, low: str, graph: list[str]
    ) -> list[Passage]:
        """Return the passages to read. Add entities and relations to `graph` for the prompt."""
        hits, entities, relations = self._retrieved(trace, index, high, low, self.knobs.k)
        if isinstance(index, LightIndex):
            graph += [index.entities[i].line for i in entities]
            graph += [index.relations[i].line(index.entities) for i in relations]
        passages = trace.retriever.presented(trace.question, hits)
        texts = [passage.text for passage in passages if self.knobs.texts]
        notes = {
            "entities": len(entities),
            "relations": len(relations),
            "retrieved": [*graph, *texts],
        }
        trace.step("search", input=trace.question, of=passages, notes=notes)
        return passages

    def _retrieved(
        self, trace: Trace, index: LMIndex, high: str, low: str, k: int
    ) -> tuple[list[Passage], list[int], list[int]]:
        """Return at most `k` passages, and the numbers of entities and relations."""
        entities: list[int] = []
        relations: list[int] = []
        sources: list[list[int]] = []
        if isinstance(index, LightIndex):
            entities, relations = self._found(index, high, low)
            sources = _passages_of(index, entities, relations, trace.question)
            if not entities:
                trace.count("no_seed")
        if self.knobs.mode in ("mix", "naive") or not entities:
            places = index.corpus.positions
            nearest = [places[p.pid] for p in index.search(trace.question, k=k)]
            sources.insert(0, nearest)
        rows = _in_turn(*sources)[:k]
        return [index.corpus[row] for row in rows], entities, relations

    def _found(self, index: LightIndex, high: str, low: str) -> tuple[list[int], list[int]]:
        """Return the entities that names find and the relations that themes find.

        Each list also contains the neighbors of the other one, up to the token limit of the prompt.
        """
        knobs = self.knobs
        limits: dict[str, Any] = {"k": knobs.top_k, "least": knobs.min_cosine}
        near = list[int]()
        links = list[int]()
        if knobs.mode != "global":
            near = index.nearest(low, index.entity_vectors, **limits)
        if knobs.mode != "local":
            links = index.nearest(high, index.relation_vectors, **limits)
        ends = [end for relation in links for end in index.relations[relation].ends]
        around = _in_turn(_relations_around(index, near), links)
        return (
            fitting(
                _in_turn(near, ends),
                knobs.entity_tokens,
                size=lambda entity: estimate_tokens(index.entities[entity].line),
            ),
            fitting(
                around,
                knobs.relation_tokens,
                size=lambda row: estimate_tokens(index.relations[row].line(index.entities)),
            ),
        )


def _relations_around(index: LightIndex, entities: Sequence[int]) -> list[int]:
    """Return the relations of `entities`, by the degree of their ends, then by weight."""

    def worth(relation: int) -> tuple[int, float]:
        degree = sum(len(index.relations_of[end]) for end in index.relations[relation].ends)
        return -degree, -index.relations[relation].weight

    around = _in_turn([i for entity in entities for i in index.relations_of[entity]])
    return sorted(around, key=worth)  # stable


def _passages_of(
    index: LightIndex, entities: Sequence[int], relations: Sequence[int], question: str
) -> list[list[int]]:
    """Return the passages of `entities`, then others of `relations`, nearest to the question first.

    Only relations with a passage that no earlier relation has increase the number of passages.
    """
    scores = index.cosines(question, index.passages)

    def nearest(rows: set[int], sources: int) -> list[int]:
        return sorted(rows, key=lambda row: (-scores[row], row))[: _RELATED * sources // 2]

    of_entities = {row for i in entities for row in index.entities[i].passages}
    entity_rows = nearest(of_entities, len(entities))
    new = [set(index.relations[i].passages) - set(entity_rows) for i in relations]
    counted = 0
    relation_rows = set[int]()
    for rows in new:
        counted += not rows <= relation_rows
        relation_rows |= rows
    return [entity_rows, nearest(relation_rows, counted)]


def _in_turn(*lists: Sequence[int]) -> list[int]:
    """Interleave the lists: all first values, then all second ones, each value once."""
    turns = zip_longest(*lists)
    return list(dict.fromkeys(value for turn in turns for value in turn if value is not None))
