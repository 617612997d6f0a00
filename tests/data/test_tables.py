"""Tables as common programs write them, and files that are refused with what to do."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragbench.data import DataSettings, load_dataset
from ragbench.data.readers import read_rows
from ragbench.errors import DataError

ROW = {"id": "q1", "question": "Who, then?", "answer": "Ann Bo"}


@pytest.mark.parametrize(
    ("name", "text", "coding"),
    [
        ("sep.csv", "sep=;\r\nid;question;answer\r\nq1;Who, then?;Ann Bo\r\n", "utf-8"),
        ("sep.csv", "SEP=;\nid;question;answer\nq1;Who, then?;Ann Bo\n", "utf-8-sig"),
        ("semicolons.csv", 'id;question;answer\nq1;"Who, then?";Ann Bo\n', "utf-8"),
        ("blank.csv", 'id,question,answer\n,,\n\nq1,"Who, then?",Ann Bo\n , ,\n,,\n', "utf-8"),
        ("unicode.csv", "id\tquestion\tanswer\nq1\tWho, then?\tAnn Bo\n", "utf-16"),
        ("unicode.csv", 'id,question,answer\nq1,"Who, then?",Ann Bo\n', "utf-16"),
        ("unicode.tsv", "id\tquestion\tanswer\nq1\tWho, then?\tAnn Bo\n", "utf-16"),
        ("unicode.jsonl", '{"id": "q1", "question": "Who, then?", "answer": "Ann Bo"}', "utf-16"),
        ("blanks.csv", 'id, question, answer\nq1, "Who, then?", Ann Bo\n', "utf-8"),
        ("wide.csv", 'id,question,answer\nq1,"Who, then?",Ann Bo,,\n', "utf-8"),
        ("tabs.csv", "id\tquestion\tanswer\nq1\tWho, then?\tAnn Bo\n", "utf-8"),
    ],
)
def test_table_of_a_common_program_is_read(
    name: str, text: str, coding: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode(coding))
    (row,) = read_rows(path)
    assert row.data == ROW


@pytest.mark.parametrize("name", ["state.json", "dataset_dict.json"])
def test_saved_dataset_is_refused_with_what_to_do(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match="to_parquet"):
        list(read_rows(tmp_path))
    with pytest.raises(DataError, match="to_parquet"):
        load_dataset(DataSettings(dataset="documents", corpus_file=tmp_path))


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("q.jsonl.gz", "gunzip"),
        ("q.csv.zip", "unzip"),
        ("q.json.zst", "unzstd"),
        ("q.xls", ".xlsx"),
    ],
)
def test_packed_file_is_refused_with_what_to_do(name: str, fix: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x1f\x8b")
    with pytest.raises(DataError, match=rf"{name}: .*{fix}"):
        list(read_rows(path))


def test_parquet_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    values: Any = pa.array([0] * 4000, pa.int32())
    texts = pa.DictionaryArray.from_arrays(values, ["x" * 500_000])
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"question": texts}), path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="unpacks to more than 256 MB"):
        list(read_rows(path))
