"""Whatever is wrong with a file is one line that names the file, the record and the field."""

import copy
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragbench.data import DataSpec, load_dataset
from ragbench.errors import RagbenchError
from tests.data.samples import CUSTOM, HOTPOT, MUSIQUE
from tests.data.test_readers import CORPUS, ROWS, pdf, write_rows

QUESTIONS = [{"id": row["id"], "question": row["question"], "answer": "x"} for row in ROWS]
CHUNKS = [{"id": str(i), "text": row["text"]} for i, row in enumerate(CORPUS)]


def refusal(spec: DataSpec) -> str:
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
        (b"\xff\xfe[]", "not UTF-8"),
        (b"[{\x00}]", "NUL"),
        (b'[{"question": "a', "not whole JSON"),
        (b'{"data": []}', "list of records"),
        (b"[null]", "must be an object, not null"),
        (b"[" * 100_000, "not whole JSON"),
        (b"[" + b"9" * 5000 + b"]", "not whole JSON"),
    ],
)
def test_broken_files(tmp_path, content, says):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    message = refusal(DataSpec("hotpotqa", data_file=path))
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
        ("hotpotqa", {"context": []}, "has no passages of its own"),
        ("hotpotqa", {"supporting_facts": [["T", True]]}, "field 'supporting_facts.0.1'"),
        ("hotpotqa", {"context": {"title": ["T", "U"], "sentences": [["s."]]}},
         "field 'context': zip() argument 2 is shorter than argument 1"),
        ("hotpotqa", {"_id": "h0"}, "'h0' is the id of"),
        ("jsonl", {"answers": [], "answer": None}, "field 'answers': is missing or empty"),
        ("jsonl", {"gold": ["nothing"]}, "'nothing' is neither the id nor the title"),
        ("jsonl", {"context": [{"id": "p", "text": "a"}, {"id": "p", "text": "b"}]},
         "another passage"),
    ],
)  # fmt: skip
def test_broken_fields(dataset, change, says, write):
    rows = copy.deepcopy(HOTPOT if dataset == "hotpotqa" else CUSTOM)
    changed = {**rows[1], **change}
    rows[1] = {key: value for key, value in changed.items() if value is not DROPPED}
    message = refusal(DataSpec(dataset, data_file=write(rows)))
    assert says in message
    assert "data.json: record 2" in message


@pytest.mark.parametrize(
    ("dataset", "corpus", "says"),
    [
        ("arag", ["no index"], "must be 'index:text'"),
        ("arag", ["0:"], ""),  # an empty chunk is odd, not wrong
        ("jsonl", [{"title": 5, "text": "x"}], "field 'title'"),
        ("jsonl", [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "the id of another"),
    ],
)
def test_broken_corpus_files(dataset, corpus, says, write):
    files = {"data_file": write(QUESTIONS), "corpus_file": write(corpus, "corpus.json")}
    message = refusal(DataSpec(dataset, **files))
    assert bool(says) == bool(message)
    assert says in message
    assert not message or "corpus.json: record" in message


#: Name, content, and whether it must be refused: a cut table may be a whole smaller one.
Damage = tuple[str, bytes, bool]


def damages(good: bytes) -> Iterator[Damage]:
    """Files that are no good, and files with a bit turned over or a piece gone."""
    dice = random.Random(0)
    yield "empty", b"", True
    yield "bom alone", b"\xef\xbb\xbf", True
    yield "noise", dice.randbytes(500), True
    yield "utf-16", "\ufeffquestion,answer\n".encode("utf-16"), True
    yield "latin-1", b'[{"question": "caf\xe9?", "answer": "x"}]', True
    yield "zip", b"PK\x03\x04" + dice.randbytes(200), True
    yield "html", b"<!doctype html><html><body>404 Not Found</body></html>", True
    yield "lfs pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", True
    for share in (0.1, 0.5, 0.9):
        yield f"cut at {share}", good[: int(len(good) * share)], False
    for number in range(8):
        content = bytearray(good)
        content[dice.randrange(len(good))] ^= 1 << dice.randrange(8)
        yield f"bit flip {number}", bytes(content), False
        at = dice.randrange(len(good))
        yield f"noise within {number}", good[:at] + dice.randbytes(20) + good[at:], False


def a_file(what: str, kind: str, folder: Path) -> tuple[Path, DataSpec]:
    """A good file of this kind, and a data set that reads it."""

    def rows(kind: str, values: list[dict[str, Any]], name: str) -> Path:
        return write_rows(folder, kind, values, name)

    if what == "official":
        path = rows("json", MUSIQUE if kind == "musique" else HOTPOT, what)
        return path, DataSpec(kind, data_file=path)
    if what == "questions":
        path = rows(kind, ROWS, what)
        return path, DataSpec("jsonl", data_file=path, corpus_file=rows("json", CORPUS, "c"))
    questions = rows("json", QUESTIONS, "questions")
    if what == "document":
        (folder / "docs").mkdir()
        path = folder / "docs" / f"a.{kind}"
        path.write_bytes(pdf(["Some text."]) if kind == "pdf" else b"# Head\n\nText.\n" * 20)
        return path, DataSpec("jsonl", data_file=questions, corpus_file=path.parent)
    path = rows(kind, CHUNKS if what == "chunks" else CORPUS, what)
    name = "arag" if what == "chunks" else "jsonl"
    return path, DataSpec(name, data_file=questions, corpus_file=path)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        *(("questions", kind) for kind in ("json", "jsonl", "csv", "tsv", "parquet")),
        *(("corpus", kind) for kind in ("jsonl", "csv", "parquet")),
        *(("official", kind) for kind in ("hotpotqa", "2wikimultihopqa", "musique")),
        *(("chunks", kind) for kind in ("json", "parquet")),
        *(("document", kind) for kind in ("md", "pdf")),
    ],
)
def test_a_damaged_file_is_refused_and_what_is_no_file_not_waited_for(what, kind, tmp_path):
    path, spec = a_file(what, kind, tmp_path)
    assert refusal(spec) == ""
    for name, content, certain in damages(path.read_bytes()):
        path.write_bytes(content)
        message = refusal(spec)
        if certain and not (kind == "md" and name in {"html", "lfs pointer"}):  # which are text
            assert message, f"{name} was read"
            assert path.name in message or what == "document", message
    path.unlink()
    os.mkfifo(path)
    assert refusal(spec)
    path.unlink()
    path.symlink_to(path)
    assert refusal(spec)
    path.unlink()
    path.mkdir()
    assert refusal(spec)
