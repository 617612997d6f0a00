"""Which folders commands make and take: a run's comes with its first record, others are skipped."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.experiments.compile import compile_folder
from ragbench.experiments.config import CompileConfig, make_config
from ragbench.user_code import allow
from tests.experiments.scored_runs import four, make_run
from tests.hostile.bases import FULL_CARD
from tests.kills import write_questions
from tests.runs import query

#: A program in a file.
OWN = """
import dspy

class Own(dspy.Module):
    def forward(self, question):
        return dspy.Prediction(answer="x")
"""


def invoke(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [str(arg) for arg in args])
    return result.exit_code, result.output


@pytest.mark.parametrize("command", ["summarize", "score", "errors", "report", "export"])
def test_what_is_no_run_is_skipped_with_one_line(tmp_path: Path, command: str) -> None:
    run = make_run(tmp_path / "run", four(), **FULL_CARD)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    more = {
        "report": ["-o", tmp_path / "page.html"],
        "export": ["--to", "csv", "-o", tmp_path / "rows.csv"],
    }
    code, said = invoke(
        command, tmp_path / "empty", tmp_path / "notes.txt", run, *more.get(command, [])
    )
    assert code == 0, said
    assert "empty holds no run, and is skipped" in said
    assert "notes.txt holds no run, and is skipped" in said


def test_a_dry_run_and_a_start_that_fails_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given = [
        "eval",
        "--program",
        "direct",
        "--lm",
        "openai/gpt-4.1",
        "--dataset",
        "jsonl",
        "--data-file",
    ]
    args = [*given, write_questions(tmp_path, 5), "--out", tmp_path / "runs" / "a"]
    code, said = invoke(*args, "--dry-run")
    assert code == 0, said
    assert invoke(*args)[0] != 0
    assert not (tmp_path / "runs").exists()


def test_doctor_says_what_is_wrong(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", four(), **FULL_CARD)
    assert invoke("doctor", run) == (0, f"{run}: nothing is wrong\n")
    query(run, "UPDATE records SET f1 = 1")
    code, said = invoke("doctor", tmp_path)
    assert code == 1
    assert "run.db: the record of q2 was damaged or changed after it was written" in said
    (tmp_path / "empty").mkdir()
    assert invoke("doctor", tmp_path / "empty")[0] == 1


def test_folders_that_the_tool_names_itself_hold_no_colon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    allow("own.py:Own")
    config = make_config({"program": "own.py:Own", "lm": "openai/ft:mine:1"})
    for folder in (config.folder(), compile_folder(config, CompileConfig())):
        assert ":" not in str(folder)
        assert "own.py_Own" in folder.name
