"""`ragbench models`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ragbench.cli.listing import models_command
from ragbench.errors import UnknownNameError


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
