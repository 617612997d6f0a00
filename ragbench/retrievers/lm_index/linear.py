"""The index of LinearRAG: entities, the sentences and passages that they stand in, and vectors.

Zhuang et al. 2025 (arXiv:2510.10114). No relation is extracted: an entity and a passage are joined
by an edge weighted by the entity's share of all entity mentions in the passage. Passages that
follow each other are joined as well, as published, where they are chunks (`adjacent=auto`); not
paragraphs, whose order in a pooled corpus is that of the questions they were collected for, so that
the passages of a question would be joined.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import dspy
import numpy as np
from pydantic import Field

from ragbench.errors import ConfigError, needs_extra
from ragbench.knobs import Knobs
from ragbench.retrievers.base import Corpus, Passage, Progress
from ragbench.retrievers.lm_index.base import (
    NONE,
    LMIndex,
    LMIndexSettings,
    WalkGraph,
    passage_text,
)
from ragbench.retrievers.lm_index.replies import IndexLM, at_once
from ragbench.retrievers.scores import min_max
from ragbench.retrievers.sentences import split_sentences
from ragbench.signatures import ExtractEntities

EntitySource = Literal["lm", "spacy", "regex"]

#: Numbers, of which LinearRAG makes no entities.
_NUMBERS = frozenset({"ORDINAL", "CARDINAL"})
_CAPITAL = r"[^\W\d_a-z]"
_WORD = rf"(?:(?:{_CAPITAL}\.)+|{_CAPITAL}(?:[\w'\u2019&-]|\.(?=\w))*)"
_LINK = r"(?:of|the|de|la|van|von|da|di|del)"
_NAME = re.compile(rf"{_WORD}(?:\s+(?:{_LINK}\s+){{0,2}}{_WORD})*")
#: Words that a sentence or a question begins with.
_OPENERS = frozenset(
    re.findall(
        r"\w+",
        """
    a an the this that these those he she it they we you i his her its their our my your
    who whom whose what which when where why how is are was were do does did has have had
    can could will would should may might must in on at by for from of to with as and or
    but if after before during since until while although though both between among there
    here name please also however
