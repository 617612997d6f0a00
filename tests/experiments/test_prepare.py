"""What all questions share, such as an index, is made first, filed apart, and shown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from ragbench.cli.progress import RunProgress
from ragbench.experiments.artifacts.artifact import read_sidecar
from ragbench.experiments.compile.compiler import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.runs import evaluate
from ragbench.retrievers.tree import index as tree
from tests.experiments.towns import World
from tests.retrievers.conftest import WordEmbedder


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(tree, "make_embedder", lambda spec, api_base="": WordEmbedder())
    return World(tmp_path, monkeypatch)


def test_a_compile_makes_it_before_the_first_question(world: World, tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    folder = compile_program(
        world.config(program="tree_rag", setting="pooled"),
        CompileConfig(out=tmp_path / "out", train_limit=2, val_limit=2),
        on_message=lambda line: None,
        on_prepare=lambda done, n: shown.append((done, n)),
    )
    signatures = world.lm.signatures
    summaries = signatures.count("Summarize")
    assert summaries > 1
    assert set(signatures[:summaries]) == {"Summarize"}
    assert shown[-1] == (summaries, summaries)
    billed = read_sidecar(folder).cost["billed"]
    assert billed["preparation"]["calls"] == summaries
    assert billed["zero_shot"]["calls"] == 2
    assert billed["all"]["calls"] == len(signatures)


def test_a_run_shows_it_too(world: World, tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    config = world.config(program="tree_rag", setting="pooled", limit=1, out=tmp_path / "run")
    evaluate(config, on_prepare=lambda done, n: shown.append((done, n)))
    assert shown[-1] == (world.lm.signatures.count("Summarize"),) * 2


def test_the_bar_is_there_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    progress = RunProgress()
    progress._bar.live.console = Console(file=out, force_terminal=True, width=80)
    progress._bar.disable = False
    progress.prepare(3, 10)
    progress._bar.live.console.print(progress._bar.get_renderable())
    assert "preparing" in out.getvalue()
    assert "3/10" in out.getvalue()
    progress.prepare(10, 10)
    assert [task.visible for task in progress._bar.tasks] == [False]
