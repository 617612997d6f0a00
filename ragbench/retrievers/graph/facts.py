"""Facts as HippoRAG 2 cleans and scores them (Gutiérrez et al. 2025, arXiv:2502.14802)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ragbench.retrievers.graph.walks import Floats

#: Subject, relation and object, cleaned.
FactText = tuple[str, str, str]

_NOT_WORD = re.compile(r"[^\w ]|_")


def cleaned(text: str) -> str:
    """`text` in lower case, with a blank for each character that is no letter, digit or blank.

    Letters with accents stay, where the published code has ASCII alone.
    """
    return _NOT_WORD.sub(" ", str(text).lower()).strip()


def facts_of(triples: Iterable[Mapping[str, Any]]) -> list[FactText]:
    """The cleaned triples, each once, in order; those without a subject or an object left out."""
    made = (
        (
            cleaned(t.get("subject", "")),
            cleaned(t.get("relation", "")),
            cleaned(t.get("object", "")),
        )
        for t in triples
    )
    return list(dict.fromkeys(fact for fact in made if fact[0] and fact[2]))


def phrase_weights(
    facts: Sequence[tuple[int, int]],
    scores: Sequence[float],
    passages_of: Mapping[int, int],
    *,
    keep: int,
) -> dict[int, float]:
    """The phrases at which walks start, and their weights.

    `facts` are pairs of phrases, `scores` their scores, and `passages_of` the number of passages
    that each phrase is in. A phrase's weight is the mean over its facts of score / passages; the
    `keep` heaviest are kept, ties in order of appearance.
    """
    shares: dict[int, list[float]] = {}
    for pair, score in zip(facts, scores, strict=True):
        for phrase in pair:
            shares.setdefault(phrase, []).append(score / max(passages_of.get(phrase, 1), 1))
    means = {phrase: sum(parts) / len(parts) for phrase, parts in shares.items()}
    best = sorted(means, key=lambda phrase: -means[phrase])[:keep]
    return {phrase: means[phrase] for phrase in best}


def start_of_walks(
    phrases: Mapping[int, float], dense: Floats, n_phrases: int, *, passage_weight: float
) -> Floats:
    """Weights at which walks start, shape `(n_phrases + len(dense),)`: phrases, then passages.

    `dense` is the similarity of each passage to the question, scaled to [0, 1].
    """
    reset = np.zeros(n_phrases + len(dense))
    for phrase, weight in phrases.items():
        reset[phrase] = weight
    reset[n_phrases:] = passage_weight * dense
    return reset
