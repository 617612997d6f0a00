"""LightRAG: keywords of two levels find entities and relations of a graph, and their passages.

Guo et al. 2024 (arXiv:2410.05779). The index is `ragbench.retrievers.graph.light`. One call writes
keywords: names (low level) find entities, with the relations and passages of these; themes (high
level) find relations, with the entities and passages of these. Variants: `hybrid` (both), `local`
(names alone), `global` (themes alone), `mix` (both, and the passages nearest to the question) and
`naive` (those alone, without keywords).

Retrieved text is all that is shown: lines of entities and relations too. Departures: descriptions
of several passages are joined instead of rewritten by an LM; answers are as short as
`answer_style` says, where the published prompt asks for paragraphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.context import current
from ragbench.programs.core import (
    PROGRAMS,
    Described,
    IndexKnobs,
    IndexProgram,
    Trace,
    distinct,
    predict,
    render,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.retrievers.graph import LightIndex
from ragbench.signatures import AnswerWithHints, ExtractKeyedGraph, ExtractKeywords, role_of
from ragbench.tokens import estimate_tokens

_GRAPH = Described("index", ExtractKeyedGraph.__name__, role_of(ExtractKeyedGraph))
#: Characters of a line of the graph, for a rehearsal.
_LINE = 200


class LightRAGKnobs(IndexKnobs):
    """Knobs of `light_rag`."""

    k: int = Field(20, ge=1, le=100, description="passages read")
    context_tokens: int = Field(
        16_000, ge=100, le=1_000_000, description="tokens of passages shown in one call"
    )
    mode: Literal["hybrid", "local", "global", "mix", "naive"] = Field(
        "hybrid", description="what is searched; set by the variant"
    )
    top_k: int = Field(40, ge=1, le=1000, description="entities, and relations, at the most")
    min_cosine: float = Field(0.2, ge=-1, le=1, description="of what is found by its vectors")
    entity_tokens: int = Field(6000, ge=0, le=1_000_000, description="tokens of entities shown")
    relation_tokens: int = Field(8000, ge=0, le=1_000_000, description="tokens of relations shown")
    texts: bool = Field(True, description="show passages beside entities and relations")
    entity_types: str = Field(
        "organization, person, place, event, category",
        min_length=1,
        description="index: kinds of entities",
    )
    gleanings: int = Field(1, ge=0, le=5, description="index: calls for what was overlooked")
    description_words: int = Field(375, ge=10, le=5000, description="index: words of a description")


@PROGRAMS.register("light_rag")
class LightRAG(IndexProgram):
    """Find entities and relations by keywords of two levels, then answer from them and texts."""

    name = "light_rag"
    family = "graph"
    paper = "arXiv:2410.05779"
    calls = "2 (index: two per passage); naive: 1"
    Knobs = LightRAGKnobs
    Index = LightIndex
    variants = {  # noqa: RUF012
        mode: {"mode": mode} for mode in ("hybrid", "local", "global", "mix", "naive")
    }

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.mode != "naive":
            self.extract = predict(ExtractKeywords)
        self.answer = predict(AnswerWithHints)

    def other_calls(self) -> Sequence[Described]:
        """The graph."""
        return () if self.knobs.mode == "naive" else (_GRAPH,)

    def index_settings(self) -> Mapping[str, Any]:
        """How the graph is made."""
        return {
            "graph": self.knobs.mode != "naive",
            "entity_types": self.knobs.entity_types,
            "gleanings": self.knobs.gleanings,
            "description_words": self.knobs.description_words,
        }

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Keywords, one search, one answer."""
        index = None if current().rehearsal else self.opened(trace)
        high, low = self._keywords(trace)
        lines: list[str] = []
        if index is None:
            passages = trace.search(trace.question, k=self.knobs.k)
            lines += self._made_up(trace)
        else:
            passages = trace.search_by(
                lambda: self._retrieved(trace, index, high, low, lines),
                trace.question,
                k=self.knobs.k,
            )
        answer = self._read(trace, passages if self.knobs.texts else [], lines)
        return trace.prediction(answer, "answered", passages=passages)

    def force(self, trace: Trace) -> str:
        """An answer from the passages found, if any."""
        return self._read(trace, trace.passages, [])

    def _read(self, trace: Trace, passages: Sequence[Passage], lines: list[str]) -> str:
        context = render(passages, max_tokens=self.knobs.context_tokens)
        return trace.answer(
            self.answer, last=True, context=context, notes=lines, question=trace.question
        )

    def _made_up(self, trace: Trace) -> list[str]:
        """As many lines as a graph may give, for a rehearsal: the beginnings of passages."""
        if self.knobs.mode == "naive":
            return []
        some = trace.retriever.corpus[: 2 * self.knobs.top_k]
        tokens = self.knobs.entity_tokens + self.knobs.relation_tokens
        return _fitting((str(passage)[:_LINE] for passage in some), tokens)

    def _keywords(self, trace: Trace) -> tuple[str, str]:
        """Themes and names, each as one query; the question where there are none."""
        if self.knobs.mode == "naive":
            return "", ""
        nothing: dict[str, Any] = {"high_level": [], "low_level": []}
        reply = trace.ask(self.extract, otherwise=nothing, question=trace.question)
        high, low = (", ".join(distinct(words)) for words in (reply.high_level, reply.low_level))
        if not high and not low:
            trace.count("no_keywords")
            high = low = trace.question
        trace.step("keywords", observation=f"{high}\n{low}")
        return high, low

    def _retrieved(
        self, trace: Trace, index: LightIndex, high: str, low: str, lines: list[str]
    ) -> list[Passage]:
        """The passages to read; `lines` gets entities and relations as the prompt shows them."""
        knobs, mode = self.knobs, self.knobs.mode
        wanted = {"k": knobs.top_k, "least": knobs.min_cosine}
        near = (
            index.nearest("entities", low, **wanted) if mode in ("hybrid", "local", "mix") else []
        )
        links = (
            index.nearest("relations", high, **wanted)
            if mode in ("hybrid", "global", "mix")
            else []
        )
        ends = _once(end for relation in links for end in index.relations[relation].ends)
        entities, relations = _in_turn(near, ends), _in_turn(relations_around(index, near), links)
        ties = _fitting(
            (index.relation_line(index.relations[i]) for i in relations), knobs.relation_tokens
        )
        told = set(relations[: len(ties)])
        named = (index.entities[i].line for i in entities if not only_in(index, i, told))
        shown = [*_fitting(named, knobs.entity_tokens), *ties]
        lines += shown
        units = [
            units_of(index, near),
            _once(unit for relation in links for unit in index.relations[relation].units),
        ]
        dense = index.search(trace.question, k=knobs.k) if mode in ("mix", "naive") else []
        if not entities and not dense:
            trace.count("no_seed")
            dense = index.search(trace.question, k=knobs.k)
        places = index.corpus.positions
        rows = _in_turn(*units, [places[passage.pid] for passage in dense])[: knobs.k]
        passages = trace.presented(trace.question, [index.corpus[row] for row in rows])
        trace.step(
            "search",
            input=trace.question,
            pids=tuple(passage.pid for passage in passages),
            notes={
                "entities": [index.entities[i].name for i in near],
                "relations": len(relations),
                "retrieved": [*shown, *(p.text for p in passages if knobs.texts)],
            },
        )
        return passages


