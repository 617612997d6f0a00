"""Build the index of LinearRAG: entities, the sentences and passages that name them, and vectors.

Zhuang et al. 2025 (arXiv:2510.10114). No relation is extracted. An edge joins an entity and a
passage. Its weight is the entity's share of all mentions in the passage. As published, consecutive
chunks are joined too (`adjacent=auto`). Paragraphs are not: in a pooled corpus their order is that
of the questions, so the passages of one question would be joined.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import dspy
import numpy as np
import regex
from pydantic import Field

from ragbench.errors import ConfigError, needs_extra
from ragbench.passages import Passage
from ragbench.retrievers.base import Progress
from ragbench.retrievers.lm_index.base import NONE, LMIndexSettings, WalkIndex, passage_text
from ragbench.retrievers.lm_index.replies import IndexLM, map_concurrently
from ragbench.retrievers.scores import min_max
from ragbench.sentences import split_sentences
from ragbench.signatures import ExtractEntities
from ragbench.text_normalization import clean, fold, words

#: Numbers, of which LinearRAG makes no entities.
_NUMBERS = frozenset({"ORDINAL", "CARDINAL"})
_CAPITAL = r"[^\W\d_a-z\p{M}]"
_WORD = rf"(?:(?:{_CAPITAL}\.)+|{_CAPITAL}(?:[\w'\u2019&-]|\.(?=\w))*)"
_LINK = r"(?:of|the|de|la|van|von|da|di|del)"
_NAME = regex.compile(rf"{_WORD}(?:\s+(?:{_LINK}\s+){{0,2}}{_WORD})*")
#: Words that a sentence or a question begins with.
_OPENERS = frozenset(
    words(
        "a an the this that these those he she it they we you i his her its their our my your "
        "who whom whose what which when where why how is are was were do does did has have had "
        "can could will would should may might must in on at by for from of to with as and or "
        "but if after before during since until while although though both between among there "
        "here name please also however"
    )
)


def by_lm(lm: IndexLM, text: str) -> list[str]:
    """Return the entities of a text that the LM lists.

    Args:
        lm: LM of the index.
        text: Text to read.
    """
    return plain_names(lm.ask(ExtractEntities, text=text).values.get("entities") or [])


def by_spacy(texts: Sequence[str], pipeline: str) -> list[list[str]]:
    """Return the entities of each text by spaCy, without numbers.

    Args:
        texts: Texts to read.
        pipeline: Name or folder of a spaCy pipeline.
    """
    mentions = []
    for doc in _load_pipeline(pipeline).pipe(texts):
        mentions.append(plain_names(e.text for e in doc.ents if e.label_ not in _NUMBERS))
    return mentions


def by_pattern(text: str) -> list[str]:
    """Return runs of capitalized words, without the word that opens a sentence."""
    mentions = []
    for name in _NAME.findall(text):
        run = name.rstrip("'\u2019&-").split()
        while run and run[0].lower() in _OPENERS:
            run.pop(0)
        mentions.append(" ".join(run))
    return plain_names(name for name in mentions if len(name) > 1)


def plain_names(mentions: Iterable[Any]) -> list[str]:
    """Return `mentions` with single blanks, without blanks and repeats, in order."""
    return list(dict.fromkeys(filter(None, (" ".join(str(name).split()) for name in mentions))))


@cache
def _load_pipeline(name: str) -> Any:
    if not name:
        raise ConfigError(
            "entities=spacy needs a pipeline; give --set spacy_pipeline=NAME, such as "
            "en_core_web_trf, of one that is installed"
        )
    with needs_extra("entities=spacy (entities=lm does not)"):
        import spacy
    try:
        return spacy.load(name)
    except OSError:
        raise ConfigError(
            f"spaCy has no pipeline {name!r}; install it, give the folder it is in, or take "
            "--set entities=lm"
        ) from None


@dataclass
class Activated:
    """Entities that were reached.

    `weights` are the scores of every time an entity was reached, added up. `latest` has the score
    and the tier of the last time, tier 1 for the question's own.
    """

    weights: dict[int, float]
    latest: dict[int, tuple[float, int]]


class LinearSettings(LMIndexSettings):
    """Settings of a LinearRAG index."""

    entities: Literal["lm", "spacy", "regex"] = Field(
        "lm", description="what finds entities; regex renames results"
    )
    spacy_pipeline: str = Field("", description="spacy: name or folder of an installed pipeline")
    adjacent: Literal["auto", "on", "off"] = Field(
        "auto", description="index: join passages that follow each other; auto: only chunks"
    )


class LinearIndex(WalkIndex):
    """Entities of a corpus, joined to its sentences and passages."""

    name = "linear"
    index_version = 4
    node_attribute = "names"
    essential = ("edges",)
    Settings = LinearSettings
    arrays = ("entity_vectors", "sentence_vectors", "edges", "weights")
    values = {  # noqa: RUF012
        "names": list[str],
        "sentences": list[list[int]],
        "entities": list[list[int]],
    }
    lengths = {  # noqa: RUF012
        "entities": "names",
        "sentences": "entities",
        "edges": "edges",
    }

    names: Sequence[str] = ()
    #: Sentence numbers of each entity, and entity numbers of each sentence.
    sentences: Sequence[Sequence[int]] = ()
    entities: Sequence[Sequence[int]] = ()
    entity_vectors = sentence_vectors = NONE

    @classmethod
    def asked(cls, settings: Any) -> tuple[type[dspy.Signature], ...]:
        """Return the entity signature if the LM finds the entities."""
        if settings.entities == "lm":
            return (ExtractEntities,)
        return ()

    def seeds(self, mentions: Sequence[str]) -> list[tuple[int, float]]:
        """Return the entity nearest to each of `mentions`, with its cosine."""
        lowered = list(dict.fromkeys(mention.lower() for mention in mentions))
        if not lowered or not self.names:
            return []
        cosines = self.embedder.embed(lowered) @ self.entity_vectors.T
        return [(int(row.argmax()), float(row.max())) for row in cosines]

    def activated(
        self,
        question: str,
        seeds: Sequence[tuple[int, float]],
        *,
        max_iterations: int = 3,
        top_k_sentence: int = 1,
        threshold: float = 0.5,
    ) -> Activated:
        """Return the entities that are reached from `seeds`.

        In each iteration, every entity of the previous one with at least `threshold` takes its most
        similar unused sentences. Each entity of such a sentence scores the parent's score times the
        sentence's similarity, and is dropped below the threshold.

        Args:
            question: Text that sentences are compared with.
            seeds: Entities with their scores. The last score of a repeated seed counts.
            max_iterations: Iterations including the seeds, so 3 means two hops.
            top_k_sentence: Sentences per entity.
            threshold: Minimum score.
        """
        vector = self.embedder.embed([question])[0]
        activated = Activated(dict(seeds), {entity: (score, 1) for entity, score in seeds})
        current = dict(activated.latest)
        used: set[int] = set()
        for iteration in range(1, max_iterations):
            reached: dict[int, tuple[float, int]] = {}
            for entity, (score, _) in current.items():
                if score < threshold:
                    continue
                free = [sentence for sentence in self.sentences[entity] if sentence not in used]
                alike = (self.sentence_vectors[free] @ vector).tolist()
                ranked = sorted(zip(alike, free, strict=True), key=lambda s: (-s[0], s[1]))
                for similarity, sentence in ranked[:top_k_sentence]:
                    used.add(sentence)
                    new = score * similarity
                    if new < threshold:
                        continue
                    for neighbour in self.entities[sentence]:
                        activated.weights[neighbour] = activated.weights.get(neighbour, 0.0) + new
                        reached[neighbour] = (new, iteration + 1)
            activated.latest.update(reached)
            current = reached
        return activated

    def starts(self, question: str, activated: Activated, *, passage_ratio: float) -> Any:
        """Return the unscaled start weight of each passage, shape `(n,)`.

        Args:
            question: Text of the question.
            activated: Activated entities with their scores and tiers.
            passage_ratio: Weight of the cosine of question and passage.
        """
        weights = passage_ratio * min_max(self.cosines(question, self.passages))
        # A passage gains log(1 + sum of score * log(1 + count) / tier) over the entities in it.
        sums = [0.0] * len(self.corpus)
        for entity, (score, tier) in activated.latest.items():
            name = fold(self.names[entity])
            for row, text in enumerate(self._texts):
                if count := text.count(name):
                    sums[row] += score * math.log1p(count) / tier
        for row, mentioned in enumerate(sums):
            weights[row] += math.log1p(max(mentioned, 0.0))
        return weights

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[list[str]]:
        texts = list(map(str, self.corpus))
        if self.settings.entities == "spacy":
            return by_spacy(texts, self.settings.spacy_pipeline)
        if self.settings.entities == "regex":
            return [by_pattern(clean(text)) for text in texts]
        return map_concurrently(
            lambda text: by_lm(lm, text), texts, progress, "entities of passages"
        )

    def _join(self, read: list[list[str]], lm: IndexLM, progress: Progress | None) -> None:
        held: dict[str, dict[str, None]] = {}  # sentence -> entities
        ids: dict[str, int] = {}
        shares: list[tuple[int, int, float]] = []
        missing = 0
        for position, (passage, listed) in enumerate(zip(self.corpus, read, strict=True)):
            text = clean(passage_text(passage))
            spelled_in_text = []
            for name in listed:
                if spelled := in_text(clean(name), text):
                    spelled_in_text.append(spelled)
            missing += len(listed) - len(spelled_in_text)
            mentions = list(dict.fromkeys(spelled_in_text))
            total = sum(map(text.count, mentions))
            for name in mentions:
                entity = ids.setdefault(name, len(ids))
                shares.append((position, entity, text.count(name) / total))
            for sentence in sentences_of(passage):
                inside = [name for name in mentions if holds(sentence, name)]
                if inside:
                    held.setdefault(sentence, {}).update(dict.fromkeys(inside))
        self.names = list(ids)
        self.counts["entities_not_in_text"] = missing
        n_entities = len(ids)
        by_entity: list[list[int]] = [[] for _ in ids]
        by_sentence = []
        for number, inside_sentence in enumerate(held.values()):
            entities = [ids[name] for name in inside_sentence]
            by_sentence.append(entities)
            for entity in entities:
                by_entity[entity].append(number)
        self.entities = by_sentence
        self.sentences = by_entity
        edges = []
        weights = []
        for position, entity, share in shares:
            edges.append((n_entities + position, entity))
            weights.append(share)
        adjacent = self.settings.adjacent
        if adjacent == "on" or (adjacent == "auto" and self.corpus.view == "chunk"):
            for node in range(n_entities, n_entities + len(self.corpus) - 1):
                edges.append((node, node + 1))
                weights.append(1.0)
        self.edges = np.array(edges, dtype=np.int32).reshape(-1, 2)
        self.weights = np.array(weights, dtype=np.float32)
        self.entity_vectors = self._embedded(self.names)
        self.sentence_vectors = self._embedded(list(held))

    @cached_property
    def _texts(self) -> list[str]:
        return [fold(passage_text(passage)) for passage in self.corpus]


def sentences_of(passage: Passage) -> list[str]:
    """Return the sentences of `passage`. The title precedes the first one."""
    sentences = list(map(clean, passage.sentences or split_sentences(passage.text)))
    if passage.title:
        sentences[:1] = [f"{clean(passage.title)} {' '.join(sentences[:1])}".strip()]
    return sentences


def in_text(name: str, text: str) -> str:
    """Return `name` as spelled in `text`, ignoring case. Empty if it does not occur.

    Args:
        name: Name to find.
        text: Text to search.
    """
    if name in text:
        return name
    match = re.search(re.escape(name), text, re.IGNORECASE)
    if match:
        return match.group()
    return ""


def holds(text: str, name: str) -> bool:
    """Return True if `text` contains `name` as whole words.

    Args:
        text: Text to search.
        name: Name to find.
    """
    return regex.search(rf"(?<!\w){regex.escape(name)}(?!\w)", text) is not None
