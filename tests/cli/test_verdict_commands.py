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
    monkeypatch.chdir(tmp_path)
    return World(tmp_path, monkeypatch)


DATA = "--dataset jsonl --data-file questions.jsonl --adapter chat"


def ragbench(words: str) -> str:
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_verdict_and_its_programs(world: World) -> None:
    common = f"--program vanilla --k 1 {DATA} --limit 0 --out verdict"
    said = ragbench(f"verdict {common} --equal-cost --margin 0.05")
    assert "f1: this compiled program" in said
    assert "one on the optimizer needs 3 different programs" in said
    assert "votes (" in said
    read = ragbench("verdict --read verdict")
    assert read.splitlines()[-1] == said.splitlines()[-1] == "verdict: verdict"
    assert "bootstrap light" in ragbench("compiled verdict")


def test_tune_then_eval(world: World) -> None:
    tuned = ragbench(
        f"tune --program vanilla {DATA} --objective f1,tokens --trials 3 --space k=1:3 --only k "
        "--out tuned"
    )
    assert "front/00" in tuned
    assert "knobs: k" in tuned
    assert "vanilla compiled" in ragbench(f"eval --compiled tuned/front/00 {DATA} --limit 3")
    with pytest.raises(ConfigError, match="fixed by --set k=2"):
        ragbench(f"tune --program vanilla {DATA} --set k=2 --space k=1:3")


def test_a_compiled_program_of_another_architecture_is_refused_by_that_fact(world: World) -> None:
    ragbench(f"compile --program vanilla --optimizer labeled {DATA} --out compiled")
    with pytest.raises(RunError, match="is a compiled vanilla, not ircot; leave --program out"):
        ragbench("eval --compiled compiled --program ircot")


def test_a_table_shows_the_questions_asked_for(world: World) -> None:
    given = f"--program vanilla {DATA} --out run"
    ragbench(f"eval {given} --limit 12")
    asked = len(world.lm.asked)
    shown = ragbench(f"eval {given} --limit 6")
    (row,) = (line for line in shown.splitlines() if line.startswith("| vanilla"))
    assert row.split("|")[2].strip() == "6"
    assert len(world.lm.asked) == asked
    assert "| 12 |" in ragbench("summarize run")


@pytest.mark.parametrize(
    ("unreadable", "warns", "code"), [(1, False, 0), (2, True, 0), (6, True, 3)]
)
def test_replies_that_cannot_be_read_are_no_success(
    unreadable: int, warns: bool, code: int, world: World
) -> None:
    asked = load_dataset(world.config().data_spec()).questions[:6]
    numbers = {int(e.question.rpartition(" ")[2].rstrip("?")) for e in asked[:unreadable]}

    def script(asked: Asked) -> Reply:
        return "no field here" if town(asked) in numbers else helped_by_demos(asked)

    world.use(script)
    words = "eval --program direct --dataset jsonl --data-file questions.jsonl --adapter json"
    result = CliRunner().invoke(cli, f"{words} --limit 6 --out run")
    assert result.exit_code == code, result.output
    assert ("no reply of the model could be read" in result.output) == warns
    assert f"parse_fallback {unreadable}" in result.output
