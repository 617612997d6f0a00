"""Logs: whole JSON lines that name their question, without keys; the terminal stays readable."""

import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench import logs
from ragbench.experiments.compile.compiler import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.runs import evaluate
from tests.experiments.towns import World, helped_by_demos
from tests.fakes import Asked, Reply, rate_limited

KEY = "sk-canary-0123456789abcdef"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """No handler and no level survives a test."""
    logger = logging.getLogger("ragbench")
    before = (logger.level, logger.handlers[:])
    yield
    logger.setLevel(before[0])
    logger.handlers[:] = before[1]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / logs.LOG).read_text().splitlines()]


def test_each_question_starts_and_ends_once_and_is_named(world: World, tmp_path: Path) -> None:
    result = evaluate(world.config(out=tmp_path / "run", limit=6))
    rows = lines(result.folder)
    for event in ("question started", "question ended"):
        assert sorted(r["qid"] for r in rows if r["event"] == event) == sorted(result.records)
    ended = next(r for r in rows if r["event"] == "question ended")
    record = result.records[ended["qid"]]
    assert ended["scores"] == record.scores
    assert ended["calls"] == len(record.ledger.calls)
    assert ended["seconds"] == record.latency_s
    assert next(r for r in rows if r["event"] == "run")["card"]["identity"]["program"] == "vanilla"
    assert rows[-1]["event"] == "finished"


def test_failed_question_leaves_its_traceback(world: World, tmp_path: Path) -> None:
    def refuse(asked: Asked) -> Reply:
        return rate_limited()

    world.use(refuse)
    result = evaluate(world.config(out=tmp_path / "run", limit=2))
    failed = [r for r in lines(result.folder) if r["event"] == "question failed"]
    assert sorted(r["qid"] for r in failed) == sorted(result.records)
    assert failed[0]["failure"] == "provider/LMRateLimitError"
    assert failed[0]["level"] == "warning"
    assert "Traceback" in failed[0]["traceback"]


class Told(dspy.Module):
    def forward(self, n: int) -> dspy.Prediction:
        logs.get("ragbench.test").info("branch", extra=logs.fields(n=n))
        return dspy.Prediction(n=n)


def test_compile_names_the_questions_that_its_optimizer_asks(world: World, tmp_path: Path) -> None:
    def mended(asked: Asked) -> Reply:
        reply = helped_by_demos(asked)
        assert isinstance(reply, dict)
        return reply

    world.use(mended)
    how = CompileConfig(optimizer="labeled", train_limit=4, val_limit=3, out=tmp_path / "made")
    compile_program(world.config(), how, on_message=lambda line: None)
    rows = lines(tmp_path / "made")
    assert rows[-1]["event"] == "finished"
    assert [r["event"] for r in rows].count("finished") == 1


def test_no_key_is_in_message_fields_or_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "harbour blue north")  # nothing that looks like a key
    log = logs.get("ragbench.test")
    with logs.log_to(tmp_path / logs.LOG):
        try:
            raise ValueError(f"refused {KEY} and harbour blue north")
        except ValueError:
            log.warning("bad %s", KEY, exc_info=True, extra=logs.fields(at={"header": [KEY]}))
    text = (tmp_path / logs.LOG).read_text()
    assert KEY not in text
    assert "harbour blue north" not in text
    assert "[SOME_API_KEY]" in text
    assert "ValueError" in text


def test_library_warnings_go_to_the_file_and_not_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.quiet_libraries()
    with logs.log_to(tmp_path / logs.LOG), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        logging.getLogger("dspy.predict").warning("DSPy thinks so")
        logging.getLogger("httpx").info("GET /")
        warnings.warn("numpy thinks so", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == ""
    events = [row["event"] for row in lines(tmp_path)]
    assert "DSPy thinks so" in events
    assert any("numpy thinks so" in event for event in events)
    assert "GET /" not in events


def test_terminal_shows_a_repeated_event_a_few_times_on_one_line_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.to_terminal()
    logs.to_terminal()
    log = logs.get("ragbench.test")
    for number in range(10):
        log.warning("waits\x1b[2J\n%d s", number, extra=logs.fields(why="429"))
    log.info("not for the terminal")
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == logs.SHOWN
    assert shown[0] == "warning: waits [2J 0 s (why 429)"
    assert "log alone" in shown[-1]


def test_line_cut_short_by_a_kill_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / logs.LOG).write_bytes(b'{"event": "cut sh')
    with logs.log_to(tmp_path / logs.LOG):
        pass
    torn, whole = (tmp_path / logs.LOG).read_text().splitlines()
    assert torn == '{"event": "cut sh'
    assert json.loads(whole)["event"] == "finished"


def test_log_that_cannot_be_written_costs_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.to_terminal()
    (tmp_path / logs.LOG).mkdir()
    with logs.log_to(tmp_path / logs.LOG):
        logs.get("ragbench.test").info("a")
        logs.get("ragbench.test").info("b")
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 1
    assert "going on without it" in err[0]


def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "log.jsonl").symlink_to(tmp_path / "precious")
    with logs.log_to(tmp_path / "log.jsonl"):
        logs.get("ragbench.test").warning("something")
    assert (tmp_path / "precious").read_text() == "mine"


def test_error_and_interrupt_are_the_last_line(tmp_path: Path) -> None:
    for error, event in (
        (ValueError("x"), "stopped by an error"),
        (KeyboardInterrupt(), "interrupted"),
    ):
        with pytest.raises(type(error)), logs.log_to(tmp_path / logs.LOG):
            raise error
        assert lines(tmp_path)[-1]["event"] == event
