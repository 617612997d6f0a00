"""Fields wherever they stand, and the trade's files as they are."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragbench.data import DataSettings, detect_layout, load_dataset
from ragbench.data.mapping import value_at
from ragbench.data.readers import read_rows
from ragbench.errors import DataError

RECORD = {
    "a": {"b": [{"c": "x", "d": [1, 2]}, {"c": "y"}, {}]},
    "packed": '{"deep": ["m", "n"]}',
    "python": "['p', 'q']",
    "groups": [["g1"], ["g2", "g3"]],
    "a.b": "dotted",
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b", "dotted"),  # a name as it stands comes first
        ("a.b[].c", ["x", "y"]),
        ("a.b[0].c", "x"),
        ("a.b[].d", [1, 2]),
        ("a.b[0].d[1]", 2),
        ("a.b[0].d[-1]", 2),
        ("a.b[-9].c", None),
        ("groups[]", ["g1", "g2", "g3"]),
        ("groups[1]", ["g2", "g3"]),
        ("packed.deep[0]", "m"),
        ("python[]", ["p", "q"]),
        ("a.x", None),
        ("a.b.c", None),  # a list, which wants []
        ("a.b[7].c", None),
        ("a.b[].nothing", None),
        ("a[].b", None),
    ],
)
def test_a_path_steps_through_objects_and_lists(path: str, value: Any) -> None:
    record = RECORD if path == "a.b" else {k: v for k, v in RECORD.items() if k != "a.b"}
    assert value_at(record, path) == value


CRAG = {"interaction_id": "c1", "query": "Who built it?", "answer": "Ann Bo", "alt_ans": ["A. Bo"],
        "question_type": "simple", "split": 0, "search_results": [
            {"page_name": "Mill", "page_snippet": "Ann Bo built it."}]}  # fmt: skip
AUTORAG = {"qid": "a1", "query": "Who built it?", "generation_gt": ["Ann Bo", "A. Bo"],
           "retrieval_gt": [["d1"], ["d2"]], "metadata": {}}  # fmt: skip
HIPPO = {"id": "h1", "question": "Who built it?", "answer": ["Ann Bo", "A. Bo"], "paragraphs": [
    {"title": "Mill", "text": "Ann Bo built it.", "is_supporting": True, "idx": 0},
    {"title": "Cy", "text": "Cy sold it.", "is_supporting": False, "idx": 1}]}  # fmt: skip
FLASH = {"id": "f1", "question": "Who built it?", "golden_answers": ["Ann Bo", "A. Bo"],
         "metadata": {"type": "bridge"}}  # fmt: skip


@pytest.mark.parametrize(
    ("record", "qid", "passages", "gold"),
    [
        (CRAG, "c1", 1, 0),
        (AUTORAG, "a1", 0, 0),
        (HIPPO, "h1", 2, 1),
        (FLASH, "f1", 0, 0),
    ],
)
def test_question_files_of_the_trade(
    record: Any, qid: str, passages: int, gold: int, write: Any
) -> None:
    path = write([record], "questions.jsonl")
    assert detect_layout(path) == "jsonl"
    data = load_dataset(DataSettings(dataset="jsonl", data_file=path))
    [example] = data.questions
    assert (example.qid, example.question) == (qid, "Who built it?")
    assert example.answers == ["Ann Bo", "A. Bo"]
    assert len(data.corpus) == passages
    assert len(example.gold_pids) == gold
    if passages:
        assert data.setting == "distractor"


@pytest.mark.parametrize(
    ("record", "corpus", "fields", "gold"),
    [
        (AUTORAG, [{"doc_id": "d1", "contents": "x"}, {"doc_id": "d2", "contents": "y"}], {}, 2),
        (AUTORAG, [{"key": "d1", "body": "x"}, {"key": "d2", "body": "y"}],
         {"id": "key", "text": "body"}, 2),
        ({**AUTORAG, "retrieval_gt": ["Mill"]}, [{"meta": {"name": "Mill"}, "parts": [{"t": "x"}]}],
         {"title": "meta.name", "sentences": "parts[].t"}, 1),
    ],
)  # fmt: skip
def test_gold_is_found_in_a_corpus_whose_fields_are_mapped(
    record: Any, corpus: Any, fields: dict[str, str], gold: int, write: Any
) -> None:
    spec = DataSettings(
        dataset="jsonl",
        data_file=write([record], "questions.jsonl"),
        corpus_file=write(corpus, "corpus.jsonl"),
        corpus_field=fields,
    )
    assert len(load_dataset(spec).questions[0].gold_pids) == gold


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        ('a\tb\n"Silver" is a song\tx\n', {"a": '"Silver" is a song', "b": "x"}),
        ('a\tb\nthe 6" gun\tx\n', {"a": 'the 6" gun', "b": "x"}),
        ('a\tb\n"open\tx\n', {"a": '"open', "b": "x"}),
        ('a\tb\n"Mira"\tx\n', {"a": '"Mira"', "b": "x"}),  # a title with its marks
        ('"a"\t"b"\n"one ""two"""\t"x"\n', {"a": 'one "two"', "b": "x"}),  # of a spreadsheet
        ('a\tb\n"one\ttwo"\tx\n', {"a": "one\ttwo", "b": "x"}),
        ('a\tb\n"one ""two"""\tx\n', {"a": 'one "two"', "b": "x"}),
        ("a\tb\n\tx\n", {"a": None, "b": "x"}),
    ],
)
def test_cells_between_tabs(content: str, cells: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    path.write_text(content)
    assert [row.data for row in read_rows(path)] == [cells]


@pytest.mark.parametrize("coding", ["latin-1", "shift_jis"])
def test_a_wrong_coding_is_named_with_its_cure(coding: str, tmp_path: Path) -> None:
    text = "東京の本社はどこですか。" if coding == "shift_jis" else "Où est né l'été à Zürich ?"
    path = tmp_path / "q.jsonl"
    path.write_bytes((json.dumps({"question": text, "answer": "x"}, ensure_ascii=False)).encode(
        coding))  # fmt: skip
    with pytest.raises(DataError, match=r"q.jsonl: not UTF-8 text at byte \d+.*--encoding"):
        load_dataset(DataSettings(dataset="jsonl", data_file=path))
    data = load_dataset(DataSettings(dataset="jsonl", data_file=path, encoding=coding))
    assert data.questions[0].question == text
    with pytest.raises(DataError, match="is not a known encoding"):
        load_dataset(DataSettings(dataset="jsonl", data_file=path, encoding="latin-99"))


@pytest.mark.parametrize(
    ("rows", "corpus", "says"),
    [
        ([{"asked": "Who?", "answer": "x"}], None, "--field question=NAME"),
        ([{"question": "Who?", "reply": "x"}], None, "--field answer=NAME"),
        ([{"question": "Who?", "answer": "x"}], [{"body": "x"}], "--corpus-field text=NAME"),
        (
            [{"question": "Who?", "answers": {"text": ["x"]}}],
            None,
            "--field answers=answers.text reads",
        ),
    ],
)
def test_a_field_that_is_missing_or_within_is_named_with_the_option_that_maps_it(
    rows: Any, corpus: Any, says: str, write: Any
) -> None:
    file = None if corpus is None else write(corpus, "corpus.jsonl")
    spec = DataSettings(dataset="jsonl", data_file=write(rows, "q.jsonl"), corpus_file=file)
    with pytest.raises(DataError, match=says):
        load_dataset(spec)


@pytest.mark.parametrize("name", ["q.jsonl", "q.json", "q.csv"])
def test_a_file_that_changes_while_it_is_read_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    content = {"q.jsonl": "{}\n", "q.json": '[{"a": "b"}]', "q.csv": "a\nb\n"}
    path.write_text(content[name])
    rows = read_rows(path)
    next(rows)
    with path.open("a") as file:
        file.write(" ")
    with pytest.raises(DataError, match="changed while it was read"):
        list(rows)
