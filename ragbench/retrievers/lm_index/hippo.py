"""The index of HippoRAG 2: facts read off each passage, and a graph of their phrases.

Gutiérrez et al. 2025 (arXiv:2502.14802). Two calls per passage: its named entities, then triples
about them. The subjects and objects of the triples are the phrases. Two phrases of a fact are
joined, once each way and once per passage that states it. A passage is joined to the phrases of its
facts. Phrases whose vectors are alike are joined as synonyms, which replaces the weight of a
fact that joins them, as in the published code.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import regex

from ragbench.retrievers.base import Progress
from ragbench.retrievers.dense import make_index, nearest
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.lm_index.base import NONE, Floats, WalkIndex, best_first
from ragbench.retrievers.lm_index.linear import by_lm
from ragbench.retrievers.lm_index.replies import IndexLM, map_concurrently
from ragbench.retrievers.scores import min_max
from ragbench.signatures import ExtractAllTriples, ExtractEntities, ExtractTriples
from ragbench.text_normalization import fold

#: Subject, relation and object, cleaned.
FactText = tuple[str, str, str]

#: Maximum number of synonyms of a phrase. A phrase needs more letters or digits than `_SHORT`.
_SYNONYMS, _SHORT = 101, 2
#: The cosine from which on phrases are synonyms.
_SYNONYM_COSINE = 0.8
_NOT_WORD = regex.compile(r"[^\w ]|_")


class HippoIndex(WalkIndex):
    """Facts, phrases and passages."""

    name = "hippo"
    index_version = 4
    node_attribute = "phrases"
    essential = ("edges",)
    signatures = (ExtractEntities, ExtractTriples, ExtractAllTriples)
    arrays = ("fact_vectors", "phrase_vectors", "spread", "edges", "weights")
    values = {"facts_read": list[FactText], "phrases": list[str]}  # noqa: RUF012
    lengths = {  # noqa: RUF012
        "phrases": "phrases",
        "triples": "facts_read",
        "edges": "edges",
    }

    #: Cleaned triples, their subjects and objects, and the number of passages that each is in.
    facts_read: Sequence[FactText] = ()
    phrases: Sequence[str] = ()
    spread = np.zeros(0, dtype=np.int32)
    fact_vectors = phrase_vectors = NONE

    @cached_property
    def ids(self) -> Mapping[str, int]:
        return {phrase: number for number, phrase in enumerate(self.phrases)}

    def seeds(self, facts: Sequence[int], scores: Floats, *, keep: int) -> dict[int, float]:
        """Return the start phrases of walks with their weights.

        The weight of a phrase is the mean of score / number of its passages over its facts.

        Args:
            facts: Positions of the facts.
            scores: Score of each fact.
            keep: Number of phrases to return. Ties in order of appearance.
        """
        shares: dict[int, list[float]] = {}
        for fact in facts:
            subject, _, obj = self.facts_read[fact]
            for phrase in (self.ids[subject], self.ids[obj]):
                share = float(scores[fact]) / max(int(self.spread[phrase]), 1)
                shares.setdefault(phrase, []).append(share)
        means = {phrase: sum(values) / len(values) for phrase, values in shares.items()}
        best = sorted(means, key=lambda phrase: -means[phrase])[:keep]
        return {phrase: means[phrase] for phrase in best}

    def nearest_phrases(self, texts: Sequence[str], k: int) -> dict[int, float]:
        """Return the phrases nearest to each text, with cosines scaled to [0, 1].

        Args:
            texts: Texts to search for.
            k: Maximum number of phrases for each text.
        """
        scores: dict[int, float] = {}
        for text in texts:
            scaled = min_max(self.cosines(text, self.phrase_vectors))
            for phrase in best_first(scaled, k):
                scores[phrase] = max(scores.get(phrase, 0.0), float(scaled[phrase]))
        return scores

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[list[FactText]]:
        def read(text: str) -> list[FactText]:
            # Both calls of a passage are one task, so no passage waits for all entities.
            if entities := by_lm(lm, text):
                reply = lm.ask(ExtractTriples, text=text, entities=entities)
            else:
                reply = lm.ask(ExtractAllTriples, text=text)
            return facts_of(reply.values.get("triples") or [])

        return map_concurrently(read, list(map(str, self.corpus)), progress, "facts of passages")

    def _join(self, read: list[list[FactText]], lm: IndexLM, progress: Progress | None) -> None:
        self.facts_read = list(dict.fromkeys(chain.from_iterable(read)))
        self.phrases = list(dict.fromkeys(end for s, _, o in self.facts_read for end in (s, o)))
        self.__dict__.pop("ids", None)
        ids = self.ids
        of_passage = []
        for facts in read:
            ends = (ids[end] for s, _, o in facts for end in (s, o))
            of_passage.append(list(dict.fromkeys(ends)))
        phrases = list(chain.from_iterable(of_passage))
        self.spread = np.bincount(phrases, minlength=len(ids)).astype(np.int32)
        self.fact_vectors = self._embedded(list(map(in_words, self.facts_read)))
        self.phrase_vectors = self._embedded(self.phrases)
        weights: dict[tuple[int, int], float] = {}
        for subject, _, obj in chain.from_iterable(read):
            a = ids[subject]
            b = ids[obj]
            for edge in ((a, b), (b, a)):
                if a != b:
                    weights[edge] = weights.get(edge, 0.0) + 1
        for row, held in enumerate(of_passage):
            weights |= {(len(ids) + row, phrase): 1.0 for phrase in held}
        weights |= synonyms(self.phrases, self.phrase_vectors, _SYNONYM_COSINE)
        self.edges = np.array(list(weights), dtype=np.int32).reshape(-1, 2)
        self.weights = np.array(list(weights.values()), dtype=np.float32)


def synonyms(
    phrases: Sequence[str], rows: Vectors, threshold: float
) -> dict[tuple[int, int], float]:
    """Link each phrase to the phrases whose cosine is at least `threshold`.

    A phrase has at most 101 links. A phrase of one or two letters or digits has none.

    Args:
        phrases: Phrases.
        rows: Normalized vector of each phrase, shape (n, d).
        threshold: Smallest cosine of a link. Above 1 there are no links.

    Returns:
        Cosine of each linked pair of positions.
    """
    asking = []
    for place, text in enumerate(phrases):
        if len(regex.sub(r"[\W_]", "", text)) > _SHORT:
            asking.append(place)
    if not asking or threshold > 1:
        return {}
    index = make_index(np.ascontiguousarray(rows), "auto")
    depth = min(len(phrases), _SYNONYMS + 1)  # includes the phrase itself
    pairs: dict[tuple[int, int], float] = {}
    for phrase, hits in zip(asking, nearest(index, rows[asking], depth), strict=True):
        alike = []
        for i, score in hits:
            if i != phrase and score >= threshold:
                alike.append((i, score))
        pairs |= {(phrase, synonym): float(score) for synonym, score in alike[:_SYNONYMS]}
    return pairs


def cleaned(text: str) -> str:
    """Lower-case `text` and replace each character except letters, digits and blanks by a blank.

    Letters of all scripts keep their marks. The published code keeps only ASCII.
    """
    return _NOT_WORD.sub(" ", fold(str(text))).strip()


def facts_of(triples: Iterable[Mapping[str, Any]]) -> list[FactText]:
    """Clean the triples, each once, in order, without those that lack a subject or an object.

    Two triples that become equal when cleaned count as two, as in the published code.
    """
    rows: dict[tuple[str, ...], None] = {}
    for triple in triples:
        row = (triple.get("subject", ""), triple.get("relation", ""), triple.get("object", ""))
        rows[tuple(map(str, row))] = None
    facts = []
    for texts in rows:
        subject, relation, obj = map(cleaned, texts)
        if subject and obj:
            facts.append((subject, relation, obj))
    return facts


def in_words(fact: FactText) -> str:
    """Join subject, relation and object into one text."""
    return " ".join(filter(None, fact))
