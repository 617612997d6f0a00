"""A corpus of real sentences' shape, and an embedder that needs no model."""

import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ragbench.record import Call
from ragbench.retrievers import Corpus, Passage, dense
from ragbench.retrievers.base import Progress
from ragbench.retrievers.embedders.base import Embedder, Vectors, normalized
from ragbench.retrievers.lm_index import base as lm_index
from ragbench.retrievers.store import IndexStore


class WordEmbedder(Embedder):
    """Sums a fixed random vector per word; counts what it is asked for."""

    def __init__(self, spec: str = "words", api_base: str = "") -> None:
        super().__init__(spec)
        self.embedded: list[str] = []

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> tuple[Vectors, list[Call]]:
        self.embedded += texts
        rows = [self._vector(text) for text in texts]
        call = Call(model=self.spec, kind="embed", prompt_tokens=len(" ".join(texts).split()))
        return normalized(np.array(rows, dtype=np.float32)), [call]

    @staticmethod
    def _vector(text: str) -> np.ndarray:
        words = Counter(text.lower().split())
        return sum((n * _word_vector(word) for word, n in words.items()), np.zeros(32))


@cache
def _word_vector(word: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode("utf-8", "replace"))).standard_normal(32)


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> WordEmbedder:
    """What `dense` uses in these tests instead of a model."""
    made = WordEmbedder()
    monkeypatch.setattr(dense, "make_embedder", lambda spec, api_base="": made)
    return made


@pytest.fixture
def words(embedder: WordEmbedder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WordEmbedder:
    """What indexes made by an LM use instead of a model, in a cache of the test's own."""
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(lm_index, "make_embedder", lambda spec, api_base="": embedder)
    monkeypatch.setattr("ragbench.retrievers.store._OPEN", {})
    return embedder


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    return IndexStore(tmp_path / "indexes")


def make_corpus(texts: Iterable[str], title: Callable[[int], str] = lambda i: f"T{i}") -> Corpus:
    return Corpus(tuple(Passage(f"p{i}", title(i), text) for i, text in enumerate(texts)))


def random_texts(n: int, *, seed: int, vocabulary: int = 60, length: int = 20) -> list[str]:
    """`n` texts of up to `length` words, a few words much more common than the others."""
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(vocabulary)]
    weights = [1 / (i + 1) for i in range(vocabulary)]
    return [" ".join(rng.choices(words, weights, k=rng.randint(0, length))) for _ in range(n)]
