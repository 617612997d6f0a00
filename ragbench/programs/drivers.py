"""What two or more programs share: fusing searches, reading confidences, tool loops, texts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Literal

from ragbench.metrics.text import tokens
from ragbench.programs.trace import estimate_tokens
from ragbench.retrievers.base import Passage, PerQuestion, Retriever
from ragbench.retrievers.dense import Dense
from ragbench.retrievers.embedders.base import Embedder
from ragbench.retrievers.hybrid import reciprocal_ranks
from ragbench.signatures.types import ToolCall

Fusion = Literal["rrf", "max_score"]

#: Shown in place of what a step found that did the same as the one before, with the same result.
REPEATED = "This was done before. Try something else, or finish."

#: The constant of reciprocal rank fusion (Cormack et al. 2009).
RRF_K = 60


def fuse(lists: Sequence[Sequence[Passage]], *, fusion: Fusion) -> list[Passage]:
    """The union of ranked `lists`, best first; equals stand in the order first seen.

    `rrf` scores a passage by the sum of 1 / (60 + rank) over the lists, `max_score` by its best
    score, which compares queries fairly only where scores are on one scale (cosine, not BM25).
    """
    scores: dict[str, float] = {}
    found: dict[str, Passage] = {}
    for passages in lists:
        ranks = reciprocal_ranks(passages, rrf_k=RRF_K)
        for passage in passages:
            pid = passage.pid
            found.setdefault(pid, passage)
            if fusion == "rrf":
                scores[pid] = scores.get(pid, 0.0) + ranks[pid]
            else:
                scores[pid] = max(scores.get(pid, passage.score), passage.score)
    best = sorted(found.values(), key=lambda p: -scores[p.pid])  # stable
    return [passage.scored(scores[passage.pid]) for passage in best]


def jaccard(a: str, b: str) -> float:
    """Shared words of the normalised texts over all their words, in [0, 1]; 1 for two blanks."""
    one, other = set(tokens(a)), set(tokens(b))
    return len(one & other) / len(one | other) if one | other else 1.0


def embedder_of(retriever: Retriever) -> Embedder | None:
    """The embedder that `retriever`, or the first of its parts that has one, searches with."""
    if isinstance(retriever, PerQuestion):
        return embedder_of(retriever.whole)
    if isinstance(retriever, Dense):
        return retriever.embedder
    return next(filter(None, map(embedder_of, retriever.parts)), None)


def cosine(embedder: Embedder, a: str, b: str) -> float:
    """Cosine of the vectors of the two texts, in [-1, 1]."""
    one, other = embedder.embed_queries([a, b])
    return float(one @ other)


def unit(value: Any, *, default: float = 0.0) -> float:
    """A stated confidence as a number in [0, 1]; above 1 up to 100 is read as percent.

    What is no number gives `default`.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        return default
    if math.isnan(number):
        return default
    return min(max(number / 100 if 1 < number <= 100 else number, 0.0), 1.0)


def sentences_of(passage: Passage) -> Sequence[str]:
    """The sentences of a passage; of one without a list of them, split at end marks."""
    return passage.sentences or _SENTENCE_END.split(passage.text.strip())


def first_sentence(text: str) -> str:
    """The first sentence of `text`, by its first end mark before a capital; all of it if none."""
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0].strip()


def is_answer(text: str) -> bool:
    """Whether `text` commits itself: not blank, nor a word for not knowing."""
    said = " ".join(tokens(text))
    return bool(said) and not _NO_ANSWER.match(said)


def newest_fitting(history: Sequence[ToolCall], max_tokens: int) -> list[ToolCall]:
    """The newest steps that fit; of a newest step too long by itself, the head of what it saw."""
    kept: list[ToolCall] = []
    left = max_tokens
    for call in reversed(history):
        size = estimate_tokens(call.model_dump_json())
        if size > left:
            if not kept:
                shortened = call.observation[: max_tokens * 4]
                kept.append(call.model_copy(update={"observation": shortened}))
            break
        kept.append(call)
        left -= size
    return kept[::-1]


def repeats_itself(history: Sequence[ToolCall]) -> bool:
    """Whether the last three steps are the same action with the same result."""
    return len(history) >= 3 and len({_done(call) for call in history[-3:]}) == 1


def _done(call: ToolCall) -> tuple[str, str, str]:
    return call.tool, call.argument, call.observation


def without_repeats(history: Sequence[ToolCall]) -> list[ToolCall]:
    """`history` as the model is shown it: a step that only repeats the one before says so."""
    shown: list[ToolCall] = []
    for before, call in zip([None, *history], history, strict=False):
        same = before is not None and _done(before) == _done(call)
        shown.append(call.model_copy(update={"observation": REPEATED}) if same else call)
    return shown


# An end mark after a lower-case word, so that initials ("J. R. Smith") do not end a sentence.
_SENTENCE_END = re.compile(r"(?<=[a-z0-9)\"'][.!?])\s+(?=[A-Z\"'(])")
_NO_ANSWER = re.compile(
    r"(unknown|none|na|n a|null|nothing|no answer|noanswer|unclear|unanswerable|undetermined"
    r"|not (known|found|mentioned|stated|specified|provided|given|available|enough|sure|clear).*"
    r"|(no|insufficient) (information|evidence|data).*|(i )?(do not|dont|cannot|cant) \w+.*)$"
)
