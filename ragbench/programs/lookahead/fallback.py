"""When a plan has brought too little, and the queries that are tried then, without an LM call."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ragbench.data import question_key
from ragbench.programs.lookahead.graph import LookedUp, Node, PlanGraph
from ragbench.retrievers import TextSettings, Words

#: Fewer different passages, less mean confidence or more mean entropy (bits) trigger it.
MIN_PASSAGES, MIN_CONFIDENCE, MAX_ENTROPY = 2, 0.4, 0.95
#: Stated confidence of a look-up that the fallback adds.
CONFIDENCE = 0.4
#: Words of the question that make its keyword query.
KEYWORDS = 5

_QUESTION_WORDS = re.compile(
    r"\b(who|whom|whose|what|when|where|why|which|how|is|are|was|were|do|does|did)\b|\?",
    re.IGNORECASE,
)
_NAMES = re.compile(r"\b[A-Z0-9][\w'-]*(?: (?:(?:of|the|and|de|von|van) )*[A-Z0-9][\w'-]*)*")
#: How passages put what queries ask for.
SYNONYMS = {
    "author": "written by", "writer": "written by", "director": "directed by",
    "founder": "founded by", "composer": "composed by", "architect": "designed by",
    "birthplace": "born in", "birth date": "born", "date of birth": "born",
    "death": "died", "spouse": "married", "husband": "married", "wife": "married",
    "employer": "works for", "headquarters": "based in", "location": "located in",
    "population": "inhabitants", "nationality": "citizen", "alma mater": "studied at",
}  # fmt: skip
_SYNONYM = re.compile(r"\b(" + "|".join(map(re.escape, SYNONYMS)) + r")(?: of)?\b", re.IGNORECASE)


def triggers(
    graph: PlanGraph, looked_up: Sequence[LookedUp], *, coverage: float, published: bool
) -> list[str]:
    """Why more is searched; empty where nothing calls for it.

    passages: fewer different ones than 2. confidence: the mean stated one below 0.4. Unless only
    what the `published` engine can reach counts, also coverage: a smaller share than `coverage` of
    the look-ups found passages, and what others wanted of them; entropy: the mean binary entropy of
    the stated confidences is above 0.95 bits; critical: a look-up that others wait for failed so.
    """
    passages = {passage.pid for item in looked_up for passage in item.passages}
    searched = [item for item in looked_up if item.searched]
    failed = {item.node.id for item in searched if not item.passages or item.unbound}
    fired = {
        "passages": len(passages) < MIN_PASSAGES,
        "coverage": len(searched) - len(failed) < coverage * len(searched) and not published,
        "entropy": graph.entropy > MAX_ENTROPY and not published,
        "confidence": graph.confidence < MIN_CONFIDENCE,
        "critical": bool(failed & graph.awaited) and not published,
    }
    return [name for name, holds in fired.items() if holds]


def reformulations(
    question: str, looked_up: Sequence[LookedUp], *, tried: Collection[str], most: int
) -> list[Node]:
    """At most `most` look-ups, f1, f2, ..., of queries that are not among those `tried`.

    In this order: the weakest look-up with synonyms, or without question words; the bridge (the
    first bridging look-up and what waits for it, or the first two look-ups) as one query; broader
    ones: the names of the weakest look-up, the question's keywords; the other look-ups.
    """
    weakest = sorted(looked_up, key=lambda item: (bool(item.passages), item.node.confidence))
    asked = [query for item in weakest for query in item.queries[:1]]
    keywords = Words(TextSettings.model_validate({}))
    queries = [
        *(_SYNONYM.sub(lambda m: SYNONYMS[m[1].lower()], query) for query in asked[:1]),
        *map(_without_question_words, asked[:1]),
        *_bridge(looked_up),
        *(" ".join(_NAMES.findall(query)) for query in map(_without_question_words, asked[:1])),
        " ".join(keywords(_without_question_words(question))[:KEYWORDS]),
        *map(_without_question_words, asked[1:]),
    ]
    seen = {question_key(query) for query in (*tried, "")}
    fresh: dict[str, str] = {}
    for query in queries:
        if question_key(query) not in seen:
            fresh.setdefault(question_key(query), query)
    chosen = list(fresh.values())[:most]
    return [Node(f"f{n}", q, confidence=CONFIDENCE) for n, q in enumerate(chosen, start=1)]


def _bridge(looked_up: Sequence[LookedUp]) -> list[str]:
    bridges = [item for item in looked_up if item.node.op == "bridge"][:1] or looked_up[:1]
    after = [i for i in looked_up if bridges and bridges[0].node.id in i.node.depends_on][:1]
    pair = [*bridges, *(after or [i for i in looked_up[:2] if i not in bridges])]
    parts = [_without_question_words(query) for item in pair for query in item.queries[:1]]
    different = list(dict.fromkeys(parts))
    return [" ".join(different)] if len(different) > 1 else []


def _without_question_words(text: str) -> str:
    return " ".join(_QUESTION_WORDS.sub(" ", text).split())
