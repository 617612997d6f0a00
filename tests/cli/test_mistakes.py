"""A user's mistake is one line with the cure, and exit code 2; the folders of commands."""

import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from ragbench.cli.main import main
from ragbench.experiments.config import CompileConfig, make_config
from ragbench.experiments.plans import compile_folder
from ragbench.user_code import allow
from tests.experiments.scored_runs import four, make_run
from tests.kills import write_questions
from tests.runs import query


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `ragbench ARGS`, in this process."""
    before, sys.argv = sys.argv, ["ragbench", *args]
    try:
        with pytest.raises(SystemExit) as stop:
            main()
    finally:
        sys.argv = before
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("eval --program ircott", "did you mean ircot"),
        ("verdict --split train", "No such option"),
        ("eval --set max_stepz=3", "did you mean max_steps"),
        ("eval --set oops", "not of the form NAME=VALUE"),
        ("eval --dataset hotpotqa", "--data-file"),
        ("eval --dataset hotpotqa --data-file nope.json", "no such file"),
        ("eval --size 100 --lm ollama/x --out /dev/null/run", "cannot use the run folder"),
        ("eval --split dev", "'train', 'validation', 'test'"),
        ("eval --limt 3", "--limit"),
        ("eval --retriever-set k1=-1", "k1='-1'"),
        ("eval --temperature nan", "temperature='nan' is not allowed; give float >= 0 and <= 2"),
        ("tune --space k=2:x --program vanilla", "k='x' is not allowed"),
        ("eval --lm local:/nope.gguf", "no GGUF file"),
        ("eval --lm openai/gpt-4o-mini", "OPENAI_API_KEY"),
        ("eval --lm openai/x --api-base http://127.0.0.1:9", "cannot reach"),
        ("eval --compiled nowhere", "sidecar.json"),
        ("eval --config nowhere", "no config 'nowhere'"),
        ("evl", "did you mean eval"),
        ("ask Who? --docs absent", "absent"),
        ("questions docs --hops 2,7", "give numbers from 1 to 4"),
        ("retrieve --k 0", "give numbers from 1, such as"),
        ("show run nowhere", "not a run folder"),
    ],
)
def test_mistake_is_one_line_with_the_cure(command: Any, args: str, expected: str) -> None:
    code, out, err = command(*args.split())
    lines = [line for line in err.splitlines() if line]
    assert (code, out, len(lines)) == (2, "", 1), err
    assert lines[0].startswith("error: ")
    assert expected in lines[0]


def test_a_mistake_leaves_no_folder_and_no_control_characters(command: Any, tmp_path: Path) -> None:
    command("eval", "--set", "max_steps=0")
    assert not (tmp_path / "runs").exists()
    code, _, err = command("eval", "--program", "x\x1b[31m\ny")
    assert (code, "\x1b" in err, len(err.splitlines())) == (2, False, 1)


# -- folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", ["show", "score", "errors", "report -o a.html", "export --to csv -o a.csv"]
)
def test_what_is_no_run_is_skipped_with_one_line(words: str, command: Any) -> None:
    make_run(Path("run"), four())
    Path("empty").mkdir()
    Path("notes.txt").write_text("x")
    code, _, said = command(*words.split(), "empty", "notes.txt", "run")
    assert code == 0, said
    assert "Skipping empty: it contains no run." in said
    assert "Skipping notes.txt: it contains no run." in said


def test_a_dry_run_and_a_start_that_fails_leave_no_folder(tmp_path: Path, command: Any) -> None:
    data = f"--dataset jsonl --data-file {write_questions(tmp_path, 5)}"
    words = f"eval --program direct --lm openai/gpt-4.1 {data} --out runs/a"
    assert command(*words.split(), "--dry-run")[0] == 0
    assert command(*words.split())[0] != 0
    assert not Path("runs").exists()


def test_too_few_file_descriptors_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        try:
            raise OSError(errno.EMFILE, "Too many open files")
        except OSError as error:
            raise RuntimeError("a library's own words") from error

    monkeypatch.setattr("ragbench.experiments.report.run_list.run_list_report", fails)
    code, _, err = run(capsys, "list", "runs")
    assert (code, err.splitlines()) == (
        2, ["error: too many open files; raise the limit, such as by `ulimit -n 1024`"],
    )  # fmt: skip


def test_doctor_says_what_is_wrong(command: Any) -> None:
    folder = make_run(Path("runs/run"), four())
    assert command("verify", "runs/run")[:2] == (0, "runs/run: nothing is wrong\n")
    query(folder, "UPDATE records SET f1 = 1")
    code, said, _ = command("verify", "runs")
    told = "run.db: the record of q2 was damaged or changed after it was written"
    assert (code, told in said) == (1, True)
    Path("empty").mkdir()
    assert command("verify", "empty")[0] == 2


def test_folders_that_the_tool_names_itself_hold_no_colon() -> None:
    code = "import dspy\nclass Own(dspy.Module):\n    def forward(self, question): ...\n"
    Path("own.py").write_text(code)
    allow("own.py:Own")
    config = make_config({"program": "own.py:Own", "lm": "openai/ft:mine:1"})
    for folder in (config.folder(), compile_folder(config, CompileConfig())):
        assert ":" not in str(folder)
        assert "own.py_Own" in folder.name
