"""What all questions share, such as an index, is made first, filed apart, and shown."""

import io
from pathlib import Path
from types import SimpleNamespace as Namespace

import pytest
from rich.console import Console

from ragbench.cli import progress as module
from ragbench.cli.progress import RunProgress
from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.compile.compiler import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.runs import evaluate
from ragbench.record import Totals
from ragbench.retrievers.lm_index import base as lm_index
from tests.experiments.towns import World
from tests.retrievers.conftest import WordEmbedder


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(lm_index, "make_embedder", lambda spec, api_base="": WordEmbedder())
    return World(tmp_path, monkeypatch)


def test_a_compile_makes_it_before_the_first_question(world: World, tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    said: list[str] = []
    folder = compile_program(
        world.config(program="tree_rag", setting="pooled"),
        CompileConfig(out=tmp_path / "out", train_limit=2, val_limit=2),
        on_message=said.append,
        on_prepare=lambda done, n: shown.append((done, n)),
    )
    assert not any("cannot be rehearsed" in line for line in said), said
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


def test_a_file_gets_a_line_every_30_seconds_with_rate_and_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, now = io.StringIO(), [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    progress = RunProgress("facts", Console(file=out, width=80))
    for second, done in ((10, 5), (40, 20), (50, 25), (75, 50)):
        now[0] = second
        ledger = Namespace(billed=Totals(calls=2 * done, attempts=2 * done, cost_usd=0.01 * done))
        monkeypatch.setattr("ragbench.ledger.current_ledger", lambda ledger=ledger: ledger)
        progress.prepare(done, 100)
    assert out.getvalue().splitlines() == [
        "facts 20/100, 2:40 left  30.0/min  $0.2000  about $1.0000 in all",
        "facts 50/100, 1:12 left  41.5/min  $0.5000  about $1.0000 in all",
    ]
