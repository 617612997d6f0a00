"""Keyword search against the plain reading of every chunk; sentence search by hand."""

import random
import re
from pathlib import Path

import pytest

from ragbench.retrievers import Corpus, Passage
from ragbench.retrievers.granular import GranularIndex
from tests.retrievers.conftest import make_corpus

PIECES = ["art", "Party", "part-time", "U.S.", "ART", "$5", "smart", "new york", "York", "é"]


def slow_search(
    corpus: Corpus, keywords: list[str], k: int
) -> list[tuple[str, float, tuple[str, ...]]]:
    """A-RAG's rule, read off every chunk with its title."""
    words = [word.lower() for word in keywords if word.strip()]
    found = []
    for passage in corpus:
        text = str(passage).lower()
        score = sum(text.count(word) * len(word) for word in words)
        pieces = [piece.strip() for piece in re.split(r"[.!?\n]+", passage.text)]
        pieces = [piece for piece in pieces if piece]
        held = [p for p in pieces if any(word in p.lower() for word in words)]
        if not held and any(word in passage.title.lower() for word in words):
            held = pieces[:1]
        if score:
            found.append((passage.pid, float(score), tuple(held[:5])))
    return sorted(found, key=lambda hit: -hit[1])[:k]  # stable


@pytest.mark.parametrize("seed", range(4))
def test_keyword_search_is_the_slow_reading(seed: int) -> None:
    """200 corpora in all, with one query each."""
    rng = random.Random(seed)
    for _ in range(50):
        texts = [" ".join(rng.choices(PIECES, k=rng.randint(0, 40))) for _ in range(12)]
        corpus = make_corpus(texts)
        keywords = rng.choices([*PIECES, "ar", "t-t", ".", "w york", "none", " ", "5 "], k=3)
        found = GranularIndex(corpus).keyword_search(keywords, k=7)
        shown = [(m.passage.pid, m.passage.score, m.sentences) for m in found]
        assert shown == slow_search(corpus, keywords, 7)


def test_whole_chunks_are_ranked_by_their_own_vectors() -> None:
    texts = make_corpus(["alpha beta gamma delta", "alpha nu", "kappa"], title=lambda i: "")
    found = GranularIndex(texts).chunk_search("kappa", k=2)
    assert found[0].passage.pid == "p2"
    assert found[0].sentences == ("kappa",)
    assert len(found) == 2


def test_of_gives_one_index_and_keeps_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    small = make_corpus(["one sentence stands here"])
    assert GranularIndex.of(small) is GranularIndex.of(small.subset([0]))
    assert GranularIndex.of(small) is not GranularIndex.of(small, embedder="another")
    assert GranularIndex.of(small).semantic_search("one sentence")
    assert not (tmp_path / "indexes").exists()
    large = make_corpus(f"this is the sentence number {i}" for i in range(500))
    assert GranularIndex.of(large).semantic_search("number 7", k=1)
    assert len(list((tmp_path / "indexes").glob("dense-*/manifest.json"))) == 1


def _cities() -> Corpus:
    return Corpus(
        (
            Passage("0", "", "", ("alpha beta gamma", "delta epsilon zeta")),
            Passage("1", "", "", ("alpha beta omega", "alpha beta gamma nu")),
            Passage("2", "", "", ("kappa lambda mu",)),
        )
    )


def test_semantic_search_scores_a_chunk_by_its_best_sentence() -> None:
    index = GranularIndex(_cities())
    found = index.semantic_search("alpha beta gamma", k=1)  # looks at the 3 nearest sentences
    assert [m.passage.pid for m in found] == ["0"]
    assert found[0].passage.score == pytest.approx(1, abs=1e-5)
    assert found[0].sentences == ("alpha beta gamma",)
    both = index.semantic_search("alpha beta gamma", k=2)
    assert [m.passage.pid for m in both] == ["0", "1"]
    assert both[1].sentences == ("alpha beta omega", "alpha beta gamma nu")


def test_neighbours() -> None:
    index = GranularIndex(_cities())
    assert [p.pid for p in index.neighbours("0")] == ["1"]
    assert [p.pid for p in index.neighbours("1")] == ["0", "2"]
