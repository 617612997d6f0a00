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

from ragbench.kept import KeptRows
from ragbench.ranges import Range
from ragbench.record import Call, total
from ragbench.retrievers.base import Corpus, Progress
from ragbench.retrievers.embedders import Embedder, Vectors
from ragbench.retrievers.embedders.base import normalized
from ragbench.retrievers.lm_index.base import STORED_FROM, LMIndex, open_replies
from ragbench.retrievers.lm_index.linear import by_pattern
from ragbench.retrievers.lm_index.replies import IndexLM, IndexReply, reply_key, reply_tokens
from ragbench.tokens import estimate_tokens

#: Passages that are rehearsed; what more of them take is scaled up from these.
SAMPLE = 1000
#: Fewest and most calls for each that is rehearsed: one that is cut is made twice. How many depend
#: on what was read is a guess, and none may; layers of summaries there are whatever these say.
_READING, _JOINING, _LAYERS = (1.0, 2.0), (0.0, 3.0), (0.5, 3.0)
#: Tokens of a reply that says nothing, and of one that is cut, once at its limit and once at twice
#: that, as a share of both calls.
_SHORTEST, _CUT = 2, 1.5


@dataclass(frozen=True)
class IndexAhead:
    """What is still to be asked for an index of the LM of `role`.

    `likely` are tokens of prompts and of replies if these are as long as usual. `kept` replies are
    there from before, which took `known` calls and tokens.
    """

    calls: Range = Range()
    prompt_tokens: Range = Range()
    reply_tokens: Range = Range()
    likely: tuple[int, int] = (0, 0)
    kept: int = 0
    known: tuple[int, int] = (0, 0)
    role: str = ""


@dataclass(frozen=True)
class _Call:
    prompt: int  # tokens
    reply: int
    longest: int
    longest_prompt: int  # made of replies that may be as long as they are allowed
    often: tuple[float, float]


class RehearsedLM(IndexLM):
    """Makes up each reply that is not kept, and counts it."""

    def __init__(self, rows: KeptRows, joining: tuple[float, float] = _JOINING) -> None:
        super().__init__(rows)
        self._often = joining
        self._made_up: dict[bytes, _Call] = {}

    def ask(self, signature: type[dspy.Signature], **inputs: Any) -> IndexReply:
        """As `IndexLM.ask`, but nobody is asked."""
        key = reply_key(signature, inputs)
        if (reply := self.kept(key)) is not None:
            self._used[key] = reply
            return reply
        values, prompt = _made_up(signature.__name__, inputs), prompt_tokens(signature, inputs)
        longest = reply_tokens(inputs)
        self._made_up[key] = _Call(
            prompt,
            estimate_tokens(str(values)),
            longest,
            prompt + longest * self.joining,
            self._often if self.joining else _READING,
        )
        return IndexReply(values, ())

    def ahead(self, scale: float = 1.0) -> IndexAhead:
        """What would be asked for `scale` times as many passages."""
        made, known = list(self._made_up.values()), total(self.calls)

        def spread(low: Callable[[_Call], float], high: Callable[[_Call], float]) -> Range:
            least = sum(low(call) * call.often[0] for call in made)
            return Range(
                int(scale * least), math.ceil(scale * sum(high(c) * c.often[1] for c in made))
            )

        return IndexAhead(
            spread(lambda call: 1, lambda call: 1),
            spread(lambda call: call.prompt, lambda call: call.longest_prompt),
            spread(lambda call: _SHORTEST, lambda call: _CUT * call.longest),
            (
                round(scale * sum(call.prompt for call in made)),
                round(scale * sum(call.reply for call in made)),
            ),
            round(scale * len(self._used)),
            (round(scale * known.calls), round(scale * known.tokens)),
        )


class WordVectors(Embedder):
    """Stands in for an embedder: texts that share words are alike."""

    def __init__(self) -> None:
        super().__init__("rehearsal")

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> tuple[Vectors, list[Call]]:
        rows = [sum(map(_word_vector, text.lower().split()), np.zeros(64)) for text in texts]
        return normalized(np.array(rows)), []


@cache
def _word_vector(word: str) -> Any:
    return np.random.default_rng(zlib.crc32(word.encode("utf-8", "replace"))).standard_normal(64)


def rehearsed(
    kind: type[LMIndex], corpora: Sequence[Corpus], **settings: Any
) -> tuple[list[LMIndex], IndexAhead]:
    """An index of each of `corpora`, or of some of their passages, and what all of them would take.

    Like the real ones, they share their replies. One that is stored takes nothing.
    """
    lm = RehearsedLM(open_replies(make=False), _LAYERS if kind.by_vectors else _JOINING)
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
            ahead = lm.ahead()
            return indexes, IndexAhead(kept=ahead.kept, known=ahead.known)
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
