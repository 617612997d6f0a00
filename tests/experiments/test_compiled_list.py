"""Compiled programs are listed, those that cannot be used too."""

from pathlib import Path

import pytest

from ragbench.errors import RunError
from ragbench.experiments.compile.compiler import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.report.compiled import print_programs
from tests.experiments.towns import World


def test_programs_are_listed_with_those_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path, monkeypatch)
    how = CompileConfig(out=world.folder / "compiled" / "mine")
    artefact = compile_program(world.config(), how, on_message=lambda line: None)
    unfinished = artefact.parent / "half"
    unfinished.mkdir()
    (unfinished / "compile.json").write_text("{}")
    print_programs(artefact.parent)
    shown = capsys.readouterr().out
    for words in ("bootstrap light", "vanilla", "| 0.", "unfinished compile"):
        assert words in shown, words
    with pytest.raises(RunError, match="no folder"):
        print_programs(world.folder / "none")
