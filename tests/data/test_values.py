"""One value means the same through every door: CSV, Excel, JSON lines, Parquet and Python."""

import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragbench.data import DataSettings, load_dataset
from ragbench.data.user_data import own_dataset
from ragbench.data.values import unpacked
from ragbench.errors import DataError, RagbenchError

#: A value, and the answers that it means; None if it is refused.
VALUES: list[tuple[Any, list[str] | None]] = [
    ("Ann Bo", ["Ann Bo"]),
    ("  Ann Bo ", ["Ann Bo"]),
    ("北京市", ["北京市"]),
    ("Ann & Bo", ["Ann & Bo"]),
    ("Ann &amp; Bo", ["Ann & Bo"]),
    ("it's (a) 'name'", ["it's (a) 'name'"]),
    ("[see note]", ["[see note]"]),
    ("[Music] by (Ann)", ["[Music] by (Ann)"]),
    ("(5)", ["(5)"]),
    ("007", ["007"]),
    ("1e3", ["1e3"]),
    ("2024-05-31", ["2024-05-31"]),
    ("yes.", ["yes."]),
    ('say "no"', ['say "no"']),
    ("two\nlines", ["two\nlines"]),
    ("", None),
    (None, None),
    (float("nan"), None),
    (7, ["7"]),
    (0, ["0"]),
    (-3, ["-3"]),
    (1931.0, ["1931"]),
    (3.5, ["3.5"]),
    (True, ["yes"]),
    (False, ["no"]),
    (date(2024, 5, 31), ["2024-05-31"]),
    (datetime(2024, 5, 31), ["2024-05-31"]),
    (datetime(2024, 5, 31, 10, 30), ["2024-05-31 10:30:00"]),
    (pd.Timestamp("2024-05-31"), ["2024-05-31"]),
    (Decimal("1931"), ["1931"]),
    (Decimal("1931.0"), ["1931"]),
    (Decimal("3.5"), ["3.5"]),
    (np.int64(7), ["7"]),
    (np.float64(1931.0), ["1931"]),
    (np.bool_(True), ["yes"]),
    (np.str_("Ann"), ["Ann"]),
    (["Ann Bo", "A. Bo"], ["Ann Bo", "A. Bo"]),
    (["Ann Bo"], ["Ann Bo"]),
    ([], None),
    ([1931, 1932], ["1931", "1932"]),
    ([["Ann", "A."], ["Bo"]], ["Ann", "A.", "Bo"]),
    (["it's", 'a "b"'], ["it's", 'a "b"']),
    (np.array(["Ann Bo", "A. Bo"], dtype=object), ["Ann Bo", "A. Bo"]),
    ({"text": "Ann"}, None),
]
QUESTION = {"id": "q1", "question": "Who founded it?"}


def as_jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Decimal):
        return float(value)
    return str(value)


def write_csv(value: Any, folder: Path) -> Path:
    path = folder / "q.csv"
    pd.DataFrame({**{k: [v] for k, v in QUESTION.items()}, "answer": pd.Series([value])}).to_csv(
        path, index=False
    )
    return path


def write_excel(value: Any, folder: Path) -> Path:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active.append([*QUESTION, "answer"])
    if isinstance(value, list | dict | np.ndarray):
        value = str(value)
    if isinstance(value, np.generic):
        value = value.item()
    book.active.append([*QUESTION.values(), value])
    path = folder / "q.xlsx"
    book.save(path)
    return path


def write_lines(value: Any, folder: Path) -> Path:
    path = folder / "q.jsonl"
    path.write_text(json.dumps({**QUESTION, "answer": value}, default=as_jsonable))
    return path


def write_parquet(value: Any, folder: Path) -> Path:
    path = folder / "q.parquet"
    if isinstance(value, list) and not value:
        value = pa.array([[]], pa.list_(pa.string()))
    else:
        value = [value]
    pq.write_table(pa.table({**{k: [v] for k, v in QUESTION.items()}, "answer": value}), path)
    return path


