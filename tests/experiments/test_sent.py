"""Calls of questions that a kill kept from leaving a record are known, and counted once."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from ragbench.experiments.doctor import examine, repair
from ragbench.experiments.records.call_log import (
    SENT,
    SentCalls,
    lost_calls,
    recorded_calls,
    settle,
)
from ragbench.experiments.records.jsonl import RECORDS, read_lines
from ragbench.experiments.records.record_writer import RecordWriter
from ragbench.experiments.report.tables import notes
from ragbench.experiments.runs import evaluate, reopen
from ragbench.experiments.runs.spend import billed_under, limited
from ragbench.lms.calls.spend_limits import Limits
from ragbench.record import Call
from tests.experiments.scored_runs import answered, make_run
from tests.experiments.towns import World
from tests.fake_server import FakeServer
from tests.kills import start, write_questions

CALL = Call(model="m", prompt_tokens=10, completion_tokens=2, cost_usd=0.25, latency_s=0.5)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def run_with(folder: Path, *calls: Call) -> Path:
    """A run of one question, whose record has one call, and a file of these calls."""
    make_run(folder, [answered("q1", "Norway")])
    with SentCalls(folder) as sent:
        for call in calls:
            sent.of("q1")(call)
    return folder


def test_calls_in_a_record_are_counted_there_and_others_are_lost(tmp_path: Path) -> None:
    own = run_with(tmp_path / "run")
    (recorded,) = recorded_calls(own)
    run = run_with(tmp_path / "again", recorded, recorded, CALL)
    assert lost_calls(run) == [recorded, CALL]  # the same call twice was sent twice
    assert list(billed_under(run)) == [recorded, recorded, CALL]
    settle(run)
    assert len(read_lines(run / SENT)[0]) == 2
    assert lost_calls(run) == [recorded, CALL]


def test_what_no_server_was_asked_is_not_filed(tmp_path: Path) -> None:
    own_work = Call(model="embedder", kind="embed", cost_usd=0.0)
    run = run_with(tmp_path / "run", replace(CALL, cached=True), own_work)
    assert read_lines(run / SENT) == ([], [])
    settle(run)
    assert not (run / SENT).exists()


def test_a_line_that_was_cut_short_or_changed_is_no_call(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", CALL, CALL, CALL)
    lines = (run / SENT).read_bytes().splitlines(keepends=True)
    (run / SENT).write_bytes(lines[0] + lines[1].replace(b"0.25", b"9.25") + lines[2][:-9])
    assert lost_calls(run) == [CALL]
    with RecordWriter(run, SENT, durable=False) as writer:  # as the next process opens it
        writer.write({"qid": "q1", "model": 7})
    found = [finding for finding in examine(run, data=False) if finding.path == run / SENT]
    assert [finding.lines for finding in found] == [(2, 3)]
    repair(run, found)
    assert lost_calls(run) == [CALL]
    assert not [finding for finding in examine(run, data=False) if finding.path == run / SENT]


def test_a_run_that_came_to_its_end_leaves_no_such_file(world: World) -> None:
    config = world.config(program="self_rag", out=world.folder / "run")
    with limited(Limits(calls=13), config.folder()):
        assert evaluate(config).stopped_by
    assert not (config.folder() / SENT).exists()
    assert not evaluate(config).lost.calls
    assert not (config.folder() / SENT).exists()


def test_after_a_kill_every_call_that_was_answered_is_counted(tmp_path: Path) -> None:
    data, out = write_questions(tmp_path, 30), tmp_path / "run"
    with FakeServer(lambda hit: "I would rather not say.", latency_s=0.05) as server:
        argv = [
            "eval", "--program", "react", "--dataset", "jsonl", "--data-file", str(data),
            "--lm", "openai/fake", "--api-base", server.url, "--price", "in=1,out=1",
            "--no-cache", "--workers", "2", "--out", str(out),
        ]  # fmt: skip
        process = start(argv, tmp_path / "log")
        deadline = time.monotonic() + 120
        while len(server.hits) < 16 and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        under_way = server._open
        process.kill()
        process.join(60)
        sent = len(server.hits)
        known = len(list(billed_under(out)))
        assert sent >= 16, (tmp_path / "log").read_text()[-2000:]
        assert sent - under_way - 2 <= known <= sent
        lost = len(lost_calls(out))
        assert lost > 0
        whole = start(argv, tmp_path / "log")
        whole.join(120)
        # 3: no reply of this server could be read.
        assert whole.exitcode == 3, (tmp_path / "log").read_text()[-2000:]
        assert len(list(billed_under(out))) == known + len(server.hits) - sent
    found = reopen(out)
    assert (found.lost.calls, found.summary.billed.calls) == (lost, len(server.hits) - sent
            + known - lost)  # fmt: skip
    assert any(line.startswith(f"billed in addition: {lost} calls, ") for line in notes(found))
    assert RECORDS in {path.name for path in out.iterdir()}
    assert not [finding for finding in examine(out) if finding.path.name == SENT]
