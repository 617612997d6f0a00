"""Records of a long run are read as they are needed; all comes out as if they were not."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.compare.paired import compare, with_scores
from ragbench.experiments.doctor import examine
from ragbench.experiments.records import stored
from ragbench.experiments.records.jsonl import RECORDS, encode
from ragbench.experiments.records.stored import read_records
from ragbench.experiments.report.comparison import print_comparison
from ragbench.experiments.report.tables import print_runs
from ragbench.experiments.runs import groupings, reopen, write_summary
from ragbench.experiments.score import ScoreRequest, score_run
from ragbench.record import Record
from tests.experiments.scored_runs import CARD, answered, make_run
from tests.metrics.records import failure

KEPT = 4
CARD_OF_ALL: dict[str, Any] = {
    "identity": {**CARD["identity"], "retriever": "bm25"},
    "adapter": "LenientJSON",
}


def many(n: int = 40) -> list[Record]:
    """Answers right and wrong; every fifth question fails at first, and every tenth again."""
    found = []
    for i in range(n):
        if i % 5 == 0:
            found.append(replace(failure(), qid=f"q{i}"))
        if i % 10 == 0:
            found.append(replace(failure(), qid=f"q{i}", latency_s=2.0))
        else:
            found.append(answered(f"q{i}", "Norway" if i % 3 else "Chad", hops=2 + i % 2))
    return found


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few records stay parsed, as of a run that is much longer."""
    monkeypatch.setattr(stored, "KEPT", KEPT)


def alive() -> int:
    """Records in memory that something still holds."""
    gc.collect()
    return sum(isinstance(each, Record) for each in gc.get_objects())


@pytest.mark.usefixtures("few_kept")
def test_no_more_than_a_few_records_are_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", many(), **CARD_OF_ALL)
    before = alive()  # of other tests
    counts, reads, original = [], 0, stored.parse_line

    def parse(line: bytes) -> Record:
        nonlocal reads
        reads += 1
        counts.extend([alive() - before] if reads % 40 == 0 else [])
        return original(line)

    monkeypatch.setattr(stored, "parse_line", parse)
    a, b = (with_scores(reopen(run)) for _ in range(2))
    compare(a, b, by=groupings())
    write_summary(run)
    assert examine(run, data=False) == []
    assert reads > 200
    # Three sets of records are open at a time, over the file and over its scores; 52 are there.
    assert 0 < max(counts) <= 3 * 2 * KEPT + 2


def test_long_runs_come_to_the_same_tables_as_short_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", many(), **CARD_OF_ALL)
    other = make_run(tmp_path / "other", reversed(many()), **CARD_OF_ALL)
    score_run(run, ScoreRequest())
    shown = []
    for kept in (1_000, KEPT, 0):
        monkeypatch.setattr(stored, "KEPT", kept)
        print_runs([reopen(run)], groupings())
        a, b = (with_scores(reopen(folder)) for folder in (run, other))
        print_comparison(compare(a, b, by=groupings()))
        write_summary(run)
        shown.append((capsys.readouterr().out, (run / "summary.json").read_bytes()))
        assert examine(run, data=False) == []
    assert shown[0] == shown[1] == shown[2]
    assert "scored 0" in shown[0][0]


@pytest.mark.usefixtures("few_kept")
def test_a_column_reads_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", many())
    records = read_records(run).records
    read: list[bytes] = []
    original = stored.parse_line
    monkeypatch.setattr(stored, "parse_line", lambda line: (read.append(line), original(line))[1])

    def hops(record: Record) -> int | None:
        return record.hops

    records.learn([hops])
    assert list(records.column(hops)) == list(records)
    assert records.column(hops)["q3"] == 3
    assert len(read) <= len(records)


@pytest.mark.usefixtures("few_kept")
def test_what_takes_the_place_of_the_file_changes_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", many())
    records = read_records(run).records
    (tmp_path / "new").write_bytes(encode(answered("q39", "Peru")))
    (tmp_path / "new").replace(run / RECORDS)
    assert records["q39"].answer == "Chad"


@pytest.mark.usefixtures("few_kept")
def test_a_record_written_over_is_noticed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", many())
    records = read_records(run).records
    content = (run / RECORDS).read_bytes()
    (run / RECORDS).write_bytes(content.replace(b"Norway", b"Sweden"))
    with pytest.raises(stored.RunError, match="was changed while it was read"):
        records["q38"]