""",
    )
)


def entities_of(
    texts: Sequence[str],
    source: EntitySource,
    lm: IndexLM,
    *,
    pipeline: str = "",
    progress: Progress | None = None,
) -> list[list[str]]:
    """The entities of each text, in order, each once.

    `pipeline` is the name or folder of the spaCy pipeline, for the source "spacy".

    Raises:
        ConfigError: the pipeline cannot be loaded.
        dspy.LMError: the LM's provider failed.
    """
    if source == "lm":
        return at_once(lambda text: by_lm(lm, text), texts, progress, "entities of passages")
    if source == "spacy":
        docs = load_pipeline(pipeline).pipe(texts)
        names = [by_spacy(doc) for doc in docs]
    else:
        names = [by_pattern(text) for text in texts]
    if progress and texts:
        progress(len(texts), len(texts))
    return names


def by_lm(lm: IndexLM, text: str) -> list[str]:
    """The entities that the LM lists."""
    return plain_names(lm.ask(ExtractEntities, text=text).values.get("entities") or [])


def by_spacy(doc: Any) -> list[str]:
    """The entities of a spaCy document, numbers left out."""
    return plain_names(ent.text for ent in doc.ents if ent.label_ not in _NUMBERS)


def by_pattern(text: str) -> list[str]:
    """Runs of capitalised words, without the word that opens a sentence."""
    names = []
    for match in _NAME.finditer(text):
        words = match.group().rstrip("'\u2019&-").split()
        while words and words[0].lower() in _OPENERS:
            words.pop(0)
        names.append(" ".join(words))
    return plain_names(name for name in names if len(name) > 1)


def plain_names(names: Iterable[Any]) -> list[str]:
    """`names` with blanks made single, none blank, each once, in order."""
    return list(dict.fromkeys(filter(None, (" ".join(str(name).split()) for name in names))))


@cache
def load_pipeline(name: str) -> Any:
    """The installed spaCy pipeline `name`, or the one in that folder.

    Raises:
        MissingExtraError: spaCy is not installed.
        ConfigError: the pipeline is not.
    """
    if not name:
        raise ConfigError(
            "entities=spacy needs a pipeline; give --set spacy_pipeline=NAME, such as "
            "en_core_web_trf, of one that is installed"
        )
    with needs_extra("entities=spacy", "take --set entities=lm"):
        import spacy
    try:
        return spacy.load(name)
    except OSError:
        raise ConfigError(
            f"spaCy has no pipeline {name!r}; install it, give the folder it is in, or take "
            "--set entities=lm"
        ) from None


@dataclass(frozen=True)
class Bridging:
    """The limits of bridging; `max_iterations` counts the seeds, so 3 is two hops beyond them."""

    max_iterations: int = 3
    top_k_sentence: int = 1
    threshold: float = 0.5


@dataclass
class Activated:
    """Entities that were reached.

    `weights` are the scores of every time an entity was reached, added up; `last` holds the score
    and the tier of the last time, tier 1 for the question's own.
    """

    weights: dict[int, float] = field(default_factory=dict)
    last: dict[int, tuple[float, int]] = field(default_factory=dict)


class LinearSettings(LMIndexSettings):
    """What decides a LinearRAG index."""

    entities: EntitySource = Field("lm", description="what finds entities; regex renames results")
    spacy_pipeline: str = Field("", description="spacy: name or folder of an installed pipeline")
    adjacent: Literal["auto", "on", "off"] = Field(
        "auto", description="index: join passages that follow each other; auto: only chunks"
    )


class LinearIndex(LMIndex):
    """Entities of a corpus, joined to its sentences and passages.

    Nodes 0 to e - 1 are the entities, the passages come after them.
    """

    name = "linear"
    Settings: ClassVar[type[Knobs]] = LinearSettings
    arrays = (
        "entity_vectors",
        "sentence_vectors",
        "sentences_at",
        "sentences",
        "entities_at",
        "entities",
        "edges",
        "weights",
    )
    values: ClassVar[Mapping[str, Any]] = {"names": list[str]}
    lengths: ClassVar[Mapping[str, str]] = {
        "entities": "names",
        "sentences": "sentence_vectors",
        "edges": "edges",
    }

    names: Sequence[str] = ()
    entity_vectors = sentence_vectors = NONE
    # Sentences of entity i: sentences[sentences_at[i]:sentences_at[i + 1]]; likewise entities.
    sentences_at = entities_at = np.zeros(1, dtype=np.int64)
    sentences = entities = np.zeros(0, dtype=np.int32)
    edges, weights = np.zeros((0, 2), dtype=np.int32), np.zeros(0, dtype=np.float32)

    def __init__(self, corpus: Corpus, *, lm: str = "", **settings: Any) -> None:
        super().__init__(corpus, lm=lm, **settings)
        self._counts: dict[int, Mapping[int, int]] = {}

    @classmethod
    def asked(cls, settings: Any) -> tuple[type[dspy.Signature], ...]:
        """The LM is asked for entities, or nobody is."""
        return (ExtractEntities,) if settings.entities == "lm" else ()

    def seeds(self, mentions: Sequence[str]) -> list[tuple[int, float]]:
        """The entity nearest to each of `mentions`, with its cosine."""
        wanted = list(dict.fromkeys(mention.lower() for mention in mentions))
        if not wanted or not self.names:
            return []
        cosines = self.embedder.embed(wanted) @ self.entity_vectors.T
        return [(int(row.argmax()), float(row.max())) for row in cosines]

    def activated(
        self, question: str, seeds: Sequence[tuple[int, float]], bridging: Bridging
    ) -> Activated:
        """The entities that `seeds`, entities with their scores, lead to.

        In each iteration every entity of the one before that has at least the threshold takes its
        `top_k_sentence` sentences most similar to `question` among those that none took before it.
        Each entity of such a sentence scores the parent's score times the sentence's similarity,
        and is dropped under the threshold. A seed given twice has its last score.
        """
        vector = self.embedder.embed([question])[0]
        activated = Activated(dict(seeds), {entity: (score, 1) for entity, score in seeds})
        current = dict(activated.last)
        used: set[int] = set()
        for iteration in range(1, bridging.max_iterations):
            reached: dict[int, tuple[float, int]] = {}
            for entity, (score, _) in current.items():
                if score < bridging.threshold:
                    continue
                free = [
                    s for s in _part(self.sentences, self.sentences_at, entity) if s not in used
                ]
                alike = (self.sentence_vectors[free] @ vector).tolist()
                ranked = sorted(zip(alike, free, strict=True), key=lambda s: (-s[0], s[1]))
                for similarity, sentence in ranked[: bridging.top_k_sentence]:
                    used.add(sentence)
                    new = score * similarity
                    if new < bridging.threshold:
                        continue
                    for other in _part(self.entities, self.entities_at, sentence):
                        activated.weights[other] = activated.weights.get(other, 0.0) + new
                        reached[other] = (new, iteration + 1)
            activated.last.update(reached)
            current = reached
        return activated

    def starts(self, question: str, activated: Activated, *, passage_ratio: float) -> Any:
        """The weight of each passage at which walks start, shape `(n,)`, not yet scaled."""
        weights = passage_ratio * min_max(self.dense_scores(question))
        occurrences: dict[int, dict[int, int]] = {}
        for entity in activated.last:
            for row, count in self._occurrences(entity).items():
                occurrences.setdefault(row, {})[entity] = count
        for row, counts in occurrences.items():
            weights[row] += mention_bonus(counts, activated)
        return weights

    def walk(self, activated: Activated, starts: Any, *, damping: float) -> Any:
        """The share of each passage in walks from the entities found and `starts`, shape `(n,)`."""
        reset = np.zeros(len(self.names) + len(self.corpus))
        for entity, weight in activated.weights.items():
            reset[entity] = weight
        reset[len(self.names) :] = starts
        return self._walks.pagerank(reset, damping=damping)[len(self.names) :]

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[list[str]]:
        return entities_of(
            [str(passage) for passage in self.corpus],
            self.settings.entities,
            lm,
            pipeline=self.settings.spacy_pipeline,
            progress=progress,
        )

    def _join(self, read: list[list[str]], lm: IndexLM, progress: Progress | None) -> None:
        held: dict[str, dict[str, None]] = {}  # sentence -> entities
        ids: dict[str, int] = {}
        edges: list[tuple[int, int, float]] = []
        missing = 0
        for position, (passage, listed) in enumerate(zip(self.corpus, read, strict=True)):
            text = passage_text(passage)
            spelled_in_text = [spelled for name in listed if (spelled := in_text(name, text))]
            missing += len(listed) - len(spelled_in_text)
            names = list(dict.fromkeys(spelled_in_text))
            total = sum(map(text.count, names))
            for name in names:
                entity = ids.setdefault(name, len(ids))
                edges.append((position, entity, text.count(name) / total))
            for sentence in sentences_of(passage):
                inside = [name for name in names if holds(sentence, name)]
                if inside:
                    held.setdefault(sentence, {}).update(dict.fromkeys(inside))
        self.names = list(ids)
        self.counts["entities_not_in_text"] = missing
        self._fill(edges, [[ids[name] for name in names] for names in held.values()])
        self.entity_vectors = self._embedded(self.names)
        self.sentence_vectors = self._embedded(list(held))

    def _fill(self, edges: Sequence[tuple[int, int, float]], held: list[list[int]]) -> None:
        of_entity: list[list[int]] = [[] for _ in self.names]
        for sentence, entities in enumerate(held):
            for entity in entities:
                of_entity[entity].append(sentence)
        self.sentences_at, self.sentences = _flat(of_entity)
        self.entities_at, self.entities = _flat(held)
        first = len(self.names)
        pairs = [(first + position, entity) for position, entity, _ in edges]
        weights = [weight for _, _, weight in edges]
        adjacent = self.settings.adjacent
        if adjacent == "on" or (adjacent == "auto" and self.corpus.view == "chunk"):
            pairs += [(first + i, first + i + 1) for i in range(len(self.corpus) - 1)]
        weights += [1.0] * (len(pairs) - len(weights))
        self.edges = np.array(pairs, dtype=np.int32).reshape(-1, 2)
        self.weights = np.array(weights, dtype=np.float32)

    @cached_property
    def _walks(self) -> WalkGraph:
        return WalkGraph(len(self.names) + len(self.corpus), self.edges, self.weights)

    @cached_property
    def _texts(self) -> list[str]:
        return [passage_text(passage).lower() for passage in self.corpus]

    def _occurrences(self, entity: int) -> Mapping[int, int]:
        """How often each passage that holds it has the entity's name in it, whatever the case."""
        if entity not in self._counts:
            name = self.names[entity].lower()
            counts = ((row, text.count(name)) for row, text in enumerate(self._texts))
            self._counts[entity] = {row: count for row, count in counts if count}
        return self._counts[entity]


