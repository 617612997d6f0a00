"""An index made without asking anybody, to know what making it would take.

Replies that are kept are used; the others are made up of the passages' own words, so that clusters
are computed, descriptions merged and communities found as they will be, and a question can be
rehearsed over the result. Vectors are sums of a random vector per word, but where those of few
passages decide what is asked.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import dspy
import numpy as np

from ragbench.ranges import Range
from ragbench.record import Call
from ragbench.retrievers.base import Corpus, Progress
from ragbench.retrievers.embedders import Embedder, Vectors
from ragbench.retrievers.embedders.base import normalized
from ragbench.retrievers.lm_index.base import STORED_FROM, LMIndex, open_replies
from ragbench.retrievers.lm_index.linear import by_pattern
from ragbench.retrievers.lm_index.replies import IndexLM, IndexReply, ReplyStore, reply_key
from ragbench.tokens import estimate_tokens

#: Passages that are rehearsed; what more of them take is scaled up from these.
SAMPLE = 1000
#: Fewest and most calls for each that is rehearsed: one that is cut is made twice, and how many
#: depend on what was read is a guess. Real replies are taken to be a fifth to four times as long.
_READING, _JOINING, _LENGTH = (1.0, 2.0), (0.5, 3.0), (0.2, 4.0)


@dataclass(frozen=True)
class Ahead:
    """What is still to be asked for an index, and the number of replies that are kept."""

    calls: Range = Range()
    prompt_tokens: Range = Range()
    reply_tokens: Range = Range()
    kept: int = 0


@dataclass(frozen=True)
class _Call:
    prompt_tokens: int
    reply_tokens: int
    often: tuple[float, float]


class RehearsedLM(IndexLM):
    """Makes up each reply that is not kept, and counts it."""

    def __init__(self, store: ReplyStore) -> None:
        super().__init__(store)
        self.made_up: dict[str, _Call] = {}
        self.kept: set[str] = set()

    def ask(self, signature: type[dspy.Signature], **inputs: Any) -> IndexReply:
        """As `IndexLM.ask`, but nobody is asked."""
        key = reply_key(signature, inputs)
        reply = self.store.get(key)
        if reply is not None:
            self.kept.add(key)
            return reply
        values = _made_up(signature.__name__, inputs)
        often = _JOINING if self.joining else _READING
        tokens = prompt_tokens(signature, inputs), estimate_tokens(str(values))
        self.made_up[key] = _Call(*tokens, often)
        return IndexReply(values, ())

    def ahead(self, scale: float = 1.0) -> Ahead:
        """What would be asked for `scale` times as many passages."""

        def spread(weight: Callable[[_Call], float], more: tuple[float, float]) -> Range:
            sums = [sum(weight(c) * c.often[i] for c in self.made_up.values()) for i in (0, 1)]
            return Range(int(scale * more[0] * sums[0]), math.ceil(scale * more[1] * sums[1]))

        return Ahead(
            spread(lambda call: 1, (1, 1)),
            spread(lambda call: call.prompt_tokens, (1, 1)),
            spread(lambda call: call.reply_tokens, _LENGTH),
            round(scale * len(self.kept)),
        )


class WordVectors(Embedder):
    """Stands in for an embedder: texts that share words are alike."""

    def __init__(self) -> None:
        super().__init__("rehearsal")

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> tuple[Vectors, list[Call]]:
        rows = [sum(map(_word_vector, text.lower().split()), np.zeros(64)) for text in texts]
        return normalized(np.array(rows)), []

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """As `embed`; nothing is kept or filed."""
        return self.embed(texts)


@cache
def _word_vector(word: str) -> Any:
    return np.random.default_rng(zlib.crc32(word.encode("utf-8", "replace"))).standard_normal(64)


def rehearsed(
    kind: type[LMIndex], corpora: Sequence[Corpus], **settings: Any
) -> tuple[list[LMIndex], Ahead]:
    """An index of each of `corpora`, or of some of their passages, and what all of them would take.

    Like the real ones, they share their replies. One that is stored takes nothing.
    """
    lm = RehearsedLM(open_replies(make=False))
    indexes = []
    sample = _sample(corpora)
    for corpus in sample:
        index = kind(corpus, **settings)
        few = len(corpus) < STORED_FROM
        if not (kind.by_vectors and few and index.embedder.in_process):
            index.embedder = WordVectors()
        index.make_with(lm)
        index._ready = True
        indexes.append(index)
    if len(corpora) == 1 and len(corpora[0]) >= STORED_FROM:
        made = kind(corpora[0], **settings)
        if made.is_stored_whole():
            return indexes, Ahead(kept=lm.ahead().kept)
    return indexes, lm.ahead(sum(map(len, corpora)) / max(1, sum(map(len, sample))))


def _sample(corpora: Sequence[Corpus]) -> Sequence[Corpus]:
    passages = sum(map(len, corpora))
    if passages <= SAMPLE:
        return corpora
    if len(corpora) == 1:
        rows = np.linspace(0, passages - 1, SAMPLE).astype(int).tolist()
        return [corpora[0].subset(rows)]
    return corpora[:: math.ceil(passages / SAMPLE)]


def prompt_tokens(signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> int:
    """Tokens of the prompt for `inputs`, estimated, as the current adapter writes it."""
    messages = (dspy.settings.adapter or dspy.ChatAdapter()).format(signature, [], dict(inputs))
    return sum(estimate_tokens(str(message.get("content") or "")) for message in messages)


def _made_up(signature: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A reply of plausible length: names are runs of capitalised words, each related to the next.

    A summary is the first half of the words that may be written, which most models stay under.
    """
    if "max_words" in inputs:
        told = " ".join([*inputs.get("texts", ()), *inputs.get("entities", ())]).split()
        text = " ".join(told[: max(1, inputs["max_words"] // 2)])
        return {"summary": text, "title": text[:80], "rating": 5.0, "findings": []}
    names = by_pattern(inputs["text"])
    if signature == "ExtractEntities":
        return {"entities": names}
    if "known" not in inputs:
        rows = [
            {"subject": a, "relation": "is related to", "object": b} for a, b in pairwise(names)
        ]
        return {"triples": rows}
    said = " ".join(inputs["text"].split()[:20])
    entities = [{"name": name, "type": "event", "description": said} for name in names]
    related = [
        {"source": a, "target": b, "description": said, "strength": 5, "keywords": [a, b]}
        for a, b in pairwise(names)
    ]
    return {"entities": entities, "relations": related}
