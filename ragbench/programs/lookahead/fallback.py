"""When a plan has brought too little, and the queries that are tried then, without an LM call."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ragbench.data import question_key
from ragbench.programs.lookahead.graph import LookedUp, Node, PlanGraph
from ragbench.retrievers import TextSettings, Words

#: Stated confidence of a look-up that the fallback adds.
CONFIDENCE = 0.4
#: Words of the question that make its keyword query.
KEYWORDS = 5

_QUESTION_WORDS = re.compile(
    r"\b(who|whom|whose|what|when|where|why|which|how|is|are|was|were|do|does|did)\b|\?",
    re.IGNORECASE,
)


class Limits(NamedTuple):
    """What a plan must reach for there to be no fallback."""

    passages: int
    coverage: float
    entropy: float
    confidence: float
    critical: bool = True


def triggers(graph: PlanGraph, looked_up: Sequence[LookedUp], limits: Limits) -> list[str]:
    """Why more is searched; empty where nothing calls for it.

    passages: fewer different ones than the limit. coverage: a smaller share of the look-ups found
    passages, and what others wanted of them, than the limit. entropy: mean binary entropy of the
    stated confidences, in [0, 1], above its limit. confidence: their mean below its limit.
    critical: a look-up that others wait for failed so, if that counts.
    """
    passages = {passage.pid for item in looked_up for passage in item.passages}
    searched = [item for item in looked_up if item.searched]
    failed = {item.node.id for item in searched if not item.passages or item.unbound}
    fired = {
        "passages": len(passages) < limits.passages,
        "coverage": len(searched) - len(failed) < limits.coverage * len(searched),
        "entropy": graph.entropy > limits.entropy,
        "confidence": graph.confidence < limits.confidence,
        "critical": limits.critical and bool(failed & graph.critical),
    }
    return [name for name, holds in fired.items() if holds]


def reformulations(
    question: str, looked_up: Sequence[LookedUp], *, tried: Collection[str], most: int
) -> list[Node]:
    """At most `most` look-ups, f1, f2, ..., of queries that are not among those `tried`.

    In this order: the weakest look-ups without question words, the bridge (the first bridging
    look-up and what waits for it, or the first two look-ups) as one query, the question's keywords.
    """
    weakest = sorted(looked_up, key=lambda item: (bool(item.passages), item.node.confidence))
    queries = [_without(query, _QUESTION_WORDS) for item in weakest for query in item.queries[:1]]
    queries = [*queries[:1], *_bridge(looked_up), _keywords(question), *queries[1:]]
    fresh: dict[str, str] = {}
    seen = {question_key(query) for query in tried}
    for query in queries:
        key = question_key(query)
        if key and key not in seen:
            fresh.setdefault(key, query)
    chosen = list(fresh.values())[:most]
    return [Node(f"f{n}", q, confidence=CONFIDENCE) for n, q in enumerate(chosen, start=1)]


def _bridge(looked_up: Sequence[LookedUp]) -> list[str]:
    bridges = [item for item in looked_up if item.node.op == "bridge"][:1] or looked_up[:1]
    after = [i for i in looked_up if bridges and bridges[0].node.id in i.node.depends_on][:1]
    pair = [*bridges, *(after or [i for i in looked_up[:2] if i not in bridges])]
    parts = [_without(query, _QUESTION_WORDS) for item in pair for query in item.queries[:1]]
    different = list(dict.fromkeys(parts))
    return [" ".join(different)] if len(different) > 1 else []


def _keywords(question: str) -> str:
    words = Words(TextSettings.model_validate({}))(_without(question, _QUESTION_WORDS))
    return " ".join(words[:KEYWORDS])


def _without(text: str, words: re.Pattern[str]) -> str:
    return " ".join(words.sub(" ", text).split())
