"""The document that a question is about: the key by which its score varies with others."""

import json
from pathlib import Path

import dspy

from ragbench.data import Dataset, DataSettings, load_dataset
from ragbench.data.user_data import own_dataset
from ragbench.passages import Passage


def documents_of(data: Dataset) -> dict[str, object]:
    return {example.qid: example.get("document") for example in data.every}


def test_document_of_an_example_is_that_of_its_gold_passages(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(f"The {name} bridge is old. It was built by Bo {name}.")
    passages = {p.document: p.pid for p in load_dataset(DataSettings(
        dataset="documents", corpus_file=folder)).corpus}  # fmt: skip
    assert set(passages) == {"a.txt", "b.txt"}
    questions = tmp_path / "q.jsonl"
    rows = [
        {"id": "one", "question": "Who?", "answer": "x", "gold": [passages["a.txt"]]},
        {"id": "two", "question": "What?", "answer": "x", "gold": list(passages.values())},
        {"id": "own", "question": "When?", "answer": "x", "document": "c.txt"},
        {"id": "none", "question": "Where?", "answer": "x"},
    ]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for view in ("paragraph", "chunk"):
        spec = DataSettings(
            dataset="jsonl", data_file=questions, corpus_file=folder, view=view, setting="pooled"
        )
        data = load_dataset(spec)
        assert documents_of(data) == {
            "one": ["a.txt"], "two": ["a.txt", "b.txt"], "own": ["c.txt"], "none": None,
        }  # fmt: skip


def test_document_of_a_passage_in_a_corpus_file_is_read_and_mapped(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": "p", "text": "Old.", "file": "a.pdf"}\n')
    spec = DataSettings(dataset="documents", corpus_file=corpus, corpus_field={"document": "file"})
    (passage,) = load_dataset(spec).corpus
    assert passage.document == "a.pdf"
    assert passage.scored(2).document == "a.pdf"
    example = {"question": "Who?", "answer": "x", "gold_pids": ["p"]}
    data = own_dataset(
        {"test": [dspy.Example(**example)]}, [Passage("p", "", "Old.", document="d")]
    )
    assert data.splits["test"][0].document == ["d"]
