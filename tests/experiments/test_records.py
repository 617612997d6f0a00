"""Records: what is written is read back; what is torn or changed is never taken for a record."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ragbench.errors import RunError
from ragbench.experiments.records.jsonl import RECORDS, decode, encode
from ragbench.experiments.records.record_writer import RecordWriter
from ragbench.experiments.records.stored import read_records
from ragbench.record import Record
from tests.metrics.records import record as whole


def record(qid: str, *, failed: bool = False, answer: str = "Oslo") -> Record:
    failure = {"boundary": "provider", "error": "LMServerError", "message": "500"}
    return whole(answer, qid=qid, failure=failure if failed else None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values))
def test_decode_gives_back_what_encode_took(fields: dict[str, object]) -> None:
    whole = {"qid": "q", **fields}
    line = encode(whole)
    assert line.count(b"\n") == 1
    assert decode(line) == json.loads(json.dumps(whole))


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_any_changed_byte_is_noticed(position: int, change: int) -> None:
    line = bytearray(encode(record("q", answer="Bergen, 1907")))
    position %= len(line) - 1
    line[position] ^= change
    with pytest.raises((ValueError, UnicodeDecodeError)):
        decode(bytes(line))


def test_lone_surrogate_does_not_lose_the_record() -> None:
    assert decode(encode(record("q", answer="a\ud800b")))["answer"] == "a?b"


def test_last_record_of_a_question_counts_and_a_failed_one_is_not_finished(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.write(record("a", failed=True))
        writer.write(record("b", failed=True))
        writer.write(record("a"))
    loaded = read_records(tmp_path)
    assert loaded.finished == {"a"}
    assert list(loaded.records) == ["a", "b"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(cut=st.integers(min_value=1, max_value=5000), n=st.integers(min_value=1, max_value=4))
def test_torn_tail_is_cut_and_the_rest_kept(tmp_path: Path, cut: int, n: int) -> None:
    lines = [encode(record(f"q{i}", answer="x" * 50 * i)) for i in range(n)]
    whole = b"".join(lines)
    kept = max(0, len(whole) - cut)
    (tmp_path / RECORDS).write_bytes(whole[:kept])
    with RecordWriter(tmp_path) as writer:
        writer.write(record("new"))
    loaded = read_records(tmp_path)
    ends = [len(b"".join(lines[: i + 1])) for i in range(n)]
    # A record whose line lacks nothing but its newline is whole.
    expected = {f"q{i}" for i, end in enumerate(ends) if kept >= end - 1}
    assert set(loaded.records) == expected | {"new"}
    assert loaded.corrupt == []


def test_corrupt_line_in_the_middle_is_reported_and_the_rest_kept(tmp_path: Path) -> None:
    lines = [encode(record(q)) for q in "abc"]
    lines[1] = lines[1].replace(b"Oslo", b"Rome")
    (tmp_path / RECORDS).write_bytes(b"".join(lines))
    loaded = read_records(tmp_path)
    assert set(loaded.records) == {"a", "c"}
    assert loaded.corrupt == [2]


def test_folder_that_cannot_be_written_is_a_run_error(tmp_path: Path) -> None:
    (tmp_path / RECORDS).mkdir()
    with pytest.raises(RunError, match="cannot write"), RecordWriter(tmp_path):
        pass


@pytest.mark.parametrize(
    "change",
    [
        {"qid": 7},
        {"failure": "yes"},
        {"failure": {"boundary": "provider"}},
        {"ledger": {"calls": [{}], "path": {}}},
        {"ledger": {"calls": [{"model": "m", "prompt_tokens": "9"}], "path": {}}},
        {"latency_s": float("nan")},
        {"searches": [{"query": "a"}]},
        {"counts": {"label_repair": None}},
        {"answers": "Oslo"},
    ],
)
def test_line_with_a_good_checksum_that_is_no_record_is_reported(
    tmp_path: Path, change: dict[str, object]
) -> None:
    lines = [encode(record("a")), encode({**record("b").to_dict(), **change}), encode(record("c"))]
    (tmp_path / RECORDS).write_bytes(b"".join(lines))
    loaded = read_records(tmp_path)
    assert set(loaded.records) == {"a", "c"}
    assert loaded.corrupt == [2]


def test_writers_at_once_share_a_sync_and_each_is_on_disk_when_its_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, synced = os.fsync, [0]

    def slow(handle: int) -> None:
        size = os.fstat(handle).st_size
        time.sleep(0.02)
        real(handle)
        synced.append(size)

    monkeypatch.setattr(os, "fsync", slow)
    together = threading.Barrier(16, timeout=60)

    def write(number: int) -> None:
        together.wait()
        writer.write(record(f"q{number}"))
        content = (tmp_path / RECORDS).read_bytes()[: synced[-1]]
        assert f'"q{number}"'.encode() in content

    with RecordWriter(tmp_path) as writer, ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(64)))
    assert len(read_records(tmp_path).records) == 64
    assert len(synced) - 1 < 48


def test_a_sync_that_fails_fails_every_later_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.write(record("before"))

        def broken(handle: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", broken)
            with pytest.raises(RunError, match="Input/output error"):
                writer.write(record("lost"))
        with pytest.raises(RunError, match="Input/output error"):
            writer.write(record("after"))
