"""Corpora that stay on disk: copied once, found again, the same as in memory."""

import json
from pathlib import Path

import pytest

from ragbench.data import DataSettings, load_dataset, passage_file
from ragbench.data.passage_file import PassageFile
from ragbench.errors import DataError
from ragbench.retrievers import IndexStore

CORPUS = [
    {"id": f"p{i}", "title": f"Thing {i // 2}", "text": f"It is number {i}. It is in Town {i % 7}."}
    for i in range(300)
]
QUESTIONS = [
    {"id": f"q{i}", "question": f"Which town has number {i}?", "answer": "x", "gold": [f"p{i}"]}
    for i in range(20)
]


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(passage_file, "LARGE_BYTES", 1)
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))


def files(folder: Path, corpus: list[dict[str, object]] = CORPUS) -> DataSettings:
    for name, rows in (("questions", QUESTIONS), ("corpus", corpus)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DataSettings(
        dataset="jsonl", data_file=folder / "questions.jsonl", corpus_file=folder / "corpus.jsonl"
    )


def test_a_stored_corpus_is_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = files(tmp_path)
    on_disk = load_dataset(spec)
    monkeypatch.setattr(passage_file, "LARGE_BYTES", 1 << 40)
    in_memory = load_dataset(spec)
    assert isinstance(on_disk.corpus.passages, PassageFile)
    assert list(on_disk.corpus) == list(in_memory.corpus)
    assert on_disk.corpus[-3:] == list(in_memory.corpus[-3:])
    assert on_disk.digest == in_memory.digest
    assert on_disk.corpus.positions == in_memory.corpus.positions
    assert "p300" not in on_disk.corpus.positions
    with pytest.raises(IndexError):
        on_disk.corpus[300]


def test_the_copy_is_made_once_and_damage_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = files(tmp_path)
    digest = load_dataset(spec).digest
    entry = IndexStore().entries()[0]
    assert (entry.retriever, entry.passages) == ("passages", 300)
    with monkeypatch.context() as patched:
        patched.setattr(passage_file, "write_passages", None)
        load_dataset(spec)
    path = IndexStore().root / entry.key / "passages.db"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert load_dataset(spec).digest == digest
    files(tmp_path, [*CORPUS[:-1], {"id": "new", "text": "Another."}])
    assert load_dataset(spec).corpus[299].pid == "new"


def test_an_id_of_two_passages_is_named_and_one_twice_is_once(tmp_path: Path) -> None:
    twice = load_dataset(files(tmp_path, [*CORPUS, CORPUS[5]]))
    assert len(twice.corpus) == 300
    spec = files(tmp_path, [*CORPUS, {**CORPUS[5], "text": "Other."}])
    with pytest.raises(DataError, match="'p5' is the id of two passages"):
        load_dataset(spec)
    assert not [path for path in IndexStore().root.iterdir() if path.name.startswith(".")]
