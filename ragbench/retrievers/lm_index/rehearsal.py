"""An index made without asking anybody, to know what making it would take.

Replies that are kept are used; the others are made up of the passages' own words, so that clusters
are computed, descriptions merged and communities found as they will be, and a question can be
rehearsed over the result. Vectors are sums of a random vector per word, but where those of few
passages decide what is asked.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import dspy
import numpy as np

from ragbench.kept import KeptRows
from ragbench.passages import Corpus
from ragbench.ranges import Range
from ragbench.record import Call, total
from ragbench.retrievers.base import Progress
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


class RehearsedLM(IndexLM):
    """Makes up each reply that is not kept, and counts it."""

    def __init__(self, rows: KeptRows, joining: tuple[float, float]) -> None:
        super().__init__(rows)
        self._often = joining
        #: Calls, tokens of the prompt and of the reply: at the least, at the most, and as usual.
        self._made_up: dict[bytes, Any] = {}

    def ask(self, signature: type[dspy.Signature], **inputs: Any) -> IndexReply:
        key = reply_key(signature, inputs)
        if (reply := self.kept(key)) is not None:
            self._used[key] = reply
            return reply
        values = _made_up(signature.__name__, inputs)
        longest = reply_tokens(inputs)
        adapter = dspy.settings.adapter or dspy.ChatAdapter()
        messages = adapter.format(signature, [], dict(inputs))
        prompt = sum(estimate_tokens(str(message.get("content") or "")) for message in messages)
        low, high = self._often if self.joining else _READING
        # Prompts that come after others may be made of replies that are as long as they may be.
        most = 1, prompt + longest * self.joining, _CUT * longest
        usual = 1, prompt, estimate_tokens(str(values))
        self._made_up[key] = np.array(
            [np.multiply(low, (1, prompt, _SHORTEST)), np.multiply(high, most), usual]
        )
        return IndexReply(values, ())

    def ahead(self, scale: float = 1.0) -> IndexAhead:
        """Returns what would be asked for `scale` times as many passages."""
        totals = total(self.calls)
        least, most, usual = scale * sum(self._made_up.values(), np.zeros((3, 3)))
        calls, prompts, replies = (
            Range(int(low), math.ceil(high)) for low, high in zip(least, most, strict=True)
        )
        return IndexAhead(
            calls,
            prompts,
            replies,
            likely=(round(usual[1]), round(usual[2])),
            kept=round(scale * len(self._used)),
            known=(round(scale * totals.calls), round(scale * totals.tokens)),
        )


class WordVectors(Embedder):
    """Stands in for an embedder: texts that share words are alike."""

    def __init__(self) -> None:
        super().__init__("rehearsal")

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> tuple[Vectors, list[Call]]:
        rows = []
        for text in texts:
            rows.append(sum(map(_word_vector, text.lower().split()), np.zeros(64)))
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
    passages = sum(map(len, corpora))
    sample = corpora
    if passages > SAMPLE and len(corpora) == 1:
        sample = [corpora[0].subset(np.linspace(0, passages - 1, SAMPLE).astype(int).tolist())]
    elif passages > SAMPLE:
        sample = corpora[:: math.ceil(passages / SAMPLE)]
    indexes = []
    for corpus in sample:
        index = kind(corpus, **settings)
        few = len(corpus) < STORED_FROM
        if not (kind.by_vectors and few and index.embedder.in_process):
            index.embedder = WordVectors()
        index.make_with(lm)
        index._ready = True
        indexes.append(index)
    ahead = lm.ahead(passages / max(1, sum(map(len, sample))))
    if (
        len(corpora) == 1
        and passages >= STORED_FROM
        and kind(corpora[0], **settings).is_stored_whole()
    ):
        ahead = IndexAhead(kept=ahead.kept, known=ahead.known)
    return indexes, ahead


def _made_up(signature: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a reply of plausible length; names are runs of capitalised words, related in turn.

    A summary is the first half of the words that may be written, which most models stay under.
    """
    if "max_words" in inputs:
        tokens = " ".join([*inputs.get("texts", ()), *inputs.get("entities", ())]).split()
        text = " ".join(tokens[: max(1, inputs["max_words"] // 2)])
        return {"summary": text, "title": text[:80], "rating": 5.0, "findings": []}
    mentions = by_pattern(inputs["text"])
    if signature == "ExtractEntities":
        return {"entities": mentions}
    if "known" not in inputs:
        rows = []
        for a, b in pairwise(mentions):
            rows.append({"subject": a, "relation": "is related to", "object": b})
        return {"triples": rows}
    opening = " ".join(inputs["text"].split()[:20])
    entities = []
    for name in mentions:
        entities.append({"name": name, "type": "event", "description": opening})
    related = []
    for a, b in pairwise(mentions):
        related.append(
            {"source": a, "target": b, "description": opening, "strength": 5, "keywords": [a, b]}
        )
    return {"entities": entities, "relations": related}