def sentences_of(passage: Passage) -> list[str]:
    """The sentences of `passage`, the first with the title before it."""
    sentences = list(passage.sentences or split_sentences(passage.text))
    if passage.title:
        sentences[:1] = [f"{passage.title} {' '.join(sentences[:1])}".strip()]
    return sentences


def in_text(name: str, text: str) -> str:
    """`name` as `text` writes it: as it stands, or whatever the case; empty where it is not."""
    if name in text:
        return name
    match = re.search(re.escape(name), text, re.IGNORECASE)
    return match.group() if match else ""


def holds(text: str, name: str) -> bool:
    """Whether `name` stands in `text` as whole words."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Lists one after the other, and where each begins, shape `(len(lists) + 1,)`."""
    starts = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in lists], out=starts[1:])
    return starts, np.array([i for one in lists for i in one], dtype=np.int32)


def _part(flat: Any, starts: Any, which: int) -> list[int]:
    """One of the lists that `_flat` put one after the other."""
    part: list[int] = flat[starts[which] : starts[which + 1]].tolist()
    return part


def mention_bonus(occurrences: Mapping[int, int], activated: Activated) -> float:
    """What a passage gains for the activated entities in its text, given how often each occurs.

    log(1 + sum of score * log(1 + count) / tier).
    """
    total = 0.0
    for entity, count in occurrences.items():
        score, tier = activated.last[entity]
        total += score * math.log1p(count) / tier
    return math.log1p(max(total, 0.0))
