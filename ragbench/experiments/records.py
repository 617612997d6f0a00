"""Records: one JSON line per question, written and fsynced as soon as the question ends.

A line holds the record and, as its last key, `sum`: the first 16 hexadecimal digits of the SHA-256
of the rest. A torn last line (the process was killed while writing) is cut off when the file is
opened for writing; a corrupt line elsewhere is reported and left out, and its question counts as
not asked. Where a question has several records, because a failed one was retried, the last counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import dspy

from ragbench.errors import RunError
from ragbench.experiments.failures import Failure
from ragbench.experiments.record_shape import wrong_with
from ragbench.ledger import Ledger
from ragbench.retrievers.base import Passage

Record = dict[str, Any]
Alignment = Mapping[str, Sequence[tuple[str, int]]]

RECORDS = "records.jsonl"
#: Class of error of a question that a limit of the command's spending cut off.
CUT_OFF = "LimitReachedError"

_EXAMPLE_FIELDS = frozenset(
    {"qid", "question", "answers", "qtype", "hops", "support", "gold_pids", "decomposition"}
)


def make_record(
    example: dspy.Example,
    prediction: dspy.Prediction | None,
    ledger: Ledger,
    *,
    latency_s: float,
    failure: Failure | None = None,
    alignment: Alignment | None = None,
) -> Record:
    """The record of one question, JSON-ready; see docs/records.md for its fields.

    `alignment` says which sentences of the paragraphs each chunk of the corpus holds.

    `prediction` of a failed question holds what it did before it failed, if that is known.
    `latency_s` is wall time; the record adds the time that the cache saved.
    """
    record: Record = {
        "qid": example.qid,
        "question": example.question,
        "answers": list(example.answers),
        "qtype": example.get("qtype", ""),
        "hops": example.get("hops"),
        "support": [list(pair) for pair in example.get("support", [])],
        "gold_pids": list(example.get("gold_pids", [])),
        "decomposition": list(example.get("decomposition", [])),
        "extra": {k: _plain(v) for k, v in example.items() if k not in _EXAMPLE_FIELDS},
        "answer": None,
        "stop_reason": None,
        "steps": [],
        "searches": [],
        "passages": [],
        "counts": {},
        "ledger": ledger.to_dict(),
        "latency_s": round(latency_s + ledger.path.cached_s, 6),
        "failure": asdict(failure) if failure else None,
        "scores": {},
    }
    if prediction is not None:
        record.update(_outcome(prediction, alignment or {}))
        record["answer"] = None if failure else record["answer"]
    return record


def _outcome(prediction: dspy.Prediction, alignment: Alignment) -> Record:
    outcome: Record = {
        "answer": str(prediction.answer),
        "stop_reason": prediction.stop_reason,
        "steps": [asdict(step) for step in prediction.steps],
        "searches": [asdict(search) for search in prediction.searches],
        "passages": [_passage(passage, alignment) for passage in prediction.passages],
        "counts": dict(sorted(prediction.counts.items())),
    }
    for name in ("citations", "plan", "facts", "tree", "stages"):
        value = prediction.get(name)
        if value is not None:
            outcome[name] = _plain(value)
    return outcome


def _passage(passage: Passage, alignment: Alignment) -> Record:
    shown: Record = {"pid": passage.pid, "title": passage.title, "text": passage.text}
    if passage.sentences:
        shown["sentences"] = list(passage.sentences)
    if passage.pid in alignment:
        shown["holds"] = [list(fact) for fact in alignment[passage.pid]]
    return shown


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def encode(record: Mapping[str, Any]) -> bytes:
    """The line of `record`, newline included."""
    body = json.dumps(record, ensure_ascii=False, default=str)
    # A lone surrogate (a model can write one) has no UTF-8; "?" takes its place.
    body = body.encode("utf-8", "replace").decode()
    digest = hashlib.sha256(body.encode()).hexdigest()[:16]
    return f'{body[:-1]}, "sum": "{digest}"}}\n'.encode()


def decode(line: bytes) -> Record:
    """The record of `line`.

    Raises:
        ValueError: the line is torn or was changed.
    """
    text = line.decode("utf-8").rstrip("\n")
    body, mark, tail = text.rpartition(', "sum": "')
    if not mark or not tail.endswith('"}'):
        raise ValueError("no checksum")
    if hashlib.sha256((body + "}").encode()).hexdigest()[:16] != tail[:-2]:
        raise ValueError("checksum does not match")
    record = json.loads(body + "}")
    if not isinstance(record, dict) or "qid" not in record:
        raise ValueError("not a record")
    return record


def was_cut_off(record: Mapping[str, Any]) -> bool:
    """Whether a limit of the command's spending kept the question from its end."""
    return record["failure"] is not None and record["failure"]["error"] == CUT_OFF


