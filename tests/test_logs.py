"""Logs: whole JSON lines that name their question, without keys; the terminal stays readable."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragbench import logs
from ragbench.experiments.runs.runner import evaluate
from tests.experiments.towns import World
from tests.fakes import rate_limited


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """No handler and no level survives a test."""
    logger = logging.getLogger("ragbench")
    before = (logger.level, logger.handlers[:])
    yield
    logger.setLevel(before[0])
    logger.handlers[:] = before[1]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / logs.LOG).read_text().splitlines()]


def test_log_of_a_run_has_each_question_once_and_the_traceback_of_a_failure(
    world: World, tmp_path: Path
) -> None:
    world.use(lambda asked: rate_limited())
    result = evaluate(world.config(out=tmp_path / "failed", limit=2))
    failed = [r for r in lines(result.folder) if r["event"] == "question failed"]
    assert sorted(r["qid"] for r in failed) == sorted(result.records)
    assert (failed[0]["failure"], failed[0]["level"]) == ("provider/LMRateLimitError", "warning")
    assert "Traceback" in failed[0]["traceback"]
    world.use()
    result = evaluate(world.config(out=tmp_path / "run", limit=6))
    rows = lines(result.folder)
    all_ended = [r for r in rows if r["event"] == "question ended"]
    assert sorted(r["qid"] for r in all_ended) == sorted(result.records)
    ended = all_ended[0]
    record = result.records[ended["qid"]]
    assert (ended["scores"], ended["seconds"]) == (record.scores, record.latency_s)
    assert ended["calls"] == len(record.ledger.calls)
    assert next(r for r in rows if r["event"] == "run")["card"]["identity"]["program"] == "vanilla"
    assert rows[-1]["event"] == "finished"


@pytest.mark.parametrize("spoilt", ["folder", "link"])
def test_log_that_cannot_be_written_costs_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoilt: str
) -> None:
    logs.to_terminal()
    path = tmp_path / logs.LOG
    if spoilt == "folder":
        path.mkdir()
    else:
        (tmp_path / "precious").write_text("mine")
        path.symlink_to(tmp_path / "precious")
    with logs.log_to(path):
        logs.get("ragbench.test").info("a")
        logs.get("ragbench.test").info("b")
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 1
    assert "continuing without it" in err[0]
    assert spoilt != "link" or (tmp_path / "precious").read_text() == "mine"


def test_a_closed_log_is_not_opened_again_by_a_thread_that_is_late(tmp_path: Path) -> None:
    path = tmp_path / logs.LOG
    with logs.log_to(path):
        [handler] = [h for h in logging.getLogger().handlers if isinstance(h, logs._File)]
    size = path.stat().st_size
    handler.handle(logging.makeLogRecord({"msg": "late", "levelno": logging.INFO}))
    assert path.stat().st_size == size
    assert handler.stream is None
