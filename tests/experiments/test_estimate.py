"""Estimates: what a run really spends lies in the range that was printed before."""

import random
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from ragbench.experiments.config import RunConfig, make_config
from ragbench.experiments.estimates import estimate_run
from ragbench.experiments.runs import evaluate, ready
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.score.asking import Asking
from ragbench.experiments.score.scoring import (
    JudgeRequest,
    ScoreRequest,
    estimate_scoring,
    score_run,
)
from ragbench.optimizers.knn import use_bank
from ragbench.programs.wrappers import repair_form
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import four, make_run
from tests.fake_server import FakeServer, Hit, plausible
from tests.fakes import ScriptedLM
from tests.runs import holds

PROGRAMS = [
    ("vanilla", {}),
    ("ircot", {"max_steps": 3}),
    ("self_rag", {}),
    ("react", {"max_steps": 4}),
    ("planner", {}),
    ("reap", {}),
]


def wordy(hit: Hit) -> str:
    """Well-formed replies of very different lengths, the same for the same prompt."""
    chance = random.Random(zlib.crc32(hit.prompt.encode()))
    more = " and so on" * chance.choice([0, 0, 3, 40])
    return plausible(hit).replace("some ", f"some{more} {chance.random():.6f} ")


def config_of(server: FakeServer, out: Path, program: str, knobs: dict[str, object]) -> RunConfig:
    given = {
        "program": program, "set": knobs, "lm": "openai/fake", "api_base": server.url, "limit": 4,
        "price": "in=1,out=2", "out": str(out), "cache": False, "size": 200,
    }  # fmt: skip
    return make_config(given)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def like() -> RunContext:
    """Data and index that all runs share."""
    return ready(make_config({"program": "vanilla", "size": 200, "lm": "openai/x"}))


@pytest.mark.parametrize(("program", "knobs"), PROGRAMS)
def test_spending_lies_in_the_range(
    tmp_path: Path, like: RunContext, program: str, knobs: dict[str, object]
) -> None:
    with FakeServer(wordy) as server:
        config = config_of(server, tmp_path / "run", program, knobs)
        bench = ready(config, like=like)
        found = estimate_run(bench)
        assert server.hits == []
        for low, likely, high in zip(found.low, found.likely, found.high, strict=True):
            assert 0 < low <= likely <= high
        assert f"likely about {found.likely.tokens:,.0f}" in found.lines()[2]
        summary = evaluate(config, like=bench).summary
        took = summary.as_if
        assert took.attempts == len(server.hits)
        assert summary.failures == {}
    spent = {"calls": took.calls, "tokens": took.tokens, "cost": took.cost_usd}
    assert holds(found, **spent), (found, spent)


@pytest.mark.parametrize("bank", [[], [{"question": "Where is it?", "demos": {}}]])
def test_an_embeddings_server_is_not_asked_either(
    tmp_path: Path, like: RunContext, bank: list[dict[str, object]]
) -> None:
    """Also not by a program compiled by `knn`, which asks a copy of itself."""
    with FakeServer(wordy) as server:
        config = config_of(server, tmp_path / "run", "vanilla", {})
        dense = {"embedder": "openai/small", "api_base": server.url}
        bench = ready(config.but(retriever="dense", retriever_set=dense), like=like)
        if bank:
            use_bank(bench.program, {"entries": bank, "k": 1})
        found = estimate_run(replace(bench, program=repair_form(bench.program)))
        assert server.hits == []
    assert (found.low.calls, found.high.calls) == (4, 8)
    assert any("searches also ask a server, at most" in line for line in found.lines())


def test_only_what_is_left_to_ask_is_estimated(tmp_path: Path, like: RunContext) -> None:
    with FakeServer(wordy) as server:
        config = config_of(server, tmp_path / "run", "vanilla", {})
        bench = ready(config, like=like)
        whole = estimate_run(bench)
        evaluate(config.but(limit=3), like=bench)
        assert (whole.low.calls, estimate_run(bench).low.calls) == (4, 1)
        evaluate(config, like=bench)
        assert estimate_run(bench).high.calls == 0


def test_command_keeps_the_estimate_and_the_table_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with FakeServer(wordy) as server:
        given = [
            "eval", "--program", "vanilla", "--lm", "openai/fake", "--api-base", server.url,
            "--limit", "4", "--price", "in=1,out=2", "--out", str(out), "--size", "200",
        ]  # fmt: skip
        code, text, _ = command(capsys, *given, "--dry-run")
        assert code == 0
        assert "calls   4 to 8" in text
        assert server.hits == []
        assert not out.exists(), "a dry run writes nothing"


def test_scoring_is_estimated_without_asking_and_leaves_the_run_alone(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    files = {path.name for path in folder.iterdir()}
    lm = ScriptedLM(lambda asked: {"verdict": "correct"}, name="judge")
    request = ScoreRequest(judge=JudgeRequest(Asking(lm, 2)))
    found = estimate_scoring(folder, request)
    assert (found.low.calls, found.high.calls) == (3, 6)
    assert lm.asked == []
    assert {path.name for path in folder.iterdir()} <= files | {".lock"}
    took = score_run(folder, request).summary["judges"]["judge"]["as_if"]
    tokens = took["prompt_tokens"] + took["completion_tokens"]
    assert holds(found, calls=took["calls"], tokens=tokens, cost=took["cost_usd"])
    assert estimate_scoring(folder, request).high.calls == 0
    claims = ScoreRequest(judge=JudgeRequest(Asking(lm, 2), "grounding"))
    found = estimate_scoring(folder, claims)
    assert (found.low.calls, found.high.calls) == (3, 6)
