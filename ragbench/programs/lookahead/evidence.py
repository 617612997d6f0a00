"""What look-ups brought: when it is too little, what is tried then, and what the answer is shown.

The fallback makes no LM call. A passage shown has a label, by which it is cited: the look-up that
found it and its rank there, such as n1.2.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragbench.programs.core import jaccard
from ragbench.programs.core.prompts import Line
from ragbench.programs.lookahead.plan import LookUp, PlanGraph
from ragbench.retrievers import Passage, words_of
from ragbench.tokens import CHARACTERS_PER_TOKEN, estimate_tokens
from ragbench.words import question_key

#: Fewer different passages, a smaller share of look-ups that found something, less mean confidence
#: or more mean entropy (bits) call for the fallback.
MIN_PASSAGES = 2
MIN_COVERAGE = 0.3
MIN_CONFIDENCE = 0.4
MAX_ENTROPY = 0.95
#: Stated confidence of a look-up that the fallback adds, and words of its keyword query.
CONFIDENCE = 0.4
KEYWORDS = 5
#: Share of words from which two passages are near-duplicates.
DUPLICATE = 0.8
#: A look-up of no confidence still has this weight, so that something of it is shown.
_LEAST_WEIGHT = 0.05
#: No passage is cut down to fewer tokens than this, unless it would be the only one.
_LEAST_TOKENS = 30
#: Of a passage that is too long, which is cut in its middle, the part kept from its beginning.
_HEAD = 0.6

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


@dataclass(frozen=True)
class LookedUp:
    """The result of a look-up; `unbound` are the wanted variables that got no value.

    One that was computed was not `searched`.
    """

    node: LookUp
    queries: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unbound: tuple[str, ...] = ()
    searched: bool = True

    def line(self, labels: Sequence[str]) -> str:
        values = "; ".join(f"{name} = {', '.join(texts)}" for name, texts in self.values.items())
        text = f"{self.node.id}: {' / '.join(self.queries)}" + (f" -> {values}" if values else "")
        return text + (f" [{', '.join(labels)}]" if labels else "")

    def to_dict(self) -> dict[str, Any]:
        """The look-up as planned and done, JSON-ready; `bindings` say where variables come from."""
        node = self.node
        bindings = {}
        for text, source in node.bindings.items():
            bindings[text] = f"{source.id}.{source.variable}"
        return {
            "id": node.id,
            "query": node.query,
            "op": node.op,
            "depends_on": list(node.depends_on),
            "confidence": round(node.confidence, 4),
            "cost": node.cost,
            "produces": list(node.produces),
            "bindings": bindings,
            "queries": list(self.queries),
            "values": {name: list(values) for name, values in self.values.items()},
        }


def triggers(graph: PlanGraph, looked_up: Sequence[LookedUp], *, published: bool) -> list[str]:
    """Why more is searched; empty where nothing calls for it.

    passages: too few different ones. confidence: the mean stated one is too low. Unless only what
    the `published` engine can reach counts, also coverage: too few of the look-ups found passages,
    and what others wanted of them; entropy: the mean of the stated confidences is too large;
    critical: a look-up that others wait for failed so.
    """
    pids: set[str] = set()
    failed: set[str] = set()
    searched = 0
    for item in looked_up:
        pids.update(passage.pid for passage in item.passages)
        searched += item.searched
        if item.searched and (not item.passages or item.unbound):
            failed.add(item.node.id)
    fired = {
        "passages": len(pids) < MIN_PASSAGES,
        "coverage": searched - len(failed) < MIN_COVERAGE * searched and not published,
        "entropy": graph.entropy > MAX_ENTROPY and not published,
        "confidence": graph.confidence < MIN_CONFIDENCE,
        "critical": bool(failed & graph.awaited) and not published,
    }
    return [name for name, holds in fired.items() if holds]


def reformulations(question: str, looked_up: Sequence[LookedUp], *, most: int) -> list[LookUp]:
    """At most `most` look-ups, f1, f2, ..., of queries that none of `looked_up` had.

    In this order: the weakest look-up with synonyms, or without question words; the bridge (the
    first bridging look-up and what waits for it, or the first two look-ups) as one query; broader
    ones: the names of the weakest look-up, the question's keywords; the other look-ups.
    """
    weakest = sorted(looked_up, key=lambda item: (bool(item.passages), item.node.confidence))
    first_queries: list[str] = []
    for item in weakest:
        first_queries += item.queries[:1]
    plain = list(map(_without_question_words, first_queries))
    bridges = [item for item in looked_up if item.node.op == "bridge"][:1] or looked_up[:1]
    after = [i for i in looked_up if bridges and bridges[0].node.id in i.node.depends_on][:1]
    pair = [*bridges, *(after or [i for i in looked_up[:2] if i not in bridges])]
    joined: dict[str, None] = {}
    for item in pair:
        joined.update(dict.fromkeys(map(_without_question_words, item.queries[:1])))
    queries: list[str] = []
    for query in first_queries[:1]:
        queries.append(_SYNONYM.sub(lambda match: SYNONYMS[match[1].lower()], query))
        queries.append(plain[0])
    if len(joined) > 1:
        queries.append(" ".join(joined))
    for query in plain[:1]:
        queries.append(" ".join(_NAMES.findall(query)))
    queries.append(" ".join(words_of(_without_question_words(question))[:KEYWORDS]))
    queries += plain[1:]
    seen = {""}
    for item in looked_up:
        seen.update(map(question_key, item.queries))
    fresh: dict[str, str] = {}
    for query in queries:
        if question_key(query) not in seen:
            fresh.setdefault(question_key(query), query)
    chosen = list(fresh.values())[:most]
    return [LookUp(f"f{n}", q, confidence=CONFIDENCE) for n, q in enumerate(chosen, start=1)]


def _without_question_words(text: str) -> str:
    return " ".join(_QUESTION_WORDS.sub(" ", text).split())


class Evidence(NamedTuple):
    """One passage as shown."""

    label: str
    passage: Passage
    line: Line


def assemble(looked_up: Sequence[LookedUp], *, max_tokens: int) -> tuple[list[Evidence], int]:
    """The evidence of all look-ups in at most `max_tokens`, and how many duplicates it leaves out.

    Each look-up has the share of its confidence; what it leaves goes to those after it.
    """
    chosen: list[Evidence] = []
    duplicates = 0
    remaining = max_tokens
    weights = [max(item.node.confidence, _LEAST_WEIGHT) for item in looked_up]
    for place, item in enumerate(looked_up):
        room = share = int(remaining * weights[place] / sum(weights[place:]))
        for rank, passage in enumerate(item.passages, start=1):
            if any(
                passage.pid == evidence.passage.pid
                or jaccard(passage.text, evidence.passage.text) >= DUPLICATE
                for evidence in chosen
            ):
                duplicates += 1
                continue
            label = f"{item.node.id}.{rank}"
            line = f"[{label}] {passage}"
            size = estimate_tokens(line)
            if size > room:
                if room < _LEAST_TOKENS and chosen:
                    break
                line = _without_middle(line, room)
                size = room
            chosen.append(Evidence(label, passage, Line(line, passage.pid)))
            room -= size
        remaining -= share - room
    return chosen, duplicates


def _without_middle(line: str, max_tokens: int) -> str:
    room = max(max_tokens * CHARACTERS_PER_TOKEN - 5, 2)
    head = int(room * _HEAD)
    return line[:head].rsplit(" ", 1)[0] + " ... " + line[head - room :].split(" ", 1)[-1]
