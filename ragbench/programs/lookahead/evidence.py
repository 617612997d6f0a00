"""Results of look-ups: triggers of the fallback, its queries, and the evidence for the answer.

The fallback makes no LM calls. Each shown passage has a label for citations: its look-up and its
rank there, such as n1.2.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragbench.programs.core import jaccard
from ragbench.programs.core.prompts import Line
from ragbench.programs.lookahead.plan import LookUp, PlanGraph
from ragbench.retrievers import Passage, words_of
from ragbench.text_normalization import CHARACTERS_PER_TOKEN, estimate_tokens, question_key

#: Thresholds of the fallback: distinct passages, share of successful look-ups, mean confidence, and
#: mean entropy in bits.
MIN_PASSAGES = 2
MIN_COVERAGE = 0.3
MIN_CONFIDENCE = 0.4
MAX_ENTROPY = 0.95
#: Stated confidence of a look-up that the fallback adds, and words of its keyword query.
CONFIDENCE = 0.4
KEYWORDS = 5
#: Minimum share of common words of near-duplicates.
DUPLICATE = 0.8
#: Minimum weight of a look-up, so that its passages are shown even without confidence.
_LEAST_WEIGHT = 0.05
#: Minimum tokens of a cut passage, unless it would be the only one.
_LEAST_TOKENS = 30
#: Share of the beginning if a long passage loses its middle.
_HEAD = 0.6

_QUESTION_WORDS = re.compile(
    r"\b(who|whom|whose|what|when|where|why|which|how|is|are|was|were|do|does|did)\b|\?",
    re.IGNORECASE,
)
_NAMES = re.compile(r"\b[A-Z0-9][\w'-]*(?: (?:(?:of|the|and|de|von|van) )*[A-Z0-9][\w'-]*)*")
#: Phrases of passages for words of queries.
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
class QueryResult:
    """The result of a look-up. `unbound` lists the wanted variables without a value.

    A computed look-up has `searched=False`.
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
        """Return the planned and completed look-up as JSON-ready data, with its bindings."""
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


def triggers(graph: PlanGraph, looked_up: Sequence[QueryResult], *, published: bool) -> list[str]:
    """Return the reasons to search more.

    - passages: too few distinct passages.
    - confidence: the mean stated confidence is too low.
    - coverage: too few look-ups found passages and the values that others need.
    - entropy: the mean entropy of the stated confidences is too high.
    - critical: a look-up that others wait for failed in this way.

    Args:
        graph: Plan of the question.
        looked_up: Completed look-ups.
        published: Only use the triggers that the published engine can reach, the first two.

    Returns:
        Names of the triggers that fired.
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


def reformulations(question: str, looked_up: Sequence[QueryResult], *, most: int) -> list[LookUp]:
    """Return new look-ups, f1, f2, ..., for the fallback.

    Their queries, in order: the weakest look-up with synonyms, or without question words; the
    bridge (the first bridging look-up and its successor, or the first two look-ups) as one query;
    broader ones (the names of the weakest look-up, the question's keywords); the other look-ups.

    Args:
        question: Text of the question.
        looked_up: Completed look-ups, whose queries are not repeated.
        most: Maximum number of look-ups.
    """
    weakest = sorted(looked_up, key=lambda item: (bool(item.passages), item.node.confidence))
    first = [item.queries[0] for item in weakest if item.queries] or [""]
    plain = list(map(_without_question_words, first))
    bridge = next((item for item in looked_up if item.node.op == "bridge"), looked_up[0])
    after = [item for item in looked_up if bridge.node.id in item.node.depends_on][:1]
    pair = [bridge, *(after or [item for item in looked_up[:2] if item is not bridge])]
    joined = dict.fromkeys(_without_question_words(i.queries[0]) for i in pair if i.queries)
    queries = [
        _SYNONYM.sub(lambda match: SYNONYMS[match[1].lower()], first[0]),
        plain[0],
        " ".join(joined) if len(joined) > 1 else "",
        " ".join(_NAMES.findall(plain[0])),
        " ".join(words_of(_without_question_words(question))[:KEYWORDS]),
        *plain[1:],
    ]
    fresh = {"": ""}  # what was searched before, and blanks, are left out
    for item in looked_up:
        fresh.update(dict.fromkeys(map(question_key, item.queries), ""))
    for query in queries:
        fresh.setdefault(question_key(query), query)
    chosen = list(filter(None, fresh.values()))[:most]
    return [LookUp(f"f{n}", q, confidence=CONFIDENCE) for n, q in enumerate(chosen, start=1)]


def _without_question_words(text: str) -> str:
    return " ".join(_QUESTION_WORDS.sub(" ", text).split())


class Evidence(NamedTuple):
    """One passage as the prompt shows it."""

    label: str
    passage: Passage
    line: Line


def assemble(looked_up: Sequence[QueryResult], *, max_tokens: int) -> tuple[list[Evidence], int]:
    """Select the evidence of all look-ups.

    Args:
        looked_up: Completed look-ups, in order.
        max_tokens: Maximum number of tokens. Each look-up gets a share proportional to its
            confidence. Later look-ups get the unused rest.

    Returns:
        The evidence, and the number of omitted near-duplicates.
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
