"""A user's mistake is one line that names the value and the cure, and exit code 2."""

import sys
from pathlib import Path

import pytest

from ragbench.cli.main import main


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
        ("eval --set max_stepz=3", "did you mean max_steps"),
        ("eval --set oops", "not of the form NAME=VALUE"),
        ("eval --dataset hotpotqa", "--data-file"),
        ("eval --dataset hotpotqa --data-file nope.json", "no such file"),
        ("eval --size 100 --lm ollama/x --out /dev/null/run", "cannot use the run folder"),
        ("eval --split dev", "'train', 'validation', 'test'"),
        ("eval --limt 3", "--limit"),
        ("eval --retriever bm26", "did you mean bm25"),
        ("eval --retriever-set k1=-1", "k1='-1'"),
        ("eval --temperature nan", "not a finite number"),
        ("tune --space k=2:x --program vanilla", "k='x' is not allowed"),
        ("eval --lm nonsense", "malformed LM spec"),
        ("eval --lm local:/nope.gguf", "no GGUF file"),
        ("eval --lm openai/gpt-4o-mini", "OPENAI_API_KEY"),
        ("eval --lm openai/x --api-base http://127.0.0.1:9", "cannot reach"),
        ("eval --lm-for plan=local --program vanilla", "no role of vanilla named 'plan'"),
        ("eval --compiled nowhere", "sidecar.json"),
        ("eval --config nowhere", "no config 'nowhere'"),
        ("evl", "did you mean eval"),
        ("ask Who? --docs absent", "absent"),
        ("show run nowhere", "not a run folder"),
        ("show program ircott", "did you mean ircot"),
    ],
)
def test_mistake_is_one_line_with_the_cure(
    capsys: pytest.CaptureFixture[str], args: str, expected: str
) -> None:
    code, out, err = run(capsys, *args.split())
    lines = [line for line in err.splitlines() if line]
    assert code == 2
    assert out == ""
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    assert expected in lines[0]


def test_mistake_leaves_no_run_folder_and_shows_no_control_characters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(capsys, "eval", "--set", "max_steps=0")
    assert not (tmp_path / "runs").exists()
    code, _, err = run(capsys, "eval", "--program", "x\x1b[31m\ny")
    assert code == 2
    assert "\x1b" not in err
    assert len(err.splitlines()) == 1