def relations_around(index: LightIndex, entities: Sequence[int]) -> list[int]:
    """The relations of `entities`: those of well-connected ends first, then the weightiest."""
    relations = _once(relation for entity in entities for relation in index.relations_of[entity])

    def worth(relation: int) -> tuple[int, float]:
        degree = sum(len(index.relations_of[end]) for end in index.relations[relation].ends)
        return -degree, -index.relations[relation].weight

    return sorted(relations, key=worth)  # stable


def only_in(index: LightIndex, entity: int, relations: set[int]) -> bool:
    """Whether all that is known of `entity` is the descriptions of `relations`."""
    found = index.entities[entity]
    left = found.description
    for relation in relations.intersection(index.relations_of[entity]):
        left = left.replace(index.relations[relation].description, "")
    return not found.type and not left.strip()


def units_of(index: LightIndex, entities: Sequence[int]) -> list[int]:
    """The passages of `entities`, in their order; of one those that hold its relations first."""
    rows: list[int] = []
    for entity in entities:
        shared = {
            unit: sum(
                unit in index.relations[relation].units for relation in index.relations_of[entity]
            )
            for unit in index.entities[entity].units
        }
        rows += sorted(shared, key=lambda unit: -shared[unit])  # stable
    return _once(rows)


def _in_turn(*lists: Sequence[int]) -> list[int]:
    """The first of each list, the second of each, and so on, each value once."""
    turns = zip_longest(*lists)
    return _once(value for turn in turns for value in turn if value is not None)


def _once(values: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(values))


def _fitting(lines: Iterable[str], max_tokens: int) -> list[str]:
    """The first lines that fit."""
    kept = []
    for line in lines:
        max_tokens -= estimate_tokens(line)
        if max_tokens < 0:
            break
        kept.append(line)
    return kept