@dataclass
class Loaded:
    """The records of a file, the last of each question, in the order first asked.

    A question that a limit cut off has none of them: it counts as not asked.
    """

    records: dict[str, Record] = field(default_factory=dict)
    corrupt: list[int] = field(default_factory=list)  # line numbers, from 1
    earlier: list[Record] = field(default_factory=list)  # those that a later one replaced
    #: Of questions that a limit cut off. They are not answered, but what they took was billed.
    cut_off: list[Record] = field(default_factory=list)

    @property
    def finished(self) -> set[str]:
        """Ids of the questions that were answered; a failed one is not finished."""
        return {qid for qid, record in self.records.items() if record["failure"] is None}


def read_records(folder: Path) -> Loaded:
    """All records in `folder`; a torn last line is passed over, one that is no record listed.

    Raises:
        RunError: there is no such run or its records cannot be read.
    """
    loaded = Loaded()
    for number, row in _numbered(folder / RECORDS, wrong_with):
        if row is None:
            loaded.corrupt.append(number)
            continue
        qid = row["qid"]
        if was_cut_off(row):
            loaded.cut_off.append(row)
            continue
        if qid in loaded.records:
            loaded.earlier.append(loaded.records[qid])
        loaded.records[qid] = row
    return loaded


#: What keeps a line from being used, such as the name of a field; empty if nothing does.
Wrong = Callable[[Record], str]


def read_lines(path: Path, wrong: Wrong = lambda row: "") -> tuple[list[Record], list[int]]:
    """Every line of `path` that can be used, in order, and the numbers of corrupt ones.

    A torn last line is passed over; a file that does not exist has no lines.

    Raises:
        RunError: the file cannot be read.
    """
    numbered = _numbered(path, wrong)
    rows = [row for _, row in numbered if row is not None]
    return rows, [number for number, row in numbered if row is None]


def _numbered(path: Path, wrong: Wrong) -> list[tuple[int, Record | None]]:
    """Each line's number, from 1, and what it holds; None where it is corrupt."""
    found: list[tuple[int, Record | None]] = []
    try:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        try:
            row = decode(line)
            found.append((number, None if wrong(row) else row))
        except (ValueError, RecursionError):
            if line.endswith(b"\n"):
                found.append((number, None))
    return found


class RecordWriter:
    """Appends records to a run folder, each fsynced before `write` returns. Thread-safe.

    Without `durable`, what was written outlives the process, but not the machine.
    """

    def __init__(self, folder: Path, name: str = RECORDS, *, durable: bool = True) -> None:
        self._path, self._durable = folder / name, durable
        self._lock = threading.Lock()
        self._file: FileIO | None = None

    def __enter__(self) -> Self:
        try:
            # Unbuffered: what a full disk did not take must not be written again when it is closed.
            self._file = open(self._path, "ab+", buffering=0)
            _mend_tail(self._file)
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror}") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            if self._file:
                self._file.close()
                self._file = None

    def write(self, record: Mapping[str, Any]) -> None:
        """Append `record`; it is on disk when this returns.

        Raises:
            RunError: the disk is full or the folder is gone.
        """
        line = encode(record)
        with self._lock:
            if self._file is None:
                raise RunError(f"{self._path} is closed: the run was stopped")
            start = self._file.seek(0, os.SEEK_END)
            try:
                _write_all(self._file, line)
                if self._durable:
                    os.fsync(self._file.fileno())
            except OSError as error:
                self._undo(start)
                raise RunError(f"cannot write {self._path}: {error.strerror}") from None

    def _undo(self, start: int) -> None:
        try:
            assert self._file is not None
            self._file.truncate(start)
        except OSError:
            pass  # the next opening cuts the torn line off


def _write_all(file: FileIO, line: bytes) -> None:
    left = memoryview(line)
    while left:  # a nearly full disk takes a part
        left = left[file.write(left) :]


def _mend_tail(file: FileIO) -> None:
    """Cut a torn last line off, so that the next record starts on a line of its own."""
    size = file.seek(0, os.SEEK_END)
    start = _last_line_start(file, size)
    if start == size:
        return
    file.seek(start)
    tail = file.read()
    try:
        decode(tail)
    except (ValueError, RecursionError):
        if not tail.endswith(b"\n"):
            file.truncate(start)
    else:
        if not tail.endswith(b"\n"):
            file.write(b"\n")


def _last_line_start(file: FileIO, size: int) -> int:
    """The start of the last line, found by reading blocks from the end."""
    block, position = 1 << 16, size
    skip_final = 1  # a newline that ends the file does not start a line
    while position > 0:
        step = min(block, position)
        position -= step
        file.seek(position)
        data = file.read(step)
        at = data.rfind(b"\n", 0, len(data) - skip_final)
        skip_final = 0
        if at >= 0:
            return position + at + 1
    return 0
