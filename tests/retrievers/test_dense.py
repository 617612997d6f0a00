"""Dense search against numpy, kinds of index, sharing of vectors; one corpus at three grains."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ragbench.ledger import open_ledger
from ragbench.retrievers import Corpus, dense, make_retriever
from ragbench.retrievers.embedders.base import normalized
from ragbench.retrievers.granular import GranularIndex
from ragbench.retrievers.store import IndexStore
from tests.retrievers.conftest import WordEmbedder, make_corpus, random_texts


def test_exact_search_equals_numpy_order() -> None:
    rng = np.random.default_rng(0)
    rows = normalized(rng.standard_normal((500, 24)).astype(np.float32))
    queries = normalized(rng.standard_normal((40, 24)).astype(np.float32))
    index = dense.make_index(rows, "exact")
    for query, hits in zip(queries, dense.nearest(index, queries, 10), strict=True):
        scores = rows @ query
        expected = np.argsort(-scores, kind="stable")[:10]
        assert [i for i, _ in hits] == expected.tolist()
        assert [s for _, s in hits] == pytest.approx(scores[expected].tolist(), abs=1e-6)


def test_ivf_search_equals_exact_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clustered vectors nearly all neighbours are found, by lists that a sample made."""
    rng = np.random.default_rng(4)
    centres = rng.standard_normal((200, 32))
    values = centres[rng.integers(200, size=5_000)] + 0.5 * rng.standard_normal((5_000, 32))
    rows = normalized(values.astype(np.float32))
    monkeypatch.setattr(dense, "_TRAINED_PER_LIST", 39)
    assert len(rows) > 39 * 128
    index = dense.make_index(rows, "ivf")
    assert index.nlist == 128
    exact = dense.nearest(dense.make_index(rows, "exact"), rows[:200], 10)
    found = dense.nearest(index, rows[:200], 10)
    common = [len({i for i, _ in a} & {i for i, _ in b}) for a, b in zip(exact, found, strict=True)]
    assert sum(common) / 2000 > 0.95


class StoppedError(Exception):
    pass


def test_build_if_interrupted_continues(
    embedder: WordEmbedder, store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "_PART", 20)
    corpus = make_corpus(random_texts(90, seed=8, vocabulary=5000))
    expected = make_retriever("dense", corpus).build().search_many(["w1 w7", "w0"], k=9)
    embedder.embedded.clear()
    told: list[tuple[int, int]] = []
    embed = WordEmbedder._embed

    def stops(self, texts, progress):
        if len(self.embedded) >= 60:
            raise StoppedError
        return embed(self, texts, progress)

    with monkeypatch.context() as patched:
        patched.setattr(WordEmbedder, "_embed", stops)
        with pytest.raises(StoppedError):
            make_retriever("dense", corpus).build(store)
    (left,) = store.root.glob("*.unfinished")
    made = make_retriever("dense", corpus).build(store, lambda *done: told.append(done))
    assert len(embedder.embedded) == 90
    assert made.search_many(["w1 w7", "w0"], k=9) == expected
    assert not left.exists()
    assert all(total == 90 and done > 60 for done, total in told)


def test_prefixes_and_title_reach_the_embedder(embedder: WordEmbedder) -> None:
    settings = {"query_prefix": "query: ", "passage_prefix": "passage: "}
    retriever = make_retriever("dense", make_corpus(["x"]), **settings)
    retriever.search("who", k=1)
    assert embedder.embedded == ["passage: T0 x", "query: who"]
    make_retriever("dense", make_corpus(["y"]), title=False).build()
    assert embedder.embedded[-1] == "y"


def test_where_names_are_changed_the_embedder_reads_the_plain_ones(embedder: WordEmbedder) -> None:
    plain = make_retriever("dense", make_corpus(["x lives"]))
    changed = replace(make_corpus(["Dolu lives"]), plain=lambda text: text.replace("Dolu", "x"))
    renamed = make_retriever("dense", changed)
    [found] = renamed.search("where Dolu lives", k=1)
    assert found.text == "Dolu lives"
    assert embedder.embedded == ["T0 x lives", "where x lives"]
    assert renamed.restrict([0]).search("Dolu", k=1)[0].text == "Dolu lives"
    assert embedder.embedded[-1] == "x"
    assert renamed.index_settings() == {**plain.index_settings(), "names": "plain"}


def test_index_work_is_not_the_questions_and_vectors_are_shared(embedder: WordEmbedder) -> None:
    passages = make_corpus([f"text number {i}" for i in range(10)]).passages
    corpus = Corpus(passages, contexts={"q1": (0, 1, 2), "q2": (2, 3)})
    retriever = make_retriever("dense", corpus, setting="distractor")
    with open_ledger() as ledger:
        retriever.for_question("q1").search("text", k=1)
    assert [(call.kind, call.prompt_tokens) for call in ledger.calls] == [("embed", 1)]
    assert retriever.card()["index"]["embedding_tokens"] == 12
    shared = make_retriever("dense", corpus).build()
    embedder.embedded.clear()
    assert {p.pid for p in shared.restrict([7, 3]).search("w1", k=9)} == {"p3", "p7"}
    assert embedder.embedded == ["w1"]


# -- three grains: A-RAG's rules are in tests/conformance/parity


def test_keywords_count_in_titles_and_whole_chunks_have_vectors_of_their_own() -> None:
    texts = ["One here\nTwo smart", "Nobody here. Or there", "kappa"]
    index = GranularIndex(make_corpus(texts, title=lambda i: ["T", "Art", ""][i]))
    found = index.keyword_search(["ART", " "])
    assert [(m.passage.pid, m.passage.score, m.sentences) for m in found] == [
        ("p0", 3.0, ("Two smart",)),
        ("p1", 3.0, ("Nobody here",)),
    ]
    (best,) = index.chunk_search("kappa", k=1)
    assert (best.passage.pid, best.sentences) == ("p2", ("kappa",))
    assert [p.pid for pid in ("p0", "p1") for p in index.neighbours(pid)] == ["p1", "p0", "p2"]


def test_granular_index_of_equal_texts_is_one_object(
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
