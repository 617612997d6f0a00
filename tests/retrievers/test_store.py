"""Stored indexes: the same results after loading, whole or not there, one writer."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import DataError
from ragbench.retrievers import Corpus, Passage, make_retriever
from ragbench.retrievers.base import Progress
from ragbench.retrievers.bm25 import BM25
from ragbench.retrievers.store import IndexStore, index_key
from tests.retrievers.conftest import WordEmbedder, make_corpus, random_texts

SPECS = ["bm25", "bm25(engine=numba)", "dense", "dense(index=fp16)", "dense(index=ivf)"]
SPECS += ["dense(index=hnsw)", "hybrid", "hybrid(fusion=minmax)", "rerank(reranker=none)"]
CORPUS = make_corpus(random_texts(300, seed=11))
QUERIES = random_texts(20, seed=12, length=6)


@pytest.mark.parametrize("spec", SPECS)
def test_results_are_identical_after_save_and_load(spec: str, store: IndexStore) -> None:
    in_memory = make_retriever(spec, CORPUS).search_many(QUERIES, k=10)
    for _ in range(2):  # made and stored, then loaded
        stored = make_retriever(spec, CORPUS).build(store)
        assert stored.search_many(QUERIES, k=10) == in_memory


def test_a_second_run_makes_nothing(store: IndexStore, embedder: WordEmbedder) -> None:
    make_retriever("hybrid", CORPUS).build(store)
    embedded = len(embedder.embedded)
    card = make_retriever("hybrid", CORPUS).build(store).card()
    assert len(embedder.embedded) == embedded
    assert [part["index"]["key"] for part in card["parts"]] == [
        entry.key for entry in sorted(store.entries(), key=lambda e: e.key)
    ]


def test_the_key_follows_what_decides_the_index() -> None:
    def key(corpus: Corpus = CORPUS, spec: str = "bm25", **settings: Any) -> str:
        return index_key(make_retriever(spec, corpus, **settings))

    same = [key(), key(engine="numpy"), key(Corpus(CORPUS.passages, contexts={"q": (1,)}))]
    assert len(set(same)) == 1
    other = Corpus((*CORPUS.passages[:-1], Passage("p299", "T299", "another")))
    moved = Corpus(CORPUS.passages[::-1])
    assert len({key(), key(k1=1.0), key(stopwords="none"), key(other), key(moved)}) == 5
    dense = {key(spec="dense"), key(spec="dense", title=False), key(spec="dense", index="hnsw")}
    assert len(dense) == 3
    assert key(spec="dense", nprobe=3, query_prefix="q: ") in dense


def _damage_by(store: IndexStore, what: str) -> None:
    folder = store.root / store.entries()[0].key
    data = folder / "data.csc.index.npy"
    if what == "cut short":
        data.write_bytes(data.read_bytes()[:-10])
    elif what == "changed":
        data.write_bytes(data.read_bytes()[:-4] + b"abcd")
    elif what == "missing":
        data.unlink()
    else:
        (folder / "manifest.json").write_text("{")


@pytest.mark.parametrize("what", ["cut short", "changed", "missing", "manifest"])
def test_a_damaged_index_is_made_again(
    what: str, store: IndexStore, caplog: pytest.LogCaptureFixture
) -> None:
    before = make_retriever("bm25", CORPUS).build(store).search_many(QUERIES, k=5)
    _damage_by(store, what)
    with caplog.at_level(logging.WARNING):
        again = make_retriever("bm25", CORPUS).build(store)
    assert "is damaged" in caplog.text
    assert again.search_many(QUERIES, k=5) == before
    assert store.damage(store.entries()[0].key) == ""


def test_nothing_is_left_by_a_build_that_fails(
    store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: BM25, folder: Path) -> None:
        (folder / "half").write_text("written")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(BM25, "_save", fail)
        with pytest.raises(KeyboardInterrupt):
            make_retriever("bm25", CORPUS).build(store)
    assert store.entries() == []
    assert [path for path in store.root.iterdir() if path.is_dir()] == []
    make_retriever("bm25", CORPUS).build(store)
    assert len(store.entries()) == 1


def test_two_builders_make_it_once(store: IndexStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = BM25._make

    def slow(self: BM25, progress: Progress | None) -> None:
        made.append(1)
        time.sleep(0.2)
        make(self, progress)

    monkeypatch.setattr(BM25, "_make", slow)
    retrievers = [make_retriever("bm25", CORPUS) for _ in range(4)]
    threads = [threading.Thread(target=r.build, args=(store,)) for r in retrievers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len({str(r.search_many(QUERIES, k=3)) for r in retrievers}) == 1


def test_find_and_drop(store: IndexStore) -> None:
    make_retriever("bm25", CORPUS).build(store)
    make_retriever("bm25", CORPUS, k1=2).build(store)
    first = store.entries()[0]
    assert first.passages == 300
    assert store.find(first.key) == first
    with pytest.raises(DataError, match="more than one"):
        store.find("bm25")
    store.drop(first.key)
    assert [entry.key for entry in store.entries()] != [first.key]
    with pytest.raises(DataError, match="no index is named"):
        store.find(first.key)


def test_an_index_in_use_outlives_its_drop(store: IndexStore) -> None:
    retriever = make_retriever("bm25", CORPUS).build(store)
    before = retriever.search_many(QUERIES, k=5)
    store.drop(store.entries()[0].key)
    assert retriever.search_many(QUERIES, k=5) == before


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="set RAGBENCH_CACHE"):
        make_retriever("bm25", CORPUS).build(IndexStore(tmp_path / "file" / "indexes"))


def test_progress_ends_at_the_whole(store: IndexStore) -> None:
    told: list[tuple[int, int]] = []
    make_retriever("bm25", CORPUS).build(store, lambda done, total: told.append((done, total)))
    assert told[-1] == (300, 300)


def test_the_manifest_is_json_with_the_files(store: IndexStore) -> None:
    make_retriever("bm25", CORPUS).build(store)
    entry = store.entries()[0]
    data = json.loads((store.root / entry.key / "manifest.json").read_text())
    assert data["corpus"] == CORPUS.digest
    assert entry.size == sum(path.stat().st_size for path in (store.root / entry.key).iterdir()) - (
        (store.root / entry.key / "manifest.json").stat().st_size
    )
