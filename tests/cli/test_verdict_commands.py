"""verdict, programs, transfer and tune from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.errors import ConfigError
from tests.experiments.towns import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def ragbench(*arguments: object) -> str:
    result = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_from_verdict_to_transfer(world: World) -> None:
    data = ("--data-file", world.data, "--adapter", "chat", "--limit", 0)
    out = world.folder / "verdict"
    common = ("--program", "vanilla", "--k", 1, "--dataset", "jsonl", *data, "--out", out)
    said = ragbench("verdict", *common, "--equal-cost", "--margin", 0.05, "--show", 1)
    assert "f1: compil" in said
    assert "votes (" in said
    read = ragbench("verdict", "--read", out, "--show", 1)
    assert read.splitlines()[-1] == said.splitlines()[-1] == f"verdict: {out}"
    assert "bootstrap light, seed 0" in ragbench("programs", out)
    moved = ragbench(
        "transfer", out / "program-0", "--lm", "a", "--dataset", f"jsonl={world.data}",
        *data[2:], "--out", world.folder / "transfer",
    )  # fmt: skip
    assert "em: compiled (against zero-shot)" in moved


def test_tune_then_eval(world: World) -> None:
    given = ("--dataset", "jsonl", "--data-file", world.data, "--adapter", "chat")
    tuned = ragbench(
        "tune", "--program", "vanilla", *given, "--objective", "f1,tokens", "--trials", 3,
        "--space", "k=1:3", "--only", "k", "--out", world.folder / "tuned",
    )  # fmt: skip
    assert "front/00" in tuned
    done = ragbench(
        "eval", "--compiled", world.folder / "tuned" / "front" / "00", *given, "--limit", 3,
        "--out", world.folder / "run",
    )  # fmt: skip
    assert "vanilla compiled" in done


def test_form_and_votes_are_arms_of_eval_alone(world: World) -> None:
    given = ("--program", "vanilla", "--dataset", "jsonl", "--data-file", world.data)
    shown = ragbench(
        "eval", *given, "--form", "--votes", 3, "--limit", 2, "--out", world.folder / "run"
    )
    assert "form repaired, 3 votes" in shown
    result = CliRunner().invoke(cli, ["compile", "--form"])
    assert "No such option" in str(result.output) + str(result.exception)
    with pytest.raises(ConfigError, match="fixed by --set k=2"):
        CliRunner().invoke(
            cli,
            ["tune", *map(str, given), "--set", "k=2", "--space", "k=1:3"],
            catch_exceptions=False,
        )
