"""How alike two texts are, by their words or by their vectors."""

from __future__ import annotations

from ragbench.metrics import tokens
from ragbench.retrievers import Dense, PerQuestion, Retriever
from ragbench.retrievers.embedders import Embedder


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
