"""`ragbench models`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ragbench.cli.listing import models_command
from ragbench.errors import LMSetupError, UnknownNameError
from ragbench.lms import make_lm


def run(*arguments: str) -> str:
    result = CliRunner().invoke(models_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_list_says_what_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    listed = run("list")
    rows = [[cell.strip() for cell in row.split("|")] for row in listed.splitlines()]
    found = {row[1]: row[3] for row in rows if len(row) > 3 and row[3] in ("yes", "no")}
    assert found == dict.fromkeys(["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "minilm-int8"], "no")
    assert str(tmp_path) in "".join(listed.split())


def test_pull_says_where_it_is() -> None:
    run("pull", "qwen2.5-coder-0.5b")
    said = run("pull")
    assert "already installed" in said
    assert Path(said.rpartition(", ")[2].strip()).is_file()


def test_mistakes_name_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    with pytest.raises(UnknownNameError, match="did you mean"):
        run("pull", "qwen2.5-coder-0.5b", "minilm")
    assert not list(tmp_path.iterdir())
    with pytest.raises(LMSetupError, match="not served here"):
        run("serve", "openai/gpt-4.1-mini")


def test_serve_serves_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with subprocess.Popen(
        [sys.executable, "-m", "ragbench", "models", "serve", "--slots", "1", "--context", "512"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "RAGBENCH_SERVER_KEY": "a-key", "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        lm = make_lm("openai/qwen2.5-coder-0.5b", api_base=first.split()[3], max_tokens=4)
        lm.check()
        assert lm("Hello")
        assert "a-key" not in second
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        lm.close()
