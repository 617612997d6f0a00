"""Whatever is wrong with a file is one line that names the file, the record and the field."""

import copy
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragbench.data import DataSettings, load_dataset
from ragbench.errors import RagbenchError
from tests.data.samples import CUSTOM, HOTPOT
from tests.data.test_readers import CORPUS, ROWS, pdf, write_rows

QUESTIONS = [{"id": row["id"], "question": row["question"], "answer": "x"} for row in ROWS]
CHUNKS = [{"id": str(i), "text": row["text"]} for i, row in enumerate(CORPUS)]


def refusal(spec: DataSettings) -> str:
    """The message that refuses it, one line; blank where it can be read."""
    try:
        load_dataset(spec)
    except RagbenchError as error:
        message = str(error)
        assert message
        assert not {"\n", "\r", "\x00"} & set(message), message
        assert len(message) < 700, message
        return message
    return ""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff[]", "not UTF-8"),
        (b"[{\x00}]", "NUL"),
        (b'{"data": []}', "list of records"),
        (b"[null]", "must be an object, not null"),
        (b"[" * 100_000, "not whole JSON"),
        (b"[" + b"9" * 5000 + b"]", "not whole JSON"),
    ],
)
def test_broken_files(tmp_path, content, says):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    message = refusal(DataSettings(dataset="hotpotqa", data_file=path))
    assert says in message
    assert "broken.json" in message


DROPPED = object()


@pytest.mark.parametrize(
    ("dataset", "change", "says"),
    [
        ("hotpotqa", {"answer": DROPPED}, "field 'answer': is missing; there are "),
        ("hotpotqa", {"question": "  "}, "field 'question': is empty"),
        ("hotpotqa", {"question": "a\x00b"}, "field 'question': holds a NUL"),
        ("hotpotqa", {"question": "?!"}, "has no word"),
        ("hotpotqa", {"context": []}, "has no passages"),
        ("hotpotqa", {"supporting_facts": [["T", True]]}, "field 'supporting_facts.0.1'"),
        ("hotpotqa", {"context": {"title": ["T", "U"], "sentences": [["s."]]}},
         "field 'context': zip() argument 2 is shorter than argument 1"),
        ("hotpotqa", {"_id": "h0"}, "'h0' is the id of"),
        ("jsonl", {"answers": [], "answer": None}, "field 'answer': is missing or empty"),
        ("jsonl", {"gold": ["nothing"]}, "'nothing' is neither the id nor the title"),
        ("jsonl", {"context": [{"id": "p", "text": "a"}, {"id": "p", "text": "b"}], "gold": None},
         "another passage"),
    ],
)  # fmt: skip
def test_broken_fields(dataset, change, says, write):
    rows = copy.deepcopy(HOTPOT if dataset == "hotpotqa" else CUSTOM)
    changed = {**rows[1], **change}
    rows[1] = {key: value for key, value in changed.items() if value is not DROPPED}
    message = refusal(DataSettings(dataset=dataset, data_file=write(rows)))
    assert says in message
    assert "data.json: record 2" in message


@pytest.mark.parametrize(
    ("dataset", "corpus", "says"),
    [
        ("arag", ["no index"], "must be 'index:text'"),
        ("jsonl", [{"title": 5, "text": "x"}], "field 'title'"),
        ("jsonl", [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "the id of another"),
    ],
)
def test_broken_corpus_files(dataset, corpus, says, write):
    files = {"data_file": write(QUESTIONS), "corpus_file": write(corpus, "corpus.json")}
    message = refusal(DataSettings(dataset=dataset, **files))
    assert says in message
    assert "corpus.json: record" in message


def damaged(good: bytes) -> Iterator[tuple[bytes, bool]]:
    """Contents, and whether they must be refused: a cut table may be a whole smaller one."""
    dice = random.Random(0)
    for content in (b"", b"\xef\xbb\xbf", dice.randbytes(500), b"<html>404 Not Found</html>"):
        yield content, True
    for _ in range(4):
        at, flipped = dice.randrange(len(good)), bytearray(good)
        flipped[at] ^= 1 << dice.randrange(8)
        for content in (bytes(flipped), good[:at], good[:at] + dice.randbytes(20) + good[at:]):
            yield content, False


def a_file(kind: str, folder: Path) -> tuple[Path, DataSettings]:
    """A good file of this kind, and a data set that reads it."""
    if kind == "hotpotqa":
        path = write_rows(folder, "json", HOTPOT, kind)
        return path, DataSettings(dataset=kind, data_file=path)
    if kind in ("json", "jsonl", "csv", "parquet"):
        path = write_rows(folder, kind, ROWS, "mine")
        corpus = write_rows(folder, "json", CORPUS, "corpus")
        return path, DataSettings(dataset="jsonl", data_file=path, corpus_file=corpus)
    questions = write_rows(folder, "json", QUESTIONS, "questions")
    if kind == "chunks":
        path = write_rows(folder, "json", CHUNKS, kind)
        return path, DataSettings(dataset="arag", data_file=questions, corpus_file=path)
    path = folder / "docs" / f"a.{kind}"
    path.parent.mkdir()
    path.write_bytes(pdf(["Some text."]) if kind == "pdf" else b"# Head\n\nText.\n" * 20)
    return path, DataSettings(dataset="jsonl", data_file=questions, corpus_file=path.parent)


@pytest.mark.parametrize(
    "kind", ["json", "jsonl", "csv", "parquet", "hotpotqa", "chunks", "md", "pdf"]
)
def test_a_damaged_file_is_refused_and_what_is_no_file_not_waited_for(kind, tmp_path):
    path, spec = a_file(kind, tmp_path)
    assert refusal(spec) == ""
    for content, certain in damaged(path.read_bytes()):
        path.write_bytes(content)
        message = refusal(spec)
        if certain and not (kind == "md" and content.startswith(b"<")):  # which is text
            assert message, content
            assert path.name in message or path.parent.name == "docs"
    for make in (os.mkfifo, lambda path: path.symlink_to(path), Path.mkdir):
        path.unlink()
        make(path)
        assert refusal(spec)
