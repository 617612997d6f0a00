"""A second order of the passages that one look-up found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ragbench.retrievers import Passage
from ragbench.retrievers.rerankers import make_reranker


class Scorer:
    """The reranker of `spec`; shared by the copies of a program, since loading a model is slow.

    Raises:
        ConfigError: a malformed spec, or a package that is not installed.
        ModelError: the model's bytes cannot be had.
    """

    def __init__(self, spec: str) -> None:
        self._reranker = make_reranker(spec)

    def order(
        self, query: str, passages: Sequence[Passage], *, keep: int, at_least: float
    ) -> list[Passage]:
        """The `keep` best, best first; those of a score under `at_least` only if all are."""
        if self._reranker is None or not passages:
            return list(passages)
        scores = self._reranker.score(query, passages)
        scored = [p.scored(score) for p, score in zip(passages, scores, strict=True)]
        best = sorted(scored, key=lambda p: -p.score)  # stable
        return ([p for p in best if p.score >= at_least] or best)[:keep]

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self


def chosen(passages: Sequence[Passage], numbers: Sequence[int], *, keep: int) -> list[Passage]:
    """The passages of these `numbers` (from 1), in their order; all of them where none is named."""
    named = [passages[n - 1] for n in dict.fromkeys(numbers) if 0 < n <= len(passages)]
    return (named or list(passages))[:keep]