@pytest.mark.parametrize("write", [write_csv, write_excel, write_lines, write_parquet])
@pytest.mark.parametrize(("value", "answers"), VALUES, ids=lambda v: repr(v)[:40])
def test_answer_through_a_file_is_the_same(
    write: Callable[[Any, Path], Path], value: Any, answers: list[str] | None, tmp_path: Path
) -> None:
    spec = DataSettings(dataset="jsonl", data_file=write(value, tmp_path))
    if answers is None:
        with pytest.raises(DataError, match=r"field 'answers?"):
            load_dataset(spec)
    else:
        (example,) = load_dataset(spec).every
        assert example.answers == answers


@pytest.mark.parametrize(("value", "answers"), VALUES, ids=lambda v: repr(v)[:40])
def test_answer_of_an_example_is_the_same(value: Any, answers: list[str] | None) -> None:
    example = dspy.Example(question="Who founded it?", answer=value)
    if answers is None:
        with pytest.raises(RagbenchError, match="answer"):
            own_dataset({"test": [example]})
    else:
        assert own_dataset({"test": [example]}).splits["test"][0].answers == answers


@pytest.mark.parametrize(
    ("value", "answers"),
    [(b"Ann Bo", ["Ann Bo"]), (b"\xff\xfe", None), (time(10, 30), ["10:30:00"])],
)
def test_answer_of_a_kind_that_only_parquet_and_python_have(
    value: Any, answers: list[str] | None, tmp_path: Path
) -> None:
    test_answer_through_a_file_is_the_same(write_parquet, value, answers, tmp_path)
    test_answer_of_an_example_is_the_same(value, answers)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("['Ann Bo' 'A. Bo']", ["Ann Bo", "A. Bo"]),
        ("['Ann (x)' \"O'B\"\n 'array(c)']", ["Ann (x)", "O'B", "array(c)"]),
        ("array(['Carl Diem', 'C. Diem'], dtype=object)", ["Carl Diem", "C. Diem"]),
        ("[array(['a)'], dtype=object)\n array(['b'], dtype='<U3')]", [["a)"], ["b"]]),
        ("[np.str_('a'), np.str_('b')]", ["a", "b"]),
        ("[1 2 -3]", [1, 2, -3]),
        ("['a' nan]", ["a", None]),
        ("('a', 'b')", ["a", "b"]),
        ("[('T', 0), ('S', 1)]", [("T", 0), ("S", 1)]),
        ("{'a': 1}", {"a": 1}),
        ("[1] Smith, 2020", "[1] Smith, 2020"),
        ("[x, y]", "[x, y]"),
        ("[" * 10_000 + "]", "[" * 10_000 + "]"),
    ],
)
def test_unpacked_list_as_a_program_writes_it(text: str, value: Any) -> None:
    assert unpacked(text) == value


def test_ids_and_hops_are_the_same_through_every_door(tmp_path: Path) -> None:
    rows = {"id": [1, None], "question": ["Who?", "Where?"], "answer": "x", "hops": [2, None]}
    frame = pd.DataFrame(rows)  # whose whole numbers have become 1.0 and 2.0
    frame.to_csv(tmp_path / "q.csv", index=False)
    frame.to_excel(tmp_path / "q.xlsx", index=False)
    frame.to_parquet(tmp_path / "q.parquet", index=False)
    frame.to_json(tmp_path / "q.jsonl", orient="records", lines=True)
    for ending in ("csv", "xlsx", "parquet", "jsonl"):
        data = load_dataset(DataSettings(dataset="jsonl", data_file=tmp_path / f"q.{ending}"))
        assert [(e.qid, e.hops) for e in data.every] == [("1", 2), ("q000002", None)], ending


def test_other_fields_of_an_example_are_jsonable_if_their_kind_is_known() -> None:
    fields = {"year": Decimal("1931.0"), "day": date(2024, 5, 31), "n": np.int64(5), "raw": b"x"}
    example = dspy.Example(question="Who?", answer="x", **fields)
    data = own_dataset({"test": [example]})
    assert len(data.digest) == 64
    with pytest.raises(RagbenchError, match="neither JSON"):
        own_dataset({"test": [dspy.Example(question="Who?", answer="x", tags={"a", "b"})]})
