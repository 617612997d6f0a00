"""Hundreds of malformed files, through every reader: each is refused in one line, or harmless."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ragbench.data import DataSpec, load_dataset
from ragbench.errors import RagbenchError
from tests.data.samples import HOTPOT, MUSIQUE
from tests.data.test_readers import CORPUS, ROWS, pdf, write_rows

#: Name, content, and whether it must be refused: a cut table may be a whole smaller one.
Damage = tuple[str, bytes, bool]


def damages(good: bytes) -> Iterator[Damage]:
    """Files that are no good, and files with a bit turned over or a piece gone."""
    dice = random.Random(0)
    yield "empty", b"", True
    yield "blank", b" \r\n\n \n", True
    yield "bom alone", b"\xef\xbb\xbf", True
    yield "nul bytes", b"\x00" * 500, True
    yield "noise", dice.randbytes(500), True
    yield "utf-16", "\ufeffquestion,answer\n".encode("utf-16"), True
    yield "latin-1", b'[{"question": "caf\xe9?", "answer": "x"}]', True
    yield "zip", b"PK\x03\x04" + dice.randbytes(200), True
    yield "gzip", b"\x1f\x8b\x08\x00" + dice.randbytes(200), True
    yield "html", b"<!doctype html><html><body>404 Not Found</body></html>", True
    yield "lfs pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", True
    for share in (0.1, 0.5, 0.9):
        yield f"cut at {share}", good[: int(len(good) * share)], False
    for number in range(8):
        content = bytearray(good)
        content[dice.randrange(len(good))] ^= 1 << dice.randrange(8)
        yield f"bit flip {number}", bytes(content), False
    for number in range(4):
        at = dice.randrange(len(good))
        yield f"noise within {number}", good[:at] + dice.randbytes(20) + good[at:], False


def questions(kind: str, folder: Path) -> tuple[Path, DataSpec]:
    corpus = write_rows(folder, "json", CORPUS, "passages")
    path = write_rows(folder, kind, ROWS, "questions")
    return path, DataSpec("jsonl", data_file=path, corpus_file=corpus)


def corpus(kind: str, folder: Path) -> tuple[Path, DataSpec]:
    path = write_rows(folder, kind, CORPUS, "passages")
    data = write_rows(folder, "json", ROWS, "questions")
    return path, DataSpec("jsonl", data_file=data, corpus_file=path)


def official(kind: str, folder: Path) -> tuple[Path, DataSpec]:
    rows = MUSIQUE if kind == "musique" else HOTPOT
    path = write_rows(folder, "jsonl" if kind == "musique" else "json", rows, "official")
    return path, DataSpec(kind, data_file=path)


def chunks(kind: str, folder: Path) -> tuple[Path, DataSpec]:
    rows = [{"id": str(i), "text": row["text"]} for i, row in enumerate(CORPUS)]
    path = write_rows(folder, kind, rows, "chunks")
    data = [{"id": row["id"], "question": row["question"], "answer": "x"} for row in ROWS]
    return path, DataSpec("arag", data_file=write_rows(folder, "json", data, "q"), corpus_file=path)


def document(kind: str, folder: Path) -> tuple[Path, DataSpec]:
    (folder / "docs").mkdir()
    path = folder / "docs" / f"a.{kind}"
    path.write_bytes(pdf(["Some text."]) if kind == "pdf" else b"# Head\n\nText.\n" * 20)
    data = write_rows(folder, "json", ROWS, "questions")
    return path, DataSpec("jsonl", data_file=data, corpus_file=folder / "docs")


READERS: list[tuple[Callable[[str, Path], tuple[Path, DataSpec]], str]] = [
    *((questions, kind) for kind in ("json", "jsonl", "csv", "tsv", "parquet")),
    *((corpus, kind) for kind in ("json", "jsonl", "csv", "tsv", "parquet")),
    *((official, kind) for kind in ("hotpotqa", "2wikimultihopqa", "musique")),
    *((chunks, kind) for kind in ("json", "parquet")),
    *((document, kind) for kind in ("md", "pdf")),
]
#: Documents may say anything that is text.
TEXT = {"html", "lfs pointer"}


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


@pytest.mark.parametrize(("make", "kind"), READERS, ids=lambda x: getattr(x, "__name__", x))
def test_malformed_files(make, kind, tmp_path):
    path, spec = make(kind, tmp_path)
    assert refusal(spec) == ""
    for name, content, certain in damages(path.read_bytes()):
        path.write_bytes(content)
        message = refusal(spec)
        if certain and not (make is document and kind == "md" and name in TEXT):
            assert message, f"{name} was read"
            assert path.name in message or make is document, message


@pytest.mark.parametrize(("make", "kind"), READERS, ids=lambda x: getattr(x, "__name__", x))
def test_what_is_no_file_is_not_waited_for(make, kind, tmp_path):
    path, spec = make(kind, tmp_path)
    path.unlink()
    assert refusal(spec)
    os.mkfifo(path)
    assert refusal(spec)
    path.unlink()
    path.symlink_to(path)
    assert refusal(spec)
    path.unlink()
    path.mkdir()
    assert refusal(spec)
