"""Limits over whole commands: stopped in time, told truthfully, continued by a larger limit."""

from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import ConfigError, StoppedError
from ragbench.experiments.cells.cell import read_experiment
from ragbench.experiments.cells.tune import TuneResult, tune
from ragbench.experiments.cells.verdict import run_verdict
from ragbench.experiments.compare.verdicts import VerdictRequest
from ragbench.experiments.compile import compile_program
from ragbench.experiments.config import CompileConfig, TuneConfig
from ragbench.experiments.runs.context import billed_under, limited
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.runs.summary import reopen
from ragbench.lms.calls import Limits
from tests.experiments.towns import World
from tests.fake_server import FakeServer
from tests.runs import record_rows


def test_stopped_run_is_told_truthfully_and_continues(world: World) -> None:
    alone = evaluate(world.config(program="self_rag", out=world.folder / "alone")).summary
    world.use(cache=False)
    config = world.config(program="self_rag", out=world.folder / "run", workers=1)
    with limited(Limits(calls=13), config.folder()):
        first = evaluate(config)
    assert len(world.lm.asked) == 13
    assert first.stopped_by == "--max-calls 13"
    progress = first.progress
    assert progress.answered + progress.cut_off + progress.not_asked == 16
    assert (progress.cut_off, first.summary.n, first.summary.failed) == (1, progress.answered, 0)
    assert first.summary.billed.calls == 13  # the question cut off was paid for
    with limited(Limits(calls=13), config.folder()):  # the limit is the command's
        again = evaluate(config)
    assert len(world.lm.asked) == 13
    assert again.progress == progress
    with limited(Limits(calls=1000), config.folder()) as spent:
        whole = evaluate(config)
    assert (whole.stopped_by, whole.progress.complete) == (None, True)
    assert spent.total.calls == len(world.lm.asked) == len(list(billed_under(config.folder())))
    assert reopen(config.folder()).summary == whole.summary
    assert (whole.summary.scores, whole.summary.as_if.calls) == (alone.scores, alone.as_if.calls)
    cut = [r for r in record_rows(config.folder()) if r["failure"]]
    assert [(r["failure"]["boundary"], r["answer"]) for r in cut] == [("limit", None)]


def test_price_that_is_not_known_is_refused_before_anything_is_spent(world: World) -> None:
    world.use(price=None)
    how = CompileConfig(teacher="other")
    with limited(Limits(cost=1.0)), pytest.raises(ConfigError, match="no price is known"):
        run_verdict(world.config(out=world.folder / "v"), how, VerdictRequest())
    assert world.lm.asked == []


def test_compile_under_a_limit_comes_to_the_same_program(world: World) -> None:
    config = world.config(workers=1)
    how = CompileConfig(out=world.folder / "alone")
    compile_program(config, how)
    alone = (world.folder / "alone" / "program.json").read_bytes()
    whole = len(world.lm.asked)
    world.folder = world.folder / "limited"  # another cache of replies
    lm = world.use()
    how = CompileConfig(out=world.folder / "program")
    for calls in (5, whole - 1):
        with limited(Limits(calls=calls), world.folder), pytest.raises(StoppedError) as stop:
            compile_program(config, how)
        assert stop.value.exit_code == 3
        assert f"--max-calls {calls} while compiling" in str(stop.value)
        assert len(lm.asked) == calls
        assert not (world.folder / "program" / "program.json").exists()
    with limited(Limits(calls=whole), world.folder):
        compile_program(config, how)
    assert (world.folder / "program" / "program.json").read_bytes() == alone
    assert len(lm.asked) == whole


def test_verdict_says_how_far_it_came(world: World) -> None:
    config = world.config(out=world.folder / "verdict")
    asked = VerdictRequest(equal_cost=False)
    with limited(Limits(calls=20), world.folder), pytest.raises(StoppedError) as stop:
        run_verdict(config, CompileConfig(), asked)
    assert "--max-calls 20 in form, 4 of 16 answered, 12 not asked" in str(stop.value)
    cells = read_experiment(world.folder / "verdict").cells
    assert [cell.state for cell in cells] == ["done", "stopped"]
    with limited(Limits(calls=600), world.folder):
        run_verdict(config, CompileConfig(), asked)
    assert len(world.lm.asked) == len(list(billed_under(world.folder / "verdict")))


def test_tune_under_a_limit_ends_at_the_same_front(world: World) -> None:
    def search(folder: str, limit: int | None) -> TuneResult:
        out = world.folder / folder
        config = world.config(program="self_rag", split="validation", limit=6, out=out)
        with limited(Limits(calls=limit), out):
            return tune(config, TuneConfig(objective=("f1",), trials=4, only=("k",)))

    alone = search("alone", None)
    whole = len(world.lm.asked)
    world.use(name=f"another-{world.folder}")
    with pytest.raises(StoppedError):
        search("limited", 3)
    ended = search("limited", whole + 1)  # at a limit no question begins, cached or not
    assert ended.stopped == ""
    assert ended.to_dict() == alone.to_dict()


def test_commands_end_with_3(tmp_path: Path, command: Any) -> None:
    with FakeServer() as server:
        given = [
            "eval", "--program", "vanilla", "--lm", "openai/fake", "--api-base", server.url,
            "--limit", "5", "--out", str(tmp_path / "run"), "--size", "200", "--workers", "1",
        ]  # fmt: skip
        code, _, err = command(*given, "--max-cost", "1")
        assert (code, server.hits) == (2, [])
        assert "no price is known for openai/fake" in err
        code, out, _ = command(*given, "--max-calls", "2")
        assert (code, len(server.hits)) == (3, 2)
        assert "stopped by --max-calls 2: 2 of 5 answered, 3 not asked" in out
        code, out, _ = command(*given, "--max-calls", "5")
        assert (code, len(server.hits), "stopped" in out) == (0, 5, False)
