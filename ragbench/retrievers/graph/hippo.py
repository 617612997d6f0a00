"""The index of HippoRAG 2: facts read off each passage, and a graph of their phrases.

Gutiérrez et al. 2025 (arXiv:2502.14802). Two calls per passage: its named entities, then triples
about them. The subjects and objects of the triples are the phrases; two phrases of a fact are
joined, once each way and once per passage that states it; a passage is joined to the phrases of its
facts; and phrases whose vectors are alike are joined as synonyms, which replaces the weight of a
fact that joins them, as in the published code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

import dspy
import numpy as np
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers import vectors
from ragbench.retrievers.base import Corpus, Progress
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.graph.base import LMIndex, LMIndexSettings
from ragbench.retrievers.graph.entities import plain_names
from ragbench.retrievers.graph.facts import FactText, facts_of, phrase_weights, start_of_walks
from ragbench.retrievers.graph.replies import IndexLM, at_once
from ragbench.retrievers.graph.walks import Floats, WalkGraph, best_first, min_max
from ragbench.signatures import ExtractEntities, ExtractTriples

#: Synonyms of a phrase at the most, and letters or digits that it must have more than.
_SYNONYMS, _SHORT = 101, 2


class HippoSettings(LMIndexSettings):
    """What decides an index of HippoRAG 2."""

    synonym_threshold: float = Field(0.8, ge=-1, le=1.01, description="cosine that makes synonyms")


class HippoIndex(LMIndex):
    """Facts, phrases and passages. Nodes 0 to p - 1 are the phrases, the passages come after."""

    name = "hippo"
    Settings: ClassVar[type[Knobs]] = HippoSettings
    arrays = ("fact_vectors", "phrase_vectors", "pairs", "spread", "edges", "weights")
    values = ("facts_read", "phrases")

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        #: Cleaned triples and, in the same order, the phrases of each, shape `(facts, 2)`.
        self.facts_read: list[Sequence[str]] = []
        self.pairs = np.zeros((0, 2), dtype=np.int32)
        #: Phrases, and the number of passages that each is in.
        self.phrases: list[str] = []
        self.spread = np.zeros(0, dtype=np.int32)
        self.fact_vectors = self.phrase_vectors = np.zeros((0, 1), dtype=np.float32)
        self.edges = np.zeros((0, 2), dtype=np.int32)
        self.weights = np.zeros(0, dtype=np.float32)

    def fact_scores(self, question: str) -> Floats:
        """The cosine of each fact with `question`, scaled to [0, 1] over all facts."""
        self.build()
        if not self.facts_read:
            return np.zeros(0)
        return min_max(self.fact_vectors @ self.embedder.embed_queries([question])[0])

    def fact_text(self, fact: int) -> str:
        """A fact in words."""
        return " ".join(filter(None, self.facts_read[fact]))

    def linked(self, scores: Floats, k: int) -> list[int]:
        """The `k` facts of the highest scores, best first."""
        return best_first(scores, k)

    def seeds(self, facts: Sequence[int], scores: Floats, *, keep: int) -> dict[int, float]:
        """The phrases of `facts` at which walks start, with their weights."""
        pairs = [(int(self.pairs[i, 0]), int(self.pairs[i, 1])) for i in facts]
        spread = {phrase: int(self.spread[phrase]) for pair in pairs for phrase in pair}
        return phrase_weights(pairs, [float(scores[i]) for i in facts], spread, keep=keep)

    def nearest_phrases(self, texts: Sequence[str], k: int) -> dict[int, float]:
        """The `k` phrases nearest to each of `texts`, with their cosines scaled to [0, 1]."""
        if not texts or not self.phrases:
            return {}
        scores: dict[int, float] = {}
        for row in self.embedder.embed_queries(list(texts)) @ self.phrase_vectors.T:
            scaled = min_max(row)
            for phrase in best_first(scaled, k):
                scores[phrase] = max(scores.get(phrase, 0.0), float(scaled[phrase]))
        return scores

    def walk(
        self, question: str, seeds: dict[int, float], *, passage_weight: float, damping: float
    ) -> Floats:
        """The share of each passage in walks from `seeds` and from all passages, shape `(n,)`."""
        dense = min_max(self.dense_scores(question))
        reset = start_of_walks(seeds, dense, len(self.phrases), passage_weight=passage_weight)
        return self._walks.pagerank(reset, damping=damping)[len(self.phrases) :]

    def facts(self) -> dict[str, Any]:
        """Size and cost."""
        return {
            "phrases": len(self.phrases),
            "triples": len(self.facts_read),
            "edges": len(self.edges),
            **super().facts(),
        }

    def _asks(self) -> Iterator[tuple[type[dspy.Signature], dict[str, Any]]]:
        for passage in self.corpus:
            yield ExtractEntities, {"text": str(passage)}
            # Without the entities, which only the first reply tells: none of these counts as kept.
            yield ExtractTriples, {"text": str(passage), "entities": []}

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[list[FactText]]:
        def read(text: str) -> list[FactText]:
            # Both calls of a passage in one piece of work: no passage waits for all entities.
            entities = plain_names(lm.ask(ExtractEntities, text=text).values.get("entities") or [])
            reply = lm.ask(ExtractTriples, text=text, entities=entities)
            return facts_of(reply.values.get("triples") or [])

        return at_once(read, [str(passage) for passage in self.corpus], progress)

    def _join(self, read: list[list[FactText]], lm: IndexLM, progress: Progress | None) -> None:
        facts = list(dict.fromkeys(fact for one in read for fact in one))
        ids: dict[str, int] = {}
        for subject, _, other in facts:
            for phrase in (subject, other):
                ids.setdefault(phrase, len(ids))
        self.phrases, self.facts_read = list(ids), list(facts)
        self.pairs = np.array([(ids[s], ids[o]) for s, _, o in facts], dtype=np.int32).reshape(
            -1, 2
        )
        of_passage = [
            list(dict.fromkeys(ids[phrase] for s, _, o in one for phrase in (s, o))) for one in read
        ]
        self.spread = np.bincount(
            [phrase for one in of_passage for phrase in one], minlength=len(ids)
        ).astype(np.int32)
        self.fact_vectors = self._embedded([" ".join(filter(None, fact)) for fact in facts])
        self.phrase_vectors = self._embedded(self.phrases)
        self._connect(read, ids, of_passage)

    def _connect(
        self, read: list[list[FactText]], ids: dict[str, int], of_passage: list[list[int]]
    ) -> None:
        weights: dict[tuple[int, int], float] = {}
        for one in read:
            for subject, _, other in one:
                a, b = ids[subject], ids[other]
                for edge in ((a, b), (b, a)):
                    if a != b:
                        weights[edge] = weights.get(edge, 0.0) + 1
        for row, phrases in enumerate(of_passage):
            weights |= {(len(ids) + row, phrase): 1.0 for phrase in phrases}
        threshold = self.settings.synonym_threshold
        weights |= synonyms(self.phrases, self.phrase_vectors, threshold)
        self.edges = np.array(list(weights), dtype=np.int32).reshape(-1, 2)
        self.weights = np.array(list(weights.values()), dtype=np.float32)

    @cached_property
    def _walks(self) -> WalkGraph:
        return WalkGraph(len(self.phrases) + len(self.corpus), self.edges, self.weights)

    def _check(self) -> None:
        super()._check()
        nodes = len(self.phrases) + len(self.corpus)
        whole = len(self.pairs) == len(self.facts_read) == len(self.fact_vectors)
        whole = whole and len(self.spread) == len(self.phrases)
        if not whole or (len(self.edges) and not 0 <= self.edges.min() <= self.edges.max() < nodes):
            raise ValueError("the index does not fit its corpus")


def synonyms(
    phrases: Sequence[str], rows: Vectors, threshold: float
) -> dict[tuple[int, int], float]:
    """Edges from each phrase to those at least `threshold` alike, with their cosines.

    At most 101 from a phrase, none from one of two letters or digits or fewer.
    """
    asking = [i for i, phrase in enumerate(phrases) if len(re.sub(r"[\W_]", "", phrase)) > _SHORT]
    if not asking or threshold > 1:
        return {}
    index = vectors.make_index(np.ascontiguousarray(rows), "auto")
    depth = min(len(phrases), _SYNONYMS + 1)  # the phrase itself is among them
    pairs: dict[tuple[int, int], float] = {}
    for phrase, hits in zip(asking, vectors.nearest(index, rows[asking], depth), strict=True):
        alike = [(i, score) for i, score in hits if i != phrase and score >= threshold]
        pairs |= {(phrase, other): float(score) for other, score in alike[:_SYNONYMS]}
    return pairs
