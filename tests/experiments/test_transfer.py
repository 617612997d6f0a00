"""Compiled programs are listed, and asked on other LMs and data cell by cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import DataError, RunError
from ragbench.experiments.compare.transfers import Cell, transfer
from ragbench.experiments.compile.compiler import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.report.compiled import find_programs, print_programs
from ragbench.experiments.report.transfer import print_matrix
from ragbench.experiments.runs import context as setup
from tests.experiments.towns import N, World, helped_by_demos
from tests.fakes import Asked, Reply, ScriptedLM, plausible


def never_right(asked: Asked) -> Reply:
    return {**plausible(asked), "answer": "elsewhere"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.fixture
def artefact(world: World) -> Path:
    how = CompileConfig(out=world.folder / "compiled" / "mine")
    return compile_program(world.config(), how, on_message=lambda line: None)


def other_towns(world: World) -> Path:
    path = world.folder / "other.jsonl"
    text = world.data.read_text()
    for i in range(N):
        text = text.replace(f"number {i} ", f"number {i + 100} ").replace(
            f'Town {i}"', f'Town {i + 100}"'
        )
    path.write_text(text.replace('"id": "q', '"id": "other'))
    return path


def matrix(world: World, artefact: Path, monkeypatch: pytest.MonkeyPatch, **over: Any) -> Any:
    lms = {
        "helped": world.lm,
        "deaf": ScriptedLM(never_right, name=f"deaf-{world.folder}"),
    }
    monkeypatch.setattr(setup, "make_lm", lambda spec, **_: lms[spec])
    config = world.config(out=world.folder / "transfer", k=None, **over)
    data = [f"jsonl={world.data}", f"jsonl={other_towns(world)}"]
    cells = transfer(artefact, config, lms=list(lms), data=data, on_message=lambda line: None)
    return cells, lms


def test_the_matrix(
    world: World, artefact: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    cells, _ = matrix(world, artefact, monkeypatch)
    assert [cell.home for cell in cells] == [True, False, False, False]
    gains = [cell.scores["em"].difference for cell in cells]
    assert gains[0] > 0
    assert gains[1] > 0
    assert gains[2:] == [0, 0]
    family = [c for cell in cells for c in cell.scores.values()]
    smallest = min(family, key=lambda c: c.p)
    assert smallest.p_adjusted == pytest.approx(min(1.0, 8 * smallest.p))
    for cell in cells:
        for run in (cell.compiled, cell.zero_shot):
            assert (run.folder / "config.json").is_file()
    print_matrix(cells)
    shown = capsys.readouterr().out
    assert "*" in shown
    assert "no difference shown" in shown
    assert len(json.loads((world.folder / "transfer" / "transfer.json").read_text())["cells"]) == 4


def test_given_again_it_asks_nothing(
    world: World, artefact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix(world, artefact, monkeypatch)
    world.use(helped_by_demos, cache=False)
    cells, lms = matrix(world, artefact, monkeypatch)
    assert all(isinstance(cell, Cell) for cell in cells)
    assert [lm.asked for lm in lms.values()] == [[], []]


def test_questions_it_was_compiled_with_are_refused(
    world: World, artefact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="used to compile"):
        matrix(world, artefact, monkeypatch, split="train")


def test_programs_are_listed_with_those_that_cannot_be_used(
    world: World, artefact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished = artefact.parent / "half"
    unfinished.mkdir()
    (unfinished / "compile.json").write_text("{}")
    shelf = find_programs(artefact.parent)
    assert [row.folder.name for row in shelf] == ["half", "mine"]
    print_programs(shelf)
    shown = capsys.readouterr().out
    for words in ("bootstrap light, seed 0", "vanilla", "f1 0.", "unfinished compile"):
        assert words in shown, words
    with pytest.raises(RunError, match="no folder"):
        find_programs(world.folder / "none")
