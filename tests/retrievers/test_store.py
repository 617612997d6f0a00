"""Stored indexes: the same results after loading, whole or not there, one writer."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.errors import DataError
from ragbench.folder_store import sha256_of
from ragbench.retrievers import Corpus, Passage, make_retriever
from ragbench.retrievers.bm25 import BM25
from ragbench.retrievers.store import IndexStore, index_key
from tests.retrievers.conftest import WordEmbedder, make_corpus, random_texts

CORPUS = make_corpus(random_texts(300, seed=11))
QUERIES = random_texts(20, seed=12, length=6)


@pytest.mark.parametrize("spec", ["bm25", "dense(index=ivf)", "hybrid", "rerank(reranker=none)"])
def test_results_are_identical_after_save_and_load_which_makes_nothing(
    spec: str, store: IndexStore, embedder: WordEmbedder
) -> None:
    in_memory = make_retriever(spec, CORPUS).search_many(QUERIES, k=10)
    for passages in (True, False):  # made and stored, then loaded
        embedder.embedded.clear()
        stored = make_retriever(spec, CORPUS).build(store)
        assert len(embedder.embedded) == (0 if spec == "bm25" or not passages else len(CORPUS))
        assert stored.search_many(QUERIES, k=10) == in_memory


def test_index_key_changes_with_settings_and_corpus() -> None:
    def key(corpus: Corpus = CORPUS, spec: str = "bm25", **settings: Any) -> str:
        return index_key(make_retriever(spec, corpus, **settings))

    assert key() == key(Corpus(CORPUS.passages, contexts={"q": (1,)}))
    other = Corpus((*CORPUS.passages[:-1], Passage("p299", "T299", "another")))
    moved = Corpus(CORPUS.passages[::-1])
    assert len({key(), key(k1=1.0), key(stopwords="none"), key(other), key(moved)}) == 5
    dense = {key(spec="dense"), key(spec="dense", title=False), key(spec="dense", index="ivf")}
    assert len(dense) == 3
    assert key(spec="dense", nprobe=3, query_prefix="q: ") in dense


def build(root: Path) -> int:
    """Build an index in `root`, in a process of its own; how often it was made there."""
    made: list[int] = []
    make = BM25._make
    BM25._make = lambda self, progress: (made.append(1), make(self, progress))[1]  # type: ignore[method-assign]
    make_retriever("bm25", CORPUS).build(IndexStore(root))
    return len(made)


def test_two_processes_that_build_one_index_at_once_make_it_once(store: IndexStore) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        assert sum(pool.map(build, [store.root] * 2)) == 1


def test_store_if_a_build_fails_leaves_no_files(
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


def test_store_if_the_folder_cannot_be_created_has_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="set RAGBENCH_CACHE"):
        make_retriever("bm25", CORPUS).build(IndexStore(tmp_path / "file" / "indexes"))


@pytest.mark.parametrize("spec", ["bm25", "dense(index=ivf)"])
def test_store_if_any_file_is_damaged_gives_equal_results(spec: str, store: IndexStore) -> None:
    before = make_retriever(spec, CORPUS).build(store).search_many(QUERIES, k=5)
    folder = store.root / store.entries()[0].key
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
        for damaged in (flipped, content[:middle], content + b"more", None):
            path.unlink()
            if damaged is not None:  # else it is missing
                path.write_bytes(damaged)
            again = make_retriever(spec, CORPUS).build(store).search_many(QUERIES, k=5)
            assert again == before, path.name
    assert store.damage(folder.name) == ""


def test_drop_deletes_nothing_but_the_folder_of_the_index(store: IndexStore) -> None:
    make_retriever("bm25", CORPUS).build(store)
    other = store.root.parent / "precious"
    other.mkdir()
    entry = store.entries()[0]
    path = store.root / entry.key / "manifest.json"
    path.write_text(entry.model_copy(update={"key": "../precious"}).model_dump_json())
    assert [found.key for found in store.entries()] == [entry.key]
    for name in ("../precious", str(other), "", "."):
        with pytest.raises(DataError, match="no index is named"):
            store.drop(name)
    store.drop(entry.key)
    assert store.entries() == []
    assert other.is_dir()


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_nothing_in_an_index_is_unpickled(store: IndexStore, tmp_path: Path) -> None:
    """Its hashes are right: whoever wrote it meant it."""
    before = make_retriever("bm25", CORPUS).build(store).search_many(QUERIES, k=5)
    entry = store.entries()[0]
    path = store.root / entry.key / "data.npy"
    with path.open("wb") as file:
        np.save(file, np.array([_Evil(tmp_path / "ran")], dtype=object), allow_pickle=True)
    stamp = path.stat().st_size, path.stat().st_mtime_ns, sha256_of(path)
    sealed = entry.model_copy(update={"files": {**entry.files, "data.npy": stamp}})
    (path.parent / "manifest.json").write_text(sealed.model_dump_json())
    assert make_retriever("bm25", CORPUS).build(store).search_many(QUERIES, k=5) == before
    assert not (tmp_path / "ran").exists()
