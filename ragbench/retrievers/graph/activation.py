"""Semantic bridging: entities that sentences lead to from those of a question (LinearRAG).

Zhuang et al. 2025 (arXiv:2510.10114), as its published code does it breadth first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


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


def activate(
    seeds: Sequence[tuple[int, float]],
    *,
    sentences_of: Callable[[int], Sequence[int]],
    entities_of: Callable[[int], Sequence[int]],
    similarity: Callable[[Sequence[int]], Sequence[float]],
    bridging: Bridging,
) -> Activated:
    """The entities that `seeds`, entities with their scores, lead to.

    In each iteration every entity of the one before that has at least the threshold takes its
    `top_k_sentence` sentences most similar to the question among those that none took before it.
    Each entity of such a sentence scores the parent's score times the sentence's similarity, and is
    dropped under the threshold. A seed given twice has its last score.
    """
    activated = Activated(dict(seeds), {entity: (score, 1) for entity, score in seeds})
    current = dict(activated.last)
    used: set[int] = set()
    for iteration in range(1, bridging.max_iterations):
        reached: dict[int, tuple[float, int]] = {}
        for entity, (score, _) in current.items():
            if score < bridging.threshold:
                continue
            free = [sentence for sentence in sentences_of(entity) if sentence not in used]
            ranked = sorted(zip(similarity(free), free, strict=True), key=lambda s: (-s[0], s[1]))
            for alike, sentence in ranked[: bridging.top_k_sentence]:
                used.add(sentence)
                new = score * alike
                if new < bridging.threshold:
                    continue
                for other in entities_of(sentence):
                    activated.weights[other] = activated.weights.get(other, 0.0) + new
                    reached[other] = (new, iteration + 1)
        activated.last.update(reached)
        current = reached
        if not current:
            break
    return activated


def mention_bonus(occurrences: Mapping[int, int], activated: Activated) -> float:
    """What a passage gains for the activated entities in its text, given how often each occurs.

    log(1 + sum of score * log(1 + count) / tier).
    """
    total = 0.0
    for entity, count in occurrences.items():
        score, tier = activated.last[entity]
        total += score * math.log1p(count) / tier
    return math.log1p(max(total, 0.0))
