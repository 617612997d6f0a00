"""Generated passages for the retrieval benchmarks: words with the frequencies of natural text."""

from collections.abc import Sequence

import numpy as np

from ragbench.retrievers import Corpus, Passage


class GeneratedPassages(Sequence[Passage]):
    """`n` passages of 40 to 60 words, each made when it is read, so that millions fit.

    Word ranks follow Zipf's law over `vocabulary` words; passage `i` of one seed is always the
    same.
    """

    def __init__(self, n: int, *, seed: int = 0, vocabulary: int = 300_000) -> None:
        rng = np.random.default_rng(seed)
        self._lengths = rng.integers(40, 61, size=n)
        self._ends = np.cumsum(self._lengths)
        self._ranks = np.empty(int(self._ends[-1]) if n else 0, dtype=np.int32)
        self._words = [f"w{rank}" for rank in range(vocabulary)]
        frequency = 1 / np.arange(10, vocabulary + 10)
        bounds = np.cumsum(frequency / frequency.sum())
        for start in range(0, len(self._ranks), 5_000_000):
            part = self._ranks[start : start + 5_000_000]
            part[:] = np.minimum(np.searchsorted(bounds, rng.random(len(part))), vocabulary - 1)

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> Passage:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        end = self._ends[index]
        words = self._ranks[end - self._lengths[index] : end]
        text = " ".join(map(self._words.__getitem__, words.tolist()))
        return Passage(f"p{index}", f"t{index}", text)


def generated(n: int, *, seed: int = 0) -> Corpus:
    """A corpus of `n` generated passages, held in memory up to 200,000."""
    passages = GeneratedPassages(n, seed=seed)
    return Corpus(tuple(passages) if n <= 200_000 else passages)


def generated_queries(corpus: Corpus, n: int, *, seed: int = 1) -> list[str]:
    """`n` queries of 6 words, each from one passage, so that something matches."""
    rng = np.random.default_rng(seed)
    queries = []
    for position in rng.integers(0, len(corpus), size=n).tolist():
        words = corpus.passages[position].text.split()
        queries.append(" ".join(rng.choice(words, size=6, replace=False).tolist()))
    return queries
