"""verdict, programs and tune from the command line."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.data import load_dataset
from ragbench.errors import ConfigError, RunError
from tests.experiments.towns import World, helped_by_demos, town
from tests.fakes import Asked, Reply


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def ragbench(*arguments: object) -> str:
    result = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_verdict_and_its_programs(world: World) -> None:
    data = ("--data-file", world.data, "--adapter", "chat", "--limit", 0)
    out = world.folder / "verdict"
    common = ("--program", "vanilla", "--k", 1, "--dataset", "jsonl", *data, "--out", out)
    said = ragbench("verdict", *common, "--equal-cost", "--margin", 0.05)
    assert "f1: this compiled program" in said
    assert "for one on the optimizer give --seeds 3" in said
    assert "votes (" in said
    read = ragbench("verdict", "--read", out)
    assert read.splitlines()[-1] == said.splitlines()[-1] == f"verdict: {out}"
    assert "bootstrap light" in ragbench("compiled", out)


def test_tune_then_eval(world: World) -> None:
    given = ("--dataset", "jsonl", "--data-file", world.data, "--adapter", "chat")
    tuned = ragbench(
        "tune", "--program", "vanilla", *given, "--objective", "f1,tokens", "--trials", 3,
        "--space", "k=1:3", "--only", "k", "--out", world.folder / "tuned",
    )  # fmt: skip
    assert "front/00" in tuned
    assert "knobs: k" in tuned
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


def test_a_compiled_program_of_another_architecture_is_refused_by_that_fact(world: World) -> None:
    given = ("--dataset", "jsonl", "--data-file", world.data, "--adapter", "chat")
    out = world.folder / "compiled"
    ragbench("compile", "--program", "vanilla", "--optimizer", "labeled", *given, "--out", out)
    with pytest.raises(RunError, match="is a compiled vanilla, not ircot; leave --program out"):
        CliRunner().invoke(
            cli, ["eval", "--compiled", str(out), "--program", "ircot"], catch_exceptions=False
        )


def test_a_table_shows_the_questions_asked_for(world: World) -> None:
    given = ("--program", "vanilla", "--dataset", "jsonl", "--data-file", world.data)
    given = (*given, "--adapter", "chat", "--out", world.folder / "run")
    ragbench("eval", *given, "--limit", 12)
    asked = len(world.lm.asked)
    shown = ragbench("eval", *given, "--limit", 6)
    (row,) = (line for line in shown.splitlines() if line.startswith("| vanilla"))
    assert row.split("|")[2].strip() == "6"
    assert len(world.lm.asked) == asked
    whole = ragbench("summarize", world.folder / "run")
    assert "|  12 |" in whole or "| 12 |" in whole


@pytest.mark.parametrize(
    ("unreadable", "warns", "code"), [(1, False, 0), (2, True, 0), (6, True, 3)]
)
def test_replies_that_cannot_be_read_are_no_success(
    unreadable: int, warns: bool, code: int, world: World
) -> None:
    def script(asked: Asked) -> Reply:
        return "no field here" if town(asked) in numbers else helped_by_demos(asked)

    data = load_dataset(world.config().data_spec())
    numbers = {town_of(e.question) for e in data.questions[:6][:unreadable]}
    world.use(script)
    given = ["--program", "direct", "--dataset", "jsonl", "--data-file", str(world.data)]
    out = str(world.folder / "run")
    result = CliRunner().invoke(
        cli, ["eval", *given, "--adapter", "json", "--limit", "6", "--out", out]
    )
    assert result.exit_code == code, result.output
    assert ("no reply of the model could be read" in result.output) == warns
    assert f"parse_fallback {unreadable}" in result.output


def town_of(question: str) -> int:
    return int(question.rpartition(" ")[2].rstrip("?"))
