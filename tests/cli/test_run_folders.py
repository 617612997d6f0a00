"""Which folders commands make and take: a run's comes with its first record, others are skipped."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.experiments.compile import compile_folder
from ragbench.experiments.config import CompileConfig, make_config
from ragbench.user_code import allow
from tests.experiments.scored_runs import four, make_run
from tests.kills import write_questions
from tests.runs import query


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def invoke(words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, words)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    "command", ["summarize", "score", "errors", "report -o a.html", "export --to csv -o a.csv"]
)
def test_what_is_no_run_is_skipped_with_one_line(command: str) -> None:
    make_run(Path("run"), four())
    Path("empty").mkdir()
    Path("notes.txt").write_text("x")
    code, said = invoke(f"{command} empty notes.txt run")
    assert code == 0, said
    assert "empty holds no run, and is skipped" in said
    assert "notes.txt holds no run, and is skipped" in said


def test_a_dry_run_and_a_start_that_fails_leave_no_folder(tmp_path: Path) -> None:
    data = f"--dataset jsonl --data-file {write_questions(tmp_path, 5)}"
    words = f"eval --program direct --lm openai/gpt-4.1 {data} --out runs/a"
    code, said = invoke(f"{words} --dry-run")
    assert code == 0, said
    assert invoke(words)[0] != 0
    assert not Path("runs").exists()


def test_doctor_says_what_is_wrong() -> None:
    run = make_run(Path("runs/run"), four())
    assert invoke("doctor runs/run") == (0, "runs/run: nothing is wrong\n")
    query(run, "UPDATE records SET f1 = 1")
    code, said = invoke("doctor runs")
    assert code == 1
    assert "run.db: the record of q2 was damaged or changed after it was written" in said
    Path("empty").mkdir()
    assert invoke("doctor empty")[0] == 1


def test_folders_that_the_tool_names_itself_hold_no_colon() -> None:
    code = "import dspy\nclass Own(dspy.Module):\n    def forward(self, question): ...\n"
    Path("own.py").write_text(code)
    allow("own.py:Own")
    config = make_config({"program": "own.py:Own", "lm": "openai/ft:mine:1"})
    for folder in (config.folder(), compile_folder(config, CompileConfig())):
        assert ":" not in str(folder)
        assert "own.py_Own" in folder.name
