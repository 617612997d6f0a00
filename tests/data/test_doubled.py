"""What stands twice in data, or in two ways: names of columns, questions, lists of two lengths."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragbench.data import DataSpec, load_dataset, question_key
from ragbench.errors import DataError

CORPUS = {"T": "some text"}


def load(folder: Path, name: str, content: str | bytes, **settings: Any) -> Any:
    path, corpus = folder / name, folder / "corpus.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    corpus.write_text(json.dumps(CORPUS))
    return load_dataset(DataSpec("jsonl", data_file=path, corpus_file=corpus, **settings))


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_table_with_two_columns_of_one_name_is_refused(ending: str, tmp_path: Path) -> None:
    by = "," if ending == "csv" else "\t"
    rows = [["question", "question", "answer"], ["q1", "q2", "a"]]
    with pytest.raises(DataError, match="has two columns named 'question'; rename or remove one"):
        load(tmp_path, f"twice.{ending}", "\n".join(by.join(row) for row in rows) + "\n")


def test_a_json_object_with_a_field_twice_is_refused(tmp_path: Path) -> None:
    rows = ['{"question": "q1", "answer": "a"}', '{"question": "q2", "answer": "a", "answer": "b"}']
    with pytest.raises(DataError, match="the field 'answer' stands twice"):
        load(tmp_path, "twice.jsonl", "\n".join(rows) + "\n")


def test_columns_of_two_lengths_say_which(tmp_path: Path) -> None:
    row = {"id": "a", "question": "Who?", "answer": "Bob", "type": "bridge"}
    row["context"] = {"title": ["T", "U"], "sentences": [["s."]]}
    row["supporting_facts"] = {"title": ["T"], "sent_id": [0]}
    path = tmp_path / "hub.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(DataError, match="2 of title and 1 of sentences, which must be as many"):
        load_dataset(DataSpec("hotpotqa", data_file=path))


@pytest.mark.parametrize(
    ("one", "other"),
    [("Caf\u00e9 owner?", "Cafe\u0301 owner?"), ("\uff37ho?", "Who?")],
)
def test_a_letter_that_is_written_in_two_ways_is_the_same_question(one: str, other: str) -> None:
    assert question_key(one) == question_key(other)
